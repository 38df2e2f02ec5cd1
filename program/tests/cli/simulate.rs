//! Guarantees of the program: errors, clean ends, and the same files however
//! it is run.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cli::{self, Call, Ranks, Scratch, files, has_mpi, signal};
use serde_json::Value;

/// Returns a `.npy` file of little-endian elements.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let text = format!("{text:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.bytes());
    bytes.extend(data);
    bytes
}

/// Some numbers of mean 0 that are the same in f32 and f64.
fn noise() -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as f32 / 32768.0 - 1.0
    };
    (0..512).map(|_| next()).collect()
}

fn f32_npy(values: &[f32]) -> Vec<u8> {
    npy("<f4", "(8, 8, 8)", &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

struct Row {
    name: &'static str,
    words: Vec<String>,
    env: &'static [(&'static str, &'static str)],
    code: i32,
    says: &'static [&'static str],
    /// Tried under MPI too.
    mpi: bool,
}

/// Runs every row in every way; nothing may be left of any.
fn all_fail(rows: &[Row]) {
    let mpi = has_mpi();
    for row in rows {
        let mut ways = vec![Ranks::Threads(1)];
        if !row.words.iter().any(|word| word == "--ranks" || word == "--grid") {
            ways.push(Ranks::Threads(3));
        }
        if mpi && row.mpi {
            ways.push(Ranks::Mpi(2));
        }
        for ranks in ways {
            let scratch = Scratch::new();
            let words: Vec<&str> = row.words.iter().map(String::as_str).collect();
            let mut call = Call::simulate(&scratch.join("new/out"), &words).on(ranks);
            for (name, value) in row.env {
                call = call.env(name, value);
            }
            call.run().is_error(row.name, row.code, row.says);
            assert!(
                fs::read_dir(scratch.path()).unwrap().next().is_none(),
                "{}: {:?}",
                row.name,
                files(scratch.path())
            );
        }
    }
}

fn row(name: &'static str, words: &str, code: i32, says: &'static [&'static str]) -> Row {
    let words = words.split_whitespace().map(String::from).collect();
    Row { name, words, env: &[], code, says, mpi: false }
}

impl Row {
    fn mpi(self) -> Self {
        Row { mpi: true, ..self }
    }
}

/// Returns what is said of a light cone; without HDF5 there is none.
fn if_hdf5(says: &'static [&'static str]) -> &'static [&'static str] {
    if cfg!(feature = "hdf5") { says } else { &["built without HDF5"] }
}

#[test]
fn wrong_words_and_values_exit_2() {
    all_fail(&[
        row("mesh below particles", "--mesh 4", 2, &["mesh is 4", "number of particles"]).mpi(),
        row("no particles", "--particles 0", 2, &["--particles is 0"]),
        row("negative particles", "--particles -8", 2, &["--particles is -8"]),
        row("no mesh", "--mesh 0", 2, &["--mesh is 0"]),
        row("negative mesh", "--mesh -1", 2, &["--mesh is -1"]),
        row("no steps", "--steps 0", 2, &["--steps is 0"]),
        row("negative steps", "--steps -2", 2, &["--steps is -2"]),
        row("too many steps", "--steps 9223372036854775807", 2, &["steps"]),
        row("half a particle", "--particles 8.5", 2, &["--particles", "8.5"]),
        row("no box", "--box 0", 2, &["box is 0"]),
        row("negative box", "--box -1", 2, &["box is -1"]),
        row("box is not a number", "--box nan", 2, &["box is NaN"]),
        row("infinite box", "--box inf", 2, &["box is inf"]),
        row("too large a mesh for kernels", "--mesh 32768", 2, &["mesh is 32768"]),
        row("start after end", "--a-start 0.9 --a-end 0.5", 2, &["0.5"]),
        row("end in the future", "--a-end 2", 2, &["a_end = 2"]),
        row("snapshot too early", "--snapshots 0.01", 2, &["0.01"]),
        row("snapshot too late", "--snapshots 0.5,1.5", 2, &["1.5"]).mpi(),
        row("snapshot is no number", "--snapshots 0.5,soon", 2, &["soon"]),
        row("halos too heavy", "--box 1e6 --linking-parameter 0.2", 2, &["no mass function", "--linking-parameter 0"])
            .mpi(),
        row("groups", "--linking-parameter -0.2", 2, &["--linking-parameter is -0.2", "mean separations"]),
        row("groups' length", "--linking-length -0.2", 2, &["--linking-length is -0.2", "Mpc/h"]),
        row("two lengths", "--linking-length 1 --linking-parameter 0.2", 2, &["cannot be used with"]),
        row("lpt 4", "--lpt 4", 2, &["--lpt is 4"]),
        row("scheme", "--scheme euler", 2, &["euler"]),
        row("window", "--window pcs", 2, &["pcs"]),
        row("noise", "--noise-by row", 2, &["--noise-by", "row", "mode, site"]),
        row("sigma8", "--sigma8 0", 2, &["sigma8 = 0", "(0, 100]"]),
        row("phantom", "--w0 -4", 2, &["w0 = -4"]),
        row("early dark energy", "--wa 1", 2, &["wa = 1", "w0 + wa"]),
        row("cosmology", "--cosmology wmap", 2, &["wmap", "planck18"]),
        row(
            "cone far",
            "--light-cone 1,2,3 --light-cone-distance 9000",
            2,
            if_hdf5(&["distance of the light cone is 9000"]),
        ),
        row(
            "cone of nothing",
            "--light-cone 1,2,3 --light-cone-distance nan",
            2,
            if_hdf5(&["distance", "NaN", "above 0"]),
        ),
        row("cone of boxes", "--box 2 --light-cone 1,1,1 --light-cone-distance 200", 2, if_hdf5(&["60 sides"])),
        row("no way", "--light-cone 1,2,3", 2, if_hdf5(&["--light-cone-distance", "--light-cone-redshift"])),
        row(
            "cone from before",
            "--light-cone 1,2,3 --light-cone-redshift 20",
            2,
            if_hdf5(&["distance of the light cone"]),
        ),
        row(
            "cone from tomorrow",
            "--light-cone 1,2,3 --light-cone-redshift -0.1",
            2,
            if_hdf5(&["--light-cone-redshift is -0.1"]),
        ),
        row(
            "observer outside",
            "--light-cone 1,2,200 --light-cone-distance 90",
            2,
            if_hdf5(&["observer", "200.0", "in the box"]),
        )
        .mpi(),
        row("observer nowhere", "--light-cone 1,nan,2 --light-cone-distance 90", 2, if_hdf5(&["observer", "NaN"])),
        row(
            "observer in a plane",
            "--light-cone 1,2 --light-cone-distance 90",
            2,
            if_hdf5(&["--light-cone has 2 numbers"]),
        ),
        row(
            "closed cone",
            "--light-cone 1,2,3 --light-cone-distance 90 --light-cone-direction 1,0,0 --light-cone-opening 0",
            2,
            if_hdf5(&["opening of the light cone is 0", "180 degrees"]),
        ),
        row(
            "half a sky",
            "--light-cone 1,2,3 --light-cone-distance 90 --light-cone-opening 5",
            2,
            if_hdf5(&["go together"]),
        ),
        row("a sky for nobody", "--light-cone-opening 5", 2, &["--light-cone-opening needs --light-cone"]),
        row("option", "--partikles 8", 2, &["--partikles"]).mpi(),
        row("no ranks", "--ranks 0", 2, &["--ranks"]),
        row("grid", "--grid 2x2", 2, &["2x2"]).mpi(),
        row("grid is none", "--grid 4", 2, &["4"]),
        row("migrate is 0", "--migrate 0", 2, &["auto", "never", "`0`"]),
        row("huge grid", "--grid 9999999999999x9999999999999", 2, &["grid"]),
        row("device", "--device nosuch", 2, &["no adapter matches `nosuch`", "there are: 0: ", "name one of these"])
            .mpi(),
    ]);
    let scratch = Scratch::new();
    Call::new(&["simulat", "--out", &scratch.word("out")]).run().is_error("subcommand", 2, &["simulat"]);
    Call::new(&["simulate", "--out", "-"]).run().is_error("standard output", 2, &["--out is -"]);
    Call::new(&["simulate"]).run().is_error("no output", 2, &["--out"]);
}

