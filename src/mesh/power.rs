//! Power spectra of fields.
//!
//! `P(k) = |delta_k|^2 V / N^2` with the unnormalised transform `delta_k`, averaged over bins one fundamental mode wide:
//! bin `b = floor(k / k_f + 1/2)`, `k_f = 2 pi / L` of the longest side, from 1 up to the Nyquist frequency of the
//! coarsest axis. Each mode of the half spectrum counts twice, except on the planes that are their own mirror image.
//!
//! Sums are exact (128-bit fixed point with a scale that all ranks share), so a spectrum is the same for any number of
//! ranks, to the last bit.

use crate::comm::{CommError, Communicator, Op};
use crate::grid::{Box3, extent};

use super::MeshError;
use crate::fft::Wave;

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
/// [`MeshError::Size`]; [`MeshError::Mode`] for the first mode of all ranks, in a bin or not, whose power is not finite, the
/// same on all ranks; [`MeshError::Comm`] when another rank fails.
pub fn power_spectrum(
    comm: &Communicator,
    geometry: &SpectrumGeometry,
    power: impl Fn(usize, [Wave; 3]) -> f64,
) -> Result<Vec<Bin>, MeshError> {
    let (shape, size) = (geometry.shape, geometry.size);
    sides(size)?;
    let fundamental = 2.0 * std::f64::consts::PI / size.iter().fold(0.0, |a: f64, &b| a.max(b));
    let nyquist = (0..3).map(|a| std::f64::consts::PI * shape[a] as f64 / size[a]).fold(f64::INFINITY, f64::min);
    let bins = (nyquist / fundamental + 1e-9).floor() as usize;
    let scale = (0..3).map(|a| size[a]).product::<f64>() / shape.iter().map(|&n| n as f64).product::<f64>().powi(2);

    let mut largest = [0u64];
    let bin_of = |waves: &[Wave; 3]| {
        let k = waves.iter().map(|wave| wave.k * wave.k).sum::<f64>().sqrt();
        (k, (k / fundamental + 0.5).floor() as usize)
    };
    let mut bad = None;
    geometry.modes(|index, at| {
        let value = power(index, geometry.waves(at));
        // Bits of what is not finite are above those of all that is.
        largest[0] = largest[0].max((value * scale).abs().to_bits());
        if bad.is_none() && !(value * scale).is_finite() {
            bad = Some(([0, 1, 2].map(|a| geometry.part[a].start + at[a]), value));
        }
    });
    comm.all_reduce(&mut largest, Op::Max)?;
    let largest = f64::from_bits(largest[0]);
    if !largest.is_finite()
        && let Some((index, power)) = first_of_all(comm, bad)?
    {
        return Err(MeshError::Mode { index, power });
    }
    // 2^40 modes of the largest power stay below 2^126.
    let unit = Unit::holding(largest, 84);
    let mut sums = vec![[0i128; 3]; bins + 1];
    // Wavenumbers are summed in fixed point, too.
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
            sum[2] += weight * unit.integer(power(index, waves) * scale);
        }
    });
    let mut flat: Vec<i128> = sums.into_iter().flatten().collect();
    comm.all_reduce(&mut flat, Op::Sum)?;
    let bins = flat.chunks(3).filter(|sum| sum[0] > 0).map(|sum| {
        let modes = sum[0] as f64;
        Bin { k: of_k.real(sum[1]) / modes, power: unit.real(sum[2]) / modes, modes: sum[0] as u64 }
    });
    Ok(bins.collect())
}

