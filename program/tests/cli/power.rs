//! `meshloom power`: spectra that are known, points against a naive estimator, any number of ranks,
//! and its errors.

use std::f64::consts::PI;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::reference_pm::{uniform, white};
use meshloom::comm::{Communicator, run_threads};
use meshloom::exchange::GridComms;
use meshloom::gpu::{Gpu, Options, Recorder};
use meshloom::grid::{Grid, MeshOptions, split, volume};
use meshloom::io::{NpyElement, NpyWriter, token};
use meshloom::mesh::{
    Bin, MeshError, ModeBinner, Modes, Painter, PointsInCells, SpectrumGeometry, Window, density_contrast,
    power_spectrum,
};
use meshloom::{Error, Launch, Mesh, launch};
use rustfft::{FftPlanner, num_complex::Complex};

/// Returns the program. A driver's layers look for a window system and may complain on standard
/// error that there is none.
fn meshloom() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshloom"));
    command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    command
}

/// A directory for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("meshloom-power-{}", token()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn save<T: NpyElement>(&self, name: &str, shape: &[u64], values: &[T]) -> PathBuf {
        let path = self.path(name);
        let writer = NpyWriter::create(&path, shape, &token()).unwrap();
        writer.write(0, values).unwrap();
        writer.finish().unwrap();
        path
    }

    fn save_points(&self, name: &str, points: &[[f64; 3]]) -> PathBuf {
        self.save(name, &[points.len() as u64, 3], points.as_flattened())
    }

    /// Runs `meshloom power input -o out.csv` with further words.
    fn run(&self, input: &Path, words: &str) -> Output {
        let mut command = meshloom();
        command.arg("power").arg(input).arg("-o").arg(self.path("out.csv")).args(words.split_whitespace());
        command.output().unwrap()
    }

    /// Returns the bytes of the spectrum.
    fn csv(&self, input: &Path, words: &str) -> String {
        let output = self.run(input, words);
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "nothing is said when all is well");
        let csv = std::fs::read_to_string(self.path("out.csv")).unwrap();
        std::fs::remove_file(self.path("out.csv")).unwrap();
        csv
    }

    fn spectrum(&self, input: &Path, words: &str) -> Vec<[f64; 3]> {
        rows(&self.csv(input, words))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// `k, P, modes` of each bin.
fn rows(csv: &str) -> Vec<[f64; 3]> {
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("k,P,modes"));
    let row = |line: &str| line.split(',').map(|n| n.parse().unwrap()).collect::<Vec<f64>>().try_into().unwrap();
    lines.map(row).collect()
}

fn points(count: u64, seed: u64, size: [f64; 3]) -> Vec<[f64; 3]> {
    (0..count).map(|n| [0, 1, 2].map(|a| size[a as usize] * uniform(seed + a, n))).collect()
}

/// The naive estimator: f64, all modes rather than half of them.
struct Naive {
    shape: [usize; 3],
    size: [f64; 3],
}

