//! `meshloom reconstruct`: initial conditions from a noisy density, the same files on any number of ranks, and what cannot be.
#![cfg(all(feature = "cli", unix))]

#[path = "shared/cli.rs"]
mod cli;

use std::fs;
use std::path::Path;

use cli::{Call, Ranks, Scratch, files, has_mpi};
use meshloom::cosmology::white_noise;
use meshloom::io::{NpyFile, NpyWriter, token};
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

/// The density of a run from `noise`, by `simulate`.
fn evolved(scratch: &Scratch, noise: &str, name: &str) -> Vec<f32> {
    let out = scratch.word(name);
    let words =
        format!("simulate --particles 8 --mesh 8 {RUN} --white-noise {noise} --save-density --linking-parameter 0");
    let words = words.split(' ').chain(["--out", &out, "--quiet"]).collect::<Vec<_>>();
    Call::new(&words).succeeds();
    read(&scratch.join(name).join("density.npy"), &[8; 3])
}

fn reconstruct(data: &str, out: &str, words: &str) -> Call {
    let fixed = format!("reconstruct --density {data} -o {out} {RUN} --quiet");
    Call::new(&fixed.split(' ').chain(words.split_whitespace()).collect::<Vec<_>>())
}

fn report(directory: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(directory.join("run.json")).unwrap()).unwrap()
}

/// A density of 8^3 cells of 10 Mpc/h whose noise is as strong as its structure: the evolved result and its samples meet the data within noise, and
/// the initial conditions are found as far as a Wiener filter would.
#[test]
fn initial_conditions_are_found_alike_on_any_ranks() {
    let scratch = Scratch::new();
    let truth = write(&scratch, "truth.npy", &[8; 3], &noise(512, 3));
    let clean = evolved(&scratch, &truth, "truth");
    let sigma = 0.5;
    let data: Vec<f32> = clean.iter().zip(noise(512, 4)).map(|(d, n)| d + sigma * n).collect();
    let data = write(&scratch, "data.npy", &[8; 3], &data);
    let mut ways = vec![Ranks::Threads(1), Ranks::Threads(2), Ranks::Threads(4)];
    if has_mpi() {
        ways.push(Ranks::Mpi(2));
    }
    let words = format!("--noise {sigma} --samples 1 --iterations 1 --truth {truth}");
    let mut first = Vec::new();
    for (number, &ranks) in ways.iter().enumerate() {
        let out = scratch.join(&format!("out{number}"));
        reconstruct(&data, out.to_str().unwrap(), &words).on(ranks).succeeds();
        let found: Vec<_> = files(&out).iter().map(|path| path.strip_prefix(&out).unwrap().to_owned()).collect();
        let found: Vec<_> = found.into_iter().filter(|name| name != Path::new("run.json")).collect();
        let bytes: Vec<_> = found.iter().map(|name| (name.clone(), fs::read(out.join(name)).unwrap())).collect();
        if number == 0 {
            assert_eq!(found.len(), 9, "{found:?}");
            first = bytes;
        } else {
            assert!(bytes == first, "{ranks:?}");
        }
    }
    let out = scratch.join("out0");
    let report = report(&out);
    let number =
        |path: &str| report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {report}"));
    assert!(number("/agreement/white_noise") > 0.8 && number("/agreement/density") > 0.9, "{report}");
    // Of samples 1 is to be expected, of the 512 cells within 4 standard deviations of 6 %.
    assert!((number("/chi_squared/of_samples") - 1.0).abs() < 0.25, "{report}");
    assert!(number("/chi_squared/of_white_noise") < 1.1);

    let [samples, std] = [("samples.npy", vec![2, 8, 8, 8]), ("white_noise_std.npy", vec![8; 3])]
        .map(|(name, shape)| read(&out.join(name), &shape));
    let mean = read(&out.join("white_noise.npy"), &[8; 3]);
    for i in 0..512 {
        // Two mirrored samples: the mean between them, and sqrt(2) of their distance from it.
        let [a, b] = [samples[i], samples[512 + i]];
        assert!(((a + b) / 2.0 - mean[i]).abs() < 1e-5 && ((a - b).abs() / 2f32.sqrt() - std[i]).abs() < 1e-4);
    }
    // The noise goes back into a run, whose density is the one beside it.
    let again = evolved(&scratch, out.join("white_noise.npy").to_str().unwrap(), "again");
    assert_eq!(again, read(&out.join("density.npy"), &[8; 3]));

    // Without samples their files go.
    reconstruct(&data, out.to_str().unwrap(), &format!("--noise {sigma} --map-only")).succeeds();
    let names: Vec<_> = files(&out).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(
        names,
        ["density.npy", "density.png", "iterations.csv", "power_spectrum.csv", "run.json", "white_noise.npy"]
    );
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
    let out = scratch.word("out");
    let call = |data: &str, words: &str| reconstruct(data, &out, words);
    scratch.all_fail([
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
}
