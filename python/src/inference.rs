//! Fits: samples of a posterior, iteration by iteration.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use meshloom::Rank;
use meshloom::inference::{
    CgOptions, Convergence, Draw, Evidence, EvidenceOptions, Excitations, Fit, FitEnd, InferenceError,
    IterationOptions, IterationReport, Likelihood, NewtonOptions, NormOrder, OptimizeKl, Progress, SampleGroups,
    SampleOutcome, Samples, Sampling, Schedule, VectorSpace, evidence, wiener_filter,
};
use meshloom::operators::Vector;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;
use crate::fields::{LeafShape, Values, chosen, field, given, taken};
use crate::handle::Handle;
use crate::likelihood::NativeLikelihood;
use crate::operators::NativeModel;
use crate::session::Session;

/// A fit between its iterations, without what a rank lends it.
#[derive(Clone)]
struct KeptFit {
    position: Vector,
    /// Samples of all groups, and the residuals of this group's.
    count: usize,
    residuals: Vec<Vector>,
    outcomes: Vec<SampleOutcome>,
    /// How well the samples are solved.
    sampling: Convergence,
    /// Why it is not to be relied on.
    doubts: Vec<String>,
    /// Why the fit has not settled, if it has not.
    unsettled: Option<String>,
    history: Vec<IterationReport>,
    drawn_in: u32,
    end: FitEnd,
}

impl KeptFit {
    fn of(samples: &Samples<Rank>, sampling: Convergence, doubts: Vec<String>) -> Self {
        let outcomes = samples.own().filter_map(|sample| samples.outcome(sample)).collect();
        let residuals = samples.own().filter_map(|sample| samples.residual(sample).cloned()).collect();
        let (position, count) = (samples.position.clone(), samples.count());
        KeptFit {
            position,
            count,
            residuals,
            outcomes,
            sampling,
            doubts,
            unsettled: None,
            history: Vec::new(),
            drawn_in: 0,
            end: FitEnd::Done,
        }
    }

    fn samples<S: VectorSpace<Vector = Vector>>(&self, groups: &SampleGroups) -> Result<Samples<S>, InferenceError> {
        Samples::new(self.position.clone(), groups, self.count, self.residuals.clone())?
            .with_outcomes(self.outcomes.clone())
    }
}

/// Rules for conjugate gradients, by their names.
fn cg_options(given: &Bound<'_, PyDict>) -> PyResult<CgOptions> {
    let mut options = CgOptions::default();
    for (name, value) in given {
        match name.extract::<String>()?.as_str() {
            "absdelta" => options.absdelta = value.extract()?,
            "resnorm" => options.resnorm = value.extract()?,
            "norm_ord" => {
                options.norm = match value.extract()? {
                    1 => NormOrder::One,
                    2 => NormOrder::Two,
                    other => return Err(PyValueError::new_err(format!("norm_ord is {other}, not 1 or 2"))),
                }
            }
            "miniter" => options.miniter = value.extract()?,
            "maxiter" => options.maxiter = value.extract()?,
            other => return Err(PyValueError::new_err(format!("conjugate gradients have no option `{other}`"))),
        }
    }
    Ok(options)
}

/// Rules for Newton's method, by their names.
fn newton_options(given: &Bound<'_, PyDict>) -> PyResult<NewtonOptions> {
    let mut options = NewtonOptions::default();
    for (name, value) in given {
        match name.extract::<String>()?.as_str() {
            "absdelta" => options.absdelta = value.extract()?,
            "xtol" => options.xtol = value.extract()?,
            "miniter" => options.miniter = value.extract()?,
            "maxiter" => options.maxiter = value.extract()?,
            "energy_reduction_factor" => options.energy_reduction = value.extract()?,
            "cg_kwargs" => options.cg = Some(cg_options(value.cast()?)?),
            other => return Err(PyValueError::new_err(format!("Newton's method has no option `{other}`"))),
        }
    }
    Ok(options)
}

/// Options of an iteration, and the names of those that were given.
struct GivenOptions {
    options: IterationOptions,
    names: Vec<String>,
}

impl GivenOptions {
    /// Returns `scheduled` with the given options in place of its own.
    fn over(&self, scheduled: IterationOptions) -> IterationOptions {
        let mut options = scheduled;
        let own = self.options.clone();
        for name in &self.names {
            match name.as_str() {
                "n_samples" => options.pairs = own.pairs,
                "sample_mode" => options.sampling = own.sampling,
                "linear" => options.linear = own.linear,
                "curve" => options.curve = own.curve,
                "position" => options.position = own.position,
                _ => (),
            }
        }
        // The schedule has no constants and no temperature.
        IterationOptions {
            point_estimates: [&options.point_estimates[..], &own.point_estimates].concat(),
            constants: own.constants,
            temperature: own.temperature,
            ..options
        }
    }
}

