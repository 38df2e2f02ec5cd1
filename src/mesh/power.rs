//! Power spectra of fields.
//!
//! `P(k) = |delta_k|^2 V / N^2` with the unnormalized transform `delta_k`, averaged over bins one
//! fundamental mode wide: bin `b = floor(k / k_f + 1/2)`, `k_f = 2 pi / L` of the longest side,
//! from 1 up to the Nyquist frequency of the coarsest axis. Each mode of the half spectrum counts
//! twice, except on the planes that are their own mirror image.
//!
//! Sums are exact (128-bit fixed point with a scale that all ranks share), so a spectrum is the
//! same for any number of ranks, to the last bit.

use crate::comm::{CommError, Communicator, Op};
use crate::grid::{Box3, extent};

use super::mode_bins::{ModeBins, ModeSums, Unit};
use super::{MeshError, SpectrumGeometry};
use crate::fft::Wave;
use crate::host_memory;

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

/// Bins `power(mode, waves)`, a mode's |delta_k|^2 with any correction, over the modes of all
/// ranks. Collective; all ranks get the result; bins without modes are left out.
///
/// # Errors
/// [`MeshError::Size`] and [`MeshError::Bins`]; [`MeshError::Mode`] for the first mode of all
/// ranks, in a bin or not, whose power is not finite, the same on all ranks; [`MeshError::Comm`]
/// when another rank fails.
pub fn power_spectrum(
    comm: &Communicator,
    geometry: &SpectrumGeometry,
    power: impl Fn(usize, [Wave; 3]) -> f64,
) -> Result<Vec<Bin>, MeshError> {
    sides(geometry.size)?;
    let bins = ModeBins::new(geometry)?;
    let scale = geometry.scale();

    let (mut largest, mut bad) = (0, None);
    geometry.modes(|index, at| {
        let value = power(index, geometry.waves(at));
        // Bits of what is not finite are above those of all that is.
        largest = largest.max((value * scale).abs().to_bits());
        if bad.is_none() && !(value * scale).is_finite() {
            bad = Some(([0, 1, 2].map(|a| geometry.part[a].start + at[a]), value));
        }
    });
    let largest = f64::from_bits(comm.reduced([largest], Op::Max)?[0]);
    if !largest.is_finite()
        && let Some((index, power)) = first_of_all(comm, bad)?
    {
        return Err(MeshError::Mode { index, power });
    }
    // 2^40 modes of the largest power stay below 2^126.
    let unit = Unit::holding(largest, 84);
    let mut powers = vec![0i128; bins.count + 1];
    geometry.modes(|index, at| {
        let square = (0..3).map(|a| bins.squares[a][at[a] as usize]).sum();
        if let Some(sum) = powers.get_mut(bins.of(square)) {
            let weight = i128::from(geometry.weight(geometry.part[2].start + at[2]));
            *sum += weight * unit.integer(power(index, geometry.waves(at)) * scale);
        }
    });
    let modes = bins.sums(geometry);
    Ok(means(comm, &bins, modes, powers, |sum| unit.real(sum))?)
}

/// Returns the bins of all ranks' sums, where `power` makes a power of an integer.
pub(super) fn means(
    comm: &Communicator,
    bins: &ModeBins,
    modes: ModeSums,
    powers: Vec<i128>,
    power: impl Fn(i128) -> f64,
) -> Result<Vec<Bin>, CommError> {
    let sums = modes.into_iter().zip(powers).skip(1).flat_map(|([modes, k], power)| [modes, k, power]);
    let mut flat: Vec<i128> = sums.collect();
    comm.all_reduce(&mut flat, Op::Sum)?;
    let of_k = bins.unit();
    let bins = flat.chunks(3).filter(|sum| sum[0] > 0).map(|sum| {
        let modes = sum[0] as f64;
        Bin { k: of_k.real(sum[1]) / modes, power: power(sum[2]) / modes, modes: sum[0] as u64 }
    });
    Ok(bins.collect())
}

