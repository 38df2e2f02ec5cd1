//! Likelihoods, which live on the thread of their session as models do.

use meshloom::Rank;
use meshloom::host_memory;
use meshloom::inference::{Data, Likelihood, LogLikelihood, MetricCheck, NoiseLevel, Prior, check_metric};
use meshloom::operators::{Leaf, Vector};
use numpy::{PyReadonlyArray1, PyReadonlyArrayDyn};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::fields::{LeafShape, LeafTuple, Values, described, field, given, leaf, space, taken};
use crate::handle::Handle;
use crate::operators::NativeModel;

/// Data of this rank, and what is known of their noise.
struct Observed {
    name: String,
    leaf: LeafTuple,
    values: Vec<f64>,
    mask: Option<Vec<bool>>,
    /// The standard deviation of the noise of all, where each has not its own.
    noise: f64,
    /// Standard deviations, or exposures of counts: one for each.
    each: Option<Vec<f64>>,
    /// Degrees of freedom, or classes.
    number: f64,
}

impl Observed {
    /// Returns the likelihood of this kind.
    fn likelihood(&self, rank: &mut Rank, kind: &str) -> Result<Likelihood, Failure> {
        let leaf: Leaf = leaf(rank, &self.leaf)?;
        let data = Data { name: &self.name, leaf: &leaf, values: &self.values, mask: self.mask.as_deref() };
        let noise = self.each.as_deref().map_or(NoiseLevel::Uniform(self.noise), NoiseLevel::Each);
        Ok(match kind {
            "gaussian" => Likelihood::gaussian(rank, &data, noise)?,
            "poisson" => Likelihood::poisson(rank, &data, self.each.as_deref())?,
            "student_t" => Likelihood::student_t(rank, &data, noise, self.number)?,
            "gaussian_inferred" => Likelihood::gaussian_inferred(rank, &data)?,
            "student_t_inferred" => Likelihood::student_t_inferred(rank, &data, self.number)?,
            "categorical" => Likelihood::categorical(rank, &data, self.number as u32)?,
            _ => return Err(Failure::Value(format!("there is no likelihood `{kind}`"))),
        })
    }
}

/// Likelihood of data as a function of latent values. Python notes the call that made it.
#[pyclass(frozen, dict, module = "meshloom._native")]
pub struct NativeLikelihood {
    pub handle: Handle<Likelihood>,
    /// The names of its data sets.
    #[pyo3(get)]
    name: String,
    /// The leaves that it is a function of.
    #[pyo3(get)]
    pub domain: Vec<LeafShape>,
}

/// The fields of Python's `MetricCheck`.
type Check = ((f64, f64), (f64, f64), (f64, f64), (f64, f64), Option<f64>);

/// Returns a likelihood with its description: its name, and the leaves of its domain.
fn told(likelihood: Likelihood) -> (Likelihood, (String, Vec<LeafShape>)) {
    let about = (likelihood.name(), described(likelihood.domain()));
    (likelihood, about)
}

impl From<(Handle<Likelihood>, (String, Vec<LeafShape>))> for NativeLikelihood {
    fn from((handle, (name, domain)): (Handle<Likelihood>, (String, Vec<LeafShape>))) -> Self {
        NativeLikelihood { handle, name, domain }
    }
}

impl NativeLikelihood {
    /// Works with the likelihood at `x`.
    fn at<R: Send + 'static>(
        &self,
        py: Python<'_>,
        x: Vec<Bound<'_, PyAny>>,
        body: impl FnOnce(&mut Rank, &Likelihood, &Vector) -> Result<R, Failure> + Send + 'static,
    ) -> PyResult<R> {
        let x = given(&self.handle.session, x)?;
        self.handle.with(py, move |rank, likelihood| {
            let x = field(likelihood.domain(), x)?;
            body(rank, likelihood, &x)
        })
    }
}

