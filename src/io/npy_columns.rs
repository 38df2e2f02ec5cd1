//! Rows of an array in NumPy's Fortran order, stored column after column, as `numpy.save` writes
//! `numpy.array([x, y, z]).T`.

use std::ops::Range;

use super::IoError;
use super::input::Input;

/// Length of the longest rows that are assembled. Points and attributes have few numbers; rows of a
/// field would be read byte by byte from the whole file.
pub(super) const LONGEST_ROW: u64 = 64;

/// Bytes of rows that are assembled at a time; bounds memory and keeps the parts of columns long.
const PIECE: u64 = 1 << 20;

/// The columns in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    /// Byte offset of the first column.
    pub begin: u64,
    /// Number of elements of a column.
    pub rows: u64,
    /// Number of columns, the length of a row.
    pub count: u64,
}

impl Columns {
    /// Passes elements of `N` bytes, counted row after row, in pieces of whole elements, as
    /// [`Input::pieces`] does for C order.
    pub fn pieces<const N: usize>(
        &self,
        input: &Input,
        elements: Range<u64>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), IoError> {
        let (columns, bytes) = (self.count, N as u64);
        let asked = elements.start / columns..elements.end.div_ceil(columns);
        let step = (PIECE / (columns * bytes)).max(1);
        let mut rows = Vec::new();
        for first in asked.clone().step_by(step as usize) {
            let last = asked.end.min(first + step);
            rows.resize(((last - first) * columns) as usize, [0; N]);
            for column in 0..columns {
                let at = |row: u64| self.begin + (column * self.rows + row) * bytes;
                let part = input.bytes(at(first)..at(last))?;
                let places = rows[column as usize..].iter_mut().step_by(columns as usize);
                places.zip(part.as_chunks::<N>().0).for_each(|(place, element)| *place = *element);
            }
            // The first and the last row may be read in part.
            let part = |element: u64| (element.clamp(first * columns, last * columns) - first * columns) as usize;
            each(rows[part(elements.start)..part(elements.end)].as_flattened());
        }
        Ok(())
    }
}
