//! Small tables as comma-separated text.

use std::fmt::Write as _;
use std::path::Path;

use super::{IoError, write_whole};
use crate::host_memory::{self, HostMemoryError};

/// One column of a table.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Column<'a> {
    /// Floats, written with the fewest digits that read back as the same f64; `NaN`, `inf`, `-inf`.
    F64(&'a [f64]),
    /// Whole numbers.
    U64(&'a [u64]),
}

impl Column<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F64(values) => values.len(),
            Self::U64(values) => values.len(),
        }
    }

    fn push(&self, row: usize, text: &mut String) {
        // Writing to a string does not fail.
        let _ = match self {
            // `Debug` is the shortest text that reads back, with an exponent where that is shorter to read.
            Self::F64(values) => write!(text, "{:?}", values[row]),
            Self::U64(values) => write!(text, "{}", values[row]),
        };
    }
}

/// Writes a table: a line of names, then one line per row. Called by one rank; the file appears when it is complete.
///
/// # Errors
/// `IoErrorKind::Shape` if columns differ in length, and those of [`write_whole`].
///
/// ```
/// use meshloom::io::{Column, write_csv};
/// # fn main() -> Result<(), meshloom::io::IoError> {
/// let path = std::env::temp_dir().join(format!("meshloom-doc-{}.csv", meshloom::io::token()));
/// write_csv(&path, &[("k", Column::F64(&[0.05, 0.1])), ("modes", Column::U64(&[6, 18]))])?;
/// assert_eq!(std::fs::read_to_string(&path).unwrap(), "k,modes\n0.05,6\n0.1,18\n");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn write_csv(path: impl AsRef<Path>, columns: &[(&str, Column<'_>)]) -> Result<(), IoError> {
    let text = csv_text(path.as_ref(), columns)?;
    write_whole(path, text.as_bytes())
}

/// The text that [`write_csv`] writes to `path`.
///
/// # Errors
/// `IoErrorKind::Shape` if columns differ in length.
pub fn csv_text(path: &Path, columns: &[(&str, Column<'_>)]) -> Result<String, IoError> {
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    if columns.iter().any(|(_, column)| column.len() != rows) {
        let found: Vec<u64> = columns.iter().map(|(_, column)| column.len() as u64).collect();
        let wanted = format!("the same length for every column ({rows})");
        return Err(IoError::shape(path, found, wanted));
    }
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let mut text = names.join(",");
    // A number is at most 24 characters long.
    let bytes = rows.saturating_mul(25 * columns.len()) + 1;
    host_memory::handled(|| text.try_reserve(bytes))
        .map_err(|_| HostMemoryError { what: "a table", bytes: bytes as u64 })?;
    text.push('\n');
    for row in 0..rows {
        for (at, (_, column)) in columns.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            column.push(row, &mut text);
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::IoErrorKind;
    use crate::io::scratch::Scratch;

    #[test]
    fn floats_read_back_exactly() {
        let scratch = Scratch::new();
        let path = scratch.path().join("t.csv");
        let values = [0.1, 1.0 / 3.0, -0.0, 5e-324, f64::MAX, 1e16, f64::INFINITY];
        write_csv(&path, &[("x", Column::F64(&values))]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let read: Vec<f64> = text.lines().skip(1).map(|line| line.parse().unwrap()).collect();
        assert_eq!(read.map_bits(), values.to_vec().map_bits());
    }

    trait MapBits {
        fn map_bits(self) -> Vec<u64>;
    }
    impl MapBits for Vec<f64> {
        fn map_bits(self) -> Vec<u64> {
            self.into_iter().map(f64::to_bits).collect()
        }
    }

    #[test]
    fn an_empty_table_has_its_names_and_uneven_columns_are_refused() {
        let scratch = Scratch::new();
        let path = scratch.path().join("t.csv");
        write_csv(&path, &[("a", Column::F64(&[])), ("b", Column::U64(&[]))]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a,b\n");
        let uneven = write_csv(&path, &[("a", Column::F64(&[1.0])), ("b", Column::U64(&[]))]);
        assert!(matches!(uneven, Err(IoError { kind: IoErrorKind::Shape, .. })));
    }
}
