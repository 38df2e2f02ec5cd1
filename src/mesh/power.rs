//! Power spectra of fields.
//!
//! `P(k) = |delta_k|^2 V / N^2` with the unnormalised transform `delta_k`, averaged over bins one fundamental mode wide:
//! bin `b = floor(k / k_f + 1/2)`, `k_f = 2 pi / L` of the longest side, from 1 up to the Nyquist frequency of the
//! coarsest axis. Each mode of the half spectrum counts twice, except on the planes that are their own mirror image.
//!
//! Sums are exact (128-bit fixed point with a scale that all ranks share), so a spectrum is the same for any number of
//! ranks, to the last bit.

use crate::comm::{CommError, Communicator, Op};
use crate::layout::{Box3, extent};

use super::operator::Wave;

/// One bin of a power spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Mean wavenumber of its modes.
    pub k: f64,
    /// Mean power.
    pub power: f64,
    /// Number of modes, of the whole spectrum.
    pub modes: u64,
}

/// A spectrum's geometry: the mesh, the box and the part of the half spectrum that this rank holds.
#[derive(Clone, Debug)]
pub struct SpectrumGeometry {
    /// Cells along each axis of the mesh.
    pub shape: [u64; 3],
    /// Size of the box.
    pub size: [f64; 3],
    /// Modes of this rank, C order; the last axis is the half one.
    pub part: Box3,
}

impl SpectrumGeometry {
    /// The waves of the mode with this index in each axis of the part.
    pub fn waves(&self, at: [u64; 3]) -> [Wave; 3] {
        [0, 1, 2].map(|a| Wave::new(self.part[a].start + at[a], self.shape[a], self.size[a]))
    }

    /// Calls `body` with the index in the array and in each axis of every mode.
    fn modes(&self, mut body: impl FnMut(usize, [u64; 3])) {
        let [n0, n1, n2] = extent(&self.part);
        let mut index = 0;
        for i in 0..n0 {
            for j in 0..n1 {
                for k in 0..n2 {
                    body(index, [i, j, k]);
                    index += 1;
                }
            }
        }
    }
}

/// Bins `power(mode, waves)`, a mode's |delta_k|^2 with whatever correction, over the modes of all ranks. All ranks call
/// it and all get the result; bins without modes are left out.
///
/// # Errors
/// [`CommError`] when another rank fails.
pub fn power_spectrum(
    comm: &Communicator,
    geometry: &SpectrumGeometry,
    power: impl Fn(usize, [Wave; 3]) -> f64,
) -> Result<Vec<Bin>, CommError> {
    let (shape, size) = (geometry.shape, geometry.size);
    let fundamental = 2.0 * std::f64::consts::PI / size.iter().fold(0.0, |a: f64, &b| a.max(b));
    let nyquist = (0..3).map(|a| std::f64::consts::PI * shape[a] as f64 / size[a]).fold(f64::INFINITY, f64::min);
    let bins = (nyquist / fundamental + 1e-9).floor() as usize;
    let scale = (0..3).map(|a| size[a]).product::<f64>() / shape.iter().map(|&n| n as f64).product::<f64>().powi(2);

    let mut largest = [0u64];
    let bin_of = |waves: &[Wave; 3]| {
        let k = waves.iter().map(|wave| wave.k * wave.k).sum::<f64>().sqrt();
        (k, (k / fundamental + 0.5).floor() as usize)
    };
    geometry.modes(|index, at| {
        let value = power(index, geometry.waves(at));
        largest[0] = largest[0].max(value.abs().to_bits());
    });
    comm.all_reduce(&mut largest, Op::Max)?;
    let largest = f64::from_bits(largest[0]);
    // 2^40 modes of the largest power stay below 2^126.
    let unit = Unit::holding(largest, 84);
    let mut sums = vec![[0i128; 3]; bins + 1];
    // k in units of 2^-60 of the Nyquist frequency's sphere.
    let of_k = Unit::holding(2.0 * nyquist, 84);
    geometry.modes(|index, at| {
        let waves = geometry.waves(at);
        let (k, bin) = bin_of(&waves);
        if (1..=bins).contains(&bin) {
            let half = geometry.part[2].start + at[2];
            let weight = if half == 0 || 2 * half == shape[2] { 1 } else { 2 };
            let sum = &mut sums[bin];
            sum[0] += weight;
            sum[1] += weight * of_k.integer(k);
            sum[2] += weight * unit.integer(power(index, waves));
        }
    });
    let mut flat: Vec<i128> = sums.into_iter().flatten().collect();
    comm.all_reduce(&mut flat, Op::Sum)?;
    let bins = flat.chunks(3).filter(|sum| sum[0] > 0).map(|sum| {
        let modes = sum[0] as f64;
        Bin { k: of_k.real(sum[1]) / modes, power: unit.real(sum[2]) / modes * scale, modes: sum[0] as u64 }
    });
    Ok(bins.collect())
}

/// A fixed point.
#[derive(Clone, Copy)]
struct Unit(i32);

impl Unit {
    /// The point at which `largest` takes `bits` bits.
    fn holding(largest: f64, bits: i32) -> Self {
        let exponent = if largest > 0.0 && largest.is_finite() { largest.log2().floor() as i32 } else { 0 };
        Unit((bits - exponent).clamp(-900, 900))
    }

    fn integer(self, value: f64) -> i128 {
        (value * 2f64.powi(self.0)) as i128
    }

    fn real(self, value: i128) -> f64 {
        value as f64 * 2f64.powi(-self.0)
    }
}
