//! Views of arrays with a start and a stride along each axis, as kernels take them.

use crate::gpu::{DeviceError, RawArray, allowed_len};

/// Axes that a kernel can have, after adjacent ones were merged.
pub(super) const AXES: usize = 12;

/// Elements of an array at regular places: the first one, and the distance of neighbors along each
/// axis, in elements.
#[derive(Clone)]
pub struct View<'a> {
    /// The array.
    pub array: &'a RawArray,
    /// Index of the first element.
    pub start: u64,
    /// Distance of neighbors along each axis; 0 repeats an element, and less counts backward.
    pub strides: Vec<i64>,
}

impl<'a> View<'a> {
    /// Returns all elements of an array, the last axis fastest.
    #[must_use]
    pub fn contiguous(array: &'a RawArray, shape: &[u64]) -> Self {
        View { array, start: 0, strides: contiguous_strides(shape) }
    }

    /// Refuses, for `what`, a view that is not within its array. `shape` has no axis without
    /// elements.
    pub(super) fn check(&self, what: &str, shape: &[u64]) -> Result<(), DeviceError> {
        let mut ends = [i128::from(self.start); 2];
        for (&extent, &stride) in shape.iter().zip(&self.strides) {
            ends[usize::from(stride > 0)] += (i128::from(extent) - 1) * i128::from(stride);
        }
        let len = self.array.len;
        let View { start, strides, .. } = self;
        let fits = strides.len() == shape.len() && ends[0] >= 0 && ends[1] < i128::from(len);
        let why = || format!("shape {shape:?} from {start} with strides {strides:?} in an array of {len} elements");
        DeviceError::ensure(fits, what, why)
    }
}

/// Returns the number of elements of a shape.
///
/// # Errors
/// [`DeviceError::TooLong`] for more than [`LONGEST`] elements.
pub(super) fn elements(what: &str, shape: &[u64]) -> Result<u64, DeviceError> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let len = shape.iter().fold(1, |len: u64, &extent| len.saturating_mul(extent));
    allowed_len(what, len)
}

/// Returns the strides of an array whose last axis is fastest.
pub(super) fn contiguous_strides(shape: &[u64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as i64;
    }
    strides
}

/// An axis: its extent, and the strides of all arrays along it.
pub(super) type Axis<const N: usize> = (u64, [i64; N]);

/// Returns fewer axes with the same elements in the same order, and the new number of the axis
/// `fixed`, which is not merged with others.
pub(super) fn merged<const N: usize>(
    what: &str,
    axes: &[Axis<N>],
    fixed: Option<usize>,
) -> Result<(Vec<Axis<N>>, u32), DeviceError> {
    let (mut merged, mut place): (Vec<Axis<N>>, Option<usize>) = (Vec::new(), None);
    for (axis, &(extent, strides)) in axes.iter().enumerate() {
        let is_fixed = fixed == Some(axis);
        if extent == 1 && !is_fixed {
            continue;
        }
        let is_free = !is_fixed && place.is_none_or(|place| place + 1 < merged.len());
        match merged.last_mut().filter(|_| is_free) {
            Some(last) if (0..N).all(|n| last.1[n] == strides[n] * extent as i64) => {
                *last = (last.0 * extent, strides);
            }
            _ => merged.push((extent, strides)),
        }
        if is_fixed {
            place = Some(merged.len() - 1);
        }
    }
    let why = || format!("{} axes that cannot be merged: expected at most {AXES}", merged.len());
    DeviceError::ensure(merged.len() <= AXES, what, why)?;
    if merged.is_empty() {
        merged.push((1, [0; N]));
    }
    Ok((merged, place.map_or(u32::MAX, |place| place as u32)))
}

/// Returns axes as rows of the parameters: the extent, then the strides.
pub(super) fn rows<const N: usize>(axes: &[Axis<N>]) -> [[u32; 4]; AXES] {
    let mut rows = [[1, 0, 0, 0]; AXES];
    for (row, (extent, strides)) in rows.iter_mut().zip(axes) {
        row[0] = *extent as u32;
        row[1..=N].iter_mut().zip(strides).for_each(|(row, stride)| *row = *stride as u32);
    }
    rows
}
