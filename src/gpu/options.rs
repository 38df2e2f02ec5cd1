//! How a device is opened.

use std::env::VarError;
use std::path::PathBuf;

use super::adapter::AdapterSelector;
use super::error::DeviceError;
use super::profile::Profile;

/// What an interpreter does with dispatches that says what is wrong with them: races, accesses outside of arrays, barriers that some invocations
/// miss, and results that differ between devices. What it finds is [`DeviceError::Sanitizer`] of the call that submits. It is thousands of times slower
/// than a device. Work of [`Recorder::encode_into`](super::Recorder::encode_into) is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sanitizer {
    /// Nothing.
    #[default]
    Off,
    /// It runs each dispatch, then the device does. Dispatches of too many steps are run in part, with a warning in the log.
    Check,
    /// As `Check`, and what the device has made of a dispatch is compared with what the text says: for finding a driver that is wrong. Floats may be
    /// 2^-10 of the largest in the dispatch apart. Integers that follow from rounding (the cell of a position on an edge, the nearer of two
    /// neighbours at one distance) may differ where a device rounds otherwise, as it may: such a finding is none.
    Compare,
    /// It runs each dispatch and the device does not: kernels are those of a device with subgroups of so many lanes, a power of two from 4 to 64.
    /// Dispatches of too many steps are errors.
    Run {
        /// Lanes of a subgroup.
        subgroup: u32,
    },
}

/// How a device is opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Which adapter.
    pub adapter: AdapterSelector,
    /// Largest window of an array in bytes, a power of two of at least 256; the device's binding limit otherwise. Tests
    /// set a few KiB, so that small arrays are cut as large ones are.
    pub window_bytes: Option<u64>,
    /// Checked kernels: bounds, loops and divisions guarded as WebGPU prescribes, in the library's kernels as in those with a
    /// caller's text, which always are. Slower; for finding errors.
    pub checked: bool,
    /// Keeps to the floor (WebGPU's default limits, no optional feature), whatever the device could do.
    pub floor: bool,
    /// What kernels, their primitives and transforms are shaped for, whatever the device is: `Some(Profile::Gpu)` runs on a software renderer what a
    /// GPU would get, for tests. `None`, the default: what the device is.
    pub profile: Option<Profile>,
    /// Fills arrays with NaN when they are handed out, so that a read of undefined contents is seen.
    pub poison: bool,
    /// Whether dispatches go through the sanitizer; for finding errors.
    pub sanitizer: Sanitizer,
    /// Compiled kernels that are kept at most, 256 unless said otherwise; beyond that the one that was used longest ago goes. A program of many lengths (of
    /// transforms, say) has new ones for each, of some megabytes on software renderers.
    pub kernels: usize,
    /// Directory in which compiled kernels are kept from run to run, where the driver can do so (Vulkan, not on the
    /// floor); `None`, the default, keeps none. [`cache_directory`](super::cache_directory) is the user's. Drivers trust what they
    /// find there: it must be a directory that nobody else writes to.
    pub cache: Option<PathBuf>,
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
            sanitizer: Sanitizer::Off,
            kernels: 256,
            cache: None,
        }
    }
}

