//! The fit: the most probable initial conditions, and then samples and their mean.

use std::rc::Rc;

use meshloom::Error;
use meshloom::Rank;
use meshloom::comm::Op;
use meshloom::host_memory;
use meshloom::inference::{
    CgOptions, Data, Draw, Fit, FitOptions, IterationOptions, Likelihood, NewtonOptions, NoiseLevel, Progress,
    SampleGroups, Samples, Sampling, Stream, VectorSpace,
};
use meshloom::operators::{OperatorError, Vector};

use serde_json::Value;

use super::parameters::Parameters;
use super::problem::Problem;
use crate::common::Common;
use crate::failure::Ended;
use crate::fit_state::{Extent, State};
use crate::run_clock::RunClock;

/// Temperatures of the likelihood on the way to the most probable place: each half of the one
/// before, down to 1.
///
/// A universe that follows the small structures of the data first cannot move them to where the
/// large ones belong: the posterior has maxima there. While data count for little only the largest
/// scales stand out of noise, and the smaller ones follow once these are right. It begins where
/// `signal`, the data's greatest power over that of their noise, is a quarter of noise.
pub fn temperatures(signal: f64) -> Vec<f64> {
    let halvings = (4.0 * signal).max(1.0).log2().ceil().min(f64::from(MOST)) as i32;
    (0..=halvings).rev().map(|halvings| f64::from(halvings).exp2()).collect()
}

/// Halvings of the temperature at most.
const MOST: i32 = 40;

/// Returns what an iteration does, of `numbers` latent values.
fn options((parameters, temperatures): (&Parameters, &[f64]), iteration: u32, numbers: f64) -> IterationOptions {
    let steps = temperatures.len() as u32;
    // In natural units of information: what no posterior is changed by, though it is of few
    // numbers.
    let position = NewtonOptions::default().absdelta((1e-4 * numbers).max(0.3));
    if let Some(&temperature) = temperatures.get(iteration as usize) {
        return IterationOptions { pairs: 0, temperature, position: position.steps(30), ..Default::default() };
    }
    let draw = if iteration == steps { Draw::New } else { Draw::Again };
    let last = iteration + 1 == steps + parameters.iterations;
    IterationOptions {
        pairs: parameters.pairs,
        sampling: if parameters.is_geovi() && last { Sampling::Curved(draw) } else { Sampling::Linear(draw) },
        linear: CgOptions::absdelta(1e-5 * numbers),
        curve: NewtonOptions { xtol: 1e-3, ..NewtonOptions::default().steps(5) },
        position: position.steps(5),
        ..Default::default()
    }
}

/// Result of a fit, and its statistics.
pub struct Fitted {
    pub fit: Fit<Rank, Rc<Likelihood>>,
    /// The samples of the fit, or the draws of chains.
    pub samples: Samples<Rank>,
    /// The chains in `run.json`; null without them.
    pub chains: Value,
    /// Warnings of the chains.
    pub warnings: Vec<String>,
    pub likelihood: Rc<Likelihood>,
    temperatures: Vec<f64>,
}

impl Fitted {
    /// Returns the temperature of an iteration.
    pub fn temperature(&self, iteration: u32) -> f64 {
        self.temperatures.get(iteration as usize).copied().unwrap_or(1.0)
    }
}

/// Returns the fit, from the state or from the beginning. Collective.
pub fn fit(problem: &mut Problem<'_, '_>, state: &State, common: &Common) -> Result<Fitted, Ended> {
    let temperatures = temperatures(problem.signal()?);
    let Problem { parameters, groups, rank, run, sites, values, .. } = problem;
    let values = host_memory::collect("the density", values.iter().map(|&value| f64::from(value)))?;
    let Some((name, leaf)) = run.target().only() else {
        let why = format!("it gives {}, not one leaf", run.target());
        return Err(OperatorError::Invalid { operator: run.name().into(), why }.into());
    };
    let data = Data { name, leaf, values: &values, mask: None };
    let likelihood = Rc::new(Likelihood::gaussian(rank, &data, NoiseLevel::Uniform(parameters.noise))?.amend(run)?);
    let numbers = sites.total_cells() as f64;
    // Where all is uniform particles lie on nodes, and cloud in cell has no derivative there: the
    // start is a little beside.
    let mut start = Vector::new(&rank.gpu, run.domain())?;
    let mut noise = Vector::new(&rank.gpu, run.domain())?;
    rank.white_noise(Stream::new(parameters.options.seed.0, u32::MAX, 0, 0), &mut noise)?;
    rank.vector_axpby(0.05, &noise, 0.0, &mut start)?;

    let memory = memory(rank, groups)?;
    let iterations = temperatures.len() as u32 + parameters.iterations;
    let bar = common.progress(groups.all().rank(), iterations.into(), "reconstructing");
    let options = FitOptions::new(iterations)
        .each(|iteration| options((parameters, &temperatures), iteration, numbers))
        .seed(parameters.options.seed.0)
        .memory(memory)
        .state(&state.directory, state.existing());
    let mut progress = |progress: &Progress| {
        let (Progress::Sample { iteration, .. } | Progress::Step { iteration, .. }) = progress;
        bar.set_position(u64::from(*iteration));
        if let Progress::Step { step, .. } = progress {
            bar.set_message(format!("step {}, energy {:.4e}", step.number, step.value));
        }
    };
    let rank: &mut Rank = rank;
    let mut clock = RunClock::of_fit(groups.all(), parameters.options.limit);
    let mut fit = Fit::new(rank, likelihood.clone(), groups, &start, &options)?;
    while fit.step_with(rank, &mut progress)?.is_some() {
        state.has_moved(groups.all())?;
        if let Some(stop) = clock.stop(groups.all())? {
            clock.answered();
            return Err(stop.failure(format_args!("iteration {} of {iterations}", fit.history().len())).into());
        }
    }
    bar.finish_and_clear();
    let done = Extent { iterations: fit.history().len(), samples: fit.samples().count() };
    let asked = Extent { iterations: iterations as usize, samples: 2 * parameters.pairs };
    if let Some(failure) = state.of_other_options(done, asked) {
        return Err(failure.into());
    }
    let (samples, chains, warnings) = match &parameters.chains {
        None => (fit.samples().clone(), Value::Null, Vec::new()),
        Some(chains) => {
            let bar = common.progress(groups.all().rank(), 1, "drawing");
            chains.draw(rank, &likelihood, groups, fit.samples(), (state, &bar, clock))?
        }
    };
    Ok(Fitted { fit, samples, chains, warnings, likelihood, temperatures })
}

/// Returns the bytes of a device that are left for the fit, on the rank with the fewest: parts of a
/// sample's run that do not fit are recomputed.
fn memory(rank: &Rank, groups: &SampleGroups) -> Result<u64, Error> {
    let all = rank.gpu.capabilities().memory;
    let mut left = [all.map_or(u64::MAX, |all| all.saturating_sub(rank.allocated()))];
    groups.all().all_reduce(&mut left, Op::Min)?;
    Ok(left[0])
}
