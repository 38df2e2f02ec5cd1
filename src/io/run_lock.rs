//! The lock of a directory that one run at a time writes to.
//!
//! It is the system's lock on a hidden file, and ends with the process in any case. The owner or an
//! interrupt removes the file; the next run takes over the file of a killed process.
//!
//! On a file system without locks, a hidden file that names its owner claims the directory. The
//! owner writes it again each minute, its heartbeat. A claim without a heartbeat for ten minutes is
//! dead, and so is that of a killed process of this host: the next run takes it over.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::cleanup::{self, Probe};
use super::{IoError, IoErrorKind, Result, read_text, token};
use crate::host;

/// The hidden file in the directory.
const NAME: &str = ".meshloom.lock";
/// Time between two attempts to take the lock.
const BETWEEN: Duration = Duration::from_millis(100);

/// The hidden file that claims a directory on a file system without locks.
const CLAIM: &str = ".meshloom.claim";
/// Time between two heartbeats of a claim.
const BEAT: Duration = Duration::from_secs(60);
/// Time without a heartbeat after which a claim is dead.
const SILENCE: Duration = Duration::from_secs(600);

/// The lock of a directory; released when dropped.
#[derive(Debug)]
pub(super) struct RunLock {
    path: PathBuf,
    kind: LockKind,
}

#[derive(Debug)]
enum LockKind {
    /// Closed after the file is removed, which ends the lock.
    System {
        _file: File,
    },
    Claim(Heart),
}

impl RunLock {
    /// Takes the lock of a directory, which another run may hold for as long as `patience` lasts.
    /// On a file system without locks it claims the directory by a file with the owner's host,
    /// process, job and heartbeat instead. `None` for a directory that may not be written, of which
    /// the first output says more.
    ///
    /// # Errors
    /// - `IoErrorKind::InUse` if another run holds the lock.
    /// - `IoErrorKind::InUse` if another run claims the directory, with the owner of the claim.
    /// - `IoErrorKind::Write` for a lock of another user that can neither be read nor locked, or a
    ///   claim that cannot be written.
    pub fn take(directory: &Path, patience: Duration) -> Result<Option<Self>> {
        Self::take_by(cleanup::lock_file, directory, patience)
    }

