//! Messages of the program, their streams, and what is left of runs that were stopped.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::cli::{self, Call, Ranks, Scratch, Sink, files, has_mpi, signal};
use meshloom::io::{NpyWriter, OutputDir, SharedFile, token, write_whole};

/// Writes some points in the unit cube.
fn points(scratch: &Scratch, count: u64) -> String {
    let path = scratch.word("points.npy");
    let to = NpyWriter::<f32>::create(&path, &[count, 3], &token()).unwrap();
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    to.write(0, &(0..3 * count).map(|_| next()).collect::<Vec<_>>()).unwrap();
    to.finish().unwrap();
    path
}

fn knn(points: &str, output: &str) -> Call {
    Call::new(&["knn", points, "-k", "4", "-o", output])
}

fn names(directory: &Path) -> Vec<String> {
    let name = |path: &Path| path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
    files(directory).iter().map(|path| name(path)).collect()
}

#[test]
fn standard_output_may_break_and_results_stay() {
    let scratch = Scratch::new();
    let points = points(&scratch, 60);
    let output = scratch.word("nearest.npz");
    let mut calls = vec![knn(&points, &output).words(&["--json"])];
    for line in [
        "devices",
        "devices --json",
        "fft --plan-only --shape 8,8,8",
        "bench exchange --size 8 --runs 1 --ranks 2",
        "--help",
        "knn --help",
        "--version",
    ] {
        calls.push(Call::new(&line.split(' ').collect::<Vec<_>>()));
    }
    for call in calls {
        let files_of_it = call.words[0] == "knn" && call.words.len() > 2;
        call.clone().stdout(Sink::Gone).succeeds();
        assert!(!files_of_it || fs::remove_file(&output).is_ok(), "{call:?}");
        if cfg!(target_os = "linux") {
            let outcome = call.clone().stdout(Sink::Full).run();
            outcome.is_error("a full device", 1, &["standard output", "no room"]);
            assert!(!files_of_it || fs::remove_file(&output).is_ok(), "{call:?}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn standard_error_may_break_and_codes_stay() {
    let scratch = Scratch::new();
    let points = points(&scratch, 60);
    let output = scratch.word("nearest.npz");
    // Far from the origin: the warning about lost digits is due.
    let far = scratch.word("far.npy");
    let to = NpyWriter::<f64>::create(&far, &[4, 3], &token()).unwrap();
    to.write(0, &(0..12).map(|i| 1e9 + f64::from(i)).collect::<Vec<_>>()).unwrap();
    to.finish().unwrap();
    assert!(knn(&far, &output).run().stderr.starts_with("meshloom: warning"));
    for sink in [Sink::Full, Sink::Gone] {
        for (call, code) in [
            (knn(&points, &output), 0),
            (knn(&far, &output), 0),
            (knn(&points, &output).env("MESHLOOM_LOG", "trace"), 0),
            (knn("no-such.npy", &output), 1),
            (Call::new(&["knn", &points, "-k", "x"]), 2),
            (Call::new(&["fft", "--plan-only", "--shape", "8", "--grid", "2x2"]), 2),
        ] {
            let outcome = call.stderr(sink).run();
            assert_eq!(outcome.status.code(), Some(code), "{outcome:#?}");
        }
        assert!(fs::remove_file(&output).is_ok());
    }
}

/// Limits the process: what it writes fails like on a full disk, and the signal that
/// comes with it does not end it.
#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    use std::os::unix::process::ExitStatusExt;

    let scratch = Scratch::new();
    let output = scratch.word("nearest.npz");
    // Lavapipe of Mesa 25 has its devices' memory in files without a name, which the limit is on,
    // too: all programs die of it.
    let few = points(&scratch, 10);
    if knn(&few, &output).before("ulimit -f 8").run().status.signal() == Some(libc::SIGBUS) {
        println!("skipped: this driver has no memory where files are limited");
        return;
    }
    fs::remove_file(&output).unwrap();
    let points = points(&scratch, 400);
    for ranks in [1, 3] {
        let call = knn(&points, &output).on(Ranks::Threads(ranks)).before("ulimit -f 8");
        call.run().is_error("knn", 1, &["nearest.npz", "ulimit -f", "raise the limit"]);
        assert_eq!(names(scratch.path()), ["points.npy"]);
    }
    if cfg!(feature = "hdf5") {
        // Positions and velocities fit, the snapshot does not.
        let words = ["--hdf5", "one", "--window", "tsc"];
        let call = Call::simulate(&scratch.join("run"), &words).on(Ranks::Threads(2));
        let outcome = call.before("ulimit -f 24").run();
        outcome.is_error("simulate", 1, &["snapshot.hdf5", "ulimit -f"]);
        assert!(outcome.stderr.lines().count() == 1 && !outcome.stderr.contains(".part"), "{outcome:#?}");
        // What it can be resumed from stays.
        let left = names(scratch.path()).into_iter().filter(|name| !name.starts_with("run/checkpoint/"));
        assert!(left.eq(["points.npy"]));
    }
}

/// Tries limits on few points first: below one of them the driver fails, in its own ways.
#[cfg(target_os = "linux")]
#[test]
fn a_lack_of_host_memory_is_an_error() {
    const LIMITS: [&str; 12] = [
        "ulimit -v 300000",
        "ulimit -v 500000",
        "ulimit -v 700000",
        "ulimit -v 900000",
        "ulimit -v 1100000",
        "ulimit -v 1300000",
        "ulimit -v 1500000",
        "ulimit -v 1700000",
        "ulimit -v 1900000",
        "ulimit -v 2500000",
        "ulimit -v 3500000",
        "ulimit -v 5500000",
    ];
    let scratch = Scratch::new();
    let (output, few) = (scratch.word("spectrum.csv"), points(&scratch, 10));
    fs::rename(&few, scratch.word("few.npy")).unwrap();
    let few = scratch.word("few.npy");
    // 48 MB in the file, and 96 MB each as f64, with their cells, and sorted.
    let many = points(&scratch, 4_000_000);
    for ranks in [1, 2].map(Ranks::Threads) {
        let power = |points: &str, limit| {
            let words = ["power", points, "--box", "1", "--mesh", "8", "-o", &output];
            Call::new(&words).on(ranks).before(limit).run()
        };
        let enough = LIMITS.iter().position(|limit| power(&few, limit).status.success()).unwrap();
        fs::remove_file(&output).unwrap();
        // Close to the least limit the driver may be the one that lacks memory.
        let is_lack = |outcome: &cli::Outcome| outcome.stderr.contains("out of host memory: ");
        let outcome = LIMITS[enough..].iter().map(|limit| power(&many, limit)).find(|outcome| {
            assert!(!outcome.stderr.contains("memory allocation of"), "{outcome:#?}");
            is_lack(outcome) || outcome.status.success()
        });
        outcome.unwrap().is_error("power", 1, &["out of host memory: ", " needed for "]);
        assert_eq!(names(scratch.path()), ["few.npy", "points.npy"]);
    }
}

#[test]
fn names_cannot_take_the_terminal_over() {
    let scratch = Scratch::new();
    let nasty = "a\x1b[31m\x07\u{9b}2J\u{202e}\r\nmeshloom: all is well";
    let shown = r"a\u{1b}[31m\u{7}\u{9b}2J\u{202e}\r\nmeshloom: all is well";
    let good = points(&scratch, 20);
    let [missing, config, made] = ["missing.npy", "config.toml", "made.npz"].map(|name| format!("{nasty}{name}"));
    let config = scratch.file(&config, "particles = 8\n\"\x7f\u{202e}\" = 1\n");
    let out = scratch.word("out.npz");
    let mut calls = vec![
        (knn(&scratch.word(&missing), &out), 1),
        (knn(&good, &scratch.word(&format!("{nasty}/out.npz"))), 1),
        (Call::simulate(&scratch.join("run"), &["--config", &config]), 1),
        (Call::new(&["devices", "\x1b[31mred"]), 2),
        (knn(&good, &out).words(&["--device", "\x1b[31mred"]), 2),
    ];
    calls.push((knn(&scratch.word(&missing), &out).on(Ranks::Threads(2)), 1));
    if has_mpi() {
        calls.push((knn(&scratch.word(&missing), &out).on(Ranks::Mpi(2)), 1));
    }
    let clean = |text: &str| !text.chars().any(|c| meshloom::io::is_unprintable(c) && c != '\n');
    for (call, code) in calls {
        let outcome = call.run();
        let words = if call.words.iter().any(|word| word.contains(nasty)) { shown } else { r"\u{1b}[31mred" };
        outcome.is_error("a name", code, &[words]);
        assert!(clean(&outcome.stderr), "{outcome:#?}");
    }
    // In JSON they are JSON's.
    let made = scratch.word(&made);
    let outcome = knn(&good, &made).words(&["--json"]).succeeds();
    assert!(clean(&outcome.stdout), "{outcome:#?}");
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["output"], made);
}

#[test]
fn a_place_that_is_none_is_said_in_plain_words() {
    let scratch = Scratch::new();
    let points = points(&scratch, 20);
    for (output, words) in [
        (scratch.word("no/such/out.npz"), &["there is no such directory", "mkdir -p", "no/such"][..]),
        (format!("{points}/out.npz"), &["points.npy is not a directory"]),
    ] {
        let outcome = knn(&points, &output).run();
        outcome.is_error("a place", 1, words);
        assert!(!outcome.stderr.contains("entity") && !outcome.stderr.contains("os error"), "{outcome:#?}");
    }
}

#[test]
fn nothing_is_said_under_mpi_but_by_mpi() {
    if !has_mpi() {
        return;
    }
    let scratch = Scratch::new();
    let outcome = knn(&points(&scratch, 60), &scratch.word("nearest.npz")).on(Ranks::Mpi(2)).run();
    assert!(outcome.status.success() && !outcome.stderr.contains("error:"), "{outcome:#?}");
}

#[test]
fn a_hangup_that_is_ignored_stays_so() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    // As under nohup.
    let mut run = Call::long_simulation(&out).before("trap '' HUP").start();
    run.until("output directory", |_| out.is_dir());
    signal(run.pid(), "HUP");
    signal(run.pid(), "TERM");
    run.wait(Duration::from_secs(20)).is_error("TERM", 143, &["stopped by a signal"]);
    assert!(files(scratch.path()).iter().all(|path| path.starts_with(out.join("checkpoint"))));
}

