//! Preconditioned conjugate gradients: fewer steps to the same solution, on any ranks.

use super::host_models::{Host, Noise, Problem, linear};
use super::shared::{field, flat, grid, ranks, ranks_with};
use meshloom::comm::{Communicator, run_threads};
use meshloom::cosmology::Cosmology;
use meshloom::gpu::{Gpu, Options, Profile};
use meshloom::inference::{
    Algorithm, AmplitudePrior, AxesPrior, CgOptions, CorrelatedField, Data, Draw, Excitations, Existing, Expansion,
    FieldPrior, Fit, FitOptions, InferenceError, IterationOptions, Likelihood, LogLikelihood, LogLikelihoodAt,
    NewtonStop, NoiseLevel, Precondition, Preconditioner, Preconditioning, PriorSpectrum, SampleGroups, Sampler,
    SamplerOptions, Sampling, Stream, VectorSpace,
};
use meshloom::mesh::Window;
use meshloom::operators::{Leaf, Model, PointwiseOperator, Space, Vector};
use meshloom::pm::{Config, Observable, SimulationOperator};
use meshloom::random::white_noise;
use meshloom::{Mesh, Rank};

/// The prior of a log-normal rate: its mean, and whether its spectrum is inferred with it.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    pub counts: f64,
    pub is_free: bool,
}

/// Cells that have data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    Everywhere,
    /// Cells whose normal number is at most this.
    AtRandom(f64),
    /// All but the first 3/8 of the cells, as where a field extends beyond its data.
    Padded,
}

/// Returns the model of a rate whose logarithm has deviation 1 and a power spectrum `k^-3`.
fn model(rank: &mut Rank, mesh: &Mesh, rate: Rate) -> Result<Model, InferenceError> {
    let std = if rate.is_free { 0.3 } else { 0.0 };
    let amplitude = AmplitudePrior::NonParametric {
        of: PriorSpectrum::Power,
        fluctuations: [1.0, std],
        slope: [-3.0, std],
        flexibility: rate.is_free.then_some([0.3, 0.1]),
        asperity: rate.is_free.then_some([0.1, 0.05]),
    };
    let prior = FieldPrior {
        name: "sky".into(),
        offset_mean: rate.counts.ln(),
        offset_std: [0.3, std],
        axes: vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }],
    };
    let logarithm = CorrelatedField::new(rank, mesh, &prior)?.model()?;
    let exp = PointwiseOperator::wgsl("fn f(x: f32) -> f32 { return exp(x); }", "f", logarithm.target(), "rate")?;
    Ok(logarithm.then(&Model::new(exp))?)
}

/// Returns numbers of a seed for a space, by their places on all ranks.
pub(super) fn noise(rank: &mut Rank, space: &Space, seed: u64) -> Result<Vector, InferenceError> {
    let len: u64 = space.leaves().map(|(_, leaf)| leaf.total()).sum();
    let values: Vec<f64> = (0..len).map(|at| white_noise(seed, at)).collect();
    field(rank, space, &values)
}

/// Returns the likelihood of the counts that the model expects at its truth, and that truth.
pub(super) fn likelihood(
    rank: &mut Rank,
    mesh: &Mesh,
    rate: Rate,
    seen: Seen,
) -> Result<(Likelihood, Vector), InferenceError> {
    let model = model(rank, mesh, rate)?;
    let truth = noise(rank, model.domain(), 11)?;
    let expected = model.value(rank, &truth)?;
    let counts: Vec<f64> = expected.get(&mut rank.recorder, "rate")?.into_iter().map(f64::round).collect();
    let places: Vec<usize> = flat(rank, &expected)?.into_iter().map(|(place, _)| place).collect();
    let total: u64 = mesh.shape().iter().product();
    let is_seen = |&place: &usize| match seen {
        Seen::Everywhere => true,
        Seen::AtRandom(most) => white_noise(5, place as u64).abs() <= most,
        Seen::Padded => place as u64 >= 3 * total / 8,
    };
    let mask: Vec<bool> = places.iter().map(is_seen).collect();
    let leaf = Leaf::cells(mesh);
    let data = Data { name: "counts", leaf: &leaf, values: &counts, mask: Some(&mask) };
    Ok((Likelihood::poisson(rank, &data, None)?.amend(&model)?, truth))
}

