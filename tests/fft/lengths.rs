//! Transforms of one axis of very many lengths against rustfft in f64.
//!
//! Every length has kernels of its own, which take seconds to compile on software renderers:
//! lengths up to 32 and a part of the others go by default, all with `MESHLOOM_LONG_TESTS=1`.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::fourier::*;
use meshloom::comm::Communicator;
use meshloom::exchange::GridComms;
use meshloom::fft::{Precision, Spec, Transform, TransformOptions, TransformTuning, Values};
use meshloom::gpu::{Gpu, Options, Profile, Recorder};
use meshloom::grid::Grid;

/// Beyond the lengths of one pass (on the floor and elsewhere), and around them; primes up to two
/// long convolutions.
const LONG: [u64; 51] = [
    1151,
    1213,
    1280,
    1287,
    1400,
    1440,
    1500,
    1920,
    2039,
    2048,
    2160,
    2187,
    2731,
    3000,
    3024,
    3125,
    3500,
    3840,
    4000,
    4050,
    4093,
    4096,
    4097,
    4320,
    4391,
    6561,
    7000,
    7680,
    7879,
    8192,
    9000,
    10007,
    11587,
    15319,
    16384,
    16807,
    19683,
    21269,
    27283,
    39829,
    65536,
    1 << 20,
    1025,
    2310,
    4199,
    5183,
    6859,
    8191,
    8193,
    12167,
    30030,
];

/// Powers, products, primes, and lengths around the limits of one invocation and of one pass.
const SAMPLE: [u64; 44] = [
    1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 49, 60, 64, 74, 77, 96,
    121, 128, 143, 169, 210, 256, 289, 360, 512, 961, 1000, 1024, 2048, 4096,
];
/// Lengths that go without the long tests: one of each kind.
const FEW: [u64; 7] = [2, 15, 16, 37, 60, 121, 1000];

/// Returns a transform along one axis of a few lines.
fn lines_of(n: u64, axis: usize) -> Spec {
    let mut cells = [[n, 1, 3], [1, n, 2], [2, 1, n]][axis];
    if n > 100_000 {
        cells[2 - axis] = 1;
    }
    Spec::of::<[f32; 2]>(cells).axes([0, 1, 2].map(|a| a == axis))
}

/// A thread's own recorder, on a device that all share.
struct Bench {
    gpu: Gpu,
    recorder: Recorder,
    comms: GridComms,
    tuning: TransformTuning,
}

impl Bench {
    fn new(gpu: &Gpu, tuning: TransformTuning) -> Self {
        let comms = GridComms::new(&Communicator::solo(), Grid::new([1, 1], 1).unwrap()).unwrap();
        Bench { gpu: gpu.clone(), recorder: Recorder::new(gpu).unwrap(), comms, tuning }
    }

    /// Errors forward and inverse, in units of what the law allows.
    fn errors<T: Cell>(&mut self, spec: &Spec) -> [f64; 2] {
        let spec = of::<T>(spec);
        let options = TransformOptions::default().tuning(self.tuning);
        let transform = Transform::<T>::with(&self.gpu, &spec, self.comms.grid(), 0, &options).unwrap();
        let layout = transform.field_layout();
        let (field, spectrum) = (transform.field(&self.gpu, &layout).unwrap(), transform.spectrum(&self.gpu).unwrap());
        let (input, modes_in) = (random::<T>(cells(&spec), 1), random::<T::Mode>(modes(&spec), 2));
        self.recorder.upload(&field, 0, &input).unwrap();
        transform.forward(&mut self.recorder, &mut self.comms, &field, &layout, &spectrum).unwrap();
        let there = self.recorder.download(&spectrum, 0, spectrum.len()).unwrap();
        self.recorder.upload(&spectrum, 0, &modes_in).unwrap();
        transform.inverse(&mut self.recorder, &mut self.comms, &spectrum, &field, &layout).unwrap();
        let back = self.recorder.download(&field, 0, field.len()).unwrap();
        [
            error(&there, &forward_truth(&spec, &values(&input))) / tolerance(&spec),
            error(&back, &inverse_truth(&spec, &values(&modes_in))) / tolerance(&spec),
        ]
    }

