//! HDF5 files that many ranks write at the same time, without parallel HDF5.
//!
//! Rank 0 has the HDF5 library create the file with attributes and contiguous datasets, whose byte
//! offsets the library assigns at once. Then all ranks write their rows at these offsets.

use std::io;
use std::path::Path;

use hdf5_metno::Error;
use hdf5_metno::file::File as Hdf5File;

use super::{DatasetSpec, Hdf5Contents, queries};
use crate::io::{IoError, IoErrorKind, Member, NpyElement, Result, Sealed, SharedFile};

/// One HDF5 file of contiguous datasets that ranks write together, each its own rows.
///
/// - Rank 0 calls [`create`](Self::create), the others [`open`](Self::open) after a barrier, with
///   the same contents; all write disjoint rows and seal.
///   [`seal_hdf5`](crate::io::collective::seal_hdf5) does all of this.
/// - Equal contents and values give equal files, on any number of ranks.
/// - Rows that no rank writes are zero.
///
/// ```
/// use meshloom::io::{hdf5::{FilePart, Hdf5Contents, Hdf5Writer, Snapshot, SnapshotInfo, SnapshotRows}, token};
/// # fn main() -> Result<(), meshloom::io::IoError> {
/// let path = std::env::temp_dir().join(format!("meshloom-doc-{}.hdf5", token()));
/// let info = SnapshotInfo { count: 2, box_size: 10.0, scale_factor: 0.5, omega_m: 0.3, omega_b: 0.05, h: 0.7, omega_r: 0.0, dark_energy: [-1.0, 0.0] };
/// let contents = Hdf5Contents::Snapshot { info: &info, part: FilePart::whole(&info) };
/// let writer = Hdf5Writer::create(&path, &contents, &token())?;
/// let rows = SnapshotRows { positions: &[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], velocities: &[[0.0; 3]; 2], ids: &[0, 1] };
/// rows.write(&writer, 0)?;
/// writer.seal()?.publish()?;
///
/// let snapshot = Snapshot::open(&path)?;
/// assert_eq!((snapshot.count(), snapshot.box_size()), (2, Some([10.0; 3])));
/// assert_eq!(snapshot.positions_f32(1..2)?, [4.0, 5.0, 6.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Hdf5Writer {
    file: SharedFile,
    datasets: Vec<DatasetSpec>,
    /// Byte offset of each dataset.
    offsets: Vec<u64>,
}

impl Hdf5Writer {
    /// Creates the file with everything but the values of its datasets. Called by one rank.
    ///
    /// # Errors
    /// `IoErrorKind::FileType`, `IoErrorKind::Write`, `IoErrorKind::InUse` if the token was used
    /// before, `IoErrorKind::ElementType` for elements other than real numbers and integers of 4 or
    /// 8 bytes, `IoErrorKind::Shape` if no file could hold the datasets. Nothing is left behind
    /// after an error.
    pub fn create(path: impl AsRef<Path>, contents: &Hdf5Contents, token: &str) -> Result<Self> {
        let (path, datasets) = (path.as_ref(), contents.datasets());
        let bytes = checked_bytes(path, &datasets)?;
        let mut offsets = Vec::new();
        let file = SharedFile::create_by(path, token, |temporary| {
            offsets.clear();
            let mut make = || {
                let file = Hdf5File::create_excl(temporary)?;
                contents.describe(&file)?;
                for dataset in &datasets {
                    offsets.push(dataset.create(&file)?);
                }
                file.close()
            };
            make().map_err(|error| create_error(path, bytes, &error))
        })?;
        Ok(Self { file, datasets, offsets })
    }

    /// Opens the file that rank 0 has created, with rank 0's [`offsets`](Self::offsets). Called by
    /// all other ranks, after a barrier.
    ///
    /// # Errors
    /// `IoErrorKind::Write` if the file is not visible here: the ranks do not share a file system,
    /// or rank 0 has failed; `IoErrorKind::Shape` for another number of offsets than of datasets.
    pub fn open(path: impl AsRef<Path>, contents: &Hdf5Contents, token: &str, offsets: &[u64]) -> Result<Self> {
        let (path, datasets) = (path.as_ref(), contents.datasets());
        if offsets.len() != datasets.len() {
            let wanted = format!("one offset for each of {} datasets", datasets.len());
            return Err(IoError::shape(path, vec![offsets.len() as u64], wanted));
        }
        // Not opened as HDF5, since the library would lock the file.
        Ok(Self { file: SharedFile::open(path, token)?, datasets, offsets: offsets.to_vec() })
    }

