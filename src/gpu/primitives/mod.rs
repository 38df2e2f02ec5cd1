//! What parallel algorithms on device arrays are made of: scan, reduction, permutation and stable
//! radix sort.
//!
//! | primitive | result |
//! |---|---|
//! | [`Scan`] | the sum of all elements before each |
//! | [`Reduce`] | sum, least, greatest element |
//! | [`Permute`] | rows gathered or scattered by an index |
//! | [`Sort`] | the stable order of 32- and 64-bit keys |
//!
//! - All record into a caller's [`Recorder`](crate::gpu::Recorder): nothing here submits or waits. Working arrays
//!   come from the device's pool and go back to it once the work has been submitted.
//! - They are cheap to make and keep their kernels, which compile on the first dispatch. One instance serves any sizes.
//! - How many elements count may be known to the device only ([`Count`]); arrays without elements are legal.
//! - No workgroup waits for another: sums go up in one dispatch and come down in the next (*reduce, then scan*).
//! - There are forms for GPUs (coalesced, with barriers) and for software renderers (serial, without). Results are the
//!   same bits in all forms, and on any number of windows. An array in many windows takes as many bindings: where the
//!   device has only the 8 of the floor, that is an error ([`DeviceError::TooManyWindows`]).
//! - Arrays that are written must be different from all others of the call.

mod count;
mod number;
mod permute;
mod reduce;
mod scan;
mod sort;

pub use count::Count;
pub use number::Number;
pub use permute::Permute;
pub use reduce::Reduce;
pub use scan::Scan;
pub use sort::{Form, Keys, KeysOfBits, Sort};

#[cfg(doc)]
use crate::gpu::DeviceError;
use crate::gpu::KernelSource;

/// All kernels of all forms but those of [`subgroup_sources`], for tests that go over all of the library's kernels.
#[doc(hidden)]
pub fn sources() -> Vec<KernelSource> {
    let sorts = [Form::Software, Form::Portable].into_iter().flat_map(|form| Sort::with(form).own_sources());
    [Scan::new().sources(), Reduce::new().sources(), Permute::new().sources()]
        .into_iter()
        .flatten()
        .chain(sorts)
        .collect()
}

/// The kernels that need operations across a subgroup.
#[doc(hidden)]
pub fn subgroup_sources() -> Vec<KernelSource> {
    Sort::subgroup_sources()
}
