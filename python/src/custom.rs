//! Operators from Python functions and matrices.

use std::cell::RefCell;
use std::ops::Range;

use meshloom::map::{ChunkSize, HostMap, Mapping, Placement, RowReduction};
use meshloom::operators::{HostFunction, HostResult, Matrix, Model, Signature};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::comm::Comm;
use crate::fields::{LeafTuple, space};
use crate::models::{made, turned};
use crate::operators::NativeModel;

thread_local! {
    /// The first exception of a function that the present job of this thread has called.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Returns the exception of a Python function since the last time.
pub fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Calls a Python function of lists of float64 arrays, one array per leaf; before them come the
/// first item and the end of items, if there are any.
fn called(function: &Py<PyAny>, items: Option<Range<u64>>, arguments: &[&[Vec<f64>]]) -> HostResult {
    Python::attach(|py| {
        let list = |leaves: &&[Vec<f64>]| -> PyResult<Py<PyAny>> {
            Ok(PyList::new(py, leaves.iter().map(|leaf| PyArray1::from_slice(py, leaf)))?.into_any().unbind())
        };
        let found = || -> PyResult<Vec<Vec<f64>>> {
            let mut given = Vec::new();
            for number in items.iter().flat_map(|items| [items.start, items.end]) {
                given.push(number.into_pyobject(py)?.into_any().unbind());
            }
            for leaves in arguments {
                given.push(list(leaves)?);
            }
            let found: Vec<PyReadonlyArray1<'_, f64>> = function.call1(py, PyTuple::new(py, given)?)?.extract(py)?;
            found.iter().map(|leaf| Ok(leaf.as_slice()?.to_vec())).collect()
        };
        found().map_err(|error| {
            let text = error.to_string();
            RAISED.with_borrow_mut(|raised| _ = raised.get_or_insert(error));
            text.into()
        })
    })
}

/// Returns an operator of three functions of lists of arrays.
#[pyfunction]
pub fn custom(
    comm: &Bound<'_, Comm>,
    leaves: [Vec<LeafTuple>; 2],
    name: String,
    version: String,
    functions: [Py<PyAny>; 3],
) -> PyResult<NativeModel> {
    let [domain, target] = leaves;
    let [value, jvp, vjp] = functions;
    made(comm, domain, move |rank, domain| {
        let signature = Signature::new(name, domain, &space(rank, &target)?);
        let function = HostFunction::new(
            rank,
            signature,
            &version,
            move |x| called(&value, None, &[x]),
            move |x, dx| called(&jvp, None, &[x, dx]),
            move |x, dy| called(&vjp, None, &[x, dy]),
        )?;
        Ok(Model::new(function))
    })
}

/// Returns an operator of three functions of a range of items and lists of arrays, whose rows of
/// some width for each name are summed or not.
#[pyfunction]
pub fn host_map(
    comm: &Bound<'_, Comm>,
    leaves: Vec<LeafTuple>,
    items: [u64; 2],
    outputs: (Vec<(String, u64)>, bool),
    texts: [String; 2],
    functions: [Py<PyAny>; 3],
) -> PyResult<NativeModel> {
    let ([items, chunk], (widths, is_sum), [name, version]) = (items, outputs, texts);
    let [value, jvp, vjp] = functions;
    made(comm, leaves, move |rank, domain| {
        let placement = if is_sum { Placement::Reduced(RowReduction::Sum) } else { Placement::Sharded };
        let mapping = Mapping::new(items).chunk(ChunkSize::Items(chunk));
        let mapping = widths.iter().fold(mapping, |map, (name, width)| map.output(name, *width, placement.clone()));
        let map = HostMap::new(
            rank,
            &name,
            domain,
            &mapping,
            move |items, x| called(&value, Some(items), &[x]),
            move |items, x, dx| called(&jvp, Some(items), &[x, dx]),
            move |items, x, dy| called(&vjp, Some(items), &[x, dy]),
        )?;
        Ok(Model::new(map.version(&version)))
    })
}

/// Returns a dense matrix as an operator, or a sparse one if there are offsets of rows and columns
/// of entries.
#[pyfunction]
pub fn matrix(
    comm: &Bound<'_, Comm>,
    leaves: [Vec<LeafTuple>; 2],
    values: PyReadonlyArray1<'_, f32>,
    rows: Option<(PyReadonlyArray1<'_, u64>, PyReadonlyArray1<'_, u32>)>,
    adjoint: bool,
) -> PyResult<NativeModel> {
    let [domain, target] = leaves;
    let values = values.as_slice()?.to_vec();
    let rows = match rows {
        Some((offsets, columns)) => Some((offsets.as_slice()?.to_vec(), columns.as_slice()?.to_vec())),
        None => None,
    };
    made(comm, domain, move |rank, domain| {
        let target = space(rank, &target)?;
        Ok(match rows {
            None => turned(Matrix::new(rank, domain, &target, &values)?, adjoint),
            Some((offsets, columns)) => {
                turned(Matrix::sparse(rank, domain, &target, &offsets, &columns, &values)?, adjoint)
            }
        })
    })
}
