//! MPI without the library, where the program was built with it.

#[cfg(feature = "mpi")]
pub use super::mpi::Mpi;
#[cfg(not(feature = "mpi"))]
pub use super::no_mpi::Mpi;