impl Naive {
    fn cells(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the mode numbers of each mode of the whole spectrum, the Nyquist one negative, and
    /// their w = k h.
    fn modes(&self) -> impl Iterator<Item = ([i64; 3], [f64; 3])> {
        let [n0, n1, n2] = self.shape;
        let of = |m: usize, n: usize| if 2 * m < n { m as i64 } else { m as i64 - n as i64 };
        let shape = self.shape;
        (0..n0 * n1 * n2).map(move |i| {
            let m = [of(i / (n1 * n2), n0), of(i / n2 % n1, n1), of(i % n2, n2)];
            (m, [0, 1, 2].map(|a| 2.0 * PI * m[a] as f64 / shape[a] as f64))
        })
    }

    /// Returns the contrast of points, moved by `shift` cells.
    fn paint(&self, points: &[[f64; 3]], window: Window, shift: f64) -> Vec<f64> {
        let mut density = vec![0.0; self.cells()];
        let [_, n1, n2] = self.shape;
        let order = window.order() as usize;
        for x in points {
            let nodes = [0, 1, 2].map(|a| window.nodes(x[a] / self.size[a] * self.shape[a] as f64 + shift));
            let at = |a: usize, n: usize| (nodes[a].0 + n as i64).rem_euclid(self.shape[a] as i64) as usize;
            for i in 0..order {
                for j in 0..order {
                    for k in 0..order {
                        let weight = nodes[0].1[i] * nodes[1].1[j] * nodes[2].1[k];
                        density[(at(0, i) * n1 + at(1, j)) * n2 + at(2, k)] += weight;
                    }
                }
            }
        }
        let mean = points.len() as f64 / self.cells() as f64;
        density.iter().map(|d| d / mean - 1.0).collect()
    }

    fn transform(&self, field: &[f64]) -> Vec<Complex<f64>> {
        let mut modes: Vec<_> = field.iter().map(|&x| Complex::new(x, 0.0)).collect();
        let strides = [self.shape[1] * self.shape[2], self.shape[2], 1];
        for (&n, stride) in self.shape.iter().zip(strides) {
            let fft = FftPlanner::new().plan_fft_forward(n);
            for start in (0..modes.len()).filter(|i| (i / stride).is_multiple_of(n)) {
                let mut line: Vec<_> = (0..n).map(|i| modes[start + i * stride]).collect();
                fft.process(&mut line);
                line.into_iter().enumerate().for_each(|(i, value)| modes[start + i * stride] = value);
            }
        }
        modes
    }

    /// `k, P, modes` of each bin, out of one |delta|^2 a mode.
    fn bins(&self, squares: &[f64]) -> Vec<[f64; 3]> {
        let longest = self.size.iter().copied().fold(0.0, f64::max);
        let fundamental = 2.0 * PI / longest;
        let nyquist = (0..3).map(|a| PI * self.shape[a] as f64 / self.size[a]).fold(f64::INFINITY, f64::min);
        let count = (nyquist / fundamental + 1e-9) as usize;
        let scale = self.size.iter().product::<f64>() / (self.cells() as f64).powi(2);
        let mut bins = vec![[0.0; 3]; count + 1];
        for ((m, _), square) in self.modes().zip(squares) {
            let k = (0..3).map(|a| (2.0 * PI * m[a] as f64 / self.size[a]).powi(2)).sum::<f64>().sqrt();
            // In units of the bins, where modes on an edge are on it exactly.
            let number = (0..3).map(|a| (m[a] as f64 * (longest / self.size[a])).powi(2)).sum::<f64>().sqrt();
            let bin = (number + 0.5).floor() as usize;
            if (1..=count).contains(&bin) {
                bins[bin] = [bins[bin][0] + k, bins[bin][1] + square * scale, bins[bin][2] + 1.0];
            }
        }
        bins.into_iter().filter(|bin| bin[2] > 0.0).map(|[k, p, n]| [k / n, p / n, n]).collect()
    }

    /// Returns the spectrum of points.
    fn spectrum(&self, points: &[[f64; 3]], window: Window, deconvolve: bool, interlace: bool) -> Vec<[f64; 3]> {
        let mut modes = self.transform(&self.paint(points, window, 0.0));
        if interlace {
            let shifted = self.transform(&self.paint(points, window, 0.5));
            // Nyquist modes are their own mirror images along an axis, but with the opposite sign
            // of w: the half spectrum that is stored decides, and so does the mirror here.
            for (mode, ((m, w), shifted)) in modes.iter_mut().zip(self.modes().zip(shifted)) {
                let mirrored = m[2] < 0 && 2 * m[2].unsigned_abs() as usize != self.shape[2];
                let w = [0, 1, 2].map(|a| {
                    let nyquist = 2 * m[a].unsigned_abs() as usize == self.shape[a];
                    if mirrored && nyquist { -w[a] } else { w[a] }
                });
                *mode = 0.5 * (*mode + Complex::new(0.0, w.iter().sum::<f64>() / 2.0).exp() * shifted);
            }
        }
        let sinc = |w: f64| if w == 0.0 { 1.0 } else { (w / 2.0).sin() / (w / 2.0) };
        let power = |w: [f64; 3]| w.iter().map(|&w| sinc(w)).product::<f64>().powi(2 * window.order() as i32);
        let squares = modes.iter().zip(self.modes());
        let squares = squares.map(|(mode, (_, w))| mode.norm_sqr() / if deconvolve { power(w) } else { 1.0 });
        self.bins(&squares.collect::<Vec<_>>())
    }

    /// Returns the spectrum of the points themselves, without a mesh: what a mesh comes near to.
    fn direct(&self, points: &[[f64; 3]]) -> Vec<[f64; 3]> {
        let scale = self.cells() as f64 / points.len() as f64;
        let square = |(m, _): ([i64; 3], _)| {
            let phase = |x: &[f64; 3]| (0..3).map(|a| -2.0 * PI * m[a] as f64 * x[a] / self.size[a]).sum::<f64>();
            points.iter().map(|x| Complex::new(0.0, phase(x)).exp()).sum::<Complex<f64>>().norm_sqr() * scale * scale
        };
        self.bins(&self.modes().map(square).collect::<Vec<_>>())
    }
}

/// Returns the largest difference of the powers, relative to the mean power; k and modes must be
/// the same.
fn difference(got: &[[f64; 3]], want: &[[f64; 3]]) -> f64 {
    assert_eq!(got.len(), want.len(), "number of bins");
    let mean = want.iter().map(|row| row[1].abs()).sum::<f64>() / want.len() as f64;
    let each = got.iter().zip(want).map(|(got, want)| {
        assert!((got[0] / want[0] - 1.0).abs() < 1e-12 && got[2] == want[2], "{got:?} {want:?}");
        (got[1] - want[1]).abs() / mean
    });
    each.fold(0.0, f64::max)
}

#[test]
fn white_noise_is_flat() {
    let (scratch, n, size, sigma) = (Scratch::new(), 32u64, 50.0, 0.1);
    // Any mean: the field is divided by it.
    let values: Vec<f32> = white(n.pow(3) as usize, 5).iter().map(|x| (40.0 * (1.0 + sigma * x)) as f32).collect();
    let field = scratch.save("field.npy", &[n; 3], &values);
    let spectrum = scratch.spectrum(&field, "--box 50");
    assert_eq!(spectrum.len(), 16);
    let expected = (size / n as f64).powi(3) * sigma * sigma;
    let (mut total, mut modes) = (0.0, 0.0);
    for [k, power, count] in spectrum {
        // Half the modes are mirror images of the other half.
        let error = (2.0 / count).sqrt();
        assert!((power / expected - 1.0).abs() < 4.5 * error, "{power} {expected} at {k}");
        (total, modes) = (total + power * count, modes + count);
    }
    assert!((total / modes / expected - 1.0).abs() < 4.5 * (2.0 / modes).sqrt());
}

#[test]
fn a_plane_wave_is_one_mode() {
    let scratch = Scratch::new();
    let naive = Naive { shape: [15, 12, 9], size: [30.0, 20.0, 24.0] };
    let ([n0, n1, n2], amplitude, mode) = (naive.shape, 0.25, [2.0, -1.0, 2.0]);
    let value = |i: usize| {
        let at = [i / (n1 * n2), i / n2 % n1, i % n2];
        let phase: f64 = (0..3).map(|a| 2.0 * PI * mode[a] * at[a] as f64 / naive.shape[a] as f64).sum();
        3.0 * (1.0 + amplitude * (phase + 0.3).cos())
    };
    let values: Vec<f64> = (0..n0 * n1 * n2).map(value).collect();
    let field = scratch.save("field.npy", &naive.shape.map(|n| n as u64), &values);
    let spectrum = scratch.spectrum(&field, "--box 30,20,24");
    // Two modes of |delta|^2 = (A N / 2)^2.
    let counts = naive.bins(&vec![0.0; naive.cells()]);
    let k = (0..3).map(|a| (2.0 * PI * mode[a] / naive.size[a]).powi(2)).sum::<f64>().sqrt();
    let bin = (k / (2.0 * PI / 30.0) + 0.5) as usize;
    assert_eq!((spectrum.len(), bin), (5, 4));
    for (b, (got, want)) in spectrum.iter().zip(&counts).enumerate() {
        assert!((got[0] / want[0] - 1.0).abs() < 1e-12 && got[2] == want[2], "{got:?} {want:?}");
        let power = if b + 1 == bin { amplitude * amplitude * 14400.0 / 4.0 * 2.0 / want[2] } else { 0.0 };
        assert!((got[1] - power).abs() < 1e-6 * amplitude * amplitude * 14400.0, "{got:?}, expected {power}");
    }
    // f32 files and boxes with one side for all.
    let narrow: Vec<f32> = values.iter().map(|x| *x as f32).collect();
    let narrow = scratch.save("narrow.npy", &naive.shape.map(|n| n as u64), &narrow);
    let (wide, narrow) = (scratch.spectrum(&field, "--box 24"), scratch.spectrum(&narrow, "--box 24 --mesh 15,12,9"));
    assert!(difference(&narrow, &wide) < 1e-6);
    // A field that was painted with a window: each mode is divided by that of the window.
    let divided = scratch.spectrum(&field, "--box 30,20,24 --deconvolve --window tsc");
    let sinc = |x: f64| x.sin() / x;
    let window: f64 = (0..3).map(|a| sinc(PI * mode[a] / naive.shape[a] as f64).powi(6)).product();
    assert!((divided[bin - 1][1] * window / spectrum[bin - 1][1] - 1.0).abs() < 1e-6);
}

#[test]
fn points_agree_with_the_naive_estimator() {
    let scratch = Scratch::new();
    let naive = Naive { shape: [16; 3], size: [50.0, 50.0, 40.0] };
    let points = points(300, 70, naive.size);
    let file = scratch.save_points("points.npy", &points);
    let direct = naive.direct(&points);
    for (window, name) in [(Window::Cic, "cic"), (Window::Tsc, "tsc"), (Window::Pcs, "pcs")] {
        let words = format!("--box 50,50,40 --mesh 16 --window {name}");
        let plain = scratch.spectrum(&file, &words);
        let error = difference(&plain, &naive.spectrum(&points, window, false, false));
        assert!(error < 1e-6, "{name}: {error:e}");

        let divided = scratch.spectrum(&file, &format!("{words} --deconvolve"));
        let error = difference(&divided, &naive.spectrum(&points, window, true, false));
        assert!(error < 1e-6, "{name} --deconvolve: {error:e}");

        let interlaced = scratch.spectrum(&file, &format!("{words} --deconvolve --interlace"));
        let error = difference(&interlaced, &naive.spectrum(&points, window, true, true));
        assert!(error < 1e-6, "{name} --deconvolve --interlace: {error:e}");

        // With the right sign it takes away aliases. The last bins hold Nyquist modes, which it
        // cannot tell apart.
        let inner = |spectrum: &[[f64; 3]]| difference(&spectrum[..6], &direct[..6]);
        assert!(inner(&interlaced) < 0.25 * inner(&divided), "{name}: {} {}", inner(&interlaced), inner(&divided));
    }
    let (all, less) = (scratch.spectrum(&file, "--box 50 --mesh 16"), "--box 50 --mesh 16 --shot-noise");
    for (all, less) in all.iter().zip(scratch.spectrum(&file, less)) {
        assert!((all[1] - less[1] - 50f64.powi(3) / 300.0).abs() < 1e-9, "{all:?} {less:?}");
    }
}

#[test]
fn points_are_wrapped_and_keep_their_precision() {
    let scratch = Scratch::new();
    // Multiples of 2^-10 in a box of 64: sums with whole boxes are exact.
    let mut inside: Vec<[f64; 3]> =
        points(200, 7, [64.0; 3]).iter().map(|x| x.map(|x| (x * 1024.0).floor() / 1024.0)).collect();
    inside.extend([[0.0, 1.5, 0.0], [4.0, 0.0, 63.9990234375]]);
    let moved: Vec<[f64; 3]> =
        inside.iter().enumerate().map(|(n, x)| x.map(|x| x + 64.0 * (n % 3) as f64 - 64.0)).collect();
    let edge: Vec<[f64; 3]> = inside.iter().map(|x| x.map(|x| if x == 0.0 { 64.0 } else { x })).collect();
    let words = "--box 64 --mesh 16 --window tsc";
    let first = scratch.csv(&scratch.save_points("inside.npy", &inside), words);
    assert_eq!(scratch.csv(&scratch.save_points("moved.npy", &moved), words), first);
    assert_eq!(scratch.csv(&scratch.save_points("edge.npy", &edge), words), first);
    let narrow: Vec<f32> = inside.as_flattened().iter().map(|x| *x as f32).collect();
    assert_eq!(scratch.csv(&scratch.save("narrow.npy", &[202, 3], &narrow), words), first);

    // A box far wider than f32 resolves a cell in: as good as the small one.
    let (scale, naive) = (2f64.powi(30), Naive { shape: [16; 3], size: [64.0; 3] });
    let far: Vec<[f64; 3]> = inside.iter().map(|x| x.map(|x| (x + 64.0) * scale)).collect();
    let file = scratch.save_points("far.npy", &far);
    let far = scratch.spectrum(&file, &format!("--box {} --mesh 16 --window tsc", 64.0 * scale));
    let far: Vec<_> = far.iter().map(|[k, p, n]| [k * scale, p / scale.powi(3), *n]).collect();
    assert!(difference(&far, &naive.spectrum(&inside, Window::Tsc, false, false)) < 1e-6);
}

#[test]
fn any_number_of_ranks_writes_the_same_bytes() {
    let scratch = Scratch::new();
    let file = scratch.save_points("points.npy", &points(501, 30, [20.0, 30.0, 25.0]));
    // The widest halo there is, on a mesh that is not a power of two.
    let words = "--box 20,30,25 --mesh 12,10,14 --window pcs --deconvolve --interlace --shot-noise";
    let one = scratch.csv(&file, words);
    assert_eq!(rows(&one).len(), 5);
    for ranks in ["--ranks 2", "--ranks 3", "--ranks 4", "--ranks 4 --grid 2x2", "--ranks 3 --grid 1x3"] {
        assert_eq!(scratch.csv(&file, &format!("{words} {ranks}")), one, "{ranks}");
    }
    // More ranks than planes, and parts narrower than the window.
    let words = "--box 20,30,25 --mesh 4,3,5 --window tsc";
    let one = scratch.csv(&file, words);
    for ranks in ["--ranks 4 --grid 4x1", "--ranks 5 --grid 5x1", "--ranks 4 --grid 2x2"] {
        assert_eq!(scratch.csv(&file, &format!("{words} {ranks}")), one, "{ranks}");
    }
    let values: Vec<f64> = white(12 * 10 * 14, 9).iter().map(|x| x.exp()).collect();
    let field = scratch.save("field.npy", &[12, 10, 14], &values);
    let one = scratch.csv(&field, "--box 7");
    for ranks in ["--ranks 2", "--ranks 3", "--ranks 4 --grid 2x2"] {
        assert_eq!(scratch.csv(&field, &format!("--box 7 {ranks}")), one, "{ranks}");
    }

    if cfg!(not(feature = "mpi")) {
        println!("not run under MPI: this build has no feature `mpi`");
        return;
    }
    for (input, words) in [(&field, "--box 7"), (&file, "--box 20,30,25 --mesh 4,3,5 --window tsc")] {
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", "2", env!("CARGO_BIN_EXE_meshloom"), "power"]);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.arg(input).arg("-o").arg(scratch.path("mpi.csv")).args(words.split_whitespace()).arg("--json");
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => return println!("not run under MPI: mpirun: {error}"),
        };
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["ranks"], 2, "one object, from one rank");
        assert_eq!(std::fs::read_to_string(scratch.path("mpi.csv")).unwrap(), scratch.csv(input, words));
    }
}

