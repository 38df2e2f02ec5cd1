//! Arrays that stay on the device between calls.

use std::sync::Arc;

use meshloom::gpu::{Array, DeviceElement};
use meshloom::points::Bounds;
use numpy::{Complex32, Complex64, Element, PyArray1, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::host_array::{HostArray, cast_vec, to_numpy};
use crate::session::Session;

/// The elements of an array, by their type.
#[derive(Clone)]
pub enum Elements {
    F32(Array<f32>),
    F64(Array<f64>),
    C64(Array<[f32; 2]>),
    C128(Array<[f64; 2]>),
}

impl Elements {
    fn len(&self) -> u64 {
        match self {
            Elements::F32(array) => array.len(),
            Elements::F64(array) => array.len(),
            Elements::C64(array) => array.len(),
            Elements::C128(array) => array.len(),
        }
    }
}

/// An array in the memory of a rank's device.
#[pyclass(frozen, module = "meshloom._native")]
pub struct DeviceArray {
    pub session: Arc<Session>,
    pub elements: Elements,
    shape: Vec<u64>,
}

impl DeviceArray {
    /// Returns an array of this shape over elements of a session's device.
    ///
    /// # Errors
    /// `ValueError` where there are not as many elements.
    pub fn new(session: &Arc<Session>, elements: Elements, shape: Vec<u64>) -> PyResult<Self> {
        if shape.iter().product::<u64>() != elements.len() {
            let len = elements.len();
            return Err(PyValueError::new_err(format!("an array of {len} elements has not the shape {shape:?}")));
        }
        Ok(DeviceArray { session: session.clone(), elements, shape })
    }

    /// Refuses work on another rank's device.
    pub fn belongs_to(&self, session: &Arc<Session>) -> PyResult<()> {
        if Arc::ptr_eq(&self.session, session) {
            return Ok(());
        }
        // A device that was lost says so.
        [&self.session, session].iter().try_for_each(|one| one.gpu().check()).map_err(Failure::from)?;
        Err(PyValueError::new_err("the array is on the device of another rank; pass numpy.asarray of it"))
    }
}

/// Uploads the elements of an array.
fn upload<T: DeviceElement + Sync + Send>(py: Python<'_>, session: &Session, data: HostArray<T>) -> PyResult<Array<T>> {
    session.run(py, move |work| {
        let array = work.context.gpu.array::<T>("python::array", data.as_slice().len() as u64)?;
        work.context.recorder.upload(&array, 0, data.as_slice())?;
        Ok(array)
    })
}

/// Returns the elements of an array, in memory that Python owns.
fn download<'py, T: DeviceElement + Send, E: Element + Copy>(
    py: Python<'py>,
    session: &Session,
    array: &Array<T>,
    shape: &[u64],
) -> PyResult<Bound<'py, PyAny>> {
    let array = array.clone();
    let data = session.run(py, move |work| Ok(work.context.recorder.download(&array, 0, array.len())?))?;
    let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
    Ok(to_numpy::<E>(py, cast_vec(data)).reshape(shape)?.into_any())
}

#[pymethods]
impl DeviceArray {
    /// Copies a C-contiguous array to the device.
    #[new]
    fn from_numpy(comm: &Bound<'_, Comm>, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, session) = (comm.py(), &comm.get().session);
        let shape = |dims: &[usize]| dims.iter().map(|&n| n as u64).collect::<Vec<u64>>();
        if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            let elements = Elements::F32(upload(py, session, HostArray::new(array)?)?);
            return Self::new(session, elements, shape(array.shape()));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<Complex32>>() {
            let elements = Elements::C64(upload(py, session, HostArray::new(array)?)?);
            return Self::new(session, elements, shape(array.shape()));
        }
        if !session.gpu().capabilities().f64 {
            let device = session.gpu().info().name.clone();
            return Err(Failure::from(meshloom::fft::FftError::NoDouble { device }).into());
        }
        if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            let elements = Elements::F64(upload(py, session, HostArray::new(array)?)?);
            return Self::new(session, elements, shape(array.shape()));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<Complex64>>() {
            let elements = Elements::C128(upload(py, session, HostArray::new(array)?)?);
            return Self::new(session, elements, shape(array.shape()));
        }
        Err(PyTypeError::new_err("expected float32, float64, complex64 or complex128 on a device"))
    }

    /// Returns its shape.
    #[getter]
    fn shape(&self) -> Vec<u64> {
        self.shape.clone()
    }

    /// Returns the name of its type of elements, as NumPy has it.
    #[getter]
    pub fn dtype_name(&self) -> &'static str {
        match self.elements {
            Elements::F32(_) => "float32",
            Elements::F64(_) => "float64",
            Elements::C64(_) => "complex64",
            Elements::C128(_) => "complex128",
        }
    }

    /// Returns the rank whose device it is on.
    #[getter]
    fn comm(&self) -> Comm {
        Comm { session: self.session.clone() }
    }

    /// Refuses work on another rank's device.
    #[pyo3(name = "belongs_to")]
    fn is_of(&self, comm: &Comm) -> PyResult<()> {
        self.belongs_to(&comm.session)
    }

    /// Returns the same memory in another shape.
    fn reshaped(&self, shape: Vec<u64>) -> PyResult<Self> {
        Self::new(&self.session, self.elements.clone(), shape)
    }

    /// Returns the least and the greatest coordinate along each axis, of finite float32 in the
    /// shape `(N, dims)`, `dims` from 1 to 3 and `N` from 1 on.
    fn bounds<'py>(&self, py: Python<'py>) -> PyResult<[Bound<'py, PyArray1<f32>>; 2]> {
        let (Elements::F32(rows), [_, dims @ 1..=3]) = (&self.elements, &self.shape[..]) else {
            return Err(PyTypeError::new_err("bounds are of float32 in rows of 1 to 3"));
        };
        let (rows, dims) = (rows.clone(), *dims as usize);
        let bounds = self.session.run(py, move |work| Ok(Bounds::of_rows(&mut work.context.recorder, &rows, dims)?))?;
        let Bounds { low, high } =
            bounds.ok_or_else(|| PyValueError::new_err("an array without rows has no bounds"))?;
        Ok([low, high].map(|ends| to_numpy(py, ends[..dims].to_vec())))
    }

    /// Returns the elements as an array of NumPy's.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (session, shape) = (&self.session, &self.shape);
        match &self.elements {
            Elements::F32(array) => download::<_, f32>(py, session, array, shape),
            Elements::F64(array) => download::<_, f64>(py, session, array, shape),
            Elements::C64(array) => download::<_, Complex32>(py, session, array, shape),
            Elements::C128(array) => download::<_, Complex64>(py, session, array, shape),
        }
    }
}
