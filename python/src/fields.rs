//! Spaces and fields, as Python gives and takes them.

use std::sync::Arc;

use meshloom::Rank;
use meshloom::grid::{Box3, Mesh, MeshOptions};
use meshloom::operators::{Contents, Leaf, OperatorError, PointNumbers, PointOrder, Space, Support, Vector};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::comm::Comm;
use crate::device_array::{DeviceArray, Elements};
use crate::failure::Failure;
use crate::session::Session;

/// A leaf of a space: name, kind ("cells", "modes", "half_spectrum", "points", "vector" or
/// "parameters"), cells along three axes (of points: 1, this rank's and those of all; of numbers in
/// a row: 1, 1 and how many), sides of the box, whether values are complex, components, of points
/// which they are, and the number of copies of the field.
pub type LeafTuple = (String, String, [u64; 3], [f64; 3], bool, u32, Option<NativePoints>, u64);

/// Which of all points a rank's are.
#[pyclass(frozen, from_py_object, module = "meshloom._native")]
#[derive(Clone)]
pub struct NativePoints(PointOrder);

#[pymethods]
impl NativePoints {
    /// Creates points of these numbers; in the order of the ranks without numbers.
    #[staticmethod]
    fn numbered(comm: &Bound<'_, Comm>, numbers: Option<PyReadonlyArray1<'_, u64>>) -> PyResult<Self> {
        let Some(numbers) = numbers else { return Ok(NativePoints(PointOrder::Ranks)) };
        let numbers = numbers.as_slice()?.to_vec();
        comm.get().session.run(comm.py(), move |work| {
            let numbers = PointNumbers::new(&mut work.context.recorder, numbers).map_err(meshloom::Error::from)?;
            Ok(NativePoints(PointOrder::Numbers(numbers)))
        })
    }

    /// Returns the numbers of this rank's points; `None` if they are in the order of the ranks.
    fn numbers<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<u64>>> {
        match &self.0 {
            PointOrder::Ranks => None,
            PointOrder::Numbers(numbers) => Some(PyArray1::from_slice(py, numbers.get())),
        }
    }
}

/// A leaf, and the shape of this rank's values.
pub type LeafShape = (LeafTuple, Vec<u64>);

/// Returns the process grid of a mesh: ranks cut the second axis of a flat mesh, whose first axis
/// has one cell, and the first axis of others.
pub fn process_grid(shape: [u64; 3], ranks: usize) -> [usize; 2] {
    if shape[0] == 1 { [1, ranks] } else { [ranks, 1] }
}

/// Returns the periodic mesh of a leaf.
pub fn mesh_of(shape: [u64; 3], size: [f64; 3], ranks: usize, rank: usize) -> Result<Mesh, Failure> {
    let options = MeshOptions { size, grid: Some(process_grid(shape, ranks)), ..MeshOptions::new(shape) };
    Ok(Mesh::new(&options, ranks, rank)?)
}

/// Returns the leaf that a tuple says, on this rank.
pub fn leaf(rank: &Rank, tuple: &LeafTuple) -> Result<Leaf, Failure> {
    leaf_on(rank.size(), rank.index(), tuple)
}

/// Returns the leaf that a tuple says, on one of `ranks` ranks.
fn leaf_on(ranks: usize, rank: usize, tuple: &LeafTuple) -> Result<Leaf, Failure> {
    let (_, kind, shape, size, complex, components, points, copies) = tuple;
    let mesh = || mesh_of(*shape, *size, ranks, rank);
    let leaf = match kind.as_str() {
        "cells" => Leaf::cells(&mesh()?),
        "modes" => Leaf::modes(&mesh()?),
        "half_spectrum" => Leaf::half_spectrum(&mesh()?),
        "points" => match points {
            Some(NativePoints(PointOrder::Numbers(numbers))) => Leaf::numbered_points(numbers.clone(), shape[2]),
            _ => Leaf::points(shape[1], shape[2]),
        },
        "vector" => Leaf::vector(shape[2]),
        "parameters" => Leaf::parameters(shape[2]),
        _ => return Err(Failure::Value(format!("there is no leaf `{kind}`"))),
    };
    let leaf = if *complex { leaf.complex() } else { leaf };
    Ok(leaf.components(*components).batch(*copies))
}

/// Returns the space of these leaves on one rank.
pub fn space(rank: &Rank, leaves: &[LeafTuple]) -> Result<Space, Failure> {
    let named = leaves.iter().map(|tuple| Ok((tuple.0.clone(), leaf(rank, tuple)?)));
    Ok(Space::new(named.collect::<Result<Vec<_>, Failure>>()?)?)
}