#[test]
fn what_was_done_is_reported_and_defaults_are_chosen() {
    let scratch = Scratch::new();
    let file = scratch.save_points("points.npy", &points(1000, 3, [10.0; 3]));
    let output = scratch.run(&file, "--box 10 --json --ranks 2");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["points"], 1000);
    assert_eq!(report["mesh"], serde_json::json!([20, 20, 20]), "twice the cube root");
    assert_eq!((&report["window"], &report["ranks"]), (&"cic".into(), &2.into()));
    assert!(report["bytes"]["between_ranks"].as_u64().unwrap() > 500 * 24 / 2, "{report}");
    for phase in ["read", "distribute", "paint", "transform", "bin", "write", "total"] {
        assert!(report["seconds"][phase].as_f64().unwrap() > 0.0, "{phase}: {report}");
    }
    assert_eq!(report["host_seconds"].is_f64(), cfg!(target_os = "linux"), "{report:#}");
    // No points, no spectrum.
    let none = scratch.save::<f32>("none.npy", &[0, 3], &[]);
    for ranks in ["", "--ranks 2"] {
        assert_eq!(scratch.csv(&none, &format!("--box 10 --shot-noise {ranks}")), "k,P,modes\n");
    }
}

#[test]
fn errors_are_one_message_and_leave_nothing() {
    let scratch = Scratch::new();
    let good = points(40, 11, [10.0; 3]);
    let file = scratch.save_points("points.npy", &good);
    let mut bad = good.clone();
    (bad[31][0], bad[17][2], bad[9][1]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
    let bad = scratch.save_points("bad.npy", &bad);
    let mut wide = good.clone();
    wide[31][2] = 1e300;
    let wide = scratch.save_points("wide.npy", &wide);
    let flat = scratch.save("flat.npy", &[20, 2], &[1.0f32; 40]);
    let four = scratch.save("four.npy", &[2, 2, 2, 2], &[1.0f32; 16]);
    let integers = scratch.save("integers.npy", &[10, 3], &[1i64; 30]);
    let field = scratch.save("field.npy", &[4, 4, 6], &[2.0f32; 96]);
    let plane = scratch.save("plane.npy", &[4, 1, 6], &[2.0f32; 24]);
    let hollow = scratch.save("hollow.npy", &[4, 0, 4], &[0f32; 0]);
    let contrast: Vec<f32> = (0..96).map(|i| if i % 2 == 0 { 0.25 } else { -0.25 }).collect();
    let contrast = scratch.save("contrast.npy", &[4, 4, 6], &contrast);
    let holes: Vec<f64> = (0..96).map(|i| if [40, 50].contains(&i) { f64::NAN } else { 1.0 }).collect();
    let holes = scratch.save("holes.npy", &[4, 4, 6], &holes);
    let text_file = scratch.path("text.npy");
    std::fs::write(&text_file, "1 2 3\n").unwrap();
    let missing = scratch.path("missing.npy");

    let cases: &[(&Path, &str, i32, &str)] = &[
        // Words of the call.
        (&file, "", 2, "--box"),
        (&file, "--box 0", 2, "periodic"),
        (&file, "--box open", 2, "periodic"),
        (&file, "--box 10,10,open", 2, "periodic"),
        (&file, "--box -3", 2, "length"),
        (&file, "--box nan", 2, "length"),
        (&file, "--box inf", 2, "length"),
        (&file, "--box 10,10", 2, "three"),
        (&file, "--box ten", 2, "three"),
        (&file, "--box 10 --mesh 0", 2, "from 1 to"),
        (&file, "--box 10 --mesh 20000", 2, "from 1 to"),
        (&file, "--box 10 --mesh 8,1,8", 2, "--mesh: a mesh of 8,1,8 cells has no wave of the box"),
        (&file, "--box 10 --window ngp", 2, "cic, tsc and pcs"),
        (&file, "--box 10 --ranks 2 --grid 2x2", 2, "does not make 2 ranks"),
        (&field, "--box 10 --mesh 8", 2, "4,4,6"),
        (&field, "--box 10 --window tsc", 2, "--deconvolve"),
        (&field, "--box 10 --interlace", 2, "--interlace"),
        (&field, "--box 10 --shot-noise", 2, "--shot-noise"),
        (Path::new("-"), "--box 10", 2, "standard input"),
        // Files.
        (&missing, "--box 10", 1, "no such file"),
        (&text_file, "--box 10", 1, "text.npy"),
        (&flat, "--box 10", 1, "three dimensions"),
        (&four, "--box 10", 1, "(2, 2, 2, 2)"),
        (&integers, "--box 10", 1, "int64"),
        (&plane, "--box 10", 1, "plane.npy: a mesh of 4,1,6 cells has no wave of the box"),
        (&hollow, "--box 10", 1, "one cell along each axis"),
        (&contrast, "--box 10", 1, "a contrast (--contrast)"),
        (&contrast, "--box 10 --ranks 3", 1, "a contrast (--contrast)"),
        (&bad, "--box 10", 1, "(9, 1) is -inf"),
        (&bad, "--box 10 --ranks 4", 1, "(9, 1) is -inf"),
        (&wide, "--box 10", 1, "(31, 2) is 1e300, beyond the range of f32"),
        (&wide, "--box 10 --ranks 4", 1, "(31, 2) is 1e300, beyond the range of f32"),
        (&holes, "--box 10", 1, "(1, 2, 4) is NaN"),
        (&holes, "--box 10 --ranks 4 --grid 2x2", 1, "(1, 2, 4) is NaN"),
    ];
    for (input, words, code, said) in cases {
        let output = scratch.run(input, words);
        let error = text(&output.stderr);
        let case = format!("{} {words}: {error}", input.display());
        assert_eq!(output.status.code(), Some(*code), "{case}");
        assert!(error.contains(said), "{case}");
        assert!(output.stdout.is_empty(), "{case}");
        // A usage line may follow.
        assert_eq!(error.matches("error:").count() + error.matches("meshloom: ").count(), 1, "{case}");
        assert!(*code == 2 || error.lines().count() == 1, "{case}");
        assert!(!scratch.path("out.csv").exists(), "{case}");
    }

    for (output, code, said) in [
        ("-".into(), 2, "standard output"),
        (scratch.path("no/where.csv"), 1, "mkdir"),
        (scratch.0.clone(), 1, "not a regular file"),
    ] {
        let mut command = meshloom();
        let run = command.arg("power").arg(&file).args(["--box", "10", "-o"]).arg(output).output().unwrap();
        assert_eq!(run.status.code(), Some(code), "{}", text(&run.stderr));
        assert!(text(&run.stderr).contains(said) && text(&run.stderr).lines().count() == 1, "{}", text(&run.stderr));
    }
    let left = std::fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().path());
    let left: Vec<_> = left.filter(|path| path.extension() != Some("npy".as_ref())).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_library_distributes_points_and_agrees_on_errors() {
    let (shape, size) = ([6, 5, 4], [6.0, 10.0, 2.0]);
    let all = points(100, 50, size);
    let mut bad = all.clone();
    (bad[80][0], bad[35][1]) = (f64::NAN, f64::INFINITY);
    let options = meshloom_sanitizer::options().unwrap();
    let ranks = launch(Launch::Threads(4), &options, |rank| {
        let (grid, me) = (Grid::new([2, 2], 4)?, rank.comm.rank());
        let (mut recorder, mut lines) = (Recorder::new(&rank.gpu)?, GridComms::new(&rank.comm, grid)?);
        let options = MeshOptions { size, grid: Some([2, 2]), ..MeshOptions::new(shape) };
        let mesh = Mesh::new(&options, 4, me)?;
        // Uneven parts, one empty.
        let mine = |all: &[[f64; 3]]| all[[0, 0, 35, 36][me]..[0, 35, 36, 100][me]].to_vec();
        let mut distribute = |mesh: &Mesh, all: &[[f64; 3]]| {
            PointsInCells::distribute(&mut recorder, &rank.comm, mesh, &mine(all), None)
        };
        let wrong = distribute(&mesh, &bad).err();
        assert!(
            matches!(&wrong, Some(MeshError::NotFinite { index, value }) if *index == [35, 1] && *value == f64::INFINITY),
            "rank {me}: {wrong:?}"
        );
        let narrow = distribute(&mesh, &all)?;
        let points = distribute(&PointsInCells::with_ghosts(&mesh, Window::Pcs, false)?, &all)?;
        let out = rank.gpu.array::<f32>("density", mesh.own_cells())?;
        let painter = Painter::new(Window::Pcs);
        let wrong = narrow.density(&mut recorder, &mut lines, &painter, 0.0, &out).err();
        assert!(wrong.is_some_and(|error| error.to_string().contains("PointsInCells::with_ghosts")));
        points.density(&mut recorder, &mut lines, &painter, 0.0, &out)?;
        let mass: f64 = recorder.download(&out, 0, out.len())?.iter().map(|x| f64::from(*x)).sum();

        let own = grid.part(shape, me);
        let contrast = density_contrast(&rank.comm, &own, &vec![2.5; volume(&own) as usize])?;
        assert!(contrast.iter().all(|x| *x == 0.0));
        let huge = density_contrast(&rank.comm, &own, &vec![1e308; volume(&own) as usize])?;
        assert!(huge.iter().all(|x| *x == 0.0), "sums do not overflow");
        let tiny = density_contrast(&rank.comm, &own, &vec![5e-320; volume(&own) as usize])?;
        assert!(tiny.iter().all(|x| *x == 0.0), "nor do they vanish");
        Ok::<_, Error>((points.len(), points.total(), mass))
    })
    .unwrap();
    assert_eq!(ranks.iter().map(|rank| rank.0).sum::<u64>(), 100);
    assert!(ranks.iter().all(|rank| rank.1 == 100));
    assert!((ranks.iter().map(|rank| rank.2).sum::<f64>() / 120.0 - 1.0).abs() < 1e-6);
}

/// Returns the spectrum of a mesh of 8 x 6 x 4 cells whose modes have these powers, on some ranks;
/// what each rank gets.
fn binned(ranks: usize, size: [f64; 3], power: impl Fn([u64; 3]) -> f64 + Sync) -> Vec<Result<Vec<Bin>, MeshError>> {
    let told = run_threads(ranks, |comm: Communicator| {
        // Half of the last axis is there.
        let part = [split(8, ranks as u64, comm.rank() as u64), 0..6, 0..3];
        let geometry = SpectrumGeometry { shape: [8, 6, 4], size, part: part.clone() };
        let at = |index: usize| [part[0].start + index as u64 / 18, index as u64 / 3 % 6, index as u64 % 3];
        Ok::<_, MeshError>(power_spectrum(&comm, &geometry, |index, _| power(at(index))))
    });
    told.unwrap()
}

#[test]
fn modes_that_are_no_numbers_are_errors_on_all_ranks() {
    let size = [8.0, 6.0, 4.0];
    // In a bin, at k = 0, in a corner beyond all bins; the first of two; on the first rank and on
    // the last.
    for (first, second) in
        [([5, 2, 1], [7, 0, 0]), ([0, 0, 0], [1, 0, 0]), ([4, 3, 2], [4, 4, 0]), ([1, 1, 2], [7, 5, 2])]
    {
        for bad in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let power = |at: [u64; 3]| match at {
                at if at == first => bad,
                at if at == second => f64::NAN,
                _ => 1.0,
            };
            for ranks in [1, 3] {
                for told in binned(ranks, size, power) {
                    let Err(MeshError::Mode { index, power }) = told else { panic!("{first:?} {bad}: {told:?}") };
                    assert_eq!(index, first, "{bad} on {ranks} ranks");
                    assert!(power == bad || power.is_nan() && bad.is_nan(), "{power} {bad}");
                }
            }
        }
    }
    // A finite power whose product with the volume is none.
    let told = binned(1, [1e20; 3], |at| if at == [2, 0, 0] { 1e300 } else { 1.0 }).remove(0);
    assert!(matches!(told, Err(MeshError::Mode { index: [2, 0, 0], .. })), "{told:?}");
    for (axis, side) in [(0, 0.0), (1, f64::NAN), (2, f64::INFINITY), (0, -1.0), (1, 1e200), (2, 1e-200)] {
        let mut wrong = size;
        wrong[axis] = side;
        for told in binned(2, wrong, |_| 1.0) {
            assert!(matches!(told, Err(MeshError::Size { axis: found, .. }) if found == axis), "{side}: {told:?}");
        }
    }
}

