//! The directory that a command writes its files to, and its stripes on Lustre.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cleanup::{self, Probe};
use super::run_lock::RunLock;
use super::{IoError, IoErrorKind, Result, temporary, token};
use crate::timeline;

/// A directory to write to, created if it does not exist.
///
/// - Rank 0 creates it; the others need only a barrier afterwards.
/// - Dropping the value removes the directories it created **if they are still empty**, as after an
///   error. Keep it until the first file is written.
#[derive(Debug)]
pub struct OutputDir {
    path: PathBuf,
    /// The directories that were created, outermost first.
    created: Vec<PathBuf>,
    lock: Option<RunLock>,
}

/// Time that [`OutputDir::lock`] waits for another run to end: a continued job may start while the
/// previous one writes its last file.
const PATIENCE: Duration = Duration::from_secs(5);

impl OutputDir {
    /// Creates the directory and its missing parents, checks that files can be written there, and
    /// removes the temporary files of killed runs.
    ///
    /// # Errors
    /// `IoErrorKind::FileType` if a file or a link to nothing has the name of the directory or of a
    /// parent; `IoErrorKind::Write` if it cannot be created or written to. Nothing is left behind
    /// after an error.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let _activity = timeline::activity!("create directory", file = %path.display());
        if path.as_os_str() == "-" {
            return Err(IoError::output_is_dash());
        }
        // Built one directory at a time, so that dropping it on an error removes the created ones.
        let mut directory = Self { path: path.to_path_buf(), created: Vec::new(), lock: None };
        let mut levels: Vec<&Path> = path.ancestors().filter(|level| !level.as_os_str().is_empty()).collect();
        levels.reverse();
        for level in levels {
            if level.is_dir() {
                continue;
            }
            match cleanup::create_dir(level) {
                Ok(()) => directory.created.push(level.to_path_buf()),
                Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => {
                    let path = level.to_path_buf();
                    if level.is_symlink() && !level.exists() {
                        let message = "is a link that leads nowhere, but a directory is needed; make what it points to, or \
                                       give another name";
                        return Err(IoError::new(IoErrorKind::FileType, path, message));
                    }
                    // Another program may have just created it.
                    if !level.is_dir() {
                        return Err(IoError::not_a_directory(path));
                    }
                }
                Err(source) => return Err(IoError::create(path, source)),
            }
        }
        // A path in the directory, since the remedy in the error names the parent.
        directory.probe().map_err(|source| IoError::create(path.join("*"), source))?;
        temporary::remove_in(path);
        Ok(directory)
    }

    /// Creates a file that is removed when it is dropped.
    fn probe(&self) -> io::Result<Probe> {
        Probe::beside(&self.join("meshloom"), &token())
    }

    /// Keeps other runs from writing here until the value is dropped or the process ends, since two
    /// runs would mix their files. Rank 0 does it for all ranks. The lock is on a hidden file,
    /// `.meshloom.lock`, which exists meanwhile. A killed process leaves the file, and the next run
    /// takes it over. On a file system without locks, a file `.meshloom.claim` with the owner's
    /// host, process and job takes its place, which the owner writes again each minute. The next
    /// run takes it over after ten minutes without a heartbeat, and that of a killed process of the
    /// same host at once.
    ///
    /// # Errors
    /// `IoErrorKind::InUse` if another run holds the lock and does not end within some seconds;
    /// those of [`create`](Self::create).
    pub fn lock(self) -> Result<Self> {
        self.lock_within(PATIENCE)
    }

    fn lock_within(mut self, patience: Duration) -> Result<Self> {
        self.lock = RunLock::take(&self.path, patience)?;
        if self.path.is_dir() {
            return Ok(self);
        }
        // The other run had created the directory, and has removed it after a failure.
        Self::create(&self.path)?.lock_within(patience)
    }

    /// Returns the number of storage targets that a new file in the directory is spread over, on
    /// Lustre; `None` on other file systems, and for layouts that change with the size of the file.
    #[must_use]
    pub fn stripes(&self) -> Option<u16> {
        // The layout of a directory is a default that files may not have.
        let probe = self.probe().ok()?;
        stripes(&probe.path)
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        // The file of the lock is in the directory.
        self.lock = None;
        for directory in self.created.iter().rev() {
            cleanup::remove_dir_if_empty(directory);
        }
    }
}

/// Magic number of Lustre in `statfs`.
#[cfg(target_os = "linux")]
const LUSTRE: i64 = 0x0BD0_0BD0;

/// Returns the number of storage targets that the bytes of the file at `path` are spread over;
/// `None` except on Lustre, and for layouts that change with the size of the file.
#[cfg(target_os = "linux")]
fn stripes(path: &Path) -> Option<u16> {
    use std::ffi::CString;
    use std::mem;
    use std::os::unix::ffi::OsStrExt;

    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path ends with a zero, and zeros are a valid `statfs`.
    let found = unsafe {
        let mut found: libc::statfs = mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut found) == 0).then_some(found)
    }?;
    if found.f_type as i64 != LUSTRE {
        return None;
    }
    let mut layout = [0_u8; 4096];
    // SAFETY: both names end with a zero, and the call writes at most the length of `layout`.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), c"lustre.lov".as_ptr(), layout.as_mut_ptr().cast(), layout.len()) };
    stripes_of_layout(layout.get(..usize::try_from(length).ok()?)?)
}

