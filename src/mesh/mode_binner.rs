//! Power spectra of modes that are on the device, also of products of two fields.
//!
//! With `Re(a b*) = (|a + b|^2 - |a - b|^2) / 4` every spectrum of a product is a difference of two
//! powers, each summed exactly: it has the same bits on any number of ranks, as powers have. Its
//! error is some 2^-22 of the mean of the two powers.

use std::sync::{Mutex, PoisonError};

use super::mode_bins::{ModeBins, ModeSums};
use super::power::{first_of_all, means, sides};
use super::{Axpby, Bin, MeshError, SpectrumGeometry, Window, four};
use crate::comm::{Communicator, Op};
use crate::fft::Wave;
use crate::gpu::{Array, CountParams, DeviceError, Kernel, KernelSource, Recorder, holds};
use crate::grid::{extent, volume};

/// Bins that a workgroup sums at once, in 14 of the floor's 16 KiB of workgroup memory.
const BINS: usize = 512;
/// Words of a bin's sum, of 16 bits each.
const WORDS: usize = 8;
/// Bits that powers are added to.
const BITS: i32 = 112;
/// Modes that a workgroup sums: enough that its sums, which it adds to those of all, cost little
/// beside them.
const CHUNK: u64 = 1 << 14;
/// Workgroups at most: as many as the words of a sum hold.
const MOST_WORKGROUPS: u64 = 65_535;

crate::gpu::kernel_params! {
    struct BinParams {
        /// Modes of this rank by axis.
        part: [u32; 4],
        /// Modes of this rank, and of a workgroup.
        count: u32,
        chunk: u32,
        /// The first bin of this dispatch, where its sum stands, and how many follow.
        first_bin: u32,
        first_sum: u32,
        bins: u32,
        /// The first mode of this rank along the half axis, and the cells of the whole axis.
        first_half: u32,
        last_axis: u32,
        /// Offset from the exponent of a power to the place of its lowest bit.
        shift: i32,
        /// Factor of the modes.
        scale: f32,
    }
}

/// Returns what finds the largest mode, and what sums powers, without and with interlacing.
pub(super) fn kernels() -> [KernelSource; 3] {
    let bins = |label: &str, interlaced: bool| {
        KernelSource::new(label, include_str!("../../shaders/mesh/power/bins.wgsl"))
            .params::<BinParams>()
            .constant("BINS", BINS as u32)
            .flag("interlaced", interlaced)
    };
    let peak = KernelSource::new("mesh::power_peak", include_str!("../../shaders/mesh/power/peak.wgsl"));
    [peak.params::<CountParams>(), bins("mesh::power_bins", false), bins("mesh::power_bins_interlaced", true)]
}

/// Modes whose power is to be measured, on the device: a rank's part of a half spectrum, C order.
#[derive(Clone, Copy)]
pub struct Modes<'a> {
    /// The modes of a field.
    pub modes: &'a Array<[f32; 2]>,
    /// Modes of the same points moved by half a cell along each axis, for *interlacing*: the mean
    /// of both, the second moved back, is free of the strongest aliases (Sefusatti et al. 2016).
    pub shifted: Option<&'a Array<[f32; 2]>>,
    /// The window whose power is divided by.
    pub window: Option<Window>,
}

/// Bins the power of modes on the device. Kernels compile once for all spectra.
///
/// - A power is computed in `f32`, with a relative error of some 2^-22, and summed exactly, so that
///   a spectrum has the same bits on any number of ranks. What is 2^-84 of the largest power and
///   less may be lost.
/// - Numbers of modes and their mean wavenumbers are those of
///   [`power_spectrum`](super::power_spectrum), computed on the host while the device works, once
///   for spectra of one geometry that follow each other.
pub struct ModeBinner {
    peak: Kernel,
    plain: Kernel,
    interlaced: Kernel,
    /// Modes and wavenumbers in the bins of the last geometry.
    counted: Mutex<Option<(SpectrumGeometry, ModeSums)>>,
}

impl Default for ModeBinner {
    fn default() -> Self {
        let [peak, plain, interlaced] = kernels().map(Kernel::trusted);
        ModeBinner { peak, plain, interlaced, counted: Mutex::default() }
    }
}