#[test]
fn powers_of_any_size_are_binned_alike() {
    // Different in every mode, some negative as after a subtraction.
    let power = |at: [u64; 3]| 1.0 + 0.37 * at[0] as f64 - 0.9 * at[1] as f64 + 0.11 * (at[2] * at[0]) as f64;
    let want = binned(1, [8.0; 3], power).remove(0).unwrap();
    // The same by plain sums: modes of |k| in fundamental ones, each of the half once for itself
    // and once mirrored.
    let mut sums = [[0.0; 2]; 3];
    let number = |at: u64, n: u64| if 2 * at < n { at as f64 } else { at as f64 - n as f64 };
    for at in (0..8).flat_map(|i| (0..6).flat_map(move |j| (0..3).map(move |k| [i, j, k]))) {
        let k = (number(at[0], 8).powi(2) + number(at[1], 6).powi(2) + number(at[2], 4).powi(2)).sqrt();
        let weight = if at[2] == 1 { 2.0 } else { 1.0 };
        if let Some(sum) = sums.get_mut((k + 0.5).floor() as usize) {
            *sum = [sum[0] + weight, sum[1] + weight * power(at)];
        }
    }
    for (bin, [modes, sum]) in want.iter().zip(&sums[1..]) {
        let mean = sum / modes * 512.0 / 192f64.powi(2);
        assert!(bin.modes as f64 == *modes && (bin.power - mean).abs() < 1e-12, "{bin:?} {mean}");
    }
    assert_eq!(want.len(), 2);
    // Powers of two scale exactly, however far.
    for scale in [2f64.powi(-1000), 2f64.powi(-60), 2f64.powi(900)] {
        for ranks in [1, 3] {
            for told in binned(ranks, [8.0; 3], |at| power(at) * scale) {
                let back: Vec<Bin> = told.unwrap().iter().map(|bin| Bin { power: bin.power / scale, ..*bin }).collect();
                assert_eq!(back, want, "{scale:e}");
            }
        }
    }
}

