//! The lock of a directory that one run at a time writes to.
//!
//! It is the system's lock on a hidden file, and ends with the process in any case. The owner or an
//! interrupt removes the file; the next run takes over the file of a killed process.
//!
//! On a file system without locks, a hidden file that names its owner claims the directory. The
//! next run on the same host takes over the claim of a killed process; on another host, a user must
//! remove it.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{IoError, IoErrorKind, cleanup, read_text, token};
use crate::host;

/// The hidden file in the directory.
const NAME: &str = ".meshloom.lock";
/// Time between two attempts to take the lock.
const BETWEEN: Duration = Duration::from_millis(100);

/// The hidden file that claims a directory on a file system without locks.
const CLAIM: &str = ".meshloom.claim";

/// The lock of a directory; released when dropped.
#[derive(Debug)]
pub(super) struct RunLock {
    path: PathBuf,
    /// Closed after the file is removed, which ends the lock; `None` for a claim.
    _file: Option<File>,
}

impl RunLock {
    /// Takes the lock of a directory, which another run may hold for as long as `patience` lasts.
    /// On a file system without locks it claims the directory by a file with the owner's host and
    /// process instead. `None` for a directory that may not be written, of which the first output
    /// says more.
    ///
    /// # Errors
    /// - `IoErrorKind::InUse` if another run holds the lock.
    /// - `IoErrorKind::InUse` if another run claims the directory, or was killed on another host.
    /// - `IoErrorKind::Write` for a lock of another user that can neither be read nor locked, or a
    ///   claim that cannot be written.
    pub fn take(directory: &Path, patience: Duration) -> Result<Option<Self>, IoError> {
        Self::take_by(cleanup::lock_file, directory, patience)
    }

    fn take_by(
        lock: impl Fn(&Path) -> Result<File, TryLockError>,
        directory: &Path,
        patience: Duration,
    ) -> Result<Option<Self>, IoError> {
        let (path, since) = (directory.join(NAME), Instant::now());
        loop {
            match lock(&path) {
                Ok(file) => return Ok(Some(RunLock { path, _file: Some(file) })),
                Err(TryLockError::WouldBlock) if since.elapsed() < patience => sleep(BETWEEN),
                Err(TryLockError::WouldBlock) => {
                    let message = "another run is writing there, and two would mix their files; wait until it has \
                                   ended, or give another directory";
                    return Err(IoError::new(IoErrorKind::InUse, directory, message));
                }
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(IoError::create(path, error));
                }
                // The system refuses the lock itself, not the file.
                Err(TryLockError::Error(error)) if error.raw_os_error().is_some() => {
                    tracing::debug!(path = %path.display(), %error, "no locks: a claim instead");
                    match Self::claim(directory) {
                        Err(IoError { kind: IoErrorKind::InUse, .. }) if since.elapsed() < patience => sleep(BETWEEN),
                        claimed => return claimed.map(Some),
                    }
                }
                Err(TryLockError::Error(error)) => {
                    tracing::debug!(path = %path.display(), %error, "no lock on a directory");
                    return Ok(None);
                }
            }
        }
    }

    /// Creates the claim of this process; replaces one that a killed process of this host has left.
    fn claim(directory: &Path) -> Result<Self, IoError> {
        let path = directory.join(CLAIM);
        let create = || cleanup::create_file(&path).and_then(|mut file| file.write_all(Owner::own().text().as_bytes()));
        let created = match create() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let text = read_text(&path, 4096).unwrap_or_default();
                let owner = Owner::from_text(&text);
                if !owner.as_ref().is_some_and(Owner::is_gone) {
                    let owner = owner.map_or_else(|| "an unknown process".into(), |owner| owner.describe());
                    return Err(claimed(path, &owner));
                }
                // Only one of several runs that find the claim can rename it.
                let left = directory.join(format!("{CLAIM}.{}", token()));
                match fs::rename(&path, &left) {
                    Ok(()) => drop(fs::remove_file(&left)),
                    Err(_) => return Err(claimed(path, "another run")),
                }
                create()
            }
            created => created,
        };
        match created {
            Ok(()) => Ok(RunLock { path, _file: None }),
            Err(source) => Err(IoError::create(path, source)),
        }
    }
}

