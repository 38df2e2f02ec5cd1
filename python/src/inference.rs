//! Fits: samples of a posterior, iteration by iteration.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use meshloom::Rank;
use meshloom::inference::{
    CgOptions, Convergence, Curvature, Draw, Evidence, EvidenceOptions, Excitations, Existing, Fit, FitEnd, FitOptions,
    IterationOptions, IterationReport, Likelihood, LogLikelihood, NewtonOptions, NormOrder, Preconditioning, Progress,
    SampleGroups, Samples, Sampling, Schedule, WienerFilter, evidence, wiener_filter,
};
use meshloom::operators::Vector;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::fields::{LeafShape, LeafTuple, Values, chosen, described, field, given, space, taken};
use crate::handle::Handle;
use crate::likelihood::NativeLikelihood;
use crate::operators::NativeModel;
use crate::session::Session;

/// A fit between its iterations.
type KeptFit = RefCell<Fit<Rank, Rc<Likelihood>>>;

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
                    other => return Err(PyValueError::new_err(format!("norm_ord: expected 1 or 2, got {other}"))),
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
#[derive(Clone)]
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
                "curvature" => options.curvature = own.curvature,
                _ => (),
            }
        }
        // The schedule has no constants, no temperature and the default preconditioning.
        IterationOptions {
            point_estimates: [&options.point_estimates[..], &own.point_estimates].concat(),
            constants: own.constants,
            temperature: own.temperature,
            preconditioning: own.preconditioning,
            ..options
        }
    }
}

/// Returns what an iteration does, by names.
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
                        return Err(PyValueError::new_err(format!(
                            "sample_mode: expected one of {known}, got {other:?}"
                        )));
                    }
                }
            }
            "linear" => options.linear = cg_options(value.cast()?)?,
            "curve" => options.curve = newton_options(value.cast()?)?,
            "position" => options.position = newton_options(value.cast()?)?,
            "curvature" => {
                options.curvature = match value.extract::<String>()?.as_str() {
                    "sample_average" => Curvature::SampleAverage,
                    "at_position" => Curvature::AtPosition,
                    other => {
                        return Err(PyValueError::new_err(format!(
                            "curvature: expected sample_average or at_position, got {other:?}"
                        )));
                    }
                }
            }
            "point_estimates" => options.point_estimates = value.extract()?,
            "constants" => options.constants = value.extract()?,
            "temperature" => options.temperature = value.extract()?,
            "preconditioning" => {
                options.preconditioning = match value.extract::<String>()?.as_str() {
                    "fields" => Preconditioning::Fields,
                    "always" => Preconditioning::Always,
                    "off" => Preconditioning::Off,
                    other => {
                        return Err(PyValueError::new_err(format!(
                            "preconditioning: expected one of fields, always, off, got {other:?}"
                        )));
                    }
                }
            }
            other => return Err(PyValueError::new_err(format!("an iteration has no option `{other}`"))),
        }
        names.push(name.extract()?);
    }
    Ok(GivenOptions { options, names })
}

/// The fields of Python's `IterationReport` as far as the position has them, and those of its
/// samples.
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

/// A function that is called with progress, and its first exception.
struct Teller {
    told: Option<Py<PyAny>>,
    failed: Option<PyErr>,
}

impl Teller {
    fn tell(&mut self, progress: &Progress) {
        let Some(told) = self.told.as_ref().filter(|_| self.failed.is_none()) else { return };
        let (iteration, what) = match progress {
            Progress::Sample { iteration, sample, of } => (iteration, format!("sample {} of {of}", sample + 1)),
            Progress::Step { iteration, step } => {
                (iteration, format!("step {}: energy {:.6e}", step.number, step.value))
            }
        };
        self.failed = Python::attach(|py| told.call1(py, (*iteration, what))).err();
    }
}

/// Options of the iterations of a fit, parsed once.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeOptions(Vec<GivenOptions>);

#[pymethods]
impl NativeOptions {
    #[new]
    fn new(options: Vec<Bound<'_, PyDict>>) -> PyResult<Self> {
        Ok(NativeOptions(options.iter().map(iteration_options).collect::<PyResult<Vec<_>>>()?))
    }
}

