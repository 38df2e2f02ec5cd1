//! Writing `.npy` arrays, each rank its own part.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::tuple;
use super::npy_header::{self, MAX_AXES};
use super::{IoError, IoErrorKind, Result, Sealed, SharedFile};
use crate::hash::mix;

mod sealed {
    pub trait Sealed {}
}

/// Types whose arrays can be written: f32, f64, i32, i64, u32, u64, and `[f32; 2]` and `[f64; 2]`
/// as complex numbers.
pub trait NpyElement: bytemuck::Pod + sealed::Sealed {
    /// NumPy's type string, little endian.
    const DESCR: &'static str;
    /// Bytes of one number: half an element for complex types.
    const NUMBER_BYTES: usize;
}

macro_rules! elements {
    ($($type:ty: $descr:literal, $bytes:literal;)*) => {$(
        impl sealed::Sealed for $type {}
        impl NpyElement for $type {
            const DESCR: &'static str = $descr;
            const NUMBER_BYTES: usize = $bytes;
        }
    )*};
}

elements! {
    f32: "<f4", 4;
    f64: "<f8", 8;
    i32: "<i4", 4;
    i64: "<i8", 8;
    u32: "<u4", 4;
    u64: "<u8", 8;
    [f32; 2]: "<c8", 4;
    [f64; 2]: "<c16", 8;
}

/// One `.npy` file (C order, little endian) that ranks write together, at element offsets.
///
/// Rank 0 creates it, the others open it with the same shape and token; all write disjoint ranges
/// and finish. The barriers are those of [`SharedFile`].
#[derive(Debug)]
pub struct NpyWriter<T: NpyElement> {
    file: SharedFile,
    data_offset: u64,
    len: u64,
    written: Coverage,
    element: PhantomData<T>,
}

impl<T: NpyElement> NpyWriter<T> {
    /// Creates the file with its header. Called by rank 0.
    ///
    /// # Errors
    /// `IoErrorKind::Shape` if no file could hold the array, and those of [`SharedFile::create`].
    pub fn create(path: impl AsRef<Path>, shape: &[u64], token: &str) -> Result<Self> {
        let path = path.as_ref();
        let Plan { header, len, total_bytes } = plan(path, T::DESCR, size_of::<T>() as u64, shape)?;
        let file = SharedFile::create(path, total_bytes, &header, token)?;
        Ok(Self { file, data_offset: header.len() as u64, len, written: Coverage::default(), element: PhantomData })
    }

    /// Opens the file that rank 0 has created. Called by all other ranks, after a barrier.
    ///
    /// # Errors
    /// `IoErrorKind::Shape` if rank 0 created an array of another size, and those of
    /// [`SharedFile::open`].
    pub fn open(path: impl AsRef<Path>, shape: &[u64], token: &str) -> Result<Self> {
        let path = path.as_ref();
        let Plan { header, len, total_bytes } = plan(path, T::DESCR, size_of::<T>() as u64, shape)?;
        let file = SharedFile::open(path, token)?;
        if file.total_bytes() != total_bytes {
            let wanted = format!("a shape of {} bytes in all, as rank 0 has it,", file.total_bytes());
            return Err(IoError::shape(path, shape, wanted));
        }
        Ok(Self { file, data_offset: header.len() as u64, len, written: Coverage::default(), element: PhantomData })
    }

    /// Returns the number of elements of the whole array.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns `true` if the whole array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes elements from number `first` on, in C order of the whole array.
    ///
    /// # Errors
    /// `IoErrorKind::Misuse` beyond the end of the array, `IoErrorKind::Write`.
    pub fn write(&self, first: u64, elements: &[T]) -> Result<()> {
        let end = first.saturating_add(elements.len() as u64);
        if end > self.len {
            return Err(IoError::range(self.file.path(), first..end, self.len));
        }
        let offset = self.data_offset + first * size_of::<T>() as u64;
        self.file.write_at(offset, &little_endian(elements))?;
        self.written.add(first..end);
        Ok(())
    }

    /// Returns the parts that this rank has written, as sums that ranks add up.
    pub(super) fn written(&self) -> [u64; 2] {
        self.written.sums()
    }

    /// Checks by the sums of all ranks that each element was written once.
    ///
    /// # Errors
    /// `IoErrorKind::Misuse`.
    pub(super) fn check_written(&self, sums: [u64; 2]) -> Result<()> {
        if is_whole(sums, self.len) {
            return Ok(());
        }
        let message = format!(
            "parts of {} elements in all do not make the array of {}; each element must be written once, by one rank",
            sums[0], self.len
        );
        Err(IoError::new(IoErrorKind::Misuse, self.file.path(), message))
    }

