//! Small tables as comma-separated text, and lists of numbers, one per line.

use std::fmt::Write as _;
use std::path::Path;

use super::{IoError, Result, read_short, write_whole};
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
            // `Debug` writes the shortest text that reads back, with an exponent for large and
            // small values.
            Self::F64(values) => write!(text, "{:?}", values[row]),
            Self::U64(values) => write!(text, "{}", values[row]),
        };
    }
}

/// Writes a table: a line of names, then one line per row. Called by one rank; the file appears
/// when it is complete.
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
pub fn write_csv(path: impl AsRef<Path>, columns: &[(&str, Column<'_>)]) -> Result<()> {
    let text = csv_text(path.as_ref(), columns)?;
    write_whole(path, text.as_bytes())
}

/// Returns the text that [`write_csv`] writes to `path`.
///
/// # Errors
/// `IoErrorKind::Shape` if columns differ in length.
pub fn csv_text(path: &Path, columns: &[(&str, Column<'_>)]) -> Result<String> {
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

/// The numbers of a text file, each with its line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Numbers {
    /// The numbers, in the order of the file.
    pub values: Vec<f64>,
    /// The line of each, counted from 1.
    pub lines: Vec<u64>,
    /// Number of lines in the file.
    pub line_count: u64,
}

/// Size limit of the file, far above any list of numbers written as text.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a text file of one number per line, as `numpy.savetxt` writes it. Ignores blank lines and
/// text after a `#`.
///
/// # Errors
/// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`, and `IoErrorKind::Format`
/// above 16 MiB or for the first line that is not one number.
pub fn read_numbers(path: impl AsRef<Path>) -> Result<Numbers> {
    let path = path.as_ref();
    let bytes = read_short(path, MAX_BYTES)?;
    let mut numbers = Numbers { values: Vec::new(), lines: Vec::new(), line_count: 0 };
    for text in String::from_utf8_lossy(&bytes).lines() {
        numbers.line_count += 1;
        let word = text.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        let Ok(value) = word.parse() else {
            let shown: String = word.chars().take(40).collect();
            let reason = if shown.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
                "the file is not text; write one number per line, as numpy.savetxt does".to_string()
            } else {
                format!("`{shown}` is not a number; write one number per line")
            };
            return Err(IoError::line(path, numbers.line_count, reason));
        };
        numbers.values.push(value);
        numbers.lines.push(numbers.line_count);
    }
    Ok(numbers)
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

    #[test]
    fn lines_are_numbers_or_nothing() {
        let scratch = Scratch::new();
        let path = scratch.path().join("edges.txt");
        std::fs::write(&path, "# edges\n0\n\n 1.5e0 # first\r\n-2\n").unwrap();
        let numbers = read_numbers(&path).unwrap();
        assert_eq!((numbers.values, numbers.lines, numbers.line_count), (vec![0.0, 1.5, -2.0], vec![2, 4, 5], 5));
        for (text, line) in [("1\n2 3\n", 2), ("1\n\nx", 3), ("1,2", 1), ("\u{fffd}\n", 1), ("0x10", 1)] {
            std::fs::write(&path, text).unwrap();
            let error = read_numbers(&path).unwrap_err().to_string();
            assert!(error.contains(&format!(": line {line}: ")), "{text}: {error}");
        }
        std::fs::write(&path, b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'").unwrap();
        assert!(read_numbers(&path).unwrap_err().to_string().contains("not text"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(read_numbers(&path).unwrap().line_count, 0);
        assert!(
            matches!(read_numbers(scratch.path()), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
        );
        assert!(
            matches!(read_numbers("-"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("standard input"))
        );
    }
}
