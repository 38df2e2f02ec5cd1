//! Fits: samples of a posterior, iteration by iteration.

use std::cell::RefCell;
use std::sync::Arc;

use meshloom::inference::{
    CgOptions, Draw, Excitations, Fit, FitEnd, InferenceError, IterationOptions, IterationReport, Likelihood,
    NewtonOptions, NormOrder, OptimizeKl, Progress, SampleGroups, Samples, Sampling, VectorSpace, evidence_bound,
    wiener_filter,
};
use meshloom::operators::{Field, Model, Worker};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;
use crate::fields::{Cut, Kept, LeafShape, Values, chosen, field, given, kept, taken, working};
use crate::likelihood::NativeLikelihood;
use crate::operators::NativeModel;
use crate::session::{Session, Work};

/// A fit between its iterations, without what a worker lends it.
#[derive(Clone)]
struct KeptFit {
    position: Field,
    residuals: Vec<Field>,
    history: Vec<IterationReport>,
    drawn_in: u32,
}

impl KeptFit {
    fn of(samples: &Samples<Worker<'_>>, history: Vec<IterationReport>, drawn_in: u32) -> Self {
        let residuals = samples.own().filter_map(|sample| samples.residual(sample).cloned()).collect();
        KeptFit { position: samples.position.clone(), residuals, history, drawn_in }
    }

    fn samples<S: VectorSpace<Vector = Field>>(&self, groups: &SampleGroups) -> Result<Samples<S>, InferenceError> {
        if self.residuals.is_empty() {
            return Ok(Samples::none(self.position.clone()));
        }
        Samples::new(self.position.clone(), groups, self.residuals.len(), self.residuals.clone())
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

/// What an iteration does, by names.
fn iteration_options(given: &Bound<'_, PyDict>) -> PyResult<IterationOptions> {
    let mut options = IterationOptions::default();
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
            other => return Err(PyValueError::new_err(format!("an iteration has no option `{other}`"))),
        }
    }
    Ok(options)
}

/// A report: iteration, samples, energy, steps, applications, reduced chi-squared of data and of latent values, seconds.
type Report = (u32, usize, f64, u64, u64, Option<f64>, Option<f64>, f64);

fn reported(report: &IterationReport) -> Report {
    let IterationReport {
        iteration, samples, energy, steps, applications, chi_squared: [data, latent], seconds, ..
    } = report;
    (*iteration, *samples, *energy, *steps, *applications, *data, *latent, *seconds)
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
    kept: Kept,
    cut: Cut,
    domain: Vec<LeafShape>,
    /// Samples, both signs of each.
    #[pyo3(get)]
    count: usize,
    history: Vec<Report>,
}

impl NativeFit {
    fn make(
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        before: Option<u64>,
        make: impl FnOnce(&mut Worker<'_>, &Likelihood, &SampleGroups, Option<KeptFit>) -> Result<KeptFit, Failure>
        + Send
        + 'static,
    ) -> PyResult<Self> {
        let (session, number, cut) = (&likelihood.kept.session, likelihood.kept.number, likelihood.cut);
        let (number, count, history) = session.run(py, move |work| {
            let likelihood = kept::<Likelihood>(work, number)?.clone();
            let before = before.map(|number| kept::<KeptFit>(work, number).cloned()).transpose()?;
            let groups = SampleGroups::one(&work.context.comm);
            let fit = working(work, cut, |worker| make(worker, &likelihood, &groups, before))?;
            work.context.recorder.submit()?;
            let about = (fit.residuals.len(), fit.history.iter().map(reported).collect());
            Ok((work.keep(fit), about.0, about.1))
        })?;
        let kept = Kept { session: session.clone(), number };
        Ok(NativeFit { kept, cut, domain: likelihood.domain.clone(), count, history })
    }

    fn with<R: Send + 'static>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Work, KeptFit) -> Result<R, Failure> + Send + 'static,
    ) -> PyResult<R> {
        let number = self.kept.number;
        self.kept.session.run(py, move |work| {
            let fit = kept::<KeptFit>(work, number)?.clone();
            let found = body(work, fit);
            work.context.recorder.submit()?;
            found
        })
    }

    fn session(&self) -> &Arc<Session> {
        &self.kept.session
    }
}

/// How an iteration is done, beside its options: seed, a directory for the state with whether to resume from it, who is told of progress.
type Manner = (u64, Option<(String, bool)>, Option<Py<PyAny>>);

