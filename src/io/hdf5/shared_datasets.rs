//! HDF5 files whose datasets many ranks write at the same time, without parallel HDF5.
//!
//! Rank 0 has the HDF5 library make the file with attributes and contiguous datasets, to which the library assigns their
//! byte offsets at once. Then all ranks write their own rows at these offsets, as into any [`SharedFile`].

use std::io;
use std::path::Path;

use hdf5_metno::dataset::{AllocTime, FillTime};
use hdf5_metno::file::File as Hdf5File;
use hdf5_metno::{Error, H5Type};

use super::units::Quantity;
use super::{SnapshotInfo, attributes};
use crate::io::{IoError, NpyElement, Sealed, SharedFile};

/// The type of the numbers in a dataset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NumberKind {
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
}

impl NumberKind {
    fn bytes(self) -> u64 {
        match self {
            NumberKind::F32 | NumberKind::I32 | NumberKind::U32 => 4,
            NumberKind::F64 | NumberKind::I64 | NumberKind::U64 => 8,
        }
    }
}

/// A dataset of a file.
#[derive(Clone, Debug)]
pub(super) struct DatasetSpec {
    /// Its name, with that of the group it is in before a `/`.
    pub name: String,
    pub kind: NumberKind,
    pub shape: Vec<u64>,
    /// What it is and in which unit, where the file says so.
    pub quantity: Option<(Quantity, SnapshotInfo)>,
    /// Further attributes with their numbers, for who creates it.
    pub attributes: Vec<(String, Vec<f64>)>,
}

impl DatasetSpec {
    /// A dataset of rows of `width` numbers (1: it has one axis) in a group; `info` for who creates it.
    pub fn table(
        [group, name]: [&str; 2],
        kind: NumberKind,
        [rows, width]: [u64; 2],
        quantity: Quantity,
        info: Option<&SnapshotInfo>,
    ) -> Self {
        let shape = if width == 1 { vec![rows] } else { vec![rows, width] };
        DatasetSpec {
            name: format!("{group}/{name}"),
            kind,
            shape,
            quantity: info.map(|info| (quantity, *info)),
            attributes: Vec::new(),
        }
    }

    /// Creates it; returns the byte offset at which it begins.
    fn create(&self, file: &Hdf5File) -> hdf5_metno::Result<u64> {
        if let Some((group, _)) = self.name.rsplit_once('/').filter(|(group, _)| !file.link_exists(group)) {
            file.create_group(group)?;
        }
        match self.kind {
            NumberKind::F32 => self.create_as::<f32>(file),
            NumberKind::F64 => self.create_as::<f64>(file),
            NumberKind::I32 => self.create_as::<i32>(file),
            NumberKind::I64 => self.create_as::<i64>(file),
            NumberKind::U32 => self.create_as::<u32>(file),
            NumberKind::U64 => self.create_as::<u64>(file),
        }
    }

    fn create_as<T: H5Type>(&self, file: &Hdf5File) -> hdf5_metno::Result<u64> {
        let builder = file.new_dataset::<T>();
        let builder = builder.no_chunk().alloc_time(Some(AllocTime::Early)).fill_time(FillTime::Never);
        // Without times of writing, so that equal particles make equal files.
        let builder = builder.obj_track_times(false);
        let shape: Vec<usize> = self.shape.iter().map(|&n| n as usize).collect();
        let dataset = builder.shape(shape).create(self.name.as_str())?;
        if let Some((quantity, info)) = &self.quantity {
            attributes::describe(&dataset, quantity, info)?;
        }
        for (name, values) in &self.attributes {
            attributes::list(&dataset, name, values)?;
        }
        match dataset.offset() {
            Some(offset) => Ok(offset),
            // Empty datasets have no offset.
            None if self.len() == Some(0) => Ok(0),
            None => Err(Error::from("a dataset has no offset in the file")),
        }
    }

    /// Numbers; none for more than can be.
    fn len(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n))
    }
}

/// A file with contiguous datasets, of which each rank writes its own rows.
#[derive(Debug)]
pub(super) struct SharedDatasets {
    file: SharedFile,
    datasets: Vec<DatasetSpec>,
    /// Byte offset of each of them.
    offsets: Vec<u64>,
}

impl SharedDatasets {
    /// Creates the file with `datasets` and what `describe` adds. Called by rank 0.
    pub fn create(
        path: &Path,
        token: &str,
        datasets: Vec<DatasetSpec>,
        describe: impl Fn(&Hdf5File) -> hdf5_metno::Result<()>,
    ) -> Result<Self, IoError> {
        let bytes = checked_bytes(path, &datasets)?;
        let mut offsets = Vec::new();
        let file = SharedFile::create_by(path, token, |temporary| {
            offsets.clear();
            let mut make = || {
                let file = Hdf5File::create_excl(temporary)?;
                describe(&file)?;
                for dataset in &datasets {
                    offsets.push(dataset.create(&file)?);
                }
                file.close()
            };
            make().map_err(|error| create_error(path, bytes, &error))
        })?;
        Ok(Self { file, datasets, offsets })
    }

