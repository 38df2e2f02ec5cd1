//! The header of a `.npy` file: a Python dictionary of element type, order and shape, padded to 64
//! bytes.
//!
//! A parser of its own, not one of Python literals: headers are foreign input, so that length,
//! nesting and numbers must be bounded, and reading in parts needs the offset of the elements.

use super::Dtype;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes of the longest dictionary that is read; NumPy's have about 118 for plain arrays.
const MAX_TEXT: usize = 1 << 16;
/// Bytes of the longest header that is read.
pub(crate) const MAX_BYTES: u64 = 12 + MAX_TEXT as u64;
/// NumPy's own limit on the number of axes.
pub(crate) const MAX_AXES: usize = 64;

/// The contents of a header.
#[derive(Debug, PartialEq)]
pub(crate) struct Header {
    pub dtype: Dtype,
    pub big_endian: bool,
    pub fortran: bool,
    pub shape: Vec<u64>,
    /// Number of elements.
    pub len: u64,
    /// Byte offset of the first element.
    pub data_offset: u64,
    /// Size of a whole file with this header.
    pub file_bytes: u64,
}

/// Why a header was refused.
#[derive(Debug, PartialEq)]
pub(crate) enum HeaderError {
    /// Not a `.npy` file, or a broken one.
    Foreign(String),
    /// The file ends within its header, which would need this many bytes.
    Truncated(u64),
    /// A valid file with an element type that is not in [`Dtype`].
    Dtype(String),
}

/// Reads the header at the start of `bytes`: a whole file, or the first [`MAX_BYTES`] of one.
pub(crate) fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
    if bytes.is_empty() {
        return Err(foreign("the file is empty"));
    }
    if !bytes.starts_with(MAGIC) {
        if MAGIC.starts_with(bytes) {
            return Err(HeaderError::Truncated(10));
        }
        return Err(foreign(other_format(bytes)));
    }
    let (size_bytes, version) = match bytes.get(6..8) {
        Some([1, 0]) => (2, 1),
        Some([2, 0]) => (4, 2),
        Some([3, 0]) => (4, 3),
        Some([major, minor]) => return Err(foreign(format!("its format version {major}.{minor} is not known"))),
        _ => return Err(HeaderError::Truncated(10)),
    };
    let start = 8 + size_bytes;
    let text_len = match bytes.get(8..start) {
        Some([a, b]) => usize::from(u16::from_le_bytes([*a, *b])),
        Some([a, b, c, d]) => u32::from_le_bytes([*a, *b, *c, *d]) as usize,
        _ => return Err(HeaderError::Truncated(start as u64)),
    };
    if text_len > MAX_TEXT {
        return Err(foreign(format!("its header of {text_len} bytes is not one of a plain array of numbers")));
    }
    let end = start + text_len;
    let text = bytes.get(start..end).ok_or(HeaderError::Truncated(end as u64))?;
    // Versions 1 and 2 are in Latin-1, version 3 in UTF-8; the parts read here are ASCII in all of
    // them.
    let dict =
        Dict::parse(text).ok_or_else(|| foreign(format!("its header (version {version}) cannot be understood")))?;

    let (big_endian, dtype) = dict.dtype().ok_or_else(|| HeaderError::Dtype(dict.descr.clone()))?;
    let data_offset = end as u64;
    let sizes = element_count(&dict.shape)
        .and_then(|len| Some((len, len.checked_mul(dtype.bytes())?.checked_add(data_offset)?)));
    let (len, file_bytes) = sizes.ok_or_else(|| foreign("its header names an array too large for any file"))?;
    Ok(Header { dtype, big_endian, fortran: dict.fortran, shape: dict.shape, len, data_offset, file_bytes })
}

/// Returns the number of elements of an array of this shape; `None` if it overflows.
pub(crate) fn element_count(shape: &[u64]) -> Option<u64> {
    // A zero anywhere empties the array, even if the other lengths overflow.
    if shape.contains(&0) { Some(0) } else { shape.iter().try_fold(1u64, |count, &n| count.checked_mul(n)) }
}

/// Returns the header (version 1.0, C order) of an array; `descr` is NumPy's type string, such as
/// `<f4`.
pub(crate) fn format(descr: &str, shape: &[u64]) -> Vec<u8> {
    let shape = super::error::tuple(shape);
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}").into_bytes();
    // Blanks up to a multiple of 64 bytes, so that the elements can be mapped aligned; the last
    // byte is a newline.
    let unpadded = 10 + text.len() + 1;
    text.resize(text.len() + unpadded.next_multiple_of(64) - unpadded, b' ');
    text.push(b'\n');
    debug_assert!(text.len() <= usize::from(u16::MAX), "at most MAX_AXES axes");
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text);
    bytes
}

fn foreign(reason: impl Into<String>) -> HeaderError {
    HeaderError::Foreign(reason.into())
}

/// Guesses the format of a file that is not `.npy`; returns it with a remedy.
fn other_format(bytes: &[u8]) -> &'static str {
    if bytes.starts_with(b"PK\x03\x04") {
        "it is a .npz or zip archive; save one of its arrays with numpy.save()"
    } else if bytes.starts_with(b"\x89HDF") {
        "it is an HDF5 file; save one of its arrays with numpy.save()"
    } else if bytes.iter().take(256).all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
        "it looks like text; load it with numpy.loadtxt() and save it with numpy.save()"
    } else {
        "it does not start as one; save the array with numpy.save()"
    }
}

/// The three entries of the header's dictionary.
struct Dict {
    /// Type string without quotes, or the source text of a structured type.
    descr: String,
    fortran: bool,
    shape: Vec<u64>,
}

