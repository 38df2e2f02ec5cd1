//! A rank of an MPI program that the caller has started.

use meshloom::comm::Communicator;
use mpi::ffi::MPI_Comm;
use pyo3::prelude::*;

use crate::comm::{Comm, noted};
use crate::failure::Failure;
use crate::session::{Session, caught, device_is_used};

/// The rank of this process in the communicator whose handle lies at `address`, as `mpi4py.MPI._addressof` gives it. It is duplicated;
/// all its ranks call this.
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
