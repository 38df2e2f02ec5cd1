//! Samples and positions that are not solved: reports count them, keep them over updates and
//! resumptions, and fits go on.

use super::host_models::{Host, Noise, Problem, dot, linear};
use meshloom::comm::{Communicator, run_threads};
use meshloom::inference::{
    CgOptions, CgStop, Convergence, Draw, Excitations, Existing, Fit, FitOptions, Identity, InferenceError,
    IterationOptions, LogLikelihood, LogLikelihoodAt, NewtonOptions, NewtonStop, Objective, ObjectiveAt, SampleGroups,
    SampleOutcome, Samples, Sampling, VectorSpace, conjugate_gradient, newton_cg, wiener_filter,
};
use std::path::Path;

/// Numbers between -1 and 1 that look random.
fn scattered(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| (((i + 1) * (7919 + 104_729 * seed)) as f64 * 0.618_033_988_75).fract() * 2.0 - 1.0).collect()
}

/// Counts of ten cells whose logarithmic rates depend linearly on six latent values.
fn counts() -> Problem {
    let rows = scattered(60, 1).chunks(6).map(<[f64]>::to_vec).collect();
    let field = linear(rows);
    let forward = move |x: &[_]| field(x).iter().map(|y| y.exp() * 3.0).collect();
    let data = [4.0, 2.0, 7.0, 3.0, 0.0, 5.0, 1.0, 9.0, 4.0, 6.0];
    Problem { noise: Noise::Poisson, data: data.to_vec(), latent: 6, forward: Box::new(forward) }
}

/// Runs the first iterations of a fit of `counts` on groups of one rank each, going on from
/// `state`.
fn fit(
    groups: usize,
    iterations: u32,
    state: Option<&Path>,
    options: impl Fn(u32) -> IterationOptions + Sync,
) -> (Vec<Convergence>, Vec<SampleOutcome>) {
    let ranks = run_threads(groups, |comm| {
        let (problem, mut host) = (counts(), Host::default());
        let (groups, _) = SampleGroups::split(&comm, groups)?;
        let mut own = FitOptions::new(iterations).each(&options);
        if let Some(state) = state {
            own = own.state(state, Existing::Resume);
        }
        let fit = Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], &own)?.run(&mut host)?;
        let (samples, history) = (fit.samples(), fit.history());
        let outcomes: Vec<_> = samples.own().map(|sample| samples.outcome(sample).unwrap()).collect();
        Ok::<_, InferenceError>((history.iter().map(|report| report.sampling).collect::<Vec<_>>(), outcomes))
    });
    let ranks = ranks.unwrap();
    let counts = ranks[0].0.clone();
    assert!(ranks.iter().all(|rank| rank.0 == counts), "{groups} groups: {ranks:?}");
    (counts, ranks.into_iter().flat_map(|rank| rank.1).collect())
}

#[test]
fn residuals_of_a_group_reach_the_ranks_of_all_groups() {
    for groups in [1, 3] {
        let ranks = run_threads(groups, |comm| {
            let mut host = Host::default();
            let (groups, _) = SampleGroups::split(&comm, groups)?;
            let own = groups.block(5).map(|sample| vec![sample as f64, -1.0]).collect();
            let samples = Samples::new(vec![0.5; 2], &groups, 5, own)?;
            assert!(samples.residual_everywhere(&mut host, &groups, 5).is_err());
            (0..5).map(|sample| samples.residual_everywhere(&mut host, &groups, sample)).collect::<Result<Vec<_>, _>>()
        });
        let wanted: Vec<_> = (0..5).map(|sample| vec![f64::from(sample), -1.0]).collect();
        assert!(ranks.unwrap().iter().all(|residuals| *residuals == wanted), "{groups} groups");
    }
}

