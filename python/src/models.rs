//! The operators that models are made of.

use meshloom::Rank;
use meshloom::fft::Norm;
use meshloom::gpu::Array;
use meshloom::host_memory;
use meshloom::mesh::Window;
use meshloom::operators::{
    Adjoint, Contents, Convolution, Diagonal, Fourier, Gather, Hartley, Interpolation, Join, Linear, LinesOfSight,
    Model, Paint, PointwiseOperator, Readout, Repeat, Select, Space, StencilOperator, Vector, Wavenumbers,
};
use meshloom::pm::{self, Config, LinearDensity, Observable, SimulationOperator};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::comm::Comm;
use crate::cosmology::{CosmologyTuple, cosmology};
use crate::failure::Failure;
use crate::fields::{LeafTuple, field, given, process_grid, space};
use crate::handle::Handle;
use crate::host_array::to_numpy;
use crate::operators::{NativeModel, told};
use crate::simulation::config;

/// Returns a linear operator or its adjoint.
pub fn turned(operator: impl Linear + 'static, adjoint: bool) -> Model {
    if adjoint { Model::new(Adjoint::new(operator)) } else { Model::new(operator) }
}

/// Returns a model made of the space of some leaves.
pub fn made(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    make: impl FnOnce(&mut Rank, &Space) -> Result<Model, Failure> + Send + 'static,
) -> PyResult<NativeModel> {
    let made = Handle::make(comm.py(), &comm.get().session, move |rank| {
        let domain = space(rank, &leaves)?;
        Ok(told(make(rank, &domain)?))
    });
    Ok(made?.into())
}

/// A function of the leaves of a space in WGSL, as a leaf `result`; of its arguments some may be
/// constants, leaves with their arrays.
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
    made(comm, leaves, move |rank, domain| {
        if fixed.is_empty() {
            return Ok(Model::new(PointwiseOperator::wgsl(&text, &function, domain, &result)?));
        }
        let constants = field(&space(rank, &fixed)?, arrays)?;
        Ok(Model::new(PointwiseOperator::wgsl_with(&text, &function, domain, &constants, &result)?))
    })
}

/// Returns the transform of cells ("fourier", "hartley"), or the adjoint of one.
#[pyfunction]
pub fn fourier(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    is_hartley: bool,
    adjoint: bool,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |rank, domain| {
        if is_hartley {
            return Ok(turned(Hartley::new(rank, domain)?, adjoint));
        }
        Ok(turned(Fourier::new(rank, domain, Norm::Backward)?, adjoint))
    })
}

/// Returns the inverse Fourier transform, from the modes of cells to these.
#[pyfunction]
pub fn inverse_fourier(comm: &Bound<'_, Comm>, leaves: Vec<LeafTuple>) -> PyResult<NativeModel> {
    made(comm, leaves, |rank, domain| Ok(Model::new(Fourier::new(rank, domain, Norm::Backward)?.inverse())))
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
    made(comm, leaves, move |rank, domain| {
        let factors = field(&space(rank, &[place])?, factors)?;
        Ok(Model::new(Diagonal::new(domain, &factors)?))
    })
}

/// Returns the model without arguments whose value is a field.
#[pyfunction]
pub fn constant(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    values: Vec<Bound<'_, PyAny>>,
) -> PyResult<NativeModel> {
    let values = given(&comm.get().session, values)?;
    made(comm, leaves, |_, space| Ok(Model::constant(&field(space, values)?)?))
}

/// Returns vectors one after the other, in an order, or the adjoint.
#[pyfunction]
pub fn join(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    order: Vec<String>,
    result: String,
    adjoint: bool,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |_, domain| {
        let order: Vec<&str> = order.iter().map(String::as_str).collect();
        Ok(turned(Join::new(domain, &order, &result)?, adjoint))
    })
}

/// Returns a field as each of some copies, or the sum of these.
#[pyfunction]
pub fn repeat(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    copies: u64,
    result: String,
    adjoint: bool,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |_, domain| Ok(turned(Repeat::new(domain, copies, &result)?, adjoint)))
}

/// Returns the piecewise linear function through nodes.
#[pyfunction]
pub fn interpolation(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    x: Vec<f64>,
    y: Vec<f64>,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |rank, domain| Ok(Model::new(Interpolation::new(rank, domain, &x, &y)?)))
}

/// Returns a field of cells that takes entries of a vector by coordinates along the axes of a
/// block.
#[pyfunction]
pub fn block(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    target: Vec<LeafTuple>,
    block: [Option<(i64, u64)>; 3],
    adjoint: bool,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |rank, domain| {
        let target = space(rank, &target)?;
        Ok(turned(Gather::block(rank, domain, &target, block)?, adjoint))
    })
}

