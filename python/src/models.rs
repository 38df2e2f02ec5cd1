//! The operators that models are made of.

use meshloom::fft::Norm;
use meshloom::gpu::Array;
use meshloom::host_memory;
use meshloom::mesh::Window;
use meshloom::operators::{
    Adjoint, Contents, Convolution, Diagonal, Fourier, Gather, Hartley, Linear, LinesOfSight, Model, PointwiseOperator,
    Readout, Select, Space, StencilOperator, Vector, Wavenumbers, Worker,
};
use meshloom::pm::{Observable, SimulationOperator};
use numpy::{PyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::fields::{Cut, LeafTuple, cut_of, field, given, space, working};
use crate::handle::Handle;
use crate::host_array::to_numpy;
use crate::operators::{NativeModel, told};
use crate::simulation::config;

/// A linear operator or its adjoint.
fn turned(operator: impl Linear + 'static, adjoint: bool) -> Model {
    if adjoint { Model::new(Adjoint(operator)) } else { Model::new(operator) }
}

/// A model made of the space of some leaves.
fn made(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    make: impl FnOnce(&mut Worker<'_>, &Space) -> Result<Model, Failure> + Send + 'static,
) -> PyResult<NativeModel> {
    made_on(comm, cut_of(&leaves), leaves, make)
}

/// The same on grids that are cut so.
fn made_on(
    comm: &Bound<'_, Comm>,
    cut: Cut,
    leaves: Vec<LeafTuple>,
    make: impl FnOnce(&mut Worker<'_>, &Space) -> Result<Model, Failure> + Send + 'static,
) -> PyResult<NativeModel> {
    let made = Handle::make(comm.py(), &comm.get().session, cut, move |worker| {
        let domain = space(worker, &leaves)?;
        Ok(told(make(worker, &domain)?))
    });
    Ok(made?.into())
}

/// A function of the leaves of a space in WGSL, as a leaf `result`; of its arguments some may be constants, leaves with their arrays.
#[pyfunction]
pub fn pointwise(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    text: String,
    function: String,
    result: String,
    constants: (Vec<LeafTuple>, Vec<Bound<'_, PyAny>>),
) -> PyResult<NativeModel> {
    let (fixed, arrays) = (constants.0, given(&comm.get().session, constants.1)?);
    made(comm, leaves, move |worker, domain| {
        if fixed.is_empty() {
            return Ok(Model::new(PointwiseOperator::wgsl(&text, &function, domain, &result)?));
        }
        let constants = field(&space(worker, &fixed)?, arrays)?;
        Ok(Model::new(PointwiseOperator::wgsl_with(&text, &function, domain, &constants, &result)?))
    })
}

/// The transform of cells ("fourier", "hartley"), or the adjoint of one.
#[pyfunction]
pub fn fourier(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    is_hartley: bool,
    adjoint: bool,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |worker, domain| {
        if is_hartley {
            return Ok(turned(Hartley::new(worker, domain)?, adjoint));
        }
        Ok(turned(Fourier::new(worker, domain, Norm::Backward)?, adjoint))
    })
}

/// The inverse Fourier transform, from the modes of cells to these.
#[pyfunction]
pub fn inverse_fourier(comm: &Bound<'_, Comm>, leaves: Vec<LeafTuple>) -> PyResult<NativeModel> {
    made(comm, leaves, |worker, domain| Ok(Model::new(Fourier::new(worker, domain, Norm::Backward)?.inverse())))
}

/// Multiplication by the values of a field, of which there is one at each place.
#[pyfunction]
pub fn diagonal(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    place: LeafTuple,
    factors: Bound<'_, PyAny>,
) -> PyResult<NativeModel> {
    let factors = given(&comm.get().session, vec![factors])?;
    made(comm, leaves, move |worker, domain| {
        let factors = field(&space(worker, &[place])?, factors)?;
        Ok(Model::new(Diagonal::new(domain, &factors)?))
    })
}

/// The periodic convolution with a field of the same grid, of which there is one number at each place.
#[pyfunction]
pub fn convolution(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    place: LeafTuple,
    kernel: Bound<'_, PyAny>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    let kernel = given(&comm.get().session, vec![kernel])?;
    made(comm, leaves, move |worker, domain| {
        let kernel = field(&space(worker, &[place])?, kernel)?;
        Ok(turned(Convolution::new(worker, domain, &kernel)?, adjoint))
    })
}

/// Weighted sums of neighbours.
#[pyfunction]
pub fn stencil(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    taps: Vec<([i64; 3], f64)>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |worker, domain| Ok(turned(StencilOperator::new(worker, domain, &taps)?, adjoint)))
}

/// The field at this rank's points.
#[pyfunction]
pub fn readout(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    positions: PyReadonlyArray2<'_, f64>,
    window: &str,
    adjoint: bool,
) -> PyResult<NativeModel> {
    let window: Window = window.parse().map_err(PyValueError::new_err)?;
    let rows = positions.as_array();
    let rows = rows.rows().into_iter().map(|row| [row[0], row[1], row[2]]);
    let positions = host_memory::collect("positions", rows).map_err(Failure::from)?;
    made(comm, leaves, move |worker, domain| Ok(turned(Readout::new(worker, domain, window, &positions)?, adjoint)))
}

/// Integrals of the field along lines from the first three coordinates to the last three.
#[pyfunction]
pub fn lines_of_sight(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    lines: PyReadonlyArray2<'_, f64>,
    step: f64,
    adjoint: bool,
) -> PyResult<NativeModel> {
    let rows = lines.as_array();
    let rows = rows.rows().into_iter().map(|row| [[row[0], row[1], row[2]], [row[3], row[4], row[5]]]);
    let lines = host_memory::collect("lines of sight", rows).map_err(Failure::from)?;
    made(comm, leaves, move |worker, domain| Ok(turned(LinesOfSight::new(worker, domain, &lines, step)?, adjoint)))
}

/// The field at some cells.
#[pyfunction]
pub fn select(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    cells: Vec<[u64; 3]>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |worker, domain| Ok(turned(Select::cells(worker, domain, &cells)?, adjoint)))
}

/// One number at all places, or an entry of a vector at each of this rank's places.
#[pyfunction]
pub fn gather(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    target: Vec<LeafTuple>,
    index: Option<Vec<u32>>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    made_on(comm, cut_of(&target), leaves, move |worker, domain| {
        let target = space(worker, &target)?;
        let Some(index) = index else { return Ok(turned(Gather::broadcast(domain, &target)?, adjoint)) };
        let array: Array<u32> = worker.gpu().array("python::index", index.len() as u64)?;
        worker.context.recorder.upload(&array, 0, &index)?;
        Ok(turned(Gather::new(domain, &target, array)?, adjoint))
    })
}

/// An amplitude for each wavenumber at the modes of a grid, and the wavenumbers.
#[pyfunction]
pub fn amplitudes<'py>(
    comm: &Bound<'py, Comm>,
    leaves: Vec<LeafTuple>,
    edges: Option<Vec<f64>>,
    adjoint: bool,
) -> PyResult<(NativeModel, Bound<'py, PyArray1<f64>>)> {
    let (py, session, cut) = (comm.py(), &comm.get().session, cut_of(&leaves));
    let (handle, (about, values)) = Handle::make(py, session, cut, move |worker| {
        let target = space(worker, &leaves)?;
        let Some(regular) = target.only().and_then(|(_, leaf)| leaf.regular()) else {
            return Err(Failure::Value(format!("amplitudes are of the modes of a grid, not of {target}")));
        };
        let wavenumbers = match &edges {
            Some(edges) => Wavenumbers::edges(regular, edges)?,
            None => Wavenumbers::unique(regular)?,
        };
        let (model, about) = told(turned(wavenumbers.amplitudes(worker, &target)?, adjoint));
        Ok((model, (about, wavenumbers.values().to_vec())))
    })?;
    Ok(((handle, about).into(), to_numpy(py, values)))
}

