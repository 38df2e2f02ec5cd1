//! `meshloom shallow-water` as a program: its files, the same for every number of ranks; resuming;
//! wrong calls.

use std::fs;
use std::path::Path;

use super::cli::{self, Call, Ranks, Scratch, files, has_mpi};
use meshloom::io::NpyFile;
use serde_json::Value;

fn call(out: &Path, words: &[&str]) -> Call {
    Call::new(&["shallow-water", "--out", out.to_str().unwrap()]).words(words)
}

/// Returns all files of a run but its description, by name.
fn content(out: &Path) -> Vec<(String, Vec<u8>)> {
    let name = |path: &Path| path.strip_prefix(out).unwrap().to_str().unwrap().to_string();
    let all = files(out).into_iter().map(|path| (name(&path), fs::read(path).unwrap()));
    all.filter(|(name, _)| name != "run.json").collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

const SMALL: [&str; 8] = ["--cells", "48x24", "--steps", "12", "--every", "5", "--snapshots", "2"];

#[test]
fn a_run_writes_its_files_and_the_same_on_any_number_of_ranks() {
    let scratch = Scratch::new();
    let one = scratch.join("one");
    let outcome = call(&one, &SMALL).words(&["--json"]).succeeds();
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report, json(&one.join("run.json")));
    assert_eq!(
        (&report["steps"], &report["cells"][0], &report["bytes_per_cell_step"]),
        (&12.into(), &48.into(), &48.into())
    );
    assert_eq!(report["exchanges_per_step"], 0);
    let found = content(&one);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let snapshot = ["frames.npy", "height.npy", "snapshot.json", "state.npy", "velocity.npy"];
    let in_snapshots = [12, 6].iter().flat_map(|step| snapshot.map(|name| format!("snapshot_{step}/{name}")));
    let run = ["animation.png", "diagnostics.csv", "height.npy", "height.png", "velocity.npy"].map(String::from);
    let mut wanted: Vec<String> = run.into_iter().chain(in_snapshots).collect();
    wanted.sort();
    assert_eq!(names, wanted);

    let height = NpyFile::open(one.join("height.npy")).unwrap();
    let velocity = NpyFile::open(one.join("velocity.npy")).unwrap();
    assert_eq!((height.shape(), velocity.shape()), (&[24, 48][..], &[2, 24, 48][..]));
    let heights = height.read_f32(0..24 * 48).unwrap();
    assert!(heights.iter().all(|h| (98.0..102.0).contains(h)));
    // The jet flows to the east, and v is zero on the wall in the north.
    let velocities = velocity.read_f32(0..2 * 24 * 48).unwrap();
    assert!(velocities[..24 * 48].iter().any(|u| *u > 7.0) && velocities[47 * 48..].iter().all(|v| *v == 0.0));
    let table = fs::read_to_string(one.join("diagnostics.csv")).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "step,seconds,mean_height,min_eta,max_eta,max_u,max_v,energy");
    let steps: Vec<&str> = lines[1..].iter().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(steps, ["0", "5", "10", "12"]);
    for (name, frames) in [("height.png", 1), ("animation.png", 4)] {
        let picture = fs::read(one.join(name)).unwrap();
        let control = picture.windows(4).position(|chunk| chunk == b"acTL");
        let count = control.map_or(1, |at| u32::from_be_bytes(picture[at + 4..at + 8].try_into().unwrap()));
        assert!(picture.starts_with(b"\x89PNG") && count == frames, "{name}: {count}");
    }

    let mut others = vec![(Ranks::Threads(2), "auto"), (Ranks::Threads(4), "2x2"), (Ranks::Threads(6), "6x1")];
    if has_mpi() {
        others.extend([(Ranks::Mpi(2), "2x1"), (Ranks::Mpi(4), "auto")]);
    }
    for (number, (ranks, grid)) in others.into_iter().enumerate() {
        let other = scratch.join(&number.to_string());
        call(&other, &SMALL).words(&["--grid", grid]).on(ranks).succeeds();
        assert!(content(&other) == found, "{ranks:?}");
        assert_eq!(json(&other.join("run.json"))["exchanges_per_step"], 1);
    }
}

#[test]
fn a_resumed_run_has_the_files_of_one_that_was_not_interrupted() {
    let scratch = Scratch::new();
    let whole = scratch.join("whole");
    let double = call(&scratch.join("probe"), &["--cells", "8x4", "--steps", "0", "--precision", "f64"]).run();
    let precisions: &[&str] = if double.status.success() { &["f32", "f64"] } else { &["f32"] };
    for precision in precisions {
        let words = [&SMALL[..], &["--compatible", "--precision", precision]].concat();
        call(&whole, &words).succeeds();
        let found = content(&whole);
        // As if it had been killed after the first snapshot.
        fs::remove_dir_all(whole.join("snapshot_12")).unwrap();
        for name in ["run.json", "height.npy", "diagnostics.csv", "animation.png"] {
            fs::remove_file(whole.join(name)).unwrap();
        }
        call(&whole, &words).words(&["--resume"]).on(Ranks::Threads(3)).succeeds();
        assert!(content(&whole) == found, "{precision}");
        assert_eq!(json(&whole.join("run.json"))["resumed_from_step"], 6);
        // Nothing is left to do.
        call(&whole, &words).words(&["--resume"]).succeeds();
        assert!(content(&whole) == found, "{precision}, resumed at the end");
        fs::remove_dir_all(&whole).unwrap();
    }
}

