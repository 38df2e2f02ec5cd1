//! Options for opening a device, and the classes of devices that kernels are shaped for.

use std::env::VarError;
use std::path::PathBuf;
use std::sync::Arc;

use super::{AdapterSelector, DeviceError, DispatchObserver};

/// The path of device data between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum ExchangePath {
    /// Messages use the arrays themselves, where the host can map device memory.
    Mapped,
    /// The drivers of NVIDIA or AMD copy between the devices of ranks of one host (feature
    /// `gpu-direct`, Vulkan on Linux).
    Peer,
    /// Devices copy to and from pages of host memory that the ranks of a host share (Vulkan on
    /// Linux).
    Ring,
    /// Devices copy to and from buffers that the host maps for each message.
    Staging,
}

impl ExchangePath {
    /// Returns the name: `mapped`, `peer`, `ring` or `staging`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ExchangePath::Mapped => "mapped",
            ExchangePath::Peer => "peer",
            ExchangePath::Ring => "ring",
            ExchangePath::Staging => "staging",
        }
    }

    /// Returns `true` if ranks of a host lend each other slots, which devices copy from.
    pub(crate) fn lends(self) -> bool {
        matches!(self, ExchangePath::Ring | ExchangePath::Peer)
    }
}

impl std::fmt::Display for ExchangePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The queue on which a device copies between arrays and memory that ranks share
/// ([`ExchangePath::Ring`] and [`ExchangePath::Peer`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyQueueChoice {
    /// Two queues for copies, out of arrays and into them, which run beside kernels; where the
    /// device has no queues for transfers, the queue of kernels.
    #[default]
    Own,
    /// The queue of kernels, through wgpu.
    Kernels,
    /// The queue of kernels, without wgpu: the code of [`Own`](CopyQueueChoice::Own), for tests on
    /// devices with one queue. No two threads may use such a device.
    Shared,
}

/// Method of painting particles onto meshes. Results have the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Painting {
    /// Each particle adds to the cells around it in device memory.
    Memory,
    /// A workgroup adds up the cells of a tile, and writes each once.
    Tiles,
}

/// Options for opening a device. Observers are equal if they are the same value in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which adapter.
    pub adapter: AdapterSelector,
    /// Largest window of an array in bytes, a power of two of at least 256; the device's binding
    /// limit otherwise. Tests set a few KiB, so that small arrays are cut as large ones are.
    pub window_bytes: Option<u64>,
    /// Checked kernels: bounds, loops and divisions guarded as WebGPU prescribes, in the library's
    /// kernels as in those with a caller's text, which always are. Slower; for finding errors.
    pub checked: bool,
    /// Keeps to the floor (WebGPU's default limits, no optional feature), whatever the device could
    /// do.
    pub floor: bool,
    /// Device class that kernels are tuned for: `Some(Profile::Gpu)` runs the GPU forms on a
    /// software renderer, for tests. `None`, the default, uses the class of the device.
    pub profile: Option<Profile>,
    /// Fills arrays with NaN when they are handed out, so that a read of undefined contents is
    /// seen.
    pub poison: bool,
    /// A tool that is shown every kernel and dispatch, such as the sanitizer of the package
    /// `meshloom-sanitizer`; for finding errors.
    pub observer: Option<Arc<dyn DispatchObserver>>,
    /// Compiled kernels that are kept at most, 256 unless said otherwise; beyond that the one that
    /// was used longest ago goes. A program of many lengths (of transforms, say) has new ones for
    /// each, of some megabytes on software renderers.
    pub kernels: usize,
    /// Directory in which compiled kernels are kept between runs, where the driver supports that
    /// (Vulkan with optional features); `None`, the default, keeps none.
    /// [`cache_directory`](super::cache_directory) is the user's. Drivers trust the contents:
    /// no other user may be able to write to the directory.
    pub cache: Option<PathBuf>,
    /// The path of device data between ranks; an error where it is impossible. With
    /// [`ExchangePath::Peer`] that is a rank that can copy from no other of its host; pairs that
    /// cannot use the ring. `None`, the default,
    /// takes the first that works: mapped arrays, peer copies, the ring, staging.
    pub exchange: Option<ExchangePath>,
    /// The queue of the copies of exchanges.
    pub copy_queues: CopyQueueChoice,
    /// The method of painting; `None`, the default, paints many particles by tiles on GPUs.
    pub painting: Option<Painting>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            adapter: AdapterSelector::Auto,
            window_bytes: None,
            checked: false,
            floor: false,
            profile: None,
            poison: cfg!(debug_assertions),
            observer: None,
            kernels: 256,
            cache: None,
            exchange: None,
            copy_queues: CopyQueueChoice::default(),
            painting: None,
        }
    }
}