/// Returns the periodic convolution with a field of the same grid, of which there is one number at
/// each place.
#[pyfunction]
pub fn convolution(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    place: LeafTuple,
    kernel: Bound<'_, PyAny>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    let kernel = given(&comm.get().session, vec![kernel])?;
    made(comm, leaves, move |rank, domain| {
        let kernel = field(&space(rank, &[place])?, kernel)?;
        Ok(turned(Convolution::new(rank, domain, &kernel)?, adjoint))
    })
}

/// Creates an operator for weighted sums of neighbors.
#[pyfunction]
pub fn stencil(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    taps: Vec<([i64; 3], f64)>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    made(comm, leaves, move |rank, domain| Ok(turned(StencilOperator::new(rank, domain, &taps)?, adjoint)))
}

/// Returns the field at this rank's points.
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
    made(comm, leaves, move |rank, domain| Ok(turned(Readout::new(rank, domain, window, &positions)?, adjoint)))
}

/// Returns the density of particles, displaced from cells or points, on the cells of the only leaf
/// of `target`.
#[pyfunction]
pub fn paint(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    target: Vec<LeafTuple>,
    window: &str,
) -> PyResult<NativeModel> {
    let window: Window = window.parse().map_err(PyValueError::new_err)?;
    made(comm, leaves, move |rank, domain| {
        let target = space(rank, &target)?;
        let Some(mesh) = target.only().and_then(|(_, leaf)| leaf.mesh()) else {
            return Err(Failure::Value(format!("paint: expected a target of one leaf of cells, got {target}")));
        };
        Ok(Model::new(Paint::new(rank, domain, mesh, window)?))
    })
}

/// Returns the displacements of particles in redshift space.
#[pyfunction]
pub fn redshift_space(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    line_of_sight: [f64; 3],
    a: f64,
    parameters: CosmologyTuple,
) -> PyResult<NativeModel> {
    let cosmology = cosmology(parameters)?;
    made(comm, leaves, move |_, domain| Ok(pm::redshift_space(domain, line_of_sight, a, &cosmology)?))
}

/// Returns the particles of a run where they cross a light cone between two snapshots.
#[pyfunction]
pub fn light_cone(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    snapshots: [usize; 2],
    a: [f64; 2],
    observer: [f64; 3],
    image: [i64; 3],
    parameters: CosmologyTuple,
) -> PyResult<NativeModel> {
    let cosmology = cosmology(parameters)?;
    made(comm, leaves, move |rank, domain| {
        let section = pm::ConeSection { snapshots, a, observer, image, cosmology: &cosmology };
        Ok(pm::light_cone_section(rank, domain, &section)?)
    })
}

/// Returns the linear density contrast at the sites of a run's particles as a function of its white
/// noise, and its variance.
#[pyfunction]
pub fn linear_density(comm: &Bound<'_, Comm>, options: &Bound<'_, PyDict>, a: f64) -> PyResult<(NativeModel, f64)> {
    let (py, session) = (comm.py(), &comm.get().session);
    let config = config(options, session.size())?;
    let (handle, (about, variance)) = Handle::make(py, session, move |rank| {
        let operator = LinearDensity::new(rank, &config, a)?;
        let variance = operator.variance(rank)?;
        let (model, about) = told(Model::new(operator));
        Ok((model, (about, variance)))
    })?;
    Ok(((handle, about).into(), variance))
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
    made(comm, leaves, move |rank, domain| Ok(turned(LinesOfSight::new(rank, domain, &lines, step)?, adjoint)))
}

/// Creates an operator for the field at some cells.
#[pyfunction]
pub fn select(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    cells: PyReadonlyArray2<'_, u64>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    let rows = cells.as_array();
    let rows = rows.rows().into_iter().map(|row| [row[0], row[1], row[2]]);
    let cells = host_memory::collect("cells", rows).map_err(Failure::from)?;
    made(comm, leaves, move |rank, domain| Ok(turned(Select::cells(rank, domain, &cells)?, adjoint)))
}

/// One number at all places, or an entry of a vector at each of this rank's places.
#[pyfunction]
pub fn gather(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    target: Vec<LeafTuple>,
    index: Option<PyReadonlyArray1<'_, u32>>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    let index = index.map(|index| host_memory::collect("indices", index.as_array().iter().copied()));
    let index = index.transpose().map_err(Failure::from)?;
    made(comm, leaves, move |rank, domain| {
        let target = space(rank, &target)?;
        let Some(index) = index else { return Ok(turned(Gather::broadcast(domain, &target)?, adjoint)) };
        let array: Array<u32> = rank.gpu.array("python::index", index.len() as u64)?;
        rank.recorder.upload(&array, 0, &index)?;
        Ok(turned(Gather::new(domain, &target, array)?, adjoint))
    })
}

