//! Accuracy and speed of transforms by length, as tables and as the figures of `docs/fft.md`.
//!
//! ```text
//! cargo run --release --example fft_curves -- docs      # writes docs/fft-accuracy.svg and docs/fft-speed.svg
//!
//! length           kind    error   ns/point  in other rounds up to
//!     16  powers of two  8.7e-8       12.7                   19.6
//! ...
//! ```
//!
//! Complex single precision lines along the last axis, as many as make about 2^17 points; the error
//! is the largest difference from rustfft in f64 over the largest value. The time is the least of
//! several rounds over all lengths, so that what else the machine does strikes no length more than
//! another; the largest of the rounds is printed beside it.

use std::path::Path;
use std::time::Instant;

use meshloom::comm::Communicator;
use meshloom::exchange::GridComms;
use meshloom::fft::{Spec, Transform, TransformOptions};
use meshloom::gpu::{Gpu, Options, Recorder};
use meshloom::grid::Grid;
use plotters::prelude::*;
use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

const POINTS: u64 = 1 << 17;
const ROUNDS: usize = 5;
const RUNS: usize = 5;

type Failure = Box<dyn std::error::Error>;

/// Lengths of one kind: how they are called and drawn.
struct Kind {
    name: &'static str,
    color: RGBColor,
    lengths: Vec<u64>,
}

/// Measurements of a length.
struct Sample {
    length: u64,
    error: f64,
    /// The least of each round, in order.
    nanoseconds: Vec<f64>,
}

impl Sample {
    fn least(&self) -> f64 {
        self.nanoseconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn greatest(&self) -> f64 {
        self.nanoseconds.iter().copied().fold(0.0, f64::max)
    }
}

fn kinds() -> Vec<Kind> {
    let kind = |name, color, lengths: &[u64]| Kind { name, color, lengths: lengths.to_vec() };
    let powers: Vec<u64> = (1..=16).map(|e| 1 << e).collect();
    vec![
        kind("powers of two", RGBColor(31, 119, 180), &powers),
        kind(
            "2, 3, 5, 7",
            RGBColor(44, 160, 44),
            &[6, 15, 30, 48, 96, 105, 210, 360, 720, 1500, 3000, 6000, 20000, 60000],
        ),
        kind("up to 31", RGBColor(255, 127, 14), &[11, 13, 17, 31, 77, 187, 341, 961, 2431, 22 * 31 * 29]),
        kind("primes", RGBColor(214, 39, 40), &[37, 61, 127, 257, 509, 1021, 2039, 4093, 16381, 65521]),
        kind("others", RGBColor(148, 103, 189), &[74, 158, 502, 1006, 2018, 9 * 1009, 37 * 1024]),
    ]
}

/// Returns what the library promises: twice as much with a prime factor beyond 13.
fn law(length: u64) -> f64 {
    let mut rest = length;
    for prime in [2, 3, 5, 7, 11, 13] {
        while rest.is_multiple_of(prime) {
            rest /= prime;
        }
    }
    (1e-6 + 2.5e-7 * (length as f64).log10()) * if rest > 1 { 2.0 } else { 1.0 }
}

fn noise(n: usize) -> f32 {
    (((n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32) / 16_777_216.0 - 0.5
}

/// Transforms about [`POINTS`] points in lines of this length: the error, and the least nanoseconds
/// per point of one round.
fn measure(gpu: &Gpu, recorder: &mut Recorder, comms: &mut GridComms, length: u64) -> Result<(f64, f64), Failure> {
    let count = POINTS.div_ceil(length);
    let spec = Spec::of::<[f32; 2]>([1, count, length]).axes([false, false, true]);
    let options = TransformOptions::default();
    let transform = Transform::<[f32; 2]>::with(gpu, &spec, comms.grid(), 0, &options)?;
    let layout = transform.field_layout();
    let (field, spectrum) = (transform.field(gpu, &layout)?, transform.spectrum(gpu)?);
    let input: Vec<[f32; 2]> = (0..(count * length) as usize).map(|n| [noise(2 * n), noise(2 * n + 1)]).collect();
    recorder.upload(&field, 0, &input)?;
    // The first run compiles.
    transform.forward(recorder, comms, &field, &layout, &spectrum)?;
    let got = recorder.download(&spectrum, 0, spectrum.len())?;

    let mut truth: Vec<Complex<f64>> =
        input.iter().map(|&[re, im]| Complex::new(f64::from(re), f64::from(im))).collect();
    FftPlanner::new().plan_fft_forward(length as usize).process(&mut truth);
    let difference =
        |(&[re, im], want): (&[f32; 2], &Complex<f64>)| (Complex::new(f64::from(re), f64::from(im)) - want).norm();
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let error = largest(&mut got.iter().zip(&truth).map(difference)) / largest(&mut truth.iter().map(|v| v.norm()));

    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        recorder.wait()?;
        let start = Instant::now();
        transform.forward(recorder, comms, &field, &layout, &spectrum)?;
        recorder.wait()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok((error, least * 1e9 / (count * length) as f64))
}

type Curve = fn(f64) -> f64;

/// Content of a figure.
struct Figure<'a> {
    title: String,
    axis: &'a str,
    range: std::ops::Range<f64>,
    value: fn(&Sample) -> f64,
    /// Curves with a name, over the length.
    bounds: &'a [(&'a str, Curve)],
}