#[test]
fn bad_files_and_devices_exit_1() {
    let scratch = Scratch::new();
    let good = noise();
    let with = |index: usize, value: f32| {
        let mut values = good.clone();
        values[index] = value;
        f32_npy(&values)
    };
    let file = |name: &str, bytes: Vec<u8>| format!("--white-noise {}", scratch.file(name, bytes));
    let toml = |name: &str, text: &str| format!("--config {}", scratch.file(name, text));
    let cosmology = |name: &str, text: &str| format!("--cosmology {}", scratch.file(name, text));
    let mut truncated = f32_npy(&good);
    truncated.truncate(1000);
    let below = |name: &str| format!("{}/{name}", scratch.file("file", "x"));
    all_fail(&[
        Row {
            env: &[("VK_DRIVER_FILES", "/nonexistent"), ("VK_ICD_FILENAMES", "/nonexistent")],
            ..row("no adapter", "", 1, &["no usable GPU adapter was found", "mesa-vulkan-drivers"]).mpi()
        },
        row("not a number", &file("nan.npy", with(37, f32::NAN)), 1, &["nan.npy", "(0, 4, 5)", "NaN"]).mpi(),
        // On the last rank, while the first of two is on an earlier one.
        row("infinity", &file("inf.npy", with(511, f32::INFINITY)), 1, &["inf.npy", "(7, 7, 7)"]).mpi(),
        row("shape", &file("shape.npy", npy("<f4", "(512,)", &[0; 2048])), 1, &["(512,)", "8"]).mpi(),
        row("integers", &file("int.npy", npy("<i4", "(8, 8, 8)", &[0; 2048])), 1, &["type", "float"]),
        row("truncated", &file("cut.npy", truncated), 1, &["truncated"]).mpi(),
        row("not npy", &file("text.npy", b"hello".to_vec()), 1, &["not a NumPy .npy file"]),
        row("no noise", "--white-noise no-such.npy", 1, &["no-such.npy: no such file"]).mpi(),
        row("unknown key", &toml("key.toml", "partikles = 8"), 1, &["key.toml", "partikles"]).mpi(),
        row("bad toml", &toml("bad.toml", "particles = = 8"), 1, &["bad.toml"]),
        row("no config", "--config no-such.toml", 1, &["no-such.toml"]),
        row("no cosmology", "--cosmology no-such.toml", 1, &["no-such.toml"]),
        row("half a cosmology", &cosmology("half.toml", "n_s = 0.96\nh = 0.7"), 1, &["half.toml", "Omega_m"]),
        row(
            "two amplitudes",
            &cosmology("two.toml", "A_s=2e-9\nsigma8=0.8\nn_s=1\nOmega_m=0.3\nOmega_b=0.05\nh=0.7"),
            1,
            &["either A_s or sigma8"],
        ),
        row(
            "a cosmology without matter",
            &cosmology("void.toml", "sigma8=0.8\nn_s=1\nOmega_m=-0.3\nOmega_b=0.05\nh=0.7"),
            2,
            &["void.toml", "Omega_m"],
        ),
    ]);
    for ranks in [Ranks::Threads(1), Ranks::Threads(3)] {
        let under = below("out");
        Call::simulate(Path::new(&under), &[]).on(ranks).run().is_error("below a file", 1, &["is a file"]);
        Call::simulate(Path::new("/proc/x"), &[]).on(ranks).run().is_error("unwritable", 1, &["/proc/x"]);
    }
}

#[test]
fn a_mesh_beyond_the_devices_memory_is_refused_with_both_sizes() {
    let devices: Value = serde_json::from_str(&Call::new(&["devices", "--json"]).succeeds().stdout).unwrap();
    if devices["devices"][0]["memory"].as_u64().is_none_or(|memory| memory > 8 << 30) {
        println!("skipped: the device's memory is large or unknown");
        return;
    }
    all_fail(&[
        row("memory", "--mesh 1024", 1, &["the run needs", "GiB of device memory", "there are"]).mpi(),
        // Before the steps, not after them.
        row(
            "groups",
            "--particles 1024 --mesh 1024 --box 1000 --linking-parameter 0.2",
            1,
            &["to find groups", "--linking-length 0"],
        ),
    ]);
}

#[test]
fn a_full_disk_leaves_nothing_but_a_checkpoint() {
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    let scratch = Scratch::new();
    let place = scratch.join("small");
    fs::create_dir(&place).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&place).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        println!("skipped: this user may not mount a small file system");
        return;
    }
    let _mounted = Mounted(place.clone());
    // Positions and velocities take 384 KiB each, as those of the checkpoint that several ranks
    // write first: the density does not fit beside them, nor does a snapshot.
    let words = ["--particles", "32", "--mesh", "64", "--steps", "1"];
    let mut ways = vec![Ranks::Threads(1), Ranks::Threads(3)];
    ways.extend(has_mpi().then_some(Ranks::Mpi(2)));
    for (ranks, more) in
        ways.iter().flat_map(|&ranks| [(ranks, &["--save-density"][..]), (ranks, &["--snapshots", "1"])])
    {
        let outcome = Call::simulate(&place.join("out"), &[&words[..], more].concat()).on(ranks).run();
        outcome.is_error("full disk", 1, &[".npy: the disk is full", "the file needs"]);
        let (out, checkpoint) = (place.join("out"), place.join("out/checkpoint"));
        assert!(files(&place).iter().all(|file| file.starts_with(&checkpoint)), "{ranks:?}: {:?}", files(&place));
        assert!(checkpoint.join("snapshot.json").is_file(), "{ranks:?} {more:?}: {:?}", files(&place));
        fs::remove_dir_all(&out).ok();
    }
}

#[test]
fn an_interrupt_ends_a_run_with_one_message() {
    for (name, code) in [("INT", 130), ("HUP", 129)] {
        let scratch = Scratch::new();
        let out = scratch.join("out");
        let mut run = Call::long_simulation(&out).on(Ranks::Threads(3)).start();
        run.until("output directory", |_| out.is_dir());
        signal(run.pid(), name);
        let outcome = run.wait(Duration::from_secs(10));
        outcome.is_error(name, code, &["interrupted"]);
        assert!(files(scratch.path()).is_empty(), "{:?}", files(scratch.path()));
    }
}

/// Batch systems send SIGTERM, or what they are told to, some time before they kill.
#[test]
fn a_run_that_is_stopped_says_where_and_a_second_signal_ends_it() {
    for (name, code) in [("TERM", 143), ("USR1", 138)] {
        let scratch = Scratch::new();
        let out = scratch.join("out");
        let mut run = Call::long_simulation(&out).on(Ranks::Threads(3)).start();
        run.until("output directory", |_| out.is_dir());
        signal(run.pid(), name);
        let outcome = run.wait(Duration::from_secs(30));
        outcome.is_error(name, code, &["stopped by a signal after step", "of 10000", "--resume"]);
        let left: Vec<_> = files(&out).iter().map(|path| path.strip_prefix(&out).unwrap().to_owned()).collect();
        assert_eq!(
            left,
            ["displacements.npy", "snapshot.json", "velocities.npy"].map(|name| Path::new("checkpoint").join(name))
        );
    }
}

#[test]
fn a_run_stops_before_its_time_limit() {
    for (ranks, words, slurm) in [(2, &["--time-limit", "1s"][..], ""), (1, &[], "1")] {
        let scratch = Scratch::new();
        let out = scratch.join("out");
        // A job whose end is one second away is over for a run that has yet to compile kernels.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let end = if slurm.is_empty() { String::new() } else { (now.as_secs() + 2).to_string() };
        let run =
            Call::long_simulation(&out).words(words).on(Ranks::Threads(ranks)).env("SLURM_JOB_END_TIME", &end).start();
        let outcome = run.wait(Duration::from_secs(60));
        outcome.is_error("limit", 143, &["stopped by the time limit after step", "of 10000", "--resume goes on there"]);
        assert!(out.join("checkpoint/snapshot.json").is_file(), "{:?}", files(&out));
    }
    let scratch = Scratch::new();
    for wrong in ["0", "soon", "30min2h", "-1"] {
        let outcome = Call::simulate(&scratch.join("out"), &[&format!("--time-limit={wrong}")]).run();
        outcome.is_error(wrong, 2, &["--time-limit"]);
    }
}

/// A run resumes from its last checkpoint, also if it was killed while that got its name.
#[test]
fn a_killed_run_goes_on_from_a_checkpoint_by_time() {
    let scratch = Scratch::new();
    let (out, other) = (scratch.join("out"), scratch.join("other"));
    let words = ["--steps", "800", "--checkpoint-every", "1"];
    Call::simulate(&other, &words).succeeds();
    assert!(!other.join("checkpoint").exists() && json(&other.join("run.json"))["checkpoint_every"] == "1s");
    let [checkpoint, next] = ["checkpoint", "checkpoint.next"].map(|name| out.join(name));
    let mut run = Call::simulate(&out, &words).on(Ranks::Threads(2)).start();
    run.until("a checkpoint", |_| checkpoint.join("snapshot.json").is_file() || out.join("run.json").exists());
    signal(run.pid(), "KILL");
    run.wait(Duration::from_secs(10));
    if out.join("run.json").exists() {
        println!("skipped: the run ended within a second");
        return;
    }
    // The state of a run that was killed between two renames: one file has its new place, the
    // description has not.
    let _ = fs::remove_dir_all(&next);
    fs::rename(&checkpoint, &next).unwrap();
    fs::create_dir(&checkpoint).unwrap();
    fs::rename(next.join("velocities.npy"), checkpoint.join("velocities.npy")).unwrap();
    Call::simulate(&out, &[&words[..], &["--resume"]].concat()).succeeds();
    assert!(json(&out.join("run.json"))["resumed_from_step"].as_u64() > Some(0));
    alike("killed", &whole(&out), &whole(&other));
}

/// Its files at the end, too.
#[test]
fn a_run_that_is_stopped_after_its_steps_loses_none() {
    let words = ["--steps", "2", "--mesh", "128"];
    for ranks in [1, 2].map(Ranks::Threads) {
        let scratch = Scratch::new();
        let (out, other) = (scratch.join("out"), scratch.join("other"));
        let mut run = Call::simulate(&out, &words).on(ranks).start();
        let unfinished =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".positions"));
        run.until("a file at the end", |_| files(&out).iter().any(unfinished));
        signal(run.pid(), "TERM");
        let outcome = run.wait(Duration::from_secs(30));
        if !outcome.status.success() {
            outcome.is_error("TERM", 143, &["stopped by a signal after step 2 of 2"]);
            assert!(out.join("checkpoint/snapshot.json").is_file() && !out.join("run.json").exists());
            Call::simulate(&out, &[&words[..], &["--resume"]].concat()).succeeds();
        }
        Call::simulate(&other, &words).succeeds();
        alike("stopped at the end", &whole(&out), &whole(&other));
    }
}

#[test]
fn steps_are_kept_where_a_file_at_the_end_fails() {
    for ranks in [1, 2].map(Ranks::Threads) {
        let scratch = Scratch::new();
        let (out, other) = (scratch.join("out"), scratch.join("other"));
        // The state fits in files of that many KiB, the density does not.
        let words = ["--mesh", "64", "--save-density"];
        let outcome = Call::simulate(&out, &words).on(ranks).before("ulimit -f 512").run();
        if outcome.status.code().is_none() {
            println!("skipped: this driver has no memory where files are limited");
            return;
        }
        outcome.is_error("a file at the end", 1, &["density.npy", "ulimit -f"]);
        assert!(out.join("checkpoint/snapshot.json").is_file(), "{:?}", files(&out));
        Call::simulate(&out, &[&words[..], &["--resume"]].concat()).succeeds();
        Call::simulate(&other, &words).succeeds();
        alike("failed at the end", &whole(&out), &whole(&other));
    }
}

