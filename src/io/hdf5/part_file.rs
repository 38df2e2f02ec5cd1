//! One file of a snapshot: what its header says, and which particles it has.

use std::path::{Path, PathBuf};

use hdf5_metno::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5_metno::{Dataset, File as Hdf5File, H5Type};

use super::attributes::{counts, numbers};
use super::columns::lock_remedy;
use crate::io::{Dtype, IoError};

/// Particle types that a file can have.
const TYPES: usize = 16;

/// What a file says of itself and of the whole snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub files: u64,
    /// Particles of each type in this file, where it says so.
    pub here: Option<Vec<u64>>,
    /// In all files.
    pub total: Option<Vec<u64>>,
    pub box_size: Vec<f64>,
    pub masses: Vec<f64>,
    pub time: Option<f64>,
    pub redshift: Option<f64>,
}

/// A file that has been looked at.
#[derive(Clone, Debug)]
pub(super) struct PartFile {
    pub path: PathBuf,
    pub header: Header,
    /// Types with coordinates, each with their number and axes and the elements' type.
    pub coordinates: Vec<Coordinates>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Coordinates {
    pub particle_type: usize,
    pub count: u64,
    pub dims: usize,
    pub dtype: Dtype,
}

impl PartFile {
    /// Reads the header and looks at the coordinates.
    pub fn look(path: &Path) -> Result<Self, IoError> {
        let file = open(path)?;
        let header = header(&file).map_err(|reason| wrong(path, reason))?;
        let mut coordinates = Vec::new();
        for particle_type in 0..TYPES {
            if let Some(dataset) = dataset(&file, particle_type, "Coordinates").map_err(|e| broken(path, &e))? {
                let found = look_at(path, &dataset, particle_type)?;
                check(path, &header, &found)?;
                coordinates.push(found);
            }
        }
        Ok(Self { path: path.to_path_buf(), header, coordinates })
    }

