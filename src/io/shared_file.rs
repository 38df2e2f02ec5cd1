//! One output file that many ranks write and that appears only when it is complete.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::path::{Path, PathBuf};

use super::{IoError, IoErrorKind, Result, cleanup, temporary, temporary_name, token};
use crate::timeline;

/// One output file that ranks write together, at byte offsets.
///
/// - The file is written under a hidden temporary name in the final directory. Rank 0's
///   [`finish`](Self::finish) renames it. Until then an older file of the final name stays, so an
///   output may replace an input. The older file must be writable, and the new file gets its
///   permissions.
/// - Rank 0 calls [`create`](Self::create), all others [`open`](Self::open), with the same path and
///   token.
/// - Ranges of different ranks must not overlap. Bytes that no rank writes are zero.
/// - The caller synchronizes: a barrier after `create`, and one between the others' `finish` and
///   rank 0's.
/// - Dropping rank 0's unfinished value removes the temporary file; dropping another rank's does
///   not. The next [`create`](Self::create) of the same path removes the temporary files of a
///   killed run.
#[derive(Debug)]
pub struct SharedFile {
    /// `None` only during `seal` and `drop`: Windows renames and removes only closed files.
    file: Option<File>,
    /// On the rank that created the file, until it is renamed: keeps the lock that tells other runs
    /// that the file is in use.
    lock: Option<File>,
    path: PathBuf,
    temporary: PathBuf,
    total_bytes: u64,
    creator: bool,
}

impl SharedFile {
    /// Creates the temporary file of `total_bytes` bytes and writes `header` at its start. Called
    /// by rank 0.
    ///
    /// `token` makes the temporary name unique; see [`token`]. A symbolic link at `path` is
    /// followed.
    ///
    /// # Errors
    /// `IoErrorKind::FileType` if a directory, pipe, device or open file (`/dev/stdout`) has the
    /// name; `IoErrorKind::InUse` if the token was used before; `IoErrorKind::Write` if the
    /// directory or an older file is not writable, or the disk is full. Nothing is left behind
    /// after an error.
    pub fn create(path: impl AsRef<Path>, total_bytes: u64, header: &[u8], token: &str) -> Result<Self> {
        let path = destination(path.as_ref())?;
        let _activity = timeline::activity!("create file", file = %path.display());
        let older = older_permissions(&path)?;
        temporary::remove_of(&path);
        let temporary = temporary_name(&path, token);
        let file = cleanup::create_file(&temporary).map_err(|e| IoError::create_temporary(&path, &temporary, e))?;
        let mut shared = Self::begin(file, path, temporary, older)?;
        shared.total_bytes = total_bytes;
        shared.file()?.set_len(total_bytes).map_err(|e| shared.write_error(e))?;
        shared.write_at(0, header)?;
        Ok(shared)
    }

    /// Same as [`create`](Self::create), but `make` creates the file at the temporary path. It must
    /// give the file its full length, close it, not overwrite a file, and take little time, since
    /// interrupts wait for it.
    #[cfg(feature = "hdf5")]
    pub(super) fn create_by(path: &Path, token: &str, mut make: impl FnMut(&Path) -> Result<()>) -> Result<Self> {
        let path = destination(path)?;
        let older = older_permissions(&path)?;
        let temporary = temporary_name(&path, token);
        if temporary.exists() {
            return Err(IoError::exists(&temporary));
        }
        temporary::remove_of(&path);
        let file = cleanup::make_file(&path, &temporary, || make(&temporary))?;
        let mut shared = Self::begin(file, path, temporary, older)?;
        shared.total_bytes = shared.file()?.metadata().map_err(|e| shared.write_error(e))?.len();
        Ok(shared)
    }

    /// Takes a new file, which dropping the value removes. Keeps its lock while it is closed for
    /// renaming, and gives it the permissions of the older one that it will replace, before it has
    /// contents.
    fn begin(file: File, path: PathBuf, temporary: PathBuf, older: Option<Permissions>) -> Result<Self> {
        let mut shared = Self { file: Some(file), lock: None, path, temporary, total_bytes: 0, creator: true };
        // Other systems have no lock, and cannot rename an open file.
        if cfg!(unix) {
            shared.lock = Some(shared.file()?.try_clone().map_err(|e| shared.write_error(e))?);
        }
        if let Some(permissions) = older {
            shared.file()?.set_permissions(permissions).map_err(|e| shared.write_error(e))?;
        }
        Ok(shared)
    }