/// Returns the use of a state, by its name.
pub fn existing(name: &str) -> Existing {
    match name {
        "resume" => Existing::Resume,
        "overwrite" => Existing::Overwrite,
        _ => Existing::Refuse,
    }
}

/// A directory for the state, and the use of a state that is there.
type State = Option<(String, String)>;

/// Why a fit ended, why it has not settled, and a report of each iteration.
type Known = (&'static str, Option<String>, Vec<Report>);

/// A fit that runs one iteration after the other.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeFit {
    handle: Handle<KeptFit>,
    domain: Vec<LeafShape>,
    /// A function that is called with progress.
    told: Option<Py<PyAny>>,
}

#[pymethods]
impl NativeFit {
    /// The largest number of iterations if the caller gives none.
    #[classattr]
    const ITERATIONS: u32 = Schedule::ITERATIONS;

    /// Creates a fit from a start, with the options of each iteration.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "names of Python's arguments")]
    fn new(
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        start: Vec<Bound<'_, PyAny>>,
        options: &Bound<'_, NativeOptions>,
        seed: u64,
        settles: bool,
        state: State,
        told: Option<Py<PyAny>>,
        memory: Option<u64>,
        budget: Option<f64>,
    ) -> PyResult<Self> {
        let start = given(&likelihood.handle.session, start)?;
        let given = options.get().0.clone();
        let time = budget.map(Duration::try_from_secs_f64).transpose();
        let time = time.map_err(|error| PyValueError::new_err(format!("budget: {error}")))?;
        let (handle, ()) = likelihood.handle.derive(py, move |work, likelihood: &Likelihood| {
            let (groups, rank) = (work.groups.clone(), &mut work.context);
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
            let each = |iteration| given[iteration as usize].over(scheduled(iteration));
            let mut options = FitOptions::new(given.len() as u32).each(each).seed(seed).memory(memory);
            (options.time, options.until_settled) = (time, settles);
            if let Some((directory, existing)) = &state {
                options = options.state(directory, self::existing(existing));
            }
            let fit = Fit::new(rank, Rc::new(likelihood.clone()), &groups, &start, &options)?;
            Ok((RefCell::new(fit), ()))
        })?;
        Ok(NativeFit { handle, domain: likelihood.domain.clone(), told })
    }

    /// Runs the next iteration; returns `False` if the fit has ended. Collective over all groups.
    fn step(&self, py: Python<'_>) -> PyResult<bool> {
        let mut teller = Teller { told: self.told.as_ref().map(|told| told.clone_ref(py)), failed: None };
        self.handle.with(py, move |rank, fit| {
            let found = fit.borrow_mut().step_with(rank, &mut |progress| teller.tell(progress))?;
            teller.failed.map_or(Ok(found.is_some()), |error| Err(error.into()))
        })
    }

    /// Returns why the fit ended ("" if it has not), why it has not settled, and its reports.
    fn known(&self, py: Python<'_>) -> PyResult<Known> {
        self.handle.with(py, |_, fit| {
            let fit = fit.borrow();
            let end = match fit.end() {
                Some(FitEnd::Done) => "done",
                Some(FitEnd::AlreadyDone) => "already done",
                Some(FitEnd::Settled) => "settled",
                Some(FitEnd::Time) => "time",
                None => "",
            };
            Ok((end, fit.unsettled(), fit.history().iter().map(reported).collect()))
        })
    }

    /// Returns the position and samples of the last iteration.
    fn samples(&self, py: Python<'_>) -> PyResult<NativeSamples> {
        let (handle, (count, sampling, doubts)) = self.handle.derive(py, |_, kept| {
            let fit = kept.borrow();
            let samples = fit.samples().clone();
            let last = fit.history().last();
            let sampling = last.map_or_else(Convergence::default, |last| last.sampling);
            let expected = fit.likelihood().expected_chi_squared();
            let about = (samples.count(), sampling, last.map_or_else(Vec::new, |last| last.doubts(expected)));
            Ok((samples, about))
        })?;
        Ok(NativeSamples { handle, domain: self.domain.clone(), count, sampling, doubts })
    }
}

/// A position and samples about it.
#[pyclass(frozen, module = "meshloom._native")]
pub struct NativeSamples {
    pub handle: Handle<Samples<Rank>>,
    pub domain: Vec<LeafShape>,
    /// Number of samples, both signs of each.
    #[pyo3(get)]
    pub count: usize,
    pub sampling: Convergence,
    /// A sentence for each reason not to rely on the position.
    #[pyo3(get)]
    pub doubts: Vec<String>,
}

