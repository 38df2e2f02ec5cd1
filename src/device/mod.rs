//! Devices: choosing an adapter, arrays in its memory, kernels and the recording of work. No communication.

mod error;
mod source;

pub use error::{DeviceError, bytes};
pub use source::{Access, Element, KernelSource, Slot};