/// Scale of powers on all ranks.
struct Scale {
    /// Modes are multiplied by 2 to this power, so that the largest is about 1.
    exponent: i32,
    /// Powers are less than 2 to this power then.
    top: i32,
}

impl ModeBinner {
    /// Measures the spectrum of all ranks' modes, `|delta_k|^2 V / N^2` averaged over bins; bins
    /// without modes are left out. Collective; all ranks get the result. Waits for the device.
    ///
    /// # Errors
    /// [`MeshError::Size`] and [`MeshError::Bins`]; [`MeshError::Mode`] for the first mode of all
    /// ranks, in a bin or not, that is not finite, the same on all ranks; [`MeshError`] of the
    /// device or the ranks, [`DeviceError::Misuse`] for arrays that are too short.
    pub fn measure(
        &self,
        recorder: &mut Recorder,
        comm: &Communicator,
        geometry: &SpectrumGeometry,
        modes: Modes<'_>,
    ) -> Result<Vec<Bin>, MeshError> {
        sides(geometry.size)?;
        let count = volume(&geometry.part);
        for array in [Some(modes.modes), modes.shifted].into_iter().flatten() {
            holds("ModeBinner::measure", "modes", array, count)?;
        }
        let factors = factors(geometry, modes.window);
        let largest = self.largest(recorder, comm, geometry, modes)?;
        let scale = Scale::new(largest, &factors, comm)?;
        let bins = ModeBins::new(geometry)?;
        let sums = self.sum(recorder, geometry, modes, &bins, &factors, &scale)?;
        recorder.submit()?;
        // While the device sums.
        let counted = self.counted(geometry, &bins);
        let words = recorder.download(&sums, 0, sums.len())?;
        let value = |words: &[u32]| words.iter().rev().fold(0, |sum: i128, &word| (sum << 16) + i128::from(word));
        let powers = [0].into_iter().chain(words.chunks(WORDS).map(value)).collect();
        let unit = geometry.scale() * 2f64.powi(scale.top - BITS - scale.exponent) * 2f64.powi(-scale.exponent);
        Ok(means(comm, &bins, counted, powers, |sum| sum as f64 * unit)?)
    }

    /// [`ModeBins::sums`].
    fn counted(&self, geometry: &SpectrumGeometry, bins: &ModeBins) -> ModeSums {
        let mut last = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let own = last.take().filter(|(of, _)| of == geometry);
        last.insert(own.unwrap_or_else(|| (geometry.clone(), bins.sums(geometry)))).1.clone()
    }

    /// Returns the largest part of all ranks' modes.
    fn largest(
        &self,
        recorder: &mut Recorder,
        comm: &Communicator,
        geometry: &SpectrumGeometry,
        modes: Modes<'_>,
    ) -> Result<f32, MeshError> {
        let count = volume(&geometry.part);
        let found = recorder.gpu().array::<u32>("mesh::peak", 2)?;
        recorder.clear(&found);
        for array in [Some(modes.modes), modes.shifted].into_iter().flatten() {
            recorder.each(&self.peak, &[array.raw(), found.raw()], &CountParams { count: count as u32 }, count)?;
        }
        let found = recorder.download(&found, 0, 2)?;
        let [peak, is_bad] = comm.reduced([found[0], found[1].min(1)], Op::Max)?;
        if is_bad == 0 {
            return Ok(f32::from_bits(peak));
        }
        let mut bad = None;
        if found[1] > 0 {
            let index = u64::from(!found[1]);
            let mut power = 0.0;
            for array in [Some(modes.modes), modes.shifted].into_iter().flatten() {
                let [re, im] = recorder.download(array, index, 1)?[0].map(f64::from);
                power += re * re + im * im;
            }
            bad = Some((geometry.place(index), power));
        }
        match first_of_all(comm, bad)? {
            Some((index, power)) => Err(MeshError::Mode { index, power }),
            // Not reached: some rank found one.
            None => Ok(f32::from_bits(peak)),
        }
    }