impl Dict {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut scan = Scan(text);
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        scan.expect(b'{')?;
        while !scan.take(b'}') {
            let key = scan.string()?;
            scan.expect(b':')?;
            match key.as_str() {
                "descr" => descr = Some(scan.descr()?),
                "fortran_order" => fortran = Some(scan.boolean()?),
                "shape" => shape = Some(scan.shape()?),
                _ => return None,
            }
            if !scan.take(b',') {
                scan.expect(b'}')?;
                break;
            }
        }
        scan.skip_blanks();
        if !scan.0.is_empty() {
            return None;
        }
        Some(Self { descr: descr?, fortran: fortran?, shape: shape? })
    }

    /// Returns `true` for big endian, and the type, if it is supported.
    fn dtype(&self) -> Option<(bool, Dtype)> {
        let (order, code) = self.descr.split_at_checked(1)?;
        let dtype = Dtype::from_code(code)?;
        match order {
            "<" => Some((false, dtype)),
            ">" => Some((true, dtype)),
            "=" => Some((cfg!(target_endian = "big"), dtype)),
            "|" if dtype.bytes() == 1 => Some((false, dtype)),
            _ => None,
        }
    }
}

/// A scanner of the dictionary's text: the unread part.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        self.word(&[byte])
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    fn word(&mut self, word: &[u8]) -> bool {
        let Some(rest) = self.0.strip_prefix(word) else { return false };
        self.0 = rest;
        true
    }

    /// Reads a quoted string. Keys and type strings contain no escapes.
    fn string(&mut self) -> Option<String> {
        let quote = [b'\'', b'"'].into_iter().find(|&quote| self.take(quote))?;
        let end = self.0.iter().position(|&b| b == quote)?;
        let text = String::from_utf8_lossy(&self.0[..end]).into_owned();
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    fn boolean(&mut self) -> Option<bool> {
        self.skip_blanks();
        [true, false].into_iter().find(|&value| self.word(if value { b"True".as_slice() } else { b"False" }))
    }

    /// Reads a type string, or a structured type as its source text for an error.
    fn descr(&mut self) -> Option<String> {
        self.skip_blanks();
        if self.0.first() != Some(&b'[') {
            return self.string();
        }
        let mut depth = 0usize;
        let end = self.0.iter().position(|b| {
            depth = match b {
                b'[' => depth + 1,
                b']' => depth - 1,
                _ => depth,
            };
            depth == 0
        })?;
        let text = String::from_utf8_lossy(&self.0[..=end]).into_owned();
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    fn shape(&mut self) -> Option<Vec<u64>> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.take(b')') {
            let digits = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
            shape.push(std::str::from_utf8(&self.0[..digits]).ok()?.parse().ok()?);
            self.0 = &self.0[digits..];
            // Python 2 wrote long integers with a suffix.
            self.word(b"L");
            if shape.len() > MAX_AXES {
                return None;
            }
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Some(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_text(text: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn what_is_formatted_is_parsed_again_and_aligned() {
        for shape in [vec![], vec![0, 3], vec![5], vec![1 << 40, 3], vec![7; MAX_AXES]] {
            let bytes = format("<f8", &shape);
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(bytes.last(), Some(&b'\n'));
            if shape.len() < 3 {
                let header = parse(&bytes).unwrap();
                assert_eq!((header.dtype, header.big_endian, header.fortran), (Dtype::F64, false, false));
                assert_eq!(header.shape, shape);
                assert_eq!(header.data_offset, bytes.len() as u64);
                assert_eq!(header.len, shape.iter().product::<u64>());
            }
        }
    }

    #[test]
    fn npyz_reads_what_is_formatted() {
        let bytes = format("<c8", &[4, 5, 6]);
        let mut rest = &bytes[..];
        let header = npyz::NpyHeader::from_reader(&mut rest).unwrap();
        assert_eq!(header.shape(), [4, 5, 6]);
        assert_eq!(header.dtype().descr(), "'<c8'");
        assert_eq!(header.order(), npyz::Order::C);
        assert!(rest.is_empty());
    }

    #[test]
    fn other_writers_habits_are_understood() {
        let header = parse(&with_text("{\"shape\":(2L,3L,),\"fortran_order\":True,\"descr\":\">f4\"}\n")).unwrap();
        assert_eq!((header.dtype, header.big_endian, header.fortran), (Dtype::F32, true, true));
        assert_eq!(header.shape, [2, 3]);
        assert_eq!(header.file_bytes - header.data_offset, 24);
    }

    #[test]
    fn hostile_headers_are_refused_without_panic() {
        let texts = [
            "".to_string(),
            "{".to_string(),
            "}".to_string(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)".to_string(),
            "{'descr': '<f4', 'fortran_order': False}".to_string(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}".to_string(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}".to_string(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999, 9)}".to_string(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}".to_string(),
            "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,)}".to_string(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} and more".to_string(),
            format!("{{'descr': {}", "[".repeat(60_000)),
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({})}}", "1,".repeat(1000)),
        ];
        for text in texts {
            let result = parse(&with_text(&text));
            assert!(matches!(result, Err(HeaderError::Foreign(_))), "{text:.80}: {result:?}");
        }
    }

    #[test]
    fn types_that_are_not_numbers_are_named() {
        for descr in ["'|O'", "'<U7'", "'<f2'", "'f'", "''", "'\u{e9}4'", "[('x', '<f4'), ('y', '<i4', (2,))]"] {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}");
            let found = descr.trim_matches('\'').to_string();
            assert_eq!(parse(&with_text(&text)), Err(HeaderError::Dtype(found)));
        }
    }

    #[test]
    fn every_cut_of_a_header_is_truncated() {
        let bytes = format("<f4", &[10]);
        for cut in 1..bytes.len() {
            assert!(matches!(parse(&bytes[..cut]), Err(HeaderError::Truncated(_))), "cut at {cut}");
        }
    }
}
