//! HDF5 files whose datasets many ranks fill at the same time, without parallel HDF5.
//!
//! The HDF5 library makes the file whole but for the numbers: attributes, and contiguous datasets whose place in the file
//! is decided at once. Then every rank writes its own bytes there, as into any [`SharedFile`].

use std::io;
use std::path::Path;

use hdf5_metno::dataset::{AllocTime, FillTime};
use hdf5_metno::file::File as Hdf5File;
use hdf5_metno::{Error, Group, H5Type};

use super::units::Quantity;
use super::{SnapshotInfo, attributes};
use crate::io::{Element, IoError, Sealed, SharedFile};

/// The type of a dataset's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    F32,
    U64,
}

impl Kind {
    fn bytes(self) -> u64 {
        match self {
            Kind::F32 => 4,
            Kind::U64 => 8,
        }
    }
}

/// A dataset that a file has.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// The group it is in, and its name there.
    pub name: [&'static str; 2],
    pub kind: Kind,
    /// Rows, and numbers in a row (1: the dataset has one axis).
    pub shape: [u64; 2],
    pub quantity: Quantity,
}

impl Column {
    /// Makes it, and says where in the file it begins.
    fn create(&self, file: &Hdf5File, info: &SnapshotInfo) -> hdf5_metno::Result<u64> {
        let [group, name] = self.name;
        let group = if file.link_exists(group) { file.group(group)? } else { file.create_group(group)? };
        match self.kind {
            Kind::F32 => self.create_as::<f32>(&group, name, info),
            Kind::U64 => self.create_as::<u64>(&group, name, info),
        }
    }

    fn create_as<T: H5Type>(&self, group: &Group, name: &str, info: &SnapshotInfo) -> hdf5_metno::Result<u64> {
        let [rows, width] = self.shape.map(|n| n as usize);
        let builder = group.new_dataset::<T>();
        let builder = builder.no_chunk().alloc_time(Some(AllocTime::Early)).fill_time(FillTime::Never);
        // The same particles are the same bytes, whenever they are written.
        let builder = builder.obj_track_times(false);
        let dataset =
            if width == 1 { builder.shape([rows]).create(name)? } else { builder.shape([rows, width]).create(name)? };
        attributes::describe(&dataset, &self.quantity, info)?;
        match dataset.offset() {
            Some(place) => Ok(place),
            // What has no numbers has no place.
            None if self.len() == 0 => Ok(0),
            None => Err(Error::from("a dataset has no place in the file")),
        }
    }

    fn len(&self) -> u64 {
        self.shape[0] * self.shape[1]
    }
}

/// A file with such datasets, of which each rank writes its own rows.
#[derive(Debug)]
pub(super) struct Columns {
    file: SharedFile,
    columns: Vec<Column>,
    /// Byte at which each of them begins.
    places: Vec<u64>,
}

impl Columns {
    /// Makes the file with `columns` and what `describe` adds. Called by rank 0.
    pub fn create(
        path: &Path,
        token: &str,
        columns: Vec<Column>,
        info: &SnapshotInfo,
        describe: impl Fn(&Hdf5File) -> hdf5_metno::Result<()>,
    ) -> Result<Self, IoError> {
        let bytes = writable(path, &columns)?;
        let mut places = Vec::new();
        let file = SharedFile::create_by(path, token, |temporary| {
            places.clear();
            let mut make = || {
                let file = Hdf5File::create_excl(temporary)?;
                describe(&file)?;
                for column in &columns {
                    places.push(column.create(&file, info)?);
                }
                file.close()
            };
            make().map_err(|error| create_error(path, bytes, &error))
        })?;
        Ok(Self { file, columns, places })
    }

    /// Opens the file that rank 0 has made, whose datasets begin at `places`. Called by all other ranks, after a barrier.
    /// The library is not asked, since it would lock the file.
    pub fn open(path: &Path, token: &str, columns: Vec<Column>, places: &[u64]) -> Result<Self, IoError> {
        Ok(Self { file: SharedFile::open(path, token)?, columns, places: places.to_vec() })
    }

    pub fn places(&self) -> &[u64] {
        &self.places
    }

    /// Writes numbers of a dataset from row `first` on. `T` must be of its kind.
    pub fn write<T: Element>(&self, column: usize, first: u64, numbers: &[T]) -> Result<(), IoError> {
        let (column, place) = (&self.columns[column], self.places[column]);
        debug_assert_eq!(size_of::<T>() as u64, column.kind.bytes());
        let (start, len) = (first.saturating_mul(column.shape[1]), column.len());
        let end = start.saturating_add(numbers.len() as u64);
        if end > len {
            return Err(IoError::Range { path: self.file.path().to_path_buf(), start, end, len });
        }
        if numbers.is_empty() {
            return Ok(());
        }
        // The library has made the dataset in this machine's byte order, and says so in the file.
        self.file.write_at(place + start * column.kind.bytes(), bytemuck::cast_slice::<T, u8>(numbers))
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn seal(self) -> Result<Sealed, IoError> {
        self.file.seal()
    }
}

/// Bytes of the columns. Creating is left to the library, whose words for a missing directory are poor: asked for here.
fn writable(path: &Path, columns: &[Column]) -> Result<u64, IoError> {
    let bytes = columns.iter().try_fold(0u64, |sum, column| {
        let len = column.shape[0].checked_mul(column.shape[1])?;
        sum.checked_add(len.checked_mul(column.kind.bytes())?)
    });
    let Some(bytes) = bytes.filter(|&bytes| i64::try_from(bytes).is_ok()) else {
        let found = columns.first().map(|column| column.shape.to_vec()).unwrap_or_default();
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

/// Of what the library says (the time, an address in memory, the temporary name) only the system's reason is for a user.
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

/// The number of the system's error that the library names.
fn system_error(text: &str) -> Option<io::Error> {
    let number = text.split_once("errno = ")?.1;
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    number[..digits].parse().ok().filter(|_| cfg!(unix)).map(io::Error::from_raw_os_error)
}

/// What to do on file systems without locks, which the library asks for.
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