/// A case for the binning of modes on devices.
struct ModeCase {
    shape: [u64; 3],
    size: [f64; 3],
    window: Option<Window>,
    interlaced: bool,
}

/// Any mode, of a few orders of magnitude; `which` is 1 for that of shifted points.
fn any_mode(at: [u64; 3], which: u64) -> [f32; 2] {
    let number = |part: u64| {
        let bits = ((at[0] * 4099 + at[1]) * 4099 + at[2]).wrapping_mul(4).wrapping_add(2 * which + part);
        let bits = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((bits >> 40) as f32 / (1 << 23) as f32 - 1.0) * 10f32.powi((bits % 5) as i32 - 3)
    };
    [number(0), number(1)]
}

/// Modes on each rank's device.
fn measured(
    ranks: usize,
    options: &Options,
    case: &ModeCase,
    mode: impl Fn([u64; 3], u64) -> [f32; 2] + Sync,
) -> Vec<Result<Vec<Bin>, MeshError>> {
    let [n0, n1, n2] = case.shape;
    let told = run_threads(ranks, |comm: Communicator| {
        let gpu = Gpu::open(options, comm.rank())?;
        let mut recorder = Recorder::new(&gpu)?;
        let part = [split(n0, ranks as u64, comm.rank() as u64), 0..n1, 0..n2 / 2 + 1];
        let geometry = SpectrumGeometry { shape: case.shape, size: case.size, part: part.clone() };
        let mut upload = |which: u64| {
            let [x, y, z] = part.clone();
            let at = x.flat_map(|i| {
                y.clone().flat_map({
                    let z = z.clone();
                    move |j| z.clone().map(move |k| [i, j, k])
                })
            });
            let modes: Vec<[f32; 2]> = at.map(|at| mode(at, which)).collect();
            let array = gpu.array("modes", modes.len() as u64)?;
            recorder.upload(&array, 0, &modes)?;
            Ok::<_, MeshError>(array)
        };
        let (modes, shifted) = (upload(0)?, upload(1)?);
        let modes = Modes { modes: &modes, shifted: case.interlaced.then_some(&shifted), window: case.window };
        Ok::<_, MeshError>(ModeBinner::default().measure(&mut recorder, &comm, &geometry, modes))
    });
    told.unwrap()
}

