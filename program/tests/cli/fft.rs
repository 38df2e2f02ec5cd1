//! `meshloom fft`: what NumPy's transforms give, on any number of ranks, and its errors.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cli::{Call, Ranks, Scratch, files, has_mpi};
use meshloom::io::{Dtype, NpyElement, NpyFile, NpyWriter, token};
use rustfft::{FftDirection, FftPlanner, num_complex::Complex};
use serde_json::Value;

type Values = Vec<Complex<f64>>;

/// An array in f64.
#[derive(Clone)]
struct Whole {
    shape: Vec<u64>,
    values: Values,
}

/// Numbers in `-0.5..0.5` that are the same in f32 and f64.
fn uniform(seed: u64, count: u64) -> impl Iterator<Item = f64> {
    let hash = move |i: u64| (i ^ seed << 32).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..count).map(move |i| (hash(hash(i)) >> 40) as f64 / 16_777_216.0 - 0.5)
}

impl Whole {
    fn complex(shape: &[u64]) -> Self {
        let count = shape.iter().product();
        let values = uniform(1, count).zip(uniform(2, count)).map(|(re, im)| Complex::new(re, im)).collect();
        Whole { shape: shape.into(), values }
    }

    fn real(shape: &[u64]) -> Self {
        let mut whole = Self::complex(shape);
        whole.values.iter_mut().for_each(|v| v.im = 0.0);
        whole
    }

    /// Along some axes, without factor.
    fn along(mut self, axes: impl Iterator<Item = usize>, direction: FftDirection) -> Self {
        for axis in axes {
            let n = self.shape[axis] as usize;
            let stride = self.shape[axis + 1..].iter().product::<u64>() as usize;
            let fft = FftPlanner::new().plan_fft(n, direction);
            for start in (0..self.values.len()).filter(|i| (i / stride).is_multiple_of(n)) {
                let mut line: Values = (0..n).map(|j| self.values[start + j * stride]).collect();
                fft.process(&mut line);
                line.into_iter().enumerate().for_each(|(j, v)| self.values[start + j * stride] = v);
            }
        }
        self
    }

    /// With the last axis cut, or followed by zeros.
    fn resized(&self, len: u64) -> Self {
        let have = *self.shape.last().unwrap();
        let row = |row: &[Complex<f64>]| {
            (0..len as usize).map(|k| row.get(k).copied().unwrap_or_default()).collect::<Values>()
        };
        let values = self.values.chunks(have as usize).flat_map(row).collect();
        let mut shape = self.shape.clone();
        *shape.last_mut().unwrap() = len;
        Whole { shape, values }
    }

    fn scaled(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|v| *v *= factor);
        self
    }

    fn points(&self) -> f64 {
        self.values.len() as f64
    }

    /// `fftn` and `rfftn`.
    fn forward(self, real: bool, norm: &str) -> Self {
        let factor = [1.0, self.points().sqrt().recip(), self.points().recip()][norm_index(norm)];
        let (axes, last) = (self.shape.len(), *self.shape.last().unwrap());
        let whole = self.along(0..axes, FftDirection::Forward).scaled(factor);
        if real { whole.resized(last / 2 + 1) } else { whole }
    }

    /// `ifftn`.
    fn inverse(self, norm: &str) -> Self {
        let factor = [self.points().recip(), self.points().sqrt().recip(), 1.0][norm_index(norm)];
        let axes = self.shape.len();
        self.along(0..axes, FftDirection::Inverse).scaled(factor)
    }

    /// `irfftn` with `n` cells along the last axis.
    fn inverse_real(self, n: u64, norm: &str) -> Self {
        let last = self.shape.len() - 1;
        let mut whole = self.resized(n / 2 + 1).along(0..last, FftDirection::Inverse).resized(n);
        for row in whole.values.chunks_mut(n as usize) {
            // Modes without a partner are those of real numbers, whatever they are given as.
            row[0].im = 0.0;
            for k in 1..=row.len() / 2 {
                let partner = row.len() - k;
                if k == partner { row[k].im = 0.0 } else { row[partner] = row[k].conj() }
            }
        }
        let factor = [whole.points().recip(), whole.points().sqrt().recip(), 1.0][norm_index(norm)];
        whole.along(last..last + 1, FftDirection::Inverse).scaled(factor)
    }
}

