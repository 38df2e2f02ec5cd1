//! Initial conditions: Lagrangian perturbation theory of order 1 and 2 on the particles' lattice.
//!
//! From white noise `w`, with `s = i k / k^2` acting on the density contrast at `D1 = 1`:
//!
//! ```text
//! delta = sqrt(P N / V) w        s1 = s delta        L = sum_{i<j} (phi_ii phi_jj - phi_ij^2)        s2 = s L
//! x = q + D1 s1 + D2 s2          p = a^2 E (D1' s1 + D2' s2)
//! ```
//!
//! Bouchet et al. 1995, A&A 296, 575; growth factors and signs are those of [`cosmology`](crate::cosmology). Order 1 takes
//! one forward and 3 inverse transforms; order 2 takes 6 inverse, one forward and 3 inverse transforms more.

use crate::cosmology::{GrowthFactors, LptOrder, lpt_factors};
use crate::exchange::GridComms;
use crate::fft::{Operator, Spectral, Transform, Wave};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::mesh::Axpby;

use super::Config;
use super::SimulationError;

/// Initial displacements and momenta by axis, C order over this rank's sites.
pub struct Start {
    /// Displacements from the sites.
    pub displacement: [Array<f32>; 3],
    /// Momenta `a^2 dx/dt`.
    pub momentum: [Array<f32>; 3],
}

/// Records the initial conditions from `noise`, this rank's part of the white noise on the lattice, and `amplitudes`, the
/// table of [`mode_amplitudes`](crate::cosmology::mode_amplitudes). All ranks call it.
///
/// # Errors
/// [`SimulationError`] of the transform, the device or the ranks.
pub fn start(
    config: &Config,
    recorder: &mut Recorder,
    comms: &mut GridComms,
    growth: &GrowthFactors,
    noise: &[f32],
    amplitudes: &[f32],
) -> Result<Start, SimulationError> {
    let transform = Transform::new(recorder.gpu(), config.sites(), comms.grid(), comms.rank())?;
    let mut lattice = LatticeFields { config, recorder, comms, transform, axpby: Axpby::default() };
    let delta = {
        let real = lattice.field()?;
        lattice.recorder.upload(&real, 0, noise)?;
        let delta = lattice.spectrum(&real)?;
        lattice.transform.scale_radially(lattice.recorder, &delta, amplitudes)?;
        delta
    };
    let factors = lpt_factors(growth, config.lpt);
    let (displacement, momentum) = (lattice.vector()?, lattice.vector()?);
    let second = match config.lpt {
        LptOrder::First => None,
        LptOrder::Second => Some(lattice.second_order_source(&delta)?),
    };
    for axis in 0..3 {
        let gradient = lattice.operator([0.0, 1.0], &|a, wave| if a == axis { odd(wave) } else { 1.0 })?;
        for (order, source) in [Some(&delta), second.as_ref()].into_iter().enumerate() {
            let Some(source) = source else { continue };
            let s = lattice.apply(&gradient, source)?;
            let keep = if order == 0 { 0.0 } else { 1.0 };
            let LatticeFields { recorder, axpby, .. } = &mut lattice;
            axpby.record(recorder, factors.position[order], &s, keep, &displacement[axis])?;
            axpby.record(recorder, factors.momentum[order], &s, keep, &momentum[axis])?;
        }
    }
    Ok(Start { displacement, momentum })
}

/// The wavenumber, and 0 at the Nyquist frequency, where an odd function of it has no value.
pub(super) fn odd(wave: Wave) -> f64 {
    if wave.nyquist { 0.0 } else { wave.k }
}

/// Fields on the particles' lattice and their spectra.
pub(super) struct LatticeFields<'a> {
    pub config: &'a Config,
    pub recorder: &'a mut Recorder,
    pub comms: &'a mut GridComms,
    pub transform: Transform,
    pub axpby: Axpby,
}

impl LatticeFields<'_> {
    /// A field with one value per site of this rank.
    pub fn field(&self) -> Result<Array<f32>, DeviceError> {
        self.recorder.gpu().array("pm::start", self.transform.field_layout().len())
    }

    pub fn vector(&self) -> Result<[Array<f32>; 3], DeviceError> {
        Ok([self.field()?, self.field()?, self.field()?])
    }

    /// The modes of a field.
    pub fn spectrum(&mut self, field: &Array<f32>) -> Result<Array<[f32; 2]>, SimulationError> {
        let LatticeFields { recorder, comms, transform, .. } = self;
        let spectrum = transform.spectrum(recorder.gpu())?;
        transform.forward(recorder, comms, field, &transform.field_layout(), &spectrum)?;
        Ok(spectrum)
    }

    /// `constant` times the product of `factor` over the axes, divided by `k^2`.
    pub fn operator(
        &mut self,
        constant: [f64; 2],
        factor: &dyn Fn(usize, Wave) -> f64,
    ) -> Result<Spectral, SimulationError> {
        let part = self.transform.spectrum_part();
        let operator = Operator { constant, factor, laplacian: Some(&|_, wave: Wave| wave.k * wave.k) };
        let tables = operator.tables(self.config.sites(), self.config.size(), &part);
        Ok(Spectral::new(self.recorder, &[tables], &part)?)
    }

    /// The field of the modes `operator source`.
    pub fn apply(&mut self, operator: &Spectral, source: &Array<[f32; 2]>) -> Result<Array<f32>, SimulationError> {
        let field = self.field()?;
        let LatticeFields { recorder, comms, transform, .. } = self;
        transform.inverse(recorder, comms, source, Some(operator), &field, &transform.field_layout())?;
        Ok(field)
    }

    /// `phi_ij`, the second derivative of the displacement potential of `delta`.
    pub fn strain(&mut self, delta: &Array<[f32; 2]>, i: usize, j: usize) -> Result<Array<f32>, SimulationError> {
        // k^2 is even, so the diagonal keeps the Nyquist frequency; a product of two odd factors does not.
        let factor = |a: usize, wave: Wave| match (a == i, a == j) {
            (true, true) => wave.k * wave.k,
            (false, false) => 1.0,
            _ => odd(wave),
        };
        let operator = self.operator([1.0, 0.0], &factor)?;
        self.apply(&operator, delta)
    }

    /// The modes of `L = sum_{i<j} (phi_ii phi_jj - phi_ij^2)`.
    pub fn second_order_source(&mut self, delta: &Array<[f32; 2]>) -> Result<Array<[f32; 2]>, SimulationError> {
        let source = self.field()?;
        let trace = self.strain(delta, 0, 0)?;
        let second = self.strain(delta, 1, 1)?;
        self.axpby.record_product(self.recorder, 1.0, [&trace, &second], 0.0, &source)?;
        self.axpby.record(self.recorder, 1.0, &second, 1.0, &trace)?;
        drop(second);
        let third = self.strain(delta, 2, 2)?;
        self.axpby.record_product(self.recorder, 1.0, [&trace, &third], 1.0, &source)?;
        drop((trace, third));
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            let mixed = self.strain(delta, i, j)?;
            self.axpby.record_product(self.recorder, -1.0, [&mixed, &mixed], 1.0, &source)?;
        }
        self.spectrum(&source)
    }
}