pub(super) fn preconditioner(
    rank: &mut Rank,
    likelihood: &Likelihood,
    place: &Vector,
) -> Result<Preconditioner<Rank>, InferenceError> {
    let groups = SampleGroups::one(&Communicator::solo());
    let found = Preconditioner::new(rank, likelihood, &groups, (place, &[]), Preconditioning::Fields)?;
    Ok(found.expect("the model has a correlated field"))
}

#[test]
fn solutions_are_those_of_plain_steps() {
    // The metric is 1 or more, so that a solution is as far from the exact one as its residual is
    // long, and two are twice as far apart at most; as much again for residuals rounded to f32.
    const RESIDUAL: f64 = 0.02;
    let rules = CgOptions { maxiter: Some(2000), ..CgOptions::resnorm(RESIDUAL) };
    let cases = [
        (false, Seen::Everywhere, 8),
        (true, Seen::Everywhere, 4),
        (false, Seen::AtRandom(0.7), 6),
        (true, Seen::AtRandom(0.7), 4),
        (false, Seen::Padded, 4),
        (true, Seen::Padded, 3),
    ];
    for (is_free, seen, fewer) in cases {
        ranks([1, 1], |rank| {
            let mesh = grid(rank, &[48, 40], &[0.02]);
            let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free }, seen)?;
            let own = preconditioner(rank, &likelihood, &truth)?;
            assert_eq!((own.products() == 1, own.directions() == 0), (!is_free, !is_free), "{own:?}");
            let draw = |rank: &mut Rank, own: Option<&Preconditioner<Rank>>| {
                let expansion = Expansion::new(rank, &likelihood, &truth, &[])?.with_preconditioner(own);
                expansion.linear(rank, &Excitations::Seed(3), [0, 0], &rules)
            };
            let (plain, mut found) = (draw(rank, None)?, draw(rank, Some(&own))?);
            assert!(plain.error_ratio <= 1.0 && found.error_ratio <= 1.0);
            let (few, many) = (found.iterations, plain.iterations);
            assert!(fewer * few <= many, "free {is_free}, {seen:?}: {few} steps instead of {many}");
            rank.vector_axpby(-1.0, &plain.x, 1.0, &mut found.x)?;
            let apart = rank.vector_dot(&found.x, &found.x)?.sqrt();
            assert!(apart < 4.0 * RESIDUAL, "free {is_free}, {seen:?}: {apart}");
            Ok(())
        });
    }
}

/// `x.P y` is `y.P x`, and `x.P x` positive, to the rounding of sums of some 2000 numbers.
#[test]
fn it_is_symmetric_and_positive() {
    ranks([1, 1], |rank| {
        let mesh = grid(rank, &[48, 40], &[0.02]);
        let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::Everywhere)?;
        let own = preconditioner(rank, &likelihood, &truth)?;
        let rate = Rate { counts: 10.0, is_free: true };
        let model = model(rank, &mesh, rate)?;
        let [x, y] = [noise(rank, model.domain(), 21)?, noise(rank, model.domain(), 22)?];
        let [mut px, mut py] = [VectorSpace::like(rank, &x)?, VectorSpace::like(rank, &x)?];
        own.apply(rank, &x, &mut px)?;
        own.apply(rank, &y, &mut py)?;
        let [xpy, ypx] = [rank.vector_dot(&x, &py)?, rank.vector_dot(&y, &px)?];
        let [xx, yy] = [rank.vector_dot(&x, &px)?, rank.vector_dot(&y, &py)?];
        assert!(xx > 0.0 && yy > 0.0, "{xx} {yy}");
        assert!((xpy - ypx).abs() < 1e-5 * (xx * yy).sqrt(), "{xpy} {ypx} of {xx} {yy}");
        Ok(())
    });
}

#[test]
fn samples_have_the_same_bits_on_any_ranks() {
    let mut first = None;
    // Odd numbers of lines, so that ranks have other numbers of cells than of modes.
    for parts in [[1, 1], [1, 2], [1, 3], [1, 5]] {
        let found = ranks(parts, |rank| {
            let mesh = grid(rank, &[21, 10], &[0.02]);
            let (likelihood, truth) =
                likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::AtRandom(0.9))?;
            let own = preconditioner(rank, &likelihood, &truth)?;
            let expansion = Expansion::new(rank, &likelihood, &truth, &[])?.with_preconditioner(Some(&own));
            let found = expansion.linear(rank, &Excitations::Seed(3), [0, 0], &CgOptions::default())?;
            flat(rank, &found.x)
        });
        let mut all: Vec<(usize, u32)> = found.concat().iter().map(|&(at, x)| (at, (x as f32).to_bits())).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "ranks differ");
        assert_eq!(*first.get_or_insert(all.clone()), all, "{parts:?}");
    }
}

