//! The passes that transform an axis.
//!
//! A line that fits into a workgroup takes one pass. A longer line takes the four-step algorithm
//! with one pass per factor. If a line fits but a workgroup holds too few lines side by side to
//! fill a sector, the form that moves fewer sectors of memory is chosen.
//!
//! ```text
//! n = n1 n2      j = j1 n2 + j2,  k = k1 + k2 n1:   transform over j1, twiddle exp(-2 pi i j2 k1 / n), transform over j2
//! n = n1 n2 n3   the second transform split again in the same way   (Gentleman & Sande 1966; Bailey 1990)
//! ```
//!
//! Lengths without such factors are a circular convolution of a good length (Bluestein 1970), whose
//! two transforms are four-step transforms. A pass multiplies by twiddles and transposes as it
//! stores, so neither is a pass of its own.

use std::iter::successors;

use super::core::{Core, Limits, MOST_LANES, good_size, is_good_size};
use super::line::{FourStep, LineFormat, LineKernel, LineWorkgroup, Order, Side, Span, Work};
use super::spec::Precision;
use super::tables::{Section, Table};

/// One pass along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPass {
    /// The kernel.
    pub kernel: LineKernel,
    /// Its layout over a workgroup.
    pub shape: LineWorkgroup,
    /// The factors of points as they are read; conjugated in a backward transform.
    pub load_factors: Option<PointFactors>,
    /// The factors of points as they are written.
    pub store_factors: Option<PointFactors>,
}

/// A factor for each position of the axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PointFactors {
    /// The table of forward transforms.
    pub table: Table,
    /// Whether the factors are conjugated.
    pub conjugate: bool,
    /// Number of positions; positions beyond the table have the factor 0.
    pub len: u64,
}

impl AxisPass {
    fn new(kernel: LineKernel, limits: Limits) -> Option<Self> {
        Some(AxisPass { shape: kernel.shape(limits)?, kernel, load_factors: None, store_factors: None })
    }

    /// Returns the bytes that memory moves for one line of the axis, reading and writing: whole
    /// sectors. `across` is the number of lines that lie side by side.
    pub fn moved(&self, across: u64) -> u64 {
        let AxisPass { kernel, shape, .. } = self;
        let count = kernel.four_step.map_or(1, |step| step.count);
        kernel.moved(shape.lines, if kernel.axis == 2 { count } else { across }) * count
    }
}

/// Scratch between two passes: all positions of the axis, complex.
const SCRATCH: Side = Side { format: LineFormat::Complex, order: Order::Strided, span: Span::Whole };

/// Returns the passes of a transform of `n` points along `axis`; `None` if no number of passes
/// suffices.
pub(super) fn passes(
    precision: Precision,
    axis: usize,
    n: u64,
    work: Work,
    [input, output]: [Side; 2],
    limits: Limits,
) -> Option<Vec<AxisPass>> {
    let kernel = LineKernel { precision, axis, n, points: n, work, input, output, four_step: None, in_place: false };
    let one = AxisPass::new(kernel, limits).map(|pass| vec![pass]);
    let full = one.as_ref().is_some_and(|passes| {
        // Processor caches keep the rest of a sector that a narrow tile leaves.
        passes[0].shape.lines >= kernel.full_tile(limits) || !limits.shared
    });
    // Nothing is written between the two halves of a filter: it is one pass, or two transforms;
    // `Plan::filter` chooses.
    if full || matches!(work, Work::Filter(_)) {
        return one;
    }
    // Fields are spread in one pass, or filters keep a field for each result.
    if matches!(work, Work::Spread { .. }) {
        return None;
    }
    let several = match factors(n, limits, precision) {
        Some(lengths) => {
            four_step(kernel, n, &lengths).into_iter().map(|kernel| AxisPass::new(kernel, limits)).collect()
        }
        None => bluestein(kernel, limits),
    };
    // The choice must not depend on this rank's part, since all ranks must round alike.
    let moved = |passes: &Vec<AxisPass>| passes.iter().map(|pass| pass.moved(u64::MAX)).sum::<u64>();
    // With equal sectors, two passes are better: they move no unneeded bytes through caches.
    [several, one].into_iter().flatten().min_by_key(moved)
}