#[cfg(not(target_os = "linux"))]
fn stripes(_: &Path) -> Option<u16> {
    None
}

/// Reads the number of stripes in a plain layout (`lov_user_md_v1` and `_v3` of Lustre): magic,
/// pattern, 16 bytes of object, stripe size, stripe count.
#[cfg(target_os = "linux")]
fn stripes_of_layout(layout: &[u8]) -> Option<u16> {
    const PLAIN: [u32; 2] = [0x0BD1_0BD0, 0x0BD3_0BD0];
    let magic = u32::from_le_bytes(*layout.first_chunk()?);
    let count = u16::from_le_bytes(*layout.get(28..)?.first_chunk()?);
    PLAIN.contains(&magic).then_some(count)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::io::scratch::Scratch;

    #[test]
    fn parents_are_made_and_an_unused_directory_goes_again() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a/b/c");
        let directory = OutputDir::create(&path).unwrap();
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        let again = OutputDir::create(&path).unwrap();
        drop(again);
        assert!(path.is_dir());
        drop(directory);
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn a_used_directory_stays() {
        let scratch = Scratch::new();
        let directory = OutputDir::create(scratch.path().join("out")).unwrap();
        fs::write(directory.join("file"), b"x").unwrap();
        drop(directory);
        assert!(scratch.path().join("out/file").exists());
    }

    #[test]
    fn one_run_at_a_time_has_a_directory() {
        let scratch = Scratch::new();
        let path = scratch.path().join("run");
        let directory = || OutputDir::create(&path).unwrap();
        // A killed process leaves the file like this.
        let left = directory();
        fs::write(path.join(".meshloom.lock"), b"").unwrap();
        let first = directory().lock().unwrap();
        match directory().lock_within(Duration::ZERO) {
            Err(error @ IoError { kind: IoErrorKind::InUse, .. }) => {
                let text = error.to_string();
                assert!(text.contains("run: another run") && text.contains("give another directory"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        // The refused run has removed nothing, and a waiting run begins when the first ends.
        assert!(path.join(".meshloom.lock").exists());
        let second = std::thread::scope(|scope| {
            let waits = scope.spawn(|| directory().lock());
            std::thread::sleep(Duration::from_millis(150));
            drop(first);
            waits.join().unwrap().unwrap()
        });
        assert!(
            matches!(directory().lock_within(Duration::ZERO), Err(IoError { kind: IoErrorKind::InUse, ref message, .. }) if message.contains("another run is writing"))
        );
        drop(second);
        drop(left);
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    }

    #[cfg(unix)]
    #[test]
    fn links_to_nothing_are_named() {
        let scratch = Scratch::new();
        let [dead, circle] = ["dead", "circle"].map(|name| scratch.path().join(name));
        std::os::unix::fs::symlink("nothing", &dead).unwrap();
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        for (path, link) in [(dead.clone(), &dead), (circle.join("below"), &circle)] {
            match OutputDir::create(&path) {
                Err(IoError { path, message, .. }) => {
                    assert!(path == *link && message.contains("a link that leads nowhere"))
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn files_in_the_way_are_named_and_nothing_is_left() {
        let scratch = Scratch::new();
        let file = scratch.path().join("file");
        fs::write(&file, b"x").unwrap();
        for path in [file.clone(), file.join("below"), file.join("far/below")] {
            match OutputDir::create(&path) {
                Err(IoError { path, message, .. }) => {
                    assert!(path.starts_with(&file) && message.contains("is a file, but"), "{message}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(scratch.names(), ["file"]);
        assert!(
            matches!(OutputDir::create("-"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("standard output"))
        );
        let long = scratch.path().join("new").join("x".repeat(5000));
        assert!(
            matches!(OutputDir::create(long), Err(IoError { kind: IoErrorKind::Write, ref message, .. }) if message.contains("cannot be created"))
        );
        assert_eq!(scratch.names(), ["file"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn plain_layouts_have_a_number_of_stripes() {
        let layout = |magic: u32, count: u16| {
            let mut bytes = [0_u8; 56];
            bytes[..4].copy_from_slice(&magic.to_le_bytes());
            bytes[24..28].copy_from_slice(&(1_u32 << 20).to_le_bytes());
            bytes[28..30].copy_from_slice(&count.to_le_bytes());
            stripes_of_layout(&bytes)
        };
        assert_eq!([layout(0x0BD1_0BD0, 1), layout(0x0BD3_0BD0, 16)], [Some(1), Some(16)]);
        // A progressive layout grows with the file.
        assert_eq!([layout(0x0BD6_0BD0, 1), stripes_of_layout(&[0; 3]), stripes(&std::env::temp_dir())], [None; 3]);
    }
}
