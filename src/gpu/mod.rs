//! Devices: choosing an adapter, arrays in its memory, kernels and the recording of work. No
//! communication.
//!
//! | who | does |
//! |---|---|
//! | [`adapters`], [`choose`] | list adapters, pick one by index, name, PCI address or local rank |
//! | [`Gpu`] | an open device: allocates [`Array`]s from a pool, keeps compiled kernels; never submits, never waits |
//! | [`KernelSource`], [`Kernel`] | a kernel's text; the kernel, compiled on its first dispatch |
//! | [`Callback`] | a caller's functions, which run inside kernels of the library |
//! | [`Recorder`] | records dispatches and copies of one rank; `submit` hands them over, `download` and `wait` wait |

#[macro_use]
mod shallow_send_sync;
mod adapter;
mod array;
mod assemble;
mod bind_groups;
mod buffer_copy;
mod callback;
mod capabilities;
mod command;
mod common;
#[cfg_attr(not(target_os = "linux"), path = "no_copy_queues.rs")]
mod copy_queues;
mod device;
#[cfg(all(target_os = "linux", feature = "gpu-direct"))]
mod driver;
mod error;
#[cfg_attr(not(target_os = "linux"), path = "no_host_pages.rs")]
mod host_pages;
#[cfg_attr(not(target_os = "linux"), path = "no_import.rs")]
mod import;
mod inspect;
mod kernel;
mod large_ranges;
mod observed;
mod observer;
mod open_device;
mod options;
mod params;
#[cfg_attr(not(all(target_os = "linux", feature = "gpu-direct")), path = "no_peer_memory.rs")]
mod peer_memory;
mod pipeline;
mod pipeline_cache;
mod pool;
pub mod primitives;
mod profile;
mod recorder;
mod schedule;
mod slot;
mod source;
mod stack;
mod staging;
mod timer;
mod transfer;
mod unused_hardware;
mod variant;
#[cfg(target_os = "linux")]
mod vulkan_buffer;
mod words;

pub use crate::kernel_params;
pub use adapter::{AdapterSelector, adapters, choose, memory, unsuitable};
pub use array::{Array, DeviceElement, LONGEST, RawArray};
pub(crate) use array::{Loan, allowed_len, holds};
pub(crate) use buffer_copy::StagingDirection;
pub use callback::Callback;
pub(crate) use callback::CallbackKey;
pub use capabilities::Capabilities;
pub use common::CommonLimits;
pub use device::Gpu;
pub use error::{DeviceError, bytes};
pub(crate) use host_pages::HostPages;
pub use kernel::Kernel;
pub(crate) use kernel::KernelCache;
pub use observer::{DispatchObserver, Inspection, ObservedDispatch, ObservedKernel, Verdict};
pub use options::{CopyQueueChoice, ExchangePath, Options, Painting};
pub(crate) use params::{CountParams, JointParams};
pub use params::{KernelParams, ParamField, ParamType};
pub(crate) use peer_memory::{IS_BUILT as HAS_PEER_MEMORY, MemoryFile, PeerCopies, PeerCopy, PeerDriver, PeerMemory};
pub(crate) use pipeline::Trust;
pub use pipeline_cache::cache_directory;
pub use pool::MemoryKind;
pub(crate) use pool::class as pooled;
pub use profile::{Profile, REGISTERS, ROW, SECTOR, WorkgroupShape};
pub use recorder::{Recorder, RecorderCounts};
pub use slot::{Access, Element, Slot};
pub use source::KernelSource;
pub(crate) use stack::{MOST_COPIES, StackKernels, on_host, stacked, unstacked};
pub(crate) use staging::{Map, MappedBytes, Staging, staging_size};
pub use timer::KernelTime;
pub(crate) use transfer::{Completion, StagedCopy};
pub use unused_hardware::unused_hardware;
pub use variant::{ParamsSpace, Variant, WindowBinding};
pub(crate) use words::{WgslWords, words};

/// Returns the kernels of the room in all forms.
pub(crate) fn kernels() -> Vec<KernelSource> {
    let mut all = primitives::kernels();
    all.extend(large_ranges::kernels());
    all
}

/// Numbers as sums of two floats: the module `gpu::two_floats`. Kernels that import it have a
/// parameter `nothing` that is 0.
pub(crate) const TWO_FLOATS: &str = include_str!("../../shaders/gpu/two_floats.wgsl");
