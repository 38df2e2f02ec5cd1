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

/// Implements `Send` and `Sync` for a type with fields of these types, which have them.
///
/// The compiler would otherwise follow the types of wgpu wherever the type is sent or shared, more
/// steps than the default `recursion_limit` of crates that use the library allows.
macro_rules! shallow_send_sync {
    ($type:ty: $($field:ty),+) => {
        // SAFETY: the fields have the trait, as is checked below.
        unsafe impl Send for $type {}
        // SAFETY: as above.
        unsafe impl Sync for $type {}
        const _: () = {
            const fn check<T: Send + Sync>() {}
            $(check::<$field>();)+
        };
    };
}

mod adapter;
mod array;
mod assemble;
mod buffer_copy;
mod callback;
mod capabilities;
mod command;
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
mod recorder;
mod source;
mod stack;
mod staging;
mod timer;
mod transfer;
mod variant;
#[cfg(target_os = "linux")]
mod vulkan_buffer;

pub use crate::kernel_params;
pub use adapter::{AdapterSelector, adapters, choose, memory, unsuitable, unused_hardware};
pub use array::{Array, DeviceElement, LONGEST, RawArray};
pub(crate) use array::{Loan, allowed_len, holds};
pub(crate) use buffer_copy::StagingDirection;
pub use callback::Callback;
pub(crate) use callback::{CallbackKey, WgslWords, words};
pub use capabilities::{Capabilities, CommonLimits};
pub use device::Gpu;
pub use error::{DeviceError, bytes};
pub(crate) use host_pages::HostPages;
pub use kernel::Kernel;
pub(crate) use kernel::KernelCache;
pub use observer::{DispatchObserver, Inspection, ObservedDispatch, ObservedKernel, Verdict};
pub use options::{CopyQueueChoice, ExchangePath, Options, Painting, Profile, REGISTERS, ROW, SECTOR, WorkgroupShape};
pub use params::{Access, Element, KernelParams, ParamField, ParamType, Slot};
pub(crate) use params::{CountParams, JointParams};
pub(crate) use peer_memory::{IS_BUILT as HAS_PEER_MEMORY, MemoryFile, PeerCopies, PeerCopy, PeerDriver, PeerMemory};
pub(crate) use pipeline::Trust;
pub use pipeline_cache::cache_directory;
pub use pool::MemoryKind;
pub(crate) use pool::class as pooled;
pub use recorder::{Recorder, RecorderCounts};
pub use source::KernelSource;
pub(crate) use stack::{MOST_COPIES, StackKernels, on_host, stacked, unstacked};
pub(crate) use staging::{Map, MappedBytes, Staging, staging_size};
pub use timer::KernelTime;
pub(crate) use transfer::{Completion, StagedCopy};
pub use variant::{ParamsSpace, Variant, WindowBinding};

/// Returns the kernels of the room in all forms.
pub(crate) fn kernels() -> Vec<KernelSource> {
    primitives::kernels().into_iter().chain(large_ranges::kernels()).collect()
}

/// Numbers as sums of two floats: the module `gpu::two_floats`. Kernels that import it have a
/// parameter `nothing` that is 0.
pub(crate) const TWO_FLOATS: &str = include_str!("../../shaders/gpu/two_floats.wgsl");