/// What an iteration does, by names.
fn iteration_options(given: &Bound<'_, PyDict>) -> PyResult<GivenOptions> {
    let mut options = IterationOptions::default();
    let mut names = Vec::new();
    for (name, value) in given {
        match name.extract::<String>()?.as_str() {
            "n_samples" => options.pairs = value.extract()?,
            "sample_mode" => {
                options.sampling = match value.extract::<String>()?.as_str() {
                    "linear_resample" => Sampling::Linear(Draw::New),
                    "linear_sample" => Sampling::Linear(Draw::Again),
                    "nonlinear_resample" => Sampling::Curved(Draw::New),
                    "nonlinear_sample" => Sampling::Curved(Draw::Again),
                    "nonlinear_update" => Sampling::Update,
                    other => {
                        let known =
                            "linear_resample, linear_sample, nonlinear_resample, nonlinear_sample, nonlinear_update";
                        return Err(PyValueError::new_err(format!("sample_mode is {other:?}, not one of {known}")));
                    }
                }
            }
            "linear" => options.linear = cg_options(value.cast()?)?,
            "curve" => options.curve = newton_options(value.cast()?)?,
            "position" => options.position = newton_options(value.cast()?)?,
            "point_estimates" => options.point_estimates = value.extract()?,
            "constants" => options.constants = value.extract()?,
            "temperature" => options.temperature = value.extract()?,
            other => return Err(PyValueError::new_err(format!("an iteration has no option `{other}`"))),
        }
        names.push(name.extract()?);
    }
    Ok(GivenOptions { options, names })
}

/// The fields of Python's `IterationReport` as far as the position has them, and those of its samples.
type Report = ((u32, usize, f64, u64, u64, Option<f64>, Option<f64>, f64), (u64, u64, bool, f64, u64, u64));

fn reported(report: &IterationReport) -> Report {
    let IterationReport {
        iteration, samples, sampling, energy, steps, applications, stop, chi_squared, seconds, ..
    } = report;
    let [data, latent] = *chi_squared;
    let Convergence { steps: most, unconverged, error_ratio, failed, limited } = *sampling;
    (
        (*iteration, *samples, *energy, *steps, *applications, data, latent, *seconds),
        (most, unconverged, stop.is_failure(), error_ratio, failed, limited),
    )
}

/// What is told within an iteration, and the first exception of who is told.
struct Teller {
    told: Option<Py<PyAny>>,
    failed: RefCell<Option<PyErr>>,
}

impl Teller {
    fn tell(&self, progress: &Progress) {
        let Some(told) = self.told.as_ref().filter(|_| self.failed.borrow().is_none()) else { return };
        let (iteration, what) = match progress {
            Progress::Sample { iteration, sample, of } => (iteration, format!("sample {} of {of}", sample + 1)),
            Progress::Step { iteration, step } => {
                (iteration, format!("step {}: energy {:.6e}", step.number, step.value))
            }
        };
        if let Err(error) = Python::attach(|py| told.call1(py, (*iteration, what))) {
            *self.failed.borrow_mut() = Some(error);
        }
    }
}

/// A position and samples about it, with a report of each iteration.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeFit {
    handle: Handle<KeptFit>,
    domain: Vec<LeafShape>,
    /// Samples, both signs of each.
    #[pyo3(get)]
    count: usize,
    sampling: Convergence,
    doubts: Vec<String>,
    unsettled: Option<String>,
    history: Vec<Report>,
    end: FitEnd,
}

impl NativeFit {
    /// A fit of a likelihood, after another one of it.
    fn make(
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        before: Option<&NativeFit>,
        make: impl FnOnce(&mut Rank, &Likelihood, &SampleGroups, Option<KeptFit>) -> Result<KeptFit, Failure>
        + Send
        + 'static,
    ) -> PyResult<Self> {
        let before = before.map(|before| likelihood.handle.with_the_ranks_of(&before.handle)).transpose()?;
        let (handle, (count, sampling, doubts, unsettled, history, end)) =
            likelihood.handle.derive(py, move |work, likelihood| {
                let before = before.map(|key| Ok::<_, Failure>(KeptFit::clone(&*key.get(work)?))).transpose()?;
                let groups = work.groups.clone();
                let fit = make(&mut work.context, likelihood, &groups, before)?;
                let about = (
                    fit.count,
                    fit.sampling,
                    fit.doubts.clone(),
                    fit.unsettled.clone(),
                    fit.history.iter().map(reported).collect(),
                    fit.end,
                );
                Ok((fit, about))
            })?;
        Ok(NativeFit { handle, domain: likelihood.domain.clone(), count, sampling, doubts, unsettled, history, end })
    }

