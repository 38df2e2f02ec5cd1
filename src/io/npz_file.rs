//! Reading of `.npz` archives, each rank its own parts of each array.

use std::path::Path;
use std::sync::Arc;

use super::npy::Mapped;
use super::zip::{Entry, contents, entries};
use super::{IoError, NpyFile};

/// A memory-mapped `.npz` archive of arrays, as `numpy.savez` and [`NpzWriter`](super::NpzWriter) write it.
///
/// Opening reads the directory at the end of the file only. Every rank opens the file by itself; all said about
/// [`NpyFile`] holds for the members. Compressed archives are refused: they cannot be read in parts.
#[derive(Debug)]
pub struct NpzFile {
    mapped: Arc<Mapped>,
    entries: Vec<Entry>,
}

impl NpzFile {
    /// Opens the file and reads its directory.
    ///
    /// # Errors
    /// [`IoError::InputIsDash`], [`IoError::NotFound`], [`IoError::NotAFile`], [`IoError::Read`], and
    /// [`IoError::NotNpz`] with what is wrong with the archive.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, IoError> {
        let mapped = Mapped::open(path.as_ref())?;
        mapped.expect(mapped.bytes().len() as u64)?;
        let entries = entries(mapped.bytes()).map_err(|reason| not_npz(&mapped, reason))?;
        Ok(Self { mapped: Arc::new(mapped), entries })
    }

    /// The file's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.mapped.path
    }

    /// Names of the arrays, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.strip_suffix(".npy").unwrap_or(&entry.name))
    }

    /// The array of this name.
    ///
    /// # Errors
    /// [`IoError::NoMember`], [`IoError::NotNpz`] for a broken archive, [`IoError::Truncated`], and what
    /// [`NpyFile::open`] says about a header.
    pub fn member(&self, name: &str) -> Result<NpyFile, IoError> {
        let Some(number) = self.names().position(|found| found == name) else {
            let found = self.names().collect::<Vec<_>>().join(", ");
            return Err(IoError::NoMember { path: self.mapped.path.clone(), name: name.to_string(), found });
        };
        let entry = &self.entries[number];
        self.mapped.expect(self.mapped.bytes().len() as u64)?;
        let range = contents(self.mapped.bytes(), entry).map_err(|reason| not_npz(&self.mapped, reason))?;
        NpyFile::within(self.mapped.clone(), self.mapped.path.join(&entry.name), range)
    }

    /// Reads all members and compares them with the CRCs that the archive holds, which reading does not do by itself.
    ///
    /// # Errors
    /// [`IoError::NotNpz`] with the first member that has changed since it was written; [`IoError::Truncated`].
    pub fn check(&self) -> Result<(), IoError> {
        let bytes = self.mapped.bytes();
        self.mapped.expect(bytes.len() as u64)?;
        for entry in &self.entries {
            let range = contents(bytes, entry).map_err(|reason| not_npz(&self.mapped, reason))?;
            if crc32fast::hash(&bytes[range.start as usize..range.end as usize]) != entry.crc {
                let reason = format!("{} has changed since it was written; copy or write it again", entry.name);
                return Err(not_npz(&self.mapped, reason));
            }
        }
        Ok(())
    }
}

fn not_npz(mapped: &Mapped, reason: String) -> IoError {
    IoError::NotNpz { path: mapped.path.clone(), reason }
}
