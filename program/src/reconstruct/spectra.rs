//! Spectra of fields of a rank, and how two of them agree.

use meshloom::fft::Transform;
use meshloom::mesh::{Bin, ModeBinner, Modes, SpectrumGeometry};
use meshloom::operators::{OperatorError, Vector};
use meshloom::rank::{Parts, Rank};
use meshloom::{Error, Mesh};

/// Spectra of fields on one grid.
pub struct Spectra {
    transform: Transform,
    geometry: SpectrumGeometry,
    binner: ModeBinner,
}

/// Agreement of two fields, by bin.
pub struct Agreement {
    /// The bins of the first field, and of the second.
    pub power: [Vec<Bin>; 2],
    /// The power of one with the other.
    pub cross: Vec<f64>,
}

impl Agreement {
    /// Returns the correlation of each bin, `P_ab / sqrt(P_a P_b)`; 0 where one has no power.
    pub fn correlation(&self) -> Vec<f64> {
        (0..self.cross.len()).map(|bin| self.pooled(&|other| other == bin)).collect()
    }

    /// Returns the correlation of the modes of all bins that `counts` takes, together.
    pub fn pooled(&self, counts: &dyn Fn(usize) -> bool) -> f64 {
        let [mut a, mut b, mut cross] = [0.0; 3];
        for bin in (0..self.cross.len()).filter(|&bin| counts(bin)) {
            let modes = self.power[0][bin].modes as f64;
            a += modes * self.power[0][bin].power;
            b += modes * self.power[1][bin].power;
            cross += modes * self.cross[bin];
        }
        if a > 0.0 && b > 0.0 { cross / (a * b).sqrt() } else { 0.0 }
    }

    /// Returns the correlation with the second field that a Wiener filter of this field with
    /// `noise` would reach, likewise: of one bin `sqrt(P / (P + N))`.
    pub fn wiener(&self, noise: f64, counts: &dyn Fn(usize) -> bool) -> f64 {
        let [mut found, mut all] = [0.0; 2];
        for bin in self.power[1].iter().enumerate().filter(|(bin, _)| counts(*bin)).map(|(_, bin)| bin) {
            found += bin.modes as f64 * bin.power * bin.power / (bin.power + noise);
            all += bin.modes as f64 * bin.power;
        }
        if all > 0.0 { (found / all).sqrt() } else { 0.0 }
    }
}

impl Spectra {
    /// Creates the bins of fields on the cells of `mesh`.
    pub fn new(rank: &Rank, mesh: &Mesh) -> Result<Self, Error> {
        let transform = Transform::new(&rank.gpu, mesh.shape(), mesh.grid(), mesh.rank())?;
        let part = transform.spectrum_part();
        let geometry = SpectrumGeometry { shape: mesh.shape(), size: mesh.size(), part };
        Ok(Spectra { transform, geometry, binner: ModeBinner::default() })
    }

    /// Returns the power of the only leaf of a field, real cells. Collective. Waits for the device.
    pub fn power(&self, rank: &mut Rank, field: &Vector) -> Result<Vec<Bin>, Error> {
        let name = field.space().names().next().unwrap_or_default();
        let (array, spectrum) = (field.array(name)?, self.transform.spectrum(&rank.gpu)?);
        let Parts { recorder, comms, .. } = rank.parts(self.transform.plan().grid).map_err(OperatorError::from)?;
        let layout = self.transform.field_layout();
        self.transform.forward(recorder, comms, array, &layout, &spectrum).map_err(OperatorError::from)?;
        let modes = Modes { modes: &spectrum, shifted: None, window: None };
        let comm = rank.comm.clone();
        Ok(self.binner.measure(&mut rank.recorder, &comm, &self.geometry, modes)?)
    }

    /// Returns the agreement of two fields: their cross power is a quarter of the power of their
    /// sum minus that of their difference.
    pub fn agreement(&self, rank: &mut Rank, a: &Vector, b: &Vector) -> Result<Agreement, Error> {
        let added = |rank: &mut Rank, sign: f64| {
            let mut sum = Vector::new(&rank.gpu, a.space())?;
            sum.copy_from(&mut rank.recorder, a)?;
            rank.vector_axpby(sign, b, 1.0, &mut sum)?;
            self.power(rank, &sum)
        };
        let (sum, difference) = (added(rank, 1.0)?, added(rank, -1.0)?);
        let cross = sum.iter().zip(&difference).map(|(s, d)| (s.power - d.power) / 4.0).collect();
        Ok(Agreement { power: [self.power(rank, a)?, self.power(rank, b)?], cross })
    }
}