const NORMS: [&str; 3] = ["backward", "ortho", "forward"];

fn norm_index(norm: &str) -> usize {
    NORMS.iter().position(|n| *n == norm).unwrap()
}

fn write<T: NpyElement>(path: &Path, shape: &[u64], values: &[T]) {
    let file = NpyWriter::create(path, shape, &token()).unwrap();
    file.write(0, values).unwrap();
    file.finish().unwrap();
}

/// Saves an array in one of NumPy's types.
fn save(scratch: &Scratch, name: &str, whole: &Whole, dtype: Dtype) -> String {
    let (path, shape, values) = (scratch.join(name), &whole.shape, &whole.values);
    match dtype {
        Dtype::F32 => write(&path, shape, &values.iter().map(|v| v.re as f32).collect::<Vec<_>>()),
        Dtype::F64 => write(&path, shape, &values.iter().map(|v| v.re).collect::<Vec<_>>()),
        Dtype::C64 => write(&path, shape, &values.iter().map(|v| [v.re as f32, v.im as f32]).collect::<Vec<_>>()),
        _ => write(&path, shape, &values.iter().map(|v| [v.re, v.im]).collect::<Vec<_>>()),
    }
    scratch.word(name)
}

fn call(input: &str, output: &str, words: &str) -> Call {
    let words: Vec<&str> = ["fft", input, "-o", output].into_iter().chain(words.split_whitespace()).collect();
    Call::new(&words)
}

/// Transforms a file, and the output must be what it should be: type, shape and, within the
/// accuracy law, values.
#[track_caller]
fn check(scratch: &Scratch, input: &str, words: &str, dtype: Dtype, want: &Whole) {
    let output = scratch.word("out.npy");
    call(input, &output, words).succeeds();
    let file = NpyFile::open(&output).unwrap();
    assert_eq!((file.shape(), file.dtype()), (&want.shape[..], dtype), "{words}");
    let got = file.read_c64(0..file.len()).unwrap();
    let points = want.points();
    let single = matches!(dtype, Dtype::F32 | Dtype::C64);
    let mut tolerance = if single { 1e-6 + 2.5e-7 * points.log10() } else { 2e-15 + 5e-16 * points.log10() };
    if want.shape.iter().any(|&n| (14..=n).any(|p| n % p == 0 && (2..p).all(|q| p % q != 0))) {
        tolerance *= 2.0;
    }
    let largest = want.values.iter().map(|v| v.norm()).fold(0.0, f64::max);
    let error = got.iter().zip(&want.values).map(|(a, b)| (Complex::new(a[0], a[1]) - b).norm()).fold(0.0, f64::max);
    assert!(error <= tolerance * largest, "{:?} {words}: {} of {tolerance}", want.shape, error / largest);
}

fn agrees(shapes: &[&[u64]]) {
    let scratch = Scratch::new();
    for (i, shape) in shapes.iter().enumerate() {
        let norm = NORMS[i % 3];
        let words = |rest: &str| format!("{rest} --norm {norm} --ranks {}", 1 + i % 3);
        let (real, complex) = (Whole::real(shape), Whole::complex(shape));
        // Each transform in one of the precisions, in turn.
        let types = [[Dtype::F32, Dtype::C64], [Dtype::F64, Dtype::C128]];
        let ([real_type, wide_type], [narrow_type, complex_type]) = (types[i % 2], types[1 - i % 2]);
        let input = save(&scratch, "real.npy", &real, real_type);
        check(&scratch, &input, &words("--real"), wide_type, &real.clone().forward(true, norm));
        check(&scratch, &input, &words(""), wide_type, &real.forward(false, norm));
        let input = save(&scratch, "complex.npy", &complex, complex_type);
        check(&scratch, &input, &words("--inverse"), complex_type, &complex.clone().inverse(norm));
        let n = 2 * (shape.last().unwrap() - 1);
        let (n, last) = if n > 0 { (n, "") } else { (1, "--last-size 1") };
        let words = words(&format!("--inverse --real {last}"));
        check(&scratch, &input, &words, narrow_type, &complex.inverse_real(n, norm));
    }
}

