//! meshloom: simulations made of fields and particles on any GPU, over any number of devices or MPI ranks.

pub mod comm;
pub mod cosmology;
pub mod device;
mod error;
pub mod exchange;
pub mod fft;
pub mod halo;
pub mod io;
mod launch;
pub mod layout;
pub mod mesh;
pub mod simulation;

pub use error::Error;
pub use launch::{Launch, Rank, launch};
pub use wgpu;