/// Returns what Python knows of the leaves of a space.
pub fn described(space: &Space) -> Vec<LeafShape> {
    let extents = |part: &Box3| part.iter().map(|range| range.end - range.start).collect::<Vec<u64>>();
    let describe = |(name, leaf): (&str, &Leaf)| {
        let (kind, shape, places) = match &leaf.support {
            Support::Cells { mesh } => ("cells", mesh.shape(), extents(mesh.own())),
            Support::Modes { mesh, half: true } => ("half_spectrum", mesh.shape(), extents(&mesh.modes(true))),
            Support::Modes { mesh, half: false } => ("modes", mesh.shape(), extents(&mesh.modes(false))),
            Support::Points { own, total, .. } => ("points", [1, *own, *total], vec![*own]),
            Support::Vector { len } => ("vector", [1, 1, *len], vec![*len]),
            Support::Parameters { len } => ("parameters", [1, 1, *len], vec![*len]),
        };
        let size = leaf.mesh().map_or([1.0; 3], |mesh| mesh.size());
        let complex = leaf.numbers() == 2;
        // Axes of one copy and of one component are left out.
        let fields = [leaf.batch, u64::from(leaf.components)].into_iter().filter(|&n| n > 1);
        let points = match &leaf.support {
            Support::Points { order, .. } => Some(NativePoints(order.clone())),
            _ => None,
        };
        let tuple = (name.to_string(), kind.to_string(), shape, size, complex, leaf.components, points, leaf.batch);
        (tuple, fields.chain(places).collect())
    };
    space.leaves().map(describe).collect()
}

/// Returns the shape of this rank's values of a leaf. Asks no other rank.
#[pyfunction]
pub fn leaf_shape(comm: &Bound<'_, Comm>, leaf: LeafTuple) -> PyResult<Vec<u64>> {
    let session = &comm.get().session;
    let space = Space::of(&leaf.0, leaf_on(session.size(), session.rank(), &leaf)?).map_err(Failure::from)?;
    Ok(described(&space).remove(0).1)
}

/// Returns the places of a rank's values of a leaf on a grid, a range along each of three axes;
/// `None` for other leaves. Asks no other rank.
#[pyfunction]
pub fn leaf_box(leaf: LeafTuple, ranks: usize, rank: usize) -> PyResult<Option<[(u64, u64); 3]>> {
    let own = match &leaf_on(ranks, rank, &leaf)?.support {
        Support::Cells { mesh } => mesh.own().clone(),
        Support::Modes { mesh, half } => mesh.modes(*half),
        _ => return Ok(None),
    };
    Ok(Some(own.map(|range| (range.start, range.end))))
}

/// Values of leaves, in the order of the names.
pub type Values = Vec<Contents>;

/// Returns a field of a space.
pub fn field(space: &Space, values: Values) -> Result<Vector, OperatorError> {
    Vector::over(space, values)
}

/// Returns the leaves of a space among those of a field.
///
/// # Errors
/// `ValueError` for a leaf that the field does not have.
pub fn chosen(from: &Vector, space: &Space) -> Result<Vector, Failure> {
    let one = |name: &str| match from.space().position(name) {
        Some(at) => Ok(from.contents()[at].clone()),
        None => Err(Failure::Value(format!("the samples have no `{name}`, but {}", from.space()))),
    };
    Ok(Vector::over(space, space.names().map(one).collect::<Result<_, _>>()?)?)
}

/// Returns the values that a caller gives: arrays of the device, and parameters on the host.
///
/// # Errors
/// `ValueError` for arrays of another rank's device, and for double precision on it.
pub fn given(session: &Arc<Session>, arrays: Vec<Bound<'_, PyAny>>) -> PyResult<Values> {
    let one = |array: &Bound<'_, PyAny>| {
        let Ok(array) = array.cast::<DeviceArray>() else { return Ok(Contents::Host(array.extract()?)) };
        let array = array.get();
        array.belongs_to(session)?;
        match &array.elements {
            Elements::F32(array) => Ok(Contents::Device(array.clone())),
            Elements::C64(array) => Ok(Contents::Device(array.cast().map_err(Failure::from)?)),
            _ => Err(PyValueError::new_err("models compute in single precision: give float32 and complex64")),
        }
    };
    arrays.iter().map(one).collect()
}

/// Values of leaves, as Python has them.
pub fn taken(py: Python<'_>, session: &Arc<Session>, leaves: &[LeafShape], values: Values) -> PyResult<Vec<Py<PyAny>>> {
    let one = |((tuple, shape), contents): (&LeafShape, Contents)| {
        let elements = match contents {
            Contents::Host(values) => return Ok(values.into_pyarray(py).into_any().unbind()),
            Contents::Device(array) if tuple.4 => Elements::C64(array.cast().map_err(Failure::from)?),
            Contents::Device(array) => Elements::F32(array),
        };
        Ok(DeviceArray::new(session, elements, shape.clone())?.into_pyobject(py)?.into_any().unbind())
    };
    leaves.iter().zip(values).map(one).collect()
}