#[test]
fn every_bent_sample_that_runs_out_of_steps_is_counted() {
    // No step has a length of 0, so that the only step is not the last one by its length.
    let curve = NewtonOptions { xtol: 0.0, ..NewtonOptions::default().steps(1) };
    let options = |iteration| IterationOptions {
        pairs: 3,
        sampling: if iteration == 0 { Sampling::Curved(Draw::New) } else { Sampling::Linear(Draw::New) },
        curve,
        ..IterationOptions::default()
    };
    for groups in [1, 3, 4] {
        let (history, outcomes) = fit(groups, 1, None, options);
        assert_eq!((history[0].limited, history[0].failed, history[0].unconverged), (6, 0, 0), "{groups} groups");
        assert!(outcomes.iter().all(|outcome| outcome.curve == Some(NewtonStop::Iterations)), "{outcomes:?}");
        let doubts = history[0].doubts("6 samples", ["a", "b"]);
        assert!(doubts.len() == 1 && doubts[0].contains("limit of steps for 6 of 6 samples"), "{doubts:?}");
        assert!(doubts[0].ends_with("; b"), "{doubts:?}");
        // Straight samples take no such steps.
        assert_eq!(fit(groups, 2, None, options).0[1].limited, 0);
    }
}

#[test]
fn updates_and_states_keep_how_samples_were_drawn() {
    let options = |iteration| IterationOptions {
        pairs: 3,
        sampling: if iteration == 0 { Sampling::Curved(Draw::New) } else { Sampling::Update },
        // Two steps of the six that six latent values need.
        linear: CgOptions { maxiter: Some(2), ..CgOptions::resnorm(1e-11) },
        // An update without steps leaves samples as they are.
        curve: NewtonOptions { xtol: 0.0, ..NewtonOptions::default().steps(u64::from(iteration != 2)) },
        ..IterationOptions::default()
    };
    let (history, outcomes) = fit(1, 3, None, options);
    let counts = |one: &Convergence| (one.steps, one.unconverged, one.limited);
    assert_eq!(history.iter().map(counts).collect::<Vec<_>>(), [(2, 6, 6), (0, 6, 6), (0, 6, 6)]);
    assert!(history[0].error_ratio > 1.0 && history.iter().all(|one| one.error_ratio == history[0].error_ratio));
    assert!(outcomes.iter().all(|one| one.error_ratio > 1.0 && one.steps == 0), "{outcomes:?}");
    for (first, then) in [(1, 1), (1, 3), (3, 1), (4, 3)] {
        let directory = std::env::temp_dir().join(format!("meshloom-outcomes-{}-{first}-{then}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        fit(first, 1, Some(&directory), options);
        let found = fit(then, 3, Some(&directory), options);
        assert_eq!((&found.0, &found.1), (&history, &outcomes), "{first} groups, then {then}");
        let _ = std::fs::remove_dir_all(&directory);
    }
}

#[test]
fn ranks_of_one_group_count_a_sample_once() {
    let counted = run_threads(3, |comm| {
        let (problem, mut host) = (counts(), Host::default());
        let groups = SampleGroups::one(&comm);
        let options = |_| IterationOptions {
            linear: CgOptions { maxiter: Some(1), ..CgOptions::resnorm(1e-11) },
            sampling: Sampling::Curved(Draw::New),
            curve: NewtonOptions { xtol: 0.0, ..NewtonOptions::default().steps(1) },
            ..IterationOptions::default()
        };
        let options = FitOptions::new(1).each(options);
        let fit = Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], &options)?.run(&mut host)?;
        Ok::<_, InferenceError>((fit.history()[0].sampling.unconverged, fit.history()[0].sampling.limited))
    });
    assert_eq!(counted.unwrap(), [(4, 4); 3]);
}

/// The product of a metric and `v`, from `v` and the right product.
type Metric = fn(&[f64], Vec<f64>) -> Vec<f64>;

/// The product of a left square root at `x` and a vector, from `x` and the right product.
type Left = fn(&[f64], Vec<f64>) -> Vec<f64>;

/// A likelihood with wrong derivatives.
struct Altered {
    problem: Problem,
    metric: Metric,
    left: Left,
}

struct AlteredAt<'a> {
    of: &'a Altered,
    at: Box<dyn LogLikelihoodAt<Host> + 'a>,
    x: Vec<f64>,
}

impl LogLikelihood<Host> for Altered {
    fn name(&self) -> String {
        "altered".into()
    }

