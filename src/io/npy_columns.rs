//! Rows of an array that is stored column after column: NumPy's Fortran order, as `numpy.save` keeps it of `numpy.array([x, y, z]).T`.

use std::ops::Range;

use super::IoError;
use super::input::Input;

/// Numbers of the longest rows that are put together. Points and attributes have few; rows of a field would be read byte by byte
/// from all over the file.
pub(super) const LONGEST_ROW: u64 = 64;

/// Bytes of rows that are put together at a time, so that memory is bounded and the parts of columns are long.
const PIECE: u64 = 1 << 20;

/// Where the columns are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    /// Byte offset of the first.
    pub begin: u64,
    /// Elements of each.
    pub rows: u64,
    /// Their number, which is that of the elements of a row.
    pub count: u64,
}

impl Columns {
    /// As [`Input::pieces`] of an array of rows: passes elements of `N` bytes, counted row after row, in pieces of whole ones.
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
            // Of the first and the last row a part may be asked for.
            let part = |element: u64| (element.clamp(first * columns, last * columns) - first * columns) as usize;
            each(rows[part(elements.start)..part(elements.end)].as_flattened());
        }
        Ok(())
    }
}
