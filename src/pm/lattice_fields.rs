//! Fields on the particles' lattice, their spectra, and the displacements and strains of these.

use std::ops::Range;

use crate::cosmology::LptOrder;
use crate::exchange::GridComms;
use crate::fft::{Operator, Spectral, Transform, Wave};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::mesh::Axpby;

use super::{Config, Result};

/// Pairs of axes of the second derivatives of the displacement potential: the diagonal, then the
/// others.
pub(super) const STRAINS: [(usize, usize); 6] = [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)];

/// Perturbation theory on the particles' lattice of one rank: the transform and the operators that
/// it takes, made once.
pub(super) struct Perturbation {
    pub order: LptOrder,
    transform: Transform,
    /// `i k_a / k^2`.
    gradients: [Spectral; 3],
    /// `k_i k_j / k^2` for [`STRAINS`]; from the second order on.
    strains: Vec<Spectral>,
    axpby: Axpby,
}

impl Perturbation {
    /// For the lattice of `config` over the process grid of `comms`.
    ///
    /// # Errors
    /// [`SimulationError`](crate::pm::SimulationError) of the transform or the device.
    pub fn new(config: &Config, recorder: &mut Recorder, comms: &GridComms) -> Result<Self> {
        let transform = Transform::new(recorder.gpu(), config.sites(), comms.grid(), comms.rank())?;
        let part = transform.spectrum_part();
        let mut operator = |constant: [f64; 2], factor: &dyn Fn(usize, Wave) -> f64| {
            let operator = Operator { constant, factor, laplacian: Some(&|_, wave: Wave| wave.k * wave.k) };
            Spectral::new(recorder, &[operator.tables(config.sites(), config.size(), &part)], &part)
        };
        let mut gradient = |axis: usize| operator([0.0, 1.0], &|a, wave| if a == axis { odd(wave) } else { 1.0 });
        let gradients = [gradient(0)?, gradient(1)?, gradient(2)?];
        let mut strain = |(i, j): (usize, usize)| {
            // k^2 is even, so the diagonal keeps the Nyquist frequency; a product of two odd
            // factors does not.
            let factor = |a: usize, wave: Wave| match (a == i, a == j) {
                (true, true) => wave.k * wave.k,
                (false, false) => 1.0,
                _ => odd(wave),
            };
            operator([1.0, 0.0], &factor)
        };
        let strains = match config.lpt {
            LptOrder::First => Vec::new(),
            LptOrder::Second | LptOrder::Third => STRAINS.into_iter().map(&mut strain).collect::<Result<_, _>>()?,
        };
        Ok(Perturbation { order: config.lpt, transform, gradients, strains, axpby: Axpby::default() })
    }
}

/// Modes of the sources of all displacement fields, as far as the order needs them: the contrast,
/// L, the determinant, the product of first and second order, three of the transverse one.
pub(super) type Sources = Vec<Array<[f32; 2]>>;

/// Number of the transverse displacement, and of the first of its sources.
const TRANSVERSE: usize = 4;

/// Returns the gradients that make displacement `number` along `axis`: for each the source, the
/// axis and the sign.
pub(super) fn gradients(axis: usize, number: usize) -> Vec<(usize, usize, f64)> {
    let [next, last] = [(axis + 1) % 3, (axis + 2) % 3];
    match number {
        TRANSVERSE => vec![(TRANSVERSE + last, next, 1.0), (TRANSVERSE + next, last, -1.0)],
        _ => vec![(number, axis, 1.0)],
    }
}

/// Returns the wavenumber, and 0 at the Nyquist frequency, where an odd function of it has no
/// value.
fn odd(wave: Wave) -> f64 {
    if wave.nyquist { 0.0 } else { wave.k }
}

/// Fields on the particles' lattice and their spectra.
pub(super) struct LatticeFields<'a> {
    pub recorder: &'a mut Recorder,
    pub comms: &'a mut GridComms,
    pub lpt: &'a Perturbation,
}

