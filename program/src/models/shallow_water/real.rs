//! The numbers of a run: single or double precision.

use meshloom::gpu::{DeviceElement, Gpu};
use meshloom::io::{IoError, NpyElement, NpyFile};

use super::ShallowWaterError;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// Number type of a run: `f32`, or `f64` on devices that have it.
pub trait Real: DeviceElement + NpyElement + Send + Sync + sealed::Sealed {
    /// Whether it is `f64`.
    const DOUBLE: bool;

    /// Returns the nearest such number.
    fn nearest(value: f64) -> Self;

    /// Returns the number in f64.
    fn wide(self) -> f64;

    /// Finite numbers of a file.
    ///
    /// # Errors
    /// [`IoError`] of the file; for a number that is not finite it names the first index.
    fn read(file: &NpyFile, elements: std::ops::Range<u64>) -> Result<Vec<Self>, IoError>;
}

impl Real for f32 {
    const DOUBLE: bool = false;

    fn nearest(value: f64) -> Self {
        value as f32
    }

    fn wide(self) -> f64 {
        self.into()
    }

    fn read(file: &NpyFile, elements: std::ops::Range<u64>) -> Result<Vec<Self>, IoError> {
        file.read_finite_f32(elements)
    }
}

impl Real for f64 {
    const DOUBLE: bool = true;

    fn nearest(value: f64) -> Self {
        value
    }

    fn wide(self) -> f64 {
        self
    }

    fn read(file: &NpyFile, elements: std::ops::Range<u64>) -> Result<Vec<Self>, IoError> {
        file.read_finite_f64(elements)
    }
}

/// Refuses numbers that a device does not have.
pub(super) fn check<T: Real>(gpu: &Gpu) -> Result<(), ShallowWaterError> {
    match T::DOUBLE && !gpu.capabilities().f64 {
        true => Err(ShallowWaterError::NoDouble { device: gpu.info().name.clone() }),
        false => Ok(()),
    }
}
