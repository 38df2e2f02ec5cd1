//! Independent work of fits takes as many levels of dispatches as one part of it.

use super::device::likelihood;
use super::shared::{field, flat, golden, numbers, ranks_with};
use meshloom::Rank;
use meshloom::gpu::{Options, Profile};
use meshloom::inference::{Elementwise, InferenceError, LogLikelihood, VectorSpace};
use meshloom::operators::{Leaf, Space, Vector};

/// Returns options of devices that take independent dispatches into one pass, as GPUs do.
fn options() -> Options {
    Options { profile: Some(Profile::Gpu), ..meshloom_sanitizer::options().unwrap() }
}

/// Returns submissions, dispatches, passes and levels of `work`. The sanitizer submits every
/// dispatch by itself.
fn counted(
    rank: &mut Rank,
    work: impl FnOnce(&mut Rank) -> Result<(), InferenceError>,
) -> Result<[u64; 4], InferenceError> {
    rank.recorder.submit()?;
    let before = rank.recorder.counts();
    work(rank)?;
    rank.recorder.submit()?;
    let after = rank.recorder.counts();
    let pairs = [
        (before.submits, after.submits),
        (before.dispatches, after.dispatches),
        (before.passes, after.passes),
        (before.levels, after.levels),
    ];
    Ok(pairs.map(|(before, after)| after - before))
}

fn is_observed() -> bool {
    options().observer.is_some()
}

/// Applies the metric of a correlated field at four positions: no product waits for another one,
/// and none shares temporary memory with another one.
#[test]
fn products_of_four_positions_take_the_levels_of_one() {
    let golden = golden("inference.json")["poisson_16"].clone();
    ranks_with([1, 1], &options(), |rank| {
        let likelihood = likelihood(rank, "poisson_16", &golden)?;
        let (position, v) = (numbers(&golden["pos"]), numbers(&golden["gradient"]));
        let v = field(rank, likelihood.domain(), &v)?;
        let mut at = Vec::new();
        for number in 0..4 {
            let scaled: Vec<f64> = position.iter().map(|x| x * (1.0 + 0.1 * f64::from(number))).collect();
            let place = field(rank, likelihood.domain(), &scaled)?;
            at.push(likelihood.at(rank, &place)?);
        }
        let (mut alone, mut counts) = (Vec::new(), [0; 4]);
        for at in &at {
            let mut out = rank.like(&v)?;
            counts = counted(rank, |rank| at.metric(rank, &v, &mut out))?;
            alone.push(flat(rank, &out)?);
        }
        let mut outs = Vec::new();
        for _ in &at {
            outs.push(rank.like(&v)?);
        }
        let together =
            counted(rank, |rank| at.iter().zip(&mut outs).try_for_each(|(at, out)| at.metric(rank, &v, out)))?;
        for (out, alone) in outs.iter().zip(&alone) {
            assert_eq!(&flat(rank, out)?, alone);
        }
        if !is_observed() {
            let [submits, dispatches, passes, levels] = counts;
            assert_eq!([together[0], together[1], together[3]], [submits, 4 * dispatches, levels]);
            assert!(passes <= levels && together[2] >= levels, "{counts:?} {together:?}");
        }
        Ok(())
    });
}

#[test]
fn all_leaves_of_a_vector_are_one_level() {
    ranks_with([1, 1], &options(), |rank| {
        let space = Space::new([1, 63, 64, 500, 3000].map(|len| (format!("{len}"), Leaf::vector(len))))?;
        let values = |seed: u32| (0..3628).map(|at| f64::from((at * seed) % 17) / 8.0).collect::<Vec<f64>>();
        // Each leaf has an array of its own.
        let [x, mut y, mut z]: [Vector; 3] =
            [field(rank, &space, &values(3))?, field(rank, &space, &values(5))?, field(rank, &space, &values(7))?];
        let counts = counted(rank, |rank| {
            rank.vector_axpby(0.5, &x, -1.5, &mut y)?;
            VectorSpace::multiply(rank, 2.0, [&x, &y], 0.25, &mut z)?;
            rank.map(Elementwise::Sqrt, &mut z)
        })?;
        if !is_observed() {
            assert_eq!(counts, [1, 15, 3, 3]);
        }
        let found = flat(rank, &z)?;
        for ((at, found), ((x, y), z)) in found.into_iter().zip(values(3).iter().zip(values(5)).zip(values(7))) {
            let wanted = (2.0 * x * (0.5 * x - 1.5 * y) + 0.25 * z).max(0.0).sqrt();
            // The numbers before the root have few bits and are exact.
            assert!((found - wanted).abs() <= f64::from(f32::EPSILON) * wanted, "{at}: {found} {wanted}");
        }
        Ok(())
    });
}
