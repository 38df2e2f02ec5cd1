//! Reading `.npy` arrays, each rank its own part.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::npy_header::{self, Header, HeaderError, MAX_BYTES};
use super::{Dtype, Input, IoError, IoErrorKind, Result};
use crate::host_memory::{self, HostMemoryError};

/// A `.npy` array of numbers on disk.
///
/// - Opening reads only the header; a `read_*` call reads only the bytes of its range. Ranges count
///   **elements** in C order: rows `a..b` of an `(N, 3)` array are elements `3 * a..3 * b`, also in
///   files with Fortran order.
/// - Little and big endian files are accepted. Fortran order is accepted if rows have at most 64
///   numbers, as those of points and attributes: a call then reads its part of each column. All
///   other arrays must be in C order.
/// - Every rank opens the file by itself, without synchronization. Threads may share one value.
/// - Values are read in pieces, so that the call needs only the memory of its result and some MiB.
///   A file that another process cuts off meanwhile, and a failing disk or network, is an error.
///   Replacing a file that this crate has written does not disturb readers, since it appears by
///   renaming.
#[derive(Debug)]
pub struct NpyFile {
    path: PathBuf,
    input: Arc<Input>,
    /// Offset of the `.npy` file in the input; above 0 for members of archives.
    base: u64,
    header: Header,
    /// Number of columns stored one after the other; 1 if elements are in C order.
    columns: u64,
    accepts_integers: bool,
}