impl LatticeFields<'_> {
    /// Returns a field with one value per site of this rank.
    pub fn field(&self) -> Result<Array<f32>, DeviceError> {
        self.recorder.gpu().array("pm::start", self.lpt.transform.field_layout().len())
    }

    /// Returns a field of zeros.
    pub fn zeros(&mut self) -> Result<Array<f32>, DeviceError> {
        let field = self.field()?;
        self.recorder.clear(&field);
        Ok(field)
    }

    /// `y = a x + b y`.
    pub fn add(&mut self, a: f64, x: &Array<f32>, b: f64, y: &Array<f32>) -> Result<(), DeviceError> {
        self.lpt.axpby.record(self.recorder, a, x, b, y)
    }

    /// `y = a x z + b y`.
    pub fn add_product(&mut self, a: f64, xz: [&Array<f32>; 2], b: f64, y: &Array<f32>) -> Result<(), DeviceError> {
        self.lpt.axpby.record_product(self.recorder, a, xz, b, y)
    }

    /// Returns the modes of a field.
    pub fn spectrum(&mut self, field: &Array<f32>) -> Result<Array<[f32; 2]>> {
        let LatticeFields { recorder, comms, lpt } = self;
        let spectrum = lpt.transform.spectrum(recorder.gpu())?;
        lpt.transform.forward(recorder, comms, field, &lpt.transform.field_layout(), &spectrum)?;
        Ok(spectrum)
    }

    /// Returns the modes of a field, scaled by a table over their numbers squared.
    pub fn scaled(&mut self, field: &Array<f32>, amplitudes: &Array<f32>) -> Result<Array<[f32; 2]>> {
        let modes = self.spectrum(field)?;
        self.lpt.transform.scale_radially(self.recorder, &modes, amplitudes)?;
        Ok(modes)
    }

    /// Returns the field of modes.
    pub fn of_modes(&mut self, modes: &Array<[f32; 2]>) -> Result<Array<f32>> {
        let field = self.field()?;
        let LatticeFields { recorder, comms, lpt } = self;
        lpt.transform.inverse(recorder, comms, modes, &field, &lpt.transform.field_layout())?;
        Ok(field)
    }

    /// Returns the field of a table times the modes of a field.
    pub fn filtered(&mut self, field: &Array<f32>, amplitudes: &Array<f32>) -> Result<Array<f32>> {
        let modes = self.scaled(field, amplitudes)?;
        self.of_modes(&modes)
    }

    /// `s_axis`, displacement `number` along an axis.
    pub fn displacement(&mut self, axis: usize, number: usize, sources: &Sources) -> Result<Array<f32>> {
        let mut sum: Option<Array<f32>> = None;
        for (source, gradient, sign) in gradients(axis, number) {
            let part = self.gradient(gradient, &sources[source])?;
            match &sum {
                None => sum = Some(part),
                Some(sum) => self.add(sign, &part, 1.0, sum)?,
            }
        }
        Ok(sum.map_or_else(|| self.zeros(), Ok)?)
    }

    /// `i k_axis / k^2` times the modes of a source. It is antisymmetric: minus itself is its
    /// adjoint.
    pub fn gradient(&mut self, axis: usize, source: &Array<[f32; 2]>) -> Result<Array<f32>> {
        let lpt = self.lpt;
        self.multiplied(source, &lpt.gradients[axis])
    }

    /// `phi_ij`, the second derivative of the displacement potential of `delta`, of pair `which` of
    /// [`STRAINS`].
    pub fn strain(&mut self, which: usize, delta: &Array<[f32; 2]>) -> Result<Array<f32>> {
        let lpt = self.lpt;
        self.multiplied(delta, &lpt.strains[which])
    }

    /// `out = out + H_ij bar`, of pair `which` of [`STRAINS`]: the kernels of strains are real and
    /// symmetric.
    pub fn strain_adjoint(&mut self, which: usize, bar: &Array<f32>, out: &Array<f32>) -> Result<()> {
        let modes = self.spectrum(bar)?;
        let part = self.strain(which, &modes)?;
        self.add(1.0, &part, 1.0, out)?;
        Ok(self.recorder.submit()?)
    }

    fn multiplied(&mut self, modes: &Array<[f32; 2]>, operator: &Spectral) -> Result<Array<f32>> {
        let field = self.field()?;
        let LatticeFields { recorder, comms, lpt } = self;
        lpt.transform.inverse_multiplied(recorder, comms, modes, operator, &field, &lpt.transform.field_layout())?;
        Ok(field)
    }

    /// Returns the second derivatives with these places in [`STRAINS`].
    pub fn strains(&mut self, which: Range<usize>, delta: &Array<[f32; 2]>) -> Result<Vec<Array<f32>>> {
        let strain = |which: usize| {
            let strain = self.strain(which, delta)?;
            self.recorder.submit()?;
            Ok(strain)
        };
        which.map(strain).collect()
    }

    /// Returns the modes of `L = sum_{i<j} (phi_ii phi_jj - phi_ij^2)`.
    pub fn second_order_source(&mut self, delta: &Array<[f32; 2]>) -> Result<Array<[f32; 2]>> {
        let (source, trace) = (self.field()?, self.strain(0, delta)?);
        self.recorder.submit()?;
        let second = self.strain(1, delta)?;
        self.add_product(1.0, [&trace, &second], 0.0, &source)?;
        self.add(1.0, &second, 1.0, &trace)?;
        self.recorder.submit()?;
        drop(second);
        let third = self.strain(2, delta)?;
        self.add_product(1.0, [&trace, &third], 1.0, &source)?;
        self.recorder.submit()?;
        drop((trace, third));
        for which in 3..6 {
            let mixed = self.strain(which, delta)?;
            self.add_product(-1.0, [&mixed, &mixed], 1.0, &source)?;
            self.recorder.submit()?;
        }
        self.spectrum(&source)
    }
}
