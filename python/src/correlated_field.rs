//! Fields whose power spectrum is inferred with them.

use meshloom::inference::{AmplitudePrior, AxesPrior, CorrelatedField, FieldPrior, MaternScale, PriorSpectrum};
use meshloom::operators::Differentiable;
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::fields::{LeafShape, field, given, mesh_of};
use crate::handle::Handle;
use crate::host_array::to_numpy;
use crate::operators::{NativeModel, told};

/// A group of axes: its name, which they are, the kind of amplitude ("power", "amplitude", "matern"
/// or "matern density"), and mean and deviation of its hyper-parameters in the order of the
/// library's.
type AxesTuple = (String, [bool; 3], String, Vec<Option<[f64; 2]>>);

fn amplitude(kind: &str, hyper: &[Option<[f64; 2]>]) -> Result<AmplitudePrior, Failure> {
    let missing = || Failure::Value(format!("a hyper-parameter of the amplitude `{kind}` is missing"));
    let needed = |at: usize| hyper.get(at).copied().flatten().ok_or_else(missing);
    let non_parametric = |of: PriorSpectrum| {
        Ok::<_, Failure>(AmplitudePrior::NonParametric {
            of,
            fluctuations: needed(0)?,
            slope: needed(1)?,
            flexibility: hyper.get(2).copied().flatten(),
            asperity: hyper.get(3).copied().flatten(),
        })
    };
    let matern = |of: MaternScale| {
        Ok(AmplitudePrior::Matern { of, scale: needed(0)?, cutoff_wavenumber: needed(1)?, slope: needed(2)? })
    };
    match kind {
        "power" => non_parametric(PriorSpectrum::Power),
        "amplitude" => non_parametric(PriorSpectrum::Amplitude),
        "matern" => matern(MaternScale::Deviation),
        "matern density" => matern(MaternScale::Density),
        _ => Err(Failure::Value(format!("there is no amplitude `{kind}`"))),
    }
}

/// The operator of a correlated field, beside the model of it. Python notes the call that made it.
#[pyclass(frozen, dict, module = "meshloom._native")]
pub struct NativeCorrelatedField {
    handle: Handle<CorrelatedField>,
    domain: Vec<LeafShape>,
}

/// Creates the field on a grid of this shape and size, with a name, its offset (mean, and mean and
/// deviation of its own deviation), and its groups of axes.
#[pyfunction]
pub fn correlated_field(
    comm: &Bound<'_, Comm>,
    shape: [u64; 3],
    size: [f64; 3],
    name: String,
    offset: (f64, [f64; 2]),
    axes: Vec<AxesTuple>,
) -> PyResult<(NativeModel, NativeCorrelatedField)> {
    let session = &comm.get().session;
    let group =
        |(name, axes, kind, hyper): AxesTuple| Ok(AxesPrior { name, axes, amplitude: amplitude(&kind, &hyper)? });
    let axes = axes.into_iter().map(group).collect::<Result<Vec<_>, Failure>>()?;
    let prior = FieldPrior { name, offset_mean: offset.0, offset_std: offset.1, axes };
    let (field, ()) = Handle::make(comm.py(), session, move |rank| {
        Ok((CorrelatedField::new(rank, &mesh_of(shape, size, rank.size(), rank.index())?, &prior)?, ()))
    })?;
    let model: NativeModel = field.derive(comm.py(), |_, field| Ok(told(field.model()?)))?.into();
    let domain = model.domain.clone();
    Ok((model, NativeCorrelatedField { handle: field, domain }))
}

#[pymethods]
impl NativeCorrelatedField {
    /// Returns the leaves that it is a function of.
    #[getter]
    fn domain(&self) -> Vec<LeafShape> {
        self.domain.clone()
    }

    /// Returns the wavenumbers of a group of axes, and the amplitude of each at latent values.
    fn amplitude<'py>(
        &self,
        py: Python<'py>,
        x: Vec<Bound<'py, PyAny>>,
        group: usize,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
        let x = given(&self.handle.session, x)?;
        let (wavenumbers, amplitude) = self.handle.with(py, move |rank, own| {
            let x = field(Differentiable::domain(own), x)?;
            Ok((own.wavenumbers(group).to_vec(), own.amplitude(rank, &x, group)?))
        })?;
        Ok((to_numpy(py, wavenumbers), to_numpy(py, amplitude)))
    }

    /// Returns the amplitude of a group of axes as a model, or the power spectrum.
    fn amplitude_model(&self, py: Python<'_>, group: usize, is_power: bool) -> PyResult<NativeModel> {
        let made = self.handle.derive(py, move |work, own| {
            let rank = &mut work.context;
            let model =
                if is_power { own.power_spectrum_model(rank, group)? } else { own.amplitude_model(rank, group)? };
            Ok(told(model))
        })?;
        Ok(made.into())
    }
}