impl NpyFile {
    /// Opens a file and checks its header, its order and its size.
    ///
    /// # Errors
    /// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`; `IoErrorKind::Format`
    /// for broken files, and for Fortran order if more than two axes are longer than 1 or the
    /// second of them has more than 64 elements; `IoErrorKind::ElementType` for elements that are
    /// not numbers.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let input = Input::open(path.as_ref())?;
        let len = input.len();
        Self::within(Arc::new(input), path.as_ref().to_path_buf(), 0..len)
    }

    /// Opens the array in a range of a file; `path` names it in errors.
    pub(super) fn within(input: Arc<Input>, path: PathBuf, range: Range<u64>) -> Result<Self> {
        input.expect(range.end)?;
        let found = range.end - range.start;
        let bytes = input.bytes(range.start..range.start + found.min(MAX_BYTES))?;
        let owned = || path.clone();
        let header = npy_header::parse(&bytes).map_err(|e| match e {
            HeaderError::Foreign(reason) => {
                IoError::new(IoErrorKind::Format, owned(), format!("not a NumPy .npy file: {reason}"))
            }
            HeaderError::Truncated(wanted) => IoError::truncated(owned(), found, wanted),
            HeaderError::Dtype(found) => {
                let wanted = "float32 or float64".to_string();
                IoError::element_type(owned(), found, wanted)
            }
        })?;
        // With at most one axis longer than 1, or no elements, both orders are equal.
        let long_axes: Vec<u64> = header.shape.iter().copied().filter(|&n| n > 1).collect();
        let columns = match long_axes[..] {
            _ if !header.fortran || header.len == 0 => 1,
            [] | [_] => 1,
            [_, columns] if columns <= LONGEST_ROW => columns,
            _ => {
                let message = "stored in Fortran order, C order is needed; convert with numpy.save(name, \
                               numpy.ascontiguousarray(array))";
                return Err(IoError::new(IoErrorKind::Format, path, message));
            }
        };
        if found < header.file_bytes {
            return Err(IoError::truncated(path, found, header.file_bytes));
        }
        Ok(Self { path, input, base: range.start, header, columns, accepts_integers: false })
    }

    /// Lets `read_f32`, `read_f64` and the complex reads accept integers, rounded to the nearest
    /// float. By default integers are an error, since they are often a mistake.
    #[must_use]
    pub fn accept_integers(mut self) -> Self {
        self.accepts_integers = true;
        self
    }

    /// Returns the path as it was given, followed by the name for a member of an archive.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the lengths of the axes, slowest first; empty for a single number.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.header.shape
    }

    /// Returns the type of the elements in the file.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.header.dtype
    }

    /// Returns the number of elements, the product of the shape.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.header.len
    }

    /// Returns `true` if it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the shape.
    ///
    /// # Errors
    /// `IoErrorKind::Shape` if it differs from `wanted`.
    pub fn expect_shape(&self, wanted: &[u64]) -> Result<()> {
        if self.shape() == wanted { Ok(()) } else { Err(self.shape_error(super::error::tuple(wanted))) }
    }

    /// Checks that this is a list of points; returns their number and the number of axes (2 or 3).
    ///
    /// # Errors
    /// `IoErrorKind::Shape` unless the shape is `(N, 3)` or `(N, 2)`.
    pub fn points(&self) -> Result<(u64, usize)> {
        match *self.shape() {
            [count, 2] => Ok((count, 2)),
            [count, 3] => Ok((count, 3)),
            _ => Err(self.shape_error("(N, 3) or (N, 2)".to_string())),
        }
    }

    /// Reads elements as f32. NaN and infinities are passed on; see
    /// [`read_finite_f32`](Self::read_finite_f32).
    ///
    /// # Errors
    /// `IoErrorKind::ElementType` unless elements are real; `IoErrorKind::Value` where a finite f64
    /// is beyond f32; `IoErrorKind::Misuse`, `IoErrorKind::Memory`, `IoErrorKind::Format`.
    pub fn read_f32(&self, elements: Range<u64>) -> Result<Vec<f32>> {
        let first = elements.start;
        match self.header.dtype {
            Dtype::F32 => self.decode(elements, f32::from_le_bytes),
            Dtype::F64 => {
                let mut count = 0;
                let mut beyond = None;
                let out = self.decode(elements, |bytes| {
                    let wide = f64::from_le_bytes(bytes);
                    let narrow = wide as f32;
                    if narrow.is_infinite() && wide.is_finite() && beyond.is_none() {
                        beyond = Some((count, wide));
                    }
                    count += 1;
                    narrow
                })?;
                match beyond {
                    None => Ok(out),
                    Some((offset, value)) => Err(IoError::beyond_f32(&self.path, self.index(first + offset), value)),
                }
            }
            Dtype::I64 if self.accepts_integers => self.decode(elements, |b| i64::from_le_bytes(b) as f32),
            Dtype::U64 if self.accepts_integers => self.decode(elements, |b| u64::from_le_bytes(b) as f32),
            // All other integers are exact in f64, so there is only one rounding.
            _ => self.converted(self.read_f64(elements)?, |x| x as f32),
        }
    }

    /// Reads elements as f64. NaN and infinities are passed on; see
    /// [`read_finite_f64`](Self::read_finite_f64).
    ///
    /// # Errors
    /// `IoErrorKind::ElementType` unless elements are real; `IoErrorKind::Misuse`,
    /// `IoErrorKind::Memory`, `IoErrorKind::Format`.
    pub fn read_f64(&self, elements: Range<u64>) -> Result<Vec<f64>> {
        match self.header.dtype {
            Dtype::F32 => self.decode(elements, |b| f64::from(f32::from_le_bytes(b))),
            Dtype::F64 => self.decode(elements, f64::from_le_bytes),
            Dtype::U64 if self.accepts_integers => self.decode(elements, |b| u64::from_le_bytes(b) as f64),
            integer if self.accepts_integers && integer.is_integer() => {
                self.converted(self.read_i64(elements)?, |x| x as f64)
            }
            _ => Err(self.dtype_error("float32 or float64")),
        }
    }

    /// Reads elements that must be finite, such as coordinates, as f32.
    ///
    /// # Errors
    /// Same as [`read_f32`](Self::read_f32), and `IoErrorKind::Value` with the index of the first
    /// NaN or infinity **in this range**.
    pub fn read_finite_f32(&self, elements: Range<u64>) -> Result<Vec<f32>> {
        self.finite(elements.start, self.read_f32(elements)?)
    }

    /// Reads elements that must be finite as f64.
    ///
    /// # Errors
    /// Same as [`read_f64`](Self::read_f64), and `IoErrorKind::Value` as in
    /// [`read_finite_f32`](Self::read_finite_f32).
    pub fn read_finite_f64(&self, elements: Range<u64>) -> Result<Vec<f64>> {
        self.finite(elements.start, self.read_f64(elements)?)
    }

    /// Checks that elements from number `first` on are finite.
    fn finite<T: Copy + Into<f64>>(&self, first: u64, elements: Vec<T>) -> Result<Vec<T>> {
        match elements.iter().position(|&x| !x.into().is_finite()) {
            None => Ok(elements),
            Some(offset) => {
                let index = self.index(first + offset as u64);
                Err(IoError::non_finite(&self.path, index, elements[offset].into()))
            }
        }
    }

    /// Reads complex or real elements as `[re, im]` of f32; real ones get a zero imaginary part.
    ///
    /// # Errors
    /// Same as [`read_f32`](Self::read_f32); the index of an element counts complex numbers.
    pub fn read_c32(&self, elements: Range<u64>) -> Result<Vec<[f32; 2]>> {
        let first = elements.start;
        match self.header.dtype {
            Dtype::C64 => self.decode(elements, |bytes: [u8; 8]| {
                let (halves, _) = bytes.as_chunks();
                [0, 1].map(|half| f32::from_le_bytes(halves[half]))
            }),
            Dtype::C128 => {
                let wide = self.read_c64(elements)?;
                let beyond = |x: &f64| x.is_finite() && (*x as f32).is_infinite();
                if let Some(offset) = wide.iter().position(|z| z.iter().any(beyond)) {
                    let value = *wide[offset].iter().find(|x| beyond(x)).unwrap_or(&f64::NAN);
                    let index = self.index(first + offset as u64);
                    return Err(IoError::beyond_f32(&self.path, index, value));
                }
                self.converted(wide, |z| z.map(|x| x as f32))
            }
            _ => self.converted(self.read_f32(elements)?, |x| [x, 0.0]),
        }
    }

    /// Reads complex or real elements as `[re, im]` of f64; real ones get a zero imaginary part.
    ///
    /// # Errors
    /// Same as [`read_f64`](Self::read_f64).
    pub fn read_c64(&self, elements: Range<u64>) -> Result<Vec<[f64; 2]>> {
        match self.header.dtype {
            Dtype::C64 => {
                let narrow = self.read_c32(elements)?;
                self.converted(narrow, |z| z.map(f64::from))
            }
            Dtype::C128 => self.decode(elements, |bytes: [u8; 16]| {
                let (halves, _) = bytes.as_chunks();
                [0, 1].map(|half| f64::from_le_bytes(halves[half]))
            }),
            _ => self.converted(self.read_f64(elements)?, |x| [x, 0.0]),
        }
    }

    /// Reads integer elements as i64.
    ///
    /// # Errors
    /// `IoErrorKind::ElementType` unless elements are integers, and for a u64 beyond i64;
    /// `IoErrorKind::Misuse`, `IoErrorKind::Memory`, `IoErrorKind::Format`.
    pub fn read_i64(&self, elements: Range<u64>) -> Result<Vec<i64>> {
        match self.header.dtype {
            Dtype::I8 => self.decode(elements, |b| i64::from(i8::from_le_bytes(b))),
            Dtype::I16 => self.decode(elements, |b| i64::from(i16::from_le_bytes(b))),
            Dtype::I32 => self.decode(elements, |b| i64::from(i32::from_le_bytes(b))),
            Dtype::I64 => self.decode(elements, i64::from_le_bytes),
            Dtype::U8 => self.decode(elements, |b| i64::from(u8::from_le_bytes(b))),
            Dtype::U16 => self.decode(elements, |b| i64::from(u16::from_le_bytes(b))),
            Dtype::U32 => self.decode(elements, |b| i64::from(u32::from_le_bytes(b))),
            Dtype::U64 => {
                let wide = self.decode(elements, u64::from_le_bytes)?;
                if wide.iter().any(|&x| i64::try_from(x).is_err()) {
                    return Err(self.dtype_error("int64 (some elements are beyond its range)"));
                }
                self.converted(wide, |x| x as i64)
            }
            _ => Err(self.dtype_error("an integer type such as int64")),
        }
    }

    /// Reads a range of elements of `N` bytes each, and passes them to `convert` in little-endian
    /// order.
    fn decode<const N: usize, T>(&self, elements: Range<u64>, mut convert: impl FnMut([u8; N]) -> T) -> Result<Vec<T>> {
        debug_assert_eq!(N as u64, self.header.dtype.bytes());
        let Range { start, end } = elements;
        if start > end || end > self.len() {
            return Err(IoError::range(&self.path, start..end, self.len()));
        }
        // No overflow: the header and all elements are in the file.
        self.input.expect(self.base + self.header.file_bytes)?;
        let begin = self.base + self.header.data_offset;
        let mut out = host_memory::reserve("elements", (end - start) as usize).map_err(|e| self.memory_error(e))?;
        let Header { dtype, big_endian, .. } = self.header;
        let number_bytes = if dtype.is_complex() { N / 2 } else { N };
        let append = |piece: &[u8]| {
            // Pieces consist of whole elements, since their size is a multiple of that of any
            // element.
            let (items, _) = piece.as_chunks::<N>();
            if big_endian {
                out.extend(items.iter().map(|item| {
                    let mut item = *item;
                    item.chunks_exact_mut(number_bytes).for_each(<[u8]>::reverse);
                    convert(item)
                }));
            } else {
                out.extend(items.iter().map(|item| convert(*item)));
            }
        };
        match self.columns {
            1 => self.input.pieces(begin + start * N as u64..begin + end * N as u64, append)?,
            count => Columns { begin, rows: self.len() / count, count }.pieces::<N>(&self.input, start..end, append)?,
        }
        Ok(out)
    }

    fn converted<T, U>(&self, elements: Vec<T>, convert: impl Fn(T) -> U) -> Result<Vec<U>> {
        host_memory::collect("elements", elements.into_iter().map(convert)).map_err(|e| self.memory_error(e))
    }

    fn memory_error(&self, error: HostMemoryError) -> IoError {
        IoError::memory(&self.path, error.bytes)
    }

    /// Returns the position in the array of an element counted in C order.
    fn index(&self, element: u64) -> Vec<u64> {
        let (mut index, mut rest) = (vec![0; self.shape().len()], element);
        for (at, n) in index.iter_mut().zip(self.shape()).rev() {
            *at = rest % n.max(&1);
            rest /= n.max(&1);
        }
        index
    }

    fn dtype_error(&self, wanted: &str) -> IoError {
        IoError::element_type(&self.path, self.dtype(), wanted)
    }

    fn shape_error(&self, wanted: String) -> IoError {
        IoError::shape(&self.path, self.shape(), wanted)
    }
}

/// Length of the longest rows that are assembled. Points and attributes have few numbers; rows of a
/// field would be read byte by byte from the whole file.
const LONGEST_ROW: u64 = 64;

/// Bytes of rows that are assembled at a time; bounds memory and keeps the parts of columns long.
const PIECE: u64 = 1 << 20;

/// The columns of an array in NumPy's Fortran order, as `numpy.save` writes
/// `numpy.array([x, y, z]).T`.
#[derive(Clone, Copy, Debug)]
struct Columns {
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
    ) -> Result<()> {
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