/// Returns the passes of a convolution with the chirp: two transforms of a good length, with
/// multiplications as they load and store.
fn bluestein(kernel: LineKernel, limits: Limits) -> Option<Vec<AxisPass>> {
    let LineKernel { n, precision, work, .. } = kernel;
    let (padded, lengths) = successors(Some(good_size(2 * n - 1)), |m| Some(good_size(m + 1)))
        .take(64)
        .find_map(|m| factors_of_good_size(m, limits, precision).map(|lengths| (m, lengths)))?;
    let conjugate = work == Work::Backward;
    let factors = |section| Some(PointFactors { table: Table::of(section), conjugate, len: padded });
    let (chirp, spectrum) = (factors(Section::Chirp(n)), factors(Section::ChirpSpectrum { n, padded }));
    let to_spectrum = four_step(LineKernel { work: Work::Forward, output: SCRATCH, ..kernel }, padded, &lengths);
    let from_spectrum = four_step(LineKernel { work: Work::Backward, input: SCRATCH, ..kernel }, padded, &lengths);
    let both = to_spectrum.into_iter().chain(from_spectrum);
    let mut all: Vec<AxisPass> = both.map(|kernel| AxisPass::new(kernel, limits)).collect::<Option<_>>()?;
    let middle = lengths.len();
    all[0].load_factors = chirp.clone();
    all[0].kernel.four_step = all[0].kernel.four_step.map(|step| FourStep { load_factor: true, ..step });
    let mut store = |i: usize, factors: &Option<PointFactors>| {
        all[i].store_factors = factors.clone();
        all[i].kernel.four_step = all[i].kernel.four_step.map(|step| FourStep { store_factor: true, ..step });
    };
    store(middle - 1, &spectrum);
    store(2 * middle - 1, &chirp);
    // Scratch holds all positions of the padded line, beyond the axis, too.
    for (i, pass) in all.iter_mut().enumerate() {
        let scratch = Side { span: Span::Head(padded), ..SCRATCH };
        if i > 0 {
            pass.kernel.input = scratch;
        }
        if i + 1 < 2 * middle {
            pass.kernel.output = scratch;
        }
    }
    Some(all)
}

/// Returns `n` as a product of two or three lengths of one pass each.
fn factors(n: u64, limits: Limits, precision: Precision) -> Option<Vec<u64>> {
    let fits = |n: u64| Core::new(n, limits, precision.bytes()).is_some();
    let direct = |n: u64| matches!(Core::new(n, limits, precision.bytes()), Some(Core::Direct(_)));
    let most = limits.workgroup_bytes / precision.bytes();
    // Prefers two passes to three, then few convolutions, then equal lengths.
    let cost = |lengths: &[u64]| {
        (lengths.len(), lengths.iter().filter(|&&d| !direct(d)).count(), lengths.iter().copied().max())
    };
    if is_good_size(n) {
        return factors_of_good_size(n, limits, precision);
    }
    let split = |n: u64| (2..=most.min(n / 2)).filter(move |d| n.is_multiple_of(*d)).map(move |d| [d, n / d]);
    let two = split(n).filter(|[a, b]| *b <= most && fits(*a) && fits(*b)).map(Vec::from);
    two.min_by_key(|lengths| cost(lengths)).or_else(|| {
        let three = split(n).flat_map(|[a, b]| split(b).map(move |[b, c]| vec![a, b, c]));
        three.filter(|lengths| lengths.iter().all(|&d| d <= most && fits(d))).min_by_key(|lengths| cost(lengths))
    })
}

/// Same as [`factors`], for products of 2, 3, 5 and 7.
fn factors_of_good_size(n: u64, limits: Limits, precision: Precision) -> Option<Vec<u64>> {
    let most = (limits.workgroup_bytes / precision.bytes()).min(limits.invocations.min(MOST_LANES) * limits.points);
    let fits = |n: u64| Core::new(n, limits, precision.bytes()).is_some();
    (2..=3).find_map(|passes| {
        // The first factor is the divisor closest to the root, then the next.
        let mut rest = n;
        let mut lengths = Vec::new();
        for left in (1..=passes).rev() {
            let root = (rest as f64).powf(1.0 / left as f64);
            let distance = |d: u64| (d as f64 / root).ln().abs();
            let divisors =
                (2..=most.min(rest)).filter(|d| rest.is_multiple_of(*d) && fits(*d) && (left > 1 || *d == rest));
            let length = divisors.min_by(|a, b| distance(*a).total_cmp(&distance(*b)))?;
            lengths.push(length);
            rest /= length;
        }
        (rest == 1).then_some(lengths)
    })
}