/// A particle-mesh run as a function of its white noise, and of the cosmological parameters if asked for; and its own parameters.
#[pyfunction]
pub fn simulation<'py>(
    comm: &Bound<'py, Comm>,
    options: &Bound<'py, PyDict>,
    observables: Vec<String>,
    checkpoint_every: usize,
    with_cosmology: bool,
) -> PyResult<(NativeModel, Bound<'py, PyArray1<f64>>)> {
    let (py, session) = (comm.py(), &comm.get().session);
    let config = config(options, session.size())?;
    let named = |name: &String| match name.as_str() {
        "density" => Ok(Observable::Density),
        "displacement" => Ok(Observable::Displacement),
        "momentum" => Ok(Observable::Momentum),
        _ => Err(PyValueError::new_err(format!(
            "a run has no {name:?}, but \"density\", \"displacement\" and \"momentum\""
        ))),
    };
    let observables = observables.iter().map(named).collect::<PyResult<Vec<_>>>()?;
    let (handle, (about, own)) = Handle::make(py, session, Some(false), move |worker| {
        let run = SimulationOperator::new(worker, config, checkpoint_every, &observables)?;
        let own = run.own_cosmology().to_vec();
        let (model, about) = told(if with_cosmology { Model::new(run.with_cosmology()?) } else { Model::new(run) });
        Ok((model, (about, own)))
    })?;
    Ok(((handle, about).into(), to_numpy(py, own)))
}

/// Standard normal numbers of a seed times a scale, a field of these leaves: the same on any number of ranks. A seed has
/// other numbers for each kind: a fit does not start with those of a mock truth.
#[pyfunction]
pub fn white_noise(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    seed: u64,
    scale: f64,
    kind: u32,
) -> PyResult<Vec<Py<PyAny>>> {
    use meshloom::inference::{Stream, VectorSpace};
    let (py, session, cut) = (comm.py(), &comm.get().session, cut_of(&leaves));
    let (shapes, values) = session.run(py, move |work| {
        let found = working(work, cut, |worker| {
            let space = space(worker, &leaves)?;
            let (mut noise, mut scaled) = (Vector::new(worker.gpu(), &space)?, Vector::new(worker.gpu(), &space)?);
            worker.white_noise(Stream::new(seed, u32::MAX, 0, kind), &mut noise)?;
            worker.axpby(scale, &noise, 0.0, &mut scaled)?;
            Ok((crate::fields::described(&space), scaled.contents().to_vec() as Vec<Contents>))
        })?;
        work.context.recorder.submit()?;
        Ok(found)
    })?;
    crate::fields::taken(py, session, &shapes, values)
}