#[test]
fn one_axis_agrees_with_f64() {
    agrees(&[&[1], &[7], &[64], &[1000], &[4097]]);
}

#[test]
fn more_axes_agree_with_f64() {
    agrees(&[&[5, 8], &[1, 9], &[16, 15], &[4, 6, 10], &[7, 5, 9]]);
}

#[test]
fn complex_input_goes_forward_too() {
    let scratch = Scratch::new();
    let whole = Whole::complex(&[3, 4]);
    for (norm, dtype) in NORMS.into_iter().zip([Dtype::C64, Dtype::C128, Dtype::C64]) {
        let input = save(&scratch, "in.npy", &whole, dtype);
        check(&scratch, &input, &format!("--norm {norm}"), dtype, &whole.clone().forward(false, norm));
    }
}

#[test]
fn a_half_spectrum_is_cropped_and_padded() {
    let scratch = Scratch::new();
    // Of numbers that no real field has: modes without partners have imaginary parts.
    let whole = Whole::complex(&[3, 2, 6]);
    let input = save(&scratch, "in.npy", &whole, Dtype::C64);
    for (i, n) in [10, 11, 6, 7, 2, 1, 12, 15].into_iter().enumerate() {
        let (norm, ranks) = (NORMS[i % 3], 1 + i % 4);
        let words = format!("--inverse --real --last-size {n} --norm {norm} --ranks {ranks}");
        check(&scratch, &input, &words, Dtype::F32, &whole.clone().inverse_real(n, norm));
    }
    let whole = Whole::complex(&[1]);
    let input = save(&scratch, "one.npy", &whole, Dtype::C128);
    check(&scratch, &input, "--inverse --real --last-size 4", Dtype::F64, &whole.inverse_real(4, "backward"));
    // Real numbers are complex ones.
    let whole = Whole::real(&[5]);
    let input = save(&scratch, "real.npy", &whole, Dtype::F32);
    check(&scratch, &input, "--inverse --real", Dtype::F32, &whole.inverse_real(8, "backward"));
}

#[test]
fn the_same_bytes_on_any_ranks() {
    let scratch = Scratch::new();
    let output = scratch.word("out.npy");
    let bytes = |input: &str, words: &str, ranks: Ranks| {
        call(input, &output, words).on(ranks).succeeds();
        let bytes = fs::read(&output).unwrap();
        fs::remove_file(&output).unwrap();
        bytes
    };
    for (shape, words) in [
        (&[7, 5, 9][..], "--real"),
        (&[7, 5, 9][..], "--inverse --real --last-size 11"),
        (&[6, 10][..], "--norm ortho"),
        (&[12][..], "--inverse"),
    ] {
        let input = save(&scratch, "in.npy", &Whole::real(shape), Dtype::F32);
        let want = bytes(&input, words, Ranks::Threads(1));
        for ranks in [2, 3, 5] {
            assert!(bytes(&input, words, Ranks::Threads(ranks)) == want, "{shape:?} {words}: {ranks} threads");
        }
        let grid = format!("{words} --grid 2x2");
        assert!(bytes(&input, &grid, Ranks::Threads(4)) == want, "{shape:?} {words}: pencils");
    }
    if has_mpi() {
        let input = save(&scratch, "in.npy", &Whole::real(&[7, 5, 9]), Dtype::F64);
        let want = bytes(&input, "--real", Ranks::Threads(1));
        assert!(bytes(&input, "--real --grid auto", Ranks::Mpi(3)) == want, "3 ranks under MPI");
    }
}