/// Reference on the host in f64, and the bins of what rounding in f32 may change.
fn expected(case: &ModeCase, mode: impl Fn([u64; 3], u64) -> [f32; 2]) -> [Vec<Bin>; 2] {
    let half = case.shape[2] / 2 + 1;
    let part = [0..case.shape[0], 0..case.shape[1], 0..half];
    let geometry = SpectrumGeometry { shape: case.shape, size: case.size, part };
    let at =
        |index: usize| [index as u64 / half / case.shape[1], index as u64 / half % case.shape[1], index as u64 % half];
    let bins = |power: &dyn Fn([f64; 2], Option<[f64; 2]>) -> f64| {
        let of_mode = |index: usize, waves: [meshloom::fft::Wave; 3]| {
            let factor: f64 =
                case.window.map_or(1.0, |window| waves.iter().map(|w| window.transform(w.w).powi(-2)).product());
            let angle = waves.iter().map(|wave| wave.w / 2.0).sum::<f64>();
            let [re, im] = mode(at(index), 1).map(f64::from);
            let turned = [re * angle.cos() - im * angle.sin(), re * angle.sin() + im * angle.cos()];
            factor * power(mode(at(index), 0).map(f64::from), case.interlaced.then_some(turned))
        };
        power_spectrum(&Communicator::solo(), &geometry, of_mode).unwrap()
    };
    let square = |[re, im]: [f64; 2]| re * re + im * im;
    let exact = bins(&|mode, turned| match turned {
        Some(turned) => square([0.5 * (mode[0] + turned[0]), 0.5 * (mode[1] + turned[1])]),
        None => square(mode),
    });
    // Two products and a sum, seven factors of a window, and of interlacing tables, two products of
    // three phases and a sum.
    let error = bins(&|mode, turned| {
        let all = square(mode) + turned.map_or(0.0, square);
        (if turned.is_some() { 32.0 } else { 12.0 }) * f64::from(f32::EPSILON) / 2.0 * all
    });
    [exact, error]
}

#[test]
fn devices_bin_modes_as_the_host_does() {
    let options = meshloom_sanitizer::options().unwrap();
    for case in [
        ModeCase { shape: [12, 10, 14], size: [3.0, 3.0, 3.0], window: None, interlaced: false },
        ModeCase { shape: [9, 7, 5], size: [1.0, 2.0, 1.3], window: Some(Window::Pcs), interlaced: false },
        ModeCase { shape: [8, 8, 8], size: [5.0; 3], window: Some(Window::Cic), interlaced: true },
        // More bins than a workgroup holds, and one cell, which has none.
        ModeCase { shape: [1300, 2, 3], size: [1300.0, 1.0, 1.0], window: None, interlaced: false },
        ModeCase { shape: [1; 3], size: [1.0; 3], window: None, interlaced: false },
    ] {
        let [exact, error] = expected(&case, any_mode);
        let alone = measured(1, &options, &case, any_mode).remove(0).unwrap();
        assert_eq!(alone.len(), exact.len());
        for ((got, want), error) in alone.iter().zip(&exact).zip(&error) {
            assert_eq!((got.k, got.modes), (want.k, want.modes));
            assert!((got.power - want.power).abs() <= error.power, "{got:?} {want:?} {error:?}");
        }
        for ranks in [2, 3, 5] {
            // In many windows, if the device binds enough arrays.
            let many = Gpu::open(&options, 0).unwrap().capabilities().bindings >= 32 && !case.interlaced;
            let options = Options { window_bytes: many.then_some(4096), ..options.clone() };
            for told in measured(ranks, &options, &case, any_mode) {
                assert_eq!(told.unwrap(), alone, "{ranks} ranks");
            }
        }
    }
}

#[test]
fn devices_bin_modes_of_any_size_and_refuse_what_is_no_number() {
    let options = meshloom_sanitizer::options().unwrap();
    let case = ModeCase { shape: [8, 6, 4], size: [8.0; 3], window: None, interlaced: false };
    let want = measured(1, &options, &case, any_mode).remove(0).unwrap();
    // Powers of two scale exactly, also where squares leave f32.
    for power in [-90, -40, 60, 110] {
        let scaled = |at, which| any_mode(at, which).map(|value| value * 2f32.powi(power));
        let told = measured(2, &options, &case, scaled).remove(0).unwrap();
        let back: Vec<Bin> = told.iter().map(|bin| Bin { power: bin.power * 2f64.powi(-2 * power), ..*bin }).collect();
        assert_eq!(back, want, "2^{power}");
    }
    let nothing = measured(2, &options, &case, |_, _| [0.0, -0.0]).remove(0).unwrap();
    assert!(nothing.iter().all(|bin| bin.power == 0.0) && nothing.len() == want.len());
    for bad in [f32::NAN, f32::NEG_INFINITY] {
        // In a corner beyond all bins on the last rank, and after it.
        let broken = |at: [u64; 3], which| match at {
            [6, 3, 2] => [1.0, bad],
            [7, 0, 0] => [f32::NAN, 0.0],
            _ => any_mode(at, which),
        };
        for told in measured(3, &options, &case, broken) {
            let Err(MeshError::Mode { index, power }) = told else { panic!("{told:?}") };
            assert!(index == [6, 3, 2] && !power.is_finite(), "{index:?} {power}");
        }
    }
}