/// The largest share of negative values in the magnitude of a density, which rounding and
/// deconvolution leave.
const NEGATIVE: f64 = 0.01;

/// Computes the density contrast `values / mean - 1` of a distributed field.
///
/// `own` are the cells of this rank, in C order; the mean is that of all ranks. It is summed
/// exactly, so the result does not depend on the decomposition. Collective.
///
/// # Errors
/// - [`MeshError::NotFinite`] if a value of any rank is not finite.
/// - [`MeshError::NotDensity`] if the mean is not positive, or negative values make up more than a
///   hundredth of the sum of all magnitudes: the mean of such a field does not measure its values.
///   [`field_contrast`] takes it.
/// - [`MeshError::Comm`] if another rank fails.
pub fn density_contrast(comm: &Communicator, own: &Box3, values: &[f64]) -> Result<Vec<f32>, MeshError> {
    let Sums { mean, negative } = sums(comm, own, values)?;
    if mean.is_nan() || mean <= 0.0 || negative > NEGATIVE {
        return Err(MeshError::NotDensity { mean, negative });
    }
    Ok(host_memory::collect("the density contrast", values.iter().map(|value| (value / mean - 1.0) as f32))?)
}

/// Computes `values - mean` of a distributed field of any sign: a contrast, a divergence, a
/// temperature.
///
/// Parameters, exact sums and order as in [`density_contrast`]. Collective.
///
/// # Errors
/// - [`MeshError::NotFinite`] if a value of any rank is not finite.
/// - [`MeshError::Comm`] if another rank fails.
pub fn field_contrast(comm: &Communicator, own: &Box3, values: &[f64]) -> Result<Vec<f32>, MeshError> {
    let Sums { mean, .. } = sums(comm, own, values)?;
    Ok(host_memory::collect("the contrast", values.iter().map(|value| (value - mean) as f32))?)
}

/// Exact sums over the cells of all ranks.
struct Sums {
    /// The mean of all cells.
    mean: f64,
    /// The magnitude of negative values divided by that of all values; 0 for a field of zeros.
    negative: f64,
}

fn sums(comm: &Communicator, own: &Box3, values: &[f64]) -> Result<Sums, MeshError> {
    let [_, n1, n2] = extent(own).map(|n| n.max(1));
    let global = |at: u64| [at / (n1 * n2) + own[0].start, at / n2 % n1 + own[1].start, at % n2 + own[2].start];
    all_finite(comm, values, global)?;
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let [largest] = comm.reduced([largest.to_bits()], Op::Max)?;
    // 84 bits per value leave room for 2^43 of them.
    let unit = Unit::holding(f64::from_bits(largest), 84);
    let units = values.iter().map(|&value| unit.integer(value));
    let sums = units.fold([0i128, 0, 0], |[sum, size, count], unit| [sum + unit, size + unit.abs(), count + 1]);
    let [sum, magnitude, count] = comm.reduced(sums, Op::Sum)?;
    let negative = if magnitude == 0 { 0.0 } else { ((magnitude - sum) / 2) as f64 / magnitude as f64 };
    Ok(Sums { mean: unit.divided(sum as f64 / count as f64), negative })
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

/// Checks that the values of all ranks are finite; `index` tells where this rank's value number `n`
/// stands.
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

/// Returns the value with the smallest index among those of all ranks.
pub(super) fn first_of_all<const N: usize>(
    comm: &Communicator,
    own: Option<([u64; N], f64)>,
) -> Result<Option<([u64; N], f64)>, CommError> {
    let mine = own.map_or([u64::MAX; N], |(index, _)| index);
    let all = comm.all_gather(&mine)?;
    let Some(&first) = all.as_chunks::<N>().0.iter().min().filter(|first| **first != [u64::MAX; N]) else {
        return Ok(None);
    };
    // Only a rank that has the first index knows its value.
    let bits = own.filter(|_| first == mine).map_or(0, |(_, value)| value.to_bits());
    let [bits] = comm.reduced([bits], Op::Max)?;
    Ok(Some((first, f64::from_bits(bits))))
}