/// Returns a `.npy` file of what stands in `data`.
fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    let text = format!("{text:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn all_numbers_and_byte_orders_are_read() {
    let scratch = Scratch::new();
    let numbers = [3i16, 0, 120, 7, 64, 11];
    let whole = |shape: &[u64]| {
        let values = numbers.iter().map(|&n| f64::from(n).into()).collect();
        Whole { shape: shape.into(), values }.forward(true, "backward")
    };
    let want = whole(&[2, 3]);
    let bytes = |convert: fn(i16) -> Vec<u8>| numbers.iter().flat_map(|&n| convert(n)).collect::<Vec<u8>>();
    for (descr, data) in [
        ("|i1", bytes(|n| vec![n as u8])),
        ("|u1", bytes(|n| vec![n as u8])),
        ("<i2", bytes(|n| n.to_le_bytes().into())),
        (">u4", bytes(|n| (n as u32).to_be_bytes().into())),
        ("<i8", bytes(|n| i64::from(n).to_le_bytes().into())),
        (">f8", bytes(|n| f64::from(n).to_be_bytes().into())),
    ] {
        let input = scratch.file("in.npy", npy(descr, false, "(2, 3)", &data));
        check(&scratch, &input, "--real", Dtype::C128, &want);
    }
    let input = scratch.file("in.npy", npy(">f4", false, "(2, 3)", &bytes(|n| f32::from(n).to_be_bytes().into())));
    check(&scratch, &input, "--real", Dtype::C64, &want);
    // In Fortran order column after column.
    let columns: Vec<u8> =
        [0, 3, 1, 4, 2, 5].iter().flat_map(|&at: &usize| f32::from(numbers[at]).to_le_bytes()).collect();
    let input = scratch.file("in.npy", npy("<f4", true, "(2, 3)", &columns));
    check(&scratch, &input, "--real", Dtype::C64, &want);
    // Truth values are 0 and 1, as NumPy has them.
    let truths = numbers.map(|n| u8::from(n > 5));
    let values = truths.map(|n| f64::from(n).into()).into();
    let want = Whole { shape: [2, 3].into(), values }.forward(true, "backward");
    let input = scratch.file("in.npy", npy("|b1", false, "(2, 3)", &truths));
    check(&scratch, &input, "--real", Dtype::C128, &want);
    // Wide integers are transformed in f64 unless f32 is asked for, which is said.
    let (input, output) = (
        scratch.file("in.npy", npy("<i8", false, "(2, 3)", &bytes(|n| i64::from(n).to_le_bytes().into()))),
        scratch.word("out.npy"),
    );
    let call = |more: &[&str]| Call::new(&[&["fft", &input, "-o", &output], more].concat());
    call(&[]).succeeds();
    let warned = call(&["--precision", "f32"]).run();
    assert!(warned.status.success() && warned.stderr.contains("warning: integers beyond 2^24 of"), "{warned:#?}");
    // In one line both orders are the same.
    let input = scratch.file("in.npy", npy("<i2", true, "(1, 6)", &bytes(|n| n.to_le_bytes().into())));
    check(&scratch, &input, "--real --precision f32", Dtype::C64, &whole(&[1, 6]));
    let complex = Whole::complex(&[6]);
    let input = save(&scratch, "in.npy", &complex, Dtype::C64);
    check(&scratch, &input, "--precision f64", Dtype::C128, &complex.clone().forward(false, "backward"));
    let input = save(&scratch, "in.npy", &complex, Dtype::C128);
    check(&scratch, &input, "--precision f32", Dtype::C64, &complex.forward(false, "backward"));
}

#[test]
fn an_input_is_not_replaced() {
    let scratch = Scratch::new();
    let input = save(&scratch, "in.npy", &Whole::complex(&[4, 6]), Dtype::C64);
    let before = fs::read(&input).unwrap();
    call(&input, &input, "--ranks 2").run().is_error(
        "input and output",
        2,
        &["in.npy", "give the output another name"],
    );
    assert_eq!(fs::read(&input).unwrap(), before);
    assert_eq!(files(scratch.path()).len(), 1);
}