    /// Returns the modes of a field, and what they should be.
    fn forward<T: Cell>(&mut self, spec: &Spec, input: &[T]) -> (Vec<T::Mode>, Vec<C>) {
        let options = TransformOptions::default().tuning(self.tuning);
        let transform = Transform::<T>::with(&self.gpu, spec, self.comms.grid(), 0, &options).unwrap();
        let layout = transform.field_layout();
        let (field, spectrum) = (transform.field(&self.gpu, &layout).unwrap(), transform.spectrum(&self.gpu).unwrap());
        self.recorder.upload(&field, 0, input).unwrap();
        transform.forward(&mut self.recorder, &mut self.comms, &field, &layout, &spectrum).unwrap();
        (self.recorder.download(&spectrum, 0, spectrum.len()).unwrap(), forward_truth(spec, &values(input)))
    }
}

/// One transform to be checked.
#[derive(Clone, Copy, Debug)]
struct Job {
    n: u64,
    axis: usize,
    values: Values,
    precision: Precision,
}

fn job(n: u64, values: Values) -> Job {
    Job { n, axis: 2, values, precision: Precision::Single }
}

/// All jobs over two threads; fails with all that are wrong. Each has a device of its own, since
/// software renderers compile on the one thread of a device.
fn go(options: &Options, tuning: TransformTuning, jobs: &[Job]) {
    let next = AtomicUsize::new(0);
    let work = &|poison: bool| {
        let gpu = &Gpu::open(&Options { poison, ..options.clone() }, 0).unwrap();
        let (mut bench, mut wrong, mut worst) = (Bench::new(gpu, tuning), Vec::new(), (0.0f64, 0));
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let spec = lines_of(job.n, job.axis);
            let errors = match (job.values, job.precision) {
                (Values::Complex, Precision::Single) => bench.errors::<[f32; 2]>(&spec),
                (Values::Real, Precision::Single) => bench.errors::<f32>(&spec),
                (Values::Complex, Precision::Double) => bench.errors::<[f64; 2]>(&spec),
                (Values::Real, Precision::Double) => bench.errors::<f64>(&spec),
            };
            let largest = errors[0].max(errors[1]);
            if largest > worst.0 {
                worst = (largest, job.n);
            }
            if largest.is_nan() || largest > 1.0 {
                println!("{job:?}: {errors:.3?}");
                wrong.push(format!("{job:?}: {errors:.3?}"));
            }
        }
        (wrong, worst)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = [true, false].map(|poison| scope.spawn(move || work(poison))).into();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (_, (worst, n)) in &results {
        println!("the worst error is {worst:.3} of what is allowed, at {n}");
    }
    let wrong: Vec<String> = results.into_iter().flat_map(|(wrong, _)| wrong).collect();
    assert!(wrong.is_empty(), "{} of {} transforms beyond the law:\n{}", wrong.len(), jobs.len(), wrong.join("\n"));
}

fn options() -> Options {
    meshloom_sanitizer::options().unwrap()
}

/// Returns what suits the device.
fn own() -> TransformTuning {
    TransformTuning::of(&Gpu::open(&options(), 0).unwrap())
}

/// Every length in a range with the long tests, else those up to 32 and a few of the others. In
/// quarters: run as processes of their own, they compile at the same time.
fn every_length(range: std::ops::RangeInclusive<u64>) {
    let (every, some) = if long_tests() { (1100, 1) } else { (32, 91) };
    let lengths: Vec<u64> = range.filter(|n| *n <= every || n % some == 3).collect();
    go(&options(), own(), &both(&lengths));
}

#[test]
fn every_length_up_to_275() {
    every_length(1..=275);
}

#[test]
fn every_length_from_276_to_550() {
    every_length(276..=550);
}

#[test]
fn every_length_from_551_to_825() {
    every_length(551..=825);
}

#[test]
fn every_length_from_826_to_1100() {
    every_length(826..=1100);
}