    /// Works with the samples, and with something else.
    fn with<T: 'static, R: Send + 'static>(
        &self,
        py: Python<'_>,
        other: &Handle<T>,
        body: impl FnOnce(&mut Rank, &SampleGroups, &Samples<Rank>, &T) -> Result<R, Failure> + Send + 'static,
    ) -> PyResult<R> {
        let (own, other) = (self.handle.key, self.handle.with_the_ranks_of(other)?);
        self.session().run(py, move |work| {
            let (own, other, groups) = (own.get(work)?, other.get(work)?, work.groups.clone());
            let found = own
                .samples(&groups)
                .map_err(Failure::from)
                .and_then(|samples| body(&mut work.context, &groups, &samples, &other));
            work.context.recorder.submit()?;
            found
        })
    }

    fn session(&self) -> &Arc<Session> {
        &self.handle.session
    }
}

/// Settings of an iteration beside its options: seed, whether a fit that has settled ends, a directory for the state with what is done with a state in it, a
/// function that is called with progress, bytes of memory, seconds that are left.
type Manner = (u64, bool, Option<(String, String)>, Option<Py<PyAny>>, Option<u64>, Option<f64>);

#[pymethods]
impl NativeFit {
    /// The iterations of a fit at most where their number is not given.
    #[classattr]
    const ITERATIONS: u32 = Schedule::ITERATIONS;

    /// Refuses what are no options of an iteration.
    #[staticmethod]
    fn check_options(options: &Bound<'_, PyDict>) -> PyResult<()> {
        iteration_options(options).map(|_| ())
    }

    /// The next iteration of a fit whose iterations have these options, after those of `before`, or from a start; none where all are done.
    #[staticmethod]
    fn optimize_kl(
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        from: (Vec<Bound<'_, PyAny>>, Option<Bound<'_, NativeFit>>),
        options: Vec<Bound<'_, PyDict>>,
        manner: Manner,
    ) -> PyResult<Self> {
        let start = given(&likelihood.handle.session, from.0)?;
        let options = options.iter().map(iteration_options).collect::<PyResult<Vec<_>>>()?;
        let (seed, settles, state, told, memory, budget) = manner;
        let budget = budget.map(Duration::try_from_secs_f64).transpose();
        let budget = budget.map_err(|error| PyValueError::new_err(format!("budget: {error}")))?;
        Self::make(py, likelihood, from.1.as_ref().map(Bound::get), move |rank, likelihood, groups, before| {
            let teller = Teller { told, failed: RefCell::new(None) };
            let start = field(likelihood.domain(), start)?;
            let schedule = Schedule::new(rank, likelihood, &start);
            let scheduled = |iteration| {
                let mut scheduled = schedule.options(iteration);
                if !settles {
                    // A fit of a given number of iterations may end before samples vary everything.
                    scheduled.point_estimates.clear();
                }
                scheduled
            };
            let mut fit = OptimizeKl::new(likelihood, groups, options.len() as u32)
                .excitations(Excitations::Seed(seed))
                .options(|iteration| options[iteration as usize].over(scheduled(iteration)))
                .callback(|_, _, _| Ok(ControlFlow::Break(())))
                .progress(|progress| teller.tell(progress))
                .memory(memory);
            if let Some(budget) = budget {
                fit = fit.budget(budget);
            }
            if let Some(before) = before {
                let (samples, drawn_in) = (before.samples(groups)?, before.drawn_in);
                fit = fit.after(Fit { samples, history: before.history, end: FitEnd::Done, drawn_in });
            }
            if settles {
                fit = fit.until_settled();
            }
            let fit = match state.as_ref().map(|(directory, found)| (directory, found.as_str())) {
                Some((directory, "resume")) => fit.resume(directory),
                Some((directory, "overwrite")) => fit.overwrite(directory),
                Some((directory, _)) => fit.save(directory),
                None => fit,
            };
            let found = fit.run(rank, &start)?;
            if let Some(error) = teller.failed.into_inner() {
                return Err(error.into());
            }
            let last = found.history.last();
            let sampling = last.map_or_else(Convergence::default, |last| last.sampling);
            let doubts = last.map_or_else(Vec::new, |last| last.doubts(likelihood.expected_chi_squared()));
            let kept = KeptFit::of(&found.samples, sampling, doubts);
            let unsettled = Schedule::unsettled(&found.history, likelihood.degrees_of_freedom());
            Ok(KeptFit { unsettled, history: found.history, drawn_in: found.drawn_in, end: found.end, ..kept })
        })
    }