/// Ranks that were started in different directories, as those of hosts with disks of their own.
#[test]
fn ranks_with_other_files_are_refused() {
    if !has_mpi() {
        return;
    }
    let (scratch, program) = (Scratch::new(), cli::program().to_str().unwrap().to_string());
    // The first rank is where tests are, which is where this file is another.
    fs::write(scratch.join("Cargo.toml"), "").unwrap();
    let (sorted, other) = (scratch.word("sorted.npy"), scratch.word(""));
    for (words, says) in [
        (&["sort", "Cargo.toml", "-o", &sorted][..], "Cargo.toml: rank 1 (on "),
        (&["simulate", "--out", "no-run", "--particles", "8", "--mesh", "8"], "no-run: rank 1 (on "),
        (&["shallow-water", "--out", "no-flow", "--steps", "1"], "no-flow: rank 1 (on "),
    ] {
        let second = [&[":", "-n", "1", "-wdir", &other, &program][..], words].concat();
        Call::new(words).words(&second).on(Ranks::Mpi(1)).run().is_error("other files", 1, &[says]);
    }
    assert_eq!(files(scratch.path()).len(), 1);
    assert!(!Path::new("no-run").exists() && !Path::new("no-flow").exists());
}

#[test]
fn a_run_stopped_at_20_moments_and_resumed_is_the_finished_run() {
    let scratch = Scratch::new();
    let (out, other) = (scratch.join("out"), scratch.join("other"));
    // Some steps are between two of the snapshots.
    let words = [
        "--steps",
        "150",
        "--snapshots",
        "0.2,0.5031",
        "--scheme",
        "fastpm",
        "--linking-parameter",
        "0.3",
        "--box",
        "12",
    ];
    Call::simulate(&other, &words).succeeds();
    let again = [&words[..], &["--resume"]].concat();
    // Any moments do: Weyl's sequence in milliseconds. The first ones come before there is a
    // handler, when the run dies as ever.
    let (mut stops, mut moment) = (0, 0u64);
    while stops < 20 {
        moment = (moment + 618) % 1000;
        let ranks = Ranks::Threads(1 + (moment % 3) as u16);
        let mut run = Call::simulate(&out, &again).on(ranks).start();
        std::thread::sleep(Duration::from_millis(moment));
        if run.is_over() {
            assert!(run.wait(Duration::from_secs(1)).status.success());
            fs::remove_dir_all(&out).unwrap();
            continue;
        }
        signal(run.pid(), "TERM");
        let outcome = run.wait(Duration::from_secs(30));
        if outcome.status.success() {
            fs::remove_dir_all(&out).unwrap();
            continue;
        }
        assert!(matches!(outcome.status.code(), Some(143) | None), "{outcome:#?}");
        assert!(files(&out).iter().all(|path| path.extension().is_none_or(|end| end != "part")));
        stops += 1;
    }
    Call::simulate(&out, &again).succeeds();
    alike("stopped 20 times", &whole(&out), &whole(&other));
}