#[test]
fn what_an_interrupt_of_the_launcher_leaves_is_cleared_by_the_next_run() {
    if !has_mpi() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let mut run = Call::long_simulation(&out).on(Ranks::Mpi(2)).start();
    run.until("two ranks at work", |run| run.ranks().len() == 2 && out.join(".meshloom.lock").exists());
    signal(run.pid(), "TERM");
    let outcome = run.wait(Duration::from_secs(20));
    assert!(!outcome.status.success() && !outcome.stderr.contains("panicked"), "{outcome:#?}");
    // It passes SIGTERM on, which ranks answer with a checkpoint if there is time for one. If not,
    // it kills them. Then the lock of a run stays without a holder, and a part of the checkpoint.
    let may_stay = ["checkpoint", "checkpoint.next", ".meshloom.lock"].map(|name| out.join(name));
    let left = files(scratch.path());
    assert!(left.iter().all(|path| may_stay.iter().any(|may| path.starts_with(may))), "{left:?}");
    // The next run clears them.
    Call::simulate(&out, &["--steps", "1"]).succeeds();
    let left = names(scratch.path());
    let unfinished = |name: &&String| name.ends_with(".part") || name.contains("checkpoint") || name.ends_with(".lock");
    assert_eq!(left.iter().find(unfinished), None, "{left:?}");
}

