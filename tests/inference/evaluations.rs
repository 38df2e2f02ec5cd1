//! Numbers of evaluations of a model in minimizations and samples.

use super::host_models::{Host, Noise, Problem};
use meshloom::comm::Communicator;
use meshloom::inference::{
    Identity, InferenceError, Kl, LogLikelihood, LogLikelihoodAt, NewtonOptions, NewtonStep, NewtonStop, Objective,
    ObjectiveAt, SampleGroups, Samples, newton_cg,
};
use std::cell::Cell;

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

    fn latent(&self, space: &mut Host) -> Result<Vec<f64>, InferenceError> {
        self.problem.latent(space)
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
}

/// Returns eight counts of some 20 whose rates are exponentials of latent values.
fn counts() -> Problem {
    let forward = |x: &[_]| x.iter().map(|x: &rustfft::num_complex::Complex64| x.exp()).collect();
    let data = (0..8).map(|i| 20.0 + f64::from(i)).collect();
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
    let (counted, mut host) = (Counted::new(counts()), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let residuals: Vec<Vec<f64>> =
        (0..4).map(|s| (0..8).map(|i| 0.1 * (f64::from(i + 3 * s) * 2.0).sin()).collect()).collect();
    let samples = Samples::new(vec![1.0; 8], &groups, 4, residuals).unwrap();
    for kept in [0, 3, 4] {
        let kl = Kl { likelihood: &counted, samples: &samples, groups: &groups, constants: &[], kept };
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