impl Options {
    /// Creates the defaults, changed by the environment: `MESHLOOM_DEVICE` (an index, a name or a
    /// PCI address), `MESHLOOM_CHECKED=1`, `MESHLOOM_FLOOR=1`, `MESHLOOM_PROFILE=gpu|software`,
    /// `MESHLOOM_POISON=0|1`, `MESHLOOM_WINDOW_BYTES=n`, `MESHLOOM_KERNELS=n`, `MESHLOOM_CACHE` (a
    /// directory for compiled kernels), `MESHLOOM_EXCHANGE=mapped|peer|ring|staging`,
    /// `MESHLOOM_COPY_QUEUES=own|kernels|shared`, `MESHLOOM_PAINTING=memory|tiles`. Empty variables
    /// are as none.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] if a variable has another value, or if `MESHLOOM_SANITIZE` asks for
    /// the sanitizer, which is in a package of its own.
    pub fn from_env() -> Result<Self, DeviceError> {
        Self::from_env_with(|_| {
            let why = "this program has no sanitizer; unset the variable, or take the options of the package \
                       `meshloom-sanitizer`";
            Err(DeviceError::misuse("MESHLOOM_SANITIZE", why))
        })
    }

    /// Same as [`from_env`](Self::from_env), with the observer that `sanitizer` makes of the value
    /// of `MESHLOOM_SANITIZE`, if it is set and not 0.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] if another variable has a value that is not allowed, and the error
    /// of `sanitizer`.
    pub fn from_env_with(
        sanitizer: impl FnOnce(&str) -> Result<Arc<dyn DispatchObserver>, DeviceError>,
    ) -> Result<Self, DeviceError> {
        use {CopyQueueChoice as Queues, ExchangePath as Path};
        let flag = |name: &str| choice(name, &[("0", false), ("1", true)]);
        let paths = [Path::Mapped, Path::Peer, Path::Ring, Path::Staging].map(|path| (path.name(), path));
        let queues = [("own", Queues::Own), ("kernels", Queues::Kernels), ("shared", Queues::Shared)];
        let defaults = Options::default();
        let mut options = Options {
            checked: flag("MESHLOOM_CHECKED")?.unwrap_or(defaults.checked),
            floor: flag("MESHLOOM_FLOOR")?.unwrap_or(defaults.floor),
            profile: choice("MESHLOOM_PROFILE", &[("gpu", Profile::Gpu), ("software", Profile::Software)])?,
            poison: flag("MESHLOOM_POISON")?.unwrap_or(defaults.poison),
            exchange: choice("MESHLOOM_EXCHANGE", &paths)?,
            copy_queues: choice("MESHLOOM_COPY_QUEUES", &queues)?.unwrap_or_default(),
            painting: choice("MESHLOOM_PAINTING", &[("memory", Painting::Memory), ("tiles", Painting::Tiles)])?,
            ..defaults
        };
        if let Some(words) = variable("MESHLOOM_SANITIZE")?.filter(|words| words != "0") {
            options.observer = Some(sanitizer(&words)?);
        }
        if let Some(words) = variable("MESHLOOM_DEVICE")? {
            let Ok(adapter) = words.parse();
            options.adapter = adapter;
        }
        if let Some(directory) = std::env::var_os("MESHLOOM_CACHE").filter(|path| !path.is_empty()) {
            options.cache = Some(directory.into());
        }
        if let Some(words) = variable("MESHLOOM_KERNELS")? {
            let kernels = words.parse().ok().filter(|kernels| *kernels > 0);
            let why = format!("it is `{words}`, not a number of at least 1");
            options.kernels = kernels.ok_or_else(|| DeviceError::misuse("MESHLOOM_KERNELS", why))?;
        }
        if let Some(words) = variable("MESHLOOM_WINDOW_BYTES")? {
            let bytes = words.parse().ok().filter(|&bytes| is_window(bytes));
            options.window_bytes = Some(bytes.ok_or_else(|| no_window("MESHLOOM_WINDOW_BYTES", &words))?);
        }
        Ok(options)
    }

