//! Devices: choosing an adapter, arrays in its memory, kernels and the recording of work. No communication.
//!
//! | who | does |
//! |---|---|
//! | [`adapters`], [`choose`] | list adapters, pick one by index, name, PCI address or local rank |
//! | [`Gpu`] | an open device: allocates [`Array`]s from a pool, keeps compiled kernels; never submits, never waits |
//! | [`KernelSource`], [`Kernel`] | a kernel's text; the kernel, compiled on its first dispatch |
//! | [`Recorder`] | records dispatches and copies of one rank; `submit` hands them over, `download` and `wait` wait |

mod adapter;
mod array;
mod assemble;
mod device;
mod error;
mod inspect;
pub mod machine;
mod params;
mod pipeline;
mod pipeline_cache;
mod pool;
pub mod primitives;
mod recorder;
mod source;
mod staging;
mod tuning;

pub use adapter::{Choice, adapters, choose, memory, unsuitable};
pub(crate) use array::Loan;
pub use array::{Array, DeviceElement, LONGEST, Memory, RawArray};
pub use device::{Capabilities, Gpu, Options};
pub use error::{DeviceError, bytes};
pub use params::{KernelParams, ParamField, ParamType};
pub use pipeline::Kernel;
pub(crate) use pipeline::Trust;
pub use recorder::{Counts, Recorder};
pub use source::{Access, Element, KernelSource, ParamsSpace, Slot, Variant};
pub(crate) use staging::{Map, Staging, read_mapped, write_mapped};
pub use tuning::{Profile, Tuning};
