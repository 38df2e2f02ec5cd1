//! The start of a run: Lagrangian perturbation theory of order 1 and 2 on the particles' lattice.
//!
//! From white noise `w`, with `s = i k / k^2` acting on the density contrast at `D1 = 1`:
//!
//! ```text
//! delta = sqrt(P N / V) w        s1 = s delta        L = sum_{i<j} (phi_ii phi_jj - phi_ij^2)        s2 = s L
//! x = q + D1 s1 + D2 s2          p = a^2 E (D1' s1 + D2' s2)
//! ```
//!
//! Bouchet et al. 1995, A&A 296, 575; signs as in the reference of `cosmology`. 3 inverse transforms for order 1, and
//! 6 inverse, one forward and 3 inverse ones more for order 2.

use crate::cosmology::{GrowthFactors, LptOrder, lpt_factors};
use crate::exchange::GridComms;
use crate::fft::{Operator, Spectral, Transform, Wave};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::mesh::Axpby;

use super::Config;
use super::SimulationError;

/// What the start leaves: displacements and momenta by axis, C order over this rank's sites.
pub struct Start {
    /// Displacements from the sites.
    pub displacement: [Array<f32>; 3],
    /// Momenta `a^2 dx/dt`.
    pub momentum: [Array<f32>; 3],
}

/// Makes the start from `noise`, this rank's part of the white noise on the lattice, and `amplitudes`, the table of
/// [`mode_amplitudes`](crate::cosmology::mode_amplitudes).
///
/// # Errors
/// [`SimulationError`] of the transform, the device or the ranks.
pub fn start(
    config: &Config,
    recorder: &mut Recorder,
    lines: &mut GridComms,
    growth: &GrowthFactors,
    noise: &[f32],
    amplitudes: &[f32],
) -> Result<Start, SimulationError> {
    let gpu = recorder.gpu().clone();
    let (sites, size) = (config.sites(), config.size());
    let transform = Transform::new(&gpu, sites, lines.grid(), lines.rank())?;
    let layout = transform.field_layout();
    let field = || gpu.array::<f32>("pm::start", layout.len());
    let part = transform.spectrum_part();
    let spectral = |recorder: &mut Recorder, constant: [f64; 2], factor: &dyn Fn(usize, Wave) -> f64| {
        let operator = Operator { constant, factor, laplacian: Some(&|_, wave: Wave| wave.k * wave.k) };
        Spectral::new(recorder, &[operator.tables(sites, size, &part)], &part)
    };
    let clean = |wave: Wave| if wave.nyquist { 0.0 } else { wave.k };

    let delta = transform.spectrum(&gpu)?;
    {
        let real = field()?;
        recorder.upload(&real, 0, noise)?;
        transform.forward(recorder, lines, &real, &layout, &delta)?;
        transform.scale_radially(recorder, &delta, amplitudes)?;
    }
    let factors = lpt_factors(growth, config.lpt);
    let axpby = Axpby::default();
    let three = || Ok::<_, DeviceError>([field()?, field()?, field()?]);
    let (displacement, momentum) = (three()?, three()?);
    let second = match config.lpt {
        LptOrder::First => None,
        LptOrder::Second => Some(second_order_source(recorder, lines, &transform, &delta, &axpby, &spectral, &clean)?),
    };
    for axis in 0..3 {
        let push = spectral(recorder, [0.0, 1.0], &|a, wave| if a == axis { clean(wave) } else { 1.0 })?;
        for (order, source) in [Some(&delta), second.as_ref()].into_iter().enumerate() {
            let Some(source) = source else { continue };
            let s = field()?;
            transform.inverse(recorder, lines, source, Some(&push), &s, &layout)?;
            let keep = if order == 0 { 0.0 } else { 1.0 };
            axpby.record(recorder, factors.position[order], &s, keep, &displacement[axis])?;
            axpby.record(recorder, factors.momentum[order], &s, keep, &momentum[axis])?;
        }
    }
    Ok(Start { displacement, momentum })
}

/// The spectrum of `L = sum_{i<j} (phi_ii phi_jj - phi_ij^2)`.
fn second_order_source(
    recorder: &mut Recorder,
    lines: &mut GridComms,
    transform: &Transform,
    delta: &Array<[f32; 2]>,
    axpby: &Axpby,
    spectral: &dyn Fn(&mut Recorder, [f64; 2], &dyn Fn(usize, Wave) -> f64) -> Result<Spectral, DeviceError>,
    clean: &dyn Fn(Wave) -> f64,
) -> Result<Array<[f32; 2]>, SimulationError> {
    let gpu = recorder.gpu().clone();
    let layout = transform.field_layout();
    let mut strain = |recorder: &mut Recorder, i: usize, j: usize| -> Result<Array<f32>, SimulationError> {
        // k^2 is even, so the diagonal keeps the Nyquist frequency; a product of two odd factors does not.
        let factor = |a: usize, wave: Wave| match (a == i, a == j) {
            (true, true) => wave.k * wave.k,
            (false, false) => 1.0,
            _ => clean(wave),
        };
        let operator = spectral(recorder, [1.0, 0.0], &factor)?;
        let field = gpu.array::<f32>("pm::strain", layout.len())?;
        transform.inverse(recorder, lines, delta, Some(&operator), &field, &layout)?;
        Ok(field)
    };
    let source = gpu.array::<f32>("pm::source", layout.len())?;
    let trace = strain(recorder, 0, 0)?;
    let second = strain(recorder, 1, 1)?;
    axpby.record_product(recorder, 1.0, [&trace, &second], 0.0, &source)?;
    axpby.record(recorder, 1.0, &second, 1.0, &trace)?;
    drop(second);
    let third = strain(recorder, 2, 2)?;
    axpby.record_product(recorder, 1.0, [&trace, &third], 1.0, &source)?;
    drop((trace, third));
    for (i, j) in [(0, 1), (0, 2), (1, 2)] {
        let mixed = strain(recorder, i, j)?;
        axpby.record_product(recorder, -1.0, [&mixed, &mixed], 1.0, &source)?;
    }
    let spectrum = transform.spectrum(&gpu)?;
    transform.forward(recorder, lines, &source, &layout, &spectrum)?;
    Ok(spectrum)
}
