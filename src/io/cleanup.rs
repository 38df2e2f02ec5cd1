//! Removal of unfinished files, however a program ends.
//!
//! Every temporary file and every directory made for an output is noted in a list of this process while it is
//! unfinished. Dropping its owner clears it away; where destructors do not run, [`remove_all`] or the interrupt handler
//! (`install_interrupt_handler`, feature `cli`) does.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Creates a new temporary file. Creating and noting are one step under the lock, so that an interrupt misses nothing.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut unfinished = Unfinished::lock();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    unfinished.files.push(absolute(path));
    Ok(file)
}

/// Has a temporary file made by `make`, which another library writes by its path, and notes it, all in one step. `make`
/// must be short: an interrupt waits for it.
#[cfg(feature = "hdf5")]
pub(crate) fn make_file<E>(path: &Path, make: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let mut unfinished = Unfinished::lock();
    unfinished.files.push(absolute(path));
    let made = make();
    if made.is_err() {
        let _ = fs::remove_file(path);
        strike(&mut unfinished.files, &absolute(path));
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

#[cfg(feature = "cli")]
pub use interrupt::{install_interrupt_handler, silence_interrupt_message};

#[cfg(feature = "cli")]
mod interrupt {
    use std::io::{IsTerminal, Write};
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::Unfinished;
    use crate::io::IoError;

    static SILENT: AtomicBool = AtomicBool::new(false);

    /// Makes an interrupt (SIGINT, SIGTERM, SIGHUP; Ctrl-C) remove what is unfinished, say so once on standard error, and
    /// end the process with exit status 1. For programs; a library's user may have handlers of their own.
    ///
    /// Calling it again does nothing. Under MPI every process installs it; all but one call
    /// [`silence_interrupt_message`].
    ///
    /// # Errors
    /// [`IoError::Handler`] if the system refuses or the program already has such a handler.
    pub fn install_interrupt_handler() -> Result<(), IoError> {
        static INSTALLED: Once = Once::new();
        let mut result = Ok(());
        INSTALLED.call_once(|| {
            result = ctrlc::set_handler(|| {
                // The lock is held to the end, so that no rank makes another file meanwhile.
                let mut unfinished = Unfinished::lock();
                unfinished.remove();
                if !SILENT.load(Ordering::Relaxed) {
                    let mut stderr = std::io::stderr();
                    // A progress bar may stand on this line of a terminal.
                    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
                    let _ = writeln!(stderr, "{clear}meshloom: interrupted; unfinished files were removed");
                }
                exit_now();
            })
            .map_err(|e| IoError::Handler { reason: e.to_string() });
        });
        result
    }

    /// Leaves the message to another process: for all MPI ranks but one.
    pub fn silence_interrupt_message() {
        SILENT.store(true, Ordering::Relaxed);
    }

    /// Ends without destructors of C libraries: a GPU driver's would run while the ranks' threads still use it.
    fn exit_now() -> ! {
        #[cfg(unix)]
        {
            unsafe extern "C" {
                fn _exit(status: std::ffi::c_int) -> !;
            }
            // SAFETY: POSIX's function, which takes any status and does not return.
            unsafe { _exit(1) }
        }
        #[cfg(not(unix))]
        std::process::exit(1)
    }
}
