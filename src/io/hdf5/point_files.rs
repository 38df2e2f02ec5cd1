//! The files of a snapshot or of a catalog of groups, as one array of points.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::background::{self, Background};
use super::part_file::{Header, Opened};
use crate::host_memory;
use crate::io::{Dtype, IoError};

/// The files of a [`Snapshot`](super::Snapshot) or of [`Centers`](super::Centers): their header,
/// and the points of all of them as one array.
#[derive(Clone, Debug)]
pub struct PointFiles {
    pub(super) path: PathBuf,
    /// The files, each with its range of rows.
    pub(super) parts: Vec<(PathBuf, Range<u64>)>,
    pub(super) header: Header,
    pub(super) dims: usize,
    pub(super) dtype: Dtype,
}

impl PointFiles {
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
    pub fn background(&self) -> Result<Option<Background>, IoError> {
        Background::read(self.first())
    }

    /// Returns the Hubble constant in 100 km/s/Mpc, if the file states it.
    ///
    /// # Errors
    /// Same as [`background`](Self::background).
    pub fn hubble(&self) -> Result<Option<f64>, IoError> {
        background::hubble(&Opened::new(self.first())?)
    }

    /// Returns the first file; all have the same header.
    pub(super) fn first(&self) -> &Path {
        &self.parts[0].0
    }

    pub(super) fn check_range(&self, rows: &Range<u64>) -> Result<(), IoError> {
        let Range { start, end } = *rows;
        if start > end || end > self.count() {
            return Err(IoError::range(&self.path, start..end, self.count()));
        }
        Ok(())
    }

    /// Returns an empty vector with memory for `width` numbers per row.
    pub(super) fn allocate<T>(&self, rows: &Range<u64>, width: usize) -> Result<Vec<T>, IoError> {
        let len = (rows.end - rows.start).saturating_mul(width as u64);
        host_memory::reserve("rows", len as usize).map_err(|error| IoError::memory(&self.path, error.bytes))
    }
}
