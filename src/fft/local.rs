//! Transforms of host arrays on one device, without ranks: one call.

use super::error::{FftError, TransformError};
use super::spec::Value;
use super::transform::Transform;
use crate::comm::Communicator;
use crate::exchange::GridComms;
use crate::gpu::{Gpu, Recorder};
use crate::grid::Grid;

/// The spectrum of a field of `shape` in C order, as NumPy's `fftn` (complex numbers) and `rfftn` (real numbers, half the modes of the last
/// axis) have it. It waits for the device.
///
/// Kernels are compiled at the first call for a shape and kept by the device.
///
/// ```
/// use meshloom::{fft, gpu::{Gpu, Options}};
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let modes = fft::local(&gpu, [1, 1, 4], &[1.0_f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(modes, [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]);
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// [`FftError`] for what cannot be transformed on this device, [`FftError::Length`] where `field` is not as long as `shape` says, and
/// those of the device.
pub fn local<T: Value>(gpu: &Gpu, shape: [u64; 3], field: &[T]) -> Result<Vec<T::Mode>, TransformError> {
    let (transform, mut recorder, mut comms) = alone::<T>(gpu, shape)?;
    let layout = transform.field_layout();
    let array = transform.field(gpu, &layout)?;
    fits("field", field.len(), array.len())?;
    recorder.upload(&array, 0, field)?;
    let spectrum = transform.spectrum(gpu)?;
    transform.forward(&mut recorder, &mut comms, &array, &layout, &spectrum)?;
    Ok(recorder.download(&spectrum, 0, spectrum.len())?)
}

/// The field of `shape` with this spectrum, as NumPy's `ifftn` and `irfftn` have it: the inverse of [`local`]. It waits for the device.
///
/// ```
/// use meshloom::{fft, gpu::{Gpu, Options}};
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let field: Vec<f32> = fft::local_inverse(&gpu, [1, 1, 4], &[[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]])?;
/// assert_eq!(field, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// As [`local`].
pub fn local_inverse<T: Value>(gpu: &Gpu, shape: [u64; 3], spectrum: &[T::Mode]) -> Result<Vec<T>, TransformError> {
    let (transform, mut recorder, mut comms) = alone::<T>(gpu, shape)?;
    let layout = transform.field_layout();
    let array = transform.spectrum(gpu)?;
    fits("spectrum", spectrum.len(), array.len())?;
    recorder.upload(&array, 0, spectrum)?;
    let field = transform.field(gpu, &layout)?;
    transform.inverse(&mut recorder, &mut comms, &array, &field, &layout)?;
    Ok(recorder.download(&field, 0, field.len())?)
}

/// A transform, and what it is recorded and exchanged with.
fn alone<T: Value>(gpu: &Gpu, shape: [u64; 3]) -> Result<(Transform<T>, Recorder, GridComms), TransformError> {
    let grid = Grid::new([1, 1], 1)?;
    Ok((Transform::new(gpu, shape, grid, 0)?, Recorder::new(gpu)?, GridComms::new(&Communicator::solo(), grid)?))
}

fn fits(what: &'static str, have: usize, want: u64) -> Result<(), FftError> {
    if have as u64 == want { Ok(()) } else { Err(FftError::Length { what, have, want }) }
}