/// Groups share a preconditioner, and minimize together.
#[test]
fn fits_have_the_same_bits_for_every_number_of_groups() {
    let options = meshloom_sanitizer::options().unwrap();
    let mut first = None;
    for count in [1, 2] {
        let found = run_threads(count, |comm| -> Result<_, InferenceError> {
            let (groups, own) = SampleGroups::split(&comm, count)?;
            let rank = &mut Rank::new(own, Gpu::open(&options, 0)?)?;
            let mesh = grid(rank, &[12, 10], &[0.02]);
            let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::Everywhere)?;
            let each = |_| IterationOptions {
                pairs: 2,
                sampling: Sampling::Linear(Draw::New),
                constants: vec!["sky/slope".into()],
                point_estimates: vec!["sky/flexibility".into()],
                ..IterationOptions::default()
            };
            let fit = Fit::new(rank, &likelihood, &groups, &truth, &FitOptions::new(2).each(each))?.run(rank)?;
            let last = fit.history()[1].clone();
            // Without a limit of its own, as steps that gain less than 0.1 are the last.
            assert_eq!((last.stop, last.sampling.unconverged), (NewtonStop::Value, 0));
            let position = flat(rank, &fit.samples().position)?;
            Ok((last.energy.to_bits(), position.iter().map(|x| x.1.to_bits()).collect::<Vec<_>>()))
        });
        for found in found.unwrap_or_else(|error| panic!("{count} groups: {error}")) {
            assert_eq!(*first.get_or_insert(found.clone()), found, "{count} groups");
        }
    }
}

#[test]
fn directions_take_seven_dispatches_and_no_wait() {
    // Two transforms of three fields are two passes each, and one where a workgroup holds a field.
    for (profile, waits, transforms) in [(Profile::Software, 8, 4), (Profile::Gpu, 2, 2)] {
        let options = Options { profile: Some(profile), ..meshloom_sanitizer::options().unwrap() };
        ranks_with([1, 1], &options, |rank| {
            let mesh = grid(rank, &[24, 20], &[0.02]);
            let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::Everywhere)?;
            let own = preconditioner(rank, &likelihood, &truth)?;
            let expansion = Expansion::new(rank, &likelihood, &truth, &[])?.with_preconditioner(Some(&own));
            let (r, mut out) = (VectorSpace::copy(rank, &truth)?, VectorSpace::like(rank, &truth)?);
            let mut dispatches = |rank: &mut Rank, what: &dyn Precondition<Rank>| -> Result<u64, InferenceError> {
                rank.recorder.wait()?;
                let before = rank.recorder.counts();
                what.apply(rank, &r, &mut out)?;
                rank.recorder.wait()?;
                let after = rank.recorder.counts();
                assert_eq!((after.downloads, after.uploads), (before.downloads, before.uploads));
                Ok(after.dispatches - before.dispatches)
            };
            let at = likelihood.at(rank, &truth)?;
            let of_directions = dispatches(rank, &own)?;
            let of_metric = dispatches(rank, &Applied(&*at))?;
            assert_eq!(of_directions, 1 + 3 + transforms + 7);
            let mut counts = Vec::new();
            // None is a multiple of 20, so that products are as many as steps.
            for maxiter in [4, 12] {
                let rules = CgOptions { maxiter: Some(maxiter), miniter: Some(maxiter), ..CgOptions::absdelta(0.0) };
                rank.recorder.wait()?;
                let before = rank.recorder.counts();
                assert_eq!(expansion.linear(rank, &Excitations::Seed(3), [0, 0], &rules)?.iterations, maxiter);
                rank.recorder.wait()?;
                let after = rank.recorder.counts();
                counts.push([after.downloads - before.downloads, after.dispatches - before.dispatches]);
            }
            assert_eq!(counts[1][0] - counts[0][0], waits, "{counts:?}");
            // The product adds the vector.
            assert_eq!(counts[1][1] - counts[0][1], 8 * (of_metric + 1 + 8 + of_directions), "{counts:?}");
            Ok(())
        });
    }
}

/// The metric as a preconditioner, whose dispatches are counted.
struct Applied<'a>(&'a dyn LogLikelihoodAt<Rank>);