#[pymethods]
impl NativeFit {
    /// The iterations of a fit up to the one of this number, excluded, after those of `before`, or from a start.
    #[staticmethod]
    fn optimize_kl(
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        from: (Vec<Bound<'_, PyAny>>, Option<Bound<'_, NativeFit>>),
        iterations: u32,
        options: &Bound<'_, PyDict>,
        manner: Manner,
    ) -> PyResult<Self> {
        let (start, options) = (given(&likelihood.kept.session, from.0)?, iteration_options(options)?);
        let before = from.1.as_ref().map(|before| before.get().kept.number);
        let (seed, state, told) = manner;
        Self::make(py, likelihood, before, move |worker, likelihood, groups, before| {
            let teller = Teller { told, failed: RefCell::new(None) };
            let start = field(likelihood.domain(), start)?;
            let mut fit = OptimizeKl::new(likelihood, groups, iterations)
                .excitations(Excitations::Seed(seed))
                .options(|_| options.clone())
                .progress(|progress| teller.tell(progress));
            if let Some(before) = before {
                let (samples, drawn_in) = (before.samples(groups)?, before.drawn_in);
                fit = fit.after(Fit { samples, history: before.history, end: FitEnd::Done, drawn_in });
            }
            let fit = match state {
                Some((directory, true)) => fit.resume(directory),
                Some((directory, false)) => fit.save(directory),
                None => fit,
            };
            let found = fit.run(worker, &start)?;
            match teller.failed.into_inner() {
                Some(error) => Err(error.into()),
                None => Ok(KeptFit::of(&found.samples, found.history, found.drawn_in)),
            }
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
        let (position, cg) = (given(&likelihood.kept.session, position)?, cg_options(cg)?);
        Self::make(py, likelihood, None, move |worker, likelihood, groups, _| {
            let (position, seed) = (field(likelihood.domain(), position)?, Excitations::Seed(seed));
            let samples = wiener_filter(worker, likelihood, groups, &position, (pairs, &seed), &cg)?;
            Ok(KeptFit::of(&samples, Vec::new(), 0))
        })
    }

    /// Reports of the iterations.
    #[getter]
    fn history(&self) -> Vec<Report> {
        self.history.clone()
    }

    /// The position.
    fn position(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let found = self.with(py, |_, fit| Ok(fit.position.contents().to_vec()))?;
        taken(py, self.session(), &self.domain, found)
    }

    /// A sample: the position and its residual.
    fn sample(&self, py: Python<'_>, number: usize) -> PyResult<Vec<Py<PyAny>>> {
        let cut = self.cut;
        let found: Values = self.with(py, move |work, fit| {
            let groups = SampleGroups::one(&work.context.comm);
            working(work, cut, |worker| {
                let samples: Samples<Worker<'_>> = fit.samples(&groups)?;
                Ok(samples.at(worker, number)?.contents().to_vec())
            })
        })?;
        taken(py, self.session(), &self.domain, found)
    }

    /// The mean of a model over all samples and the standard deviation of one.
    fn mean_and_std(&self, py: Python<'_>, model: &NativeModel) -> PyResult<(Vec<Py<PyAny>>, Vec<Py<PyAny>>)> {
        if !Arc::ptr_eq(self.session(), &model.kept.session) {
            return Err(PyValueError::new_err("the samples and the model are on different ranks"));
        }
        let (number, cut) = (model.kept.number, self.cut);
        let (mean, std): (Values, Values) = self.with(py, move |work, fit| {
            let (model, groups) = (kept::<Model>(work, number)?.clone(), SampleGroups::one(&work.context.comm));
            working(work, cut, |worker| {
                let samples: Samples<Worker<'_>> = fit.samples(&groups)?;
                let like = Field::new(worker.gpu(), model.target())?;
                // Whether it has what the model takes is known before.
                chosen(&fit.position, model.domain())?;
                let mut value = |worker: &mut Worker<'_>, x: &Field| {
                    let x = chosen(x, model.domain()).unwrap_or_else(|_| x.clone());
                    Ok(model.value(worker, &x)?)
                };
                let (mean, std) = samples.mean_and_std(worker, &groups, &like, &mut value)?;
                Ok((mean.contents().to_vec(), std.contents().to_vec()))
            })
        })?;
        Ok((taken(py, self.session(), &model.target, mean)?, taken(py, self.session(), &model.target, std)?))
    }

    /// A bound of the logarithm of the evidence: value, error, the logarithm of the determinant, what may be left of it, directions.
    fn evidence(
        &self,
        py: Python<'_>,
        likelihood: &NativeLikelihood,
        directions: u64,
        tolerance: f64,
    ) -> PyResult<(f64, f64, f64, f64, u64)> {
        let (number, cut) = (likelihood.kept.number, self.cut);
        self.with(py, move |work, fit| {
            let likelihood = kept::<Likelihood>(work, number)?.clone();
            let groups = SampleGroups::one(&work.context.comm);
            working(work, cut, |worker| {
                let samples: Samples<Worker<'_>> = fit.samples(&groups)?;
                let found = evidence_bound(worker, &likelihood, &groups, &samples, directions, tolerance)?;
                Ok((found.value, found.error, found.log_determinant, found.rest, found.directions))
            })
        })
    }
}
