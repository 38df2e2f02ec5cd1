//! The derivatives of a loss by the particles.

use crate::gpu::{Array, DeviceError, Gpu, Recorder};

/// The derivatives of a loss by positions and momenta of this rank's particles: vectors in one
/// array, all along x in the order of the sites, then y, then z.
pub struct Cotangents {
    pub(super) positions: Array<f32>,
    pub(super) momenta: Array<f32>,
}

impl Cotangents {
    /// Creates uninitialized cotangents of `particles` particles.
    pub(super) fn new(gpu: &Gpu, particles: u64) -> Result<Self, DeviceError> {
        Ok(Cotangents {
            positions: gpu.array("pm::position_cotangents", 3 * particles)?,
            momenta: gpu.array("pm::momentum_cotangents", 3 * particles)?,
        })
    }

    pub(in crate::pm) fn clear(&self, recorder: &mut Recorder) {
        recorder.clear(&self.positions);
        recorder.clear(&self.momenta);
    }

    /// Returns the cotangents of the displacements, in Mpc/h: `3 n` values, to which a loss adds.
    #[must_use]
    pub fn positions(&self) -> &Array<f32> {
        &self.positions
    }

    /// Returns the cotangents of the momenta `a^2 dx/dt`.
    #[must_use]
    pub fn momenta(&self) -> &Array<f32> {
        &self.momenta
    }
}
