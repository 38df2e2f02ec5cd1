//! Numbers of evaluations of a model in minimizations and samples.

use super::host_models::{Host, Noise, Problem, linear};
use super::shared::{field, flat, ranks};
use meshloom::comm::{Communicator, run_threads};
use meshloom::inference::{
    CgOptions, Curvature, Data, Draw, Excitation, Excitations, Expansion, Fit, FitOptions, Identity, InferenceError,
    IterationOptions, Kl, Likelihood, LogLikelihood, LogLikelihoodAt, NewtonOptions, NewtonStep, NewtonStop,
    NoiseLevel, Objective, ObjectiveAt, SampleGroups, Samples, Sampling, Stream, VectorSpace, newton_cg,
};
use meshloom::operators::{Diagonal, Leaf, Model, PointwiseOperator, Space, Vector};
use std::cell::Cell;
use std::rc::Rc;

/// Calls of the methods of a likelihood; each of the first three evaluates the model once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls {
    energies: u64,
    linearizations: u64,
    coordinates: u64,
    metrics: u64,
    left_roots: u64,
}

/// A likelihood that counts calls.
struct Counted {
    problem: Problem,
    calls: Cell<Calls>,
}

impl Counted {
    fn new(problem: Problem) -> Self {
        Counted { problem, calls: Cell::default() }
    }

    fn count(&self, one: impl FnOnce(&mut Calls) -> &mut u64) {
        let mut calls = self.calls.get();
        *one(&mut calls) += 1;
        self.calls.set(calls);
    }
}

impl LogLikelihood<Host> for Counted {
    fn name(&self) -> String {
        self.problem.name()
    }

    fn identity(&self, space: &mut Host) -> Result<Identity, InferenceError> {
        self.problem.identity(space)
    }

    fn data(&self, space: &mut Host) -> Result<Vec<f64>, InferenceError> {
        LogLikelihood::data(&self.problem, space)
    }

    fn energy(&self, space: &mut Host, x: &Vec<f64>) -> Result<f64, InferenceError> {
        self.count(|calls| &mut calls.energies);
        self.problem.energy(space, x)
    }

    fn at<'a>(&'a self, space: &mut Host, x: &Vec<f64>) -> Result<Box<dyn LogLikelihoodAt<Host> + 'a>, InferenceError> {
        self.count(|calls| &mut calls.linearizations);
        Ok(Box::new(CountedAt { of: self, at: self.problem.at(space, x)? }))
    }

    fn normalized_residual(&self, space: &mut Host, x: &Vec<f64>) -> Result<Option<(Vec<f64>, u64)>, InferenceError> {
        self.problem.normalized_residual(space, x)
    }

    fn degrees_of_freedom(&self) -> u64 {
        self.problem.degrees_of_freedom()
    }
}

struct CountedAt<'a> {
    of: &'a Counted,
    at: Box<dyn LogLikelihoodAt<Host> + 'a>,
}

impl LogLikelihoodAt<Host> for CountedAt<'_> {
    fn energy(&self, space: &mut Host) -> Result<f64, InferenceError> {
        self.at.energy(space)
    }

    fn gradient(&self, space: &mut Host, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.gradient(space, out)
    }

    fn metric(&self, space: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.of.count(|calls| &mut calls.metrics);
        self.at.metric(space, v, out)
    }

    fn left_sqrt(&self, space: &mut Host, eta: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.of.count(|calls| &mut calls.left_roots);
        self.at.left_sqrt(space, eta, out)
    }

    fn right_sqrt(&self, space: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.right_sqrt(space, v, out)
    }

    fn coordinates(&self, space: &mut Host, x: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.of.count(|calls| &mut calls.coordinates);
        self.at.coordinates(space, x, out)
    }

    fn coordinates_about(
        &self,
        space: &mut Host,
        expansion: &dyn LogLikelihoodAt<Host>,
        out: &mut Vec<f64>,
    ) -> Result<bool, InferenceError> {
        self.at.coordinates_about(space, expansion, out)
    }
}

