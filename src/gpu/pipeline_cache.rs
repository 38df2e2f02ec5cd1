//! Compiled pipelines on disk, so that the next run does not compile them again.
//!
//! - One file an adapter, driver and version of this crate. It is read when a device is opened, and
//!   written by [`Gpu::save_pipelines`](super::Gpu::save_pipelines) (which
//!   [`launch`](crate::launch()) calls when a rank's body has ended, well or not) and when the last
//!   handle of a device is dropped, if anything was compiled that it did not have. A process that
//!   is killed saves nothing.
//! - It is written beside its place and then renamed: of ranks and programs that write at once one
//!   wins, and a reader sees a whole file, old or new.
//! - Nothing here is an error: a file that cannot be read is as none, and one that cannot be
//!   written is left.
//!
//! Drivers trust what they are given. So a file begins with a checksum, and directories are made
//! for their owner only; never let the directory be one that others can write to.

use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::hash::{START, fnv1a};
use crate::io::read_short;
use crate::parallel::locked;

/// Magic number at the beginning of a file; the checksum of the rest follows, little-endian.
const MAGIC: [u8; 8] = *b"meshpip1";
const HEADER: usize = 16;
/// A larger file is replaced by a new one, because drivers only ever add to the data.
const LARGEST: u64 = 128 << 20;

/// A driver's cache and its file.
pub(super) struct PipelineCache {
    pub cache: wgpu::PipelineCache,
    pub file: PathBuf,
    /// Whether something was compiled since the file was read or written.
    compiled: AtomicBool,
    /// Hash of the data that the file is known to hold.
    saved: Mutex<u64>,
    /// Whether another rank writes the file.
    is_saved_by_others: AtomicBool,
}

/// Returns the user's directory for compiled kernels: `$MESHLOOM_CACHE` (none if that is empty),
/// else `meshloom` in `$XDG_CACHE_HOME`, `$HOME/.cache` or, on Windows, `%LOCALAPPDATA%`. The
/// program keeps them there; the library only where [`Options::cache`](super::Options::cache) says.
#[must_use]
pub fn cache_directory() -> Option<PathBuf> {
    from_variables(|name| std::env::var_os(name))
}

fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(chosen) = variable("MESHLOOM_CACHE") {
        return Some(PathBuf::from(chosen)).filter(|path| !path.as_os_str().is_empty());
    }
    // The XDG specification has relative paths ignored.
    let of = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let system = if cfg!(windows) {
        of("LOCALAPPDATA")
    } else {
        of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))
    };
    Some(system?.join("meshloom"))
}

/// Returns the file of an adapter; `None` where wgpu does not support pipeline caches.
fn file_name(info: &wgpu::AdapterInfo) -> Option<String> {
    // Hosts that share a directory may have other drivers for the same card.
    let driver = fnv1a(fnv1a(START, info.driver.as_bytes()), info.driver_info.as_bytes());
    let key = wgpu::util::pipeline_cache_key(info)?;
    Some(format!("{key}_{driver:016x}_{}.bin", env!("CARGO_PKG_VERSION")))
}

/// Returns the data of a file, unless it is not what was written.
fn unwrap_data(file: &[u8]) -> Option<&[u8]> {
    let (header, data) = file.split_at_checked(HEADER)?;
    let whole = header[..8] == MAGIC && header[8..] == fnv1a(START, data).to_le_bytes();
    whole.then_some(data)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let file = read_short(path, LARGEST).ok()?;
    let data = unwrap_data(&file);
    if data.is_none() {
        tracing::debug!("{} holds no whole pipelines and is replaced", path.display());
    }
    data.map(<[u8]>::to_vec)
}

fn write(path: &Path, data: &[u8]) -> std::io::Result<()> {
    let mut directory = fs::DirBuilder::new();
    directory.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
    if let Some(parent) = path.parent() {
        directory.create(parent)?;
    }
    // Process numbers are not unique among hosts; the standard library's hash keys are random.
    let unique = RandomState::new().build_hasher().finish();
    let beside = path.with_extension(format!("{unique:016x}.part"));
    let written = fs::OpenOptions::new().write(true).create_new(true).open(&beside).and_then(|mut file| {
        file.write_all(&MAGIC)?;
        file.write_all(&fnv1a(START, data).to_le_bytes())?;
        file.write_all(data)
    });
    let renamed = written.and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    renamed
}

impl PipelineCache {
    /// Returns the cache of a device that has [`wgpu::Features::PIPELINE_CACHE`], with what the
    /// file in `directory` holds.
    pub fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo, directory: &Path) -> Option<Self> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let file = directory.join(file_name(info)?);
        let make = |data: Option<&[u8]>| {
            let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
            let descriptor = wgpu::PipelineCacheDescriptor { label: Some("meshloom"), data, fallback: true };
            // SAFETY: the data came from `get_data`; nothing else writes such files, and the
            // checksum proves that they are complete.
            let cache = unsafe { device.create_pipeline_cache(&descriptor) };
            pollster::block_on(scope.pop()).is_none().then_some(cache)
        };
        let data = read(&file);
        // wgpu does not fall back where data is of another device.
        let loaded = data.as_deref().and_then(|data| Some((make(Some(data))?, fnv1a(START, data))));
        let (cache, saved) = match loaded {
            Some(loaded) => loaded,
            None => (make(None)?, START),
        };
        let [compiled, is_saved_by_others] = [AtomicBool::new(false), AtomicBool::new(false)];
        Some(PipelineCache { cache, file, compiled, saved: Mutex::new(saved), is_saved_by_others })
    }

    /// Writes nothing from now on.
    pub fn leave_to_others(&self) {
        self.is_saved_by_others.store(true, Ordering::Release);
    }

    /// Notes that a pipeline was compiled.
    pub fn compiled(&self) {
        self.compiled.store(true, Ordering::Release);
    }

    /// Writes the file if it lacks something.
    pub fn save(&self) {
        let mut saved = locked(&self.saved);
        if self.is_saved_by_others.load(Ordering::Acquire) {
            return;
        }
        if !self.compiled.swap(false, Ordering::AcqRel) {
            return;
        }
        let Some(data) = self.cache.get_data() else { return };
        // What was compiled may have come from the file.
        let hash = fnv1a(START, &data);
        if hash == *saved {
            return;
        }
        match write(&self.file, &data) {
            Ok(()) => *saved = hash,
            Err(why) => tracing::debug!("{} is not written: {why}", self.file.display()),
        }
    }
}

impl Drop for PipelineCache {
    fn drop(&mut self) {
        self.save();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn directories_come_from_variables() {
        let of = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
            from_variables(find).map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/me");
        let some = |path: &str| Some(path.to_string());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[home]), some("/home/me/.cache/meshloom"));
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "/var/tmp")]), some("/var/tmp/meshloom"));
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "relative")]), some("/home/me/.cache/meshloom"));
        assert_eq!(of(&[home, ("MESHLOOM_CACHE", "mine")]), some("mine"));
        assert_eq!(of(&[home, ("MESHLOOM_CACHE", "")]), None);
    }

    #[test]
    fn files_that_were_changed_hold_nothing() {
        let data = b"what a driver made";
        let mut file = [&MAGIC[..], &fnv1a(START, data).to_le_bytes(), data].concat();
        assert_eq!(unwrap_data(&file), Some(&data[..]));
        for len in 0..file.len() {
            assert_eq!(unwrap_data(&file[..len]), None, "{len} bytes");
        }
        for bit in 0..8 * file.len() {
            file[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unwrap_data(&file), None, "bit {bit}");
            file[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
