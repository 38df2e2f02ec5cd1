//! Removal of unfinished files, however a program ends.
//!
//! Every temporary file and every directory made for an output is noted in a list of this process while it is
//! unfinished. Dropping its owner clears it away; where destructors do not run, [`remove_all`] or the interrupt handler
//! (`install_interrupt_handler`, feature `cli`) does. What is left of a process that was killed, the next one clears away
//! that writes there.

#[cfg(feature = "cli")]
mod interrupt;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "hdf5")]
use super::IoError;
use super::leftover;
#[cfg(feature = "cli")]
pub use interrupt::{install_interrupt_handler, silence_interrupt_message};

/// What is unfinished, in the order it was made. A path stands here once for each of its owners in this process (ranks
/// that are threads share the list), as absolute paths, since the working directory may change.
struct Unfinished {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished { files: Vec::new(), directories: Vec::new() });

impl Unfinished {
    fn lock() -> MutexGuard<'static, Self> {
        // A panic elsewhere is the very time this list is needed.
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&mut self) -> usize {
        let removed = self.files.drain(..).filter(|path| fs::remove_file(path).is_ok()).count();
        // Innermost first; one that holds anything is not ours to remove, and stays.
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

/// Removes the temporary files in `directory` that killed runs on this host have left, never those of runs that are
/// alive. Where that cannot be told (file systems without locks, Windows) they stay.
pub fn clear_leftovers(directory: impl AsRef<Path>) {
    leftover::remove_in(directory.as_ref());
}

/// Creates a new temporary file. Creating and noting are one step under the lock, so that an interrupt misses nothing.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut unfinished = Unfinished::lock();
    let file = loop {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        if leftover::lock(&file, path) {
            break file;
        }
    };
    unfinished.files.push(absolute(path));
    Ok(file)
}

/// Has the temporary file of `output` made by `make`, which another library writes by its path, and notes it, all in one
/// step. `make` must be short: an interrupt waits for it. It is called again if another run took the file for a dead one,
/// in the moment in which nobody held it.
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
            if leftover::lock(&file, temporary) { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
        });
        file.map_err(|source| IoError::Create { path: output.to_path_buf(), source })
    };
    let remove = || drop(fs::remove_file(temporary));
    let made = once().or_else(|_| {
        remove();
        once()
    });
    if made.is_err() {
        remove();
        strike(&mut unfinished.files, &absolute(temporary));
    }
    made
}

/// Opens a temporary file that another rank has created, and notes it here too: that rank's process may be gone first.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let mut unfinished = Unfinished::lock();
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    unfinished.files.push(absolute(path));
    Ok(file)
}

/// Strikes a file once from the list: one of its owners is done with it.
pub(crate) fn forget(path: &Path) {
    strike(&mut Unfinished::lock().files, &absolute(path));
}

/// Removes a temporary file (which may be gone already) and strikes it.
pub(crate) fn remove_file(path: &Path) {
    let mut unfinished = Unfinished::lock();
    let _ = fs::remove_file(path);
    strike(&mut unfinished.files, &absolute(path));
}

/// Makes one directory and notes it.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    let mut unfinished = Unfinished::lock();
    fs::create_dir(path)?;
    unfinished.directories.push(absolute(path));
    Ok(())
}

/// Strikes a directory, and removes it if it is empty.
pub(crate) fn remove_dir_if_empty(path: &Path) {
    let mut unfinished = Unfinished::lock();
    let _ = fs::remove_dir(path);
    strike(&mut unfinished.directories, &absolute(path));
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

fn strike(list: &mut Vec<PathBuf>, path: &Path) {
    if let Some(at) = list.iter().rposition(|noted| noted == path) {
        list.remove(at);
    }
}
