//! Steps of conjugate gradients that never wait for the host, against those of the host, and the
//! arithmetic of their scalars.

use std::cell::Cell;

use super::shared::{field, flat, ranks_with};
use meshloom::Rank;
use meshloom::gpu::{Kernel, KernelSource, Options, Profile};
use meshloom::inference::{
    CgOptions, CgStop, InferenceError, NormOrder, Precondition, VectorSpace, conjugate_gradient,
};
use meshloom::operators::{Leaf, Space, Vector};
use meshloom::random::white_noise;

/// Numbers of the two leaves of a vector.
const SIZES: [u64; 2] = [301, 3];

fn space() -> Result<Space, InferenceError> {
    Ok(Space::new(["many", "few"].into_iter().zip(SIZES).map(|(name, len)| (name, Leaf::vector(len))))?)
}

fn vector(rank: &mut Rank, value: impl Fn(u64) -> f64) -> Result<Vector, InferenceError> {
    let values: Vec<f64> = (0..SIZES.iter().sum()).map(value).collect();
    // A copy is one array.
    let vector = field(rank, &space()?, &values)?;
    VectorSpace::copy(rank, &vector)
}

/// Multiplies by a vector.
struct Scale(Vector);

impl Precondition<Rank> for Scale {
    fn apply(&self, rank: &mut Rank, r: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        rank.multiply(1.0, [&self.0, r], 0.0, out)
    }
}

/// A system with a metric that is diagonal.
#[derive(Clone, Copy, Default)]
struct System {
    /// The logarithm of the largest eigenvalue.
    spread: f64,
    /// The last eigenvalue is -1.
    is_indefinite: bool,
    /// The product from which on all are infinite.
    overflows: Option<u64>,
    is_zero: bool,
    starts: bool,
    is_preconditioned: bool,
}

/// Everything that a solution is, with its bits, or the error; and the waits of the host.
fn solve(rank: &mut Rank, system: System, rules: &CgOptions, waits: bool) -> Result<(String, u64), InferenceError> {
    let eigenvalue = |at: u64| match (system.is_indefinite, at) {
        (true, 303) => -1.0,
        _ => (system.spread * (0.5 + 0.5 * (at as f64).sin())).exp(),
    };
    let [diagonal, infinite] = [vector(rank, eigenvalue)?, vector(rank, |_| f64::INFINITY)?];
    // Few components along the indefinite direction, so that steps go on for a while.
    let j = vector(rank, |at| match (system.is_zero, system.is_indefinite && at == 303) {
        (true, _) => 0.0,
        (false, true) => 1e-3,
        (false, false) => white_noise(3, at),
    })?;
    let start = system.starts.then(|| vector(rank, |at| white_noise(4, at))).transpose()?;
    let preconditioner = Scale(vector(rank, |at| (-0.7 * eigenvalue(at).abs().ln() + 0.3 * white_noise(5, at)).exp())?);
    let products = Cell::new(0);
    let word = rank.gpu.array::<u32>("test::word", 1)?;
    let before = rank.recorder.counts().downloads;
    let found = conjugate_gradient(
        rank,
        &mut |rank, v, out| {
            products.set(products.get() + 1);
            if waits {
                // Products that wait for the host keep scalars there.
                rank.recorder.download(&word, 0, 1)?;
            }
            let overflows = system.overflows.is_some_and(|first| products.get() >= first);
            rank.multiply(1.0, [if overflows { &infinite } else { &diagonal }, v], 0.0, out)
        },
        system.is_preconditioned.then_some(&preconditioner as &dyn Precondition<Rank>),
        &j,
        start,
        rules,
    );
    let waited = rank.recorder.counts().downloads - before;
    let text = match found {
        Ok(found) => {
            let bits = flat(rank, &found.x)?.iter().fold(0, |sum: u64, (_, x)| sum.rotate_left(9) ^ x.to_bits());
            let (numbers, ratio) = ([found.iterations, found.applications], found.error_ratio.to_bits());
            format!("{bits:x} {numbers:?} {:?} {ratio:x}", found.stop)
        }
        Err(error) => format!("{error}"),
    };
    Ok((text, waited))
}