/// Two fields' modes on the devices of several ranks: cross-spectrum and multipoles against sums of
/// products on the host in f64.
#[test]
fn products_of_modes_are_those_of_the_host() {
    let options = meshloom_sanitizer::options().unwrap();
    for (ranks, shape, size, window) in [
        // Squares of wavenumbers beyond f32, and below it.
        (1, [12, 10, 14], [3e-25; 3], None),
        (3, [9, 7, 6], [1.0, 2.0, 1.3], Some(Window::Tsc)),
        (2, [8, 1, 8], [5e22; 3], None),
        // So flat that modes across are beyond all bins.
        (1, [8, 4, 6], [2.0, 1e-50, 2.0], None),
    ] {
        let half = shape[2] / 2 + 1;
        let whole = SpectrumGeometry { shape, size, part: [0..shape[0], 0..shape[1], 0..half] };
        let at = |index: usize| [index as u64 / half / shape[1], index as u64 / half % shape[1], index as u64 % half];
        let sum = |value: &dyn Fn([f64; 2], [f64; 2], [f64; 3]) -> f64| -> Vec<f64> {
            let of_mode = |index: usize, waves: [meshloom::fft::Wave; 3]| {
                let factor: f64 =
                    window.map_or(1.0, |w: Window| waves.iter().map(|v| w.transform(v.w).powi(-2)).product());
                let square = waves.iter().map(|wave| wave.k * wave.k).sum::<f64>();
                let mu2 = waves.map(|wave| if square > 0.0 { wave.k * wave.k / square } else { 0.0 });
                let [a, b] = [0, 1].map(|which| any_mode(at(index), which).map(f64::from));
                factor * value(a, b, mu2)
            };
            power_spectrum(&Communicator::solo(), &whole, of_mode).unwrap().iter().map(|bin| bin.power).collect()
        };
        let (dot, norm) = (|a: [f64; 2], b: [f64; 2]| a[0] * b[0] + a[1] * b[1], |a: [f64; 2]| a[0].hypot(a[1]));
        // Powers are summed from 0 on, so the product is shifted and shifted back.
        let size_of = sum(&|a, b, _| norm(a) * norm(b));
        let cross: Vec<f64> =
            sum(&|a, b, _| dot(a, b) + norm(a) * norm(b)).iter().zip(&size_of).map(|(x, y)| x - y).collect();
        let both = sum(&|a, b, _| dot(a, a) + dot(b, b));
        let moments = [0, 1, 2].map(|axis| [0, 1, 2].map(|power| sum(&|a, _, mu2| dot(a, a) * mu2[axis].powi(power))));
        let told = run_threads(ranks, |comm: Communicator| {
            let gpu = Gpu::open(&options, comm.rank())?;
            let mut recorder = Recorder::new(&gpu)?;
            let part = [split(shape[0], ranks as u64, comm.rank() as u64), 0..shape[1], 0..half];
            let first = part[0].start as usize * (shape[1] * half) as usize;
            let upload = |recorder: &mut Recorder, which: u64| {
                let modes: Vec<[f32; 2]> =
                    (0..volume(&part) as usize).map(|i| any_mode(at(first + i), which)).collect();
                let array = gpu.array("modes", modes.len() as u64)?;
                recorder.upload(&array, 0, &modes)?;
                Ok::<_, MeshError>(array)
            };
            let arrays = [upload(&mut recorder, 0)?, upload(&mut recorder, 1)?];
            let geometry = SpectrumGeometry { shape, size, part };
            let [a, b] = arrays.each_ref().map(|modes| Modes { modes, shifted: None, window });
            let binner = ModeBinner::default();
            let cross = binner.cross(&mut recorder, &comm, &geometry, [a, b])?;
            let mut sights = Vec::new();
            for axis in 0..3 {
                sights.push(binner.multipoles(&mut recorder, &comm, &geometry, a, axis)?);
            }
            Ok::<_, MeshError>((cross, sights))
        });
        let told = told.unwrap();
        assert!(told.iter().all(|of| *of == told[0]), "all ranks have the same");
        let (got, sights) = &told[0];
        assert_eq!(got.len(), cross.len());
        for (i, (got, want)) in got.iter().zip(&cross).enumerate() {
            // Sums and differences and their powers round a dozen times, and seven factors of a
            // window.
            assert!((got.power - want).abs() <= 32.0 * f64::from(f32::EPSILON) * both[i], "{i}: {} {want}", got.power);
        }
        for (sights, [p0, p2, p4]) in sights.iter().zip(&moments) {
            for (i, got) in sights.iter().enumerate() {
                let bound = 40.0 * 64.0 * f64::from(f32::EPSILON) * p0[i];
                assert!((got.monopole.power - p0[i]).abs() <= bound);
                // 5 L_2 and 9 L_4.
                let (two, four) = (7.5 * p2[i] - 2.5 * p0[i], 9.0 / 8.0 * (35.0 * p4[i] - 30.0 * p2[i] + 3.0 * p0[i]));
                assert!((got.quadrupole - two).abs() <= bound, "{i}: {} {two}", got.quadrupole);
                assert!((got.hexadecapole - four).abs() <= bound, "{i}: {} {four}", got.hexadecapole);
            }
        }
    }
}

#[test]
fn the_program_writes_cross_spectra_and_multipoles() {
    let scratch = Scratch::new();
    // A field and its double, and a wave along z beside them.
    let n = 12usize;
    let field: Vec<f32> = white(n.pow(3), 3).iter().map(|w| (1.0 + 0.1 * w) as f32).collect();
    let double: Vec<f32> = field.iter().map(|x| 1.0 + 2.0 * (x - 1.0)).collect();
    let along = |i: usize| 1.0 + 0.5 * (2.0 * PI * 3.0 * (i % n) as f64 / n as f64).cos() as f32;
    let shape = [n as u64; 3];
    let one = scratch.save("one.npy", &shape, &field);
    let other = scratch.save("other.npy", &shape, &double).display().to_string();
    let wave = scratch.save("wave.npy", &shape, &(0..n.pow(3)).map(along).collect::<Vec<f32>>());
    let columns = |input: &Path, words: &str, names: &str| -> Vec<Vec<f64>> {
        let out = scratch.run(input, &format!("--box 24 {words}"));
        assert!(out.status.success(), "{}", text(&out.stderr));
        let csv = std::fs::read_to_string(scratch.path("out.csv")).unwrap();
        assert_eq!(csv.lines().next(), Some(names));
        csv.lines().skip(1).map(|line| line.split(',').map(|word| word.parse().unwrap()).collect()).collect()
    };
    let names = "k,P,modes,P_other,P_cross,correlation";
    let rows = columns(&one, &format!("--cross {other}"), names);
    // Each is divided by its own mean, which is that of a tenth of noise away from 1.
    let ratio = rows[0][4] / rows[0][1];
    assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
    for row in &rows {
        assert!((row[3] / row[1] / ratio.powi(2) - 1.0).abs() < 1e-4, "{row:?}");
        assert!((row[4] / row[1] / ratio - 1.0).abs() < 1e-4 && (row[5] - 1.0).abs() < 1e-4, "{row:?}");
    }
    assert_eq!(columns(&one, &format!("--cross {other} --ranks 3"), names), rows);
    // Random points have little power but shot noise, and none or less without it; a catalog and
    // itself are one nevertheless.
    let random = scratch.save_points("random.npy", &points(300, 5, [24.0; 3]));
    for row in columns(&random, &format!("--cross {} --mesh 16 --shot-noise", random.display()), names) {
        assert!(row[1] == row[3] && row[1] < row[4] && (row[5] - 1.0).abs() < 1e-6, "{row:?}");
    }
    for (axis, quadrupole, hexadecapole) in [("z", 5.0, 9.0), ("x", -2.5, 27.0 / 8.0)] {
        let rows = columns(&wave, &format!("--multipoles {axis}"), "k,P,modes,P2,P4");
        // All power is in the mode along z.
        let row = rows.iter().max_by(|a, b| a[1].total_cmp(&b[1])).unwrap();
        assert!(
            (row[3] / row[1] - quadrupole).abs() < 1e-4 && (row[4] / row[1] - hexadecapole).abs() < 1e-4,
            "{row:?}"
        );
    }
    // No points have no bins, and each column one name.
    let none = scratch.save::<f32>("none_at_all.npy", &[0, 3], &[]);
    let out = scratch.run(&none, "--box 1 --multipoles x");
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(std::fs::read_to_string(scratch.path("out.csv")).unwrap().trim_end(), "k,P,modes,P2,P4");
    let small = scratch.save("small.npy", &[4, 4, 4], &[1.0f32; 64]).display().to_string();
    for (words, code, says) in [
        (format!("--cross {small}"), 1, "one mesh"),
        (format!("--cross {}", scratch.path("none.npy").display()), 1, "none.npy"),
        ("--multipoles w".into(), 2, "multipoles"),
    ] {
        let out = scratch.run(&one, &format!("--box 24 {words}"));
        assert!(out.status.code() == Some(code) && text(&out.stderr).contains(says), "{}", text(&out.stderr));
    }
}