    /// Opens the file that rank 0 has created, whose datasets begin at `offsets`. Called by all other ranks, after a barrier.
    /// It is not opened as HDF5, since the library would lock it.
    pub fn open(path: &Path, token: &str, datasets: Vec<DatasetSpec>, offsets: &[u64]) -> Result<Self, IoError> {
        if offsets.len() != datasets.len() {
            let wanted = format!("one offset for each of {} datasets", datasets.len());
            return Err(IoError::Shape { path: path.to_path_buf(), found: vec![offsets.len() as u64], wanted });
        }
        Ok(Self { file: SharedFile::open(path, token)?, datasets, offsets: offsets.to_vec() })
    }

    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Writes numbers of dataset number `dataset` from row `first` on. `T` is the type of its kind.
    pub fn write<T: NpyElement>(&self, dataset: usize, first: u64, numbers: &[T]) -> Result<(), IoError> {
        let row = self.datasets[dataset].shape.iter().skip(1).product();
        self.write_numbers(dataset, first.saturating_mul(row), numbers)
    }

    /// Writes numbers of dataset number `dataset` from number `start` on. `T` is the type of its kind.
    pub fn write_numbers<T: NpyElement>(&self, dataset: usize, start: u64, numbers: &[T]) -> Result<(), IoError> {
        let (dataset, offset) = (&self.datasets[dataset], self.offsets[dataset]);
        debug_assert_eq!(size_of::<T>() as u64, dataset.kind.bytes());
        let len = dataset.len().unwrap_or(0);
        let end = start.saturating_add(numbers.len() as u64);
        if end > len {
            return Err(IoError::Range { path: self.file.path().to_path_buf(), start, end, len });
        }
        if numbers.is_empty() {
            return Ok(());
        }
        // The dataset has this machine's byte order, which is noted in the file.
        self.file.write_at(offset + start * dataset.kind.bytes(), bytemuck::cast_slice::<T, u8>(numbers))
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn seal(self) -> Result<Sealed, IoError> {
        self.file.seal()
    }
}

/// Bytes of all datasets, after a check that the directory exists, of which the library's own error would say little.
fn checked_bytes(path: &Path, datasets: &[DatasetSpec]) -> Result<u64, IoError> {
    let bytes = datasets
        .iter()
        .try_fold(0u64, |sum, dataset| sum.checked_add(dataset.len()?.checked_mul(dataset.kind.bytes())?));
    let Some(bytes) = bytes.filter(|&bytes| i64::try_from(bytes).is_ok()) else {
        let found = datasets.first().map(|dataset| dataset.shape.clone()).unwrap_or_default();
        return Err(IoError::Shape { path: path.to_path_buf(), found, wanted: "one that fits a file".to_string() });
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::metadata(parent) {
        Ok(found) if !found.is_dir() => {
            Err(IoError::Create { path: path.to_path_buf(), source: io::ErrorKind::NotADirectory.into() })
        }
        Ok(_) => Ok(bytes),
        Err(source) => Err(IoError::Create { path: path.to_path_buf(), source }),
    }
}

/// The library's error with the operating system's reason alone, if it names one: the rest (a time, an address in memory,
/// the temporary name) means nothing to a user.
fn create_error(path: &Path, bytes: u64, error: &Error) -> IoError {
    let path = path.to_path_buf();
    match system_error(&error.to_string()).filter(|_| lock_remedy(error).is_empty()) {
        Some(source) => IoError::Write { path, bytes, source },
        None => {
            let reason = format!("the HDF5 library says: {error}{}", lock_remedy(error));
            IoError::Create { path, source: io::Error::other(reason) }
        }
    }
}

/// The operating system's error that the library's text names.
fn system_error(text: &str) -> Option<io::Error> {
    let number = text.split_once("errno = ")?.1;
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    number[..digits].parse().ok().filter(|_| cfg!(unix)).map(io::Error::from_raw_os_error)
}

/// The remedy for a failed lock: the library locks files, which some file systems cannot.
pub(super) fn lock_remedy(error: &Error) -> &'static str {
    if error.to_string().contains("unable to lock") {
        "; if no other program has it open, the file system has no locks: set HDF5_USE_FILE_LOCKING=FALSE"
    } else {
        ""
    }
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
