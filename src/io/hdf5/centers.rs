//! The centres of a catalogue of groups, as points.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5_metno::{Dataset, H5Type};

use super::attributes::{counts, single};
use super::background::Background;
use super::part_file::{Header, Opened, broken, group_name, header, points, read_rows, wrong};
use super::{length_unit, queries};
use crate::io::{Dtype, IoError};

/// Centres of groups: `Group/GroupPos` of a catalogue in the layout of Gadget-4 ([`write_groups`](super::write_groups)), or `center` of a file of
/// arrays that has such an array of points ([`ArraysWriter`](super::ArraysWriter)). Every rank opens the file by itself; numbers are in its own units.
#[derive(Clone, Debug)]
pub struct Centers {
    path: PathBuf,
    dataset: &'static str,
    count: u64,
    dims: usize,
    dtype: Dtype,
    header: Option<Header>,
}

/// The datasets that may have the centres.
const DATASETS: [&str; 2] = ["Group/GroupPos", "center"];

impl Centers {
    /// Opens a catalogue; none where the file is none, or cannot be opened: a snapshot says better what is wrong with it.
    ///
    /// # Errors
    /// [`IoError::Shape`] and [`IoError::Dtype`] for centres that are not `(G, 3)` or `(G, 2)`, f32 or f64, [`IoError::NoFilter`], and
    /// [`IoError::NotHdf5`] for broken files and for one of several files of a catalogue.
    pub fn open(path: impl AsRef<Path>) -> Result<Option<Self>, IoError> {
        let path = path.as_ref();
        let Ok(file) = Opened::new(path) else { return Ok(None) };
        let has = |name: &str| queries::has_link(&file.hdf5, name).map_err(|e| broken(path, &e));
        for particle_type in 0..6 {
            // A snapshot may have groups beside its particles.
            if has(&group_name(particle_type))? {
                return Ok(None);
            }
        }
        for name in DATASETS {
            let Some(dataset) = find(&file, name)? else { continue };
            let (count, dims, dtype) = points(path, &dataset, name)?;
            file.check(&dataset, name)?;
            let header = if has("Header")? { Some(header(&file.hdf5).map_err(|why| wrong(path, why))?) } else { None };
            if let Some(header) = &header {
                header.check_box(path, dims)?;
                let files = file.hdf5.group("Header").and_then(|header| counts(&header, "NumFiles").and_then(single));
                match files.map_err(|error| wrong(path, format!("Header/NumFiles {error}; write it again")))? {
                    None | Some(0 | 1) => {}
                    Some(files) => {
                        let reason = format!("it is one of {files} files of a catalogue; join them to one");
                        return Err(wrong(path, reason));
                    }
                }
            }
            let path = path.to_path_buf();
            return Ok(Some(Centers { path, dataset: name, count, dims, dtype, header }));
        }
        Ok(None)
    }

    /// The path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the dataset that is read.
    pub fn dataset(&self) -> &'static str {
        self.dataset
    }

    /// Number of groups.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Axes: 2 or 3.
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// Type of the centres in the file: F32 or F64.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Sides of the space as the header says them: 0 is an open axis. `None` if it says nothing.
    pub fn sides(&self) -> Option<[f64; 3]> {
        self.header.as_ref()?.sides()
    }

    /// The scale factor; none where the header does not say it.
    pub fn scale_factor(&self) -> Option<f64> {
        self.header.as_ref()?.scale_factor()
    }

    /// The background cosmology; none where the file does not say it.
    ///
    /// # Errors
    /// [`IoError::NotHdf5`] for files that cannot be read, and for an attribute that is no number.
    pub fn background(&self) -> Result<Option<Background>, IoError> {
        Background::read(&self.path)
    }

    /// The Hubble constant in 100 km/s/Mpc; none where the file does not say it.
    ///
    /// # Errors
    /// As [`background`](Self::background).
    pub fn hubble(&self) -> Result<Option<f64>, IoError> {
        length_unit::hubble(&Opened::new(&self.path)?)
    }

    /// Centimetres of a comoving length of 1; none where the file does not say it.
    ///
    /// # Errors
    /// As [`background`](Self::background).
    pub fn length_unit(&self) -> Result<Option<f64>, IoError> {
        let file = Opened::new(&self.path)?;
        let dataset = find(&file, self.dataset)?;
        length_unit::read(&file, dataset.as_ref())
    }

    /// Centres, row after row, which f64 in the file are rounded to. NaN and infinities are passed on.
    ///
    /// # Errors
    /// [`IoError::Range`]; [`IoError::NotHdf5`] if the file was changed since it was opened or cannot be read.
    pub fn positions_f32(&self, rows: Range<u64>) -> Result<Vec<f32>, IoError> {
        self.read(rows)
    }

    /// Centres, row after row. NaN and infinities are passed on.
    ///
    /// # Errors
    /// As [`positions_f32`](Self::positions_f32).
    pub fn positions_f64(&self, rows: Range<u64>) -> Result<Vec<f64>, IoError> {
        self.read(rows)
    }

    fn read<T: H5Type>(&self, rows: Range<u64>) -> Result<Vec<T>, IoError> {
        let Range { start, end } = rows;
        if start > end || end > self.count {
            return Err(IoError::Range { path: self.path.clone(), start, end, len: self.count });
        }
        if start == end {
            return Ok(Vec::new());
        }
        let file = Opened::new(&self.path)?;
        let changed = || wrong(&self.path, format!("{} has changed; write it again", self.dataset));
        let dataset = find(&file, self.dataset)?.ok_or_else(changed)?;
        if points(&self.path, &dataset, self.dataset)? != (self.count, self.dims, self.dtype) {
            return Err(changed());
        }
        let values = read_rows::<T>(&dataset, start as usize..end as usize, self.dims);
        let values = values.map_err(|e| file.unread(&dataset, self.dataset, &e))?;
        file.still_whole()?;
        Ok(values)
    }
}

/// The dataset of this whole name.
fn find(file: &Opened, whole: &str) -> Result<Option<Dataset>, IoError> {
    let (group, name) = whole.split_once('/').unwrap_or(("", whole));
    file.dataset(group, name)
}
