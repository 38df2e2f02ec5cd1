//! Arrays that stay on the device between calls.

use std::sync::Arc;

use meshloom::gpu::primitives::{Operand, Operation, Reduction, View};
use meshloom::gpu::{Array, DeviceElement, DeviceError, Element as DeviceType, Gpu, RawArray, Recorder};
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

    fn raw(&self) -> &RawArray {
        match self {
            Elements::F32(array) => array.raw(),
            Elements::F64(array) => array.raw(),
            Elements::C64(array) => array.raw(),
            Elements::C128(array) => array.raw(),
        }
    }

    /// Returns undefined elements of the type with this name.
    fn undefined(gpu: &Gpu, dtype: DeviceType, len: u64) -> Result<Self, DeviceError> {
        const LABEL: &str = "python::array";
        Ok(match dtype {
            DeviceType::F64 => Elements::F64(gpu.array(LABEL, len)?),
            DeviceType::Complex32 => Elements::C64(gpu.array(LABEL, len)?),
            DeviceType::Complex64 => Elements::C128(gpu.array(LABEL, len)?),
            _ => Elements::F32(gpu.array(LABEL, len)?),
        })
    }
}

/// Returns the type with this name in NumPy.
fn type_named(name: &str) -> PyResult<DeviceType> {
    match name {
        "float32" => Ok(DeviceType::F32),
        "float64" => Ok(DeviceType::F64),
        "complex64" => Ok(DeviceType::Complex32),
        "complex128" => Ok(DeviceType::Complex64),
        _ => Err(PyTypeError::new_err(format!("expected float32, float64, complex64 or complex128, got {name}"))),
    }
}

/// Refuses double precision on a device that lacks it.
fn check_double(session: &Session, is_double: bool) -> PyResult<()> {
    if !is_double || session.gpu().capabilities().f64 {
        return Ok(());
    }
    let device = session.gpu().info().name.clone();
    Err(Failure::from(meshloom::fft::FftError::NoDouble { device }).into())
}

/// Returns the type with this name for new arrays of a session's device.
fn new_type(session: &Session, name: &str) -> PyResult<DeviceType> {
    let dtype = type_named(name)?;
    check_double(session, matches!(dtype, DeviceType::F64 | DeviceType::Complex64))?;
    Ok(dtype)
}

/// Returns the number of elements of a shape, at most `u64::MAX`.
fn elements_of(shape: &[u64]) -> u64 {
    if shape.contains(&0) { 0 } else { shape.iter().fold(1, |len: u64, &extent| len.saturating_mul(extent)) }
}

/// Returns an array with undefined elements.
#[pyfunction]
pub fn undefined(comm: &Bound<'_, Comm>, dtype: &str, shape: Vec<u64>) -> PyResult<DeviceArray> {
    let session = &comm.get().session;
    let (dtype, len) = (new_type(session, dtype)?, elements_of(&shape));
    let elements = session.run(comm.py(), move |work| Ok(Elements::undefined(&work.context.gpu, dtype, len)?))?;
    DeviceArray::new(session, elements, shape)
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

/// Elements from which on work is submitted at once. Commands hold the memory of what they use
/// until then.
const SUBMITTED: u64 = 1 << 12;

/// Submits work on as many elements, unless they are few.
fn submit(recorder: &mut Recorder, len: u64) -> Result<(), DeviceError> {
    if len < SUBMITTED { Ok(()) } else { recorder.submit() }
}

/// An operand: an array, its first element and its strides in elements; or a number.
#[derive(FromPyObject)]
pub enum OperandTuple<'py> {
    Array(Bound<'py, DeviceArray>, u64, Vec<i64>),
    Scalar(f64, f64),
}

/// The place of a result: a new array of a type, or an array with its first element and strides.
#[derive(FromPyObject)]
pub enum OutTuple<'py> {
    New(String),
    Array(Bound<'py, DeviceArray>, u64, Vec<i64>),
}

/// Returns the type of the results of an operation, by names; `None` if it is not defined for such
/// operands.
#[pyfunction]
pub fn result_type(name: &str, dtype: &str) -> PyResult<Option<&'static str>> {
    let operands = type_named(dtype)?;
    let result = Operation::named(name).and_then(|operation| operation.result(operands));
    Ok(result.map(|result| match result {
        DeviceType::F64 => "float64",
        DeviceType::Complex32 => "complex64",
        DeviceType::Complex64 => "complex128",
        _ => "float32",
    }))
}

