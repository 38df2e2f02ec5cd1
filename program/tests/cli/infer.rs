//! `meshloom infer`: posteriors that tell the truth, the same files for every number of ranks and
//! groups, and errors.
#![cfg(unix)]

use std::fs;
use std::path::Path;

use super::cli::{Call, Ranks, Scratch, files, has_mpi};
use meshloom::io::{NpyElement, NpyFile, NpyWriter, token};
use serde_json::Value;

fn write<T: NpyElement>(scratch: &Scratch, name: &str, shape: &[u64], values: &[T]) -> String {
    let file = NpyWriter::create(scratch.join(name), shape, &token()).unwrap();
    file.write(0, values).unwrap();
    file.finish().unwrap();
    scratch.word(name)
}

/// Returns an array of `bool` as NumPy writes it.
fn booleans(scratch: &Scratch, name: &str, shape: &str, values: &[u8]) -> String {
    let header = format!("{{'descr': '|b1', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{header:<117}\n");
    let head = [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes()].concat();
    scratch.file(name, [&head[..], header.as_bytes(), values].concat())
}

fn read(path: &Path, shape: &[u64]) -> Vec<f64> {
    let file = NpyFile::open(path).unwrap();
    assert_eq!(file.shape(), shape, "{}", path.display());
    file.read_f64(0..file.len()).unwrap()
}