impl Precondition<Rank> for Applied<'_> {
    fn apply(&self, rank: &mut Rank, r: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        self.0.metric(rank, r, out)
    }
}

/// Directions are products with any vectors: of parts of an array, and arrays of their own.
#[test]
fn products_have_the_same_bits_however_leaves_are_stored() {
    ranks([1, 1], |rank| {
        let mesh = grid(rank, &[9, 14], &[0.02]);
        let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts: 10.0, is_free: true }, Seen::Everywhere)?;
        let own = preconditioner(rank, &likelihood, &truth)?;
        let apart = noise(rank, likelihood.domain(), 21)?;
        let joined = VectorSpace::copy(rank, &apart)?;
        let (mut of_apart, mut of_joined) = (Vector::new(&rank.gpu, apart.space())?, rank.like(&apart)?);
        own.apply(rank, &apart, &mut of_apart)?;
        own.apply(rank, &joined, &mut of_joined)?;
        assert_eq!(flat(rank, &of_apart)?, flat(rank, &of_joined)?);
        Ok(())
    });
}

/// Measures the steps in `docs/inference.md`, which have limits.
#[test]
#[ignore = "takes a minute: cargo test --test inference steps_of_the_guide -- --ignored --nocapture"]
fn steps_of_the_guide() {
    let all = Seen::Everywhere;
    let whole = [(false, 1.0, all, 60), (false, 10.0, all, 60), (false, 1000.0, all, 90), (true, 10.0, all, 100)];
    let padded = [1.0, 10.0].map(|counts| (false, counts, Seen::Padded, 150));
    for (is_free, counts, seen, most) in whole.into_iter().chain(padded) {
        ranks([1, 1], |rank| {
            let mesh = grid(rank, &[256, 256], &[1.0 / 256.0]);
            let (likelihood, truth) = likelihood(rank, &mesh, Rate { counts, is_free }, seen)?;
            let own = preconditioner(rank, &likelihood, &truth)?;
            let rules = CgOptions { maxiter: Some(1000), ..CgOptions::default() };
            for own in [None, Some(&own)] {
                let expansion = Expansion::new(rank, &likelihood, &truth, &[])?.with_preconditioner(own);
                let found = expansion.linear(rank, &Excitations::Seed(3), [0, 0], &rules)?;
                let (steps, ratio) = (found.iterations, found.error_ratio);
                println!(
                    "{counts} counts, spectrum inferred {is_free}, {seen:?}: {own:?}: {steps} steps, {ratio:.2} of the target"
                );
                assert!(own.is_none() || steps <= most, "{counts} counts: {steps} steps");
            }
            Ok(())
        });
    }
}

/// A model without a field: directions alone, in f64.
#[test]
fn any_model_may_be_preconditioned() {
    let (cells, latent) = (40, 30);
    // Columns fall off, so that few directions are known well.
    let row = |cell: usize| (0..latent).map(move |k| 30.0 * 0.5f64.powi(k as i32) * white_noise(k as u64, cell as u64));
    let rows = (0..cells).map(|cell| row(cell).collect()).collect();
    let data = (0..cells).map(|cell| white_noise(99, cell as u64)).collect();
    let noise = Noise::Gaussian { std: 0.3 };
    let problem = Problem { noise, data, latent, forward: Box::new(linear(rows)) };
    let (mut host, groups) = (Host::new([("a", 10), ("b", 20)]), SampleGroups::one(&Communicator::solo()));
    let place = vec![0.1; latent];
    let mut build =
        |fixed: &[String], kind| Preconditioner::new(&mut host, &problem, &groups, (&place, fixed), kind).unwrap();
    assert!(build(&[], Preconditioning::Off).is_none() && build(&[], Preconditioning::Fields).is_none());
    for fixed in [vec![], vec!["b".to_string()]] {
        let own = build(&fixed, Preconditioning::Always).unwrap();
        assert!((6..=16).contains(&own.directions()), "{own:?}");
        let mut host = Host::new([("a", 10), ("b", 20)]);
        let rules = CgOptions { maxiter: Some(500), ..CgOptions::resnorm(1e-9) };
        let mut draw = |own| {
            let expansion = Expansion::new(&mut host, &problem, &place, &fixed).unwrap().with_preconditioner(own);
            expansion.linear(&mut host, &Excitations::Seed(3), [0, 0], &rules).unwrap()
        };
        let (plain, found) = (draw(None), draw(Some(&own)));
        assert!(2 * found.iterations <= plain.iterations, "{} and {}", found.iterations, plain.iterations);
        let apart = plain.x.iter().zip(&found.x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-8, "{apart}");
        assert!(fixed.is_empty() || found.x[10..].iter().all(|&x| x == 0.0));
    }
}