/// A point of weight 3 is three points. Shot noise is that of unequal weights.
#[test]
fn weights_count_as_so_many_points() {
    let scratch = Scratch::new();
    let naive = Naive { shape: [12, 10, 8], size: [30.0, 20.0, 24.0] };
    let points = points(200, 12, naive.size);
    let weights: Vec<f32> = (0..200).map(|i| [1.0, 3.0, 0.0, 2.0][i % 4]).collect();
    let repeated: Vec<[f64; 3]> =
        points.iter().zip(&weights).flat_map(|(x, &weight)| vec![*x; weight as usize]).collect();
    let file = scratch.save_points("points.npy", &points);
    let masses = scratch.save("masses.npy", &[200], &weights).display().to_string();
    for (window, words, interlace) in [(Window::Cic, "cic", false), (Window::Tsc, "tsc --deconvolve --interlace", true)]
    {
        let words = format!("--box 30,20,24 --mesh 12,10,8 --masses {masses} --window {words}");
        let spectrum = scratch.spectrum(&file, &words);
        let error = difference(&spectrum, &naive.spectrum(&repeated, window, interlace, interlace));
        assert!(error < 1e-6, "{words}: {error:e}");
        // Units of the weights have no effect, and neither have ranks.
        let ranks = scratch.spectrum(&file, &format!("{words} --ranks 3 --grid 3x1"));
        assert_eq!(ranks, spectrum);
    }
    let words = format!("--box 30,20,24 --mesh 12 --weights {masses}");
    let (all, less) = (scratch.spectrum(&file, &words), scratch.spectrum(&file, &format!("{words} --shot-noise")));
    let (sum, squares) = (200.0 / 4.0 * 6.0, 200.0 / 4.0 * 14.0);
    for (all, less) in all.iter().zip(less) {
        let noise = 30.0 * 20.0 * 24.0 * squares / (sum * sum);
        assert!((all[1] - less[1] - noise).abs() < 1e-9 * noise.max(all[1]), "{all:?} {less:?}");
    }
    let zeros = scratch.save("zeros.npy", &[200], &[0f32; 200]);
    let negative = scratch.save("negative.npy", &[200], &(0..200).map(|i| 5.0 - i as f32).collect::<Vec<_>>());
    let few = scratch.save("few.npy", &[199], &[1f32; 199]);
    for (path, says) in
        [(&zeros, "zeros.npy: 200 weights"), (&negative, "negative.npy: the element at (6,) is -1"), (&few, "(199,)")]
    {
        let out = scratch.run(&file, &format!("--box 30,20,24 --mesh 12 --masses {} --ranks 2", path.display()));
        assert!(out.status.code() == Some(1) && text(&out.stderr).contains(says), "{}", text(&out.stderr));
        assert!(!scratch.path("out.csv").exists());
    }
    let out = scratch.run(&masses_field(&scratch), &format!("--box 30 --masses {masses}"));
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("--masses is for points"));
}

fn masses_field(scratch: &Scratch) -> PathBuf {
    scratch.save("field.npy", &[4; 3], &[1f32; 64])
}

/// A contrast has a mean near 0: dividing by it would give any number.
#[test]
fn contrasts_are_measured_as_they_are() {
    let scratch = Scratch::new();
    let naive = Naive { shape: [10, 8, 6], size: [20.0; 3] };
    let shape = naive.shape.map(|n| n as u64);
    let contrast: Vec<f64> = white(naive.cells(), 9).iter().map(|w| 0.1 * w).collect();
    let mean = contrast.iter().sum::<f64>() / contrast.len() as f64;
    let balanced: Vec<f64> = (0..naive.cells()).map(|i| if i % 3 == 0 { -2.0 } else { 1.0 }).collect();
    let density: Vec<f64> = contrast.iter().map(|d| 1.0 + d).collect();
    // Few points in many cells: the mean is small beside the spread, and right nevertheless.
    let sparse: Vec<f64> = (0..naive.cells()).map(|i| f64::from(u8::from(i % 240 == 7))).collect();
    let save = |name: &str, values: &[f64]| scratch.save(name, &shape, values);
    let squares = |values: &[f64]| naive.transform(values).iter().map(Complex::norm_sqr).collect::<Vec<_>>();
    let files = [("contrast", &contrast), ("balanced", &balanced)].map(|(name, values)| (save(name, values), values));
    for (file, values) in &files {
        let error = difference(&scratch.spectrum(file, "--box 20 --contrast"), &naive.bins(&squares(values)));
        assert!(error < 1e-6, "{}: {error:e}", file.display());
        let out = scratch.run(file, "--box 20");
        let error = text(&out.stderr);
        assert!(out.status.code() == Some(1) && error.lines().count() == 1, "{error}");
        assert!(error.contains("expected a density") && error.contains("--contrast"), "{error}");
    }
    for (name, values) in [("density", &density), ("sparse", &sparse)] {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let scaled: Vec<f64> = values.iter().map(|value| value / mean).collect();
        let error = difference(&scratch.spectrum(&save(name, values), "--box 20"), &naive.bins(&squares(&scaled)));
        assert!(error < 1e-6, "{name}: {error:e}");
    }
    // The contrast and the density of it have the same phases, whatever is normalized.
    let cross = |first: &str, other: &str, option: &str| -> Vec<Vec<f64>> {
        let (first, other) = (scratch.path(first), scratch.path(other).display().to_string());
        let out = scratch.run(&first, &format!("--box 20 --cross {other} {option}"));
        assert!(out.status.success(), "{}", text(&out.stderr));
        let csv = std::fs::read_to_string(scratch.path("out.csv")).unwrap();
        csv.lines().skip(1).map(|line| line.split(',').map(|word| word.parse().unwrap()).collect()).collect()
    };
    for (first, other, option, ratio) in [
        ("contrast", "density", "--contrast", 1.0),
        ("contrast", "density", "--contrast=first", 1.0 / (1.0 + mean)),
        ("density", "contrast", "--contrast=other", 1.0 + mean),
    ] {
        for row in cross(first, other, option) {
            assert!((row[5] - 1.0).abs() < 1e-5 && row[5] <= 1.0, "{option}: {row:?}");
            assert!((row[4] / row[1] / ratio - 1.0).abs() < 1e-5, "{option}: {row:?}");
        }
    }
    let file = scratch.save_points("points.npy", &points(40, 1, [20.0; 3]));
    for words in ["--contrast", "--contrast=other"] {
        let out = scratch.run(&file, &format!("--box 20 {words}"));
        assert!(out.status.code() == Some(2) && text(&out.stderr).contains("--contrast"), "{}", text(&out.stderr));
    }
}
