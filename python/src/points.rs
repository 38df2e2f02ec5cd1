//! Points of NumPy arrays on a device.

use meshloom::host_memory;
use std::sync::Arc;

use meshloom::comm::Communicator;
use meshloom::gpu::{Array, DeviceError, Recorder};
use meshloom::points::{BoxCheck, BoxUse, Cloud, Domain, ParticleError};
use numpy::PyArrayDyn;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::device_array::{DeviceArray, Elements};
use crate::failure::Failure;
use crate::host_array::HostArray;
use crate::session::{Session, Work};

/// Coordinates that the host checks in less time than the device takes to answer.
const FEW: u64 = 1024;

/// Coordinates of points, one row per point.
pub enum Rows {
    /// In the precision of the device.
    Single(HostArray<f32>),
    /// To be wrapped into the box and rounded.
    Double(HostArray<f64>),
    /// On a device already, to be copied there.
    Device(Array<f32>),
}

impl Rows {
    /// Returns the rows of an array of shape `(N, dims)` or of any shape that ends with `dims`,
    /// contiguous, of `float32` or `float64`.
    ///
    /// # Errors
    /// `TypeError` for other types of elements.
    pub fn new(array: &Bound<'_, PyAny>, session: &Arc<Session>) -> PyResult<Self> {
        if let Ok(array) = array.cast::<DeviceArray>() {
            let array = array.get();
            array.belongs_to(session)?;
            if let Elements::F32(elements) = &array.elements {
                return Ok(Rows::Device(elements.clone()));
            }
            return Err(PyTypeError::new_err("points on a device must be float32"));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            return Ok(Rows::Single(HostArray::new(array)?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            return Ok(Rows::Double(HostArray::new(array)?));
        }
        Err(PyTypeError::new_err("points must be an array of float32 or float64"))
    }

    fn len(&self) -> u64 {
        match self {
            Rows::Single(rows) => rows.as_slice().len() as u64,
            Rows::Double(rows) => rows.as_slice().len() as u64,
            Rows::Device(rows) => rows.len(),
        }
    }

    fn upload(&self, recorder: &mut Recorder, domain: &Domain, check: &mut BoxCheck) -> Result<Cloud, ParticleError> {
        Cloud::check_count(self.len() / domain.dims() as u64, domain)?;
        let own = match self {
            Rows::Single(rows) if self.len() <= FEW => {
                check.add(rows.as_slice());
                return Cloud::from_host(recorder, domain, rows.as_slice());
            }
            Rows::Single(rows) => uploaded(recorder, rows.as_slice())?,
            Rows::Double(rows) => {
                check.add(rows.as_slice());
                return Cloud::from_host_f64(recorder, domain, rows.as_slice());
            }
            Rows::Device(rows) => {
                // A cloud wraps its own in place.
                let own = recorder.gpu().array("python::points", rows.len())?;
                recorder.copy(rows, 0, &own, 0, rows.len())?;
                own
            }
        };
        check.add_array(recorder, &own)?;
        Cloud::new(recorder, domain, own)
    }

    /// Returns the points in `domain`, checked by all ranks. Collective: every rank calls it. Rank
    /// 0 warns where the points, which `name` describes, and the box seem to be in different units.
    pub fn cloud(&self, work: &mut Work, domain: &Domain, (name, box_use): (&str, BoxUse)) -> Result<Cloud, Failure> {
        let mut check = BoxCheck::of(domain, box_use);
        let found = self.upload(&mut work.context.recorder, domain, &mut check);
        let comm = work.context.comm.clone();
        let cloud = Cloud::agreed(&comm, self.len() / domain.dims() as u64, found)?;
        warn_of_box(work, &comm, name, &check)?;
        Ok(cloud)
    }

    /// Returns the coordinates in `f64`, on the host.
    pub fn to_f64(&self, recorder: &mut Recorder) -> Result<Vec<f64>, Failure> {
        let wide = |rows: &[f32]| host_memory::collect("coordinates", rows.iter().map(|&x| f64::from(x)));
        Ok(match self {
            Rows::Single(rows) => wide(rows.as_slice())?,
            Rows::Double(rows) => host_memory::copy("coordinates", rows.as_slice())?,
            Rows::Device(rows) => wide(&recorder.download(rows, 0, rows.len())?)?,
        })
    }

    /// Returns the values in `f32`, on the host.
    pub fn to_f32(&self, recorder: &mut Recorder) -> Result<Vec<f32>, Failure> {
        Ok(match self {
            Rows::Single(rows) => host_memory::copy("values", rows.as_slice())?,
            Rows::Double(rows) => host_memory::collect("values", rows.as_slice().iter().map(|&x| x as f32))?,
            Rows::Device(rows) => recorder.download(rows, 0, rows.len())?,
        })
    }
}

fn uploaded(recorder: &mut Recorder, values: &[f32]) -> Result<Array<f32>, DeviceError> {
    let array = recorder.gpu().array("python::points", values.len() as u64)?;
    recorder.upload(&array, 0, values)?;
    Ok(array)
}

/// Has rank 0 warn where points, which `name` describes, and their box seem to be in different
/// units. Collective: every rank calls it.
pub fn warn_of_box(work: &mut Work, comm: &Communicator, name: &str, check: &BoxCheck) -> Result<(), Failure> {
    let warnings = check.warnings(comm)?;
    if comm.rank() == 0 {
        warnings.iter().for_each(|warning| work.warn(format!("{name}: {warning}")));
    }
    Ok(())
}

/// Returns the box with these sides, of which 0 is an open axis.
pub fn domain(sides: &[f64]) -> PyResult<Domain> {
    Ok(Domain::new(sides).map_err(Failure::from)?)
}
