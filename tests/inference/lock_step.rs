//! Solves and products that are computed together, against one after the other.

use super::preconditioner::{Rate, Seen, likelihood, noise, preconditioner};
use super::shared::{flat, grid, ranks, ranks_with};
use meshloom::Rank;
use meshloom::comm::Communicator;
use meshloom::gpu::{Options, Profile};
use meshloom::inference::{
    CgOptions, Curvature, Draw, Excitations, Expansion, Fit, FitOptions, Footprint, InferenceError, IterationOptions,
    Kl, Likelihood, LogLikelihood, NewtonOptions, Objective, Preconditioning, SampleGroups, Samples, Sampling,
    VectorSpace,
};
use meshloom::operators::Vector;

const SEED: u64 = 5;

/// Returns an iteration that draws straight samples and leaves the position where it is.
fn draws(pairs: usize, linear: CgOptions, preconditioning: Preconditioning) -> IterationOptions {
    IterationOptions {
        pairs,
        sampling: Sampling::Linear(Draw::New),
        linear,
        preconditioning,
        position: NewtonOptions::default().steps(0),
        ..IterationOptions::default()
    }
}

/// Returns the fit after an iteration of these options.
fn drawn<'a>(
    rank: &mut Rank,
    likelihood: &'a Likelihood,
    place: &Vector,
    options: &IterationOptions,
    memory: Option<u64>,
) -> Result<Fit<Rank, &'a Likelihood>, InferenceError> {
    let groups = SampleGroups::one(&rank.comm);
    let fit = FitOptions::new(1).seed(SEED).memory(memory).each(|_| options.clone());
    Fit::new(rank, likelihood, &groups, place, &fit)?.run(rank)
}

fn bits(rank: &mut Rank, x: &Vector) -> Result<Vec<u64>, InferenceError> {
    Ok(flat(rank, x)?.into_iter().map(|(_, x)| x.to_bits()).collect())
}

#[test]
fn samples_solved_together_have_the_bits_of_one_after_the_other() {
    // Solves end at different steps, and some beyond a multiple of 20.
    let rules = CgOptions { maxiter: Some(60), ..CgOptions::absdelta(1e-4) };
    let profiles = [Profile::Software, Profile::Gpu];
    for (parts, profile) in [([1, 1], profiles[0]), ([1, 1], profiles[1]), ([1, 2], profiles[0]), ([1, 3], profiles[1])]
    {
        let options = Options { profile: Some(profile), ..meshloom_sanitizer::options().unwrap() };
        ranks_with(parts, &options, |rank| {
            let mesh = grid(rank, &[13, 10], &[0.02]);
            let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::Everywhere)?;
            let own = preconditioner(rank, &likelihood, &truth)?;
            let mut apart = false;
            for (preconditioning, own) in [(Preconditioning::Off, None), (Preconditioning::Fields, Some(&own))] {
                let fit = drawn(rank, &likelihood, &truth, &draws(3, rules, preconditioning), None)?;
                let mut steps = Vec::new();
                for pair in 0..3 {
                    let expansion = Expansion::new(rank, &likelihood, &truth, &[])?.with_preconditioner(own);
                    let mut found = expansion.linear(rank, &Excitations::Seed(SEED), [0, pair as u32], &rules)?;
                    for sample in [2 * pair, 2 * pair + 1] {
                        let (residual, outcome) = (fit.samples().residual(sample), fit.samples().outcome(sample));
                        let (residual, outcome) = (residual.unwrap(), outcome.unwrap());
                        assert_eq!(bits(rank, residual)?, bits(rank, &found.x)?, "{parts:?}, sample {sample}");
                        assert_eq!((outcome.steps, outcome.error_ratio), (found.iterations, found.error_ratio));
                        let copy = VectorSpace::copy(rank, &found.x)?;
                        VectorSpace::axpby(rank, -1.0, &copy, 0.0, &mut found.x)?;
                    }
                    steps.push(found.iterations);
                }
                apart |= steps.iter().any(|&other| other != steps[0]);
            }
            assert!(apart, "all solves end at one step");
            Ok(())
        });
    }
}

#[test]
fn three_more_pairs_take_no_wait_for_their_steps() {
    const STEPS: u64 = 40;
    let rules = CgOptions { maxiter: Some(STEPS), miniter: Some(STEPS), ..CgOptions::absdelta(0.0) };
    for (parts, preconditioning) in
        [([1, 1], Preconditioning::Off), ([1, 1], Preconditioning::Fields), ([1, 2], Preconditioning::Fields)]
    {
        ranks(parts, |rank| {
            let mesh = grid(rank, &[12, 10], &[0.02]);
            let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::Everywhere)?;
            let mut waits = Vec::new();
            for pairs in [1, 4] {
                let before = rank.recorder.counts().downloads;
                drawn(rank, &likelihood, &truth, &draws(pairs, rules, preconditioning), None)?;
                waits.push(rank.recorder.counts().downloads - before);
            }
            // Energies and sums of six samples, on one rank. Between ranks products with the metric
            // and the preconditioner exchange; one after the other, a step has four more sums of
            // two waits.
            let most = if parts == [1, 1] { 6 * 5 } else { 3 * STEPS * 12 };
            assert!(waits[1] - waits[0] <= most, "{parts:?} {preconditioning:?}: {waits:?}");
            Ok(())
        });
    }
}