/// Scripts find the same under the same names in the report of every command.
#[test]
fn reports_have_common_names() {
    let scratch = Scratch::new();
    let points = points(&scratch, 64);
    let edges = scratch.file("edges.txt", "0\n0.5\n");
    let field = scratch.word("field.npy");
    let to = NpyWriter::<f32>::create(&field, &[8, 8, 8], &token()).unwrap();
    to.write(0, &(0..512).map(|n| 0.25 * (1 + n % 7) as f32).collect::<Vec<_>>()).unwrap();
    to.finish().unwrap();
    let calls = [
        format!("sort {points} -o OUT.npy"),
        format!("knn {points} -k 2 -o OUT.npz"),
        format!("neighbors {points} --radius 0.1 -o OUT.npz"),
        format!("pairs {points} --bins {edges} -o OUT.csv"),
        format!("fof {points} --linking-length 0.1 -o OUT.npz"),
        format!("power {field} --box 1 -o OUT.csv"),
        format!("fft {field} -o OUT.npy"),
        "simulate --particles 8 --mesh 16 --steps 1 --linking-parameter 0 --quiet -o OUT".into(),
        "shallow-water --cells 8x4 --steps 1 -o OUT".into(),
        format!("infer --data {field} --noise 1 --samples 0 --iterations 1 --periodic -o OUT"),
        format!("reconstruct --density {field} --box 80 --noise 3 --steps 1 --lpt 1 --map-only -o OUT"),
    ];
    let running = calls.map(|call| {
        let name = call.split(' ').next().unwrap().to_string();
        let call = call.replace("OUT", &scratch.word(&format!("of-{name}")));
        (name, Call::new(&call.split(' ').collect::<Vec<_>>()).words(&["--json"]).on(Ranks::Threads(2)).start())
    });
    for (name, run) in running {
        let outcome = run.wait(Duration::from_secs(240));
        assert!(outcome.status.success(), "{outcome:#?}");
        let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!((&report["command"], &report["ranks"]), (&name.as_str().into(), &2.into()));
        let said = ["device", "seconds", "host_seconds", "bytes"].iter().all(|key| report.get(key).is_some());
        let bytes = &report["bytes"];
        let counted = |key: &str| bytes[key].as_u64().is_some_and(|bytes| bytes > 0);
        // Of searches and fits it depends on the data how many bytes the device moves: null, and
        // not 0.
        let device = if ["sort", "fft", "simulate", "shallow-water"].contains(&name.as_str()) {
            counted("device")
        } else {
            bytes.get("device").is_some_and(serde_json::Value::is_null)
        };
        assert!(
            said && report["seconds"]["total"].is_f64() && counted("between_ranks") && device,
            "{name}: {report:#}"
        );
    }
}