/// Processes of one job that are not called alike: an error of the call, and no run of half this
/// and half that.
#[test]
fn ranks_that_are_called_differently_are_refused() {
    if !has_mpi() {
        return;
    }
    let scratch = Scratch::new();
    let (out, program) = (scratch.join("out"), cli::program().to_str().unwrap().to_string());
    let run = ["simulate", "--out", out.to_str().unwrap(), "--particles", "8", "--mesh", "8", "--steps", "1"];
    let with = |words: &[&str], others: &[&str]| {
        let second = [&run[..], others].concat();
        Call::new(&[&run[..], words].concat()).words(&[":", "-n", "1", &program]).words(&second).on(Ranks::Mpi(1)).run()
    };
    for (words, others, says) in [
        (&["--seed", "1"][..], &["--seed", "2"][..], r#"differs between ranks: rank 0 has "1", rank 1 has "2""#),
        (&[], &["--window", "tsc"], "`arguments` differs between ranks"),
        (&["--hdf5", "one"], &["--json"], "`arguments` differs between ranks"),
    ] {
        with(words, others).is_error("ranks that differ", 2, &[says]);
    }
    assert!(!out.exists(), "nothing was begun");
    let outcome = with(&["--device", "auto", "--quiet"], &["--device=auto", "--json"]);
    assert_eq!(outcome.status.code(), Some(0), "{outcome:#?}");
}

#[test]
fn a_killed_rank_ends_all_ranks() {
    if !has_mpi() {
        return;
    }
    for victim in 0..2 {
        let scratch = Scratch::new();
        let out = scratch.join("out");
        let mut run = Call::long_simulation(&out).on(Ranks::Mpi(2)).start();
        // Before the lock ranks look for a file of one of them, which a killed one would leave.
        run.until("two ranks at work", |run| run.ranks().len() == 2 && out.join(".meshloom.lock").exists());
        let ranks = run.ranks();
        signal(ranks[victim], "KILL");
        let outcome = run.wait(Duration::from_secs(20));
        assert!(!outcome.status.success(), "{outcome:#?}");
        // The file of a killed process's lock may stay, which is one no longer.
        let left = files(scratch.path());
        assert!(left.iter().all(|path| *path == out.join(".meshloom.lock")), "{left:?}");
        for rank in ranks {
            // The launcher ends before those that it has killed.
            let alive = || fs::read_to_string(format!("/proc/{rank}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
            assert!(
                (0..50).any(|_| {
                    std::thread::sleep(Duration::from_millis(if alive() { 100 } else { 0 }));
                    !alive()
                }),
                "rank {rank} is left"
            );
        }
    }
}

/// Outputs that cannot be replaced are reported before the steps: here before a device is looked
/// for.
#[test]
fn what_stands_in_the_way_of_outputs_is_told_at_the_start() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    for name in ["positions.npy", "run.json", "height.npy"] {
        fs::create_dir_all(out.join(name).join("full")).unwrap();
    }
    let simulate = |out: &str, words: &[&str]| {
        Call::new(&["simulate", "--out", out, "--particles", "8", "--device", "nosuch"]).words(words)
    };
    let shallow = |out: &str| Call::new(&["shallow-water", "--out", out, "--device", "nosuch", "--snapshots", "1"]);
    let (other, word) = (scratch.join("other"), scratch.word("other"));
    fs::create_dir(&other).unwrap();
    for name in ["snapshot_0.5", "snapshot_4330", "checkpoint"] {
        fs::write(other.join(name), b"x").unwrap();
    }
    scratch.all_fail([
        (simulate(out.to_str().unwrap(), &[]), 1, "run.json: not a regular file"),
        (shallow(out.to_str().unwrap()), 1, "run.json: not a regular file"),
        (simulate(&word, &["--snapshots", "0.5"]), 1, "snapshot_0.5: is a file"),
        (simulate(&word, &[]), 1, "checkpoint: is a file"),
        (shallow(&word), 1, "snapshot_4330: is a file"),
    ]);
}

/// A launcher's signal is not a request to stop where a rank has failed: the first one, which waits
/// for it, removes what is unfinished.
#[test]
fn a_rank_that_fails_while_it_steps_leaves_nothing_unfinished() {
    if !has_mpi() {
        return;
    }
    let scratch = Scratch::new();
    let (out, program) = (scratch.join("out"), cli::program().to_str().unwrap().to_string());
    let run = Call::simulate(&out, &["--particles", "16", "--mesh", "32", "--box", "32", "--snapshots", "0.5"]).words;
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    // No file of a snapshot may be so long.
    let limited = [&[":", "-n", "1", "sh", "-c", "ulimit -f 20; exec \"$@\"", "sh", &program][..], &run].concat();
    let outcome = Call::new(&run).words(&limited).on(Ranks::Mpi(1)).run();
    outcome.is_error("a limit on one rank", 1, &["rank 1: ", "ulimit -f"]);
    assert!(files(&out).is_empty(), "{:?}", files(&out));
}

const RESULTS: [&str; 3] = ["positions.npy", "velocities.npy", "power_spectrum.csv"];

fn results(out: &Path) -> [Vec<u8>; 3] {
    RESULTS.map(|name| fs::read(out.join(name)).unwrap_or_else(|e| panic!("{}: {e}", out.join(name).display())))
}

#[track_caller]
fn same(what: &str, got: &[Vec<u8>; 3], want: &[Vec<u8>; 3]) {
    for ((name, got), want) in RESULTS.iter().zip(got).zip(want) {
        assert!(got == want, "{what}: {name} differs");
    }
}

#[test]
fn results_are_the_same_to_the_byte_however_it_is_run() {
    let scratch = Scratch::new();
    let run = |name: &str, words: &[&str], ranks: Ranks, env: &[(&str, &str)]| {
        let out = scratch.join(name);
        let mut call = Call::simulate(&out, words).on(ranks);
        for (name, value) in env {
            call = call.env(name, value);
        }
        let outcome = call.run();
        assert!(outcome.status.success(), "{name}: {outcome:#?}");
        results(&out)
    };
    let one = Ranks::Threads(1);
    let want = run("one", &[], one, &[]);
    let other = run("other", &["--seed", "2"], one, &[]);
    assert!((0..3).all(|i| other[i] != want[i]), "another seed gives other results");
    for ranks in 2..=5 {
        let name = format!("{ranks} threads");
        same(&name, &run(&name, &[], Ranks::Threads(ranks), &[]), &want);
    }
    same("pencils", &run("pencils", &["--grid", "2x2"], Ranks::Threads(4), &[]), &want);
    for rule in ["never", "1", "2"] {
        let name = format!("migrate {rule}");
        same(&name, &run(&name, &["--migrate", rule], Ranks::Threads(3), &[]), &want);
    }
    for (name, value) in [
        ("MESHLOOM_CHECKED", "1"),
        ("MESHLOOM_WINDOW_BYTES", "4096"),
        ("MESHLOOM_FLOOR", "1"),
        ("LP_NATIVE_VECTOR_WIDTH", "128"),
        ("LP_NATIVE_VECTOR_WIDTH", "512"),
    ] {
        let title = format!("{name}={value}");
        same(&title, &run(&title, &[], one, &[(name, value)]), &want);
    }
    if has_mpi() {
        for ranks in 1..=4 {
            let name = format!("{ranks} under mpirun");
            same(&name, &run(&name, &[], Ranks::Mpi(ranks), &[]), &want);
        }
        same("moves under mpirun", &run("mpi moves", &["--migrate", "1"], Ranks::Mpi(2), &[]), &want);
        same("pencils under mpirun", &run("mpi pencils", &["--grid", "2x2"], Ranks::Mpi(4), &[]), &want);
    }
}

/// Elements of a `.npy` file of f32.
fn values(bytes: &[u8]) -> Vec<f64> {
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[data..].chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
}

/// Another compiler may fuse a product and a sum where this one does not: already the first
/// transform of the start then differs in the last bits. Each of the 9 levels of the two transforms
/// of an 8^3 lattice commits at most 3 roundings of the largest value (a rotation and a sum), on
/// both devices; they grow as the displacement itself does, and each force of a step adds the same
/// once more.
#[test]
fn swiftshader_agrees_to_rounding() {
    let icd = std::env::var_os("MESHLOOM_TEST_SWIFTSHADER").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/swiftshader/vk_swiftshader_icd.json"),
        PathBuf::from,
    );
    if !icd.is_file() {
        println!("skipped: no SwiftShader (MESHLOOM_TEST_SWIFTSHADER names its ICD file)");
        return;
    }
    let scratch = Scratch::new();
    let [one, other] = ["one", "other"].map(|name| scratch.join(name));
    Call::simulate(&one, &[]).succeeds();
    let call = Call::simulate(&other, &["--ranks", "2"]).env("VK_DRIVER_FILES", icd.to_str().unwrap());
    call.succeeds();
    let report: Value = serde_json::from_slice(&fs::read(other.join("run.json")).unwrap()).unwrap();
    assert!(report["device"]["name"].as_str().unwrap().contains("SwiftShader"), "{report:#}");
    let (one, other) = (results(&one), results(&other));
    let (steps, levels, epsilon, side) = (2.0, 18.0, f64::from(f32::EPSILON) / 2.0, 128.0);
    let relative = 2.0 * 3.0 * levels * epsilon * (steps + 1.0);
    let [x, y] = [&one[0], &other[0]].map(|bytes| values(bytes));
    let [p, q] = [&one[1], &other[1]].map(|bytes| values(bytes));
    let spacing = side / 8.0;
    let site = |at: usize| [at / 3 / 64, at / 3 / 8 % 8, at / 3 % 8][at % 3] as f64 * spacing;
    let near = |d: f64| d - side * (d / side).round();
    let largest = x.iter().enumerate().map(|(at, x)| near(x - site(at)).abs()).fold(0.0, f64::max);
    // A position is rounded once more, as a number up to the box's side.
    let bound = relative * largest + 2.0 * epsilon * side;
    let moved = x.iter().zip(&y).map(|(x, y)| near(x - y).abs()).fold(0.0, f64::max);
    assert!(moved <= bound, "positions differ by {moved}, {bound} is allowed");
    let bound = relative * p.iter().fold(0.0, |most, p| f64::max(most, p.abs()));
    let moved = p.iter().zip(&q).map(|(p, q)| (p - q).abs()).fold(0.0, f64::max);
    assert!(moved <= bound, "momenta differ by {moved}, {bound} is allowed");
}

/// Returns all files of a run, by name and with their bytes; of `run.json` what does not say how
/// the run was made.
fn whole(out: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| {
        let (name, bytes) = (path.strip_prefix(out).unwrap().to_owned(), fs::read(&path).unwrap());
        let bytes = if name == Path::new("run.json") { result_of(&bytes) } else { bytes };
        (name, bytes)
    };
    files(out).into_iter().map(read).collect()
}

/// `run.json` without the keys in which a resumed run may differ from one that was never
/// interrupted.
fn result_of(bytes: &[u8]) -> Vec<u8> {
    let mut run: Value = serde_json::from_slice(bytes).unwrap();
    for key in [
        "resumed_from_step",
        "devices",
        "ranks",
        "grid",
        "seconds",
        "host_seconds",
        "bytes",
        "submissions",
        "dispatches",
    ] {
        assert!(run.as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    // One rank has no path to others.
    assert!(run["device"].as_object_mut().unwrap().remove("exchange").is_some());
    run.to_string().into_bytes()
}

#[track_caller]
fn alike(what: &str, got: &BTreeMap<PathBuf, Vec<u8>>, want: &BTreeMap<PathBuf, Vec<u8>>) {
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{what}");
    for (name, bytes) in want {
        assert!(got[name] == *bytes, "{what}: {} differs", name.display());
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Resumes a run from each of its snapshots, the last first, those after it removed.
fn resumes(words: &[&str], epochs: &[&str], ranks: Ranks, others: [Ranks; 2]) {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let list = epochs.join(",");
    let words = [words, &["--snapshots", &list]].concat();
    Call::simulate(&out, &words).on(ranks).succeeds();
    let want = whole(&out);
    let again = [&words[..], &["--resume"]].concat();
    for (number, epoch) in epochs.iter().enumerate().rev() {
        let ranks = others[number % 2];
        let step = json(&out.join(format!("snapshot_{epoch}/snapshot.json")))["step"].clone();
        Call::simulate(&out, &again).on(ranks).succeeds();
        alike(&format!("{again:?} from {epoch} on {ranks:?}"), &whole(&out), &want);
        assert_eq!(json(&out.join("run.json"))["resumed_from_step"], step);
        // All that the run wrote from this snapshot on.
        epochs[number..].iter().for_each(|epoch| fs::remove_dir_all(out.join(format!("snapshot_{epoch}"))).unwrap());
        files(&out)
            .into_iter()
            .filter(|path| path.parent() == Some(&out))
            .for_each(|path| fs::remove_file(path).unwrap());
    }
    Call::simulate(&out, &again).on(ranks).succeeds();
    alike("from the start", &whole(&out), &want);
    assert!(json(&out.join("run.json"))["resumed_from_step"].is_null());
}

#[test]
fn a_run_resumed_from_any_snapshot_is_the_finished_run() {
    let hdf5 = |kind: &'static str| if cfg!(feature = "hdf5") { vec!["--hdf5", kind] } else { vec![] };
    // The box has digits that a careless reader of JSON loses; groups form in so small a one.
    let words = [
        "--box",
        "12.345678901234567",
        "--linking-parameter",
        "0.3",
        "--save-density",
        "--steps",
        "3",
        "--scheme",
        "fastpm",
    ];
    let (one, two) = (Ranks::Threads(1), Ranks::Threads(2));
    resumes(&[&words[..], &hdf5("one")].concat(), &["0.0625", "0.3", "0.6875", "1"], one, [Ranks::Threads(3), one]);
    let words = ["--scheme", "bullfrog", "--lpt", "1", "--window", "tsc"];
    resumes(&[&words[..], &hdf5("per-rank")].concat(), &["0.5", "1"], two, [two; 2]);
}

/// Spheres about halos: a mass is that of whole particles, and fills its radius with the density
/// that was asked for.
#[test]
fn halos_have_masses_of_spherical_overdensities() {
    use meshloom::cosmology::{Cosmology, Overdensity};
    use meshloom::io::NpzFile;

    let scratch = Scratch::new();
    let words = [
        "--particles",
        "16",
        "--mesh",
        "32",
        "--box",
        "16",
        "--steps",
        "4",
        "--linking-parameter",
        "0.2",
        "--overdensity",
        "200m,500c,vir",
    ];
    let run = |name: &str, ranks: Ranks| {
        let out = scratch.join(name);
        Call::simulate(&out, &words).on(ranks).succeeds();
        out
    };
    let (out, other) = (run("one", Ranks::Threads(1)), run("three", Ranks::Threads(3)));
    alike("halos on 3 ranks", &whole(&out), &whole(&other));
    let said = &json(&out.join("run.json"))["halos"];
    let (count, mass) = (said["count"].as_u64().unwrap(), said["particle_mass"].as_f64().unwrap());
    assert_eq!(said["overdensities"], serde_json::json!(["200m", "500c", "vir"]));
    let halos = NpzFile::open(out.join("halos.npz")).unwrap();
    let column = |name: &str| halos.member(name).unwrap().read_f32(0..count).unwrap();
    let cosmology = Cosmology::planck18();
    let mut filled = 0;
    for name in ["200m", "500c", "vir"] {
        let times = name.parse::<Overdensity>().unwrap().over_mean(cosmology.matter_fraction(1.0));
        for (m, r) in column(&format!("mass_{name}")).into_iter().zip(column(&format!("radius_{name}"))) {
            let (m, r) = (f64::from(m), f64::from(r));
            let particles = m / mass;
            assert!((particles - particles.round()).abs() <= 1e-5 * particles && (m == 0.0 || particles > 9.9));
            let inside = 4.0 / 3.0 * std::f64::consts::PI * r.powi(3) * times * cosmology.matter_density();
            assert!((inside - m).abs() <= 1e-6 * m, "{name}: {m} {inside}");
            filled += u32::from(m > 0.0);
        }
        assert!(out.join(format!("mass_function_{name}.csv")).is_file());
    }
    assert!(count > 0 && filled > 0, "{count} {filled}");
    // The same run with other spheres leaves no table of those before.
    let words = [&words[..11], &["200c"]].concat();
    Call::simulate(&out, &words).succeeds();
    assert!(out.join("mass_function_200c.csv").is_file() && !out.join("mass_function_200m.csv").exists());
}

/// A light cone that several snapshots lie in, in a box in which its halos form.
#[cfg(feature = "hdf5")]
const CONE: [&str; 14] = [
    "--box",
    "20",
    "--light-cone",
    "1,10,20",
    "--light-cone-distance",
    "130",
    "--light-cone-direction",
    "1,0.5,0",
    "--light-cone-opening",
    "60",
    "--linking-parameter",
    "0.6",
    "--hdf5",
    "one",
];

#[cfg(feature = "hdf5")]
#[test]
fn a_run_with_a_light_cone_resumed_from_any_snapshot_is_the_finished_run() {
    let (one, two) = (Ranks::Threads(1), Ranks::Threads(2));
    resumes(
        &[&CONE[..], &["--a-start", "0.5", "--steps", "4"]].concat(),
        &["0.93", "0.96"],
        one,
        [Ranks::Threads(3), two],
    );
}

/// Stopped where its steps are within the light cone, and resumed on other numbers of ranks.
#[cfg(feature = "hdf5")]
#[test]
fn a_run_with_a_light_cone_stopped_and_resumed_is_the_finished_run() {
    let scratch = Scratch::new();
    let (out, other) = (scratch.join("out"), scratch.join("other"));
    let words = [&CONE[..], &["--a-start", "0.91", "--steps", "300"]].concat();
    Call::simulate(&other, &words).succeeds();
    let found = &json(&other.join("run.json"))["light_cone"];
    assert!(found["particles"].as_u64() > Some(1000) && found["halos"]["count"].as_u64() > Some(0), "{found}");
    let again = [&words[..], &["--resume"]].concat();
    let mut checkpoints = 0;
    for tries in 1.. {
        let mut run = Call::simulate(&out, &again).on(Ranks::Threads(1 + tries % 3)).start();
        run.until("output directory", |_| out.is_dir());
        // Longer each time, so that each gets on.
        std::thread::sleep(Duration::from_millis(400 + 100 * u64::from(tries)));
        if !run.is_over() {
            signal(run.pid(), "TERM");
        }
        let outcome = run.wait(Duration::from_secs(60));
        if outcome.status.success() {
            break;
        }
        assert!(matches!(outcome.status.code(), Some(143) | None), "{outcome:#?}");
        checkpoints += u32::from(out.join("checkpoint/light_cone.npy").is_file());
    }
    println!("stopped with a checkpoint {checkpoints} times");
    alike("a cone that was stopped", &whole(&out), &whole(&other));
}

/// Returns the file of a light cone as a reader of snapshots has it.
#[cfg(feature = "hdf5")]
#[test]
fn a_light_cone_is_a_snapshot_in_open_space_that_fof_takes() {
    use meshloom::io::hdf5::{Snapshot, read_groups};

    let scratch = Scratch::new();
    let out = scratch.join("out");
    Call::simulate(&out, &[&CONE[..], &["--a-start", "0.5", "--steps", "3"]].concat()).on(Ranks::Threads(2)).succeeds();
    let said = &json(&out.join("run.json"))["light_cone"];
    let path = out.join("light_cone.hdf5");
    let cone = Snapshot::open(&path).unwrap();
    let count = cone.count();
    assert_eq!(
        (said["particles"].as_u64(), cone.box_size(), cone.velocity_unit().unwrap().map(|unit| unit.factor)),
        (Some(count), None, Some(1.0))
    );
    let positions = cone.positions_f32(0..count).unwrap();
    let (ids, mut cells) = (cone.ids(0..count).unwrap(), std::collections::BTreeSet::new());
    assert!(ids.is_sorted() && ids.iter().all(|&id| id < 512));
    for (id, at) in ids.iter().zip(positions.chunks(3)) {
        let r = at.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let along = (f64::from(at[0]) + 0.5 * f64::from(at[1])) / 1.25f64.sqrt();
        assert!(r <= 130.001 && along >= 0.4999 * r);
        assert!(cells.insert((*id, at.iter().map(|x| x.to_bits()).collect::<Vec<_>>())));
    }
    let halos = read_groups(out.join("light_cone_halos.0.hdf5")).unwrap();
    assert_eq!(Some(halos.count.len() as u64), said["halos"]["count"].as_u64());
    // The same groups from the file by another command, with the length that the run says.
    let (length, groups) = (said["halos"]["linking_length"].to_string(), scratch.word("groups.npz"));
    let path = path.to_str().unwrap();
    let words =
        ["fof", path, "--linking-length", &length, "-o", &groups, "--velocities", path, "--scale-factors", path];
    let found = Call::new(&[&words[..], &["--json"]].concat()).succeeds();
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    let column = |path: &Path| {
        let member = meshloom::io::NpzFile::open(path).unwrap().member("scale_factor").unwrap();
        member.read_f32(0..member.len()).unwrap()
    };
    let (own, wanted) = (column(Path::new(&groups)), column(&out.join("light_cone_halos.npz")));
    assert!(own.len() == wanted.len() && own.iter().zip(&wanted).all(|(own, wanted)| (own - wanted).abs() < 1e-6));
    assert_eq!(
        (found["groups"].as_u64(), found["velocities"].as_str()),
        (said["halos"]["count"].as_u64(), Some("peculiar, km/s"))
    );
}

#[test]
fn a_snapshot_that_is_not_whole_is_passed_over_and_one_that_is_not_its_own_is_an_error() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let noise = scratch.file("noise.npy", f32_npy(&noise()));
    // A moment in two spellings is one snapshot.
    let words = ["--snapshots", "0.25,0.5,0.50", "--white-noise", &noise];
    Call::simulate(&out, &words).succeeds();
    let want = whole(&out);
    assert!(out.join("snapshot_0.5/snapshot.json").is_file() && !out.join("snapshot_0.50").exists());
    let again = [&words[..], &["--resume"]].concat();
    let of = |name: &str| out.join(format!("snapshot_{name}"));
    let (whole_file, state) = (of("0.5").join("snapshot.json"), of("0.5").join("displacements.npy"));
    let refused = |what: &str, words: &[&str], says: &[&str]| {
        let before = whole(&out);
        for ranks in [Ranks::Threads(1), Ranks::Threads(3)] {
            Call::simulate(&out, words).on(ranks).run().is_error(what, 1, says);
            alike(what, &whole(&out), &before);
        }
    };
    let changed = |what: &str, path: &Path, bytes: &[u8], says: &[&str]| {
        let good = fs::read(path).unwrap();
        fs::write(path, bytes).unwrap();
        refused(what, &again, says);
        fs::write(path, good).unwrap();
    };
    let good = fs::read(&state).unwrap();
    let with = |at: usize, value: f32| {
        let mut bytes = good.clone();
        bytes[128 + 4 * at..][..4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    changed(
        "cut off",
        &state,
        &good[..good.len() - 4],
        &["snapshot_0.5", "damaged", "truncated", "remove the snapshot"],
    );
    changed("NaN", &state, &with(1000, f32::NAN), &["(333, 1) is NaN", "remove the snapshot"]);
    changed("another number", &state, &with(1000, 0.25), &["displacements.npy is not what was written"]);
    changed("shape", &state, &npy("<f4", "(512, 2)", &[0; 4096]), &["(512, 2)", "remove the snapshot"]);
    changed("no JSON", &whole_file, b"{ \"a\": 0.5", &["snapshot.json", "remove the snapshot"]);
    changed("no object", &whole_file, b"[]", &["snapshot.json", "remove the snapshot"]);
    // Instead of another moment.
    let early = fs::read(of("0.25").join("snapshot.json")).unwrap();
    changed("another moment", &whole_file, &early, &["a = 0.25, but a snapshot in this place has 0.5"]);
    // Other parameters are named, also what is in a file of the same name.
    refused("steps", &[&again[..], &["--steps", "3"]].concat(), &["steps = 2, but this one has 3", "another --out"]);
    refused("cosmology", &[&again[..], &["--cosmology", "simple"]].concat(), &["with cosmology.A_s = 1.996"]);
    let other: Vec<f32> = self::noise().iter().map(|x| 0.5 * x).collect();
    let first = fs::read(&noise).unwrap();
    fs::write(&noise, f32_npy(&other)).unwrap();
    refused("noise", &again, &["white_noise_fingerprint"]);
    fs::write(&noise, first).unwrap();
    // Without its last file it is not whole.
    fs::remove_file(&whole_file).unwrap();
    Call::simulate(&out, &again).succeeds();
    assert_eq!(json(&out.join("run.json"))["resumed_from_step"], 1);
    alike("from an earlier one", &whole(&out), &want);
}

#[test]
fn a_run_is_resumed_by_what_its_files_hold() {
    use meshloom::cosmology::{Cosmology, LinearPower, TransferKind};
    let scratch = Scratch::new();
    let power = LinearPower::new(Cosmology::planck18_primordial(), TransferKind::Full).unwrap();
    let table = |factor: f64| -> String {
        let k = (0..400).map(|i| 1e-3 * 1e5f64.powf(f64::from(i) / 399.0));
        k.map(|k| format!("{k:e} {:e}\n", factor * power.at(k, 1.0).unwrap())).collect()
    };
    let universe = |omega_b: &str| format!("A_s=2.105e-9\nn_s=0.9665\nOmega_m=0.3111\nOmega_b={omega_b}\nh=0.6766\n");
    let files = |name: &str, noise: &[f32], omega_b: &str, factor: f64| {
        [
            scratch.file(&format!("{name}.npy"), f32_npy(noise)),
            scratch.file(&format!("{name}.toml"), universe(omega_b)),
            scratch.file(&format!("{name}.dat"), table(factor)),
        ]
    };
    let mut other = noise();
    other[100] += 0.5;
    let first = files("first", &noise(), "0.04897", 1.0);
    let moved = files("moved", &noise(), "0.048970", 1.0);
    let out = scratch.join("out");
    let call = |[noise, cosmology, table]: [&String; 3], more: &[&str]| {
        let words = ["--white-noise", noise, "--cosmology", cosmology, "--power-table", table, "--snapshots", "0.5"];
        Call::simulate(&out, &[&words[..], more].concat())
    };
    call(first.each_ref(), &[]).succeeds();
    let want = whole(&out);
    let alike_but_names = |got: BTreeMap<PathBuf, Vec<u8>>| {
        let run = |files: &BTreeMap<PathBuf, Vec<u8>>| {
            serde_json::from_slice::<Value>(&files[Path::new("run.json")]).unwrap()
        };
        assert_eq!(run(&got)["parameters"], run(&want)["parameters"]);
        for (name, bytes) in want.iter().filter(|(name, _)| !name.ends_with("run.json")) {
            assert!(got[name] == *bytes, "{}", name.display());
        }
    };
    call(moved.each_ref(), &["--resume"]).succeeds();
    alike_but_names(whole(&out));
    // Other contents of one file, under the name of the first run's.
    let changed = files("first", &other, "0.05", 1.1);
    for (which, says) in [(0, "white_noise_fingerprint"), (1, "cosmology"), (2, "cosmology")] {
        let mut mixed = moved.each_ref();
        mixed[which] = &changed[which];
        call(mixed, &["--resume"]).run().is_error("other contents", 1, &["it belongs to a run with", says]);
    }
    alike_but_names(whole(&out));
}

#[test]
fn a_directory_never_shows_files_of_two_runs() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let words = ["--box", "12", "--linking-parameter", "0.3", "--save-density", "--snapshots", "0.5"];
    let hdf5: &[&str] = if cfg!(feature = "hdf5") { &["--hdf5", "per-rank"] } else { &[] };
    Call::simulate(&out, &[&words[..], hdf5].concat()).on(Ranks::Threads(3)).succeeds();
    let first = whole(&out);
    // Another run that fails at its end replaces nothing.
    fs::remove_file(out.join("mass_function.csv")).unwrap();
    fs::create_dir(out.join("mass_function.csv")).unwrap();
    let other = ["--box", "12", "--seed", "2"];
    let failing = [&other[..], &["--linking-parameter", "0.3"]].concat();
    Call::simulate(&out, &failing).run().is_error("in the way", 1, &["mass_function.csv", "not a regular file"]);
    fs::remove_dir(out.join("mass_function.csv")).unwrap();
    fs::write(out.join("mass_function.csv"), &first[Path::new("mass_function.csv")]).unwrap();
    alike("after a failure", &whole(&out), &first);
    // The same run with less to write leaves what is right, except parts of a snapshot that go
    // with parts it replaces.
    let same = ["--box", "12", "--snapshots", "0.5", "--resume"];
    Call::simulate(&out, &[&same[..], hdf5].concat()).on(Ranks::Threads(2)).succeeds();
    let names = |found: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<String> {
        found.keys().filter(|name| name.components().count() == 1).map(|name| name.to_str().unwrap().into()).collect()
    };
    let mut want = names(&first);
    want.retain(|name| name != "snapshot.2.hdf5");
    assert_eq!(names(&whole(&out)), want);
    assert!(fs::read(out.join("halos.npz")).unwrap() == first[Path::new("halos.npz")]);
    // Without its snapshots it is another run, which does not begin again over this one's.
    let other_steps = Call::simulate(&out, &["--box", "12", "--resume"]).run();
    other_steps.is_error("other snapshots", 1, &["snapshot_0.5", "other --snapshots"]);
    // Halos are found again by another length: a catalog of the old one goes.
    let catalogs = ["halos.0.hdf5", "light_cone_halos.0.hdf5"];
    catalogs.iter().for_each(|name| fs::write(out.join(name), b"of length 0.3").unwrap());
    Call::simulate(&out, &["--box", "12", "--snapshots", "0.5", "--resume", "--linking-parameter", "0.25"]).succeeds();
    assert!(catalogs.iter().all(|name| !out.join(name).exists()));
    // Without --resume all are replaced.
    Call::simulate(&out, &["--box", "12", "--snapshots", "0.5", "--linking-parameter", "0"]).succeeds();
    for place in [out.clone(), out.join("snapshot_0.5")] {
        assert!(["halos.npz", "mass_function.csv", "mass_function.png"].iter().all(|name| !place.join(name).exists()));
    }
    // Another run leaves nothing that would pass for its own, snapshots neither, but what is a
    // user's.
    fs::create_dir(out.join("snapshot_mine")).unwrap();
    ["snapshot_mine/notes", "snapshot_0.5/notes"].iter().for_each(|name| fs::write(out.join(name), b"mine").unwrap());
    Call::simulate(&out, &other).succeeds();
    let below: Vec<_> = whole(&out).into_keys().filter(|name| name.components().count() > 1).collect();
    assert_eq!(below, ["snapshot_0.5/notes", "snapshot_mine/notes"].map(PathBuf::from));
    let left = ["density.png", "positions.npy", "power_spectrum.csv", "run.json", "velocities.npy"];
    assert_eq!(names(&whole(&out)), left);
    // A run that was killed while its files got their names has left no description, but a mark.
    fs::rename(out.join("run.json"), out.join("run.unfinished")).unwrap();
    fs::write(out.join("density.npy"), b"of the run before").unwrap();
    Call::simulate(&out, &other).succeeds();
    assert_eq!(names(&whole(&out)), left);
    // What stands beside a description of somebody else's is theirs.
    fs::write(out.join("run.json"), b"{\"parameters\": {\"name\": 1}}").unwrap();
    fs::write(out.join("density.npy"), b"not ours").unwrap();
    Call::simulate(&out, &other).succeeds();
    assert_eq!(fs::read(out.join("density.npy")).unwrap(), b"not ours");
}

/// A run that is begun over the states of another one goes on from its own.
#[test]
fn a_run_over_another_ones_snapshots_is_resumed_from_its_own() {
    let scratch = Scratch::new();
    let (out, other) = (scratch.join("out"), scratch.join("other"));
    Call::simulate(&out, &["--snapshots", "0.06275,1"]).succeeds();
    let words = ["--seed", "2", "--steps", "2000", "--snapshots", "0.0625,1"];
    let mut run = Call::simulate(&out, &words).start();
    run.until("its first snapshot", |_| out.join("snapshot_0.0625/snapshot.json").is_file());
    signal(run.pid(), "TERM");
    run.wait(Duration::from_secs(30)).is_error("TERM", 143, &["--resume goes on there"]);
    assert!(!out.join("snapshot_1").exists() && !out.join("snapshot_0.06275").exists());
    Call::simulate(&out, &[&words[..], &["--resume"]].concat()).succeeds();
    Call::simulate(&other, &words).succeeds();
    alike("over another run", &whole(&out), &whole(&other));
}

#[test]
fn a_moment_asked_for_in_two_words_is_one_snapshot() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let words = ["--box", "12", "--snapshots", "1,1.0"];
    Call::simulate(&out, &words).succeeds();
    let first = whole(&out);
    assert!(out.join("snapshot_1").is_dir() && !out.join("snapshot_1.0").exists());
    fs::remove_dir_all(out.join("snapshot_1")).unwrap();
    Call::simulate(&out, &[&words[..], &["--resume"]].concat()).on(Ranks::Threads(2)).succeeds();
    alike("completed", &whole(&out), &first);
}

#[test]
fn a_toml_file_says_what_the_command_line_says_and_the_line_wins() {
    let scratch = Scratch::new();
    let text = "particles = 8\nmesh = 16\nbox = 64\nsteps = 9\nseed = 3\ncosmology = \"simple\"\nlpt = 1\na_start = 0.1\n\
                a_end = 0.8\nscheme = \"bullfrog\"\nwindow = \"tsc\"\nsnapshots = [0.50]\nsave_density = true\n\
                linking_length = 0.3\n";
    let config = scratch.file("run.toml", text);
    let [one, other] = ["one", "other"].map(|name| scratch.join(name));
    Call::simulate(&one, &["--config", &config, "--steps", "2"]).succeeds();
    let words = "--box 64 --seed 3 --cosmology simple --lpt 1 --a-start 0.1 --a-end 0.8 --scheme bullfrog --window tsc \
                 --snapshots 0.50 --save-density --linking-parameter 0.3";
    Call::simulate(&other, &words.split_whitespace().collect::<Vec<_>>()).succeeds();
    same("the file", &results(&one), &results(&other));
    let names = |out: &Path| files(out).iter().map(|f| f.strip_prefix(out).unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&one), names(&other));
    assert!(one.join("snapshot_0.5/positions.npy").is_file(), "{:?}", names(&one));
    let [first, second] =
        [&one, &other].map(|out| serde_json::from_slice::<Value>(&fs::read(out.join("run.json")).unwrap()).unwrap());
    assert_eq!(first["parameters"], second["parameters"]);
    assert_eq!((first["steps"].as_u64(), first["scheme"].as_str()), (Some(2), Some("bullfrog")));
}

#[test]
fn a_printed_configuration_is_the_run() {
    let scratch = Scratch::new();
    let words =
        ["--seed", "7", "--snapshots", "0.50,1", "--box", "12.345678901234567", "--save-density", "--window", "tsc"];
    let printed = |words: &[&str]| Call::new(&[&["simulate", "--print-config"], words].concat()).succeeds().stdout;
    let small = ["--particles", "8", "--mesh", "16", "--steps", "2", "--linking-length", "0"];
    let text = printed(&[&words[..], &small].concat());
    let file = scratch.file("run.toml", &text);
    assert_eq!(printed(&["--config", &file]), text);
    assert!(text.contains("lpt = 2") && text.contains("snapshots = [0.5, 1.0]"), "{text}");
    let (one, two) = (scratch.join("one"), scratch.join("two"));
    Call::simulate(&one, &words).succeeds();
    Call::new(&["simulate", "--out", two.to_str().unwrap(), "--config", &file]).succeeds();
    alike("from its configuration", &whole(&two), &whole(&one));
    // TOML has no number for it.
    let text = printed(&["--seed", "18446744073709551615"]);
    assert_eq!(printed(&["--config", &scratch.file("seed.toml", &text)]), text);
    Call::new(&["simulate", "--print-config", "--steps", "0"]).run().is_error("wrong", 2, &["--steps is 0"]);
}

#[test]
fn a_snapshot_at_the_end_has_what_the_end_has() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let words =
        ["--particles", "16", "--mesh", "32", "--box", "16", "--linking-parameter", "0.3", "--snapshots", "0.5,1"];
    let plain = words;
    let words = [&plain[..], &["--velocities", "peculiar"]].concat();
    Call::simulate(&out, &words).succeeds();
    let names = [
        "positions.npy",
        "velocities.npy",
        "power_spectrum.csv",
        "halos.npz",
        "mass_function.csv",
        "mass_function.png",
    ];
    for name in names {
        let read = |path: PathBuf| fs::read(&path).unwrap_or_else(|_| panic!("{}", path.display()));
        let [end, last, early] = ["", "snapshot_1", "snapshot_0.5"].map(|at| read(out.join(at).join(name)));
        assert!(end == last && end != early, "{name}");
    }
    let (run, early) = (json(&out.join("run.json")), json(&out.join("snapshot_0.5/snapshot.json")));
    assert_eq!(run["halos"], json(&out.join("snapshot_1/snapshot.json"))["halos"]);
    assert!(
        early["halos"]["linking_length"] == run["halos"]["linking_length"] && run["halos"]["count"].as_u64() > Some(0)
    );
    // Peculiar velocities are 100 p / a, in km/s; the state has the momenta.
    assert_eq!((&run["velocities"]["kind"], &run["velocities"]["unit"]), (&"peculiar".into(), &"km/s".into()));
    let values = |name: &str| {
        let file = meshloom::io::NpyFile::open(out.join("snapshot_0.5").join(name)).unwrap();
        file.read_f64(0..file.len()).unwrap()
    };
    for (v, p) in values("velocities.npy").iter().zip(values("momenta.npy")) {
        assert!((v - 200.0 * p).abs() <= f64::from(f32::EPSILON) * v.abs(), "{v} {p}");
    }
    fs::remove_dir_all(out.join("snapshot_1")).unwrap();
    let want = whole(&out);
    Call::simulate(&out, &[&words[..], &["--resume"]].concat()).succeeds();
    fs::remove_dir_all(out.join("snapshot_1")).unwrap();
    alike("resumed with peculiar velocities", &whole(&out), &want);
    let canonical = Call::simulate(&out, &[&plain[..], &["--resume"]].concat()).run();
    canonical.is_error("another kind", 1, &["velocities = \"peculiar\", but this one has \"canonical\""]);
}

#[test]
fn linear_power_comes_from_tables_too() {
    let scratch = Scratch::new();
    // Of the default cosmology: what the spectrum of a run has as P_linear, on many more
    // wavenumbers than are needed.
    use meshloom::cosmology::{Cosmology, LinearPower, TransferKind};
    let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
    let rows = |stretch: f64, factor: f64| -> String {
        let k = (0..800).map(|i| 1e-3 * 1e5f64.powf(f64::from(i) / 799.0));
        k.map(|k| format!("{:e} {:e}\n", k * stretch, factor * power.at(k, 1.0).unwrap())).collect()
    };
    let [good, inverse, cubic] = [(1.0, 1.0), (0.6766, 1.0), (1.0, 0.6766f64.powi(-3))].map(|(k, p)| rows(k, p));
    let good = scratch.file("good.dat", format!("# k (h/Mpc)  P (Mpc/h)^3\n{good}"));
    let [plain, table, strong] = ["plain", "table", "strong"].map(|name| scratch.join(name));
    Call::simulate(&plain, &[]).succeeds();
    Call::simulate(&table, &["--power-table", &good]).succeeds();
    Call::simulate(&strong, &["--power-table", &good, "--sigma8", "0.9"]).succeeds();
    let sigma8 = |out: &Path| json(&out.join("run.json"))["cosmology"]["sigma8"].as_f64().unwrap();
    assert!((sigma8(&plain) - 0.8102).abs() < 1e-6 && (sigma8(&table) - 0.8102).abs() < 1e-4);
    assert!((sigma8(&strong) - 0.9).abs() < 1e-12);
    let linear = |out: &Path| -> Vec<f64> {
        let text = fs::read_to_string(out.join("power_spectrum.csv")).unwrap();
        text.lines().skip(1).map(|line| line.split(',').nth(3).unwrap().parse().unwrap()).collect()
    };
    for ((plain, table), strong) in linear(&plain).iter().zip(linear(&table)).zip(linear(&strong)) {
        assert!((table / plain - 1.0).abs() < 1e-3);
        assert!((strong / table / (0.9f64 / 0.8102).powi(2) - 1.0).abs() < 1e-3);
    }
    let bad = |name: &str, text: &str, says: &[&str]| {
        let file = scratch.file("bad.dat", text);
        Call::simulate(&scratch.join("bad"), &["--power-table", &file]).run().is_error(name, 1, says);
    };
    bad("in 1/Mpc", &inverse, &["h/Mpc", "P(0.5)/P(0.02)"]);
    bad("in Mpc^3", &cubic, &["(Mpc/h)^3"]);
    bad("says so", &format!("# k (1/Mpc) P (Mpc^3)\n{inverse}"), &["line 1", "1/mpc"]);
    bad("too short", "0.1 1\n0.2 0.5\n", &["2 rows"]);
    bad("no number", "0.1 1\n0.2 x\n", &["line 2", "`x`"]);
    let small = "--power-table";
    Call::simulate(&scratch.join("bad"), &[small, &good, "--box", "1e5"]).run().is_error(
        "too large a box",
        2,
        &["table"],
    );
    Call::simulate(&scratch.join("bad"), &[small, &scratch.word("none")]).run().is_error("none", 1, &["none"]);
}

#[test]
fn an_estimate_needs_neither_device_nor_directory() {
    let words =
        ["simulate", "--estimate", "--particles", "512", "--mesh", "1024", "--ranks", "8", "--device", "nosuch"];
    let text = Call::new(&words).succeeds().stdout;
    assert!(["8 rank(s)", "10 steps", "memory", "start", "seconds"].iter().all(|word| text.contains(word)), "{text}");
    let object: Value = serde_json::from_str(&Call::new(&words).words(&["--json"]).succeeds().stdout).unwrap();
    assert_eq!(object["memory"]["particles"], 6 * 4 * 512u64.pow(3) / 8);
    assert!(object["memory"]["groups"].as_u64() > Some(60 * 512u64.pow(3) / 8) && text.contains("groups: memory"));
    assert!(object["steps"]["bytes"]["sent"].as_u64() > Some(0) && object["steps"]["seconds"].as_f64() > Some(0.0));
    // Eight ranks write a checkpoint before the files of the end, and every hour of the steps.
    let state = 24 * 512u64.pow(3);
    assert_eq!((&object["files"]["bytes"], &object["files"]["disk"]), (&(2 * state).into(), &(2 * state).into()));
    let more = ["--json", "--checkpoint-every", "1s", "--steps", "10000", "--snapshots", "0.5,1", "--file-speed", "4"];
    let more: Value = serde_json::from_str(&Call::new(&words).words(&more).succeeds().stdout).unwrap();
    let number = |name: &str| more["files"][name].as_f64().unwrap();
    assert_eq!(number("checkpoints"), more["steps"]["seconds"].as_f64().unwrap().floor());
    assert_eq!(number("bytes"), (3.0 + 1.0 + number("checkpoints")) * state as f64);
    assert_eq!(number("disk"), (3.0 + 2.0) * state as f64, "two checkpoints beside the snapshots");
    assert_eq!(number("seconds"), number("bytes") / 4e9);
    Call::new(&words).words(&["--grid", "3x3"]).run().is_error("grid", 2, &["3x3"]);
    let scratch = Scratch::new();
    Call::simulate(&scratch.join("out"), &["--scaling", "5"]).run().is_error(
        "scaling",
        2,
        &["not provided", "--estimate"],
    );
    // A slow network takes longer; a value out of range is named.
    let seconds = |machine: &str| {
        let said = Call::new(&words).words(&["--json", "--machine", machine]).succeeds().stdout;
        serde_json::from_str::<Value>(&said).unwrap()["steps"]["seconds"].as_f64().unwrap()
    };
    let [file, wrong] = ["slow.toml", "wrong.toml"].map(|name| scratch.word(name));
    std::fs::write(&file, "nic_rate = 1e9\n").unwrap();
    std::fs::write(&wrong, "nic_rate = 0.0\n").unwrap();
    assert!(seconds(&file) > 2.0 * seconds("h100x4"));
    Call::new(&words).words(&["--machine", &wrong]).run().is_error("machine", 1, &["`nic_rate`", "bytes per second"]);
    let curve = Call::new(&words[..6]).words(&["--scaling", "16"]).succeeds().stdout;
    // A curve has ranks and grids of its own.
    for other in [&["--ranks", "8"], &["--grid", "8x1"]] {
        let call = Call::new(&words[..6]).words(&["--scaling", "16"]).words(other);
        call.run().is_error("scaling", 2, &["--scaling", other[0], "cannot be used with"]);
    }
    let lines: Vec<&str> = curve.lines().collect();
    assert!(lines.len() == 7 && lines[1] == "ranks,slabs,node_pencils,square_pencils", "{curve}");
    assert!(lines[2].starts_with("1,") && lines[2].ends_with(",,") && !lines[6].contains(",,"), "{curve}");
    if has_mpi() {
        let said = Call::new(&words[..6]).words(&["--json"]).on(Ranks::Mpi(2)).succeeds().stdout;
        let object: Value = serde_json::from_str(&said).expect("one object of all processes");
        assert_eq!(object["ranks"], 2, "those that were started");
    }
    if cfg!(feature = "hdf5") {
        let words = Call::new(&words).words(&["--light-cone", "1,2,3", "--light-cone-distance", "300"]);
        let cone: Value = serde_json::from_str(&words.clone().words(&["--json"]).succeeds().stdout).unwrap();
        let wanted = (512.0f64 / 128.0).powi(3) * 4.0 / 3.0 * std::f64::consts::PI * 300f64.powi(3);
        assert_eq!(cone["light_cone"]["particles"].as_u64(), Some(wanted as u64));
        assert!(words.succeeds().stdout.contains("light cone: "));
    }
}

#[test]
fn what_spoils_a_run_is_said_once_and_written_down() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let words = ["--particles", "12", "--mesh", "16", "--box", "30", "--ranks", "2"];
    let outcome = Call::simulate(&out, &words).run();
    assert!(outcome.status.success() && outcome.stderr.lines().count() == 1, "{outcome:#?}");
    assert!(
        outcome.stderr.starts_with("meshloom: warning: a mesh of 16") && outcome.stderr.contains("take a mesh of 24"),
        "{outcome:#?}"
    );
    let written = json(&out.join("run.json"))["warnings"].clone();
    assert_eq!(written.as_array().map(Vec::len), Some(1));
    let said = written[0].as_str().unwrap();
    assert!(outcome.stderr.contains(said) && said.contains("a false wave of 4 times"), "{said}");
    // Without a progress bar the warning is printed, too.
    let quiet = Call::simulate(&out, &[&words[..], &["--quiet"]].concat()).run();
    assert_eq!(quiet.stderr, outcome.stderr);
    for (word, json) in [("--print-config", false), ("--estimate", false), ("--estimate", true)] {
        let call = Call::new(&["simulate", word, "--particles", "96", "--mesh", "128", "--box", "96"]);
        let call = if json { call.words(&["--json"]) } else { call };
        assert!(call.succeeds().stdout.contains("false wave of 32 times"), "{word}");
    }
}

#[test]
fn shells_and_manuals_know_the_words() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Call::new(&["completions", shell]).succeeds().stdout;
        assert!(script.contains("simulate") && script.contains("linking-parameter"), "{shell}");
    }
    Call::new(&["completions", "csh"]).run().is_error("shell", 2, &["csh"]);
    let [program, command] = [vec!["man"], vec!["man", "simulate"]].map(|words| Call::new(&words).succeeds().stdout);
    assert!(program.contains(".TH meshloom") && program.contains("fof"), "{program}");
    assert!(command.contains("meshloom\\-simulate") && command.contains("linking\\-parameter"), "{command}");
    Call::new(&["man", "simulat"]).run().is_error("command", 2, &["simulat"]);
    let subject = Call::new(&["man", "bench", "fft"]).succeeds().stdout;
    assert!(subject.contains("meshloom\\-bench\\-fft") && subject.contains("\\-\\-tune"), "{subject}");
    Call::new(&["man", "bench", "ffd"]).run().is_error("subject", 2, &["bench ffd"]);
    // Points have no process grid: their commands do not offer one, and say why they refuse it.
    let help = |command: &str| Call::new(&[command, "--help"]).succeeds().stdout;
    for command in ["sort", "knn", "neighbors", "pairs", "fof"] {
        let help = help(command);
        assert!(!help.contains("--grid") && help.contains("--ranks"), "{help}");
    }
    assert!(help("power").contains("--grid"));
}

