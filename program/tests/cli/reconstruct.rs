//! `meshloom reconstruct`: initial conditions from a noisy density, the same files on any number of
//! ranks, and what cannot be.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cli::{Call, Ranks, Scratch, files, has_mpi, signal};
use super::pictures::Picture;
use meshloom::io::{NpyFile, NpyWriter, token};
use meshloom::random::white_noise;
use serde_json::Value;

fn write(scratch: &Scratch, name: &str, shape: &[u64], values: &[f32]) -> String {
    let file = NpyWriter::create(scratch.join(name), shape, &token()).unwrap();
    file.write(0, values).unwrap();
    file.finish().unwrap();
    scratch.word(name)
}

fn read(path: &Path, shape: &[u64]) -> Vec<f32> {
    let file = NpyFile::open(path).unwrap();
    assert_eq!(file.shape(), shape, "{}", path.display());
    file.read_f32(0..file.len()).unwrap()
}

fn noise(count: u64, seed: u64) -> Vec<f32> {
    (0..count).map(|i| white_noise(seed, i) as f32).collect()
}

const RUN: &str = "--box 80 --steps 2 --lpt 1 --cosmology simple";

/// Returns the density of a run from `noise`, by `simulate`.
fn evolved(scratch: &Scratch, noise: &str, name: &str) -> Vec<f32> {
    let out = scratch.word(name);
    let words =
        format!("simulate --particles 8 --mesh 8 {RUN} --white-noise {noise} --save-density --linking-parameter 0");
    let words = words.split(' ').chain(["--out", &out, "--quiet"]).collect::<Vec<_>>();
    Call::new(&words).succeeds();
    read(&scratch.join(name).join("density.npy"), &[8; 3])
}

fn reconstruct(data: &str, out: &Path, words: &str) -> Call {
    let fixed = format!("reconstruct --density {data} -o {} {RUN} --quiet", out.display());
    Call::new(&fixed.split(' ').chain(words.split_whitespace()).collect::<Vec<_>>())
}

fn report(directory: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(directory.join("run.json")).unwrap()).unwrap()
}