/// Two runs in one directory at once would mix their files.
#[test]
fn one_run_at_a_time_has_a_directory() {
    let scratch = Scratch::new();
    let (out, data) = (scratch.word("out"), points(&scratch, 20));
    let held = OutputDir::create(&out).unwrap().lock().unwrap();
    let simulate = Call::simulate(&scratch.join("out"), &[]);
    let mut calls = vec![
        simulate.clone().on(Ranks::Threads(2)),
        Call::new(&["shallow-water", "--cells", "8x4", "--steps", "1", "--out", &out]),
        Call::new(&["infer", "--data", &data, "--noise", "1", "--out", &out]),
        Call::new(&["reconstruct", "--density", &data, "--box", "1", "--noise", "1", "--out", &out]),
    ];
    if has_mpi() {
        calls.push(simulate.clone().on(Ranks::Mpi(2)));
    }
    // All wait at the same time.
    let running: Vec<_> = calls.iter().map(Call::start).collect();
    for run in running {
        let words = ["out: another run is writing there", "give another directory"];
        run.wait(Duration::from_secs(60)).is_error("a directory in use", 1, &words);
    }
    assert_eq!(names(scratch.path()), ["out/.meshloom.lock", "points.npy"]);
    // A killed run blocks no later one.
    drop(held);
    let mut killed = simulate.clone().words(&["--lpt", "1"]).start();
    killed.until("a lock", |_| scratch.join("out/.meshloom.lock").exists());
    signal(killed.pid(), "KILL");
    killed.wait(Duration::from_secs(20));
    simulate.succeeds();
    assert!(!scratch.join("out/.meshloom.lock").exists());
    // A directory holds the files of one command.
    for run in &calls[1..4] {
        run.run().is_error("another command", 1, &["run.json: is of `meshloom simulate`", "another --out"]);
    }
}

/// Files that a killed run has left in `directory`.
const DEAD: &str = "run/positions.npy run/halos.npz run/power_spectrum.csv run/density.png run/snapshot.1.hdf5 \
    run/snapshot.7.hdf5 run/snapshot_0.5/positions.npy run/snapshot_0.7/snapshot.hdf5 nearest.npz other.npz";

#[test]
fn the_next_run_clears_what_a_killed_one_has_left() {
    if let Some(directory) = std::env::var_os("MESHLOOM_TEST_SCRATCH") {
        let dead: Vec<_> = DEAD.split(' ').map(|name| Path::new(&directory).join(name)).collect();
        let _open: Vec<_> = dead.iter().map(|path| SharedFile::create(path, 3, b"abc", &token()).unwrap()).collect();
        std::process::abort();
    }
    let scratch = Scratch::new();
    let run = scratch.join("run");
    ["snapshot_0.5", "snapshot_0.7"].iter().for_each(|name| fs::create_dir_all(run.join(name)).unwrap());
    let mut killed = Command::new(std::env::current_exe().unwrap());
    killed.args(["--exact", "output::the_next_run_clears_what_a_killed_one_has_left"]);
    assert!(!killed.env("MESHLOOM_TEST_SCRATCH", scratch.path()).output().unwrap().status.success());
    assert_eq!(names(scratch.path()).len(), DEAD.split(' ').count(), "{:?}", names(scratch.path()));
    // These are alive, and of this very process.
    let alive = ["nearest.npz", "run/positions.npy"].map(|name| {
        let path = scratch.join(name);
        (SharedFile::create(&path, 3, b"abc", "another").unwrap(), path)
    });
    let parts = || names(scratch.path()).into_iter().filter(|name| name.ends_with(".part")).collect::<Vec<_>>();

    let points = points(&scratch, 60);
    knn(&points, &scratch.word("nearest.npz")).on(Ranks::Threads(2)).succeeds();
    let words = ["--snapshots", "0.5", "--resume"];
    let words = if cfg!(feature = "hdf5") { [&words[..], &["--hdf5", "per-rank"]].concat() } else { words.to_vec() };
    Call::simulate(&run, &words).on(Ranks::Threads(2)).succeeds();
    let left = parts();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left.iter().any(|name| name.starts_with(".other.npz.")), "{left:?}");
    for (file, path) in alive {
        file.finish().unwrap();
        assert_eq!(fs::read(path).unwrap(), b"abc");
    }
    write_whole(scratch.join("other.npz"), b"").unwrap();
    assert_eq!(parts(), [""; 0]);
}