#[test]
fn steps_that_never_wait_have_the_bits_of_the_host() {
    let one = CgOptions { norm: NormOrder::One, ..CgOptions::resnorm(0.05) };
    let both = CgOptions { resnorm: Some(1e-2), ..CgOptions::absdelta(1e-4) };
    let wide = System { spread: 7.0, ..System::default() };
    let cases = [
        (wide, CgOptions::default(), Some("Residual")),
        (System { starts: true, ..wide }, one, Some("Residual")),
        (wide, CgOptions::absdelta(1e-3), Some("Energy")),
        (wide, both, None),
        (wide, CgOptions { maxiter: Some(23), ..CgOptions::resnorm(1e-9) }, Some("Iterations")),
        (wide, CgOptions { maxiter: Some(400), ..CgOptions::resnorm(1e-30) }, None),
        (System { spread: 2.0, ..wide }, CgOptions { maxiter: Some(400), ..CgOptions::resnorm(1e-30) }, None),
        (System { is_indefinite: true, ..wide }, CgOptions::resnorm(1e-5), Some("NotPositive")),
        (System { overflows: Some(15), ..wide }, CgOptions::resnorm(1e-5), Some("the sum over leaves")),
        // The product with the solution in the iteration that computes the residual from it.
        (System { overflows: Some(21), ..wide }, CgOptions::resnorm(1e-5), Some("the sum over leaves")),
        (System { is_zero: true, ..wide }, CgOptions::resnorm(1e-5), Some("Residual")),
    ];
    for profile in [Profile::Software, Profile::Gpu] {
        let options = Options { profile: Some(profile), ..meshloom_sanitizer::options().unwrap() };
        ranks_with([1, 1], &options, |rank| {
            for (number, (system, rules, wanted)) in cases.iter().enumerate() {
                let is_short = rules.maxiter == Some(23) || system.overflows.is_some() || system.is_zero;
                if options.observer.is_some() && !is_short {
                    continue;
                }
                for is_preconditioned in [false, true] {
                    let system = System { is_preconditioned, ..*system };
                    let (host, waits) = solve(rank, system, rules, true)?;
                    let (found, fewer) = solve(rank, system, rules, false)?;
                    assert_eq!(found, host, "case {number}, preconditioned: {is_preconditioned}");
                    assert!(wanted.is_none_or(|wanted| host.contains(wanted)), "case {number}: {host}");
                    assert!(fewer < waits || system.is_zero, "case {number}: {fewer} waits of {waits}");
                }
            }
            Ok(())
        });
    }
}

/// `[low, high, exponent, sign]` of a normal number, or 0.
fn words(x: f64) -> [u32; 4] {
    let bits = x.abs().to_bits();
    let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
    match bits {
        0 => [0; 4],
        _ => [mantissa as u32, (mantissa >> 32) as u32, ((bits >> 52) as u32).wrapping_sub(1075), u32::from(x < 0.0)],
    }
}

const ARITHMETIC: &str = "
var<storage, read> pairs: array<u32>;
var<storage, read_write> found: array<u32>;

#import gpu::soft_double

fn number(at: u32) -> Double {
    return Double(load_pairs(at), load_pairs(at + 1u), i32(load_pairs(at + 2u)), load_pairs(at + 3u));
}

fn keep(at: u32, a: Double) {
    store_found(at, a.low);
    store_found(at + 1u, a.high);
    store_found(at + 2u, u32(a.exponent));
    store_found(at + 3u, a.sign);
}

fn each(i: u32) {
    let a = number(8u * i);
    let b = number(8u * i + 4u);
    keep(18u * i, sum(a, b));
    keep(18u * i + 4u, product(a, b));
    keep(18u * i + 8u, quotient(a, b));
    keep(18u * i + 12u, of_integer(vec2<u32>(load_pairs(8u * i), load_pairs(8u * i + 4u)), 0));
    store_found(18u * i + 16u, select(0u, 1u, is_less(a, b)));
    store_found(18u * i + 17u, single_of(a));
}

#each COUNT
";

/// Returns a number of a pair: mantissas of few bits, of runs of ones, and of all bits; exponents
/// near each other and far apart.
fn operand(random: &mut impl FnMut() -> u64, other: Option<f64>) -> f64 {
    let (kind, mantissa) = (random() % 6, random());
    let mantissa = match kind {
        0 => 0,
        1 => 1 << (mantissa % 52),
        2 => (u64::MAX << (mantissa % 52)) ^ (mantissa >> 40 & 3),
        3 => (1 << (mantissa % 53)) - 1,
        4 => other.map_or(mantissa, |other| other.to_bits() ^ 1 << (mantissa % 4)),
        _ => mantissa,
    } & ((1 << 52) - 1);
    let exponent = match (other, random() % 4) {
        (Some(other), 0..3) => (other.abs().to_bits() >> 52) + random() % 131 - 65,
        _ => 1023 + random() % 81 - 40,
    };
    f64::from_bits(random() << 63 | exponent << 52 | mantissa)
}

