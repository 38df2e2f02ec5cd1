//! The files of a snapshot or of a catalog of groups, as one array of points.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5_metno::{Dataset, H5Type};

use super::part_file::probe;
use super::{Background, Header, Opened, Points, background, broken, queries, read_rows, wrong};
use crate::host_memory;
use crate::io::{Dtype, IoError, Result};

/// Largest number of names in an error.
const MOST_NAMES: u64 = 100;

/// The files of a [`Snapshot`](super::Snapshot) or of a [catalog](super::open_centers): their
/// header, and the points of all of them as one array.
#[derive(Clone, Debug)]
pub struct PointFiles {
    pub(super) path: PathBuf,
    /// The files, each with its range of rows.
    pub(super) parts: Vec<(PathBuf, Range<u64>)>,
    pub(super) header: Header,
    /// The full name of the positions.
    pub(super) dataset: String,
    pub(super) dims: usize,
    pub(super) dtype: Dtype,
}

impl PointFiles {
    /// Joins the points of files, `None` for files without any, whose datasets must be alike;
    /// `dataset` is their name if no file has any.
    pub(super) fn new(
        path: &Path,
        header: Header,
        dataset: &str,
        files: impl IntoIterator<Item = (PathBuf, Option<Points>)>,
    ) -> Result<Self> {
        let (mut all, mut parts, mut end): (Option<Points>, _, _) = (None, Vec::new(), 0u64);
        for (file, points) in files {
            let start = end;
            if let Some(points) = points {
                let all = all.get_or_insert_with(|| points.clone());
                if (&all.dataset, all.dims) != (&points.dataset, points.dims) {
                    let wanted = format!("(N, {}) of {}, as the files before it have,", all.dims, all.dataset);
                    let found = [points.count, points.dims as u64];
                    return Err(IoError::shape(file.join(points.dataset), found, wanted));
                }
                if points.dtype == Dtype::F64 {
                    all.dtype = Dtype::F64;
                }
                end = end.checked_add(points.count).ok_or_else(|| wrong(path, "it has more points than can be"))?;
            }
            parts.push((file, start..end));
        }
        let none = || Points { dataset: dataset.into(), count: 0, dims: 3, dtype: Dtype::F32 };
        let Points { dataset, dims, dtype, .. } = all.unwrap_or_else(none);
        header.check_box(path, dims)?;
        Ok(PointFiles { path: path.into(), parts, header, dataset, dims, dtype })
    }

