//! The file of a timeline, to which all ranks append.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use meshloom::io::{IoError, printable_path};

use super::locked;
use crate::terminal;

/// The end of the file, which the next events overwrite.
const END: &str = "\n]\n";

/// An open file, which is a complete JSON array between two calls.
pub struct TraceFile {
    path: PathBuf,
    file: Mutex<File>,
    /// Whether other processes append, too.
    is_shared: bool,
    has_failed: AtomicBool,
}

impl TraceFile {
    /// Creates an empty timeline, which replaces an older file.
    ///
    /// # Errors
    /// [`IoError`] if the file cannot be written.
    pub fn create(path: &Path, is_shared: bool) -> Result<Self, IoError> {
        let first = r#"{"name":"meshloom","ph":"i","s":"g","ts":0,"pid":0,"tid":0}"#;
        let create = || {
            let mut file = File::create(path)?;
            file.write_all(format!("[\n{first}{END}").as_bytes())?;
            Ok(file)
        };
        let file = create().map_err(|error| IoError::create(path, error))?;
        Ok(TraceFile { path: path.into(), file: Mutex::new(file), is_shared, has_failed: AtomicBool::new(false) })
    }

    /// Opens the file that rank 0 has created in another process.
    ///
    /// # Errors
    /// [`IoError`] if it is missing or cannot be written here.
    pub fn open(path: &Path) -> Result<Self, IoError> {
        let file = OpenOptions::new().write(true).open(path).map_err(|error| IoError::create(path, error))?;
        let (file, has_failed) = (Mutex::new(file), AtomicBool::new(false));
        Ok(TraceFile { path: path.into(), file, is_shared: true, has_failed })
    }

    /// Locks the file until the returned value is dropped.
    ///
    /// # Errors
    /// [`IoError`] if the file system has no locks.
    pub fn lock(&self) -> Result<FileLock<'_>, IoError> {
        let file = locked(&self.file);
        file.lock().map_err(|error| IoError::create(&self.path, error))?;
        drop(file);
        Ok(FileLock(self))
    }

    /// Checks that this process cannot lock the file while rank 0 has locked it.
    ///
    /// # Errors
    /// [`IoError`] if the file system has no locks that hold between ranks.
    pub fn check_locks(&self) -> Result<(), IoError> {
        let file = locked(&self.file);
        let error = match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(error)) => error,
            Ok(()) => {
                let _ = file.unlock();
                io::Error::other("file locks do not hold between ranks on this file system; choose another one")
            }
        };
        Err(IoError::create(&self.path, error))
    }

    /// Appends events, each of which begins with a comma. The first failure is a warning; all later
    /// calls do nothing.
    pub fn append(&self, events: &str) {
        if events.is_empty() || self.has_failed.load(Ordering::Relaxed) {
            return;
        }
        let appended = {
            let mut file = locked(&self.file);
            let held = if self.is_shared { file.lock() } else { Ok(()) };
            let appended = held.and_then(|()| append(&mut file, events));
            if self.is_shared {
                let _ = file.unlock();
            }
            appended
        };
        if let Err(error) = appended
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            let path = printable_path(&self.path);
            terminal::warn(&format!("{path}: the rest of the timeline could not be written ({error})"));
        }
    }
}

fn append(file: &mut File, events: &str) -> io::Result<()> {
    let whole = file.metadata()?.len();
    let end = whole.saturating_sub(END.len() as u64);
    file.seek(SeekFrom::Start(end))?;
    let written = file.write_all([events, END].concat().as_bytes());
    if written.is_err() {
        // The disk had room for the end before.
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        file.write_all(END.as_bytes())?;
    }
    written
}

/// The lock of a file.
pub struct FileLock<'a>(&'a TraceFile);

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        let _ = locked(&self.0.file).unlock();
    }
}