    /// Opens the temporary file that rank 0 has created. Called by all other ranks, after a
    /// barrier.
    ///
    /// # Errors
    /// `IoErrorKind::FileType`, and `IoErrorKind::Write` if the file is missing or not
    /// writable here: the ranks do not share a file system, or rank 0 has failed.
    pub fn open(path: impl AsRef<Path>, token: &str) -> Result<Self> {
        let path = destination(path.as_ref())?;
        let temporary = temporary_name(&path, token);
        let opened = cleanup::open_file(&temporary).and_then(|file| Ok((file.metadata()?.len(), file)));
        match opened {
            Ok((total_bytes, file)) => {
                Ok(Self { file: Some(file), lock: None, path, temporary, total_bytes, creator: false })
            }
            Err(source) => {
                let reason = format!("the file begun by rank 0 cannot be opened by another rank ({source})");
                Err(IoError::create(path, io::Error::other(reason)))
            }
        }
    }

    /// Returns the final path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the whole file in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Writes all of `bytes` at `offset`, counted from the start of the file (header included).
    /// Threads may call it at the same time for disjoint ranges.
    ///
    /// # Errors
    /// `IoErrorKind::Misuse` beyond the end of the file, `IoErrorKind::Write` if not all could be
    /// written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.total_bytes) {
            let end = end.unwrap_or(u64::MAX);
            return Err(IoError::range(&self.path, offset..end, self.total_bytes));
        }
        let _activity = timeline::activity!("write file", file = %self.path.display(), bytes = bytes.len());
        write_all_at(self.file()?, bytes, offset).map_err(|e| self.write_error(e))
    }

    /// Flushes this rank's bytes to the disk; on rank 0 the file then gets its final name.
    ///
    /// Every rank must call it, rank 0 after a barrier that follows the others' calls.
    ///
    /// # Errors
    /// `IoErrorKind::Write` if the bytes do not reach the disk (some file systems report a full
    /// disk only now) or the file cannot be renamed. On rank 0 the temporary file is then removed.
    pub fn finish(self) -> Result<()> {
        self.seal()?.publish()
    }

    /// Flushes this rank's bytes to the disk, the first half of [`finish`](Self::finish);
    /// [`Sealed::publish`] is the second.
    ///
    /// # Errors
    /// Same as [`finish`](Self::finish).
    pub fn seal(mut self) -> Result<Sealed> {
        let _activity = timeline::activity!("flush file", file = %self.path.display());
        self.file()?.sync_all().map_err(|e| self.write_error(e))?;
        drop(self.file.take());
        Ok(Sealed { file: self })
    }

    /// Removes the temporary file, also on ranks that did not create it. Use it before a rank ends
    /// its process on an error.
    pub fn abandon(mut self) {
        self.creator = true;
    }

    fn file(&self) -> Result<&File> {
        // `None` does not occur here (see the field), but an error is better than a panic.
        self.file.as_ref().ok_or_else(|| self.write_error(io::Error::other("closed already")))
    }

    fn write_error(&self, source: io::Error) -> IoError {
        IoError::write(&self.path, self.total_bytes, source)
    }
}

/// A file whose bytes are on the disk, still under its temporary name.
///
/// Files that belong together are sealed one by one and published at the end, so that an error in
/// one of them leaves no file behind. On ranks other than 0, publishing does nothing.
#[derive(Debug)]
#[must_use = "a file that is not published is removed"]
pub struct Sealed {
    file: SharedFile,
}

impl Sealed {
    /// Returns the temporary path, at which any rank may read the file.
    #[must_use]
    pub fn temporary(&self) -> &Path {
        &self.file.temporary
    }

    /// Gives the file its final name. Rank 0 must call it after a barrier that follows the others'
    /// sealing.
    ///
    /// # Errors
    /// `IoErrorKind::Write` if the file cannot be renamed; the temporary file is then removed.
    pub fn publish(mut self) -> Result<()> {
        let file = &mut self.file;
        let _activity = timeline::activity!("publish file", file = %file.path.display());
        if file.creator {
            fs::rename(&file.temporary, &file.path).map_err(|e| file.write_error(e))?;
            sync_directory(&file.path);
            tracing::debug!(path = %file.path.display(), bytes = file.total_bytes, "file written");
        }
        // From here on, dropping `file` must not remove the file.
        file.creator = false;
        Ok(())
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        drop(self.file.take());
        if self.creator {
            cleanup::remove_file(&self.temporary);
        } else {
            cleanup::forget(&self.temporary);
        }
    }
}

