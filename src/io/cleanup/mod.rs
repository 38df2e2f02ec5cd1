//! Removal of unfinished files, however a program ends.
//!
//! A list of this process holds temporary files and new directories while they are unfinished.
//! Dropping their owner removes them. Without destructors, [`remove_all`] does it, and in a signal
//! handler [`remove_and_block`]. The next process that writes to the same place removes the files
//! of a killed one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use super::temporary::{self, temporary_name};
#[cfg(feature = "hdf5")]
use super::{IoError, Result};
use crate::parallel::{locked, try_locked};

/// Unfinished files and directories in the order of creation, as absolute paths, since the working
/// directory may change. A path appears once for each of its owners: ranks that are threads share
/// the list.
#[derive(Debug)]
struct Unfinished {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished { files: Vec::new(), directories: Vec::new() });

impl Unfinished {
    fn remove(&mut self) -> usize {
        let removed = self.files.drain(..).filter(|path| fs::remove_file(path).is_ok()).count();
        // Innermost first; a directory that is not empty stays.
        let directories = self.directories.drain(..).rev();
        removed + directories.filter(|path| fs::remove_dir(path).is_ok()).count()
    }
}

/// Removes all unfinished files of this process, and the directories it made that are still empty.
///
/// Must be called before a process ends without destructors (`std::process::exit`, `MPI_Abort`).
/// Writers that are still in use fail afterwards. Returns the number of removed files and
/// directories; those that cannot be removed stay.
#[expect(clippy::must_use_candidate, reason = "removing is what callers want")]
pub fn remove_all() -> usize {
    locked(&UNFINISHED).remove()
}

/// A guard that keeps all threads of this process from creating or publishing outputs.
#[derive(Debug)]
#[must_use = "threads create files again when it is dropped"]
pub struct BlockedOutputs(#[expect(dead_code, reason = "held")] MutexGuard<'static, Unfinished>);

/// Removes all unfinished files like [`remove_all`], and blocks every thread that creates or
/// publishes one.
///
/// Use it in a process that ends while ranks work on other threads. Blocks until no other thread
/// changes the list of unfinished files.
pub fn remove_and_block() -> BlockedOutputs {
    block(locked(&UNFINISHED))
}

/// Removes and blocks like [`remove_and_block`]; returns `None` if the list of unfinished files is
/// locked, by this thread or by another.
///
/// Allocates no memory for files whose path has at most 383 bytes.
pub fn try_remove_and_block() -> Option<BlockedOutputs> {
    try_locked(&UNFINISHED).map(block)
}

fn block(mut unfinished: MutexGuard<'static, Unfinished>) -> BlockedOutputs {
    unfinished.remove();
    BlockedOutputs(unfinished)
}

/// Removes the temporary files in `directory` that killed runs on this host have left. Where these
/// cannot be told from files in use (file systems without locks, Windows), all files stay.
pub fn clear_leftovers(directory: impl AsRef<Path>) {
    temporary::remove_in(directory.as_ref());
}

/// Creates a temporary file and adds it to the list, both under the lock, so that an interrupt
/// misses no file.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut unfinished = locked(&UNFINISHED);
    let file = loop {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        if temporary::lock(&file, path) {
            break file;
        }
    };
    unfinished.files.push(absolute(path));
    Ok(file)
}

/// Lets `make` create the temporary file of `output`, and adds it to the list, both under the lock.
/// `make` must take little time, since interrupts wait for it. It is called again if another run
/// has removed the file before it was locked.
#[cfg(feature = "hdf5")]
pub(crate) fn make_file(output: &Path, temporary: &Path, mut make: impl FnMut() -> Result<()>) -> Result<File> {
    let mut unfinished = locked(&UNFINISHED);
    unfinished.files.push(absolute(temporary));
    let mut once = || {
        make()?;
        let file = OpenOptions::new().read(true).write(true).open(temporary).and_then(|file| {
            if temporary::lock(&file, temporary) { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
        });
        file.map_err(|source| IoError::create(output, source))
    };
    let remove = || drop(fs::remove_file(temporary));
    let made = once().or_else(|_| {
        remove();
        once()
    });
    if made.is_err() {
        remove();
        take_off(&mut unfinished.files, &absolute(temporary));
    }
    made
}

/// Opens a temporary file that another rank has created. Adds it to the list here too, since the
/// process of the other rank may end first.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let mut unfinished = locked(&UNFINISHED);
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    unfinished.files.push(absolute(path));
    Ok(file)
}

/// Opens or creates a file, locks it exclusively, and adds it to the list, all under the lock of
/// the list, so that an interrupt removes no file that another process has locked. A read-only file
/// of another user is locked as well. If files cannot be locked, no new file stays.
///
/// The error kind `PermissionDenied` means that the file exists and can neither be read nor
/// written.
pub(crate) fn lock_file(path: &Path) -> Result<File, TryLockError> {
    let mut unfinished = locked(&UNFINISHED);
    for _ in 0..8 {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let (file, may_write) = match open {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.exists() => {
                (File::open(path).map_err(TryLockError::Error)?, false)
            }
            // Also for a read-only directory: the file does not exist.
            Err(error) => return Err(TryLockError::Error(io::Error::other(error))),
        };
        match file.try_lock() {
            Ok(()) => {}
            // Some file systems lock only writable files, so the state of the other user's lock is
            // unknown.
            Err(TryLockError::Error(_)) if !may_write => {
                return Err(TryLockError::Error(io::ErrorKind::PermissionDenied.into()));
            }
            Err(TryLockError::Error(error)) => {
                drop(fs::remove_file(path));
                return Err(TryLockError::Error(error));
            }
            Err(held) => return Err(held),
        }
        // The previous owner may have removed the file, and a third process may have created
        // another.
        if temporary::is_called(&file, path).map_err(TryLockError::Error)? {
            unfinished.files.push(absolute(path));
            return Ok(file);
        }
    }
    Err(TryLockError::Error(io::Error::other("the file is another each time")))
}

/// Removes one entry of a file from the list.
pub(crate) fn forget(path: &Path) {
    take_off(&mut locked(&UNFINISHED).files, &absolute(path));
}

/// Removes a temporary file, if it exists, and its entry in the list.
pub(crate) fn remove_file(path: &Path) {
    let mut unfinished = locked(&UNFINISHED);
    let _ = fs::remove_file(path);
    take_off(&mut unfinished.files, &absolute(path));
}

/// Creates a directory and adds it to the list.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    let mut unfinished = locked(&UNFINISHED);
    fs::create_dir(path)?;
    unfinished.directories.push(absolute(path));
    Ok(())
}

/// Removes a directory if it is empty, and its entry in the list.
pub(crate) fn remove_dir_if_empty(path: &Path) {
    let mut unfinished = locked(&UNFINISHED);
    let _ = fs::remove_dir(path);
    take_off(&mut unfinished.directories, &absolute(path));
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

fn take_off(list: &mut Vec<PathBuf>, path: &Path) {
    if let Some(at) = list.iter().rposition(|listed| listed == path) {
        list.remove(at);
    }
}

/// A new hidden file that only shows whether and when a directory can be written. It is removed
/// when this is dropped.
pub(super) struct Probe {
    pub path: PathBuf,
    /// Its lock tells other runs that it is in use.
    pub file: File,
}

impl Probe {
    /// Creates a file beside `path`, with the [temporary name] of `token`.
    ///
    /// [temporary name]: temporary_name
    pub fn beside(path: &Path, token: &str) -> io::Result<Self> {
        let path = temporary_name(path, token);
        let file = create_file(&path)?;
        Ok(Probe { path, file })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        remove_file(&self.path);
    }
}