    /// Flushes this rank's part to the disk; on rank 0, whose call comes last, the file then gets
    /// its name.
    ///
    /// # Errors
    /// Same as [`SharedFile::finish`].
    pub fn finish(self) -> Result<()> {
        self.file.finish()
    }

    /// Flushes like [`finish`](Self::finish); the file gets its name only by [`Sealed::publish`].
    ///
    /// # Errors
    /// Same as [`SharedFile::seal`].
    pub fn seal(self) -> Result<Sealed> {
        self.file.seal()
    }

    /// Removes the temporary file, on any rank.
    pub fn abandon(self) {
        self.file.abandon();
    }
}

/// Returns the bytes of elements in a file.
pub(super) fn little_endian<T: NpyElement>(elements: &[T]) -> Cow<'_, [u8]> {
    let bytes: &[u8] = bytemuck::cast_slice(elements);
    if cfg!(target_endian = "little") {
        return bytes.into();
    }
    let mut swapped = bytes.to_vec();
    swapped.chunks_exact_mut(T::NUMBER_BYTES).for_each(<[u8]>::reverse);
    swapped.into()
}

/// The header and the sizes of a `.npy` file.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub header: Vec<u8>,
    /// Number of elements.
    pub len: u64,
    /// Header and elements.
    pub total_bytes: u64,
}

/// Returns the plan of a file of this shape, with elements of NumPy's type string `descr`; `path`
/// is for errors.
pub(super) fn plan(path: &Path, descr: &str, element_bytes: u64, shape: &[u64]) -> Result<Plan> {
    let wanted = |wanted: String| IoError::shape(path, shape, wanted);
    if shape.len() > MAX_AXES {
        return Err(wanted(format!("one of at most {MAX_AXES} axes")));
    }
    let header = npy_header::format(descr, shape);
    let len = npy_header::element_count(shape);
    let total = len.and_then(|len| len.checked_mul(element_bytes)?.checked_add(header.len() as u64));
    match (len, total) {
        // File offsets are signed in every operating system.
        (Some(len), Some(total_bytes)) if i64::try_from(total_bytes).is_ok() => Ok(Plan { header, len, total_bytes }),
        _ => Err(wanted(format!("a smaller one than {} of {descr}", tuple(shape)))),
    }
}

/// The written parts of an array, as two sums that ranks add up: lengths, and marks of ends minus
/// marks of beginnings. If one part begins where another ends, their marks cancel; parts that cover
/// the array leave only the marks of its ends. Marks are pseudo-random numbers of 64 bits, so that
/// other parts do not cancel by chance.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    elements: AtomicU64,
    ends: AtomicU64,
}

impl Coverage {
    /// Adds a part.
    pub fn add(&self, part: Range<u64>) {
        self.elements.fetch_add(part.end.wrapping_sub(part.start), Ordering::Relaxed);
        self.ends.fetch_add(mix(part.end).wrapping_sub(mix(part.start)), Ordering::Relaxed);
    }

    /// Returns the two sums.
    pub fn sums(&self) -> [u64; 2] {
        [&self.elements, &self.ends].map(|sum| sum.load(Ordering::Relaxed))
    }
}

/// Returns `true` if parts with these sums, modulo 2^64, cover an array of `len` elements once.
pub(super) fn is_whole(sums: [u64; 2], len: u64) -> bool {
    sums == [len, mix(len).wrapping_sub(mix(0))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_make_an_array_and_gaps_and_overlaps_do_not() {
        let whole = |parts: &[(u64, u64)]| {
            let coverage = Coverage::default();
            parts.iter().for_each(|&(start, end)| coverage.add(start..end));
            is_whole(coverage.sums(), 10)
        };
        assert!(whole(&[(0, 10)]) && whole(&[(7, 10), (0, 3), (5, 5), (3, 7)]));
        // The last two have ten elements in all.
        let others: [&[(u64, u64)]; 7] =
            [&[], &[(0, 9)], &[(1, 10)], &[(0, 4), (5, 10)], &[(0, 10), (0, 10)], &[(0, 6), (4, 8)], &[(0, 5), (0, 5)]];
        assert!(others.iter().all(|parts| !whole(parts)));
    }
}