    /// Refuses windows of another size than arrays can be cut into, and devices that keep no
    /// kernel.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let why = || "it is 0; a device keeps at least the kernel that it runs".into();
        DeviceError::ensure(self.kernels > 0, "Options::kernels", why)?;
        let is_possible = |lanes: u32| lanes.is_power_of_two() && (4..=64).contains(&lanes);
        let subgroup = self.observer.as_ref().and_then(|observer| observer.subgroup());
        if let Some(lanes) = subgroup.filter(|&lanes| !is_possible(lanes)) {
            let why = format!("expected subgroups of 4, 8, 16, 32 or 64 lanes, got {lanes}");
            return Err(DeviceError::misuse("Options::observer", why));
        }
        match self.window_bytes.filter(|&bytes| !is_window(bytes)) {
            None => Ok(()),
            Some(bytes) => Err(no_window("Options::window_bytes", &bytes.to_string())),
        }
    }
}

/// Returns `true` for sizes of windows that arrays can be cut into.
fn is_window(bytes: u64) -> bool {
    bytes >= 256 && bytes.is_power_of_two()
}

/// Refuses the size `found` of windows, which `what` gives.
fn no_window(what: &str, found: &str) -> DeviceError {
    DeviceError::misuse(what, format!("it is `{found}`, not a power of two of at least 256"))
}

/// An environment variable; an empty one is as none.
fn variable(name: &str) -> Result<Option<String>, DeviceError> {
    match std::env::var(name) {
        Ok(words) => Ok(Some(words).filter(|words| !words.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(DeviceError::misuse(name, "it is not Unicode")),
    }
}

/// Returns the value that the variable `name` chooses among `choices`, if it is set.
fn choice<T: Copy>(name: &str, choices: &[(&str, T)]) -> Result<Option<T>, DeviceError> {
    let Some(text) = variable(name)? else { return Ok(None) };
    let chosen = choices.iter().find(|(choice, _)| *choice == text).map(|(_, value)| *value);
    chosen.map(Some).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(choice, _)| format!("`{choice}`")).collect();
        DeviceError::misuse(name, format!("expected one of {}, got `{text}`", names.join(", ")))
    })
}

/// Class of device that kernels are tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A GPU: wants coalesced accesses and many invocations.
    Gpu,
    /// A software renderer on a processor: wants few invocations with much work each, and few
    /// barriers.
    Software,
}

/// Shape of elementwise kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkgroupShape {
    /// Invocations per workgroup: `GROUP` in WGSL.
    pub group: u32,
    /// Elements per invocation: `ITEMS`.
    pub items: u32,
}

impl Profile {
    /// Returns the shape for the class: measured on software renderers (`benches/results`),
    /// chosen by counting for GPUs, and measured there as part of what uses it.
    #[must_use]
    pub const fn workgroup_shape(self) -> WorkgroupShape {
        match self {
            Profile::Gpu => WorkgroupShape { group: 256, items: 4 },
            Profile::Software => WorkgroupShape { group: 64, items: 16 },
        }
    }
}

/// Bytes that plans count memory in: the largest sector of common GPUs. Memory of an H100 gives two
/// of its sectors at once, and caches of processors have lines as long.
pub const SECTOR: u64 = 64;

/// Bytes of the rows that tiles along strided axes take where they can. Shorter rows are read at
/// four fifths of the speed of an H100's memory: each opens a page of DRAM and takes a translation.
pub const ROW: u64 = 128;

/// Registers that plans give to all invocations of a workgroup: the least that a core of common
/// GPUs has. Where a kernel takes more, a driver spills or refuses.
pub const REGISTERS: u64 = 48 << 10;