/// `values / mean - 1` of a distributed field, where `own` are the cells of this rank, C order, and the mean is that of
/// all ranks. All ranks call it. The mean is summed exactly, so the result does not depend on how the field is cut.
///
/// # Errors
/// [`MeshError::NotFinite`] and [`MeshError::Mean`], the same on all ranks; [`MeshError::Comm`] when another rank
/// fails.
pub fn density_contrast(comm: &Communicator, own: &Box3, values: &[f64]) -> Result<Vec<f32>, MeshError> {
    let [_, n1, n2] = extent(own).map(|n| n.max(1));
    let global = |at: u64| [at / (n1 * n2) + own[0].start, at / n2 % n1 + own[1].start, at % n2 + own[2].start];
    all_finite(comm, values, global)?;
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let mut most = [largest.to_bits()];
    comm.all_reduce(&mut most, Op::Max)?;
    // 84 bits per value leave room for 2^43 of them.
    let unit = Unit::holding(f64::from_bits(most[0]), 84);
    let units = values.iter().map(|&value| unit.integer(value));
    let mut sums = units.fold([0i128, 0, 0], |[sum, size, count], unit| [sum + unit, size + unit.abs(), count + 1]);
    comm.all_reduce(&mut sums, Op::Sum)?;
    let mean = scaled(sums[0] as f64 / sums[2] as f64, -unit.0);
    // What rounding to f32 leaves of the mean of a contrast. A density, which has one sign, is far from it.
    if sums[0].unsigned_abs() as f64 <= 1e-7 * sums[1] as f64 || mean == 0.0 {
        return Err(MeshError::Mean { mean });
    }
    Ok(values.iter().map(|value| (value / mean - 1.0) as f32).collect())
}

/// Sides for which neither a volume nor a power of modes leaves the range of f64.
const SIDES: std::ops::RangeInclusive<f64> = 1e-60..=1e60;

/// Checks the sides of a box.
pub(super) fn sides(size: [f64; 3]) -> Result<(), MeshError> {
    match size.iter().position(|side| !SIDES.contains(side)) {
        Some(axis) => Err(MeshError::Size { axis, size: size[axis] }),
        None => Ok(()),
    }
}

/// Checks that the values of all ranks are finite; `index` tells where this rank's value number `n` stands.
pub(super) fn all_finite<const N: usize>(
    comm: &Communicator,
    values: &[f64],
    index: impl Fn(u64) -> [u64; N],
) -> Result<(), MeshError> {
    let bad = values.iter().position(|value| !value.is_finite());
    match first_of_all(comm, bad.map(|at| (index(at as u64), values[at])))? {
        Some((index, value)) => Err(MeshError::NotFinite { index: index.to_vec(), value }),
        None => Ok(()),
    }
}

/// The value of the least index among those of all ranks.
fn first_of_all<const N: usize>(
    comm: &Communicator,
    own: Option<([u64; N], f64)>,
) -> Result<Option<([u64; N], f64)>, CommError> {
    let mine = own.map_or([u64::MAX; N], |(index, _)| index);
    let all = comm.all_gather(&mine)?;
    let Some(&first) = all.as_chunks::<N>().0.iter().min().filter(|first| **first != [u64::MAX; N]) else {
        return Ok(None);
    };
    // Only a rank that has the first index knows its value.
    let mut bits = [own.filter(|_| first == mine).map_or(0, |(_, value)| value.to_bits())];
    comm.all_reduce(&mut bits, Op::Max)?;
    Ok(Some((first, f64::from_bits(bits[0]))))
}

/// A fixed point: the power of two that makes integers of values.
#[derive(Clone, Copy)]
struct Unit(i32);

impl Unit {
    /// The point at which finite values up to `largest` take `bits` bits.
    fn holding(largest: f64, bits: i32) -> Self {
        // The power of two above the largest value.
        Unit(bits - ((largest.to_bits() >> 52) as i32 - 1022))
    }

    fn integer(self, value: f64) -> i128 {
        scaled(value, self.0) as i128
    }

    fn real(self, value: i128) -> f64 {
        scaled(value as f64, -self.0)
    }
}

/// `value 2^power`, in two steps: f64's own range of powers is too small for the inverse of some values.
fn scaled(value: f64, power: i32) -> f64 {
    value * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
}