impl Options {
    /// The defaults, changed by the environment: `MESHLOOM_DEVICE` (an index, a name or a PCI address),
    /// `MESHLOOM_CHECKED=1`, `MESHLOOM_FLOOR=1`, `MESHLOOM_PROFILE=gpu|software`, `MESHLOOM_POISON=0|1`, `MESHLOOM_SANITIZE=1|compare|4|8|16|32|64`,
    /// `MESHLOOM_WINDOW_BYTES=n`, `MESHLOOM_KERNELS=n`, `MESHLOOM_CACHE` (a directory for compiled kernels). Empty variables are as none.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when a variable has another value.
    pub fn from_env() -> Result<Self, DeviceError> {
        let flag = |name: &str, default: bool| match variable(name)?.as_deref() {
            None => Ok(default),
            Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(other) => Err(DeviceError::Misuse { what: name.into(), why: format!("it is `{other}`, not 0 or 1") }),
        };
        let defaults = Options::default();
        let mut options = Options {
            checked: flag("MESHLOOM_CHECKED", defaults.checked)?,
            floor: flag("MESHLOOM_FLOOR", defaults.floor)?,
            profile: profile()?,
            poison: flag("MESHLOOM_POISON", defaults.poison)?,
            sanitizer: sanitizer()?,
            ..defaults
        };
        if let Some(words) = variable("MESHLOOM_DEVICE")? {
            let Ok(adapter) = words.parse();
            options.adapter = adapter;
        }
        if let Some(directory) = std::env::var_os("MESHLOOM_CACHE").filter(|path| !path.is_empty()) {
            options.cache = Some(directory.into());
        }
        if let Some(words) = variable("MESHLOOM_KERNELS")? {
            let kernels = words.parse().ok().filter(|kernels| *kernels > 0);
            options.kernels = kernels.ok_or_else(|| DeviceError::Misuse {
                what: "MESHLOOM_KERNELS".into(),
                why: format!("it is `{words}`, not a number of at least 1"),
            })?;
        }
        if let Some(words) = variable("MESHLOOM_WINDOW_BYTES")? {
            let bytes = words.parse().ok().filter(|bytes: &u64| *bytes >= 256 && bytes.is_power_of_two());
            options.window_bytes = Some(bytes.ok_or_else(|| DeviceError::Misuse {
                what: "MESHLOOM_WINDOW_BYTES".into(),
                why: format!("it is `{words}`, not a power of two of at least 256"),
            })?);
        }
        Ok(options)
    }

    /// Refuses windows of another size than arrays can be cut into, and devices that keep no kernel.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        if self.kernels == 0 {
            let why = "it is 0; a device keeps at least the kernel that it runs".into();
            return Err(DeviceError::Misuse { what: "Options::kernels".into(), why });
        }
        if let Sanitizer::Run { subgroup } = self.sanitizer
            && !lanes(subgroup)
        {
            let why = format!("subgroups of {subgroup} lanes; they have 4, 8, 16, 32 or 64");
            return Err(DeviceError::Misuse { what: "Options::sanitizer".into(), why });
        }
        match self.window_bytes.filter(|bytes| *bytes < 256 || !bytes.is_power_of_two()) {
            None => Ok(()),
            Some(bytes) => Err(DeviceError::Misuse {
                what: "Options::window_bytes".into(),
                why: format!("it is {bytes}, not a power of two of at least 256"),
            }),
        }
    }
}

/// An environment variable; an empty one is as none.
fn variable(name: &str) -> Result<Option<String>, DeviceError> {
    match std::env::var(name) {
        Ok(words) => Ok(Some(words).filter(|words| !words.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(DeviceError::Misuse { what: name.into(), why: "it is not Unicode".into() }),
    }
}

/// What `MESHLOOM_SANITIZE` says: nothing or 0, 1, `compare`, or the lanes of a subgroup.
fn sanitizer() -> Result<Sanitizer, DeviceError> {
    match variable("MESHLOOM_SANITIZE")?.as_deref() {
        None | Some("0") => Ok(Sanitizer::Off),
        Some("1") => Ok(Sanitizer::Check),
        Some("compare") => Ok(Sanitizer::Compare),
        Some(words) => match words.parse() {
            Ok(subgroup) if lanes(subgroup) => Ok(Sanitizer::Run { subgroup }),
            _ => {
                let why = format!("it is `{words}`, not 0, 1, compare or the lanes of a subgroup: 4, 8, 16, 32 or 64");
                Err(DeviceError::Misuse { what: "MESHLOOM_SANITIZE".into(), why })
            }
        },
    }
}

/// Whether a subgroup may have so many lanes.
fn lanes(subgroup: u32) -> bool {
    subgroup.is_power_of_two() && (4..=64).contains(&subgroup)
}

/// The profile that `MESHLOOM_PROFILE` names, if it is set.
fn profile() -> Result<Option<Profile>, DeviceError> {
    match variable("MESHLOOM_PROFILE")?.as_deref() {
        None => Ok(None),
        Some("gpu") => Ok(Some(Profile::Gpu)),
        Some("software") => Ok(Some(Profile::Software)),
        Some(other) => Err(DeviceError::Misuse {
            what: "MESHLOOM_PROFILE".into(),
            why: format!("it is `{other}`, not gpu or software"),
        }),
    }
}