/// Returns a number between 0 and 1.
fn uniform(i: u64, seed: u64) -> f64 {
    let hash = |n: u64| {
        let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    (hash(hash(i ^ seed << 40)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Numbers of variance 1 around 0: sums of twelve uniform ones.
fn normal(count: usize, seed: u64) -> Vec<f64> {
    (0..count as u64).map(|i| (0..12).map(|n| uniform(12 * i + n, seed) - 0.5).sum()).collect()
}

fn call(data: &str, out: &str, words: &str) -> Call {
    let words = ["infer", "--data", data, "-o", out].into_iter().chain(words.split_whitespace());
    Call::new(&words.collect::<Vec<_>>())
}

/// Runs a fit of few iterations, which may say that it has not come to the data yet, and nothing
/// else.
fn few_iterations(call: &Call) {
    let outcome = call.run();
    let is_expected = |line: &str| line.starts_with("meshloom: warning: the reduced chi-squared of the data is");
    assert!(outcome.status.success() && outcome.stderr.lines().all(is_expected), "{outcome:#?}");
}

fn report(out: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(out.join("run.json")).unwrap()).unwrap()
}

/// Returns the bytes of all files that do not tell times.
fn bytes(out: &Path) -> Vec<(String, Vec<u8>)> {
    let names = ["mean.npy", "std.npy", "samples.npy", "power_spectrum.csv", "parameters.csv", "picture.png"];
    let mut all: Vec<(String, Vec<u8>)> =
        names.map(|name| (name.to_string(), fs::read(out.join(name)).unwrap())).into();
    let iterations = fs::read_to_string(out.join("iterations.csv")).unwrap();
    let without_seconds = |line: &str| {
        line.split(',').enumerate().filter(|(at, _)| *at != 5).fold(String::new(), |all, (_, one)| all + one + ",")
    };
    let without_seconds: String = iterations.lines().map(|line| without_seconds(line) + "\n").collect();
    all.push(("iterations.csv".into(), without_seconds.into_bytes()));
    all
}

/// Counts of 12 x 10 cells of a smooth rate with an exposure and a hole: rate, and the words of the
/// call.
fn counts(scratch: &Scratch) -> (Vec<f64>, [String; 3]) {
    let noise = normal(120, 5);
    let cell = |n: usize| [(n / 10) as f64 / 12.0, (n % 10) as f64 / 10.0];
    let rate: Vec<f64> = (0..120).map(cell).map(|[x, y]| (2.5 + (4.0 * x).sin() + (3.0 * y).cos()).exp()).collect();
    let exposure: Vec<f64> = (0..120).map(cell).map(|[x, _]| 0.5 + x).collect();
    let mask: Vec<u8> = (0..120).map(|n| u8::from(!(40..44).contains(&n))).collect();
    let count = |n: usize| {
        let expected: f64 = rate[n] * exposure[n];
        (expected + expected.sqrt() * noise[n]).round().max(0.0)
    };
    // What is masked may be anything, also beyond f32.
    let hidden = |n: usize| if n == 40 { 1e300 } else { f64::NAN };
    let data: Vec<f64> = (0..120).map(|n| if mask[n] == 1 { count(n) } else { hidden(n) }).collect();
    let words = [
        write(scratch, "counts.npy", &[12, 10], &data),
        write(scratch, "exposure.npy", &[12, 10], &exposure),
        booleans(scratch, "mask.npy", "(12, 10)", &mask),
    ];
    (rate, words)
}

#[test]
fn files_are_the_same_for_every_number_of_ranks_and_groups() {
    let scratch = Scratch::new();
    let (rate, [data, exposure, mask]) = counts(&scratch);
    let words = format!(
        "--likelihood poisson --exposure {exposure} --mask {mask} --samples 2 --iterations 1 --set offset_mean=2.5 --set flexibility=none --set slope=-4,0.5"
    );
    // The last has as many groups as have the ranks of the process grid.
    let mut ways = vec![
        (Ranks::Threads(1), "--sample-groups 1"),
        (Ranks::Threads(3), "--sample-groups 1 --grid 1x3"),
        (Ranks::Threads(4), "--grid 1x2"),
    ];
    if has_mpi() {
        ways.push((Ranks::Mpi(2), "--sample-groups 2"));
    }
    let mut first = None;
    for (number, (ranks, groups)) in ways.into_iter().enumerate() {
        let out = scratch.word(&format!("out{number}"));
        few_iterations(&call(&data, &out, &format!("{words} {groups}")).on(ranks));
        let found = bytes(&scratch.join(&format!("out{number}")));
        let wanted = first.get_or_insert(found.clone());
        for (found, wanted) in found.iter().zip(wanted.iter()) {
            assert!(found == wanted, "{ranks:?}, {groups}: {} differs", found.0);
        }
    }
    let out = scratch.join("out0");
    let (mean, std) = (read(&out.join("mean.npy"), &[12, 10]), read(&out.join("std.npy"), &[12, 10]));
    let samples = read(&out.join("samples.npy"), &[4, 12, 10]);
    let mut away = 0.0;
    for cell in 0..120 {
        let own: Vec<f64> = (0..4).map(|sample| samples[120 * sample + cell]).collect();
        let average = own.iter().sum::<f64>() / 4.0;
        let spread = (own.iter().map(|s| (s - average).powi(2)).sum::<f64>() / 3.0).sqrt();
        assert!((mean[cell] - average).abs() < 1e-5 * average && (std[cell] - spread).abs() < 1e-4 * average);
        away += (mean[cell] / rate[cell]).ln().powi(2) / 120.0;
    }
    // Signals are rates for an exposure of 1; where nothing was seen its neighbors tell. Counts are
    // of 10 or so.
    assert!(away.sqrt() < 0.3, "{}", away.sqrt());
    let report = report(&out);
    assert_eq!(report["data_that_count"], 116);
    assert_eq!(report["field_shape"], serde_json::json!([1, 18, 16]));
    assert_eq!(report["parameters"]["model"], "lognormal");
    let head = |name: &str| fs::read_to_string(out.join(name)).unwrap().lines().next().unwrap().to_string();
    let bytes = |name: &str| report["memory"][name].as_u64().unwrap();
    assert_eq!((bytes("samples_of_a_group"), bytes("samples_that_keep_derivatives")), (4, 4));
    assert!(bytes("iteration") > 4 * (2 * bytes("latent_vector") + bytes("derivatives_of_a_sample")), "{report:#}");
    // On one rank nothing is sent, and a metric is two transforms of a padded image at least.
    let moved = |name: &str| report["bytes"][name].as_u64().unwrap();
    assert_eq!((moved("between_ranks"), moved("messages")), (0, 0));
    assert!(moved("device_memory_of_a_metric") > 2 * 24 * 18 * 16, "{report:#}");
    assert_eq!(report["command"], "infer");
    assert_eq!(head("power_spectrum.csv"), "k,mean,low,high");
    assert_eq!(
        head("iterations.csv"),
        "iteration,energy,reduced_chi_squared,cg_steps,newton_steps,seconds,sample_cg_steps,unconverged_samples,gave_up,\
         sample_error_ratio,failed_samples,limited_samples"
    );
    assert!(out.join("state").is_dir());
}

#[test]
fn a_line_with_noise_is_smoothed_and_outliers_are_forgiven() {
    let scratch = Scratch::new();
    let truth: Vec<f64> = (0..48).map(|n| (n as f64 / 48.0 * 6.0).sin()).collect();
    let noise = normal(48, 9);
    let mut data: Vec<f64> = truth.iter().zip(&noise).map(|(t, n)| t + 0.4 * n).collect();
    let away = |found: &[f64]| -> f64 { found.iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() };
    let words = "--samples 1 --iterations 3 --mode geovi --noise 0.4";
    let path = write(&scratch, "line.npy", &[48], &data);
    call(&path, &scratch.word("line"), words).succeeds();
    let mean = read(&scratch.join("line/mean.npy"), &[48]);
    assert!(away(&mean) < 0.6 * away(&data), "{} {}", away(&mean), away(&data));
    let chi_squared = report(&scratch.join("line"))["reduced_chi_squared"].as_f64().unwrap();
    assert!((0.3..2.0).contains(&chi_squared), "{chi_squared}");
    data[20] += 30.0;
    let sigma = vec![0.4f32; 48];
    let (path, sigma) = (write(&scratch, "wild.npy", &[48], &data), write(&scratch, "sigma.npy", &[48], &sigma));
    let words = format!("--samples 0 --iterations 1 --likelihood student-t --noise {sigma} --dof 2 --periodic");
    call(&path, &scratch.word("wild"), &words).succeeds();
    let mean = read(&scratch.join("wild/mean.npy"), &[48]);
    assert!((mean[20] - truth[20]).abs() < 1.0, "{}", mean[20]);
    assert!(!scratch.join("wild/std.npy").exists() && !scratch.join("wild/samples.npy").exists());
    // Nor is it known of spectrum and hyper-parameters how sure they are.
    for (name, column) in [("power_spectrum.csv", 2), ("power_spectrum.csv", 3), ("parameters.csv", 2)] {
        assert!(column_of(&scratch.join("wild").join(name), column).all(|known| known.is_nan()), "{name} {column}");
    }
    assert!(column_of(&scratch.join("wild/power_spectrum.csv"), 1).all(|power| power > 0.0));
    // Power is a length for each axis of the data: cells twice as long have twice the power.
    let power = ["1", "2"].map(|side| {
        let words = format!("--samples 0 --iterations 1 --noise {sigma} --periodic --distances {side}");
        call(&path, &scratch.word("long"), &words).succeeds();
        column_of(&scratch.join("long/power_spectrum.csv"), 1).collect::<Vec<f64>>()
    });
    for (one, two) in power[0].iter().zip(&power[1]) {
        assert!((two / one - 2.0).abs() < 1e-3, "{one} {two}");
    }
    // With samples the middle is the geometric mean of the band's ends, which it lies between
    // however wide the band is.
    let [middle, low, high] = [1, 2, 3].map(|number| column_of(&scratch.join("line/power_spectrum.csv"), number));
    for ((middle, low), high) in middle.zip(low).zip(high) {
        assert!(low < middle && middle < high, "{low} {middle} {high}");
        assert!((middle.ln() - 0.5 * (low.ln() + high.ln())).abs() < 1e-6, "{low} {middle} {high}");
    }
    assert_eq!(report(&scratch.join("wild"))["field_shape"], serde_json::json!([1, 1, 48]));
}

#[test]
fn draws_of_chains_are_results_in_place_of_samples() {
    let scratch = Scratch::new();
    let truth: Vec<f64> = (0..48).map(|n| (n as f64 / 48.0 * 6.0).sin()).collect();
    let data: Vec<f64> = truth.iter().zip(normal(48, 9)).map(|(t, n)| t + 0.4 * n).collect();
    let data = write(&scratch, "line.npy", &[48], &data);
    let words = "--samples 1 --iterations 3 --noise 0.4 --set flexibility=none --sampler mclmc --sampler-steps 4 --warmup 60 --draws 40 \
                 --thinning 2 --chains 2";
    for (ranks, out) in [(Ranks::Threads(1), "one"), (Ranks::Threads(2), "two")] {
        let outcome = call(&data, &scratch.word(out), words).on(ranks).run();
        assert!(outcome.status.success(), "{outcome:#?}");
    }
    let names = ["mean.npy", "std.npy", "samples.npy", "power_spectrum.csv", "parameters.csv"];
    let bytes = |out: &str| names.map(|name| fs::read(scratch.join(out).join(name)).unwrap());
    assert!(bytes("one") == bytes("two"), "draws differ between one rank and two groups");
    // A limit stops the fit after an iteration or the chains after a draw, whichever it meets, and
    // a signal the chains.
    let stopped = |more: &str| call(&data, &scratch.word("stopped"), &format!("{words} --resume {more}"));
    let outcome = stopped("--time-limit 1").run();
    outcome.is_error("limit", 143, &["stopped by the time limit after", "--resume goes on there"]);
    #[cfg(unix)]
    {
        let mut run = stopped("").start();
        run.until("chains", |_| scratch.join("stopped/state/chains.npz").exists());
        crate::cli::signal(run.pid(), "TERM");
        let outcome = run.wait(std::time::Duration::from_secs(60));
        if outcome.status.code() == Some(143) && !outcome.stderr.contains("interrupted") {
            outcome.is_error("signal", 143, &["stopped by a signal after draw", "of 100", "--resume goes on there"]);
            println!("{}", outcome.stderr);
        }
    }
    assert!(stopped("").run().status.success() && bytes("one") == bytes("stopped"), "draws differ after stops");
    let [mean, std] = ["mean.npy", "std.npy"].map(|name| read(&scratch.join("one").join(name), &[48]));
    let draws = read(&scratch.join("one/samples.npy"), &[40, 48]);
    for cell in 0..48 {
        let own: f64 = (0..40).map(|draw| draws[48 * draw + cell]).sum::<f64>() / 40.0;
        assert!((own - mean[cell]).abs() < 1e-4, "{own} {}", mean[cell]);
    }
    // Truths lie within a few deviations, of which chance alone gives 1 in the mean.
    let away: f64 = (0..48).map(|n| ((mean[n] - truth[n]) / std[n]).powi(2)).sum::<f64>() / 48.0;
    assert!((0.1..4.0).contains(&away), "{away}");
    // The fit and the chains are done: nothing changes.
    let again = call(&data, &scratch.word("two"), words).words(&["--resume"]).run();
    assert!(again.status.success() && bytes("one") == bytes("two"), "{again:#?}");
    let other = call(&data, &scratch.word("two"), &words.replace("--warmup 60", "--warmup 50")).words(&["--resume"]);
    other.run().is_error("another warm-up", 1, &["chains.npz", "another warm-up"]);
    let chains = &report(&scratch.join("two"))["chains"];
    assert_eq!((&chains["chains"], &chains["kept"], &chains["sampler"]), (&2.into(), &20.into(), &"mclmc".into()));
    assert_eq!((&chains["gradients_of_kept"], &chains["divergent"]), (&160.into(), &0.into()));
    assert!(chains["energy"]["effective_sample_size"].as_f64().unwrap() > 1.0, "{chains:#}");
    assert!(report(&scratch.join("two"))["seconds"]["chains"].as_f64().unwrap() > 0.0);
}

/// Returns a column of numbers of a table, without its name.
fn column_of(path: &Path, column: usize) -> impl Iterator<Item = f64> + use<> {
    let text = fs::read_to_string(path).unwrap();
    let values: Vec<f64> =
        text.lines().skip(1).map(|line| line.split(',').nth(column).unwrap().parse().unwrap()).collect();
    values.into_iter()
}

#[test]
fn samples_that_have_not_converged_are_told_of() {
    let scratch = Scratch::new();
    let data = write(&scratch, "line.npy", &[48], &normal(48, 9));
    let words = "--noise 0.1 --samples 1 --iterations 1 --set flexibility=none --sample-steps 2";
    let outcome = call(&data, &scratch.word("cut"), words).run();
    assert!(outcome.status.success() && outcome.stderr.lines().count() <= 2, "{outcome:#?}");
    let wanted = "meshloom: warning: conjugate gradients have not converged after 2 steps for 2 of the 2 samples";
    assert!(outcome.stderr.starts_with(wanted) && outcome.stderr.contains("--sample-steps"), "{outcome:#?}");
    let report = report(&scratch.join("cut"));
    assert_eq!((&report["sample_cg_steps"], &report["unconverged_samples"]), (&2.into(), &2.into()));
    let iterations = fs::read_to_string(scratch.join("cut/iterations.csv")).unwrap();
    let ratio = report["sample_error_ratio"].as_f64().unwrap();
    assert!(ratio > 1.0 && outcome.stderr.contains(&format!("up to {ratio:.1e} times the target")), "{outcome:#?}");
    let row = iterations.lines().nth(1).unwrap();
    assert!(row.contains(",2,2,0,") && row.ends_with(",0,0"), "{iterations}");
    assert_eq!(column_of(&scratch.join("cut/iterations.csv"), 9).next().unwrap(), ratio);
}

#[test]
fn a_field_may_be_expected_where_the_data_are() {
    let scratch = Scratch::new();
    let (wave, noise) = ((0..24).map(|n| (n as f64 / 4.0).sin()), normal(24, 3));
    let counts = wave.clone().zip(&noise).map(|(wave, n)| 1000.0 * (0.3 * wave).exp() + 31.6 * n);
    let counts: Vec<i64> = counts.map(|count| count.round() as i64).collect();
    let high: Vec<f64> = wave.zip(&noise).map(|(wave, n)| 300.0 + 3.0 * wave + n).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let of_counts = mean(&counts.iter().map(|&count| count as f64).collect::<Vec<_>>()).ln();
    let [counts, high_file] =
        [write(&scratch, "counts.npy", &[24], &counts), write(&scratch, "high.npy", &[24], &high)];
    for (data, words, offset) in [(&counts, "", of_counts), (&high_file, "--noise 1", mean(&high))] {
        let out = scratch.word("out");
        let outcome = call(
            data,
            &out,
            &format!("{words} --samples 1 --iterations 3 --set flexibility=none --set offset_mean=data"),
        )
        .succeeds();
        let report = report(&scratch.join("out"));
        // Far from there the fit had ended with chi-squares of 10^2 to 10^5.
        let chi_squared = report["reduced_chi_squared"].as_f64().unwrap();
        assert!((0.2..2.5).contains(&chi_squared) && outcome.stderr.is_empty(), "{data}: {chi_squared} {outcome:#?}");
        let found = report["parameters"]["hyper_parameters"]["offset_mean"].as_f64().unwrap();
        assert!((found - offset).abs() < 1e-9 * offset, "{found} {offset}");
        assert_eq!(report["warnings"], serde_json::json!([]));
    }
}

/// Counts of `n` x `n` cells with exposures that have holes, and the logarithm of their rate: a
/// Gaussian field of mean `offset`, standard deviation `fluctuation` and power `k^-slope`, cut from
/// a periodic one of twice the size.
fn log_normal(n: usize, seed: u64, [offset, fluctuation, slope]: [f64; 3]) -> ([Vec<f64>; 2], Vec<i64>) {
    let order = n as i64;
    let half = (0..=order).flat_map(|a| (-order..=order).map(move |b| [a, b]));
    let modes: Vec<[i64; 2]> = half.filter(|&[a, b]| a > 0 || b > 0).collect();
    let excitations = normal(2 * modes.len(), seed);
    let amplitude = |[a, b]: [i64; 2]| ((a * a + b * b) as f64).powf(-slope / 4.0);
    let variance: f64 = modes.iter().map(|&mode| amplitude(mode).powi(2)).sum();
    let field = |cell: usize| {
        let at = [cell / n, cell % n].map(|x| x as f64 * std::f64::consts::PI / n as f64);
        let terms = modes.iter().enumerate().map(|(i, &mode)| {
            let (sine, cosine) = (mode[0] as f64 * at[0] + mode[1] as f64 * at[1]).sin_cos();
            amplitude(mode) * (excitations[2 * i] * sine + excitations[2 * i + 1] * cosine)
        });
        offset + fluctuation * terms.sum::<f64>() / variance.sqrt()
    };
    let truth: Vec<f64> = (0..n * n).map(field).collect();
    let is_hole = |x: usize, y: usize| (2..2 + n / 5).contains(&x) && (n / 2..n / 2 + n / 4).contains(&y);
    let exposure = |cell: usize| if is_hole(cell / n, cell % n) { 0.0 } else { 0.5 + cell as f64 / (n * n) as f64 };
    let exposure: Vec<f64> = (0..n * n).map(exposure).collect();
    let count = |cell: usize| {
        // Events whose waiting times fill one.
        let (rate, mut time, mut count) = (truth[cell].exp() * exposure[cell], 0.0, 0);
        loop {
            time -= uniform((cell as u64) << 20 | count as u64, seed + 1).max(1e-300).ln();
            if time > rate {
                return count;
            }
            count += 1;
        }
    };
    let counts = (0..n * n).map(count).collect();
    ([truth, exposure], counts)
}

#[test]
fn defaults_find_log_normal_counts_far_from_one() {
    let scratch = Scratch::new();
    let n = 20;
    for (seed, field) in [(1, [-1.0, 0.9, 3.2]), (3, [5.5, 0.5, 2.5])] {
        let ([truth, exposure], counts) = log_normal(n, seed, field);
        let shape = [n as u64; 2];
        let (data, exposed) =
            (write(&scratch, "counts.npy", &shape, &counts), write(&scratch, "exposure.npy", &shape, &exposure));
        let outcome = call(&data, &scratch.word("out"), &format!("--exposure {exposed}")).succeeds();
        assert!(outcome.stderr.is_empty(), "{field:?}: {outcome:#?}");
        let report = report(&scratch.join("out"));
        let chi_squared = report["reduced_chi_squared"].as_f64().unwrap();
        assert!((0.8..1.25).contains(&chi_squared), "{field:?}: {chi_squared}");
        assert!(report["settled"] == true && report["finished"] == true, "{report:#}");
        let samples = read(&scratch.join("out/samples.npy"), &[24, n as u64, n as u64]);
        let away: f64 = (0..n * n)
            .map(|cell| {
                let own: Vec<f64> = (0..24).map(|sample| samples[sample * n * n + cell].ln()).collect();
                let mean = own.iter().sum::<f64>() / 24.0;
                let variance = own.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 23.0;
                (mean - truth[cell]).powi(2) / variance
            })
            .sum();
        let away = (away / (n * n) as f64).sqrt();
        println!("{field:?}: reduced chi-squared {chi_squared:.3}, {away:.3} standard deviations");
        assert!(away < 1.3, "{field:?}: {away}");
        std::fs::remove_dir_all(scratch.join("out")).unwrap();
    }
}

#[test]
fn a_fit_that_does_not_meet_the_data_is_told_of() {
    let scratch = Scratch::new();
    let far: Vec<f64> = normal(24, 3).iter().map(|n| 3e4 + n).collect();
    let far = write(&scratch, "far.npy", &[24], &far);
    let words = "--noise 1 --samples 0 --iterations 1 --periodic --set flexibility=none --set offset_mean=0 --set offset_std=1,0";
    let outcome = call(&far, &scratch.word("out"), words).run();
    assert!(outcome.status.success(), "{outcome:#?}");
    let wanted =
        ["meshloom: warning: the reduced chi-squared of the data is", "are to be expected", "--set offset_mean"];
    assert!(wanted.iter().all(|wanted| outcome.stderr.contains(wanted)), "{outcome:#?}");
    let report = report(&scratch.join("out"));
    let warnings: Vec<&str> = report["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(warnings.iter().any(|said| said.starts_with("the reduced chi-squared")), "{warnings:?}");
    // Units so small that numbers of the metric leave those of f32.
    let tiny: Vec<f64> = normal(24, 3).iter().map(|n| 1e-25 * n).collect();
    let tiny = write(&scratch, "tiny.npy", &[24], &tiny);
    let words = "--noise 1e-25 --samples 1 --iterations 1 --periodic";
    call(&tiny, &scratch.word("tiny"), words).run().is_error("tiny units", 1, &["--set fluctuations=MEAN,STD"]);
}

#[test]
fn what_was_interrupted_goes_on_to_the_same_bits() {
    let scratch = Scratch::new();
    let (_, [data, exposure, mask]) = counts(&scratch);
    let config = scratch.file(
        "model.toml",
        format!(
            "likelihood = \"poisson\"\nexposure = '{exposure}'\nmask = '{mask}'\nsamples = 1\noffset_mean = 2.5\nflexibility = \"none\"\n\
             slope = [-4.0, 0.0]\ndistances = [0.1, 0.2]\ndof = 3.0\n"
        ),
    );
    let run = |out: &str, words: &str| {
        few_iterations(&call(&data, &scratch.word(out), &format!("--config {config} {words}")))
    };
    run("whole", "--iterations 2");
    run("parts", "--iterations 1");
    run("parts", "--iterations 2 --resume");
    for (found, wanted) in bytes(&scratch.join("parts")).iter().zip(bytes(&scratch.join("whole"))) {
        assert!(*found == wanted, "{} differs", wanted.0);
    }
    // The metric at the position leads to the same minimum by other steps.
    run("position", "--iterations 1 --curvature at-position");
    assert_eq!(report(&scratch.join("position"))["parameters"]["curvature"], "at-position");
    // Exposures in place of the mask have the same shape, but another problem, and so has another
    // prior. The state stays.
    let parts = scratch.word("parts");
    let state = fs::read(scratch.join("parts/state/state.npz")).unwrap();
    let resumed = |words: &str| call(&data, &parts, &format!("--config {config} --iterations 2 --resume {words}"));
    scratch.all_fail([
        (resumed(&format!("--exposure {mask}")), 1, "the values of `noise` are others"),
        (resumed("--set offset_mean=2"), 1, "hyper_parameters.offset_mean is 2.5 there and 2.0 here"),
        // All iterations are done: what is there was not made with other options.
        (resumed("--samples 2"), 1, "2 samples after 2 iterations, and this call asks for 4 after 2"),
        (resumed("--mode geovi"), 1, "mode \"schedule\""),
        (resumed("--curvature at-position"), 1, "curvature \"sample-average\""),
        (call(&data, &parts, &format!("--config {config} --iterations 1 --resume")), 1, "more --iterations"),
    ]);
    assert!(fs::read(scratch.join("parts/state/state.npz")).unwrap() == state);
    let parameters = fs::read_to_string(scratch.join("whole/parameters.csv")).unwrap();
    let names: Vec<&str> = parameters.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["name", "offset_std", "fluctuations"]);
}

#[test]
fn a_broken_state_is_refused_and_left_as_it_is() {
    let scratch = Scratch::new();
    let data = write(&scratch, "counts.npy", &[4, 4], &[3i64; 16]);
    let words = "--samples 1 --iterations 1 --resume";
    // A file in place of the directory, and a directory with something else in it.
    let blocked = scratch.word("blocked");
    fs::create_dir_all(scratch.join("blocked")).unwrap();
    fs::write(scratch.join("blocked/state"), "no directory").unwrap();
    let broken = scratch.word("broken");
    fs::create_dir_all(scratch.join("broken/state")).unwrap();
    fs::write(scratch.join("broken/state/state.npz"), "no state").unwrap();
    let cases = [(&blocked, "state"), (&broken, "start again")];
    scratch.all_fail(cases.iter().map(|(out, what)| (call(&data, out, words), 1, *what)));
    assert_eq!(fs::read(scratch.join("blocked/state")).unwrap(), b"no directory");
    assert_eq!(fs::read(scratch.join("broken/state/state.npz")).unwrap(), b"no state");
    assert!(!scratch.join("blocked/mean.npy").exists() && !scratch.join("broken/mean.npy").exists());
}

#[test]
fn a_demonstration_makes_its_own_data() {
    let scratch = Scratch::new();
    let out = scratch.word("demo");
    let words = ["infer", "--demo", "-o", &out, "--samples", "1", "--iterations", "1", "--ranks", "2", "--grid", "1x1"];
    fs::create_dir(scratch.join("demo")).unwrap();
    fs::write(scratch.join("demo/data.npy"), "mine").unwrap();
    let data = scratch.word("demo/data.npy");
    let wrong = |more: &[&str]| Call::new(&words).words(more);
    scratch.all_fail([
        (wrong(&["--noise", "1"]), 2, "counts bring their noise"),
        (wrong(&["--likelihood", "gaussian"]), 2, "whose likelihood is poisson, and not gaussian"),
        (
            wrong(&["--config", &scratch.file("data.toml", "data = \"counts.npy\"\n")]),
            2,
            "its own data: leave counts.npy",
        ),
        (wrong(&["--sample-groups", "3"]), 2, "divide the 2 rank(s)"),
        (wrong(&["--dof", "2"]), 2, "--likelihood student-t"),
        (wrong(&["--exposure", &data]), 2, "an input and an output"),
        (wrong(&["--set", "offset_mean=100"]), 2, "offset_mean"),
        (wrong(&["--memory", "1000"]), 1, "1000 are allowed"),
    ]);
    assert_eq!(fs::read(&data).unwrap(), b"mine");
    Call::new(&words).succeeds();
    let (counts, truth) =
        (read_integers(&scratch.join("demo/data.npy")), read(&scratch.join("demo/truth.npy"), &[64, 64]));
    // Counts scatter around the truth by its root.
    let chi: f64 = counts.iter().zip(&truth).map(|(n, t)| (*n as f64 - t).powi(2) / t).sum::<f64>() / 4096.0;
    assert!((chi - 1.0).abs() < 6.0 * (2.0f64 / 4096.0).sqrt() * 1.5, "{chi}");
    assert!(scratch.join("demo/picture.png").exists());
    // An inference of other data takes the demonstration's away, except what it reads.
    let infer = |data: &str| {
        call(data, &out, "--iterations 1 --samples 0 --periodic").succeeds();
        demo_files(&scratch)
    };
    assert_eq!(infer(&data), ["data.npy"]);
    Call::new(&words).succeeds();
    assert_eq!(demo_files(&scratch), ["data.npy", "truth.npy"]);
    assert!(infer(&write(&scratch, "counts.npy", &[4, 4], &[3i64; 16])).is_empty());
}

/// Returns what is there of what a demonstration makes.
fn demo_files(scratch: &Scratch) -> Vec<&'static str> {
    ["data.npy", "truth.npy"].into_iter().filter(|name| scratch.join("demo").join(name).exists()).collect()
}

#[test]
fn only_files_of_an_older_inference_are_removed() {
    let scratch = Scratch::new();
    let data = write(&scratch, "counts.npy", &[4, 4], &[3i64; 16]);
    let (out, path) = (scratch.word("out"), |name: &str| scratch.join("out").join(name));
    fs::create_dir(scratch.join("out")).unwrap();
    let names = ["samples.npy", "std.npy"];
    names.iter().for_each(|name| fs::write(path(name), "mine").unwrap());
    let run = |samples: u32| call(&data, &out, &format!("--iterations 1 --periodic --samples {samples}")).succeeds();
    // Twice: the older inference had none, either.
    for _ in 0..2 {
        run(0);
        names.iter().for_each(|name| assert_eq!(fs::read(path(name)).unwrap(), b"mine", "{name}"));
    }
    run(1);
    names.iter().for_each(|name| assert_ne!(fs::read(path(name)).unwrap(), b"mine", "{name}"));
    run(0);
    names.iter().for_each(|name| assert!(!path(name).exists(), "{name}"));
    assert!(!path("run.unfinished").exists());
}

fn read_integers(path: &Path) -> Vec<i64> {
    let file = NpyFile::open(path).unwrap();
    file.read_i64(0..file.len()).unwrap()
}

#[test]
fn bad_input_is_refused_with_one_message_and_no_files() {
    let scratch = Scratch::new();
    let counts = write(&scratch, "counts.npy", &[4, 4], &[3i64; 16]);
    let negative = write(&scratch, "negative.npy", &[4, 4], &[-3i64; 16]);
    let mut holes = [1.0f32; 16];
    holes[6] = f32::NAN;
    let holes = write(&scratch, "holes.npy", &[4, 4], &holes);
    let other = write(&scratch, "other.npy", &[4, 5], &[1.0f32; 20]);
    let masked = write(&scratch, "masked.npy", &[4, 4], &[0i64; 16]);
    let twos = write(&scratch, "twos.npy", &[4, 4], &[2i64; 16]);
    let four = write(&scratch, "four.npy", &[2, 2, 2, 2], &[1.0f32; 16]);
    let half = write(&scratch, "half.npy", &[4, 4], &[0.5f32; 16]);
    let unknown = scratch.file("unknown.toml", "sloep = [1.0, 2.0]\n");
    let out = scratch.word("out");
    let cases = [
        (&negative, String::new(), 1, "element [0, 0] is -3"),
        (&holes, "--noise 1".into(), 1, "element [1, 2] is NaN"),
        (&counts, format!("--exposure {other}"), 1, "shape (4, 5)"),
        (&counts, format!("--mask {masked}"), 1, "none of them counts"),
        (&counts, format!("--mask {twos}"), 1, "a mask is of 0 and 1"),
        (&four, "--noise 1".into(), 1, "one to three axes"),
        (&holes, String::new(), 2, "--noise is missing"),
        (&counts, "--noise 1".into(), 2, "counts bring their noise"),
        (&counts, "--model normal".into(), 2, "rates of counts are positive"),
        (&counts, "--likelihood cauchy".into(), 2, "poisson, gaussian, student-t"),
        (&counts, "--set slope=1".into(), 2, "NAME=MEAN,STD"),
        (&counts, "--set offset_mean=here".into(), 2, "a number, or data"),
        (&counts, format!("--mask {half}"), 1, "element [0, 0] is 0.5; a mask is of 0 and 1, or of booleans"),
        (&counts, "--set fluctuations=-1,1".into(), 2, "a positive mean"),
        (&counts, "--pad 0.5".into(), 2, "--pad is 0.5"),
        (&counts, "--distances 1,2,3".into(), 2, "--distances has 3 numbers"),
        (&counts, "--distances 1e-155".into(), 2, "1e-30 to 1e30"),
        (&counts, "--distances 1,1e160".into(), 2, "1e-30 to 1e30"),
        (&holes, "--noise 1e-60".into(), 2, "--noise is"),
        (&counts, "--samples -1".into(), 2, "--samples is -1"),
        (&counts, "--iterations 0".into(), 2, "--iterations is 0"),
        (&counts, "--sample-steps 0".into(), 2, "--sample-steps is 0"),
        (&counts, format!("--config {unknown}"), 1, "sloep"),
        (&counts, "--ranks 2 --samples 0 --sample-groups 2".into(), 2, "1 sample(s)"),
        (&counts, "--ranks 3 --sample-groups 2".into(), 2, "divide the 3 rank(s)"),
        (&counts, "--ranks 4 --sample-groups 2 --grid 4x1".into(), 2, "4x1 is of 4 rank(s), and each of 2 group(s)"),
        (&counts, "--ranks 2 --samples 0 --grid 1x1".into(), 2, "--grid 1x1 makes 2 group(s)"),
        (&counts, "--ranks 3 --grid 2x1".into(), 2, "each of 1 group(s) of samples has 3"),
        (&counts, "--memory 1000".into(), 1, "1000 are allowed"),
        (&counts, "--draws 5".into(), 2, "belong to --sampler"),
        (&counts, "--sampler nuts --sampler-steps 5".into(), 2, "--sampler-steps belongs to hmc and mclmc"),
        (&counts, "--sampler adjusted-mclmc --sampler-steps 5".into(), 2, "adjusted-mclmc find lengths"),
        (&counts, "--sampler mclmc --draws 3".into(), 2, "--draws is 3"),
        (&counts, "--sampler hmc --draws 10 --thinning 3".into(), 2, "keeps 3 of 10 draws"),
    ];
    scratch.all_fail(cases.iter().map(|(data, words, code, what)| (call(data, &out, words), *code, *what)));
    let left: Vec<_> = files(scratch.path()).into_iter().filter(|path| path.starts_with(scratch.join("out"))).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_printed_configuration_is_the_call() {
    let scratch = Scratch::new();
    let words = "--noise 0.25 --samples 2 --mode geovi --set slope=-2.5,0.1 --set asperity=1,0.5 --set flexibility=none --seed 9";
    let printed = |words: &str| {
        let words = ["infer", "--print-config"].into_iter().chain(words.split_whitespace()).collect::<Vec<_>>();
        Call::new(&words).succeeds().stdout
    };
    let text = printed(words);
    let file = scratch.file("model.toml", &text);
    assert_eq!(printed(&format!("--config {file}")), text);
    for line in [
        "iterations = 20",
        "samples = 2",
        "sample_steps = 500",
        "curvature = \"sample-average\"",
        "pad = 1.5",
        "offset_mean = \"data\"",
        "flexibility = \"none\"",
        "slope = [-2.5, 0.1]",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // Without padding, and of other words in place of the file's.
    let periodic = scratch.file("periodic.toml", printed("--periodic --demo"));
    assert_eq!(printed(&format!("--config {periodic}")), fs::read_to_string(&periodic).unwrap());
    assert!(printed(&format!("--config {file} --seed 10")) == text.replace("seed = 9", "seed = 10"));
    // The data too, and one side of cells for all axes; the directory is the call's.
    let counts = write(&scratch, "counts.npy", &[6], &[3i64, 1, 4, 1, 5, 9]);
    let given =
        scratch.file("given.toml", format!("data = \"{counts}\"\ndistances = 0.5\nsamples = 0\niterations = 1\n"));
    let text = printed(&format!("--config {given}"));
    assert!(text.contains(&format!("data = \"{counts}\"")) && text.contains("distances = [0.5]"), "{text}");
    let out = scratch.word("of-config");
    Call::new(&["infer", "--config", &given, "-o", &out]).succeeds();
    assert_eq!(report(&scratch.join("of-config"))["distances"], serde_json::json!([1.0, 1.0, 0.5]));
    for (text, code, words) in [
        ("samples = 2\n", 2, &["--data is missing"][..]),
        ("samples = 2\noutput = \"here\"\n", 1, &["line 2", "`output` is no key", "command line"]),
        ("distances = \"wide\"\n", 1, &["line 1", "distances must be a number, or a list"]),
    ] {
        let file = scratch.file("wrong.toml", text);
        Call::new(&["infer", "--config", &file, "-o", &out]).run().is_error(text, code, words);
    }
    Call::new(&["infer", "--print-config", "--samples", "-1"]).run().is_error("wrong", 2, &["--samples is -1"]);
    Call::new(&["infer"]).run().is_error("nothing", 2, &["--data", "--output"]);
}