/// All files but the description, which has times, the state, and the lock that a killed process
/// has held.
fn results(out: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let others = ["state", "run.json", ".meshloom.lock"].map(|name| out.join(name));
    let found = files(out).into_iter().filter(|path| !others.iter().any(|other| path.starts_with(other)));
    found.map(|path| (path.strip_prefix(out).unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

/// A density of 8^3 cells of 10 Mpc/h whose noise is half as strong as its structure: the evolved
/// result and its samples meet the data within noise, and the initial conditions are found as far
/// as a Wiener filter would. On any ranks and groups, and by a run that was killed, the same files
/// come out.
#[test]
fn initial_conditions_are_found_alike_on_any_ranks_and_after_a_kill() {
    let scratch = Scratch::new();
    let truth = write(&scratch, "truth.npy", &[8; 3], &noise(512, 3));
    let clean = evolved(&scratch, &truth, "truth");
    let sigma = 0.5;
    let data: Vec<f32> = clean.iter().zip(noise(512, 4)).map(|(d, n)| d + sigma * n).collect();
    let data = write(&scratch, "data.npy", &[8; 3], &data);
    let words = format!("--noise {sigma} --samples 1 --iterations 1 --truth {truth}");
    let out = scratch.join("out");
    reconstruct(&data, &out, &words).succeeds();
    let first = results(&out);
    assert_eq!(first.len(), 9, "{first:?}");
    agrees(&report(&out));
    samples_are_mirrored(&out);
    // Data, reconstruction and truth, with one scale of colors.
    Picture::read(&out.join("density.png")).check(3, 1);
    // The noise goes back into a run, whose density is the one beside it.
    let again = evolved(&scratch, out.join("white_noise.npy").to_str().unwrap(), "again");
    assert_eq!(again, read(&out.join("density.npy"), &[8; 3]));

    let grouped = scratch.join("grouped");
    reconstruct(&data, &grouped, &format!("{words} --grid 1x1")).on(Ranks::Threads(2)).succeeds();
    assert!(results(&grouped) == first, "groups");
    assert_eq!(report(&grouped)["groups"], 2);

    // Killed once there is a state, with its box on two ranks; it goes on as processes.
    let killed = scratch.join("killed");
    let mut running =
        reconstruct(&data, &killed, &words).words(&["--sample-groups", "1"]).on(Ranks::Threads(2)).start();
    running.until("a state", |_| killed.join("state/state.npz").exists());
    signal(running.pid(), "KILL");
    running.wait(Duration::from_secs(10));
    assert!(results(&killed).is_empty());
    let other = reconstruct(&data, &killed, &words.replace("0.5", "0.25")).words(&["--resume"]);
    other.run().is_error("another problem", 1, &["noise is 0.5 there and 0.25 here"]);
    let ways = if has_mpi() { Ranks::Mpi(2) } else { Ranks::Threads(2) };
    reconstruct(&data, &killed, &words).words(&["--resume"]).on(ways).succeeds();
    assert!(results(&killed) == first, "resumed");
    let fewer = reconstruct(&data, &killed, &format!("--noise {sigma} --map-only --resume"));
    fewer.run().is_error("samples that are not wanted", 1, &["leave --resume out"]);
    fs::write(killed.join("state/state.npz"), b"broken").unwrap();
    reconstruct(&data, &killed, &words).words(&["--resume"]).run().is_error("a broken state", 1, &["state.npz"]);
    assert!(results(&killed) == first, "what was there stays");

    // Draws of chains take the place of samples.
    let drawn = scratch.join("drawn");
    let chains = "--sampler mclmc --sampler-steps 4 --warmup 30 --draws 40 --thinning 10 --chains 2";
    let outcome = reconstruct(&data, &drawn, &format!("{words} {chains}")).on(Ranks::Threads(2)).run();
    assert!(outcome.status.success(), "{outcome:#?}");
    assert_eq!(read(&drawn.join("samples.npy"), &[8, 8, 8, 8]).len(), 8 * 512);
    let found = report(&drawn);
    assert_eq!((&found["chains"]["kept"], &found["samples"]), (&4.into(), &8.into()));
    let error = found["agreement"]["error_over_std"].as_f64().unwrap();
    assert!((0.7..1.5).contains(&error), "{error}");

    // Without samples their files go.
    reconstruct(&data, &out, &format!("--noise {sigma} --map-only")).succeeds();
    let names: Vec<_> = results(&out).into_iter().map(|(path, _)| path).collect();
    let all = ["density.npy", "density.png", "iterations.csv", "power_spectrum.csv", "white_noise.npy"];
    assert_eq!(names, all.map(PathBuf::from));
}

/// Prediction of theory for a reconstruction of 512 cells.
fn agrees(report: &Value) {
    let number =
        |path: &str| report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {report}"));
    // A correlation r of n modes is known to (1 - r^2) / sqrt(n): less than 0.02 here.
    assert!(number("/agreement/density") > number("/agreement/density_wiener") - 0.06, "{report}");
    assert!(number("/agreement/white_noise") > 0.8, "{report}");
    // Of samples 1 is to be expected, of the 512 cells within 4 standard deviations of 6 %.
    assert!((number("/chi_squared/of_samples") - 1.0).abs() < 0.25, "{report}");
    assert!(number("/chi_squared/of_white_noise") < 1.1, "{report}");
    // Two sums of 512 squares, each known to 6 %: their root's ratio to 4.4 %, of which four and a
    // bit.
    assert!((number("/agreement/error_over_std") - 1.0).abs() < 0.2, "{report}");
}

/// Two mirrored samples: the mean between them, and sqrt(2) of their distance from it.
fn samples_are_mirrored(out: &Path) {
    let [samples, std] = [("samples.npy", vec![2, 8, 8, 8]), ("white_noise_std.npy", vec![8; 3])]
        .map(|(name, shape)| read(&out.join(name), &shape));
    let mean = read(&out.join("white_noise.npy"), &[8; 3]);
    for i in 0..512 {
        let [a, b] = [samples[i], samples[512 + i]];
        assert!(((a + b) / 2.0 - mean[i]).abs() < 1e-5 && ((a - b).abs() / 2f32.sqrt() - std[i]).abs() < 1e-4);
    }
}

#[test]
fn wrong_calls_are_errors() {
    let scratch = Scratch::new();
    let good = write(&scratch, "good.npy", &[4; 3], &[1.0; 64]);
    let flat = write(&scratch, "flat.npy", &[4, 4], &[1.0; 16]);
    let long = write(&scratch, "long.npy", &[4, 4, 5], &[1.0; 80]);
    let contrast = write(&scratch, "contrast.npy", &[4; 3], &[0.0; 64]);
    let mut broken = [1.0; 64];
    broken[5] = f32::NAN;
    let broken = write(&scratch, "broken.npy", &[4; 3], &broken);
    let out = scratch.join("out");
    let call = |data: &str, words: &str| reconstruct(data, &out, words);
    let mut infinite = [1.0; 64];
    infinite[63] = f32::INFINITY;
    let infinite = write(&scratch, "infinite.npy", &[4; 3], &infinite);
    scratch.all_fail([
        (call(&good, "--noise -1"), 2, "above 0"),
        (call("-", "--noise 1"), 2, "-"),
        (call(&good, &format!("--noise 1 --truth {}/white_noise.npy", out.display())), 2, "an input and an output"),
        (call(&good, "--noise 1 --samples 0"), 2, "--samples"),
        (call(&good, "--noise 1 --steps 0"), 2, "--steps"),
        (call(&good, "--noise 1 --mode bent"), 2, "mgvi, geovi"),
        (call(&good, "--noise 1 --samples 1 --sample-groups 3").on(Ranks::Threads(3)), 2, "2 sample(s)"),
        (call(&good, "--noise 1 --sample-groups 2").on(Ranks::Threads(3)), 2, "divide the 3 rank(s)"),
        (call(&good, "--noise 1 --sample-groups 2 --grid 2x1").on(Ranks::Threads(2)), 2, "2x1 is of 2 rank(s)"),
        (call(&good, "--noise 1 --sample-groups some"), 2, "auto"),
        (Call::new(&["reconstruct", "-o", out.to_str().unwrap(), "--noise", "1", "--box", "80"]), 2, "--density"),
        (Call::new(&["reconstruct", "-o", out.to_str().unwrap(), "--density", &good, "--box", "80"]), 2, "--noise"),
        (Call::new(&["reconstruct", "-o", out.to_str().unwrap(), "--density", &good, "--noise", "1"]), 2, "--box"),
        (call(&infinite, "--noise 1"), 1, "inf"),
        (call(&good, "--noise 0"), 2, "above 0"),
        (call(&good, "--noise nan"), 2, "above 0"),
        (call(&good, "--noise 1 --map-only --samples 2"), 2, "--samples"),
        (call(&good, "--noise 1 --particles 8"), 2, "coarser mesh"),
        (call(&good, "--noise 1 --a-end 0.01"), 2, "a_end"),
        (call(&flat, "--noise 1"), 1, "(m, m, m)"),
        (call(&long, "--noise 1"), 1, "(m, m, m)"),
        (call(&contrast, "--noise 0.1"), 1, "1 + contrast"),
        (call(&broken, "--noise 1"), 1, "NaN"),
        (call(&good, &format!("--noise 1 --truth {long}")), 1, "long.npy"),
        (call(&scratch.word("none.npy"), "--noise 1"), 1, "none.npy"),
    ]);
    if has_mpi() {
        scratch.all_fail([
            (call(&broken, "--noise 1").on(Ranks::Mpi(2)), 1, "NaN"),
            (call(&contrast, "--noise 0.1").on(Ranks::Mpi(2)), 1, "1 + contrast"),
            (call(&good, "--noise 1 --samples 1 --sample-groups 2 --steps 0").on(Ranks::Mpi(2)), 2, "--steps"),
            (call(&good, "--noise 1 --sample-groups 3").on(Ranks::Mpi(2)), 2, "divide the 2 rank(s)"),
        ]);
    }
}

#[test]
fn what_spoils_its_runs_is_said_and_written_down() {
    let scratch = Scratch::new();
    let (data, out) = (write(&scratch, "data.npy", &[4; 3], &[1.0; 64]), scratch.join("out"));
    let outcome = reconstruct(&data, &out, "--noise 1 --map-only --particles 3").run();
    assert!(outcome.status.success() && outcome.stderr.lines().count() == 1, "{outcome:#?}");
    let written = report(&out)["warnings"].clone();
    let said = written[0].as_str().unwrap();
    assert!(said.contains("a false wave of 1 times"), "{said}");
    assert_eq!(outcome.stderr, format!("meshloom: warning: {said}\n"));
}

/// Options come from a file, too, those of the call first; what they are together can be printed
/// and read again, and needs no data.
#[test]
fn options_come_from_a_file_and_go_into_one() {
    let scratch = Scratch::new();
    let good = write(&scratch, "good.npy", &[4; 3], &[1.0; 64]);
    let file =
        scratch.file("run.toml", format!("density = '{good}'\nnoise = 2.0\nbox = 40.0\nmap_only = true\nsteps = 3\n"));
    let print = |words: &str| {
        let words = format!("reconstruct --print-config --config {file} {words}");
        Call::new(&words.split_whitespace().collect::<Vec<_>>()).succeeds().stdout
    };
    let text = print("--noise 1.5");
    for line in ["noise = 1.5", "box = 40.0", "map_only = true", "steps = 3", "scheme = \"bullfrog\"", "samples = 4"] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(print("--samples 2").lines().any(|line| line == "map_only = false"));
    let again = scratch.file("again.toml", &text);
    let words = ["reconstruct", "--print-config", "--config", &again];
    assert_eq!(Call::new(&words).succeeds().stdout, text);

    let estimate = Call::new(&["reconstruct", "--estimate", "--config", &file, "--ranks", "2"]).succeeds().stdout;
    assert!(estimate.contains("2 rank(s) in 1 group(s)") && estimate.contains("memory"), "{estimate}");
    // What spoils its runs is said before they begin, too.
    let estimate = Call::new(&["reconstruct", "--estimate", "--config", &file, "--particles", "3"]).succeeds().stdout;
    assert!(estimate.contains("\nwarning: a mesh of 4 cells") && estimate.contains("take a mesh of 6"), "{estimate}");
    // A key that is wrong is said with its line, whichever part of the options it belongs to.
    for (text, words) in [
        ("noise = 1\nnois = 1\n", ["line 2", "`nois`", "noise"]),
        ("# a run\n\nsteps = 'many'\n", ["line 3", "`steps`", "i64"]),
        ("sigma8 = 0.8\nwa = [1]\n", ["line 2", "`wa`", "f64"]),
        ("box = 40\nsamples = 1.5\n", ["line 2", "`samples`", "1.5"]),
    ] {
        let wrong = scratch.file("wrong.toml", text);
        for command in ["reconstruct", "simulate"] {
            let words = if command == "simulate" { ["wrong.toml", "line", ""] } else { words };
            let call = [command, "--config", &wrong, "-o", &scratch.word("out")];
            Call::new(&call).run().is_error("a wrong key", 1, &words);
        }
    }
}
