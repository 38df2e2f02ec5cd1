//! Fourier transforms of NumPy arrays.

use meshloom::fft::{Norm, Spec, Transform, TransformOptions, Value};
use meshloom::gpu::Array;
use meshloom::grid::Grid;
use meshloom::rank::{Parts, Rank};
use numpy::{Complex32, Complex64, Element, PyArrayDyn};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::comm::Comm;
use crate::device_array::{DeviceArray, Elements};
use crate::failure::Failure;
use crate::host_array::{HostArray, cast_vec, to_numpy};

/// Description of a transform: the cells of the whole mesh, its axes, the number of fields, and the
/// direction that has the factor.
#[derive(Clone, Copy)]
struct Request {
    cells: [u64; 3],
    axes: [bool; 3],
    fields: u64,
    norm: Norm,
}

impl Request {
    fn spec<T: Value>(&self, ranks: usize) -> Spec {
        let Request { cells, axes, fields, norm } = *self;
        let spec = Spec::of::<T>(cells).axes(axes).fields(fields).norm(norm);
        // Parts keep the cut of the first axis.
        if ranks > 1 { spec.natural() } else { spec }
    }
}

fn fits(have: usize, want: u64) -> Result<(), Failure> {
    if have as u64 == want {
        return Ok(());
    }
    Err(Failure::Value(format!(
        "this rank's part has {have} elements, {want} are needed: numpy.array_split along the first axis"
    )))
}

/// Runs `body` with the transform of `request` over the ranks of `comm`, each of which has a part
/// of the first axis.
fn transformed<T: Value, R: Send + 'static>(
    py: Python<'_>,
    comm: &Comm,
    request: Request,
    body: impl FnOnce(Parts<'_>, &Transform<T>) -> Result<R, Failure> + Send + 'static,
) -> PyResult<R> {
    comm.session.run(py, move |work| {
        let (ranks, rank) = (work.context.comm.size(), work.context.comm.rank());
        let (grid, spec) = (Grid::new([ranks, 1], ranks)?, request.spec::<T>(ranks));
        let options = TransformOptions::default();
        let make = |context: &mut Rank| Ok(Transform::<T>::with(&context.gpu, &spec, grid, rank, &options)?);
        work.with_transform(&spec, grid, make, body)
    })
}

