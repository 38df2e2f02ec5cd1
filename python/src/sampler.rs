//! Samplers: chains whose draws follow a posterior.

use std::cell::RefCell;
use std::rc::Rc;

use meshloom::Rank;
use meshloom::inference::{
    Algorithm, Convergence, DrawStatistics, Draws, Likelihood, Sampler, SamplerOptions, SamplerStep,
    effective_sample_size, split_r_hat,
};
use numpy::PyReadonlyArray3;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::fields::{LeafShape, field, given};
use crate::handle::Handle;
use crate::inference::{NativeSamples, existing};
use crate::likelihood::NativeLikelihood;

/// Chains until their draws are taken.
type KeptSampler = RefCell<Option<Sampler<Rank, Rc<Likelihood>>>>;

/// Returns an algorithm with its options, by their names.
fn algorithm(name: &str, given: &Bound<'_, PyDict>) -> PyResult<Algorithm> {
    let mut algorithm = match name {
        "nuts" => Algorithm::nuts(),
        "hmc" => Algorithm::hmc(16),
        "mclmc" => Algorithm::mclmc(16),
        "adjusted_mclmc" => Algorithm::adjusted_mclmc(),
        other => {
            let why = format!("algorithm: expected nuts, hmc, mclmc or adjusted_mclmc, got {other:?}");
            return Err(PyValueError::new_err(why));
        }
    };
    for (option, value) in given {
        let option = option.extract::<String>()?;
        match (&mut algorithm, option.as_str()) {
            (
                Algorithm::Nuts { acceptance, .. }
                | Algorithm::Hmc { acceptance, .. }
                | Algorithm::AdjustedMclmc { acceptance, .. },
                "target_acceptance",
            ) => *acceptance = value.extract()?,
            (Algorithm::Nuts { depth, .. }, "max_depth") => *depth = value.extract()?,
            (Algorithm::Hmc { steps, .. } | Algorithm::Mclmc { steps, .. }, "n_steps") => *steps = value.extract()?,
            (Algorithm::Mclmc { energy_variance, .. }, "energy_variance") => *energy_variance = value.extract()?,
            (Algorithm::Mclmc { length, .. } | Algorithm::AdjustedMclmc { length, .. }, "length") => {
                *length = Some(value.extract()?);
            }
            _ => return Err(PyValueError::new_err(format!("{option}: {name} has no such option"))),
        }
    }
    Ok(algorithm)
}

/// Energy, acceptance, step size, length, gradients, depth, and whether the draw is divergent.
type Statistics = (f64, f64, f64, f64, u32, u32, bool);

fn statistics(of: &DrawStatistics) -> Statistics {
    (of.energy, of.acceptance, of.step, of.length, of.gradients, of.depth, of.is_divergent)
}

/// Chains that make one draw after the other.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeSampler {
    handle: Handle<KeptSampler>,
    domain: Vec<LeafShape>,
}

#[pymethods]
impl NativeSampler {
    /// Creates chains from one start, or from one for each chain of all groups.
    #[new]
    fn new(
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        starts: Vec<Vec<Bound<'_, PyAny>>>,
        options: (String, Bound<'_, PyDict>),
        numbers: [u32; 4],
        seed: u64,
        state: Option<(String, String, u32)>,
    ) -> PyResult<Self> {
        let (session, [warmup, draws, chains, thinning]) = (&likelihood.handle.session, numbers);
        let starts = starts.into_iter().map(|start| given(session, start)).collect::<PyResult<Vec<_>>>()?;
        let mut options = SamplerOptions::new(algorithm(&options.0, &options.1)?, warmup, draws)
            .chains(chains)
            .thinning(thinning)
            .seed(seed);
        if let Some((directory, use_of_state, every)) = state {
            let existing = existing(&use_of_state);
            options = options.state(directory, existing).save_every(every);
        }
        let (handle, ()) = likelihood.handle.derive(py, move |work, likelihood: &Likelihood| {
            let (groups, rank) = (work.groups.clone(), &mut work.context);
            let is_one = starts.len() == 1;
            let own = groups.block(chains as usize);
            let own = starts.into_iter().enumerate().filter(|(chain, _)| is_one || own.contains(chain));
            let starts = own.map(|(_, start)| field(likelihood.domain(), start)).collect::<Result<Vec<_>, _>>()?;
            let sampler = Sampler::new(rank, Rc::new(likelihood.clone()), &groups, &starts, &options)?;
            Ok((RefCell::new(Some(sampler)), ()))
        })?;
        Ok(NativeSampler { handle, domain: likelihood.domain.clone() })
    }

    /// Moves all chains to their next draw; returns its number and whether it belongs to the
    /// warm-up, or `None` after the last one.
    fn step(&self, py: Python<'_>) -> PyResult<Option<(u32, bool)>> {
        self.handle.with(py, |rank, sampler| {
            let step = sampler.borrow_mut().as_mut().map(|sampler| sampler.step(rank)).transpose()?;
            Ok(step.flatten().map(|SamplerStep { draw, is_warmup }| (draw, is_warmup)))
        })
    }

    /// Returns the draws and how each was made, chain after chain.
    fn finish(&self, py: Python<'_>) -> PyResult<(NativeSamples, Vec<Statistics>)> {
        let (handle, (count, made)) = self.handle.derive(py, |work, sampler| {
            let sampler = sampler.borrow_mut().take();
            let sampler =
                sampler.ok_or_else(|| crate::failure::Failure::Value("the draws are taken already".into()))?;
            let Draws { samples, statistics, .. } = sampler.finish(&mut work.context)?;
            let count = samples.count();
            Ok((samples, (count, statistics)))
        })?;
        let samples = NativeSamples {
            handle,
            domain: self.domain.clone(),
            count,
            sampling: Convergence::default(),
            doubts: Vec::new(),
        };
        Ok((samples, made.iter().map(statistics).collect()))
    }
}

/// Returns the effective sample size and the split R-hat of each number of draws, which are chains
/// by draws by numbers.
#[pyfunction]
pub fn diagnostics(py: Python<'_>, draws: PyReadonlyArray3<'_, f64>) -> (Vec<f64>, Vec<f64>) {
    let draws = draws.as_array();
    let numbers = (0..draws.shape()[2]).map(|number| -> Vec<Vec<f64>> {
        (0..draws.shape()[0]).map(|chain| (0..draws.shape()[1]).map(|i| draws[[chain, i, number]]).collect()).collect()
    });
    // Draws of one number at a time are copied, so that the interpreter's lock is free meanwhile.
    let one = |chains: Vec<Vec<f64>>| py.detach(|| (effective_sample_size(&chains), split_r_hat(&chains)));
    numbers.map(one).unzip()
}