/// Returns the passes over `positions`, the product of two or three `lengths`.
fn four_step(kernel: LineKernel, positions: u64, lengths: &[u64]) -> Vec<LineKernel> {
    let step = |count: u64, input: [u64; 3], output: [u64; 3], twiddle: u64| FourStep {
        positions,
        count,
        input,
        output,
        twiddle,
        load_factor: false,
        store_factor: false,
    };
    let pass = |points: u64, step: FourStep, first: bool, last: bool| LineKernel {
        points,
        four_step: Some(step),
        input: if first { kernel.input } else { SCRATCH },
        output: if last { kernel.output } else { SCRATCH },
        ..kernel
    };
    match *lengths {
        [a, b] => vec![
            pass(a, step(b, [b, 1, 0], [b, 1, 0], positions), true, false),
            pass(b, step(a, [1, a, b], [a, 1, 0], 0), false, true),
        ],
        [a, b, c] => vec![
            pass(a, step(b * c, [b * c, 1, 0], [b * c, 1, 0], positions), true, false),
            // The counter runs over j3 a + k1.
            pass(b, step(a * c, [c, a, b * c], [c, a, b * c], b * c), false, false),
            // The counter runs over k1 b + k2.
            pass(c, step(a * b, [1, a * b, c], [a * b, b, a], 0), false, true),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::core::FLOOR;
    use rustfft::FftPlanner;
    use rustfft::num_complex::Complex;

    const LIMITS: Limits =
        Limits { workgroup_bytes: 64, invocations: 4, points: 4, alone: 4, shared: true, columns: 4, cache_bytes: 0 };

    /// Applies the passes in f64 on the host.
    fn run(passes: &[AxisPass], x: &[Complex<f64>]) -> Vec<Complex<f64>> {
        let mut data = x.to_vec();
        for AxisPass { kernel, load_factors, store_factors, .. } in passes {
            let Some(step) = kernel.four_step else { panic!("one pass") };
            let factors = |factors: &Option<PointFactors>| {
                let mut values: Vec<Complex<f64>> = match factors {
                    Some(f) => f
                        .table
                        .values()
                        .iter()
                        .map(|v| Complex::new(v[0], if f.conjugate { -v[1] } else { v[1] }))
                        .collect(),
                    None => vec![Complex::new(1.0, 0.0); step.positions as usize],
                };
                values.resize(step.positions as usize, Complex::new(0.0, 0.0));
                values
            };
            let (load, store) = (factors(load_factors), factors(store_factors));
            let at = |k: u64, d: u64, [a, q, r]: [u64; 3]| (k * a + d / q + d % q * r) as usize;
            let mut result = vec![Complex::new(f64::NAN, 0.0); step.positions as usize];
            let sign = if kernel.work == Work::Forward { -1.0 } else { 1.0 };
            for d in 0..step.count {
                let mut line: Vec<_> = (0..kernel.points)
                    .map(|k| at(k, d, step.input))
                    .map(|p| data.get(p).copied().unwrap_or_default() * load[p])
                    .collect();
                let mut planner = FftPlanner::new();
                let fft = if sign < 0.0 {
                    planner.plan_fft_forward(line.len())
                } else {
                    planner.plan_fft_inverse(line.len())
                };
                fft.process(&mut line);
                for (k, value) in line.into_iter().enumerate() {
                    let turn = if step.twiddle == 0 {
                        0.0
                    } else {
                        (k as u64 * (d / step.input[1])) as f64 / step.twiddle as f64
                    };
                    let p = at(k as u64, d, step.output);
                    result[p] = value * Complex::from_polar(1.0, sign * 2.0 * std::f64::consts::PI * turn) * store[p];
                }
            }
            data = result;
        }
        data
    }

    #[test]
    fn four_step_passes_make_a_transform() {
        // With lines of at most 16 points (7 by convolution): two factors, three, with factors by
        // convolution, convolutions of all.
        for n in [24u64, 32, 49, 51, 64, 105, 128, 256, 360, 512, 1024, 2048, 37, 53, 74, 97, 101] {
            for work in [Work::Forward, Work::Backward] {
                let passes =
                    passes(Precision::Single, 2, n, work, [SCRATCH; 2], LIMITS).unwrap_or_else(|| panic!("{n}"));
                let x: Vec<_> = (0..n).map(|i| Complex::new((i * i % 7) as f64 - 3.0, (i % 5) as f64)).collect();
                let mut want = x.clone();
                let mut planner = FftPlanner::new();
                let len = n as usize;
                let fft =
                    if work == Work::Forward { planner.plan_fft_forward(len) } else { planner.plan_fft_inverse(len) };
                fft.process(&mut want);
                let got = run(&passes, &x);
                for k in 0..n as usize {
                    assert!((got[k] - want[k]).norm() < 1e-9 * n as f64, "{n} {work:?} {k}: {} {}", got[k], want[k]);
                }
            }
        }
    }

    #[test]
    fn long_lines_take_few_passes() {
        let count = |n: u64| passes(Precision::Single, 2, n, Work::Forward, [SCRATCH; 2], FLOOR).map(|p| p.len());
        assert_eq!([4096, 8192, 1 << 20, 1 << 24].map(count), [1, 2, 2, 2].map(Some));
        assert_eq!([1 << 25, 1 << 30].map(count), [3, 3].map(Some));
        // Primes: one pass by Bluestein, then two transforms of two passes, then of three.
        assert_eq!([2039, 4093, 10007, 8_388_593, 16_777_213].map(count), [1, 4, 4, 4, 6].map(Some));
    }
}