#[test]
fn a_run_describes_itself() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let silent = Call::simulate(&out, &[]).succeeds();
    assert!(silent.stdout.is_empty(), "{silent:#?}");
    let spoken = Call::simulate(&out, &["--json"]).on(Ranks::Threads(3)).succeeds();
    let printed: Value = serde_json::from_str(&spoken.stdout).expect("one JSON object and nothing else");
    let written: Value = serde_json::from_slice(&fs::read(out.join("run.json")).unwrap()).unwrap();
    assert_eq!(printed, written);
    for key in "particles mesh box cosmology seed lpt a_start a_end steps scheme window device ranks seconds bytes"
        .split_whitespace()
    {
        assert!(!written[key].is_null(), "{key}: {written:#}");
    }
    assert_eq!((written["ranks"].as_u64(), written["particles"].as_u64()), (Some(3), Some(8)));
    assert_eq!(written["host_seconds"].is_f64(), cfg!(target_os = "linux"), "{written:#}");
    let names: Vec<_> = files(&out).iter().map(|f| f.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["density.png", "positions.npy", "power_spectrum.csv", "run.json", "velocities.npy"]);
    if has_mpi() {
        let spoken = Call::simulate(&out, &["--json"]).on(Ranks::Mpi(2)).run();
        let printed: Value = serde_json::from_str(&spoken.stdout).expect("one object under MPI too");
        assert_eq!(printed["ranks"], 2);
    }
}