impl NativeSamples {
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
            let found = body(&mut work.context, &groups, &own, &other);
            work.context.recorder.submit()?;
            found
        })
    }

    fn session(&self) -> &Arc<Session> {
        &self.handle.session
    }
}

#[pymethods]
impl NativeSamples {
    /// Computes the posterior of a model that is linear about `position`.
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
        let (handle, (count, sampling, doubts)) = likelihood.handle.derive(py, move |work, likelihood| {
            let groups = work.groups.clone();
            let (position, seed) = (field(likelihood.domain(), position)?, Excitations::Seed(seed));
            let WienerFilter { samples, convergence, bend, is_bent } =
                wiener_filter(&mut work.context, likelihood, &groups, &position, (pairs, &seed), &cg)?;
            let doubt = format!(
                "the model is not linear between the position and the mean, or its noise not Gaussian (the gradient differs by {bend:.1e} of itself): this is \
                 not the posterior; take optimize_kl"
            );
            let about = (samples.count(), convergence, is_bent.then_some(doubt).into_iter().collect());
            Ok((samples, about))
        })?;
        Ok(NativeSamples { handle, domain: likelihood.domain.clone(), count, sampling, doubts })
    }

    /// Creates samples from a position and the residuals of this group's block.
    #[staticmethod]
    fn restored(
        comm: &Bound<'_, Comm>,
        leaves: Vec<LeafTuple>,
        position: Vec<Bound<'_, PyAny>>,
        count: usize,
        residuals: Vec<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<Self> {
        let session = &comm.get().session;
        let position = given(session, position)?;
        let residuals = residuals.into_iter().map(|one| given(session, one)).collect::<PyResult<Vec<_>>>()?;
        let (handle, domain) = Handle::make_of_work(comm.py(), session, move |work| {
            let space = space(&work.context, &leaves)?;
            let residuals = residuals.into_iter().map(|one| field(&space, one)).collect::<Result<Vec<_>, _>>()?;
            let samples = Samples::new(field(&space, position)?, &work.groups, count, residuals)?;
            Ok((samples, described(&space)))
        })?;
        Ok(NativeSamples { handle, domain, count, sampling: Convergence::default(), doubts: Vec::new() })
    }

    /// Returns the first sample of this group's block of `count` samples, and the first after it.
    #[staticmethod]
    fn block(comm: &Bound<'_, Comm>, count: usize) -> PyResult<(usize, usize)> {
        comm.get().session.run(comm.py(), move |work| {
            let block = work.groups.block(count);
            Ok((block.start, block.end))
        })
    }

    /// Returns a sentence for each reason not to rely on the samples, which `what` names.
    fn sample_doubts(&self, what: &str) -> Vec<String> {
        let linear = "give more maxiter in the cg_kwargs of draw_linear_kwargs";
        let curve = "give more maxiter in the minimize_kwargs of nonlinearly_update_kwargs, or linear samples";
        self.sampling.doubts(what, [linear, curve])
    }

    /// Returns the position.
    fn position(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let found = self.handle.with(py, |_, samples| Ok(samples.position.contents().to_vec()))?;
        taken(py, self.session(), &self.domain, found)
    }

    /// Returns a sample: the position and its residual. All ranks of all groups call it.
    fn sample(&self, py: Python<'_>, number: usize) -> PyResult<Vec<Py<PyAny>>> {
        let found = self.with(py, &self.handle, move |rank, groups, samples, _| {
            Ok(samples.everywhere(rank, groups, number)?.contents().to_vec())
        })?;
        taken(py, self.session(), &self.domain, found)
    }

    /// Returns the residual of a sample. All ranks of all groups call it.
    fn residual(&self, py: Python<'_>, number: usize) -> PyResult<Vec<Py<PyAny>>> {
        let found = self.with(py, &self.handle, move |rank, groups, samples, _| {
            Ok(samples.residual_everywhere(rank, groups, number)?.contents().to_vec())
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

    /// Returns the logarithm of the evidence: its bounds, their error, bounds of the logarithm of
    /// the determinant, products, and a sentence about a doubtful result, or `None`.
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