/// Returns the likelihood of a noisy density that a run has made, and the white noise of the run.
fn evolved(rank: &mut Rank, noise_std: f64) -> Result<(Likelihood, Vector), InferenceError> {
    let grid = Some(crate::process_grid::of(rank).parts());
    let base = Config { window: Window::Tsc, cosmology: Cosmology::simple(), grid, ..Config::default() };
    let config = Config { particles: 12, mesh: 12, box_size: 240.0, steps: 2, ..base };
    let run = Model::new(SimulationOperator::new(rank, config, 1, &[Observable::Density])?);
    let truth = noise_of(rank, run.domain(), 31)?;
    let mut density = run.value(rank, &truth)?;
    let error = noise_of(rank, run.target(), 32)?;
    rank.vector_axpby(noise_std, &error, 1.0, &mut density)?;
    let values = density.get(&mut rank.recorder, "density")?;
    let Some((name, leaf)) = run.target().only() else { unreachable!("one observable") };
    let data = Data { name, leaf, values: &values, mask: None };
    Ok((Likelihood::gaussian(rank, &data, NoiseLevel::Uniform(noise_std))?.amend(&run)?, truth))
}

/// Returns white noise of a seed.
fn noise_of(rank: &mut Rank, space: &Space, seed: u64) -> Result<Vector, InferenceError> {
    let mut noise = Vector::new(&rank.gpu, space)?;
    rank.white_noise(Stream(seed), &mut noise)?;
    Ok(noise)
}

#[test]
fn initial_conditions_are_found_in_fewer_steps() {
    let rules = CgOptions { maxiter: Some(500), ..CgOptions::resnorm(0.02) };
    let mut first = None;
    for parts in [[1, 1], [3, 1]] {
        let found = ranks(parts, |rank| {
            let (likelihood, truth) = evolved(rank, 0.05)?;
            let own = preconditioner(rank, &likelihood, &truth)?;
            assert_eq!((own.products(), own.directions()), (4, 0));
            let draw = |rank: &mut Rank, own: Option<&Preconditioner<Rank>>| {
                let expansion = Expansion::new(rank, &likelihood, &truth, &[])?.with_preconditioner(own);
                expansion.linear(rank, &Excitations::Seed(3), [0, 0], &rules)
            };
            let found = draw(rank, Some(&own))?;
            if parts == [1, 1] {
                let plain = draw(rank, None)?;
                assert!(plain.error_ratio <= 1.0 && found.error_ratio <= 1.0);
                println!("{} steps instead of {}", found.iterations, plain.iterations);
                assert!(3 * found.iterations <= plain.iterations, "{} {}", found.iterations, plain.iterations);
            }
            flat(rank, &found.x)
        });
        let mut all: Vec<(usize, u32)> = found.concat().iter().map(|&(at, x)| (at, (x as f32).to_bits())).collect();
        all.sort_unstable();
        assert!(first.get_or_insert_with(|| all.clone()) == &all, "{parts:?} differs");
    }
}

/// Chains in the same units: the state keeps the precision of modes.
#[test]
fn chains_of_initial_conditions_resume_on_other_ranks() {
    let directory = std::env::temp_dir().join(format!("meshloom-conditions-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let run = |parts: [usize; 2], state: bool, steps: usize| {
        let energies = ranks(parts, |rank| {
            let (likelihood, truth) = evolved(rank, 0.05)?;
            let groups = SampleGroups::one(&rank.comm);
            let mut options = SamplerOptions::new(Algorithm::hmc(2), 4, 2).chains(1);
            if state {
                options = options.state(&directory, Existing::Resume).save_every(3);
            }
            let mut sampler = Sampler::new(rank, &likelihood, &groups, &[truth], &options)?;
            let mut energies = Vec::new();
            while energies.len() < steps && sampler.step(rank)?.is_some() {
                energies.push(sampler.statistics(0)?.energy.to_bits());
            }
            Ok(energies)
        });
        energies[0].clone()
    };
    let whole = run([1, 1], false, 6);
    assert_eq!(run([1, 1], true, 4), whole[..4]);
    assert_eq!(run([2, 1], true, 6), whole[3..]);
    std::fs::remove_dir_all(&directory).unwrap();
}