    fn identity(&self, space: &mut Host) -> Result<Identity, InferenceError> {
        self.problem.identity(space)
    }

    fn data(&self, space: &mut Host) -> Result<Vec<f64>, InferenceError> {
        LogLikelihood::data(&self.problem, space)
    }

    fn energy(&self, space: &mut Host, x: &Vec<f64>) -> Result<f64, InferenceError> {
        self.problem.energy(space, x)
    }

    fn at<'a>(&'a self, space: &mut Host, x: &Vec<f64>) -> Result<Box<dyn LogLikelihoodAt<Host> + 'a>, InferenceError> {
        Ok(Box::new(AlteredAt { of: self, at: self.problem.at(space, x)?, x: x.clone() }))
    }

    fn normalized_residual(&self, space: &mut Host, x: &Vec<f64>) -> Result<Option<(Vec<f64>, u64)>, InferenceError> {
        self.problem.normalized_residual(space, x)
    }

    fn degrees_of_freedom(&self) -> u64 {
        self.problem.degrees_of_freedom()
    }
}

impl LogLikelihoodAt<Host> for AlteredAt<'_> {
    fn energy(&self, space: &mut Host) -> Result<f64, InferenceError> {
        self.at.energy(space)
    }

    fn gradient(&self, space: &mut Host, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.gradient(space, out)
    }

    fn metric(&self, space: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.metric(space, v, out)?;
        *out = (self.of.metric)(v, out.clone());
        Ok(())
    }

    fn left_sqrt(&self, space: &mut Host, eta: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.left_sqrt(space, eta, out)?;
        *out = (self.of.left)(&self.x, out.clone());
        Ok(())
    }

    fn right_sqrt(&self, space: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.right_sqrt(space, v, out)
    }

    fn coordinates(&self, space: &mut Host, x: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.coordinates(space, x, out)
    }
}

/// Data that are the latent values with noise of deviation 1.
fn identity(n: usize) -> Problem {
    let row = |i: usize| (0..n).map(|j| f64::from(u8::from(i == j))).collect();
    let forward = Box::new(linear((0..n).map(row).collect()));
    Problem { noise: Noise::Gaussian { std: 1.0 }, data: vec![1.0; n], latent: n, forward }
}

/// Data of deviation 1 whose latent values are weighted by 1 to 100.
fn graded(n: usize) -> Problem {
    let row = |i: usize| (0..n).map(|j| if i == j { 10_f64.powf(2.0 * i as f64 / n as f64) } else { 0.0 }).collect();
    let forward = Box::new(linear((0..n).map(row).collect()));
    Problem { noise: Noise::Gaussian { std: 1.0 }, data: vec![1.0; n], latent: n, forward }
}

/// Rounds numbers to eight binary digits.
fn rounded(numbers: Vec<f64>) -> Vec<f64> {
    numbers.into_iter().map(|x| f64::from_bits(x.to_bits() & !((1 << 44) - 1))).collect()
}