#[test]
fn what_is_not_finite_passes_through() {
    let scratch = Scratch::new();
    let (input, output) = (scratch.join("in.npy"), scratch.word("out.npy"));
    write(&input, &[4], &[1.0f32, f32::NAN, 3.0, 4.0]);
    call(input.to_str().unwrap(), &output, "--real").succeeds();
    let modes = NpyFile::open(&output).unwrap().read_c32(0..3).unwrap();
    assert!(modes[0][0].is_nan() && modes[1][1].is_nan() && modes[2][0].is_nan(), "{modes:?}");
}

#[test]
fn what_leaves_f32_is_an_error() {
    let scratch = Scratch::new();
    let (input, output) = (scratch.join("in.npy"), scratch.word("out.npy"));
    write(&input, &[4, 64], &[1e37f32; 256]);
    for words in ["", "--real --ranks 2", "--inverse --norm forward"] {
        call(input.to_str().unwrap(), &output, words).run().is_error(
            words,
            1,
            &["out.npy", "the element at (", "--precision f64", "f32"],
        );
        assert_eq!(files(scratch.path()).len(), 1, "{words}");
    }
    write(&input, &[4, 64], &[1e35f32; 256]);
    call(input.to_str().unwrap(), &output, "").succeeds();
}

#[test]
fn a_run_describes_itself() {
    let scratch = Scratch::new();
    let input = save(&scratch, "in.npy", &Whole::complex(&[4, 6, 5]), Dtype::C64);
    let output = scratch.word("out.npy");
    assert!(call(&input, &output, "").succeeds().stdout.is_empty());
    let words = "--inverse --real --last-size 9 --norm ortho --precision f64 --json --ranks 2 --grid auto --quiet";
    let text = call(&input, &output, words).succeeds().stdout;
    let report: Value = serde_json::from_str(&text).expect("one JSON object and nothing else");
    let want = serde_json::json!({
        "command": "fft",
        "input": { "path": input, "shape": [4, 6, 5], "dtype": "complex64" },
        "output": { "path": output, "shape": [4, 6, 9], "dtype": "float64" },
        "transform": "irfftn",
        "norm": "ortho",
        "precision": "f64",
        "ranks": 2,
        "grid": [2, 1],
    });
    for (key, want) in want.as_object().unwrap() {
        assert_eq!(&report[key], want, "{key}: {report:#}");
    }
    for phase in ["plan", "read", "transform", "write", "total"] {
        assert!(report["seconds"][phase].is_f64(), "{phase}: {report:#}");
    }
    let number = |value: &Value| value.as_u64().unwrap();
    // There and back for the natural order: half of the modes each time.
    assert_eq!(number(&report["bytes"]["between_ranks"]), 2 * 4 * 6 * 5 / 2 * 16, "{report:#}");
    assert!(number(&report["bytes"]["device"]) > 0 && number(&report["messages"]) > 0 && report["device"].is_string());
}

struct Row {
    name: &'static str,
    words: String,
    code: i32,
    says: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    mpi: bool,
}