/// A run goes on for more steps, and with other snapshots, from the last state that there is.
#[test]
fn a_run_goes_on_for_more_steps() {
    let scratch = Scratch::new();
    let (whole, out) = (scratch.join("whole"), scratch.join("out"));
    let longer = ["--cells", "48x24", "--steps", "20", "--every", "5", "--snapshots", "3"];
    call(&whole, &longer).succeeds();
    call(&out, &SMALL).succeeds();
    call(&out, &longer).words(&["--resume"]).on(Ranks::Threads(2)).succeeds();
    assert_eq!(json(&out.join("run.json"))["resumed_from_step"], 12);
    for name in ["height.npy", "velocity.npy", "diagnostics.csv", "animation.png", "snapshot_20/state.npy"] {
        assert!(fs::read(out.join(name)).unwrap() == fs::read(whole.join(name)).unwrap(), "{name}");
    }
    let again = |steps: &str, every: &str| {
        call(&out, &["--cells", "48x24", "--steps", steps, "--every", every, "--snapshots", "1", "--resume"])
    };
    scratch.all_fail([
        (again("30", "2"), 1, "use --every 5, a multiple of it"),
        (again("12", "5"), 1, "it is of step 20, and this run has 12"),
    ]);
    again("30", "10").succeeds();
    let table = fs::read_to_string(out.join("diagnostics.csv")).unwrap();
    assert!(table.lines().skip(1).map(|line| line.split(',').next().unwrap()).eq(["0", "10", "20", "30"]), "{table}");
}

/// Runs until it is asked to stop: the directory is made when signals are listened to, and long
/// before the first look at them, since kernels have yet to be compiled.
#[cfg(unix)]
fn stop_early(out: &Path, words: &[&str]) {
    let mut running = call(out, words).start();
    running.until("a directory", |_| out.is_dir());
    cli::signal(running.pid(), "TERM");
    let outcome = running.wait(std::time::Duration::from_secs(60));
    assert_eq!(outcome.status.code(), Some(128 + 15), "{outcome:#?}");
    assert!(outcome.stderr.contains("--resume goes on there") && !out.join("run.json").exists(), "{outcome:#?}");
}

/// SIGTERM in the middle: the state is on disk, and the rest of the run gives the files of a whole
/// one.
#[cfg(unix)]
#[test]
fn a_run_that_is_asked_to_stop_goes_on_later() {
    let scratch = Scratch::new();
    let words = ["--cells", "64x32", "--steps", "3000", "--every", "1000"];
    let (whole, out) = (scratch.join("whole"), scratch.join("out"));
    call(&whole, &words).succeeds();
    stop_early(&out, &words);
    let step = json(&out.join("checkpoint/snapshot.json"))["step"].as_u64().unwrap();
    assert!(step < 3000);
    call(&out, &words).words(&["--compatible", "--resume"]).run().is_error("another run", 1, &["compatible"]);
    call(&out, &words).words(&["--resume"]).on(Ranks::Threads(2)).succeeds();
    assert_eq!(json(&out.join("run.json"))["resumed_from_step"], step);
    assert!(content(&out) == content(&whole), "resumed after step {step}");
}

#[cfg(unix)]
#[test]
fn a_run_stops_before_its_time_limit_and_goes_on_later() {
    let scratch = Scratch::new();
    let words = ["--cells", "64x32", "--steps", "3000", "--every", "1000"];
    let (whole, out) = (scratch.join("whole"), scratch.join("out"));
    call(&whole, &words).succeeds();
    for seconds in 1.. {
        let limit = seconds.to_string();
        let outcome = call(&out, &words).words(&["--resume", "--checkpoint-every", "1", "--time-limit", &limit]).run();
        if outcome.status.success() {
            break;
        }
        outcome.is_error("limit", 143, &["stopped by the time limit after step", "of 3000; --resume goes on there"]);
        assert!(out.join("checkpoint/snapshot.json").is_file());
    }
    assert!(content(&out) == content(&whole));
}

/// Same with the last steps in flight: their results are not lost.
#[cfg(unix)]
#[test]
fn a_run_that_is_asked_to_stop_at_its_end_keeps_what_it_has() {
    let scratch = Scratch::new();
    let words = ["--cells", "64x32", "--steps", "1", "--every", "1"];
    let (whole, out) = (scratch.join("whole"), scratch.join("out"));
    call(&whole, &words).succeeds();
    // The only look at signals is the one after the step.
    stop_early(&out, &words);
    call(&out, &words).words(&["--resume"]).succeeds();
    assert!(content(&out) == content(&whole));
}