/// Printing by macros panics where nothing can be printed.
#[test]
fn all_printing_goes_through_one_place() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in ["src", "../src"].iter().flat_map(|source| files(&here.join(source))) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (line, number) in code.zip(1..) {
            let prints = ["print!(", "println!(", "dbg!("].iter().any(|name| line.contains(name));
            assert!(!prints, "{}: about line {number}: {line}; print by terminal.rs", path.display());
        }
    }
}

/// An output that would replace an input is refused before anything is written, whatever the
/// spelling.
#[test]
fn outputs_never_replace_inputs() {
    let scratch = Scratch::new();
    let one = points(&scratch, 20);
    let two = scratch.file("two.npy", fs::read(&one).unwrap());
    let edges = scratch.file("edges.txt", "0\n1\n");
    fs::create_dir(scratch.join("run")).unwrap();
    let noise = scratch.file("run/positions.npy", fs::read(&one).unwrap());
    let data = scratch.file("run/mean.npy", fs::read(&one).unwrap());
    let run = scratch.word("run");
    let respelled = format!("{}/run/../two.npy", scratch.path().display());
    std::os::unix::fs::symlink(&two, scratch.join("link.npy")).unwrap();
    let link = scratch.word("link.npy");
    let before: Vec<_> = files(scratch.path()).iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    for words in [
        vec!["sort", &one, "-o", &one],
        vec!["sort", &two, "-o", &link],
        vec!["knn", &two, "-k", "1", "-o", &respelled],
        vec!["power", &one, "--box", "1", "--cross", &two, "-o", &two],
        vec!["knn", &one, "-k", "1", "--queries", &two, "-o", &two],
        vec!["neighbors", &one, "--radius", "1", "-o", &one],
        vec!["pairs", &one, "--bins", &edges, "-o", &edges],
        vec!["fof", &one, "--linking-length", "1", "--velocities", &two, "-o", &two],
        vec!["fof", &one, "--linking-length", "1", "-o", &scratch.word("new.npz"), "--labels", &one],
        vec!["simulate", "--white-noise", &noise, "--out", &run],
        vec!["infer", "--data", &data, "--noise", "1", "-o", &run],
    ] {
        Call::new(&words).run().is_error("an input", 2, &["are the same file", "another name"]);
        let after: Vec<_> = files(scratch.path()).iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        assert!(after == before, "{words:?}");
    }
}

#[test]
fn wrong_words_under_mpi_exit_2_with_one_message() {
    if !has_mpi() {
        return;
    }
    let scratch = Scratch::new();
    let points = points(&scratch, 20);
    for (words, says) in [
        (vec!["sort", "--nosuch"], "--nosuch"),
        (vec!["knn", &points, "-k", "1", "-o", &points], "are the same file"),
        (vec!["fof", &points, "--linking-parameter", "0.2", "-o", "/nowhere/x.npz"], "needs a box"),
        (vec!["shallow-water", "--cells", "3", "--out", "/nowhere"], "--cells"),
    ] {
        Call::new(&words).on(Ranks::Mpi(2)).run().is_error(words[0], 2, &[says]);
    }
}

#[test]
fn progress_says_what_is_left_and_only_to_a_terminal() {
    let scratch = Scratch::new();
    let words = |name: &str| {
        let words = "--particles 8 --mesh 16 --window tsc --steps 20 --linking-parameter 0";
        format!("{} simulate --out {} {words}", cli::program().display(), scratch.word(name))
    };
    // `script` is a terminal to the program.
    let on_a_terminal = |command: &str| {
        let mut script = Command::new("script");
        script.args(["-qec", command, "/dev/null"]).env("TERM", "xterm").stdin(std::process::Stdio::null());
        let output = script.output().ok()?;
        assert!(output.status.success(), "{output:?}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(shown) = on_a_terminal(&words("shown")) else {
        println!("skipped: there is no `script`");
        return;
    };
    assert!(shown.contains("stepping") && shown.contains("/20") && shown.contains("(left: 00:00:0"), "{shown}");
    assert_eq!(on_a_terminal(&(words("quiet") + " --quiet")).as_deref(), Some(""));
}
