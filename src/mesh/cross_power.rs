//! Spectra of products of two fields' modes, from powers of their sum and difference.
//!
//! With `Re(a b*) = (|a + b|^2 - |a - b|^2) / 4` every such spectrum is a difference of two powers,
//! each summed exactly: it has the same bits on any number of ranks, as powers have. Its error is
//! some 2^-22 of the mean of the two powers.

use super::axpby::Axpby;
use super::error::MeshError;
use super::mode_binner::{ModeBinner, Modes};
use super::mode_bins::ModeBins;
use super::power::{Bin, sides};
use super::spectrum::SpectrumGeometry;
use crate::comm::Communicator;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::{extent, volume};

crate::gpu::kernel_params! {
    struct SightParams {
        /// Modes of this rank by axis.
        part: [u32; 4],
        count: u32,
        /// The axis of the line of sight.
        axis: u32,
    }
}

/// Returns what multiplies by the squared cosine.
pub(super) fn kernels() -> [KernelSource; 1] {
    let text = include_str!("../../shaders/mesh/power/line_of_sight.wgsl");
    [KernelSource::new("mesh::line_of_sight", text).params::<SightParams>()]
}

/// The multipoles of a bin: `P_l = (2 l + 1) <|delta_k|^2 L_l(mu)> V / N^2`, where mu is the cosine
/// between wave vector and line of sight and `L_l` are Legendre's polynomials (Hamilton 1998).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipoles {
    /// The mean power, and the bin.
    pub monopole: Bin,
    /// l = 2.
    pub quadrupole: f64,
    /// l = 4.
    pub hexadecapole: f64,
}

impl ModeBinner {
    /// Measures the cross-spectrum of two fields, `Re(a_k b_k*) V / N^2` averaged over the bins of
    /// [`measure`](Self::measure). Both have the same geometry and window, and both or neither have
    /// shifted modes. Collective; all ranks get the result. Waits for the device.
    ///
    /// # Errors
    /// Same as [`measure`](Self::measure); [`DeviceError::Misuse`] if only one has shifted modes,
    /// or lengths differ.
    pub fn cross(
        &self,
        recorder: &mut Recorder,
        comm: &Communicator,
        geometry: &SpectrumGeometry,
        [a, b]: [Modes<'_>; 2],
    ) -> Result<Vec<Bin>, MeshError> {
        if a.shifted.is_some() != b.shifted.is_some() {
            return Err(DeviceError::misuse("ModeBinner::cross", "one field is interlaced and the other is not").into());
        }
        let mut of = |sign: f64| -> Result<Vec<Bin>, MeshError> {
            let modes = combined(recorder, a.modes, sign, b.modes)?;
            let pairs = a.shifted.zip(b.shifted);
            let shifted = pairs.map(|(a, b)| combined(recorder, a, sign, b)).transpose()?;
            self.measure(recorder, comm, geometry, Modes { modes: &modes, shifted: shifted.as_ref(), window: a.window })
        };
        let (mut bins, apart) = (of(1.0)?, of(-1.0)?);
        bins.iter_mut().zip(apart).for_each(|(bin, apart)| bin.power = (bin.power - apart.power) / 4.0);
        Ok(bins)
    }

    /// Returns the multipoles of a field's power about the line of sight along `axis`. All ranks
    /// call it and all get the result. Waits for the device.
    ///
    /// # Errors
    /// Same as [`measure`](Self::measure); [`DeviceError::Misuse`] for an axis beyond 2.
    pub fn multipoles(
        &self,
        recorder: &mut Recorder,
        comm: &Communicator,
        geometry: &SpectrumGeometry,
        modes: Modes<'_>,
        axis: usize,
    ) -> Result<Vec<Multipoles>, MeshError> {
        if axis > 2 {
            let why = format!("the line of sight is along axis {axis}, and there are 0 to 2");
            return Err(DeviceError::misuse("ModeBinner::multipoles", why).into());
        }
        sides(geometry.size)?;
        let along = line_of_sight(recorder, geometry, modes.modes, axis)?;
        let shifted = modes.shifted.map(|shifted| line_of_sight(recorder, geometry, shifted, axis)).transpose()?;
        let along = Modes { modes: &along, shifted: shifted.as_ref(), window: modes.window };
        // Means of |delta|^2 times mu^0, mu^2 and mu^4.
        let zeroth = self.measure(recorder, comm, geometry, modes)?;
        let second = self.cross(recorder, comm, geometry, [modes, along])?;
        let fourth = self.measure(recorder, comm, geometry, along)?;
        let bins = zeroth.into_iter().zip(second).zip(fourth);
        Ok(bins
            .map(|((monopole, second), fourth)| {
                let [p0, p2, p4] = [monopole.power, second.power, fourth.power];
                Multipoles {
                    monopole,
                    quadrupole: 2.5 * (3.0 * p2 - p0),
                    hexadecapole: 9.0 / 8.0 * (35.0 * p4 - 30.0 * p2 + 3.0 * p0),
                }
            })
            .collect())
    }
}

/// `a + sign b`.
fn combined(
    recorder: &mut Recorder,
    a: &Array<[f32; 2]>,
    sign: f64,
    b: &Array<[f32; 2]>,
) -> Result<Array<[f32; 2]>, DeviceError> {
    let sum = recorder.gpu().array::<[f32; 2]>("mesh::combined", a.len())?;
    recorder.copy(a, 0, &sum, 0, a.len())?;
    Axpby::default().record(recorder, sign, &b.cast()?, 1.0, &sum.cast()?)?;
    Ok(sum)
}

/// Computes the modes times the squared cosine between their wave vectors and an axis.
fn line_of_sight(
    recorder: &mut Recorder,
    geometry: &SpectrumGeometry,
    modes: &Array<[f32; 2]>,
    axis: usize,
) -> Result<Array<[f32; 2]>, MeshError> {
    let (count, squares) = (volume(&geometry.part), ModeBins::new(geometry)?.real_squares());
    let table = recorder.uploaded("mesh::squares", &squares)?;
    // What is beyond the part stays nothing.
    let along = recorder.gpu().array::<[f32; 2]>("mesh::along", modes.len())?;
    recorder.clear(&along);
    let [i, j, k] = extent(&geometry.part).map(|n| n as u32);
    let params = SightParams { part: [i, j, k, 0], count: count as u32, axis: axis as u32 };
    let [kernel] = kernels().map(Kernel::trusted);
    recorder.each(&kernel, &[modes.raw(), table.raw(), along.raw()], &params, count)?;
    Ok(along)
}