/// Writes a small file, which appears under its final name complete or not at all. Called by one
/// rank.
///
/// # Errors
/// Same as [`SharedFile::create`].
pub fn write_whole(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    seal_whole(path, bytes)?.publish()
}

/// Writes a small file that gets its name only by [`Sealed::publish`].
///
/// # Errors
/// Same as [`write_whole`].
pub fn seal_whole(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Sealed> {
    SharedFile::create(path, bytes.len() as u64, bytes, &token())?.seal()
}

/// Returns the path to write to: follows links, and refuses paths that cannot be files.
fn destination(path: &Path) -> Result<PathBuf> {
    if path.as_os_str() == "-" {
        return Err(IoError::output_is_dash());
    }
    if path.file_name().is_none() {
        return Err(IoError::not_a_file(path));
    }
    // Renaming over a link would replace the link, and over a device (/dev/null) would replace the
    // device.
    match fs::metadata(path) {
        Ok(found) if !found.is_file() || is_open_file(path) => Err(IoError::not_a_file(path)),
        Ok(_) if path.is_symlink() => fs::canonicalize(path).map_err(|e| IoError::create_temporary(path, path, e)),
        // A link to a file that does not exist yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            let target = fs::read_link(path).map_err(|e| IoError::create_temporary(path, path, e))?;
            destination(&path.parent().unwrap_or(Path::new("")).join(target))
        }
        // A link that leads back to itself.
        Err(error) if path.is_symlink() => Err(IoError::create_temporary(path, path, error)),
        _ => Ok(path.to_path_buf()),
    }
}

/// Returns `true` if an existing path leads to an open file of a process (`/dev/stdout`,
/// `/proc/self/fd/3`), which the process would go on writing after a rename.
fn is_open_file(path: &Path) -> bool {
    let parent = path.parent().unwrap_or(Path::new(""));
    let listed = parent.canonicalize().is_ok_and(|parent| parent.starts_with("/proc") && parent.ends_with("fd"));
    listed || fs::read_link(path).is_ok_and(|target| is_open_file(&parent.join(target)))
}

/// Checks before the work that an existing file at `path` may be replaced.
///
/// # Errors
/// `IoErrorKind::Write` if it is write-protected, `IoErrorKind::FileType` as in
/// [`SharedFile::create`].
pub fn check_replaceable(path: impl AsRef<Path>) -> Result<()> {
    older_permissions(&destination(path.as_ref())?).map(drop)
}

