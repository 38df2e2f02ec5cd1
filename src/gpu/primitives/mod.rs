//! The primitives of parallel algorithms on device arrays: scan, reduction, permutation and stable
//! radix sort.
//!
//! | primitive | result |
//! |---|---|
//! | [`Scan`] | the sum of all elements before each |
//! | [`Reduce`] | sum, least, greatest element |
//! | [`Permute`] | rows gathered or scattered by an index |
//! | [`Elementwise`] | a function of each element of strided arrays |
//! | [`AxisReduce`] | sum, product, least, greatest element along axes |
//! | [`MatrixProduct`] | the product of two matrices |
//! | [`Sort`] | the stable order of 32- and 64-bit keys |
//!
//! - All record into a caller's [`Recorder`](crate::gpu::Recorder): nothing here submits or waits.
//!   Working arrays come from the device's pool and go back to it once the work has been submitted.
//! - They are cheap to make and keep their kernels, which compile on the first dispatch. One
//!   instance serves any sizes.
//! - How many elements count may be known to the device only ([`Count`]); arrays without elements
//!   are legal.
//! - No workgroup depends on the progress of another: sums go up in one dispatch and come down in
//!   the next (*reduce, then scan*), and a workgroup of a sort does what it waits for in vain.
//! - There are forms for GPUs (coalesced, with barriers) and for software renderers (serial,
//!   without). Results are the same bits in all forms, and on any number of windows. An array in
//!   many windows takes as many bindings: where the device has only the 8 of the floor, that is an
//!   error ([`DeviceError::TooManyWindows`]).
//! - Arrays that are written must be different from all others of the call.

mod count;
mod elementwise;
mod fold;
mod permute;
mod reduce;
mod scan;
mod sort;
mod strided;

pub use count::Count;
pub use elementwise::{Elementwise, Operand, Operation};
pub use fold::{AxisReduce, MatrixProduct, Reduction};
pub use permute::Permute;
pub use reduce::{Number, Reduce};
pub use scan::Scan;
pub use sort::{Form, Keys, KeysOfBits, Sort};
pub use strided::View;

#[cfg(doc)]
use crate::gpu::DeviceError;
use crate::gpu::KernelSource;

/// Returns the kernels of the room in all forms; those whose text has `subgroup` need operations
/// across a subgroup.
pub(crate) fn kernels() -> Vec<KernelSource> {
    [
        scan::kernels(),
        reduce::kernels(),
        permute::kernels().into(),
        sort::kernels(),
        elementwise::kernels(),
        fold::kernels(),
    ]
    .concat()
}