    /// The coordinates of a type; a file without such particles may leave them out.
    pub fn of(&self, particle_type: usize) -> Option<&Coordinates> {
        self.coordinates.iter().find(|found| found.particle_type == particle_type)
    }
}

/// Opens a file for reading, with words for what is wrong with it.
pub(super) fn open(path: &Path) -> Result<Hdf5File, IoError> {
    if path.as_os_str() == "-" {
        return Err(IoError::InputIsDash);
    }
    // Asked for first: the library says little about files that are not there or may not be read.
    if !std::fs::metadata(path).map_err(|e| IoError::read(path, e))?.is_file() {
        return Err(IoError::NotAFile { path: path.to_path_buf() });
    }
    drop(std::fs::File::open(path).map_err(|e| IoError::read(path, e))?);
    Hdf5File::open(path).map_err(|e| broken(path, &e))
}

/// A dataset of a particle type; `None` where it is not there.
pub(super) fn dataset(file: &Hdf5File, particle_type: usize, name: &str) -> hdf5_metno::Result<Option<Dataset>> {
    let group = format!("PartType{particle_type}");
    if !file.link_exists(&group) {
        return Ok(None);
    }
    let group = file.group(&group)?;
    if group.link_exists(name) { group.dataset(name).map(Some) } else { Ok(None) }
}

/// The type of a dataset's elements, or its words for one that is no number.
pub(super) fn dtype(dataset: &Dataset) -> hdf5_metno::Result<Result<Dtype, String>> {
    Ok(match dataset.dtype()?.to_descriptor()? {
        TypeDescriptor::Float(FloatSize::U4) => Ok(Dtype::F32),
        TypeDescriptor::Float(FloatSize::U8) => Ok(Dtype::F64),
        TypeDescriptor::Integer(IntSize::U4) => Ok(Dtype::I32),
        TypeDescriptor::Integer(IntSize::U8) => Ok(Dtype::I64),
        TypeDescriptor::Unsigned(IntSize::U4) => Ok(Dtype::U32),
        TypeDescriptor::Unsigned(IntSize::U8) => Ok(Dtype::U64),
        other => Err(other.to_string()),
    })
}

/// Rows of a dataset, of `width` numbers each; one axis if that is 1.
pub(super) fn read_rows<T: H5Type>(
    dataset: &Dataset,
    rows: std::ops::Range<usize>,
    width: usize,
) -> hdf5_metno::Result<Vec<T>> {
    if dataset.ndim() == 1 && width == 1 {
        return Ok(dataset.read_slice_1d::<T, _>(rows)?.into_raw_vec_and_offset().0);
    }
    Ok(dataset.read_slice_2d::<T, _>((rows, 0..width))?.into_raw_vec_and_offset().0)
}

/// The error of a file that is not what it should be.
pub(super) fn wrong(path: &Path, reason: impl Into<String>) -> IoError {
    IoError::NotHdf5 { path: path.to_path_buf(), reason: reason.into() }
}

/// The error of a file that the library cannot read.
pub(super) fn broken(path: &Path, error: &hdf5_metno::Error) -> IoError {
    match lock_remedy(error) {
        "" => wrong(path, format!("{error}; if it was cut off or changed, copy or write it again")),
        remedy => wrong(path, format!("{error}{remedy}")),
    }
}

fn header(file: &Hdf5File) -> Result<Header, String> {
    if !file.link_exists("Header") {
        return Err("it has no group Header, which snapshots of Gadget-4, SWIFT and their kin have".to_string());
    }
    let at = file.group("Header").map_err(|e| e.to_string())?;
    let counts = |name: &str| counts(&at, name).map_err(|e| format!("Header/{name}: {e}"));
    let numbers = |name: &str| numbers(&at, name).map_err(|e| format!("Header/{name}: {e}"));
    let first = |name: &str| Ok::<_, String>(numbers(name)?.and_then(|values| values.first().copied()));
    let files = counts("NumFilesPerSnapshot")?.and_then(|values| values.first().copied()).unwrap_or(1);
    let (total, high) = (counts("NumPart_Total")?, counts("NumPart_Total_HighWord")?.unwrap_or_default());
    let total = total.map(|total| {
        // Those that count in 64 bits need no high word, whatever it says.
        let wide = total.iter().any(|&n| n > u64::from(u32::MAX));
        let high = |i: usize| if wide { 0 } else { high.get(i).copied().unwrap_or(0) & 0xffff_ffff };
        total.iter().enumerate().map(|(i, &low)| low + (high(i) << 32)).collect()
    });
    Ok(Header {
        files: files.max(1),
        here: counts("NumPart_ThisFile")?,
        total,
        box_size: numbers("BoxSize")?.unwrap_or_default(),
        masses: numbers("MassTable")?.unwrap_or_default(),
        time: first("Time")?,
        redshift: first("Redshift")?,
    })
}

fn look_at(path: &Path, dataset: &Dataset, particle_type: usize) -> Result<Coordinates, IoError> {
    let name = format!("PartType{particle_type}/Coordinates");
    let shape = dataset.get_shape().map_err(|e| broken(path, &e))?;
    let [count, dims @ (2 | 3)] = shape[..] else {
        let found = shape.iter().map(|&n| n as u64).collect();
        return Err(IoError::Shape { path: path.join(name), found, wanted: "(N, 3) or (N, 2)".to_string() });
    };
    let found = match dtype(dataset).map_err(|e| broken(path, &e))? {
        Ok(dtype @ (Dtype::F32 | Dtype::F64)) => {
            return Ok(Coordinates { particle_type, count: count as u64, dims, dtype });
        }
        Ok(dtype) => dtype.to_string(),
        Err(other) => other,
    };
    Err(IoError::Dtype { path: path.join(name), found, wanted: "float32 or float64".to_string() })
}

/// The header must agree with what is there.
fn check(path: &Path, header: &Header, found: &Coordinates) -> Result<(), IoError> {
    let said = header.here.as_ref().and_then(|here| here.get(found.particle_type)).copied();
    match said {
        Some(said) if said != found.count => Err(wrong(
            path,
            format!(
                "Header/NumPart_ThisFile counts {said} particles of type {0}, but PartType{0}/Coordinates has {1}; \
                 write it again",
                found.particle_type, found.count
            ),
        )),
        _ => Ok(()),
    }
}