#[test]
fn devices_are_listed() {
    let text = Call::new(&["devices"]).succeeds().stdout;
    let listed: Value = serde_json::from_str(&Call::new(&["devices", "--json"]).succeeds().stdout).unwrap();
    let devices = listed["devices"].as_array().unwrap();
    assert!(!devices.is_empty());
    for device in devices {
        assert!(text.contains(device["name"].as_str().unwrap()), "{text}");
        assert!(device["usable"] == false || device["limits"]["binding_bytes"].as_u64().is_some(), "{device:#}");
    }
    let none = Call::new(&["devices"]).env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent");
    none.run().is_error("no adapter", 1, &["no usable GPU adapter was found", "apt install"]);
}

#[test]
fn white_noise_may_be_f32_or_f64() {
    let scratch = Scratch::new();
    let values = noise();
    let wide: Vec<u8> = values.iter().flat_map(|&v| f64::from(v).to_le_bytes()).collect();
    let narrow = scratch.file("narrow.npy", f32_npy(&values));
    let wide = scratch.file("wide.npy", npy("<f8", "(8, 8, 8)", &wide));
    let [one, other, seed] = ["one", "other", "seed"].map(|name| scratch.join(name));
    Call::simulate(&one, &["--white-noise", &narrow]).succeeds();
    Call::simulate(&other, &["--white-noise", &wide]).on(Ranks::Threads(3)).succeeds();
    Call::simulate(&seed, &[]).succeeds();
    same("f64", &results(&other), &results(&one));
    assert_ne!(results(&seed)[0], results(&one)[0]);
}