    fn take_by(
        lock: impl Fn(&Path) -> Result<File, TryLockError>,
        directory: &Path,
        patience: Duration,
    ) -> Result<Option<Self>> {
        let (path, since) = (directory.join(NAME), Instant::now());
        loop {
            match lock(&path) {
                Ok(file) => return Ok(Some(RunLock { path, kind: LockKind::System { _file: file } })),
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

    /// Creates the claim of this process in place of a dead one.
    fn claim(directory: &Path) -> Result<Self> {
        let path = directory.join(CLAIM);
        let own = Owner::own().text();
        let create = || {
            let mut file = cleanup::create_file(&path)?;
            file.write_all(own.as_bytes()).map(|()| file)
        };
        let created = match create() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let text = read_text(&path, 4096).unwrap_or_default();
                let (owner, silence) = (Owner::from_text(&text), silence(&path));
                if !owner.as_ref().is_some_and(Owner::is_gone) && silence.is_none_or(|silence| silence < SILENCE) {
                    return Err(claimed(path, owner.as_ref(), silence));
                }
                // Of several runs that find a dead claim one moves it. The others fail to, or find
                // the claim of that run moved, and move it back.
                let left = directory.join(format!("{CLAIM}.{}", token()));
                let moved = fs::rename(&path, &left);
                if moved.is_ok() && read_text(&left, 4096).unwrap_or_default() != text {
                    let _ = fs::rename(&left, &path);
                } else if moved.is_ok() {
                    let _ = fs::remove_file(&left);
                }
                create()
            }
            created => created,
        };
        match created {
            Ok(file) => Ok(RunLock { kind: LockKind::Claim(Heart::start(file, path.clone(), own)?), path }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(claimed(path, None, None)),
            Err(source) => Err(IoError::create(path, source)),
        }
    }
}

/// Returns the time since the last heartbeat of a claim, by the clock of the file system, which all
/// hosts share.
fn silence(claim: &Path) -> Option<Duration> {
    let probe = Probe::beside(claim, &token()).ok()?;
    let now = probe.file.metadata().and_then(|data| data.modified()).ok()?;
    let beat = claim.metadata().and_then(|data| data.modified()).ok()?;
    now.duration_since(beat).ok()
}

/// Creates the error of a directory that `owner` claims by the file `path`.
fn claimed(path: PathBuf, owner: Option<&Owner>, silence: Option<Duration>) -> IoError {
    let owner = owner.map_or_else(|| "another process".into(), Owner::describe);
    let beat = silence.map(|silence| format!(" (last heartbeat {} s ago)", silence.as_secs())).unwrap_or_default();
    let message = format!(
        "{owner} is writing in this directory{beat}; wait until it has ended, or give another directory; a claim \
         without a heartbeat for {} minutes is taken over",
        SILENCE.as_secs() / 60
    );
    IoError::new(IoErrorKind::InUse, path, message)
}

/// The thread that writes the heartbeats of a claim.
#[derive(Debug)]
struct Heart {
    /// The text of the claim.
    own: String,
    /// The thread, which ends when the sender is dropped.
    beats: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Heart {
    fn start(mut file: File, path: PathBuf, own: String) -> Result<Self> {
        let ((sender, end), text, claim) = (mpsc::channel(), own.clone(), path.clone());
        let beat = move || {
            while end.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                if read_text(&claim, 4096).is_ok_and(|found| found != text) {
                    tracing::error!(claim = %claim.display(), "another run has taken over the directory");
                    return;
                }
                if let Err(error) = file.rewind().and_then(|()| file.write_all(text.as_bytes())) {
                    tracing::warn!(claim = %claim.display(), %error, "no heartbeat could be written");
                }
            }
        };
        let thread = thread::Builder::new().name("heartbeat".into()).spawn(beat);
        let thread = thread.map_err(|source| IoError::create(path, source))?;
        Ok(Heart { own, beats: Some((sender, thread)) })
    }
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
    /// The number of its batch job; empty without one.
    job: String,
    /// A string that no other claim has.
    token: String,
}

impl Owner {
    fn own() -> Self {
        let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let kernel = host::kernel().map(|kernel| format!("{kernel:x}")).unwrap_or_default();
        Owner {
            host: host::name().unwrap_or_else(|| "unknown".into()),
            scope: format!("{kernel} {}", processes.display()),
            process: std::process::id(),
            job: host::job().unwrap_or_default(),
            token: token(),
        }
    }

    fn text(&self) -> String {
        let Owner { host, scope, process, job, token } = self;
        format!("{host}\n{scope}\n{process}\n{job}\n{token}\n")
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(String::from);
        let (host, scope, process) = (lines.next()?, lines.next()?, lines.next()?.parse().ok()?);
        Some(Owner { host, scope, process, job: lines.next()?, token: lines.next()? })
    }

    /// Returns `true` if the process was one of this host and no longer exists.
    fn is_gone(&self) -> bool {
        let processes = Path::new("/proc");
        self.scope == Owner::own().scope
            && processes.join("self").exists()
            && !processes.join(self.process.to_string()).exists()
    }

    fn describe(&self) -> String {
        let job = if self.job.is_empty() { String::new() } else { format!(" (job {})", self.job) };
        format!("process {} on host {}{job}", self.process, self.host)
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if let LockKind::Claim(heart) = &mut self.kind {
            if let Some((sender, thread)) = heart.beats.take() {
                drop(sender);
                // Its file must be closed: some network file systems keep an open one.
                let _ = thread.join();
            }
            if read_text(&self.path, 4096).is_ok_and(|found| found != heart.own) {
                // Another run has taken it over.
                return cleanup::forget(&self.path);
            }
        }
        cleanup::remove_file(&self.path);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::SystemTime;

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
        assert!([&process, CLAIM, "last heartbeat 0 s ago"].iter().all(|part| text.contains(*part)), "{text}");
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
    fn a_dead_claim_is_taken_over() {
        let scratch = Scratch::new();
        let path = scratch.path().join(CLAIM);
        let claim = |text: &str, age: Duration| {
            fs::write(&path, text).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        };
        let take = || RunLock::take_by(no_locks, scratch.path(), Duration::ZERO);
        let [now, old] = [Duration::ZERO, SILENCE + Duration::from_secs(5)];
        // A killed process of this host. Process numbers end below 2^22.
        let gone = Owner { process: 1 << 30, ..Owner::own() };
        claim(&gone.text(), now);
        drop(take().unwrap());
        assert!(scratch.names().is_empty());
        // One of another host is dead without heartbeats only.
        let other = Owner { scope: "another".into(), host: "node7".into(), job: "4711".into(), ..gone };
        claim(&other.text(), now);
        let error = take().unwrap_err();
        let text = error.to_string();
        assert!(error.kind == IoErrorKind::InUse && text.contains("on host node7 (job 4711)"), "{text}");
        claim(&other.text(), old);
        drop(take().unwrap());
        // A claim whose owner has not written it yet, and one that was never written.
        claim("", now);
        assert!(take().unwrap_err().to_string().contains("another process is writing in this directory"));
        claim("", old);
        let held = take().unwrap().unwrap();
        // The former owner wakes up again: it leaves the claim of the new one.
        let former = Owner { token: "former".into(), ..Owner::own() };
        let file = File::open(&path).unwrap();
        let kind = LockKind::Claim(Heart::start(file, path.clone(), former.text()).unwrap());
        drop(RunLock { path: path.clone(), kind });
        assert_eq!(scratch.names(), [CLAIM]);
        drop(held);
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
        assert_eq!(Owner::from_text(&other.text()), Some(other));
    }
}
