//! Number of elements of an array that an operation processes.

use crate::gpu::{Array, DeviceError, Gpu, RawArray};

/// Number of leading elements of an array that are processed; the others are neither read nor, in
/// results, written.
#[derive(Clone, Copy)]
pub enum Count<'a> {
    /// All.
    All,
    /// This number; an error if it exceeds the length.
    First(u64),
    /// The value of element 0 when the work runs, at most the length.
    Device(&'a Array<u32>),
}

/// The WGSL function `counted`, over the parameters `count` and `device` and the slot `count`.
pub(super) const COUNTED: &str = include_str!("../../../shaders/gpu/counted.wgsl");

/// A count as kernels take it: the parameters and the array of `counted`.
#[derive(Clone)]
pub(super) struct Counted {
    /// Upper bound of the number.
    pub most: u32,
    /// Whether the host or the device knows the number; see `counted.wgsl`.
    pub device: u32,
    array: Array<u32>,
}

impl Counted {
    /// Creates the count for an array of `len` elements; `what` names the operation in errors.
    pub fn new(gpu: &Gpu, what: &str, count: Count<'_>, len: u64) -> Result<Self, DeviceError> {
        let most = if let Count::First(number) = count { number } else { len };
        DeviceError::ensure(most <= len, what, || format!("the first {most} of {len} elements were to count"))?;
        let Count::Device(array) = count else { return Self::known(gpu, what, most) };
        DeviceError::ensure(!array.is_empty(), what, || "the array that is to hold the count is empty".into())?;
        Ok(Self::at_most(index(what, most)?, array))
    }

    /// Creates a number that the host knows.
    pub fn known(gpu: &Gpu, what: &str, most: u64) -> Result<Self, DeviceError> {
        Ok(Counted { most: index(what, most)?, device: 0, array: gpu.array("primitives::no_count", 1)? })
    }

    /// Creates the count that element 0 of `array` holds, at most `most`.
    pub fn at_most(most: u32, array: &Array<u32>) -> Self {
        Counted { most, device: 1, array: array.clone() }
    }

    /// Returns the array of the slot `count`.
    pub fn raw(&self) -> &RawArray {
        self.array.raw()
    }
}

/// Returns a number of elements that leaves an index free for the end.
pub(super) fn index(what: &str, len: u64) -> Result<u32, DeviceError> {
    let fits = u32::try_from(len).ok().filter(|&n| n < u32::MAX);
    fits.ok_or_else(|| DeviceError::misuse(what, format!("{len} elements are more than 2^32 - 2; use more ranks")))
}

/// Refuses an array that is shorter than `len`.
pub(super) fn holds(what: &str, name: &str, have: u64, len: u64) -> Result<(), DeviceError> {
    DeviceError::ensure(have >= len, what, || format!("`{name}` has {have} elements of the {len} it needs"))
}

/// Refuses an array that is written if it is one of the others.
pub(super) fn distinct(what: &str, written: &RawArray, others: &[&RawArray]) -> Result<(), DeviceError> {
    let is_distinct = others.iter().all(|other| !written.shares(other));
    DeviceError::ensure(is_distinct, what, || "an array that is written is given twice".into())
}