/// Returns eight counts of some `size` whose rates are exponentials of latent values.
fn counts(size: f64) -> Problem {
    let forward = |x: &[_]| x.iter().map(|x: &rustfft::num_complex::Complex64| x.exp()).collect();
    let data = (0..8).map(|i| size + f64::from(i)).collect();
    Problem { noise: Noise::Poisson, data, latent: 8, forward: Box::new(forward) }
}

/// An objective that computes values with derivatives at all trials.
struct Together<'a>(&'a Kl<'a, Host>);

impl Objective<Host> for Together<'_> {
    fn at<'a>(
        &'a self,
        space: &mut Host,
        x: &Vec<f64>,
    ) -> Result<(f64, Box<dyn ObjectiveAt<Host> + 'a>), InferenceError> {
        self.0.at(space, x)
    }
}

#[test]
fn rejected_trials_compute_the_value_alone() {
    let (counted, mut host) = (Counted::new(counts(20.0)), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let residuals: Vec<Vec<f64>> =
        (0..4).map(|s| (0..8).map(|i| 0.1 * (f64::from(i + 3 * s) * 2.0).sin()).collect()).collect();
    let samples = Samples::new(vec![1.0; 8], &groups, 4, residuals).unwrap();
    for kept in [0, 3, 4] {
        let kl = Kl {
            likelihood: &counted,
            samples: &samples,
            groups: &groups,
            constants: &[],
            kept,
            concurrency: 3,
            preconditioner: None,
            curvature: Curvature::default(),
        };
        let mut run = |objective: &dyn Objective<Host>, maxiter: u64| {
            counted.calls.set(Calls::default());
            let mut trials = Vec::new();
            // Up to six halvings.
            let mut watch = |step: &NewtonStep| trials.push(1 + (-step.scale.log2()) as u64);
            let options = NewtonOptions::default().steps(maxiter);
            let found = newton_cg(&mut host, objective, vec![1.0; 8], &options, &mut watch).unwrap();
            let bits: Vec<u64> = found.x.iter().chain([&found.value]).map(|x| x.to_bits()).collect();
            assert_eq!(found.evaluations, 1 + trials.iter().sum::<u64>());
            (counted.calls.get(), trials, (bits, found.steps, found.applications, found.stop))
        };
        for maxiter in [1, 2, 200] {
            let (calls, trials, found) = run(&kl, maxiter);
            assert_eq!(found, run(&Together(&kl), maxiter).2, "{kept} {maxiter}");
            if kept < 4 {
                continue;
            }
            let all: u64 = trials.iter().sum();
            let is_limited = found.3 == NewtonStop::Iterations;
            assert_eq!(is_limited, maxiter < 200);
            // The last step computes no derivatives where they are not used.
            let together = trials.len() as u64 - u64::from(is_limited);
            let searches = trials[..trials.len() - 1].iter().filter(|&&trials| trials > 1).count() as u64;
            assert!(trials[0] > 1, "{trials:?}");
            assert_eq!([calls.linearizations, calls.energies], [4 * (1 + together + searches), 4 * (all - together)]);
        }
    }
}

#[test]
fn bent_samples_evaluate_the_model_once_per_trial() {
    let (counted, mut host) = (Counted::new(counts(20.0)), Host::default());
    let (position, seed) = (vec![2.9; 8], Excitations::Seed(5));
    let expansion = Expansion::new(&mut host, &counted, &position, &[]).unwrap();
    let linear = expansion.linear(&mut host, &seed, [0, 0], &CgOptions::default()).unwrap().x;
    for maxiter in [2, 200] {
        let before = counted.calls.get();
        let options = NewtonOptions::default().steps(maxiter);
        let found = expansion.curve(&mut host, &seed, [0, 0], 1.0, &linear, &options).unwrap();
        let calls = counted.calls.get();
        let [linearizations, coordinates] =
            [calls.linearizations - before.linearizations, calls.coordinates - before.coordinates];
        // All searches end at their first trial. The last step is known only if it is the limit.
        let last = u64::from(maxiter == 2);
        assert_eq!((found.steps + 1, found.steps == maxiter), (found.evaluations, maxiter == 2));
        assert_eq!([linearizations, coordinates], [found.evaluations - last, last]);
        assert_eq!(calls.energies, 0);
    }
}

#[test]
fn both_signs_share_a_metric_sample() {
    let groups = SampleGroups::one(&Communicator::solo());
    let (pairs, start) = (3, vec![2.9; 8]);
    let options = |iteration| IterationOptions {
        pairs,
        sampling: if iteration == 0 { Sampling::Curved(Draw::New) } else { Sampling::Update },
        position: NewtonOptions::default().steps(0),
        ..IterationOptions::default()
    };
    let (counted, mut host) = (Counted::new(counts(20.0)), Host::default());
    let draws = Rc::new(Cell::new(0));
    let fill = |host: &mut Host, excitation: Excitation, out: &mut Vec<f64>| {
        let Excitation { iteration, sample, what } = excitation;
        host.white_noise(Stream::new(7, iteration, sample, what as u32), out)
    };
    let number = draws.clone();
    let given = Excitations::Given(Rc::new(move |host: &mut Host, excitation, out: &mut Vec<f64>| {
        number.set(number.get() + 1);
        fill(host, excitation, out)
    }));
    let fit = Fit::new(&mut host, &counted, &groups, &start, &FitOptions::new(2).each(options)).unwrap();
    let mut fit = fit.with_excitations(given);
    fit.step(&mut host).unwrap();
    // A vector of the data and one of the prior for each pair.
    assert_eq!(draws.get(), 2 * pairs);
    let expansion = Expansion::new(&mut host, &counted, &start, &[]).unwrap();
    let (seed, defaults) = (Excitations::Seed(7), options(0));
    for sample in 0..2 * pairs {
        let (key, sign) = ([0, sample as u32 / 2], [1.0, -1.0][sample % 2]);
        let linear = expansion.linear(&mut host, &seed, key, &defaults.linear).unwrap().x;
        let linear = linear.iter().map(|x| sign * x).collect();
        let bent = expansion.curve(&mut host, &seed, key, sign, &linear, &defaults.curve).unwrap();
        assert_eq!(fit.samples().residual(sample).unwrap(), &bent.x, "sample {sample}");
    }
    draws.set(0);
    fit.step(&mut host).unwrap();
    assert_eq!(draws.get(), 2 * pairs);
}

/// Coordinates of the point of a linearization and of its latent values, for likelihoods whose
/// model is a kernel, ends in one, or does not, and for a sum of all.
#[test]
fn coordinates_of_a_linearization_have_the_bits_of_those_of_latent_values() {
    ranks([1, 1], |rank| {
        let leaf = Leaf::points(7, 7);
        let values = [1.0, 4.0, 0.0, 2.0, 3.0, 7.0, 1.0];
        let data = |name| Data { name, leaf: &leaf, values: &values, mask: None };
        let kernel = |name: &str, text: &str, space: &Space, target: &str| {
            Ok::<_, InferenceError>(Model::new(PointwiseOperator::wgsl(text, name, space, target)?))
        };
        let latent = Space::new(["a", "b"].map(|name| (name, leaf.clone())))?;
        let rate = kernel("f", "fn f(a: f32, b: f32) -> f32 { return exp(a * b + 0.3); }", &latent, "counts")?;
        let weights = field(rank, rate.target(), &[0.1, 0.7, 1.3, 0.9, 0.3, 2.1, 1.7])?;
        let weighted = rate.then(&Model::new(Diagonal::new(rate.target(), &weights)?))?;
        let shifted = weighted.then(&kernel(
            "g",
            "fn g(counts: f32) -> f32 { return counts * 1.7 + 0.1; }",
            weighted.target(),
            "t",
        )?)?;
        let both = weighted.then(&kernel(
            "h",
            "fn h(counts: f32) -> vec2<f32> { return vec2<f32>(counts / 3.0, exp(0.1 * counts)); }",
            weighted.target(),
            "inferred",
        )?)?;
        let exposures = [0.5, 1.0, 0.0, 2.0, 1.5, 3.0, 0.7];
        let terms = [
            Likelihood::poisson(rank, &data("counts"), Some(&exposures))?.amend(&rate)?,
            Likelihood::poisson(rank, &data("k"), None)?.amend(&weighted.named("k")?)?,
            Likelihood::student_t(rank, &data("t"), NoiseLevel::Uniform(0.3), 3.0)?.amend(&shifted)?,
            Likelihood::gaussian_inferred(rank, &data("inferred"))?.amend(&both)?,
            Likelihood::gaussian(rank, &data("a"), NoiseLevel::Uniform(0.3))?,
        ];
        let sum = terms[1..].iter().try_fold(terms[0].clone(), |sum, term| sum.plus(term))?;
        for likelihood in terms.iter().chain([&sum]) {
            let mut points = Vec::new();
            for stream in [1, 2] {
                let mut x = Vector::new(&rank.gpu, likelihood.domain())?;
                rank.white_noise(Stream(stream), &mut x)?;
                points.push(x);
            }
            let expansion = LogLikelihood::at(likelihood, rank, &points[0])?;
            for x in &points {
                let at = LogLikelihood::at(likelihood, rank, x)?;
                let [mut wanted, mut found] =
                    [LogLikelihood::data(likelihood, rank)?, LogLikelihood::data(likelihood, rank)?];
                expansion.coordinates(rank, x, &mut wanted)?;
                assert!(at.coordinates_about(rank, &*expansion, &mut found)?);
                let bits = |values: Vec<(usize, f64)>| values.iter().map(|(_, x)| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(flat(rank, &found)?), bits(flat(rank, &wanted)?), "{}", likelihood.name());
            }
        }
        // Densities without coordinates have none of a linearization either.
        let student = Likelihood::student_t_inferred(rank, &data("inferred"), 3.0)?.amend(&both)?;
        let mut x = Vector::new(&rank.gpu, student.domain())?;
        rank.white_noise(Stream(1), &mut x)?;
        let at = LogLikelihood::at(&student, rank, &x)?;
        let mut out = LogLikelihood::data(&student, rank)?;
        assert!(!at.coordinates_about(rank, &*at, &mut out)?);
        Ok(())
    });
}

/// Returns the residuals of this group's block of six samples.
fn residuals(groups: &SampleGroups, len: u32) -> Vec<Vec<f64>> {
    let one = |sample: u32| (0..len).map(|i| 0.2 * (f64::from(i + 5 * sample) * 2.0).sin()).collect();
    groups.block(6).map(|sample| one(sample as u32)).collect()
}

#[test]
fn a_product_at_the_position_takes_one_application() {
    let row = |i: u32| (0..8).map(|j| (f64::from(i * 8 + j) * 1.3).sin()).collect();
    let forward = Box::new(linear((0..12).map(row).collect()));
    let data = (0..12).map(f64::from).collect();
    let problem = Problem { noise: Noise::Gaussian { std: 0.7 }, data, latent: 8, forward };
    let groups = SampleGroups::one(&Communicator::solo());
    let tight = NewtonOptions { xtol: 1e-12, cg: Some(CgOptions::resnorm(1e-10)), ..NewtonOptions::default() };
    // The metric of a linear model is the same everywhere; that of the other one is not.
    for (problem, is_linear) in [(problem, true), (counts(20.0), false)] {
        let (counted, mut host) = (Counted::new(problem), Host::default());
        let samples = Samples::new(vec![2.5; 8], &groups, 6, residuals(&groups, 8)).unwrap();
        let mut run = |curvature: Curvature, kept: usize| {
            counted.calls.set(Calls::default());
            let kl = Kl {
                likelihood: &counted,
                samples: &samples,
                groups: &groups,
                constants: &[],
                kept,
                concurrency: 3,
                preconditioner: None,
                curvature,
            };
            let found = newton_cg(&mut host, &kl, vec![2.5; 8], &tight, &mut |_| {}).unwrap();
            (found, counted.calls.get())
        };
        let (average, calls) = run(Curvature::SampleAverage, 6);
        assert_eq!(calls.metrics, 6 * average.applications);
        let (found, calls) = run(Curvature::AtPosition, 6);
        assert_eq!(calls.metrics, found.applications);
        assert!(!is_linear || found.applications == average.applications, "{found:?} {average:?}");
        let apart = found.x.iter().zip(&average.x).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
        assert!(apart < 1e-8 && (found.value - average.value).abs() < 1e-9, "{found:?} {average:?}");
        // Samples that do not keep derivatives compute them again, to the same bits.
        for kept in [0, 4] {
            let (again, _) = run(Curvature::AtPosition, kept);
            assert_eq!((again.x, again.value), (found.x.clone(), found.value), "{kept}");
        }
    }
}

/// A likelihood whose products round differently in each group, like those of different devices.
struct Uneven {
    problem: Problem,
    group: usize,
}

impl LogLikelihood<Host> for Uneven {
    fn name(&self) -> String {
        self.problem.name()
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
        Ok(Box::new(UnevenAt { at: self.problem.at(space, x)?, group: self.group }))
    }

    fn normalized_residual(&self, space: &mut Host, x: &Vec<f64>) -> Result<Option<(Vec<f64>, u64)>, InferenceError> {
        self.problem.normalized_residual(space, x)
    }

    fn degrees_of_freedom(&self) -> u64 {
        self.problem.degrees_of_freedom()
    }
}

struct UnevenAt<'a> {
    at: Box<dyn LogLikelihoodAt<Host> + 'a>,
    group: usize,
}