/// Returns the permissions of the file at `path`, if it exists. A write-protected file is an error:
/// renaming needs only the permissions of the directory, and would replace it.
fn older_permissions(path: &Path) -> Result<Option<Permissions>> {
    // Opening asks the system for permission to write, and without truncation changes nothing.
    match OpenOptions::new().write(true).open(path).and_then(|file| file.metadata()) {
        Ok(found) => Ok(Some(found.permissions())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.is_file() => {
            let message =
                "is there already and may not be written; make it writable (chmod u+w) or choose another name";
            Err(IoError::new(IoErrorKind::Write, path, message))
        }
        Err(error) => Err(IoError::create_temporary(path, path, error)),
    }
}

/// Flushes the directory entry of the new name to the disk. A failure is ignored, since the
/// contents are safe.
fn sync_directory(path: &Path) {
    #[cfg(unix)]
    if let Some(parent) = path.parent() {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let _ = File::open(parent).and_then(|directory| directory.sync_all());
    }
    #[cfg(not(unix))]
    let _ = path;
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::scratch::Scratch;

    #[test]
    fn an_older_file_stays_until_the_new_one_is_whole() {
        let scratch = Scratch::new();
        let path = scratch.path().join("out");
        fs::write(&path, b"old").unwrap();
        let file = SharedFile::create(&path, 3, b"new", "t").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(scratch.names(), ["out"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_has_the_permissions_of_the_older_one() {
        use std::os::unix::fs::PermissionsExt;

        let scratch = Scratch::new();
        let (path, link) = (scratch.path().join("out"), scratch.path().join("link"));
        std::os::unix::fs::symlink("out", &link).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        write_whole(&path, b"first").unwrap();
        for wanted in [0o600, 0o640, 0o755, 0o666] {
            fs::set_permissions(&path, Permissions::from_mode(wanted)).unwrap();
            let file = SharedFile::create(&link, 3, b"", "t").unwrap();
            // Contents must not become readable for more users than before.
            assert_eq!(mode(&file.temporary), wanted);
            SharedFile::open(&link, "t").unwrap().write_at(0, b"new").unwrap();
            file.finish().unwrap();
            assert_eq!((mode(&path), fs::read(&path).unwrap()), (wanted, b"new".to_vec()));
        }
        check_replaceable(&path).unwrap();
        check_replaceable(scratch.path().join("none")).unwrap();
        assert!(
            matches!(check_replaceable(scratch.path()), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
        );
    }

    #[test]
    fn a_used_token_is_an_error_and_harms_nobody() {
        let scratch = Scratch::new();
        let path = scratch.path().join("out");
        let first = SharedFile::create(&path, 3, b"one", "t").unwrap();
        assert!(
            matches!(SharedFile::create(&path, 3, b"two", "t"), Err(IoError { kind: IoErrorKind::InUse, ref message, .. }) if message.contains("exists already"))
        );
        first.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }

    #[test]
    fn a_sealed_file_has_no_name_until_it_is_published() {
        let scratch = Scratch::new();
        let path = scratch.path().join("out");
        drop(seal_whole(&path, b"one").unwrap());
        assert!(scratch.names().is_empty());
        let sealed = seal_whole(&path, b"two").unwrap();
        assert!(!path.exists());
        sealed.publish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), scratch.names()), (b"two".to_vec(), vec!["out".to_string()]));
    }

    #[test]
    fn writing_past_the_end_is_refused() {
        let scratch = Scratch::new();
        let file = SharedFile::create(scratch.path().join("out"), 8, b"", "t").unwrap();
        assert!(
            matches!(file.write_at(7, b"ab"), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
        );
        assert!(
            matches!(file.write_at(u64::MAX, b"ab"), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
        );
        file.write_at(8, b"").unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_devices_refused() {
        let scratch = Scratch::new();
        let (target, link) = (scratch.path().join("target"), scratch.path().join("link"));
        fs::write(&target, b"old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
        // Links to links to a file that is not there yet, and one that leads to itself.
        let [first, second, circle] = ["first", "second", "circle"].map(|name| scratch.path().join(name));
        for (to, from) in [("second", &first), ("later", &second), ("circle", &circle)] {
            std::os::unix::fs::symlink(to, from).unwrap();
        }
        write_whole(&first, b"later").unwrap();
        assert!(first.is_symlink() && second.is_symlink());
        assert_eq!(fs::read(scratch.path().join("later")).unwrap(), b"later");
        assert!(write_whole(&circle, b"x").is_err() && circle.is_symlink());
        assert!(
            matches!(write_whole("/dev/null", b"x"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
        );
        assert!(
            matches!(write_whole(scratch.path(), b"x"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
        );
        assert!(
            matches!(write_whole("-", b"x"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("standard output"))
        );
        assert!(
            matches!(write_whole(scratch.path().join("no/such"), b"x"), Err(IoError { kind: IoErrorKind::Write, ref message, .. }) if message.contains("cannot be created"))
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_that_processes_have_open_are_not_replaced_by_their_numbers() {
        use std::os::fd::AsRawFd;

        let scratch = Scratch::new();
        let (path, link) = (scratch.path().join("out"), scratch.path().join("link"));
        fs::write(&path, b"said").unwrap();
        let open = File::open(&path).unwrap();
        std::os::unix::fs::symlink(format!("/dev/fd/{}", open.as_raw_fd()), &link).unwrap();
        let pid = std::process::id();
        for place in [format!("/dev/fd/{}", open.as_raw_fd()), format!("/proc/{pid}/fd/{}", open.as_raw_fd())] {
            assert!(
                matches!(write_whole(place, b"new"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
            );
        }
        assert!(
            matches!(check_replaceable(&link), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
        );
        assert_eq!(fs::read(&path).unwrap(), b"said");
    }

    #[test]
    fn abandoning_removes_on_any_rank_and_dropping_only_on_the_first() {
        let scratch = Scratch::new();
        let path = scratch.path().join("out");
        let first = SharedFile::create(&path, 3, b"", "t").unwrap();
        drop(SharedFile::open(&path, "t").unwrap());
        assert_eq!(scratch.names().len(), 1);
        SharedFile::open(&path, "t").unwrap().abandon();
        assert!(scratch.names().is_empty());
        assert!(
            matches!(SharedFile::open(&path, "t"), Err(IoError { kind: IoErrorKind::Write, ref message, .. }) if message.contains("cannot be created"))
        );
        drop(first);
    }
}