    /// Records the sums of this rank's powers in all bins from 1 on.
    fn sum(
        &self,
        recorder: &mut Recorder,
        geometry: &SpectrumGeometry,
        modes: Modes<'_>,
        bins: &ModeBins,
        factors: &[f32],
        scale: &Scale,
    ) -> Result<Array<u32>, DeviceError> {
        let count = volume(&geometry.part);
        let squares: Vec<u32> =
            bins.squares.iter().flatten().flat_map(|&square| [square as u32, (square >> 32) as u32]).collect();
        let square_table = recorder.uploaded("mesh::bins", &squares)?;
        let sums = recorder.gpu().array::<u32>("mesh::bins", (WORDS * bins.count) as u64)?;
        let factor_table = recorder.uploaded("mesh::factors", factors)?;
        recorder.clear(&sums);
        let chunk = CHUNK.max(count.div_ceil(MOST_WORKGROUPS));
        let mut arrays = vec![modes.modes.raw()];
        arrays.extend(modes.shifted.map(Array::raw));
        arrays.extend([square_table.raw(), factor_table.raw(), sums.raw()]);
        let kernel = if modes.shifted.is_some() { &self.interlaced } else { &self.plain };
        for first in (0..bins.count).step_by(BINS) {
            let params = BinParams {
                part: four(extent(&geometry.part), 0),
                count: count as u32,
                chunk: chunk as u32,
                first_bin: first as u32 + 1,
                first_sum: first as u32,
                bins: (bins.count - first).min(BINS) as u32,
                first_half: geometry.part[2].start as u32,
                last_axis: geometry.shape[2] as u32,
                shift: BITS - scale.top - 150,
                scale: 2f32.powi(scale.exponent),
            };
            recorder.dispatch(kernel, &arrays, &params, count.div_ceil(chunk))?;
        }
        Ok(sums)
    }

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

impl Scale {
    /// Creates the scale of all ranks, where `largest` is the largest part of a mode on this rank.
    fn new(largest: f32, factors: &[f32], comm: &Communicator) -> Result<Self, MeshError> {
        // The power of two above the largest part, as far as its inverse is a number.
        let above = ((largest.to_bits() >> 23) as i32 - 126).clamp(-126, 126);
        // The window's factors of three axes; a mode has two parts, and counts twice.
        let most = factors.chunks(3).fold(1.0f32, |most, factor| most.max(factor[0])).to_bits();
        let [most] = comm.reduced([most], Op::Max)?;
        let most = f64::from(f32::from_bits(most)).powi(3);
        Ok(Scale { exponent: -above, top: 3 + most.log2().ceil() as i32 })
    }
}

/// For each index of each axis of the part: the inverse of the power of the window, and cosine and
/// sine of half the mode's phase over a cell, which moves points back by half a cell.
fn factors(geometry: &SpectrumGeometry, window: Option<Window>) -> Vec<f32> {
    let factor = |axis: usize, index: u64| {
        let w = Wave::new(index, geometry.shape[axis], geometry.size[axis]).w;
        // Points that were moved by +h/2 have their modes multiplied by exp(-i w / 2) in a
        // transform with exp(-i k x). Nyquist modes stand for both signs of w, which no phase
        // suits: like everywhere in the transform they count as negative.
        let inverse = window.map_or(1.0, |window| window.transform(w).powi(-2));
        [inverse, (w / 2.0).cos(), (w / 2.0).sin()].map(|value| value as f32)
    };
    (0..3)
        .flat_map(|axis| geometry.part[axis].clone().map(move |index| (axis, index)))
        .flat_map(|(a, index)| factor(a, index))
        .collect()
}

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
fn line_of_sight_kernel() -> KernelSource {
    KernelSource::new("mesh::line_of_sight", include_str!("../../shaders/mesh/power/line_of_sight.wgsl"))
        .params::<SightParams>()
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
    let params = SightParams { part: four(extent(&geometry.part), 0), count: count as u32, axis: axis as u32 };
    recorder.each(
        &Kernel::trusted(line_of_sight_kernel()),
        &[modes.raw(), table.raw(), along.raw()],
        &params,
        count,
    )?;
    Ok(along)
}