#[test]
fn snapshots_that_are_not_the_runs_are_refused() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    call(&out, &SMALL).succeeds();
    let other = [&SMALL[..], &["--compatible", "--resume"]].concat();
    let state = out.join("snapshot_12/state.npy");
    let bytes = fs::read(&state).unwrap();
    let mut changed = bytes.clone();
    changed[200] ^= 1;
    let resume = [&SMALL[..], &["--resume"]].concat();
    scratch.all_fail([(call(&out, &other), 1, "compatible = false")]);
    fs::write(&state, &changed).unwrap();
    scratch.all_fail([
        (call(&out, &resume), 1, "is not what was written"),
        (call(&out, &resume).on(Ranks::Threads(2)), 1, "damaged"),
    ]);
    fs::write(&state, &bytes[..bytes.len() / 2]).unwrap();
    scratch.all_fail([(call(&out, &resume), 1, "remove the snapshot")]);
    // What has been seen is as good as the state.
    fs::write(&state, &bytes).unwrap();
    let (frames, description) = (out.join("snapshot_12/frames.npy"), out.join("snapshot_12/snapshot.json"));
    let (whole, said) = (fs::read(&frames).unwrap(), json(&description));
    let mut changed = whole.clone();
    changed[200] ^= 1;
    fs::write(&frames, &changed).unwrap();
    scratch.all_fail([(call(&out, &resume).on(Ranks::Threads(2)), 1, "frames.npy is not what was written")]);
    fs::write(&frames, &whole).unwrap();
    let mut other = said.clone();
    other["diagnostics"][1][1][6] = 1.5.into();
    fs::write(&description, other.to_string()).unwrap();
    scratch.all_fail([(call(&out, &resume), 1, "diagnostics is not what was written")]);
    // One that has no fingerprints of these, as it was once written.
    let mut older = said;
    older.as_object_mut().unwrap().remove("fingerprints");
    fs::write(&description, older.to_string()).unwrap();
    call(&out, &resume).succeeds();
    fs::write(&description, "{").unwrap();
    scratch.all_fail([(call(&out, &resume), 1, "snapshot.json")]);
}

#[test]
fn snapshots_of_other_water_go_and_those_on_the_way_stay() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let states = || ["snapshot_6", "snapshot_12"].map(|name| out.join(name).exists());
    call(&out, &SMALL).succeeds();
    fs::write(out.join("snapshot_6/notes"), b"mine").unwrap();
    let longer = ["--cells", "48x24", "--steps", "20", "--every", "5"];
    call(&out, &longer).succeeds();
    assert_eq!(states(), [true; 2]);
    call(&out, &["--cells", "48x24", "--steps", "8", "--every", "5"]).succeeds();
    assert_eq!((states(), files(&out.join("snapshot_6")).len()), ([true, false], 6));
    call(&out, &longer).words(&["--compatible"]).succeeds();
    assert_eq!(files(&out.join("snapshot_6")), [out.join("snapshot_6/notes")]);
}

#[test]
fn wrong_calls_say_what_is_wrong() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let occupied = scratch.file("file", b"x");
    let wrong = |words: &[&str]| call(&out, words);
    let mut cases = vec![
        (wrong(&["--cells", "48"]), 2, "`48` is no grid of cells"),
        (wrong(&["--cells", "3x24"]), 2, "number of columns is 3"),
        (wrong(&["--cells", "48x0"]), 2, "number of rows is 0"),
        (wrong(&["--cells", "99999999999x24"]), 2, "number of columns"),
        (wrong(&["--hours", "-1"]), 2, "--hours is -1"),
        (wrong(&["--hours", "nan"]), 2, "--hours is NaN"),
        (wrong(&["--hours", "1", "--steps", "1"]), 2, "--hours"),
        (wrong(&["--steps", "10", "--snapshots", "11"]), 2, "--snapshots is 11"),
        (wrong(&["--every", "0"]), 2, "--every"),
        (wrong(&["--steps", "1000000", "--every", "1"]), 2, "--every is 1"),
        (wrong(&["--grid", "2x2"]), 2, "2x2"),
        (wrong(&["--precision", "f16"]), 2, "f16"),
        (call(Path::new(&occupied), &["--steps", "1"]), 1, "file"),
        // More than any device has.
        (wrong(&["--cells", "1000000x1000000"]), 1, "--cells"),
    ];
    let huge = cases.pop().unwrap();
    scratch.all_fail(cases);
    let outcome = huge.0.run();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:#?}");
    assert!(["memory", "elements"].iter().any(|word| outcome.stderr.contains(word)), "{outcome:#?}");
    assert!(files(scratch.path()) == [scratch.join("file")], "nothing is left");
}