impl Figure<'_> {
    fn draw(&self, path: &Path, kinds: &[(Kind, Vec<Sample>)]) -> Result<(), Failure> {
        let area = SVGBackend::new(path, (860, 520)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .margin_right(40)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d((1.5f64..100_000.0).log_scale(), self.range.clone().log_scale())?;
        chart
            .configure_mesh()
            .bold_line_style(RGBColor(215, 215, 215))
            .light_line_style(RGBColor(242, 242, 242))
            .label_style(("sans-serif", 15))
            .axis_desc_style(("sans-serif", 17))
            .x_desc("points of a line")
            .y_desc(self.axis)
            .x_label_formatter(&|x| format!("{x}"))
            .y_label_formatter(&|y| if *y < 1e-3 { format!("{y:.0e}") } else { format!("{y}") })
            .draw()?;
        for (kind, samples) in kinds {
            let style = kind.color.filled();
            chart
                .draw_series(samples.iter().map(|s| Circle::new((s.length as f64, (self.value)(s)), 4, style)))?
                .label(kind.name)
                .legend(move |(x, y)| Circle::new((x + 10, y), 4, style));
        }
        for (i, &(name, bound)) in self.bounds.iter().enumerate() {
            let color = [BLACK, RGBColor(150, 150, 150)][i % 2];
            let curve = (1..=64).map(|e| 2f64.powf(f64::from(e) / 4.0)).map(|n| (n, bound(n)));
            chart
                .draw_series(LineSeries::new(curve, color))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
        }
        let background = WHITE.mix(0.9);
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(("sans-serif", 14))
            .background_style(background)
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let gpu = Gpu::open(&Options::from_env()?, 0)?;
    let mut recorder = Recorder::new(&gpu)?;
    let mut comms = GridComms::new(&Communicator::solo(), Grid::new([1, 1], 1)?)?;
    let info = gpu.info();
    let adapter = format!("{} ({})", info.name, info.driver_info);
    let empty = |length| Sample { length, error: 0.0, nanoseconds: Vec::new() };
    let mut measured: Vec<(Kind, Vec<Sample>)> = kinds()
        .into_iter()
        .map(|kind| {
            let samples = kind.lengths.iter().map(|&length| empty(length)).collect();
            (kind, samples)
        })
        .collect();
    for _ in 0..ROUNDS {
        for sample in measured.iter_mut().flat_map(|(_, samples)| samples) {
            let (error, nanoseconds) = measure(&gpu, &mut recorder, &mut comms, sample.length)?;
            let law = law(sample.length);
            assert!(error <= law, "length {}: {error} is beyond {law}", sample.length);
            sample.error = error;
            sample.nanoseconds.push(nanoseconds);
        }
    }
    println!("{adapter}\nlength           kind    error   ns/point  in other rounds up to");
    for (kind, sample) in measured.iter().flat_map(|(kind, samples)| samples.iter().map(move |s| (kind, s))) {
        let Sample { length, error, .. } = sample;
        println!("{length:6}  {:>13}  {error:.1e}  {:9.1}  {:21.1}", kind.name, sample.least(), sample.greatest());
    }
    let figures = [
        (
            "fft-accuracy.svg",
            Figure {
                title: format!("Largest error over largest value, single precision, {}", info.name),
                axis: "relative error",
                range: 2e-8..1e-4,
                value: |sample| sample.error,
                bounds: &[
                    ("1e-6 + 2.5e-7 log10 n", |n| 1e-6 + 2.5e-7 * n.log10()),
                    ("twice that: prime factors beyond 13", |n| 2e-6 + 5e-7 * n.log10()),
                ],
            },
        ),
        (
            "fft-speed.svg",
            Figure {
                title: format!("Nanoseconds per complex point, single precision, {}", info.name),
                axis: "ns per point",
                range: 1.0..1000.0,
                value: Sample::least,
                bounds: &[],
            },
        ),
    ];
    for (name, figure) in figures {
        let path = Path::new(&directory).join(name);
        figure.draw(&path, &measured)?;
        println!("wrote {}", path.display());
    }
    Ok(())
}
