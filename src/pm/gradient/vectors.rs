//! Vectors of particles in one array: all along x, then y, then z.

use crate::gpu::{Array, DeviceError, Recorder};

/// Records `to` = the vectors `from`, one array for each axis.
pub fn pack(recorder: &mut Recorder, from: &[Array<f32>; 3], to: &Array<f32>, start: u64) -> Result<(), DeviceError> {
    let count = from[0].len();
    (0..3).try_for_each(|axis| recorder.copy(&from[axis], 0, to, start + axis as u64 * count, count))
}

/// Records `to`, one array for each axis, = the vectors `from`.
pub fn unpack(recorder: &mut Recorder, from: &Array<f32>, start: u64, to: &[Array<f32>; 3]) -> Result<(), DeviceError> {
    let count = to[0].len();
    (0..3).try_for_each(|axis| recorder.copy(from, start + axis as u64 * count, &to[axis], 0, count))
}
