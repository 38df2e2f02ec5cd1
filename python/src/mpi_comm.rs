//! A rank of an MPI program that the caller has started.

use std::mem::size_of;

use meshloom::comm::Communicator;
use mpi::ffi::MPI_Comm;
use pyo3::prelude::*;

use crate::comm::{Comm, noted};
use crate::failure::Failure;
use crate::session::{Session, caught, device_is_used};

/// Returns the size of a handle of the MPI library that this was built for, by which its two
/// families differ, and what the library that it is linked to calls itself.
#[pyfunction]
pub fn mpi_library() -> (usize, String) {
    let mut text = vec![0u8; mpi::ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: it may be called at any time, and the buffer has the size that MPI asks for.
    unsafe { mpi::ffi::MPI_Get_library_version(text.as_mut_ptr().cast(), &mut length) };
    text.truncate(length.max(0) as usize);
    (size_of::<MPI_Comm>(), String::from_utf8_lossy(&text).into_owned())
}

/// Returns the rank of this process in the communicator whose handle lies at `address`, as
/// `mpi4py.MPI._addressof` gives it. It is duplicated; all its ranks call this.
#[pyfunction]
pub fn from_mpi(py: Python<'_>, address: usize) -> PyResult<Comm> {
    device_is_used()?;
    let session = py.detach(|| {
        caught(|| {
            let place = address as *const MPI_Comm;
            if place.is_null() || !place.is_aligned() {
                return Err(Failure::Value("this is no communicator of mpi4py".into()));
            }
            // SAFETY: mpi4py says that its handle lies there, and its caller that it is valid.
            let comm = unsafe { Communicator::from_mpi(*place) }?;
            Session::open(comm)
        })
    })?;
    Ok(Comm { session: noted(session) })
}
