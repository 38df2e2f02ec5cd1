//! The lock of a directory that one run at a time writes to.
//!
//! It is the system's lock on a hidden file, which ends with the process however that ends. The file goes with its owner and on an interrupt; one that
//! a killed process has left is taken over by the next run.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{IoError, cleanup};

/// The hidden file in the directory.
const NAME: &str = ".meshloom.lock";
/// Between two looks whether the other run has ended.
const BETWEEN: Duration = Duration::from_millis(100);

/// Dropping it lets other runs in.
#[derive(Debug)]
pub(super) struct RunLock {
    path: PathBuf,
    /// The lock ends when this is closed, after the file has lost its name.
    _file: File,
}

impl RunLock {
    /// Takes the lock of a directory, which another run may hold for as long as `patience` lasts. None where it cannot be had at all: some file systems
    /// of networks have no locks, and that is no reason not to run; nor is a directory that may not be written, of which the first output says more.
    ///
    /// # Errors
    /// [`IoError::InUse`]; [`IoError::Create`] for a lock of another user that can neither be read nor locked.
    pub fn take(directory: &Path, patience: Duration) -> Result<Option<Self>, IoError> {
        let (path, since) = (directory.join(NAME), Instant::now());
        loop {
            match cleanup::lock_file(&path) {
                Ok(file) => return Ok(Some(RunLock { path, _file: file })),
                Err(TryLockError::WouldBlock) if since.elapsed() < patience => sleep(BETWEEN),
                Err(TryLockError::WouldBlock) => return Err(IoError::InUse { path: directory.into() }),
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(IoError::Create { path, source: error });
                }
                Err(TryLockError::Error(error)) => {
                    tracing::debug!(path = %path.display(), %error, "no lock on a directory");
                    return Ok(None);
                }
            }
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        cleanup::remove_file(&self.path);
    }
}
