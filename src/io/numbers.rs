//! Short lists of numbers as text, one per line.

use std::path::Path;

use super::IoError;
use super::input::read_short;

/// The numbers of a text file, each with its line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Numbers {
    /// The numbers, in the order of the file.
    pub values: Vec<f64>,
    /// The line of each, counted from 1.
    pub lines: Vec<u64>,
    /// How many lines the file has.
    pub line_count: u64,
}

/// Bytes of the longest file that is read, far above any list that a person or a script would write as text.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a text file of one number per line, such as `numpy.savetxt` writes. Blank lines, and text after a `#`, are ignored.
///
/// # Errors
/// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`, `IoErrorKind::Format` above
/// 16 MiB, and `IoErrorKind::Format` for the first line that is not one number.
pub fn read_numbers(path: impl AsRef<Path>) -> Result<Numbers, IoError> {
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
            let reason = format!("`{shown}` is not a number; write one number a line");
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
