//! Errors of devices.

use crate::host_memory::{ByteCount, HostMemoryError};

/// An error of a device: which device or kernel, what happened, and what to do about it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The machine has no adapter at all.
    #[error(
        "no usable GPU adapter was found ({why}); install a driver, or a software renderer: \
         Debian/Ubuntu `apt install mesa-vulkan-drivers libvulkan1`, Fedora `dnf install mesa-vulkan-drivers`"
    )]
    NoAdapter {
        /// The adapters and the reasons against each.
        why: String,
    },
    /// No adapter matches the selection.
    #[error(
        "no adapter matches `{wanted}`, the device that was asked for (by --device, MESHLOOM_DEVICE or the caller); there are: {available}; name one of these"
    )]
    UnknownAdapter {
        /// The selection as text.
        wanted: String,
        /// Names and indices of the adapters there are.
        available: String,
    },
    /// The adapter is below the floor that every kernel is written for.
    #[error("adapter `{adapter}` cannot be used: {why}; choose another with MESHLOOM_DEVICE")]
    Unsuitable {
        /// Name of the adapter.
        adapter: String,
        /// The limit that it misses.
        why: String,
    },
    /// The driver refused to open the device.
    #[error("adapter `{adapter}` did not give a device: {why}")]
    Open {
        /// Name of the adapter.
        adapter: String,
        /// The driver's message.
        why: String,
    },
    /// An allocation does not fit.
    #[error(
        "`{label}` needs {} of device memory, {} is in use and the device has {}; \
         use a smaller problem, more ranks on more devices, or another device",
        bytes(*.needed), bytes(*.in_use), has(*.capacity)
    )]
    OutOfMemory {
        /// Label of the allocation.
        label: String,
        /// Its size in bytes.
        needed: u64,
        /// Bytes that this process holds on the device.
        in_use: u64,
        /// Bytes of the device, where the driver tells.
        capacity: Option<u64>,
    },
    /// A kernel would bind more windows than the device can.
    #[error(
        "kernel `{kernel}` would bind {needed} storage buffers and the device allows {limit}: its arrays are too large \
         for bindings of {}; use more ranks, so that each holds less", bytes(*.window)
    )]
    TooManyWindows {
        /// The kernel.
        kernel: String,
        /// Bindings it would need.
        needed: u32,
        /// Bindings the device allows.
        limit: u32,
        /// Size of a window in bytes.
        window: u64,
    },
    /// Host memory for the values of an array, or for what is made of them, was refused.
    #[error(transparent)]
    HostMemory(#[from] HostMemoryError),
    /// An array has more elements than a kernel can index.
    #[error(
        "`{label}` has {len} elements, more than the 2^32 - 2^17 that a kernel indexes on one rank; use more ranks"
    )]
    TooLong {
        /// The array.
        label: String,
        /// Its elements.
        len: u64,
    },
    /// A kernel does not compile.
    #[error("kernel `{kernel}` does not compile: {why}")]
    Shader {
        /// The kernel.
        kernel: String,
        /// The compiler's message.
        why: String,
    },
    /// A kernel needs more loop rounds than the driver runs.
    #[error(
        "kernel `{kernel}`: its loops take up to {rounds} rounds per invocation, but the driver of this device ends all \
         loops after {limit} rounds; divide the work among more invocations or dispatches, or use another device"
    )]
    LoopRounds {
        /// The kernel.
        kernel: String,
        /// Rounds that one invocation takes.
        rounds: u64,
        /// Rounds that the driver runs.
        limit: u64,
    },
    /// The observer stopped a dispatch; see [`Options::observer`](super::Options::observer).
    #[error("kernel `{kernel}`: {why}")]
    Observer {
        /// The kernel.
        kernel: String,
        /// The errors and their lines.
        why: String,
    },
    /// A call does not fit the kernel or array it is made for: an error of the program that calls.
    #[error("wrong use of `{what}`: {why}")]
    Misuse {
        /// Kernel or array.
        what: String,
        /// The limit that is exceeded.
        why: String,
    },
    /// Pages of host memory that the ranks of a host share cannot be used.
    #[error("shared pages of rank {rank}: {why}; set MESHLOOM_EXCHANGE=staging to exchange without them")]
    SharedPages {
        /// The rank whose pages they are.
        rank: usize,
        /// The reason.
        why: String,
    },
    /// Device memory that the ranks of a host share cannot be used.
    #[error("device memory of rank {rank}: {why}; set MESHLOOM_EXCHANGE=ring to exchange without it")]
    PeerMemory {
        /// The rank whose memory it is.
        rank: usize,
        /// The reason.
        why: String,
    },
    /// The driver reported an error after the fact, or lost the device.
    #[error(
        "the device failed: {0}; nothing it holds can be trusted, run again (a smaller problem if it was out of memory)"
    )]
    Lost(String),
}

message_debug!(DeviceError);

impl DeviceError {
    /// Returns the error of a wrong use of `what`.
    pub(crate) fn misuse(what: impl Into<String>, why: impl Into<String>) -> Self {
        DeviceError::Misuse { what: what.into(), why: why.into() }
    }

    /// Refuses a wrong use of `what` unless `holds`; `why` says what is wrong.
    pub(crate) fn ensure(holds: bool, what: &str, why: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::misuse(what, why())) }
    }
}

/// Bytes in the unit that reads best.
#[must_use]
pub fn bytes(n: u64) -> String {
    ByteCount(n).to_string()
}

fn has(n: Option<u64>) -> String {
    n.map_or_else(|| "an amount that its driver does not tell".into(), bytes)
}