impl LogLikelihoodAt<Host> for UnevenAt<'_> {
    fn energy(&self, space: &mut Host) -> Result<f64, InferenceError> {
        self.at.energy(space)
    }

    fn gradient(&self, space: &mut Host, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.gradient(space, out)
    }

    fn metric(&self, space: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.metric(space, v, out)?;
        // Far more than rounding, so that numbers of iterations differ, too.
        out.iter_mut().enumerate().for_each(|(i, out)| *out *= 1.0 + 0.1 * (self.group * i) as f64);
        Ok(())
    }

    fn left_sqrt(&self, space: &mut Host, eta: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.left_sqrt(space, eta, out)
    }

    fn right_sqrt(&self, space: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.right_sqrt(space, v, out)
    }

    fn coordinates(&self, space: &mut Host, x: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.at.coordinates(space, x, out)
    }
}

#[test]
fn groups_whose_devices_round_differently_take_the_same_steps() {
    // The first step of the second case is halved six times, and then goes along the gradient.
    for (size, start) in [(20.0, 2.0), (3000.0, 0.0)] {
        let run = |groups: usize| {
            let ranks = run_threads(groups, |comm| {
                let (groups, _) = SampleGroups::split(&comm, groups)?;
                let likelihood = Uneven { problem: counts(size), group: groups.index() };
                let samples = Samples::new(vec![start; 8], &groups, 6, residuals(&groups, 8))?;
                let kl = Kl {
                    likelihood: &likelihood,
                    samples: &samples,
                    groups: &groups,
                    constants: &[],
                    kept: usize::MAX,
                    concurrency: 2,
                    preconditioner: None,
                    curvature: Curvature::AtPosition,
                };
                let (mut host, mut trials) = (Host::default(), Vec::new());
                let mut watch = |step: &NewtonStep| trials.push((step.scale.to_bits(), step.applications));
                let options = NewtonOptions::default();
                let found = newton_cg(&mut host, &kl, vec![start; 8], &options, &mut watch)?;
                let bits: Vec<u64> = found.x.iter().chain([&found.value]).map(|x| x.to_bits()).collect();
                Ok::<_, InferenceError>((bits, found.steps, found.evaluations, found.applications, trials))
            });
            ranks.unwrap()
        };
        let one = run(1).remove(0);
        assert_eq!(one.2 > one.1 + 6, size == 3000.0, "{one:?}");
        for groups in [2, 3, 8] {
            for (group, found) in run(groups).into_iter().enumerate() {
                assert_eq!(found, one, "group {group} of {groups}");
            }
        }
    }
}