#[test]
fn numbers_of_integers_round_like_those_of_the_host() {
    // Interpreters take a thousand times as long.
    let is_interpreted = meshloom_sanitizer::options().unwrap().observer.is_some();
    let (count, batches) = if is_interpreted { (64, 1) } else { (1 << 18, 4) };
    ranks_with([1, 1], &meshloom_sanitizer::options().unwrap(), |rank| {
        let kernel = KernelSource::new("test::soft_double", ARITHMETIC)
            .module("gpu::fixed", include_str!("../../shaders/gpu/fixed.wgsl"))
            .module("gpu::soft_double", include_str!("../../shaders/gpu/soft_double.wgsl"))
            .constant("COUNT", count as u32)
            .loop_rounds(64);
        let kernel = Kernel::new(kernel);
        let pairs = rank.gpu.array::<u32>("test::pairs", 8 * count)?;
        let found = rank.gpu.array::<u32>("test::found", 18 * count)?;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 29) ^ state.rotate_left(17)
        };
        for _ in 0..batches {
            let mut numbers: Vec<[f64; 2]> = Vec::new();
            for _ in 0..count {
                let a = operand(&mut random, None);
                numbers.push([a, operand(&mut random, Some(a))]);
            }
            numbers[0][0] = 0.0;
            numbers[1] = [1.5, -1.5];
            numbers[2] = [-2.5; 2];
            numbers[3] = [0.0, -1.0];
            let given: Vec<u32> = numbers.iter().flatten().flat_map(|&x| words(x)).collect();
            rank.recorder.upload(&pairs, 0, &given)?;
            rank.recorder.each(&kernel, &[pairs.raw(), found.raw()], &(), count)?;
            let found = rank.recorder.download(&found, 0, 18 * count)?;
            for ((&[a, b], found), given) in numbers.iter().zip(found.chunks(18)).zip(given.chunks(8)) {
                let integer = (u64::from(given[4]) << 32 | u64::from(given[0])) as i64 as f64;
                for (at, wanted) in [a + b, a * b, a / b, integer].into_iter().enumerate() {
                    assert_eq!(found[4 * at..4 * at + 4], words(wanted), "number {at} of {a:e} and {b:e}: {wanted:e}");
                }
                assert_eq!(found[16], u32::from(a < b), "{a:e} {b:e}");
                let single = a as f32;
                assert_eq!(found[17], if single.is_normal() { single.to_bits() } else { 0 }, "{a:e}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_step_takes_seven_dispatches_beside_its_product() {
    for (profile, looks) in [(Profile::Software, 8), (Profile::Gpu, 2)] {
        for is_preconditioned in [false, true] {
            let options = Options { profile: Some(profile), ..meshloom_sanitizer::options().unwrap() };
            ranks_with([1, 1], &options, |rank| {
                let [diagonal, j] = [vector(rank, |at| 1.0 + at as f64)?, vector(rank, |at| white_noise(3, at))?];
                let preconditioner = Scale(vector(rank, |at| (1.0 + at as f64).powf(-0.3))?);
                let mut counts = Vec::new();
                // None is a multiple of 20, so that products are as many as steps.
                for steps in [8, 16] {
                    let rules = CgOptions { maxiter: Some(steps), miniter: Some(steps), ..CgOptions::absdelta(0.0) };
                    rank.recorder.wait()?;
                    let before = rank.recorder.counts();
                    let found = conjugate_gradient(
                        rank,
                        &mut |rank, v, out| rank.multiply(1.0, [&diagonal, v], 0.0, out),
                        is_preconditioned.then_some(&preconditioner as &dyn Precondition<Rank>),
                        &j,
                        None,
                        &rules,
                    )?;
                    assert_eq!((found.iterations, found.stop), (steps, CgStop::Iterations));
                    let after = rank.recorder.counts();
                    counts.push([
                        after.dispatches - before.dispatches,
                        after.downloads - before.downloads,
                        after.uploads - before.uploads,
                        after.moved_by_commands - before.moved_by_commands,
                    ]);
                }
                let difference: Vec<u64> = counts[1].iter().zip(counts[0]).map(|(more, less)| more - less).collect();
                let dispatches = 8 * (1 + 7 + if is_preconditioned { 2 } else { 0 });
                assert_eq!(difference, [dispatches, looks, 0, 0], "{profile:?} {is_preconditioned}");
                Ok(())
            });
        }
    }
}