#[test]
fn a_solution_of_rounding_errors_has_not_converged() {
    let (n, mut host) = (30, Host::default());
    let problem = Altered { problem: graded(n), metric: |_, product| rounded(product), left: |_, product| product };
    let at = problem.at(&mut host, &vec![0.0; n]).unwrap();
    let mut product = |space: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>| {
        at.metric(space, v, out)?;
        space.axpby(1.0, v, 1.0, out)
    };
    let (j, target) = (scattered(n, 3), 1e-9);
    let rules = CgOptions { maxiter: Some(1000), ..CgOptions::resnorm(target) };
    let found = conjugate_gradient(&mut host, &mut product, None, &j, None, &rules).unwrap();
    assert_eq!(found.stop, CgStop::Rising);
    // The ratio is that of the residual of the solution, not of the one that the iterations went
    // along with.
    let mut residual = Vec::new();
    product(&mut host, &found.x, &mut residual).unwrap();
    host.axpby(-1.0, &j, 1.0, &mut residual).unwrap();
    let ratio = dot(&residual, &residual).sqrt() / target;
    assert!(ratio > 1e3 && (found.error_ratio / ratio - 1.0).abs() < 1e-12, "{} {ratio}", found.error_ratio);
    // A rise at an iteration that computes the residual again is one of rounding errors: the search
    // restarts.
    let rules = CgOptions { maxiter: Some(1000), ..CgOptions::absdelta(1e-8) };
    let found = conjugate_gradient(&mut host, &mut product, None, &j, None, &rules).unwrap();
    assert!(found.stop == CgStop::Energy && found.error_ratio < 1.0 && found.iterations > 100, "{found:?}");
    // A target that rounding errors allow is met, whatever ends the iterations.
    let mut exact = |_: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>| {
        *out = v.iter().zip(1..).map(|(v, i)| v * f64::from(i)).collect();
        Ok(())
    };
    for rules in [CgOptions::resnorm(1e-3), CgOptions::absdelta(1e-6), CgOptions::default()] {
        let found = conjugate_gradient(&mut host, &mut exact, None, &j, None, &rules).unwrap();
        assert!(found.error_ratio < 1.0 && found.stop != CgStop::Iterations, "{rules:?}: {found:?}");
        let cut = CgOptions { maxiter: Some(1), ..rules };
        let found = conjugate_gradient(&mut host, &mut exact, None, &j, None, &cut).unwrap();
        assert!(found.error_ratio > 1.0 && found.error_ratio.is_finite(), "{rules:?}: {found:?}");
    }

    let linear = CgOptions { maxiter: Some(1000), ..CgOptions::resnorm(target) };
    let options = |_| IterationOptions { linear, ..IterationOptions::default() };
    let groups = SampleGroups::one(&Communicator::solo());
    let options = FitOptions::new(1).each(options);
    let fit = Fit::new(&mut host, &problem, &groups, &vec![0.0; n], &options).unwrap().run(&mut host).unwrap();
    let found = fit.history()[0].sampling;
    assert!(found.unconverged == 4 && found.steps < 1000 && found.error_ratio > 1e3, "{found:?}");
    let doubts = found.doubts("4 samples", ["", ""]);
    assert!(doubts[0].contains(&format!("up to {:.1e} times the target", found.error_ratio)), "{doubts:?}");
}

/// A slope without curvature.
struct Slope;

impl Objective<Host> for Slope {
    fn at<'a>(&'a self, _: &mut Host, x: &Vec<f64>) -> Result<(f64, Box<dyn ObjectiveAt<Host> + 'a>), InferenceError> {
        Ok((x[0], Box::new(Slope)))
    }
}

impl ObjectiveAt<Host> for Slope {
    fn gradient(&self, _: &mut Host, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = vec![1.0];
        Ok(())
    }

    fn metric(&self, _: &mut Host, _: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = vec![0.0];
        Ok(())
    }
}

