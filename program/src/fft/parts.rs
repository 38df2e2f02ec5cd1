//! One rank's part of an array between a file and the device, a piece at a time, so that little
//! host memory is used.

use std::ops::Range;
use std::path::Path;

use meshloom::Error;
use meshloom::gpu::{Array, DeviceElement, Recorder};
use meshloom::grid::{Box3, extent, volume};
use meshloom::host_memory;
use meshloom::io::{IoError, IoErrorKind, NpyElement, NpyFile, NpyWriter};

/// Elements of a piece.
const PIECE: u64 = 1 << 20;

/// An element type of the files that are read and written.
pub trait Stored: DeviceElement + NpyElement {
    /// NumPy's name of it.
    const NAME: &'static str;

    /// Reads elements of a file in this type.
    fn read(file: &NpyFile, elements: Range<u64>) -> Result<Vec<Self>, IoError>;

    /// Returns `true` if it is neither infinite nor NaN.
    fn finite(&self) -> bool;
}

macro_rules! stored {
    ($($type:ty: $name:literal $read:ident $finite:expr;)*) => {$(
        impl Stored for $type {
            const NAME: &'static str = $name;

            fn read(file: &NpyFile, elements: Range<u64>) -> Result<Vec<Self>, IoError> {
                file.$read(elements)
            }

            fn finite(&self) -> bool {
                let finite: fn(&$type) -> bool = $finite;
                finite(self)
            }
        }
    )*};
}

stored! {
    f32: "float32" read_f32 |x| x.is_finite();
    f64: "float64" read_f64 |x| x.is_finite();
    [f32; 2]: "complex64" read_c32 |z| z.iter().all(|x| x.is_finite());
    [f64; 2]: "complex128" read_c64 |z| z.iter().all(|x| x.is_finite());
}

/// Returns the elements of `part` in an array of `shape`, as contiguous runs in order, as few as
/// possible.
fn runs(part: &Box3, shape: [u64; 3]) -> impl Iterator<Item = Range<u64>> + use<> {
    let [_, n1, n2] = shape;
    let [_, rows, width] = extent(part);
    let part = part.clone();
    let row = move |i: u64, j: u64| (i * n1 + j) * n2;
    // Planes and rows of one run.
    let (planes, lines) = match (rows == n1, width == n2) {
        (true, true) => (part[0].end - part[0].start, rows),
        (false, true) => (1, rows),
        _ => (1, 1),
    };
    let empty = volume(&part) == 0;
    let steps = |range: &Range<u64>, by: u64| {
        range.clone().step_by(by.max(1) as usize).take(if empty { 0 } else { usize::MAX })
    };
    let (outer, inner) = (steps(&part[0], planes), steps(&part[1], lines));
    let columns = part[2].clone();
    outer.flat_map(move |i| {
        let columns = columns.clone();
        inner.clone().map(move |j| {
            let start = row(i, j) + columns.start;
            start..start + planes * lines * (columns.end - columns.start)
        })
    })
}

/// Uploads this rank's `part` of the array of `shape` in a file into `array`; returns whether all
/// of it is finite.
///
/// # Errors
/// Those of the file and of the device.
pub fn fill<T: Stored>(
    recorder: &mut Recorder,
    array: &Array<T>,
    file: &NpyFile,
    part: &Box3,
    shape: [u64; 3],
) -> Result<bool, Error> {
    let (mut filled, mut finite) = (0, true);
    let mut values = host_memory::reserve("elements", volume(part).min(PIECE) as usize)?;
    for run in runs(part, shape) {
        let mut start = run.start;
        while start < run.end {
            let end = run.end.min(start + PIECE - values.len() as u64);
            let read = T::read(file, start..end)?;
            finite &= read.iter().all(T::finite);
            values.extend(read);
            start = end;
            if values.len() as u64 == PIECE {
                recorder.upload(array, filled, &values)?;
                filled += PIECE;
                values.clear();
            }
        }
    }
    recorder.upload(array, filled, &values)?;
    Ok(finite)
}

/// One rank's part of the output file.
pub struct OutputPart<'a> {
    pub path: &'a Path,
    /// Axes of the array, for errors.
    pub axes: usize,
    /// The array as a mesh.
    pub shape: [u64; 3],
    /// This rank's elements.
    pub part: &'a Box3,
    /// Whether every element must be finite, since the input was.
    pub finite: bool,
}

/// Writes this rank's part of the output from `array`.
///
/// # Errors
/// Errors of the file and of the device, and `IoErrorKind::Value` for the first element that
/// overflowed its type.
pub fn save<T: Stored>(
    recorder: &mut Recorder,
    array: &Array<T>,
    file: &NpyWriter<T>,
    to: &OutputPart,
) -> Result<(), Error> {
    let &OutputPart { path, axes, shape, part, finite } = to;
    let len = volume(part);
    let (mut values, mut first) = (Vec::new(), 0);
    let mut at = 0;
    for run in runs(part, shape) {
        let mut start = run.start;
        while start < run.end {
            if at == first + values.len() as u64 {
                first = at;
                values = recorder.download(array, first, PIECE.min(len - first))?;
            }
            let rest = &values[(at - first) as usize..];
            let count = (run.end - start).min(rest.len() as u64);
            let left = rest[..count as usize].iter().position(|value| finite && !value.finite());
            if let Some(at) = left {
                let (at, [_, n1, n2]) = (start + at as u64, shape);
                let index = [at / n2 / n1, at / n2 % n1, at % n2];
                let place: Vec<String> = index[3 - axes..].iter().map(u64::to_string).collect();
                let reason = format!(
                    "the element at ({}) overflows f32; scale the data to other units, or give --precision f64",
                    place.join(", ")
                );
                return Err(IoError::new(IoErrorKind::Value, path, reason).into());
            }
            file.write(start, &rest[..count as usize])?;
            (start, at) = (start + count, at + count);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_elements_in_order_and_as_few_as_can_be() {
        let shape = [3, 4, 5];
        for (part, count) in [
            ([0..3, 0..4, 0..5], 1),
            ([1..3, 0..4, 0..5], 1),
            ([1..3, 1..3, 0..5], 2),
            ([0..3, 1..3, 0..4], 6),
            ([2..2, 0..4, 0..5], 0),
            ([0..3, 4..4, 0..5], 0),
        ] {
            let mut elements = Vec::new();
            for i in part[0].clone() {
                for j in part[1].clone() {
                    elements.extend(part[2].clone().map(|k| (i * shape[1] + j) * shape[2] + k));
                }
            }
            assert_eq!(runs(&part, shape).count(), count, "{part:?}");
            assert_eq!(runs(&part, shape).flatten().collect::<Vec<_>>(), elements, "{part:?}");
        }
    }
}
