//! Reading `.npz` archives, each rank its own parts of each array.

use std::path::Path;
use std::sync::Arc;

use super::input::Input;
use super::zip::{Entry, contents, entries, not_npz};
use super::{IoError, NpyFile};

/// An `.npz` archive of arrays on disk, as `numpy.savez` and [`NpzWriter`](super::NpzWriter) write it.
///
/// Opening reads the directory at the end of the file only. Every rank opens the file by itself; members are read as any
/// [`NpyFile`]. Compressed archives are an error: they cannot be read in parts.
#[derive(Debug)]
pub struct NpzFile {
    input: Arc<Input>,
    entries: Vec<Entry>,
}

impl NpzFile {
    /// Opens the file and reads its directory.
    ///
    /// # Errors
    /// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`, and
    /// `IoErrorKind::Format` with what is wrong with the archive.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, IoError> {
        let input = Input::open(path.as_ref())?;
        let entries = entries(&input)?;
        Ok(Self { input: Arc::new(input), entries })
    }

    /// The file's path, as it was given.
    pub fn path(&self) -> &Path {
        self.input.path()
    }

    /// Names of the arrays, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.strip_suffix(".npy").unwrap_or(&entry.name))
    }

    /// The array of this name.
    ///
    /// # Errors
    /// `IoErrorKind::Missing`, `IoErrorKind::Format` for a broken archive, `IoErrorKind::Format`, and what
    /// [`NpyFile::open`] says about a header.
    pub fn member(&self, name: &str) -> Result<NpyFile, IoError> {
        let Some(number) = self.names().position(|found| found == name) else {
            let found = self.names().collect::<Vec<_>>().join(", ");
            return Err(IoError::no_member(self.path(), name, found));
        };
        let entry = &self.entries[number];
        let range = self.contents(entry)?;
        NpyFile::within(self.input.clone(), self.path().join(&entry.name), range)
    }

    /// Reads all members and compares them with the CRCs in the archive, which other reads do not.
    ///
    /// # Errors
    /// `IoErrorKind::Format` with the first member that has changed since it was written; `IoErrorKind::Format`.
    pub fn check(&self) -> Result<(), IoError> {
        for entry in &self.entries {
            let mut hasher = crc32fast::Hasher::new();
            self.input.pieces(self.contents(entry)?, |piece| hasher.update(piece))?;
            if hasher.finalize() != entry.crc {
                let reason = format!("{} has changed since it was written; copy or write it again", entry.name);
                return Err(not_npz(&self.input, reason));
            }
        }
        Ok(())
    }

    /// The bytes of a member's contents.
    fn contents(&self, entry: &Entry) -> Result<std::ops::Range<u64>, IoError> {
        self.input.expect(self.input.len())?;
        contents(&self.input, entry)
    }
}