/// A name that says another format than the file would have is refused before anything is read: no
/// input here is there.
#[test]
fn outputs_are_called_what_they_are() {
    let scratch = Scratch::new();
    for (words, wrong, right) in [
        ("sort none.npy", "csv npz hdf5 H5 txt", "npy"),
        ("knn none.npy -k 1", "npy csv hdf5 h5 TXT", "npz"),
        ("neighbors none.npy --radius 1", "npy csv hdf5 h5 png", "npz"),
        ("pairs none.npy --bins none.txt", "npy npz hdf5 json", "csv"),
        ("power none.npy --box 1", "npy npz h5 png", "csv"),
        ("fof none.npy --linking-length 1", "npy txt csv json", "npz"),
        ("fft none.npy", "npz csv h5", "npy"),
        ("kernels mesh::density", "spv npy json", "wgsl"),
        ("kernels mesh::density --stage spirv", "wgsl txt", "spv"),
    ] {
        for extension in wrong.split(' ') {
            let output = scratch.word(&format!("out.{extension}"));
            let call = Call::new(&words.split(' ').collect::<Vec<_>>()).words(&["-o", &output]);
            let says =
                [format!("out.{extension}: the name says another format"), format!("call it {}", scratch.word("out."))];
            call.run().is_error("a wrong name", 2, &[&says[0], &format!("{}{right}", says[1])]);
            assert!(files(scratch.path()).is_empty(), "{words} {extension}");
        }
    }
    let labels = ["fof", "none.npy", "--linking-length", "1", "-o", "o.npz", "--labels", "labels.npz"];
    Call::new(&labels).run().is_error("labels", 2, &["labels.npz", "call it labels.npy"]);
    Call::new(&["bench", "--all", "--save", "b.csv"]).run().is_error("bench", 2, &["b.csv", "call it b.json"]);
    if has_mpi() {
        let call = Call::new(&["sort", "none.npy", "-o", "order.npz"]).on(Ranks::Mpi(2));
        call.run().is_error("on two processes", 2, &["call it order.npy"]);
    }
}