#[test]
fn long_lines() {
    let lengths = if long_tests() { &LONG[..] } else { &[2039, 4391, 6561, 10007, 1 << 20] };
    let strided = if long_tests() { &[2039, 4097, 6561, 8192, 10007, 30030, 1 << 20][..] } else { &[8192] };
    let mut jobs = both(lengths);
    for &n in strided {
        jobs.extend([0, 1].map(|axis| Job { axis, ..job(n, Values::Complex) }));
    }
    go(&options(), own(), &jobs);
}

fn both(lengths: &[u64]) -> Vec<Job> {
    lengths.iter().flat_map(|&n| [Values::Complex, Values::Real].map(|v| job(n, v))).collect()
}

/// Returns the sample along the contiguous axis, real and complex, and some of it along the others.
fn sample() -> Vec<Job> {
    let (mut jobs, strided) =
        if long_tests() { (both(&SAMPLE), &[3, 31, 37, 60, 143, 512, 2048][..]) } else { (both(&FEW), &[37, 60][..]) };
    for &n in strided {
        jobs.extend([0, 1].map(|axis| Job { axis, ..job(n, Values::Complex) }));
    }
    jobs
}

#[test]
fn lines_shared_by_invocations() {
    go(&options(), TransformTuning::profile(Profile::Gpu), &sample());
}

#[test]
fn powers_of_two_shared_by_invocations() {
    let tuning = TransformTuning::profile(Profile::Gpu);
    std::thread::scope(|scope| {
        for axis in [0, 1, 2] {
            scope.spawn(move || {
                let mut bench = Bench::new(&Gpu::open(&options(), 0).unwrap(), tuning);
                let mut worst = 0.0f64;
                for n in [64, 256, 512, 1024, 2048, 4096] {
                    // More lines than a workgroup has, and tiles that reach over the ends of rows.
                    let cells = [[n, 3, 7], [3, n, 7], [5, 7, n]][axis];
                    let spec = Spec::of::<[f32; 2]>(cells).axes([0, 1, 2].map(|a| a == axis));
                    let errors = bench.errors::<[f32; 2]>(&spec);
                    assert!(errors.iter().all(|error| *error <= 1.0), "{n} along {axis}: {errors:?}");
                    worst = errors.iter().fold(worst, |worst, error| worst.max(*error));
                }
                println!("the worst error along axis {axis} is {worst:.3} of what is allowed");
            });
        }
    });
}

/// Wide tiles of long lines, whose workgroup memory holds half of the lines at a time.
#[test]
fn lines_in_two_stages() {
    let gpu = Gpu::open(&options(), 0).unwrap();
    let mut bench =
        Bench::new(&gpu, TransformTuning { points: 32, alone: 32, ..TransformTuning::profile(Profile::Gpu) });
    for n in [512, 1024, 930] {
        for (axis, cells) in [[n, 3, 7], [3, n, 7]].into_iter().enumerate() {
            let spec = Spec::of::<[f32; 2]>(cells).axes([0, 1, 2].map(|a| a == axis));
            let errors = bench.errors::<[f32; 2]>(&spec);
            assert!(errors.iter().all(|error| *error <= 1.0), "{n} along {axis}: {errors:?}");
        }
    }
}

#[test]
fn the_floor() {
    let options = Options { floor: true, ..options() };
    go(&options, own(), &sample());
    // Lines of two passes that elsewhere take one.
    let long = [2731u64, 4093, 4096, 8192].map(|n| job(n, Values::Real));
    go(&options, TransformTuning::profile(Profile::Gpu), if long_tests() { &long } else { &long[2..3] });
}

#[test]
fn odd_tunings() {
    let (options, shared) = (options(), TransformTuning::profile(Profile::Gpu));
    let some = |every: usize, from: usize| sample().into_iter().skip(from).step_by(every).collect::<Vec<_>>();
    go(&options, TransformTuning { points: 4, alone: 1, columns: 4, ..shared }, &some(3, 0));
    go(&options, TransformTuning { points: 8, alone: 8, columns: 1, ..shared }, &some(3, 1));
    go(
        &options,
        TransformTuning { points: 4, alone: 1, shared: false, columns: 4, pieces: 2, cache_bytes: 0 },
        &some(3, 2),
    );
}

