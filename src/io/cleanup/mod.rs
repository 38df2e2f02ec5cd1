//! Removal of unfinished files, however a program ends.
//!
//! Temporary files and directories made for outputs are in a list of this process while they are unfinished. Dropping their
//! owner removes them; where destructors do not run, [`remove_all`] does, and in the handler of a signal [`remove_and_block`].
//! The files of a killed process are removed by the next one that writes there.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

#[cfg(feature = "hdf5")]
use super::IoError;
use super::temporary;

/// Unfinished files and directories in the order of creation, as absolute paths, since the working directory may change. A
/// path is here once for each of its owners in this process: ranks that are threads share the list.
#[derive(Debug)]
struct Unfinished {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished { files: Vec::new(), directories: Vec::new() });

impl Unfinished {
    fn lock() -> MutexGuard<'static, Self> {
        // The list is needed most after a panic.
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock`](Self::lock), but returns `None` where another thread holds the lock or this one does.
    fn try_lock() -> Option<MutexGuard<'static, Self>> {
        match UNFINISHED.try_lock() {
            Ok(unfinished) => Some(unfinished),
            Err(TryLockError::Poisoned(unfinished)) => Some(unfinished.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn remove(&mut self) -> usize {
        let removed = self.files.drain(..).filter(|path| fs::remove_file(path).is_ok()).count();
        // Innermost first; a directory that is not empty stays.
        let directories = self.directories.drain(..).rev();
        removed + directories.filter(|path| fs::remove_dir(path).is_ok()).count()
    }
}

/// Removes all unfinished files of this process, and the directories it made that are still empty.
///
/// To be called before ending a process without destructors (`std::process::exit`, `MPI_Abort`). Writers that are still
/// in use fail afterwards. Returns how many files and directories were removed; what cannot be removed is left.
pub fn remove_all() -> usize {
    Unfinished::lock().remove()
}

/// As long as it lives no thread of this process creates or publishes an output.
#[derive(Debug)]
#[must_use = "threads create files again when it is dropped"]
pub struct BlockedOutputs(#[expect(dead_code, reason = "held")] MutexGuard<'static, Unfinished>);

/// Removes all unfinished files like [`remove_all`], and blocks every thread that creates or publishes one.
///
/// For a process that ends while ranks are at work on other threads. Blocks until no other thread is changing the list of
/// unfinished files.
pub fn remove_and_block() -> BlockedOutputs {
    block(Unfinished::lock())
}

/// Removes and blocks like [`remove_and_block`]; returns `None` if the list of unfinished files is locked, by this thread
/// or by another.
///
/// Allocates no memory for files whose path has at most 383 bytes.
pub fn try_remove_and_block() -> Option<BlockedOutputs> {
    Unfinished::try_lock().map(block)
}

fn block(mut unfinished: MutexGuard<'static, Unfinished>) -> BlockedOutputs {
    unfinished.remove();
    BlockedOutputs(unfinished)
}

/// Removes the temporary files in `directory` of killed runs on this host, but not those of running ones. Where these cannot
/// be told apart (file systems without locks, Windows) all files stay.
pub fn clear_leftovers(directory: impl AsRef<Path>) {
    temporary::remove_in(directory.as_ref());
}

/// Creates a temporary file and adds it to the list, both under the lock, so that an interrupt misses no file.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut unfinished = Unfinished::lock();
    let file = loop {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        if temporary::lock(&file, path) {
            break file;
        }
    };
    unfinished.files.push(absolute(path));
    Ok(file)
}

/// Has `make` create the temporary file of `output` by its path, with another library, and adds it to the list, both under
/// the lock. `make` must take little time, as interrupts wait for it. It is called again if another run has removed the file
/// before it was locked.
#[cfg(feature = "hdf5")]
pub(crate) fn make_file(
    output: &Path,
    temporary: &Path,
    mut make: impl FnMut() -> Result<(), IoError>,
) -> Result<File, IoError> {
    let mut unfinished = Unfinished::lock();
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

/// Opens a temporary file that another rank has created and adds it to the list here, too: the process of that rank may end
/// first.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let mut unfinished = Unfinished::lock();
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    unfinished.files.push(absolute(path));
    Ok(file)
}

/// Opens a file, which is made if there is none, locks it for this process alone, and adds it to the list, all under the lock of the list: an
/// interrupt removes no file that another process has locked. Another user's, which may only be read, is locked as well. Where files cannot be locked none is left.
///
/// An error of the kind `PermissionDenied` is of a file that is there and can be had in neither way.
pub(crate) fn lock_file(path: &Path) -> Result<File, fs::TryLockError> {
    let mut unfinished = Unfinished::lock();
    for _ in 0..8 {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let (file, may_write) = match open {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.exists() => {
                (File::open(path).map_err(fs::TryLockError::Error)?, false)
            }
            // A directory that may not be written, too: nothing is said of a file that is not there.
            Err(error) => return Err(fs::TryLockError::Error(io::Error::other(error))),
        };
        match file.try_lock() {
            Ok(()) => {}
            // Some file systems lock only what may be written: whether the other user has it is not to be known then.
            Err(fs::TryLockError::Error(_)) if !may_write => {
                return Err(fs::TryLockError::Error(io::ErrorKind::PermissionDenied.into()));
            }
            Err(fs::TryLockError::Error(error)) => {
                drop(fs::remove_file(path));
                return Err(fs::TryLockError::Error(error));
            }
            Err(held) => return Err(held),
        }
        // Whoever had the lock may have removed the file meanwhile, and a third process have made another.
        if temporary::is_called(&file, path).map_err(fs::TryLockError::Error)? {
            unfinished.files.push(absolute(path));
            return Ok(file);
        }
    }
    Err(fs::TryLockError::Error(io::Error::other("the file is another each time")))
}

/// Takes a file off the list, once: one of its owners is done with it.
pub(crate) fn forget(path: &Path) {
    take_off(&mut Unfinished::lock().files, &absolute(path));
}

/// Removes a temporary file, which may be gone already, and takes it off the list.
pub(crate) fn remove_file(path: &Path) {
    let mut unfinished = Unfinished::lock();
    let _ = fs::remove_file(path);
    take_off(&mut unfinished.files, &absolute(path));
}

/// Creates a directory and adds it to the list.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    let mut unfinished = Unfinished::lock();
    fs::create_dir(path)?;
    unfinished.directories.push(absolute(path));
    Ok(())
}

/// Removes a directory if it is empty, and takes it off the list.
pub(crate) fn remove_dir_if_empty(path: &Path) {
    let mut unfinished = Unfinished::lock();
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