#[test]
fn processes_of_a_launcher_that_are_not_connected_do_not_run_one_by_one() {
    let scratch = Scratch::new();
    let out = scratch.join("run");
    let launches: [&[(&str, &str)]; 4] = [
        &[("OMPI_COMM_WORLD_SIZE", "3"), ("OMPI_COMM_WORLD_RANK", "0")],
        &[("PMI_SIZE", "3"), ("PMI_RANK", "0"), ("MPI_LOCALNRANKS", "3")],
        &[("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "3")],
        &[("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "1"), ("SLURM_STEP_ID", "0")],
    ];
    let with = |variables: &[(&str, &str)]| {
        let call = Call::simulate(&out, &[]);
        variables.iter().fold(call, |call, (name, value)| call.env(name, value))
    };
    for variables in launches {
        let remedy = if cfg!(feature = "mpi") { "--mpi=pmix" } else { "feature `mpi`" };
        with(variables).run().is_error(
            &format!("{variables:?}"),
            1,
            &["a launcher started 3 processes", variables[0].0, remedy, "for independent runs unset"],
        );
        assert!(!out.exists(), "{variables:?}");
    }
    // The script of a batch job is not a task of a step.
    let batch = [("SLURM_NTASKS", "3"), ("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "1")];
    with(&batch).succeeds();
    assert!(out.exists());
}