/// Returns an amplitude for each wavenumber at the modes of a grid, and the wavenumbers.
#[pyfunction]
pub fn amplitudes<'py>(
    comm: &Bound<'py, Comm>,
    leaves: Vec<LeafTuple>,
    edges: Option<Vec<f64>>,
    adjoint: bool,
) -> PyResult<(NativeModel, Bound<'py, PyArray1<f64>>)> {
    let (py, session) = (comm.py(), &comm.get().session);
    let (handle, (about, values)) = Handle::make(py, session, move |rank| {
        let target = space(rank, &leaves)?;
        let Some(mesh) = target.only().and_then(|(_, leaf)| leaf.mesh()) else {
            return Err(Failure::Value(format!("amplitudes: expected a space of modes, got {target}")));
        };
        let wavenumbers = match &edges {
            Some(edges) => Wavenumbers::edges(mesh, edges)?,
            None => Wavenumbers::unique(mesh)?,
        };
        let (model, about) = told(turned(wavenumbers.amplitudes(rank, &target)?, adjoint));
        Ok((model, (about, wavenumbers.values().to_vec())))
    })?;
    Ok(((handle, about).into(), to_numpy(py, values)))
}

/// Returns a particle-mesh run as a function of its white noise, and of the cosmological parameters
/// if asked for; and its own parameters.
#[pyfunction]
pub fn simulation<'py>(
    comm: &Bound<'py, Comm>,
    options: &Bound<'py, PyDict>,
    observables: Vec<String>,
    checkpoint_every: usize,
    with_cosmology: bool,
    amplitude: &str,
) -> PyResult<(NativeModel, Bound<'py, PyArray1<f64>>)> {
    let (py, session) = (comm.py(), &comm.get().session);
    let config = config(options, session.size())?;
    let by_sigma8 = match amplitude {
        "A_s" => false,
        "sigma8" => true,
        _ => {
            let why = format!("amplitude: expected \"A_s\" or \"sigma8\", got {amplitude:?}");
            return Err(PyValueError::new_err(why));
        }
    };
    let named = |name: &String| match name.as_str() {
        "density" => Ok(Observable::Density),
        "displacement" => Ok(Observable::Displacement),
        "momentum" => Ok(Observable::Momentum),
        _ => Err(PyValueError::new_err(format!(
            "a run has no {name:?}, but \"density\", \"displacement\" and \"momentum\""
        ))),
    };
    let observables = observables.iter().map(named).collect::<PyResult<Vec<_>>>()?;
    let (handle, (about, own)) = Handle::make(py, session, move |rank| {
        let grid = Some(process_grid(config.cells(), rank.size()));
        let config = Config { grid, ..config };
        let run = SimulationOperator::new(rank, config, checkpoint_every, &observables)?.with_snapshots()?;
        let run = match (with_cosmology, by_sigma8) {
            (false, _) => run,
            (true, false) => run.with_cosmology()?,
            (true, true) => run.with_sigma8()?,
        };
        let own = run.own_cosmology()?.to_vec();
        let (model, about) = told(Model::new(run));
        Ok((model, (about, own)))
    })?;
    Ok(((handle, about).into(), to_numpy(py, own)))
}

/// Standard normal numbers of a seed times a scale, a field of these leaves: the same on any number
/// of ranks. A seed has other numbers for each kind: a fit does not start with those of a mock
/// truth.
#[pyfunction]
pub fn white_noise(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    seed: u64,
    scale: f64,
    kind: u32,
) -> PyResult<Vec<Py<PyAny>>> {
    use meshloom::inference::{Stream, VectorSpace};
    let (py, session) = (comm.py(), &comm.get().session);
    let (shapes, values) = session.run(py, move |work| {
        let rank = &mut work.context;
        let space = space(rank, &leaves)?;
        let (mut noise, mut scaled) = (Vector::new(&rank.gpu, &space)?, Vector::new(&rank.gpu, &space)?);
        rank.white_noise(Stream::new(seed, u32::MAX, 0, kind), &mut noise)?;
        rank.vector_axpby(scale, &noise, 0.0, &mut scaled)?;
        rank.recorder.submit()?;
        Ok((crate::fields::described(&space), scaled.contents().to_vec() as Vec<Contents>))
    })?;
    crate::fields::taken(py, session, &shapes, values)
}