fn row(name: &'static str, words: impl Into<String>, code: i32, says: &'static [&'static str]) -> Row {
    Row { name, words: words.into(), code, says, env: &[], mpi: false }
}

impl Row {
    fn mpi(self) -> Self {
        Row { mpi: true, ..self }
    }
}

/// Runs every row in every way; of none anything may be left, and what stood there must stand there
/// still.
fn all_fail(rows: &[Row]) {
    let mpi = has_mpi();
    let scratch = Scratch::new();
    let output = scratch.file("out.npy", "as it was");
    for row in rows {
        let mut ways = vec![Ranks::Threads(1)];
        if !row.words.contains("--ranks") && !row.words.contains("--grid") {
            ways.push(Ranks::Threads(3));
        }
        if mpi && row.mpi {
            ways.push(Ranks::Mpi(2));
        }
        for ranks in ways {
            let words: Vec<&str> = row.words.split_whitespace().collect();
            let mut call = Call::new(&[&["fft"], &words[..]].concat()).on(ranks);
            if !words.contains(&"-o") {
                call.words.extend(["-o".into(), output.clone()]);
            }
            for (name, value) in row.env {
                call = call.env(name, value);
            }
            call.run().is_error(row.name, row.code, row.says);
            assert_eq!(fs::read(&output).unwrap(), b"as it was", "{}", row.name);
            assert_eq!(files(scratch.path()).len(), 1, "{}: {:?}", row.name, files(scratch.path()));
        }
    }
}

#[test]
fn wrong_words_exit_2() {
    let scratch = Scratch::new();
    let good = save(&scratch, "good.npy", &Whole::complex(&[4, 6]), Dtype::C64);
    let with = |words: &str| format!("{good} {words}");
    all_fail(&[
        row("last size forward", with("--last-size 4"), 2, &["--last-size", "--inverse --real"]).mpi(),
        row("last size of rfftn", with("--last-size 4 --real"), 2, &["--last-size", "--inverse --real"]),
        row("last size of ifftn", with("--last-size 4 --inverse"), 2, &["--last-size", "--inverse --real"]),
        row("no last size", with("--inverse --real --last-size 0"), 2, &["--last-size"]),
        row("negative last size", with("--inverse --real --last-size=-4"), 2, &["--last-size"]),
        row("huge last size", with("--inverse --real --last-size 18446744073709551615"), 2, &["--last-size"]),
        row("half a last size", with("--inverse --real --last-size 4.5"), 2, &["--last-size", "4.5"]),
        row("norm", with("--norm unitary"), 2, &["unitary", "ortho"]),
        row("precision", with("--precision f16"), 2, &["f16", "f64"]),
        row("option", with("--revers"), 2, &["--revers"]),
        row("grid", with("--grid 2x2"), 2, &["2x2"]).mpi(),
        row("grid is none", with("--grid automatic"), 2, &["automatic", "auto"]),
        row("no ranks", with("--ranks 0"), 2, &["--ranks"]),
        row("device", with("--device nosuch"), 2, &["no adapter matches `nosuch`"]).mpi(),
        row("no input", "", 2, &["IN.npy"]),
        row("standard input", "-", 2, &["-: standard input"]),
        row("standard output", with("-o -"), 2, &["-: an array cannot be written to standard output"]).mpi(),
    ]);
    Call::new(&["fft", &good]).run().is_error("no output", 2, &["--output"]);
}

#[test]
fn bad_files_exit_1() {
    let scratch = Scratch::new();
    let file = |name: &str, bytes: Vec<u8>| scratch.file(name, bytes);
    let zeros = |shape: &str, bytes: usize| npy("<f4", false, shape, &vec![0; bytes]);
    let good = save(&scratch, "good.npy", &Whole::complex(&[4, 6]), Dtype::C64);
    let wide = save(&scratch, "wide.npy", &Whole::real(&[4, 6]), Dtype::F64);
    let one = save(&scratch, "one.npy", &Whole::complex(&[3, 1]), Dtype::C64);
    let mut large = Whole::complex(&[4, 6]);
    large.values[20].im = -1e300;
    let large = save(&scratch, "large.npy", &large, Dtype::C128);
    let mut cut = zeros("(4, 6)", 96);
    cut.truncate(200);
    let [cut, text] = [file("cut.npy", cut), file("text.npy", b"hello".to_vec())];
    let empty = file("empty.npy", zeros("(4, 0, 6)", 0));
    all_fail(&[
        row("no file", "no-such.npy", 1, &["no-such.npy: no such file"]).mpi(),
        row("a directory", "/", 1, &["not a regular file"]),
        row("truncated", cut, 1, &["truncated"]).mpi(),
        row("not npy", text, 1, &["not a NumPy .npy file"]),
        row("empty", empty, 1, &["(4, 0, 6)", "at least one element"]).mpi(),
        row("a number", file("number.npy", zeros("()", 4)), 1, &["shape ()", "1, 2 or 3 axes"]),
        row("four axes", file("four.npy", zeros("(2, 1, 2, 3)", 48)), 1, &["(2, 1, 2, 3)", "1, 2 or 3 axes"]),
        row("text", file("letters.npy", npy("|S1", false, "(6,)", b"abcdef")), 1, &["type |S1"]),
        row("Fortran", file("fortran.npy", npy("<f4", true, "(2, 2, 6)", &[0; 96])), 1, &["ascontiguousarray"]),
        row("complex to rfftn", format!("{good} --real"), 1, &["complex64", "without --real"]).mpi(),
        row("no cells", format!("{one} --inverse --real"), 1, &["(3, 1)", "--last-size 1"]),
        // On the second rank of two.
        row("beyond f32", format!("{large} --precision f32"), 1, &["(3, 2)", "-1e300", "f32"]).mpi(),
        row(
            "beyond kernels",
            format!("{one} --inverse --real --last-size 4294967296 --ranks 1"),
            1,
            &["(3, 1)", "2^32 - 2^17"],
        ),
        Row {
            env: &[("MESHLOOM_FLOOR", "1")],
            ..row("no f64", wide, 1, &["no double precision", "float64", "--precision f32"]).mpi()
        },
        Row {
            env: &[("MESHLOOM_FLOOR", "1")],
            ..row("no f64 as asked", format!("{good} --precision f64"), 1, &["no double", "--precision f32"])
        },
        row("no directory", format!("{good} -o no-such/out.npy"), 1, &["no-such/out.npy", "mkdir"]).mpi(),
        row("a directory as output", format!("{good} -o /"), 1, &["not a regular file"]),
        Row {
            env: &[("VK_DRIVER_FILES", "/nonexistent"), ("VK_ICD_FILENAMES", "/nonexistent")],
            ..row("no adapter", good.clone(), 1, &["no usable GPU adapter was found", "mesa-vulkan-drivers"]).mpi()
        },
    ]);
}

#[test]
fn plans_alone_need_no_device_and_no_file() {
    let run = |words: &str| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_meshloom")).arg("fft").args(words.split_whitespace()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text, error) = run("--plan-only --shape 4096,4096,4096 --ranks 512 --json");
    assert_eq!(code, Some(0), "{error}");
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let field = 4096u64.pow(3) / 512 * 8;
    assert_eq!(plan["memory"]["field"], field);
    // 511 of 512 parts leave each rank, a MiB in each of four pieces.
    assert_eq!(plan["forward"]["bytes"]["sent"], field / 512 * 511);
    assert_eq!(plan["forward"]["all_ranks"]["bytes"], field * 511);
    assert_eq!(plan["forward"]["messages"], 511 * 4);
    // Lines of 4096 points are too long to lie side by side in a workgroup: two passes along x and
    // y.
    assert_eq!(plan["inverse"]["bytes"]["device"], (2 + 2 + 1) * 2 * field + 2 * field / 512);
    let (code, text, _) = run("--plan-only --shape 64,48 --ranks 3 --real --grid 1x3");
    assert!(code == Some(0) && text.contains("grid 1x3, 3 ranks") && text.contains("exchange y-z"), "{text}");
    for (words, said) in [
        ("--plan-only --ranks 3", "--shape"),
        ("--plan-only --shape 8,0", "0 is not in"),
        ("--plan-only --shape 2,2,2,2", "1, 2 or 3 axes"),
        ("--plan-only --shape 8,8 --ranks 3 --grid 2x2", "does not make 3 ranks"),
        ("--plan-only --shape 100000,100000,100000", "2^32"),
        ("--plan-only --shape 4294967296,4294967296 --ranks 4096", "2^32"),
        ("--plan-only --shape 8 --machine h100x5", "h100x4"),
        ("in.npy -o out.npy --shape 8", "cannot be used with"),
        ("in.npy -o out.npy --fields 2", "cannot be used with"),
        ("in.npy -o out.npy --chunk-bytes 8", "cannot be used with"),
        ("in.npy -o out.npy --machine h100x4", "cannot be used with"),
        ("in.npy", "--output"),
    ] {
        let (code, text, error) = run(words);
        assert!(code == Some(2) && text.is_empty() && error.contains(said), "{words}: {error}");
    }
}
