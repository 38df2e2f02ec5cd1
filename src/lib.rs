//! meshloom: simulations made of fields and particles on any GPU, over any number of devices or MPI ranks.

pub mod comm;
pub mod cosmology;
pub mod device;
pub mod io;
pub mod layout;

pub use wgpu;