/// Records an operation on each element of `shape`. The result is a new array of a type, or part of
/// another array. `index` has an axis, and rows of the first operand along it.
#[pyfunction]
#[pyo3(signature = (comm, name, shape, operands, out, index=None, exponent=1))]
pub fn elementwise(
    comm: &Bound<'_, Comm>,
    name: &str,
    shape: Vec<u64>,
    operands: Vec<OperandTuple<'_>>,
    out: OutTuple<'_>,
    index: Option<(usize, Bound<'_, PyArrayDyn<u32>>)>,
    exponent: i32,
) -> PyResult<Option<DeviceArray>> {
    let (py, session) = (comm.py(), &comm.get().session);
    let Some(operation) = Operation::named(name).map(|operation| operation.exponent(exponent)) else {
        return Err(PyValueError::new_err(format!("there is no operation `{name}`")));
    };
    let own = |array: &Bound<'_, DeviceArray>| {
        array.get().belongs_to(session)?;
        Ok::<_, PyErr>(array.get().elements.clone())
    };
    let operands = operands.into_iter().map(|operand| match operand {
        OperandTuple::Array(array, start, strides) => Ok(Ok((own(&array)?, start, strides))),
        OperandTuple::Scalar(real, imaginary) => Ok(Err([real, imaginary])),
    });
    let operands = operands.collect::<PyResult<Vec<_>>>()?;
    let target = match out {
        OutTuple::New(dtype) => Err(new_type(session, &dtype)?),
        OutTuple::Array(array, start, strides) => Ok((own(&array)?, start, strides)),
    };
    let index = index.map(|(axis, rows)| Ok::<_, PyErr>((axis, HostArray::<u32>::new(&rows)?))).transpose()?;
    let extents = shape.clone();
    let new = session.run(py, move |work| {
        let len = elements_of(&shape);
        let recorder = &mut work.context.recorder;
        let (new, given) = match target {
            Err(dtype) => (Some(Elements::undefined(&work.context.gpu, dtype, len)?), None),
            Ok(given) => (None, Some(given)),
        };
        let out = match (&new, &given) {
            (Some(new), _) => View::contiguous(new.raw(), &shape),
            (None, Some((given, start, strides))) => {
                View { array: given.raw(), start: *start, strides: strides.clone() }
            }
            (None, None) => return Ok(None),
        };
        let operands: Vec<_> = operands
            .iter()
            .map(|operand| match operand {
                Ok((array, start, strides)) => {
                    Operand::Array(View { array: array.raw(), start: *start, strides: strides.clone() })
                }
                Err(scalar) => Operand::Scalar(*scalar),
            })
            .collect();
        let index = index.as_ref().map(|(axis, rows)| (*axis, rows.as_slice()));
        work.elementwise.record(recorder, operation, &shape, &out, &operands, index)?;
        submit(recorder, len)?;
        drop((out, operands));
        Ok(new)
    })?;
    new.map(|elements| DeviceArray::new(session, elements, extents)).transpose()
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
        check_double(session, true)?;
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

    /// Records the product with another matrix of the same type.
    fn times(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        other.belongs_to(&self.session)?;
        let (&[rows, inner], &[other_inner, columns]) = (&self.shape[..], &other.shape[..]) else {
            return Err(PyValueError::new_err("expected two matrices"));
        };
        if inner != other_inner {
            return Err(PyValueError::new_err(format!("{inner} columns do not fit {other_inner} rows")));
        }
        let dtype = type_named(self.dtype_name())?;
        let (a, b) = (self.elements.clone(), other.elements.clone());
        let result = self.session.run(py, move |work| {
            let result = Elements::undefined(&work.context.gpu, dtype, elements_of(&[rows, columns]))?;
            let recorder = &mut work.context.recorder;
            let (a, b) = (View::contiguous(a.raw(), &[rows, inner]), View::contiguous(b.raw(), &[inner, columns]));
            work.matrix_product.record(recorder, [rows, inner, columns], &a, &b, result.raw())?;
            submit(recorder, elements_of(&[rows, inner, columns]))?;
            Ok(result)
        })?;
        Self::new(&self.session, result, vec![rows, columns])
    }

    /// Records the reduction along axes by a name: "sum", "prod", "min" or "max". The result has
    /// the other axes.
    fn reduced(&self, py: Python<'_>, name: &str, axes: Vec<bool>) -> PyResult<Self> {
        let reduction = match name {
            "sum" => Reduction::Sum,
            "prod" => Reduction::Product,
            "min" => Reduction::Min,
            "max" => Reduction::Max,
            _ => return Err(PyValueError::new_err(format!("there is no reduction `{name}`"))),
        };
        let kept = self.shape.iter().zip(&axes).filter(|(_, is_reduced)| !**is_reduced).map(|(extent, _)| *extent);
        let (kept, shape, elements): (Vec<u64>, _, _) = (kept.collect(), self.shape.clone(), self.elements.clone());
        let len = kept.iter().product();
        let dtype = type_named(self.dtype_name())?;
        let result = self.session.run(py, move |work| {
            let result = Elements::undefined(&work.context.gpu, dtype, len)?;
            let recorder = &mut work.context.recorder;
            work.axis_reduce.record(recorder, reduction, &shape, &axes, elements.raw(), result.raw())?;
            submit(recorder, elements.len())?;
            Ok(result)
        })?;
        Self::new(&self.session, result, kept)
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