#[test]
fn a_metric_without_curvature_ends_a_step_and_not_the_fit() {
    let (mut host, groups) = (Host::default(), SampleGroups::one(&Communicator::solo()));
    let found = newton_cg(&mut host, &Slope, vec![3.0], &NewtonOptions::default(), &mut |_| {}).unwrap();
    assert_eq!((found.stop, found.x[0], found.value, found.steps), (NewtonStop::NotPositive, 3.0, 3.0, 0));

    // The metric of the energy is that of the prior, 1, with the likelihood's, -1.
    let minus = |v: &[f64], _: Vec<f64>| v.iter().map(|v| -v).collect();
    let flat = Altered { problem: identity(3), metric: minus, left: |_, product| product };
    let options = |_| IterationOptions { pairs: 0, ..IterationOptions::default() };
    let options = FitOptions::new(2).each(options);
    let fit = Fit::new(&mut host, &flat, &groups, &vec![0.2; 3], &options).unwrap().run(&mut host).unwrap();
    assert_eq!(fit.samples().position, [0.2; 3]);
    assert!(fit.history().len() == 2 && fit.history().iter().all(|report| report.stop == NewtonStop::NotPositive));
    assert!(fit.history()[1].to_string().contains("no positive curvature"), "{}", fit.history()[1]);
    assert!(fit.history()[1].doubts(None)[0].contains("no positive curvature"));

    // The left square root at the start is -1 and the right one elsewhere 1, so that 1 + L(e)
    // L(x)^T is 0.
    let start = vec![0.2; 3];
    let left = |x: &[f64], product: Vec<f64>| match x[0] == 0.2 {
        true => product.iter().map(|x| -x).collect(),
        false => product,
    };
    let singular = Altered { problem: identity(3), metric: |_, product| product, left };
    let options = |_| IterationOptions { sampling: Sampling::Curved(Draw::New), ..IterationOptions::default() };
    let options = FitOptions::new(1).each(options);
    let fit = Fit::new(&mut host, &singular, &groups, &start, &options).unwrap().run(&mut host).unwrap();
    let report = &fit.history()[0];
    assert_eq!((report.sampling.failed, report.sampling.limited), (4, 0), "{report}");
    assert!(report.to_string().contains("4 samples without descent"), "{report}");
    assert!(report.sampling.doubts("4 samples", ["", "b"])[0].contains("no descent for 4 of 4 samples"));
    // They stay where straight samples are.
    let outcome = fit.samples().outcome(0).unwrap();
    assert_eq!(outcome.curve, Some(NewtonStop::NotPositive));
    let mirrored = dot(fit.samples().residual(0).unwrap(), fit.samples().residual(1).unwrap());
    let length = dot(fit.samples().residual(0).unwrap(), fit.samples().residual(0).unwrap());
    assert!((mirrored / length + 1.0).abs() < 1e-12, "{mirrored} {length}");

    // NaN remains an error.
    let broken = Altered { problem: identity(3), metric: |_, _| vec![f64::NAN; 3], left: |_, product| product };
    let fit = Fit::new(&mut host, &broken, &groups, &start, &FitOptions::new(1)).unwrap();
    let error = fit.run(&mut host).unwrap_err();
    assert!(matches!(error, InferenceError::NotFinite { .. }), "{error}");
}

#[test]
fn the_deviation_about_a_known_mean_is_that_of_the_posterior() {
    let (mut host, groups) = (Host::default(), SampleGroups::one(&Communicator::solo()));
    // Each latent value has the weight 2 and noise of deviation 1: its variance is 1 / (1 + 4).
    let row = |i: usize| (0..3).map(|j| if i == j { 2.0 } else { 0.0 }).collect();
    let forward = Box::new(linear((0..3).map(row).collect()));
    let problem = Problem { noise: Noise::Gaussian { std: 1.0 }, data: vec![1.0; 3], latent: 3, forward };
    let (draws, pairs) = (2000, 2);
    let mut sums = [0.0; 2];
    for seed in 0..draws {
        let seed = Excitations::Seed(seed);
        let rules = CgOptions::resnorm(1e-10);
        let found = wiener_filter(&mut host, &problem, &groups, &vec![0.0; 3], (pairs, &seed), &rules).unwrap();
        let mut latent = |_: &mut Host, x: &Vec<f64>| Ok(x.clone());
        let like = vec![0.0; 3];
        let mut of = |ddof: usize| found.samples.mean_and_std_with_ddof(&mut host, &groups, &like, &mut latent, ddof);
        for (sum, ddof) in sums.iter_mut().zip(0..) {
            *sum += of(ddof).unwrap().1.iter().map(|std| std * std).sum::<f64>() / 3.0;
        }
        assert!(matches!(of(2), Err(InferenceError::Options { .. })));
        let one = of(1).unwrap();
        assert_eq!(found.samples.mean_and_std(&mut host, &groups, &like, &mut latent).unwrap(), one);
    }
    // Squares of 2000 x 2 x 3 normal numbers have a mean that is right to sqrt(2 / 12000); 4.5 of
    // these are 6 %.
    let [known, estimated] = sums.map(|sum| sum / draws as f64 * 5.0);
    let error = 4.5 * (2.0 / (draws as f64 * pairs as f64 * 3.0)).sqrt();
    assert!((known - 1.0).abs() < error, "{known}");
    // With one degree of freedom less, of four samples, it is 4/3 of that.
    assert!((estimated / known - 4.0 / 3.0).abs() < 1e-12, "{estimated} {known}");
}