    /// The posterior of a model that is linear about `position`.
    #[staticmethod]
    fn wiener_filter(
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        position: Vec<Bound<'_, PyAny>>,
        pairs: usize,
        seed: u64,
        cg: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let (position, cg) = (given(&likelihood.handle.session, position)?, cg_options(cg)?);
        Self::make(py, likelihood, None, move |rank, likelihood, groups, _| {
            let (position, seed) = (field(likelihood.domain(), position)?, Excitations::Seed(seed));
            let found = wiener_filter(rank, likelihood, groups, &position, (pairs, &seed), &cg)?;
            let doubt = format!(
                "the model is not linear between the position and the mean, or its noise not Gaussian (the gradient differs by {:.1e} of itself): this is \
                 not the posterior; take optimize_kl",
                found.bend
            );
            Ok(KeptFit::of(&found.samples, found.convergence, found.is_bent.then_some(doubt).into_iter().collect()))
        })
    }

    /// Returns a sentence for each reason not to rely on the samples, which `what` names.
    fn sample_doubts(&self, what: &str) -> Vec<String> {
        let linear = "give more maxiter in the cg_kwargs of draw_linear_kwargs";
        let curve = "give more maxiter in the minimize_kwargs of nonlinearly_update_kwargs, or linear samples";
        self.sampling.doubts(what, [linear, curve])
    }

    /// Returns a sentence for each reason not to rely on the position.
    #[getter]
    fn doubts(&self) -> Vec<String> {
        self.doubts.clone()
    }

    /// Why no iteration was done: "done" if all were done before, "time" if the time is over; "" if one was done.
    #[getter]
    fn end(&self) -> &'static str {
        match self.end {
            FitEnd::Settled => "settled",
            FitEnd::AlreadyDone => "done",
            FitEnd::Time => "time",
            FitEnd::Done | FitEnd::Callback => "",
        }
    }

    /// Why the fit has not settled, if it has not.
    #[getter]
    fn unsettled(&self) -> Option<String> {
        self.unsettled.clone()
    }

    /// Reports of the iterations.
    #[getter]
    fn history(&self) -> Vec<Report> {
        self.history.clone()
    }

    /// The position.
    fn position(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let found = self.handle.with(py, |_, fit| Ok(fit.position.contents().to_vec()))?;
        taken(py, self.session(), &self.domain, found)
    }

    /// A sample: the position and its residual. All ranks of all groups call it.
    fn sample(&self, py: Python<'_>, number: usize) -> PyResult<Vec<Py<PyAny>>> {
        let found = self.with(py, &self.handle, move |rank, groups, samples, _| {
            Ok(samples.everywhere(rank, groups, number)?.contents().to_vec())
        })?;
        taken(py, self.session(), &self.domain, found)
    }

    /// Returns the mean of a model over all samples and the standard deviation of one.
    fn mean_and_std(
        &self,
        py: Python<'_>,
        model: &NativeModel,
        ddof: usize,
    ) -> PyResult<(Vec<Py<PyAny>>, Vec<Py<PyAny>>)> {
        let (mean, std): (Values, Values) = self.with(py, &model.handle, move |rank, groups, samples, model| {
            let like = Vector::new(&rank.gpu, model.target())?;
            // Whether it has what the model takes is known before.
            chosen(&samples.position, model.domain())?;
            let mut value = |rank: &mut Rank, x: &Vector| {
                let x = chosen(x, model.domain()).unwrap_or_else(|_| x.clone());
                Ok(model.value(rank, &x)?)
            };
            let (mean, std) = samples.mean_and_std_with_ddof(rank, groups, &like, &mut value, ddof)?;
            Ok((mean.contents().to_vec(), std.contents().to_vec()))
        })?;
        Ok((taken(py, self.session(), &model.target, mean)?, taken(py, self.session(), &model.target, std)?))
    }

    /// The logarithm of the evidence: its bounds, their error, bounds of the logarithm of the determinant, products, and
    /// a sentence about a doubtful result, or `None`.
    fn evidence(
        &self,
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        directions: u64,
        probes: u64,
        steps: u64,
        seed: u64,
    ) -> PyResult<(f64, f64, f64, [f64; 2], u64, Option<String>)> {
        let options = EvidenceOptions { directions, probes, steps, seed };
        self.with(py, &likelihood.handle, move |rank, groups, samples, likelihood| {
            let found = evidence(rank, likelihood, groups, samples, &options)?;
            let Evidence { lower, upper, error, log_determinant, products } = found;
            Ok((lower, upper, error, log_determinant, products, found.doubt()))
        })
    }
}