/// Returns the spectra of fields.
fn forward<T>(py: Python<'_>, comm: &Comm, request: Request, data: HostArray<T>) -> PyResult<Vec<T::Mode>>
where
    T: Value<Mode: Send> + Send + Sync,
{
    transformed::<T, _>(py, comm, request, move |Parts { gpu, recorder, comms }, transform| {
        let layout = transform.field_layout();
        let field = transform.field(gpu, &layout)?;
        fits(data.as_slice().len(), field.len())?;
        recorder.upload(&field, 0, data.as_slice())?;
        drop(data);
        let spectrum = transform.spectrum(gpu)?;
        transform.forward(recorder, comms, &field, &layout, &spectrum)?;
        Ok(recorder.download(&spectrum, 0, spectrum.len())?)
    })
}

/// Returns the spectra of fields on the device. Waits for nothing.
fn forward_on_device<T>(py: Python<'_>, comm: &Comm, request: Request, field: Array<T>) -> PyResult<Array<T::Mode>>
where
    T: Value<Mode: Send + Sync> + Send + Sync,
{
    transformed::<T, _>(py, comm, request, move |Parts { gpu, recorder, comms }, transform| {
        let layout = transform.field_layout();
        fits(field.len() as usize, layout.len() * transform.plan().spec.fields)?;
        let spectrum = transform.spectrum(gpu)?;
        transform.forward(recorder, comms, &field, &layout, &spectrum)?;
        recorder.submit()?;
        Ok(spectrum)
    })
}

/// Returns the fields that have spectra on the device. Waits for nothing.
fn inverse_on_device<T>(py: Python<'_>, comm: &Comm, request: Request, spectrum: Array<T::Mode>) -> PyResult<Array<T>>
where
    T: Value<Mode: Send + Sync> + Send + Sync,
{
    transformed::<T, _>(py, comm, request, move |Parts { gpu, recorder, comms }, transform| {
        let layout = transform.field_layout();
        let field = transform.field(gpu, &layout)?;
        fits(spectrum.len() as usize, transform.spectrum(gpu)?.len())?;
        transform.inverse(recorder, comms, &spectrum, &field, &layout)?;
        recorder.submit()?;
        Ok(field)
    })
}

/// Returns the fields that have spectra.
fn inverse<T>(py: Python<'_>, comm: &Comm, request: Request, data: HostArray<T::Mode>) -> PyResult<Vec<T>>
where
    T: Value<Mode: Send + Sync> + Send,
{
    transformed::<T, _>(py, comm, request, move |Parts { gpu, recorder, comms }, transform| {
        let layout = transform.field_layout();
        let spectrum = transform.spectrum(gpu)?;
        fits(data.as_slice().len(), spectrum.len())?;
        recorder.upload(&spectrum, 0, data.as_slice())?;
        drop(data);
        let field = transform.field(gpu, &layout)?;
        transform.inverse(recorder, comms, &spectrum, &field, &layout)?;
        Ok(recorder.download(&field, 0, field.len())?)
    })
}

/// Which transform: of complex numbers there and back, of real numbers to half the modes of the
/// last axis, and back from them.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Forward,
    Inverse,
    RealForward,
    RealInverse,
}

impl Kind {
    fn named(name: &str) -> PyResult<Kind> {
        match name {
            "fft" => Ok(Kind::Forward),
            "ifft" => Ok(Kind::Inverse),
            "rfft" => Ok(Kind::RealForward),
            "irfft" => Ok(Kind::RealInverse),
            _ => Err(PyValueError::new_err(format!("there is no transform `{name}`"))),
        }
    }
}

/// Returns what NumPy calls it.
fn norm_named(name: &str) -> PyResult<Norm> {
    match name {
        "backward" => Ok(Norm::Backward),
        "ortho" => Ok(Norm::Ortho),
        "forward" => Ok(Norm::Forward),
        _ => Err(PyValueError::new_err(format!("norm: expected \"backward\", \"ortho\" or \"forward\", got {name:?}"))),
    }
}

/// A mesh: its cells along three axes, which of them are transformed, and how many there are.
type MeshTuple = ([u64; 3], [bool; 3], u64);

fn request((cells, axes, fields): MeshTuple, norm: &str) -> PyResult<Request> {
    Ok(Request { cells, axes, fields, norm: norm_named(norm)? })
}

/// Returns the transform of real numbers, or of modes back to them.
fn real<'py, T>(
    comm: &Bound<'py, Comm>,
    request: Request,
    array: &Bound<'py, PyArrayDyn<T>>,
) -> PyResult<Bound<'py, PyAny>>
where
    T: Value<Mode: Send> + Numbers + Send + Sync,
{
    let modes = forward::<T>(comm.py(), comm.get(), request, HostArray::new(array)?)?;
    Ok(to_numpy::<T::Complex>(comm.py(), cast_vec(modes)).into_any())
}

/// Real numbers, and the complex ones that have such parts.
trait Numbers: Element + bytemuck::Pod {
    type Complex: Element + Copy;
}

impl Numbers for f32 {
    type Complex = Complex32;
}

impl Numbers for f64 {
    type Complex = Complex64;
}

/// Returns the transforms of complex numbers `C`, which are pairs `P` of `T`.
fn complex<'py, C, P, T>(
    comm: &Bound<'py, Comm>,
    kind: Kind,
    request: Request,
    array: &Bound<'py, PyArrayDyn<C>>,
) -> PyResult<Bound<'py, PyAny>>
where
    C: Element + Copy,
    P: Value<Mode = P> + bytemuck::Pod + Send + Sync,
    T: Value<Mode = P> + Element + Send,
{
    let (py, data, one) = (comm.py(), HostArray::<P>::new(array)?, comm.get());
    Ok(match kind {
        Kind::Forward => to_numpy::<C>(py, cast_vec(forward::<P>(py, one, request, data)?)).into_any(),
        Kind::Inverse => to_numpy::<C>(py, cast_vec(inverse::<P>(py, one, request, data)?)).into_any(),
        Kind::RealInverse => to_numpy(py, inverse::<T>(py, one, request, data)?).into_any(),
        Kind::RealForward => return Err(unfit()),
    })
}

/// Returns the transform of an array: its elements, one after the other, those of this rank's part.
#[pyfunction]
pub fn transform<'py>(
    comm: &Bound<'py, Comm>,
    kind: &str,
    array: &Bound<'py, PyAny>,
    mesh: MeshTuple,
    norm: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (kind, request) = (Kind::named(kind)?, request(mesh, norm)?);
    if kind == Kind::RealForward {
        if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            return real(comm, request, array);
        }
        if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            return real(comm, request, array);
        }
    }
    if let Ok(array) = array.cast::<PyArrayDyn<Complex32>>() {
        return complex::<Complex32, [f32; 2], f32>(comm, kind, request, array);
    }
    if let Ok(array) = array.cast::<PyArrayDyn<Complex64>>() {
        return complex::<Complex64, [f64; 2], f64>(comm, kind, request, array);
    }
    Err(unfit())
}

fn unfit() -> PyErr {
    PyTypeError::new_err(
        "the array has none of the types that this transform takes: float32, float64, complex64, complex128",
    )
}

/// Transforms an array on the device to a new one of this shape.
#[pyfunction]
pub fn transform_on_device(
    array: &Bound<'_, DeviceArray>,
    kind: &str,
    mesh: MeshTuple,
    norm: &str,
    shape: Vec<u64>,
) -> PyResult<DeviceArray> {
    let (py, array, kind) = (array.py(), array.get(), Kind::named(kind)?);
    let (request, comm) = (request(mesh, norm)?, &Comm { session: array.session.clone() });
    let elements = match (array.elements.clone(), kind) {
        (Elements::F32(data), Kind::RealForward) => Elements::C64(forward_on_device::<f32>(py, comm, request, data)?),
        (Elements::F64(data), Kind::RealForward) => Elements::C128(forward_on_device::<f64>(py, comm, request, data)?),
        (Elements::C64(data), Kind::RealInverse) => Elements::F32(inverse_on_device::<f32>(py, comm, request, data)?),
        (Elements::C128(data), Kind::RealInverse) => Elements::F64(inverse_on_device::<f64>(py, comm, request, data)?),
        (Elements::C64(data), Kind::Forward) => Elements::C64(forward_on_device::<[f32; 2]>(py, comm, request, data)?),
        (Elements::C128(data), Kind::Forward) => {
            Elements::C128(forward_on_device::<[f64; 2]>(py, comm, request, data)?)
        }
        (Elements::C64(data), Kind::Inverse) => Elements::C64(inverse_on_device::<[f32; 2]>(py, comm, request, data)?),
        (Elements::C128(data), Kind::Inverse) => {
            Elements::C128(inverse_on_device::<[f64; 2]>(py, comm, request, data)?)
        }
        _ => {
            let what = array.dtype_name();
            return Err(PyTypeError::new_err(format!(
                "{what} on a device is not what this transform takes: real numbers go to \
                rfft, complex ones to fft, ifft and irfft"
            )));
        }
    };
    DeviceArray::new(&array.session, elements, shape)
}