    /// Returns the byte offsets of the datasets, which the other ranks need to [`open`](Self::open)
    /// the file.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Writes elements of a dataset, by its number, from element `first` on.
    ///
    /// # Errors
    /// `IoErrorKind::ElementType` for elements of another type, `IoErrorKind::Misuse` beyond the
    /// end of the dataset, `IoErrorKind::Write`.
    pub fn write<T: NpyElement>(&self, dataset: usize, first: u64, elements: &[T]) -> Result<()> {
        let (dataset, offset) = (&self.datasets[dataset], self.offsets[dataset]);
        if dataset.member.descr != T::DESCR {
            return Err(element_type(self.path(), &dataset.member, T::DESCR, dataset.member.descr));
        }
        let len = dataset.len().unwrap_or(0);
        let end = first.saturating_add(elements.len() as u64);
        if end > len {
            return Err(IoError::range(self.path(), first..end, len));
        }
        if elements.is_empty() {
            return Ok(());
        }
        // The dataset has this machine's byte order, which the file states.
        self.file.write_at(offset + first * size_of::<T>() as u64, bytemuck::cast_slice::<T, u8>(elements))
    }

    /// Same as [`write`](Self::write), from row `first` on.
    pub(super) fn write_rows<T: NpyElement>(&self, dataset: usize, first: u64, elements: &[T]) -> Result<()> {
        self.write(dataset, first.saturating_mul(self.datasets[dataset].row_len()), elements)
    }

    /// Checks that as many rows are given for each of the datasets as for the first.
    pub(super) fn check_rows(&self, rows: &[usize]) -> Result<()> {
        let Some(other) = rows.iter().position(|len| *len != rows[0]) else { return Ok(()) };
        let short = |name: &str| name.rsplit('/').next().unwrap_or_default().to_string();
        let reason = format!("has {} rows, but there are {} positions", rows[other], rows[0]);
        let name = short(&self.datasets[other].member.name);
        Err(IoError::column(self.path(), name, reason))
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Flushes this rank's part to the disk. The file gets its name by [`Sealed::publish`], on the
    /// rank that created it.
    ///
    /// # Errors
    /// `IoErrorKind::Write`.
    pub fn seal(self) -> Result<Sealed> {
        self.file.seal()
    }
}

fn element_type(path: &Path, member: &Member, found: &str, wanted: &str) -> IoError {
    let name = &member.name;
    let message = format!("array `{name}`: expected elements of {wanted}, got {found}; convert the values");
    IoError::new(IoErrorKind::ElementType, path, message)
}

/// Returns the bytes of all datasets. Checks types, and that the directory exists: the library's
/// own error would say little about it.
fn checked_bytes(path: &Path, datasets: &[DatasetSpec]) -> Result<u64> {
    const TYPES: [&str; 6] = ["<f4", "<f8", "<i4", "<i8", "<u4", "<u8"];
    if let Some(DatasetSpec { member, .. }) = datasets.iter().find(|set| !TYPES.contains(&set.member.descr)) {
        let wanted = "float32, float64, int32, int64, uint32 or uint64";
        return Err(element_type(path, member, member.descr, wanted));
    }
    let bytes = datasets
        .iter()
        .try_fold(0u64, |sum, dataset| sum.checked_add(dataset.len()?.checked_mul(dataset.member.element_bytes)?));
    let Some(bytes) = bytes.filter(|&bytes| i64::try_from(bytes).is_ok()) else {
        let found = datasets.first().map(|dataset| dataset.member.shape.clone()).unwrap_or_default();
        return Err(IoError::shape(path, found, "one that fits a file"));
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::metadata(parent) {
        Ok(found) if !found.is_dir() => Err(IoError::create(path, io::ErrorKind::NotADirectory.into())),
        Ok(_) => Ok(bytes),
        Err(source) => Err(IoError::create(path, source)),
    }
}

/// Returns the library's error with only the operating system's reason, if it names one: the rest
/// (a time, an address in memory, the temporary name) means nothing to a user.
fn create_error(path: &Path, bytes: u64, error: &Error) -> IoError {
    let path = path.to_path_buf();
    match system_error(&error.to_string()).filter(|_| queries::lock_remedy(error).is_empty()) {
        Some(source) => IoError::write(path, bytes, source),
        None => {
            let reason = format!("the HDF5 library says: {error}{}", queries::lock_remedy(error));
            IoError::create(path, io::Error::other(reason))
        }
    }
}

/// Returns the operating system's error that the library's text names.
fn system_error(text: &str) -> Option<io::Error> {
    let number = text.split_once("errno = ")?.1;
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    number[..digits].parse().ok().filter(|_| cfg!(unix)).map(io::Error::from_raw_os_error)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_systems_reason_is_found_in_the_librarys_words() {
        let words =
            "unable to extend file: file write failed: time = Sun\n, errno = 27, error message = 'File too large'";
        assert_eq!(system_error(words).map(|error| error.kind()), Some(io::ErrorKind::FileTooLarge));
        assert!(system_error("unable to create group").is_none() && system_error("errno = ?").is_none());
    }
}