    /// Returns the path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the files, in the order of their points.
    #[must_use]
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.parts.iter().map(|(path, _)| path.as_path())
    }

    /// Returns the number of points in all files.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.parts.last().map_or(0, |(_, rows)| rows.end)
    }

    /// Returns the full name of the dataset of the positions.
    #[must_use]
    pub fn dataset(&self) -> &str {
        &self.dataset
    }

    /// Returns the number of axes: 2 or 3.
    #[must_use]
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// Returns the type of the positions: F64 if any of the files has it, else F32.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the sides of the space in the header; 0 is an open axis. `None` if the header has
    /// none.
    #[must_use]
    pub fn sides(&self) -> Option<[f64; 3]> {
        self.header.sides()
    }

    /// Returns the sides of the periodic box; `None` if the header has none, or only 0 (open
    /// space).
    #[must_use]
    pub fn box_size(&self) -> Option<[f64; 3]> {
        self.sides().filter(|sides| sides[..self.dims].iter().any(|&side| side != 0.0))
    }

    /// Returns `Header/Time`: the scale factor in cosmological runs of Gadget, a time in those of
    /// SWIFT.
    #[must_use]
    pub fn time(&self) -> Option<f64> {
        self.header.time
    }

    /// Returns `Header/Redshift`.
    #[must_use]
    pub fn redshift(&self) -> Option<f64> {
        self.header.redshift
    }

    /// Returns the scale factor: of `Header/Redshift`, else `Header/Time`; `None` if neither gives
    /// one above 0.
    #[must_use]
    pub fn scale_factor(&self) -> Option<f64> {
        self.header.scale_factor()
    }

    /// Returns the background cosmology, if the file states it.
    ///
    /// # Errors
    /// `IoErrorKind::Format` for files that cannot be read, and for an attribute that is not a
    /// number.
    pub fn background(&self) -> Result<Option<Background>> {
        Background::read(self.first())
    }

    /// Returns the Hubble constant in 100 km/s/Mpc, if the file states it.
    ///
    /// # Errors
    /// Same as [`background`](Self::background).
    pub fn hubble(&self) -> Result<Option<f64>> {
        background::hubble(&Opened::new(self.first())?)
    }

    /// Returns the centimeters of a comoving length of 1, if the dataset or the file states them.
    ///
    /// # Errors
    /// Same as [`background`](Self::background).
    pub fn length_unit(&self) -> Result<Option<f64>> {
        background::length_unit(&Opened::new(self.first_with_points().unwrap_or(self.first()))?, &self.dataset)
    }

    /// Reads positions of points, row after row. NaN and infinities are passed on.
    ///
    /// # Errors
    /// `IoErrorKind::Value` if a finite f64 is beyond f32; `IoErrorKind::Misuse`,
    /// `IoErrorKind::Memory`; `IoErrorKind::Format` if a file was changed since it was opened or
    /// cannot be read.
    pub fn positions_f32(&self, rows: Range<u64>) -> Result<Vec<f32>> {
        self.floats_f32(&self.dataset, self.dims, rows)
    }

    /// Reads positions of points, row after row. NaN and infinities are passed on.
    ///
    /// # Errors
    /// Same as [`positions_f32`](Self::positions_f32), except `IoErrorKind::Value`.
    pub fn positions_f64(&self, rows: Range<u64>) -> Result<Vec<f64>> {
        self.read(&rows, &self.dataset, self.dims, |dataset, at, dtype, out| match dtype {
            Dtype::F32 | Dtype::F64 => {
                out.extend(read_rows::<f64>(dataset, at, self.dims)?);
                Ok(true)
            }
            _ => Ok(false),
        })
    }

    /// Returns the first file; all have the same header.
    pub(super) fn first(&self) -> &Path {
        &self.parts[0].0
    }

    /// Returns the first file with points.
    pub(super) fn first_with_points(&self) -> Option<&Path> {
        self.parts.iter().find(|(_, rows)| !rows.is_empty()).map(|(path, _)| path.as_path())
    }

    /// Returns the files with some of `rows`: their paths, their rows, and which of these are asked
    /// for.
    pub(super) fn parts_with(&self, rows: &Range<u64>) -> impl Iterator<Item = (&Path, &Range<u64>, Range<u64>)> {
        self.parts.iter().filter_map(move |(path, part)| {
            let own = rows.start.max(part.start)..rows.end.min(part.end);
            (!own.is_empty()).then_some((path.as_path(), part, own))
        })
    }

    pub(super) fn check_range(&self, rows: &Range<u64>) -> Result<()> {
        let Range { start, end } = *rows;
        if start > end || end > self.count() {
            return Err(IoError::range(&self.path, start..end, self.count()));
        }
        Ok(())
    }

    /// Returns an empty vector with memory for `width` numbers per row.
    pub(super) fn allocate<T>(&self, rows: &Range<u64>, width: usize) -> Result<Vec<T>> {
        let len = (rows.end - rows.start).saturating_mul(width as u64);
        host_memory::reserve("rows", len as usize).map_err(|error| IoError::memory(&self.path, error.bytes))
    }

    /// Reads numbers as f32, those stored as f64 with a check of their range.
    pub(super) fn floats_f32(&self, name: &str, width: usize, rows: Range<u64>) -> Result<Vec<f32>> {
        let mut beyond = None;
        let narrow = |wide: f64, element: usize, beyond: &mut Option<(usize, f64)>| {
            let narrow = wide as f32;
            if narrow.is_infinite() && wide.is_finite() {
                beyond.get_or_insert((element, wide));
            }
            narrow
        };
        let values = self.read(&rows, name, width, |dataset, at, dtype, out| {
            match dtype {
                Dtype::F32 => out.extend(read_rows::<f32>(dataset, at, width)?),
                Dtype::F64 => {
                    for wide in read_rows::<f64>(dataset, at, width)? {
                        out.push(narrow(wide, out.len(), &mut beyond));
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        match beyond {
            None => Ok(values),
            Some((element, value)) => {
                let row = rows.start + (element / width) as u64;
                let index = if width == 1 { vec![row] } else { vec![row, (element % width) as u64] };
                Err(IoError::beyond_f32(self.path.join(name), index, value))
            }
        }
    }

    /// Reads rows from the files that contain them. `append` is passed each dataset with the rows
    /// to read, its element type and the vector to append to; it returns `false` for a type that it
    /// does not accept.
    pub(super) fn read<T: H5Type>(
        &self,
        rows: &Range<u64>,
        name: &str,
        width: usize,
        mut append: impl FnMut(&Dataset, Range<usize>, Dtype, &mut Vec<T>) -> hdf5_metno::Result<bool>,
    ) -> Result<Vec<T>> {
        self.check_range(rows)?;
        let mut out = self.allocate(rows, width)?;
        for (path, part, own) in self.parts_with(rows) {
            let file = Opened::new(path)?;
            let Some((name, dataset)) = file.of_particles(name)? else { return Err(absent(&file, name)) };
            let (shape, count) = (dataset.space().map_err(|e| broken(path, &e))?.shape(), part.end - part.start);
            let wanted = if width == 1 { vec![count as usize] } else { vec![count as usize, width] };
            if shape != wanted {
                let found: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
                let wanted = crate::io::error::tuple(&wanted.iter().map(|&n| n as u64).collect::<Vec<_>>());
                return Err(IoError::shape(path.join(&name), found, wanted));
            }
            // Checked once, by the rank that reads the first row.
            if own.start == part.start {
                file.check(&dataset, &name)?;
            }
            let dtype = queries::element_type(&dataset).map_err(|e| broken(path, &e))?;
            let at = (own.start - part.start) as usize..(own.end - part.start) as usize;
            probe::<T>(path, at.len() * width)?;
            let taken = match &dtype {
                Ok(dtype) => append(&dataset, at, *dtype, &mut out).map_err(|e| file.unread(&dataset, &name, &e))?,
                Err(_) => false,
            };
            file.still_whole()?;
            if !taken {
                let found = dtype.map_or_else(|words| words, |dtype| dtype.to_string());
                let wanted =
                    if name.ends_with("/ParticleIDs") { "a 32- or 64-bit integer" } else { "float32 or float64" };
                return Err(IoError::element_type(path.join(&name), found, wanted));
            }
        }
        Ok(out)
    }
}

/// Creates the error of a missing dataset, with the names of the existing ones.
fn absent(file: &Opened, name: &str) -> IoError {
    let group = name.rsplit_once('/').map_or("/", |(group, _)| group);
    let names = file.hdf5.group(group).and_then(|group| queries::link_names(&group, MOST_NAMES + 1));
    let mut found = names.unwrap_or_default();
    if found.len() as u64 > MOST_NAMES {
        found.truncate(MOST_NAMES as usize);
        found.push("...".into());
    }
    IoError::no_member(file.path(), name, found.join(", "))
}
