//! The order of points along a curve.

use meshloom::points::sort::distribute;
use meshloom::points::{BoxUse, Curve};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::comm::Comm;
use crate::host_array::indices;
use crate::points::{Rows, domain};

/// Returns this rank's part of the indices of all ranks' points, in their order along a curve.
#[pyfunction]
pub fn sort<'py>(
    py: Python<'py>,
    comm: &Comm,
    points: &Bound<'py, PyAny>,
    sides: Vec<f64>,
    curve: &str,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let curve = match curve {
        "morton" => Curve::Morton,
        "hilbert" => Curve::Hilbert,
        _ => return Err(PyValueError::new_err(format!("curve: expected \"morton\" or \"hilbert\", got {curve:?}"))),
    };
    let (domain, rows) = (domain(&sides)?, Rows::new(points, &comm.session)?);
    let order = comm.session.run(py, move |work| {
        let cloud = rows.cloud(work, &domain, ("points", BoxUse::Images))?;
        let sorted = distribute(&mut work.context, &cloud, curve)?;
        Ok(sorted.index(&mut work.context.recorder)?)
    })?;
    Ok(indices(py, order))
}