#[test]
fn a_budget_of_memory_changes_no_bit() {
    let rules = CgOptions { maxiter: Some(30), ..CgOptions::default() };
    // Tests whose devices have the same options share one device and count its memory together. No
    // other test of the process has this window, so no other test allocates on this device
    // meanwhile.
    let options = Options { window_bytes: Some(4 << 20), ..meshloom_sanitizer::options().unwrap() };
    ranks_with([1, 1], &options, |rank| {
        let mesh = grid(rank, &[12, 10], &[0.02]);
        let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::Everywhere)?;
        let groups = SampleGroups::one(&rank.comm);
        // The first one also counts what is made once and stays.
        Footprint::measure(rank, &groups, &likelihood, &truth)?;
        let footprint = Footprint::measure(rank, &groups, &likelihood, &truth)?;
        let options = IterationOptions {
            sampling: Sampling::Curved(Draw::New),
            curve: NewtonOptions::default().steps(2),
            position: NewtonOptions::default().steps(2),
            ..draws(3, rules, Preconditioning::Fields)
        };
        let mut found = Vec::new();
        for (kept, together) in [(1, 1), (6, 1), (6, 2), (6, 6)] {
            let memory = footprint.bytes(6, kept, together);
            assert_eq!((footprint.kept(6, memory)?, footprint.concurrency(6, kept, memory)), (kept, together));
            let fit = drawn(rank, &likelihood, &truth, &options, Some(memory))?;
            let mut all = vec![fit.history()[0].energy.to_bits()];
            for sample in 0..6 {
                let place = fit.samples().at(rank, sample)?;
                all.extend(bits(rank, &place)?);
            }
            found.push(all);
        }
        assert!(found.iter().all(|other| *other == found[0]));
        Ok(())
    });
}

#[test]
fn products_and_energies_of_samples_are_submitted_together() {
    ranks([1, 1], |rank| {
        let mesh = grid(rank, &[12, 10], &[0.02]);
        let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::Everywhere)?;
        let groups = SampleGroups::one(&Communicator::solo());
        let residuals =
            (0..5).map(|seed| noise(rank, likelihood.domain(), 30 + seed)).collect::<Result<Vec<_>, _>>()?;
        let samples = Samples::new(VectorSpace::copy(rank, &truth)?, &groups, 5, residuals)?;
        let mut wanted = 0.0;
        for sample in 0..5 {
            let place = samples.at(rank, sample)?;
            wanted += (likelihood.energy(rank, &place)? + VectorSpace::dot(rank, &place, &place)? / 2.0) / 5.0;
        }
        let mut found = Vec::new();
        for (concurrency, waits) in [(1, 5), (2, 3), (usize::MAX, 1)] {
            let kl = Kl {
                likelihood: &likelihood,
                samples: &samples,
                groups: &groups,
                constants: &[],
                kept: 4,
                concurrency,
                preconditioner: None,
                curvature: Curvature::default(),
            };
            let start = rank.recorder.counts().downloads;
            let (energy, at) = kl.at(rank, &truth)?;
            let middle = rank.recorder.counts().downloads;
            assert_eq!(kl.value(rank, &truth)?.to_bits(), energy.to_bits());
            let end = rank.recorder.counts().downloads;
            assert_eq!([middle - start, end - middle], [waits; 2]);
            assert!((energy - wanted).abs() <= 1e-13 * wanted.abs(), "{energy} {wanted}");
            let mut out = rank.like(&truth)?;
            at.metric(rank, &truth, &mut out)?;
            rank.recorder.wait()?;
            let before = rank.recorder.counts();
            at.metric(rank, &truth, &mut out)?;
            rank.recorder.wait()?;
            let after = rank.recorder.counts();
            assert_eq!(after.downloads, before.downloads);
            let counts =
                [after.submits - before.submits, after.levels - before.levels, after.dispatches - before.dispatches];
            found.push((counts, bits(rank, &out)?));
        }
        let of = |which: usize| found.iter().map(|(counts, _)| counts[which]).collect::<Vec<_>>();
        // The last submission has the sum.
        assert_eq!(of(0), [6, 3, 1]);
        // Products of samples share the levels of a submission.
        let levels = of(1);
        assert!(2 * levels[2] < levels[0] && levels[2] < levels[1], "{levels:?}");
        // A stack of two has one product, and one of four; the fifth sample has its own.
        let [one, two, all] = of(2)[..] else { panic!() };
        assert!(10 * two < 8 * one && 10 * all < 6 * one, "{one} {two} {all}");
        assert!(found.iter().all(|(_, bits)| *bits == found[0].1));
        Ok(())
    });
}
