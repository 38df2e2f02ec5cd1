//! `--shares`: the same files whatever the parts of ranks, and errors.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};

use super::cli::{Call, Ranks, Scratch, files, has_mpi};
use meshloom::io::{NpyElement, NpyWriter, token};
use serde_json::Value;

fn write<T: NpyElement>(scratch: &Scratch, name: &str, shape: &[u64], values: &[T]) -> String {
    let file = NpyWriter::create(scratch.join(name), shape, &token()).unwrap();
    file.write(0, values).unwrap();
    file.finish().unwrap();
    scratch.word(name)
}

/// Numbers in `0.0..16.0`, many of them equal.
fn numbers(count: u32) -> Vec<f32> {
    let mix = |i: u32| i.wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(2_246_822_519);
    (0..count).map(|i| (mix(i) >> 24) as f32 / 16.0).collect()
}

/// Returns the results in a directory, or a file alone: without times, states and pictures, which
/// follow from the results.
fn results(out: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    if out.is_file() {
        return vec![(PathBuf::new(), fs::read(out).unwrap())];
    }
    let is_result = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        (name.ends_with(".npy") || name.ends_with(".npz") || name.ends_with(".csv"))
            && name != "iterations.csv"
            && !path.starts_with(out.join("state"))
    };
    let found = files(out).into_iter().filter(is_result);
    found.map(|path| (path.strip_prefix(out).unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

/// Runs a call that may warn that a fit of few iterations is not done.
fn run(call: Call) {
    let outcome = call.run();
    assert!(outcome.status.success(), "{outcome:#?}");
}

#[test]
fn files_have_the_same_bytes_for_any_shares() {
    let scratch = Scratch::new();
    let points = write(&scratch, "points.npy", &[1000, 3], &numbers(3000));
    let field = write(&scratch, "field.npy", &[9, 10, 12], &numbers(1080));
    for (name, words) in [
        ("order.npy", format!("sort {points}")),
        ("nearest.npz", format!("knn {points} -k 5 --box 16")),
        ("groups.npz", format!("fof {points} --linking-length 0.5 --min-members 3 --box 16")),
        ("spectrum.csv", format!("power {points} --box 16 --mesh 16 --interlace")),
        ("modes.npy", format!("fft {field} --real")),
        ("flow", "shallow-water --cells 24x18 --steps 6 --quiet".into()),
        ("fit", "infer --demo --samples 1 --iterations 1 --sample-groups 1 --quiet".into()),
    ] {
        let one = scratch.join(&format!("one-{name}"));
        let call = |out: &Path| {
            let words = words.split(' ').chain(["-o", out.to_str().unwrap()]);
            Call::new(&words.collect::<Vec<_>>())
        };
        run(call(&one));
        let expected = results(&one);
        assert!(!expected.is_empty(), "{name}");
        // Processes for one of them, which has the most exchanges.
        let ranks = if name == "modes.npy" && has_mpi() { Ranks::Mpi(3) } else { Ranks::Threads(3) };
        let other = scratch.join(&format!("other-{name}"));
        run(call(&other).words(&["--shares", "3,1,2"]).on(ranks));
        assert!(results(&other) == expected, "{name}");
    }
}

#[test]
fn runs_resume_with_other_shares_to_the_same_bytes() {
    let scratch = Scratch::new();
    let words = "--particles 8 --mesh 16 --box 64 --steps 3 --snapshots 0.5 --light-cone 10,10,10 \
                 --light-cone-distance 100 --quiet";
    let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    let [one, other] = ["one", "other"].map(|name| scratch.join(name));
    Call::simulate(&one, &words).succeeds();
    let expected = results(&one);
    let pencils = [&words[..], &["--grid", "2x2", "--shares", "4,4,1,1"]].concat();
    Call::simulate(&other, &pencils).on(Ranks::Threads(4)).succeeds();
    assert!(results(&other) == expected);
    let run: Value = serde_json::from_slice(&fs::read(other.join("run.json")).unwrap()).unwrap();
    assert_eq!((run["shares"].as_str(), run["grid"].as_str()), (Some("4,4,1,1"), Some("2x2")));
    // Leaves the directory as a run that was killed after its snapshot does.
    for name in ["run.json", "positions.npy", "velocities.npy"] {
        fs::remove_file(other.join(name)).unwrap();
    }
    let slabs = [&words[..], &["--resume"]].concat();
    Call::simulate(&other, &slabs).env("MESHLOOM_SHARES", "1,2,5").on(Ranks::Threads(3)).succeeds();
    assert!(results(&other) == expected);
}

/// Threads of one device are equal, however long each of them takes.
#[test]
fn measured_shares_are_printed_and_equal_for_one_device() {
    let scratch = Scratch::new();
    let field = write(&scratch, "field.npy", &[9, 10, 12], &numbers(1080));
    let out = scratch.word("modes.npy");
    let outcome = Call::new(&["fft", &field, "-o", &out, "--shares", "measured", "--json"]).on(Ranks::Threads(2)).run();
    assert!(outcome.status.success() && outcome.stderr.contains("measured shares: 1,1"), "{outcome:#?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["shares"], Value::Null);
}

#[test]
fn shares_that_do_not_fit_the_ranks_are_refused() {
    let scratch = Scratch::new();
    let field = write(&scratch, "field.npy", &[4, 4, 4], &numbers(64));
    let out = scratch.word("modes.npy");
    let call = |shares: &str| Call::new(&["fft", &field, "-o", &out, &format!("--shares={shares}")]);
    let estimate = |words: &str| {
        let words = format!("simulate --estimate --particles 64 --box 100 {words}");
        Call::new(&words.split(' ').collect::<Vec<_>>())
    };
    scratch.all_fail([
        (call("3,1,1").on(Ranks::Threads(2)), 2, "expected 2 shares, got 3"),
        (call("3,0").on(Ranks::Threads(2)), 2, "share of rank 1"),
        (call("-1,2").on(Ranks::Threads(2)), 2, "share of rank 0"),
        (call("1,inf").on(Ranks::Threads(2)), 2, "share of rank 1"),
        (call("fast"), 2, "invalid shares `fast`"),
        (call("1,1").env("MESHLOOM_SHARES", "2"), 2, "expected 1 shares, got 2"),
        (Call::new(&["fft", &field, "-o", &out]).env("MESHLOOM_SHARES", "4,x"), 2, "MESHLOOM_SHARES: invalid shares"),
        (estimate("--ranks 2 --shares measured"), 2, "no devices to measure"),
        (estimate("--ranks 2 --shares 1,2,3"), 2, "expected 2 shares, got 3"),
    ]);
    let memory = |words: &str| {
        let outcome = estimate(&format!("--json {words}")).succeeds();
        let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
        report["memory"]["particles"].as_u64().unwrap()
    };
    // 24 bytes a particle of the largest rank: 16 planes of 64 with equal shares, 32 with half.
    let planes = |count: u64| 24 * count * 64 * 64;
    assert_eq!(memory("--ranks 4 --grid 4x1"), planes(16));
    assert_eq!(memory("--ranks 4 --grid 4x1 --shares 2,4,1,1"), planes(32));
}