/// Creates the error of a directory that `owner` claims by the file `path`.
fn claimed(path: PathBuf, owner: &str) -> IoError {
    let message = format!(
        "{owner} is writing in this directory, or was killed; wait until it has ended, give another directory, or \
         remove this file if no run is left (the file system has no locks that would show it)"
    );
    IoError::new(IoErrorKind::InUse, path, message)
}

/// The process that claims a directory.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    /// The name of its host.
    host: String,
    /// The scope of its process number: the running kernel and, in a container, the process
    /// namespace.
    scope: String,
    process: u32,
}

impl Owner {
    fn own() -> Self {
        let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let kernel = host::kernel().map(|kernel| format!("{kernel:x}")).unwrap_or_default();
        Owner {
            host: host::name().unwrap_or_else(|| "unknown".into()),
            scope: format!("{kernel} {}", processes.display()),
            process: std::process::id(),
        }
    }

    fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.host, self.scope, self.process)
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut next = || lines.next().map(String::from);
        let (host, scope) = (next()?, next()?);
        Some(Owner { host, scope, process: next()?.parse().ok()? })
    }

    /// Returns `true` if the process was one of this host and no longer exists.
    fn is_gone(&self) -> bool {
        let processes = Path::new("/proc");
        self.scope == Owner::own().scope
            && processes.join("self").exists()
            && !processes.join(self.process.to_string()).exists()
    }

    fn describe(&self) -> String {
        format!("process {} on host {}", self.process, self.host)
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        cleanup::remove_file(&self.path);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::io::scratch::Scratch;

    /// Fails like a file system without locks.
    fn no_locks(_: &Path) -> Result<File, TryLockError> {
        const ENOLCK: i32 = 37;
        Err(TryLockError::Error(std::io::Error::from_raw_os_error(ENOLCK)))
    }

    #[test]
    fn without_locks_a_claim_keeps_others_out() {
        let scratch = Scratch::new();
        let take = || RunLock::take_by(no_locks, scratch.path(), Duration::ZERO);
        let first = take().unwrap();
        assert_eq!(scratch.names(), [CLAIM]);
        let text = take().unwrap_err().to_string();
        let process = format!("process {} on host", std::process::id());
        assert!([&process, CLAIM, "remove this file"].iter().all(|part| text.contains(*part)), "{text}");
        // A run that was refused leaves the claim, and one that waits begins when the first ends.
        let second = std::thread::scope(|scope| {
            let waits = scope.spawn(|| RunLock::take_by(no_locks, scratch.path(), Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(150));
            drop(first);
            waits.join().unwrap().unwrap()
        });
        assert!(take().is_err());
        drop(second);
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn a_claim_of_a_killed_process_is_taken_over_on_its_host_only() {
        let scratch = Scratch::new();
        let claim = |owner: &Owner| fs::write(scratch.path().join(CLAIM), owner.text()).unwrap();
        // Process numbers end below 2^22.
        let gone = Owner { process: 1 << 30, ..Owner::own() };
        let take = || RunLock::take_by(no_locks, scratch.path(), Duration::ZERO);
        claim(&gone);
        drop(take().unwrap());
        assert!(scratch.names().is_empty());
        claim(&Owner { scope: "another".into(), host: "node7".into(), ..gone });
        assert!(take().unwrap_err().to_string().contains("on host node7"));
        // A claim whose owner has not written it yet.
        fs::write(scratch.path().join(CLAIM), "").unwrap();
        assert!(
            matches!(take(), Err(IoError { kind: IoErrorKind::InUse, ref message, .. }) if message.contains("is writing in this directory"))
        );
        assert_eq!(Owner::from_text(&Owner::own().text()), Some(Owner::own()));
    }
}
