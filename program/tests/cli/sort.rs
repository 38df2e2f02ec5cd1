//! `meshloom sort`: the permutation of a stable sort by Morton keys, on any number of ranks, and
//! its errors.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::cli::{Call, Ranks, Scratch, files, has_mpi};
use meshloom::io::{Dtype, NpyElement, NpyFile, NpyWriter, token};

/// Numbers in `-0.5..0.5`.
fn uniform(seed: u64, count: usize) -> Vec<f64> {
    let hash = |n: u64| {
        let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    (0..count as u64).map(|i| (hash(hash(i ^ seed << 40)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5).collect()
}

fn write<T: NpyElement>(scratch: &Scratch, name: &str, shape: &[u64], values: &[T]) -> String {
    let file = NpyWriter::create(scratch.join(name), shape, &token()).unwrap();
    file.write(0, values).unwrap();
    file.finish().unwrap();
    scratch.word(name)
}

fn rows<T: NpyElement>(scratch: &Scratch, name: &str, dims: usize, values: &[T]) -> String {
    write(scratch, name, &[(values.len() / dims) as u64, dims as u64], values)
}

/// Returns the order by interleaved cells, one bit after the other; sides of 0 are open axes.
fn golden(points: &[f32], sides: &[f32]) -> Vec<i64> {
    let (dims, bits) = (sides.len(), if sides.len() == 3 { 21 } else { 31 });
    let mut keys = vec![0u64; points.len() / dims];
    for (axis, &side) in sides.iter().enumerate() {
        let along: Vec<f32> = points.iter().skip(axis).step_by(dims).copied().collect();
        let low = if side > 0.0 { 0.0 } else { along.iter().copied().fold(f32::INFINITY, f32::min) };
        let high = along.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let span = if side > 0.0 { side } else { high - low };
        for (key, &x) in keys.iter_mut().zip(&along) {
            let x = if side > 0.0 { x.rem_euclid(side) % side } else { x };
            let at = f64::from(x - low) * f64::from(1u32 << bits) / f64::from(span);
            let cell = if span > 0.0 { (at.floor() as u64).min((1 << bits) - 1) } else { 0 };
            (0..bits).for_each(|bit| *key |= (cell >> bit & 1) << (bit * dims + axis));
        }
    }
    let mut order: Vec<i64> = (0..keys.len() as i64).collect();
    order.sort_by_key(|&i| keys[i as usize]);
    order
}

fn call(input: &str, output: &str, words: &str) -> Call {
    Call::new(&["sort", input, "-o", output].into_iter().chain(words.split_whitespace()).collect::<Vec<_>>())
}

fn read(path: &Path) -> Vec<i64> {
    let file = NpyFile::open(path).unwrap();
    assert_eq!((file.dtype(), file.shape().len()), (Dtype::I64, 1));
    file.read_i64(0..file.len()).unwrap()
}

#[test]
fn the_order_is_that_of_a_stable_sort_on_any_ranks() {
    let scratch = Scratch::new();
    let output = scratch.join("out.npy");
    let mut ways = vec![Ranks::Threads(1), Ranks::Threads(3), Ranks::Threads(8)];
    if has_mpi() {
        ways.push(Ranks::Mpi(2));
    }
    // Some lie outside of the boxes, by less than a side; quarters make equal ones.
    let points: Vec<f32> = uniform(1, 3000).iter().map(|u| (u * 1.2 + 0.2) as f32).collect();
    let quarters: Vec<f32> = uniform(2, 600).iter().map(|u| ((u + 0.5) * 4.0).floor() as f32 / 4.0).collect();
    for (points, sides, words) in [
        (&points, &[0.0f32; 3][..], ""),
        (&points, &[0.5, 0.0, 0.75], "--box 0.5,open,0.75"),
        (&points, &[0.0; 2], ""),
        (&quarters, &[1.0; 2], "--box 1"),
        (&quarters, &[1.0, 1.0, 0.0], "--box 1,1,0"),
    ] {
        let want = golden(points, sides);
        let input = rows(&scratch, "in.npy", sides.len(), points);
        for &ranks in &ways {
            call(&input, output.to_str().unwrap(), words).on(ranks).succeeds();
            assert_eq!(read(&output), want, "{words} on {ranks:?}");
        }
    }
}

#[test]
fn few_points_and_none() {
    let scratch = Scratch::new();
    let output = scratch.join("out.npy");
    for count in [0, 1, 2] {
        let points: Vec<f32> = (0..3 * count).map(|n| -(n as f32)).collect();
        let input = rows(&scratch, "in.npy", 3, &points);
        let input = if count == 0 { write::<f32>(&scratch, "in.npy", &[0, 3], &[]) } else { input };
        for ranks in [1, 3] {
            call(&input, output.to_str().unwrap(), "").on(Ranks::Threads(ranks)).succeeds();
            assert_eq!(read(&output), (0..count).rev().collect::<Vec<i64>>(), "{count} points, {ranks} ranks");
        }
    }
}

#[test]
fn double_precision_is_wrapped_before_it_is_rounded() {
    let scratch = Scratch::new();
    let (output, far) = (scratch.join("out.npy"), 1e12);
    let places = [0.75, 0.25, 0.5, 0.0];
    let points: Vec<f64> = places.iter().flat_map(|x| [far + x, 0.5]).collect();
    let input = rows(&scratch, "in.npy", 2, &points);
    let outcome = call(&input, output.to_str().unwrap(), "--box 1").run();
    assert!(outcome.status.success() && outcome.stderr.lines().count() == 1, "{outcome:#?}");
    assert!(outcome.stderr.contains("4 of 4 points lie more than one side outside"), "{outcome:#?}");
    assert_eq!(read(&output), [3, 1, 2, 0]);
    // In an open box f32 cannot tell them apart, which is said, and done nevertheless.
    let outcome = call(&input, output.to_str().unwrap(), "--ranks 2").run();
    assert!(outcome.status.success() && outcome.stderr.contains("warning"), "{outcome:#?}");
    assert!(outcome.stderr.contains("subtract a common origin from the points in f64"), "{outcome:#?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:#?}");
    assert_eq!(read(&output), [0, 1, 2, 3]);
    // Rounding that blurs nothing is not worth a word.
    let input = rows(&scratch, "in.npy", 2, &uniform(3, 200));
    call(&input, output.to_str().unwrap(), "--ranks 2").succeeds();
}

/// An output that is there stays what it was to others: its permissions are those of the new one,
/// and it must be one that may be written, which is said before the work.
#[test]
fn the_permissions_of_an_older_output_stay() {
    let scratch = Scratch::new();
    let input = rows(&scratch, "in.npy", 3, &uniform(5, 300));
    let output = scratch.file("out.npy", "old");
    let allow = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut ways = vec![Ranks::Threads(1), Ranks::Threads(3)];
    if has_mpi() {
        ways.push(Ranks::Mpi(2));
    }
    for ranks in ways {
        allow(Path::new(&output), 0o600);
        call(&input, &output, "").on(ranks).succeeds();
        assert_eq!(fs::metadata(&output).unwrap().permissions().mode() & 0o7777, 0o600, "{ranks:?}");
    }
    let before = fs::read(&output).unwrap();
    allow(Path::new(&output), 0o444);
    allow(scratch.path(), 0o777);
    let mut sort = call(&input, &output, "");
    // SAFETY: a call without arguments that cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        if Command::new("setpriv").arg("--version").output().is_err() {
            println!("skipped: to root all files may be written, and there is no `setpriv`");
            return;
        }
        sort = sort.before("exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"");
    }
    sort.run().is_error("a file that may not be written", 1, &["out.npy: is there already", "chmod u+w"]);
    assert!(fs::read(&output).unwrap() == before && files(scratch.path()).len() == 2);
}

#[test]
fn a_run_describes_itself() {
    let scratch = Scratch::new();
    let points: Vec<f32> = uniform(4, 300).iter().map(|&u| u as f32).collect();
    let (input, output) = (rows(&scratch, "in.npy", 3, &points), scratch.word("out.npy"));
    assert!(call(&input, &output, "").succeeds().stdout.is_empty());
    let text = call(&input, &output, "--json --box 2,open,2 --ranks 2 --quiet").succeeds().stdout;
    let report: serde_json::Value = serde_json::from_str(&text).expect("one JSON object and nothing else");
    let want = serde_json::json!({
        "command": "sort",
        "input": { "path": input, "shape": [100, 3], "dtype": "float32" },
        "output": { "path": output, "shape": [100], "dtype": "int64" },
        "box": [2.0, null, 2.0],
        "points": 100,
        "ranks": 2,
    });
    for (key, want) in want.as_object().unwrap() {
        assert_eq!(&report[key], want, "{key}: {report:#}");
    }
    for phase in ["read", "sort", "write", "total"] {
        assert!(report["seconds"][phase].is_f64(), "{phase}: {report:#}");
    }
    assert_eq!(report["host_seconds"].is_f64(), cfg!(target_os = "linux"), "{report:#}");
    for bytes in ["device", "between_ranks"] {
        assert!(report["bytes"][bytes].as_u64().is_some_and(|n| n > 0), "{bytes}: {report:#}");
    }
}

#[test]
fn what_cannot_be_done_says_why_and_leaves_nothing() {
    let bad = Scratch::new();
    let with = |at: usize, value: f32| {
        let mut points = vec![0.5f32; 3 * 20];
        points[at] = value;
        points
    };
    let good = rows(&bad, "good.npy", 3, &with(0, 0.0));
    let nan = rows(&bad, "nan.npy", 3, &with(3 * 17 + 1, f32::NAN));
    let infinite = rows(&bad, "infinite.npy", 3, &with(3 * 5, f32::NEG_INFINITY));
    let large = rows(&bad, "large.npy", 2, &[0.0, 1.0, 0.5, -1e300]);
    let far = rows(&bad, "far.npy", 2, &[0.0f32, 3e38, 0.5, -3e38]);
    let wide = rows(&bad, "wide.npy", 4, &[0.0f32; 8]);
    let flat = write(&bad, "flat.npy", &[6], &[0.0f32; 6]);
    let whole = rows(&bad, "whole.npy", 3, &[1i64; 6]);
    let text = bad.file("text.npy", "hello");
    let scratch = Scratch::new();
    let output = scratch.file("out.npy", "as it was");
    let mpi = has_mpi();
    for (name, words, code, says) in [
        ("NaN", nan.clone(), 1, &["nan.npy", "(17, 1)", "NaN"][..]),
        ("infinity", format!("{infinite} --box 1"), 1, &["infinite.npy", "(5, 0)", "-inf"]),
        ("beyond f32", large, 1, &["large.npy", "(1, 1)", "-1e300", "f32"]),
        ("an extent beyond f32", far, 1, &["axis 1", "-3e38", "3e38", "units"]),
        ("four axes", wide, 1, &["wide.npy", "(2, 4)", "(N, 3) or (N, 2)"]),
        ("one axis", flat, 1, &["flat.npy", "(6,)", "(N, 3) or (N, 2)"]),
        ("integers", whole, 1, &["whole.npy", "int64", "float32"]),
        ("no array", text, 1, &["text.npy", "not a NumPy .npy file"]),
        ("no file", "no-such.npy".into(), 1, &["no-such.npy: no such file"]),
        ("two sides", format!("{good} --box 1,2"), 2, &["--box has 2 sides", "3 axes"]),
        ("negative side", format!("{good} --box -1"), 2, &["-1", "--box"]),
        ("no side", format!("{good} --box 1,,1"), 2, &["--box"]),
        ("side of NaN", format!("{good} --box nan"), 2, &["--box"]),
        ("grid", format!("{good} --grid 1x1"), 2, &["--grid"]),
        ("standard input", "-".into(), 2, &["standard input"]),
        ("no directory", format!("{good} -o no-such/out.npy"), 1, &["no-such/out.npy", "mkdir"]),
    ] {
        let mut ways = vec![Ranks::Threads(1), Ranks::Threads(3)];
        if mpi && ["NaN", "two sides"].contains(&name) {
            ways.push(Ranks::Mpi(2));
        }
        for ranks in ways {
            let words: Vec<&str> = words.split_whitespace().collect();
            let mut call = Call::new(&[&["sort"], &words[..]].concat()).on(ranks);
            if !words.contains(&"-o") {
                call.words.extend(["-o".into(), output.clone()]);
            }
            call.run().is_error(name, code, says);
            assert_eq!(fs::read(&output).unwrap(), b"as it was", "{name}");
            assert_eq!(files(scratch.path()).len(), 1, "{name}");
        }
    }
    call(&good, "-", "").run().is_error("standard output", 2, &["standard output"]);
}
