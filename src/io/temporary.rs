//! Temporary files: hidden, next to the output, and different for each writing.
//!
//! A name is `.<name of the output>.<token>.part`. The [`token`] begins with the host and the time
//! of its last start, which identify the files that killed runs on this host have left.
//!
//! The process that creates a temporary file holds a shared lock on it until the file gets its
//! final name. The system releases the lock when the process ends in any way. A file that can be
//! locked exclusively is therefore a leftover, and the next run that writes there removes it.
//!
//! Files stay where this test is not reliable: on file systems without locks; files of other hosts,
//! since some network file systems keep locks within a host; and where locks would keep other ranks
//! from writing (Windows and SMB shares).

use std::ffi::{OsStr, OsString};
#[cfg(unix)]
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::hash::{START, fnv1a};
use crate::host;

/// Returns a short string that no other call returns, in this or any other process. Rank 0 creates
/// one for each file that ranks write together, and shares it.
pub fn token() -> String {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let host = host::kernel().map(|host| format!("{host:x}-")).unwrap_or_default();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    format!("{host}{:x}-{:x}-{call:x}", std::process::id(), time.as_nanos())
}

/// Returns the path of the temporary file of the output `path`; equal on all ranks.
pub(super) fn temporary_name(path: &Path, token: &str) -> PathBuf {
    let mut name = prefix(path);
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.push(format!(".{}.part", token.chars().take(80).map(safe).collect::<String>()));
    path.with_file_name(name)
}

/// Returns the common beginning of the names of all temporary files of an output, up to the token.
pub(super) fn prefix(path: &Path) -> OsString {
    let name = path.file_name().unwrap_or_default();
    let mut prefix = OsString::from(".");
    if name.len() <= 120 {
        prefix.push(name);
    } else {
        // Names are limited to 255 bytes on most systems, so a long one is replaced by its hash.
        prefix.push(format!("{:016x}", fnv1a(START, name.as_encoded_bytes())));
    }
    prefix
}

/// Returns the [`prefix`] of a name that a run on this host has made; `None` for all other names.
#[cfg_attr(not(unix), expect(dead_code))]
pub(super) fn prefix_of<'a>(name: &'a OsStr, host: &str) -> Option<&'a [u8]> {
    let name = name.as_encoded_bytes().strip_suffix(b".part")?;
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let (prefix, token) = (&name[..dot], std::str::from_utf8(&name[dot + 1..]).ok()?);
    let numbers: Vec<&str> = token.split('-').collect();
    let are_hex = numbers.iter().all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_hexdigit()));
    (prefix.len() > 1 && prefix[0] == b'.' && numbers.len() == 4 && are_hex && numbers[0] == host).then_some(prefix)
}

/// Locks a temporary file of this process until `file` and its clones are closed. Returns `false`
/// if another run has removed it before it was locked: the caller creates it again.
#[cfg(unix)]
pub(super) fn lock(file: &File, path: &Path) -> bool {
    if locks_forbid(file) {
        return path.symlink_metadata().is_ok();
    }
    if let Err(error) = file.lock_shared() {
        // No other run can lock the file either, so it is never taken for a leftover.
        tracing::debug!(path = %path.display(), %error, "no lock on a temporary file");
    }
    path.symlink_metadata().is_ok()
}

#[cfg(not(unix))]
pub(super) fn lock(_: &File, _: &Path) -> bool {
    true
}

/// Returns `true` if a lock would keep others from writing, as on SMB shares (`flock(2)`, CIFS
/// details).
#[cfg(target_os = "linux")]
fn locks_forbid(file: &File) -> bool {
    use std::os::fd::AsRawFd;

    /// The numbers of smb, smb2 and smb3 (`statfs(2)`).
    const SHARES: [i64; 3] = [0x517b, 0xfe53_4d42, 0xff53_4d42];
    // SAFETY: zeros are a valid value, which the call fills in for an open file.
    let kind = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut found) == 0 { found.f_type as i64 & 0xffff_ffff } else { 0 }
    };
    SHARES.contains(&kind)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn locks_forbid(_: &File) -> bool {
    false
}

