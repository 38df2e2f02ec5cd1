//! Temporary files that killed runs have left behind.
//!
//! A temporary file lives as long as the process that made it, the only one that can give it its name. That process holds
//! a shared lock on it, which the system lets go when the process ends, in whichever way. So a file that can be locked
//! alone is dead, and the next run that writes there clears it away.
//!
//! What may be alive stays: files whose locks the file system refuses; files of other hosts, since some network file
//! systems keep locks within a host (a [`token`](super::token) begins with its host and when that was started); all files
//! where locks would keep other ranks from writing (Windows, and shares of its kind).

use std::fs::File;
use std::path::Path;
#[cfg(unix)]
use std::{ffi::OsStr, fs};

/// Locks a temporary file of this process, which lives from now on until `file` and its clones are closed. False where
/// it was cleared away in the moment before: make it again.
#[cfg(unix)]
pub(super) fn claim(file: &File, path: &Path) -> bool {
    if locks_forbid(file) {
        return path.symlink_metadata().is_ok();
    }
    if let Err(error) = file.lock_shared() {
        // Then nobody else can lock it either, and it is never cleared.
        tracing::debug!(path = %path.display(), %error, "no lock on a temporary file");
    }
    path.symlink_metadata().is_ok()
}

#[cfg(not(unix))]
pub(super) fn claim(_: &File, _: &Path) -> bool {
    true
}

/// Whether a lock would keep others from writing, as on shares in the manner of Windows (`flock(2)`, CIFS details).
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

/// Clears away what dead runs have left of the output `path`.
pub(super) fn clear_of(path: &Path) {
    #[cfg(unix)]
    if let Some(parent) = path.parent() {
        let hidden = super::shared_file::hidden_name(path);
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        clear(parent, |name| name == hidden.as_encoded_bytes());
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// Clears away what dead runs have left of any output in `directory`.
pub(super) fn clear_in(directory: &Path) {
    #[cfg(unix)]
    clear(directory, |_| true);
    #[cfg(not(unix))]
    let _ = directory;
}

/// Removes the dead among the temporary files whose names begin as `wanted` says.
#[cfg(unix)]
fn clear(directory: &Path, wanted: impl Fn(&[u8]) -> bool) {
    let (Some(host), Ok(entries)) = (crate::host::kernel(), fs::read_dir(directory)) else { return };
    let host = format!("{host:x}");
    for entry in entries.flatten() {
        let name = entry.file_name();
        if temporary_of(&name, &host).is_some_and(&wanted) && remove_if_dead(&entry.path()) {
            tracing::debug!(path = %entry.path().display(), "cleared what a dead run has left");
        }
    }
}

/// What comes before the token in the name of a temporary file of a run on this host.
#[cfg(unix)]
fn temporary_of<'a>(name: &'a OsStr, host: &str) -> Option<&'a [u8]> {
    let name = name.as_encoded_bytes().strip_suffix(b".part")?;
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let (hidden, token) = (&name[..dot], std::str::from_utf8(&name[dot + 1..]).ok()?);
    let numbers: Vec<&str> = token.split('-').collect();
    let are_hex = numbers.iter().all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_hexdigit()));
    (hidden.len() > 1 && hidden[0] == b'.' && numbers.len() == 4 && are_hex && numbers[0] == host).then_some(hidden)
}

/// Removes a file unless somebody holds it. It is looked at again under the lock: its owner may have given it its name in
/// between, or another run may have cleared it.
#[cfg(unix)]
fn remove_if_dead(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    if !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return false;
    }
    // Some file systems lock alone only what is open for writing.
    let Ok(file) = fs::OpenOptions::new().read(true).write(true).open(path) else { return false };
    if locks_forbid(&file) {
        return false;
    }
    let same = || -> std::io::Result<bool> {
        let (here, locked) = (path.symlink_metadata()?, file.metadata()?);
        Ok((here.dev(), here.ino()) == (locked.dev(), locked.ino()))
    };
    file.try_lock().is_ok() && same().unwrap_or(false) && fs::remove_file(path).is_ok()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::io::scratch::Scratch;
    use crate::io::{OutputDir, SharedFile, seal_whole, token, write_whole};

    #[test]
    fn the_dead_of_an_output_are_cleared_and_nothing_else() {
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
        let living = scratch.names().len();
        assert_eq!(living, kept.len() + 2, "{:?}", scratch.names());

        file(format!(".out.npy.{}.part", token()));
        write_whole(&path, b"third").unwrap();
        assert_eq!(scratch.names().len(), living + 1, "{:?}", scratch.names());
        // Who lives can still finish.
        alive.finish().unwrap();
        sealed.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"sealed");
        assert_eq!(scratch.names().len(), kept.len() + 1, "{:?}", scratch.names());
    }

    #[test]
    fn a_directory_is_cleared_of_all_dead() {
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
    fn a_file_that_was_cleared_before_it_was_claimed_is_made_again() {
        let scratch = Scratch::new();
        let path = scratch.path().join("x");
        let file = File::create_new(&path).unwrap();
        assert!(claim(&file, &path));
        fs::remove_file(&path).unwrap();
        assert!(!claim(&file, &path));
    }
}
