//! Friends-of-friends groups.

use meshloom::Rank;
use meshloom::points::fof::{Catalog, Groups, Linking, Order, Selection};
use meshloom::points::{BoxUse, Cloud};
use numpy::PyArrayDyn;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::host_array::{HostArray, indices, to_numpy};
use crate::points::{Rows, domain};

/// The name of a quantity of points, its values, and how many each point has.
type Attribute = (&'static str, HostArray<f32>, u64);

/// Gives points a quantity.
fn set(context: &mut Rank, cloud: &mut Cloud, (name, values, width): &Attribute) -> Result<(), Failure> {
    let array = context.gpu.array::<f32>(name, values.as_slice().len() as u64)?;
    context.recorder.upload(&array, 0, values.as_slice())?;
    Ok(cloud.set(name, array, *width)?)
}

fn order_named(name: &str) -> PyResult<Order> {
    match name {
        "count" => Ok(Order::Count),
        "mass" => Ok(Order::Mass),
        "label" => Ok(Order::Label),
        _ => Err(PyValueError::new_err(format!("order: expected \"count\", \"mass\" or \"label\", got {name:?}"))),
    }
}

/// Linking length: a length, and whether it is in mean separations.
type Nearness = (f64, bool);

/// Masses and velocities, where there are any.
type Attributes<'py> = (Option<Bound<'py, PyArrayDyn<f32>>>, Option<Bound<'py, PyArrayDyn<f32>>>);

/// Returns the labels of this rank's points, the linking length and this rank's part of the
/// catalog, by name. `rows` are the least number of members of a group that has a row, and their
/// order.
#[pyfunction]
pub fn fof<'py>(
    comm: &Bound<'py, Comm>,
    points: &Bound<'py, PyAny>,
    sides: Vec<f64>,
    nearness: Nearness,
    rows: (u64, String),
    attributes: Attributes<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let ((length, in_separations), (min_members, order), (masses, velocities)) = (nearness, rows, attributes);
    let (py, comm) = (comm.py(), comm.get());
    let (domain, rows) = (domain(&sides)?, Rows::new(points, &comm.session)?);
    let linking = if in_separations { Linking::Separations(length) } else { Linking::Length(length) };
    let selection = Selection { min_members, order: order_named(&order)?, observer: None };
    let mut attributes: Vec<Attribute> = Vec::new();
    for (name, values, width) in [("mass", masses, 1), ("velocity", velocities, sides.len() as u64)] {
        if let Some(values) = &values {
            attributes.push((name, HostArray::new(values)?, width));
        }
    }
    let (labels, length, catalog) = comm.session.run(py, move |work| {
        let box_use = if in_separations { BoxUse::Volume } else { BoxUse::Images };
        let mut cloud = rows.cloud(work, &domain, ("points", box_use))?;
        let context = &mut work.context;
        attributes.iter().try_for_each(|attribute| set(context, &mut cloud, attribute))?;
        let groups = Groups::find(context, &cloud, linking)?;
        drop(cloud);
        let catalog = groups.catalog(&mut context.recorder, &selection)?;
        Ok((groups.labels(context)?, groups.length(), catalog))
    })?;
    columns(py, catalog, labels, length)
}

/// Returns what is known of groups, by name.
fn columns(py: Python<'_>, catalog: Catalog, labels: Vec<u64>, length: f32) -> PyResult<Bound<'_, PyDict>> {
    let Catalog {
        label,
        count,
        mass,
        center,
        velocity,
        inertia_radius,
        velocity_dispersion,
        max_radius,
        axes,
        directions,
        ..
    } = catalog;
    let found = PyDict::new(py);
    found.set_item("labels", indices(py, labels))?;
    found.set_item("length", length)?;
    found.set_item("total", catalog.total)?;
    let integers = [("label", label), ("count", count), ("offset", catalog.offset), ("members", catalog.members)];
    for (name, values) in integers {
        found.set_item(name, indices(py, values))?;
    }
    let reals = [("mass", mass), ("center", center), ("inertia_radius", inertia_radius), ("max_radius", max_radius)];
    for (name, values) in reals.into_iter().chain([("axes", axes), ("directions", directions)]) {
        found.set_item(name, to_numpy(py, values))?;
    }
    for (name, values) in [("velocity", velocity), ("velocity_dispersion", velocity_dispersion)] {
        found.set_item(name, values.map(|values| to_numpy(py, values)))?;
    }
    Ok(found)
}