#[test]
fn double_precision() {
    let gpu = Gpu::open(&options(), 0).unwrap();
    if !gpu.capabilities().f64 {
        println!("skipped: {} has no f64", gpu.info().name);
        return;
    }
    let more = if long_tests() { &[1100, 1151, 2039, 3000, 4093, 6561, 8192, 10007, 65536][..] } else { &[4093, 8192] };
    let double = |job: Job| Job { precision: Precision::Double, ..job };
    let jobs: Vec<Job> = sample().into_iter().chain(both(more)).map(double).collect();
    go(&options(), own(), &jobs);
    let shared: Vec<Job> = jobs.into_iter().step_by(5).collect();
    go(&options(), TransformTuning::profile(Profile::Gpu), &shared);
}

/// Impulses become roots of unity, with nothing added to them: what the constants of short
/// transforms are wrong by.
#[test]
fn roots_in_double_precision() {
    let gpu = Gpu::open(&options(), 0).unwrap();
    if !gpu.capabilities().f64 {
        println!("skipped: {} has no f64", gpu.info().name);
        return;
    }
    let mut bench = Bench::new(&gpu, own());
    for (n, factors) in [(3, 1), (7, 1), (12, 3), (15, 2), (17, 1), (27, 3), (31, 1)] {
        let spec = of::<[f64; 2]>(&Spec::of::<[f32; 2]>([1, n, n]).axes([false, false, true]));
        let places = (0..n).flat_map(|j| (0..n).map(move |k| [j, k]));
        let impulses: Vec<[f64; 2]> = places.clone().map(|[j, k]| [f64::from(u8::from(j == k)), 0.0]).collect();
        let (modes, _) = bench.forward(&spec, &impulses);
        let worst = places.zip(modes).map(|([j, k], [re, im])| {
            let [c, s] = root(j * k % n, n);
            (re - c).abs().max((im - s).abs())
        });
        let worst = worst.fold(0.0, f64::max);
        println!("{n}: {:.2} ulp of 1", worst / f64::EPSILON);
        // A root of each factor is multiplied with: at most half a spacing below 1 each for two
        // products together, for their sum and for either part of the root, in all below one of
        // above 1.
        assert!(worst <= f64::from(factors) * f64::EPSILON, "{n}: {worst:e}");
    }
}

/// Returns the root mean square of the errors of three stages of 16: what twiddles are wrong by
/// shows here, long before it meets the law.
///
/// A rounding is e = 2.5e-8 of a value (root mean square, f32), a complex product 1.4 of these.
/// Twiddles of a stage of 16 are products of the roots 1 and 4, each up to three times: (7 e^2 of
/// the roots + 3 products)^(1/2) = 9e-8. Two such stages, and twelve sums and their constants at
/// some 3e-8, give 1.6e-7. Powers of one root would have 77 e^2 instead of 7, and 3e-7.
#[test]
fn errors_of_three_stages() {
    let gpu = Gpu::open(&options(), 0).unwrap();
    for tuning in [own(), TransformTuning::profile(Profile::Gpu)] {
        let mut bench = Bench::new(&gpu, tuning);
        let spec = Spec::of::<[f32; 2]>([1, 16, 4096]).axes([false, false, true]);
        let (got, want) = bench.forward::<[f32; 2]>(&of::<[f32; 2]>(&spec), &random(cells(&spec), 3));
        let difference: f64 = got.iter().zip(&want).map(|(got, want)| (got.value() - want).norm_sqr()).sum();
        let relative = (difference / want.iter().map(C::norm_sqr).sum::<f64>()).sqrt();
        println!("{relative:.2e}");
        assert!(relative > 0.0 && relative < 2.4e-7, "{relative:.2e}");
    }
}

/// `exp(-2 pi i k / n)` from an angle of at most an eighth of a turn, where rounding it costs
/// little.
fn root(k: u64, n: u64) -> [f64; 2] {
    let quarter = (4 * k + n / 2) / n;
    let angle = std::f64::consts::TAU * (4 * k as i64 - (quarter * n) as i64) as f64 / (4 * n) as f64;
    let (s, c) = angle.sin_cos();
    [[c, -s], [-s, -c], [-c, s], [s, c], [c, -s]][quarter as usize]
}