/// Removes the leftovers of the output `path`.
pub(super) fn remove_of(path: &Path) {
    #[cfg(unix)]
    if let Some(parent) = path.parent() {
        let prefix = prefix(path);
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        remove(parent, |found| found == prefix.as_encoded_bytes());
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// Removes the leftovers of all outputs in `directory`.
pub(super) fn remove_in(directory: &Path) {
    #[cfg(unix)]
    remove(directory, |_| true);
    #[cfg(not(unix))]
    let _ = directory;
}

/// Removes the leftovers whose prefix is `wanted`.
#[cfg(unix)]
fn remove(directory: &Path, wanted: impl Fn(&[u8]) -> bool) {
    let (Some(host), Ok(entries)) = (crate::host::kernel(), fs::read_dir(directory)) else { return };
    let host = format!("{host:x}");
    for entry in entries.flatten() {
        let name = entry.file_name();
        if prefix_of(&name, &host).is_some_and(&wanted) && remove_if_unlocked(&entry.path()) {
            tracing::debug!(path = %entry.path().display(), "removed a temporary file of a killed run");
        }
    }
}

/// Removes a file unless a process holds a lock on it. Checks the path again under the lock, since
/// the file may have been renamed or removed in between.
#[cfg(unix)]
fn remove_if_unlocked(path: &Path) -> bool {
    if !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return false;
    }
    // Some file systems grant exclusive locks only on files open for writing.
    let Ok(file) = fs::OpenOptions::new().read(true).write(true).open(path) else { return false };
    if locks_forbid(&file) {
        return false;
    }
    file.try_lock().is_ok() && is_called(&file, path).unwrap_or(false) && fs::remove_file(path).is_ok()
}

/// Returns `true` if an open file still has this path.
#[cfg(unix)]
pub(super) fn is_called(file: &File, path: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    match path.symlink_metadata() {
        Ok(here) => file.metadata().map(|open| (here.dev(), here.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
pub(super) fn is_called(_: &File, path: &Path) -> std::io::Result<bool> {
    Ok(path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ() {
        assert_ne!(token(), token());
    }

    #[test]
    fn the_temporary_is_hidden_beside_the_output_and_bounded() {
        let short = temporary_name(Path::new("a/out.npy"), "12-ab/../x");
        assert_eq!(short, Path::new("a/.out.npy.12-ab____x.part"));
        let long = temporary_name(Path::new(&"x".repeat(250)), &"t".repeat(500));
        assert!(long.as_os_str().len() < 128);
        assert_ne!(long, temporary_name(Path::new(&"y".repeat(250)), &"t".repeat(500)));
    }

    #[cfg(unix)]
    mod leftovers {
        use super::super::*;
        use crate::io::scratch::Scratch;
        use crate::io::{OutputDir, SharedFile, seal_whole, token, write_whole};

        #[test]
        fn leftovers_of_an_output_are_removed_and_nothing_else() {
            let scratch = Scratch::new();
            let path = scratch.path().join("out.npy");
            let file = |name: String| fs::write(scratch.path().join(name), b"x").unwrap();
            let kept = [
                format!(".other.npy.{}.part", token()),
                ".out.npy.t.part".to_string(),
                format!(".out.npy.0{}.part", token()),
                format!("out.npy.{}.part", token()),
                format!(".out.npy.{}.part.gz", token()),
            ];
            kept.iter().cloned().for_each(&file);
            file(format!(".out.npy.{}.part", token()));
            let alive = SharedFile::create(&path, 3, b"new", &token()).unwrap();
            let sealed = seal_whole(&path, b"sealed").unwrap();
            let alive_count = scratch.names().len();
            assert_eq!(alive_count, kept.len() + 2, "{:?}", scratch.names());

            file(format!(".out.npy.{}.part", token()));
            write_whole(&path, b"third").unwrap();
            assert_eq!(scratch.names().len(), alive_count + 1, "{:?}", scratch.names());
            // Writers that are alive can still finish.
            alive.finish().unwrap();
            sealed.publish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"sealed");
            assert_eq!(scratch.names().len(), kept.len() + 1, "{:?}", scratch.names());
        }

        #[test]
        fn all_leftovers_of_a_directory_are_removed() {
            let scratch = Scratch::new();
            let directory = OutputDir::create(scratch.path().join("run")).unwrap();
            for name in ["positions.npy", "halos.npz", "snapshot.3.hdf5", "meshloom"] {
                fs::write(directory.join(format!(".{name}.{}.part", token())), b"x").unwrap();
            }
            std::os::unix::fs::symlink("nowhere", directory.join(format!(".link.{}.part", token()))).unwrap();
            let _alive = SharedFile::create(directory.join("a"), 3, b"new", &token()).unwrap();
            OutputDir::create(directory.path()).unwrap();
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        }

        #[test]
        fn a_file_that_was_removed_before_it_was_locked_is_made_again() {
            let scratch = Scratch::new();
            let path = scratch.path().join("x");
            let file = File::create_new(&path).unwrap();
            assert!(lock(&file, &path));
            fs::remove_file(&path).unwrap();
            assert!(!lock(&file, &path));
        }
    }
}