#[pymethods]
impl NativeLikelihood {
    /// Returns the likelihood of data at a leaf; `options` has `mask`, `noise`, `each` and
    /// `number`, where these matter.
    #[new]
    fn new(
        comm: &Bound<'_, Comm>,
        kind: String,
        name: String,
        leaf: LeafTuple,
        values: PyReadonlyArrayDyn<'_, f64>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let mut observed = Observed {
            name,
            leaf,
            values: host_memory::collect("data", values.as_array().iter().copied()).map_err(Failure::from)?,
            mask: None,
            noise: 1.0,
            each: None,
            number: 0.0,
        };
        for (name, value) in options {
            match name.extract::<String>()?.as_str() {
                "mask" => {
                    let mask: PyReadonlyArray1<'_, bool> = value.extract()?;
                    let mask = mask.as_array();
                    let mask = host_memory::collect("the mask of data", mask.iter().copied());
                    observed.mask = Some(mask.map_err(Failure::from)?);
                }
                "each" => {
                    let each: PyReadonlyArray1<'_, f64> = value.extract()?;
                    let each = each.as_array();
                    let each = host_memory::collect("noise of data", each.iter().copied());
                    observed.each = Some(each.map_err(Failure::from)?);
                }
                "noise" => observed.noise = value.extract()?,
                "number" => observed.number = value.extract()?,
                name => return Err(PyValueError::new_err(format!("there is no option `{name}`"))),
            }
        }
        let session = &comm.get().session;
        Ok(Handle::make(comm.py(), session, move |rank| Ok(told(observed.likelihood(rank, &kind)?)))?.into())
    }

    /// Returns the likelihood of what a model says.
    fn amend(&self, py: Python<'_>, model: &NativeModel) -> PyResult<Self> {
        Ok(self.handle.join(py, &model.handle, |own, model| Ok(told(own.amend(model)?)))?.into())
    }

    /// Returns the likelihood of two independent data sets.
    fn plus(&self, py: Python<'_>, other: &NativeLikelihood) -> PyResult<Self> {
        Ok(self.handle.join(py, &other.handle, |own, other| Ok(told(own.plus(other)?)))?.into())
    }

    /// Data that count.
    fn degrees_of_freedom(&self, py: Python<'_>) -> PyResult<u64> {
        self.handle.with(py, |_, likelihood| Ok(likelihood.degrees_of_freedom()))
    }

    /// `-ln p(data | x)`, up to a constant.
    fn energy(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<f64> {
        self.at(py, x, |rank, likelihood, x| Ok(likelihood.energy(rank, x)?))
    }

    /// Returns the energy and its gradient.
    fn gradient(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<(f64, Vec<Py<PyAny>>)> {
        let (energy, gradient) = self.at(py, x, |rank, likelihood, x| {
            let at = likelihood.at(rank, x)?;
            let mut gradient = Vector::new(&rank.gpu, likelihood.domain())?;
            at.gradient(rank, &mut gradient)?;
            Ok((at.energy(rank)?, gradient.contents().to_vec()))
        })?;
        Ok((energy, taken(py, &self.handle.session, &self.domain, gradient)?))
    }

    /// Returns the Fisher metric at `x`, times `v`.
    fn metric(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>, v: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let v = given(&self.handle.session, v)?;
        let found: Values = self.at(py, x, move |rank, likelihood, x| {
            let at = likelihood.at(rank, x)?;
            let (v, mut out) = (field(likelihood.domain(), v)?, Vector::new(&rank.gpu, likelihood.domain())?);
            at.metric(rank, &v, &mut out)?;
            Ok(out.contents().to_vec())
        })?;
        taken(py, &self.handle.session, &self.domain, found)
    }

    /// Compares the derivatives at `x` with each other, along random directions of `seed`.
    fn check_metric(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>, seed: u64) -> PyResult<Check> {
        self.at(py, x, move |rank, likelihood, x| {
            let MetricCheck { symmetric, square, transposed, slope, coordinates } =
                check_metric(rank, likelihood, x, seed)?;
            Ok((symmetric.into(), square.into(), transposed.into(), slope.into(), coordinates))
        })
    }

    /// Returns, for each data set with residuals, its name, the reduced chi-squared, the mean
    /// residual, and the number of data.
    fn report(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<(String, f64, f64, u64)>> {
        self.at(py, x, |rank, likelihood, x| {
            let reports = likelihood.report(rank, x)?.into_iter();
            Ok(reports.map(|one| (one.name, one.reduced_chi_squared, one.mean, one.count)).collect())
        })
    }
}

/// Returns the distribution of a kind with two parameters (of Laplace's the second is left out).
fn prior_of(kind: &str, [a, b]: [f64; 2]) -> PyResult<Prior> {
    match kind {
        "normal" => Ok(Prior::Normal { mean: a, std: b }),
        "log_normal" => Ok(Prior::LogNormal { mean: a, std: b }),
        "uniform" => Ok(Prior::Uniform { low: a, high: b }),
        "laplace" => Ok(Prior::Laplace { scale: a }),
        "inverse_gamma" => Ok(Prior::InverseGamma { shape: a, scale: b }),
        _ => Err(PyValueError::new_err(format!("there is no prior `{kind}`"))),
    }
}

/// Numbers of a distribution as a function of standard normal ones.
#[pyfunction]
pub fn prior(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    kind: &str,
    parameters: [f64; 2],
    result: String,
) -> PyResult<NativeModel> {
    let prior = prior_of(kind, parameters)?;
    let session = &comm.get().session;
    let made = Handle::make(comm.py(), session, move |rank| {
        let prior = prior.operator(&space(rank, &leaves)?, &result)?;
        Ok(crate::operators::told(prior))
    });
    Ok(made?.into())
}

/// Returns the standard normal number of each value of a distribution.
///
/// # Errors
/// `ValueError` with the index of a value that is out of range.
#[pyfunction]
pub fn prior_inverse(kind: &str, parameters: Vec<[f64; 2]>, values: Vec<f64>) -> PyResult<Vec<f64>> {
    let one = |(index, value): (usize, &f64)| {
        // One distribution for all values, or one for each.
        let own = parameters.get(index).or(parameters.first()).copied().unwrap_or_default();
        let found = prior_of(kind, own)?.inverse(*value);
        found.map_err(|error| PyValueError::new_err(format!("index {index}: {error}")))
    };
    values.iter().enumerate().map(one).collect()
}
