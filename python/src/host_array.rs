//! NumPy arrays as work on another thread reads them, and results as NumPy arrays, without copies.

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, align_of, size_of};

use bytemuck::Pod;
use numpy::{Element, IntoPyArray, PyArray1, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The elements of a contiguous NumPy array, kept alive until it is dropped. As for NumPy's own
/// functions, what they are while another thread changes them is the caller's affair.
pub struct HostArray<T> {
    /// Keeps the memory.
    _owner: Py<PyAny>,
    place: *const T,
    len: usize,
    element: PhantomData<T>,
}

// SAFETY: the owner keeps the memory where it is; it is only read.
unsafe impl<T: Send + Sync> Send for HostArray<T> {}

impl<T> HostArray<T> {
    /// Returns the elements of `array`, seen as another type of the same layout (complex numbers as
    /// pairs).
    ///
    /// # Errors
    /// `ValueError` for an array that is not C-contiguous and aligned.
    pub fn new<E: Element>(array: &Bound<'_, PyArrayDyn<E>>) -> PyResult<Self>
    where
        T: Pod,
    {
        const { assert!(size_of::<T>() == size_of::<E>() && align_of::<T>() <= align_of::<E>()) };
        let place = array.data().cast_const().cast::<T>();
        if !(array.is_c_contiguous() && place.is_aligned()) {
            return Err(PyValueError::new_err(
                "the array must be C-contiguous and aligned; give numpy.ascontiguousarray of it",
            ));
        }
        Ok(HostArray { _owner: array.clone().into_any().unbind(), place, len: array.len(), element: PhantomData })
    }

    /// Returns the elements.
    pub fn as_slice(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the owner keeps this number of elements there, aligned and contiguous.
        unsafe { std::slice::from_raw_parts(self.place, self.len) }
    }
}

/// Returns a vector seen as one of another type of the same layout.
pub fn cast_vec<T: Pod, U: Copy>(data: Vec<T>) -> Vec<U> {
    const { assert!(size_of::<T>() == size_of::<U>() && align_of::<T>() == align_of::<U>()) };
    let mut data = ManuallyDrop::new(data);
    // SAFETY: any bits are a value of each type used here (pairs as complex numbers, u64 as i64),
    // and size and alignment are the same.
    unsafe { Vec::from_raw_parts(data.as_mut_ptr().cast(), data.len(), data.capacity()) }
}

/// Returns a vector as a one-dimensional array that owns it.
pub fn to_numpy<T: Element>(py: Python<'_>, data: Vec<T>) -> Bound<'_, PyArray1<T>> {
    data.into_pyarray(py)
}

/// Indices as NumPy's `intp`.
pub fn indices(py: Python<'_>, data: Vec<u64>) -> Bound<'_, PyArray1<i64>> {
    to_numpy(py, cast_vec(data))
}
