//! The linear matter power spectrum.

use std::f64::consts::PI;

use super::top_hat::top_hat;
use super::{Cosmology, CosmologyError, Growth, PowerTable, TransferFunction, TransferKind};

/// c/H0 in Mpc/h.
pub const HUBBLE_DISTANCE: f64 = 2997.92458;

/// The linear power spectrum of a cosmology:
///
/// ```text
/// P(k, a) = 2 pi^2/k^3 * 4/25 A_s (k/k_p)^(n_s - 1) T(k)^2 (c k/H0)^4 / Omega_m^2 * D1(a)^2,   k_p = 0.05/Mpc
/// ```
///
/// - k in h/Mpc, P in (Mpc/h)^3.
/// - P(0) = 0: the mean has no power.
/// - In place of this, P(k, 1) may come from a [`PowerTable`].
///
/// ```
/// use meshloom::cosmology::{Cosmology, LinearPower, TransferKind};
///
/// let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full)?;
/// assert!((power.sigma8() - 0.8102).abs() < 1e-9);
/// let strong = LinearPower::new(Cosmology::planck18_primordial(), TransferKind::Full)?;
/// assert!((strong.at(0.1, 1.0)? - 5894.274).abs() < 1e-3);
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LinearPower {
    growth: Growth,
    transfer: TransferFunction,
    /// P(k, 1), where it is not that of the transfer function.
    table: Option<PowerTable>,
    /// The factors of P that do not depend on k and a.
    scale: f64,
    pivot: f64,
    d1_today: f64,
}

impl LinearPower {
    /// Prepares the growth and the transfer function of `cosmology`.
    ///
    /// # Errors
    /// Same as [`TransferFunction::new`].
    pub fn new(cosmology: Cosmology, transfer: TransferKind) -> Result<Self, CosmologyError> {
        let growth = Growth::new(cosmology);
        let d1_today = growth.at(1.0)?.d1;
        let poisson = HUBBLE_DISTANCE.powi(2) / cosmology.omega_m();
        Ok(Self {
            transfer: TransferFunction::new(&cosmology, transfer)?,
            table: None,
            scale: 2.0 * PI * PI * (4.0 / 25.0) * cosmology.primordial_amplitude() * poisson * poisson,
            pivot: 0.05 / cosmology.h(),
            d1_today,
            growth,
        })
    }

    /// Returns the power of `table` today, which grows as in `cosmology`.
    ///
    /// # Errors
    /// Same as [`TransferFunction::new`], whose full form is prepared, too.
    pub fn tabulated(cosmology: Cosmology, table: PowerTable) -> Result<Self, CosmologyError> {
        Ok(Self { table: Some(table), ..Self::new(cosmology, TransferKind::Full)? })
    }

    /// Returns the range of wavenumbers in h/Mpc with power: that of the table, if there is one.
    pub fn range(&self) -> [f64; 2] {
        self.table.as_ref().map_or([0.0, f64::INFINITY], PowerTable::range)
    }

    /// Returns the cosmology whose power this is.
    #[must_use]
    pub fn cosmology(&self) -> &Cosmology {
        self.growth.cosmology()
    }

    /// Returns the growth of this cosmology.
    #[must_use]
    pub fn growth(&self) -> &Growth {
        &self.growth
    }

    /// Returns the transfer function of the cosmology, which is used without a table.
    #[must_use]
    pub fn transfer(&self) -> &TransferFunction {
        &self.transfer
    }

    /// P(k, a)/D1(a)^2: the power of the D = 1 field, in (Mpc/h)^3, at `k` >= 0 in h/Mpc.
    #[must_use]
    pub fn unit(&self, k: f64) -> f64 {
        if k == 0.0 {
            return 0.0;
        }
        if let Some(table) = &self.table {
            return table.at(k) / (self.d1_today * self.d1_today);
        }
        let transfer = self.transfer.at(k);
        self.scale * k * (k / self.pivot).powf(self.cosmology().n_s() - 1.0) * transfer * transfer
    }

    /// Returns the derivatives of the logarithm of the power at `k` > 0 by n_s and A_s; nothing of
    /// a table.
    pub(crate) fn primordial_derivatives(&self, k: f64) -> [f64; 2] {
        if self.table.is_some() || k == 0.0 {
            return [0.0; 2];
        }
        [(k / self.pivot).ln(), 1.0 / self.cosmology().primordial_amplitude()]
    }

    /// P(k, a) in (Mpc/h)^3, at `k` >= 0 in h/Mpc.
    ///
    /// # Errors
    /// Same as [`Growth::at`]. For many k at one epoch, multiply [`unit`](Self::unit) by D1(a)^2.
    pub fn at(&self, k: f64, a: f64) -> Result<f64, CosmologyError> {
        let d1 = self.growth.at(a)?.d1;
        Ok(self.unit(k) * d1 * d1)
    }

    /// sigma_8: the linear rms contrast in spheres of 8 Mpc/h at a = 1.
    #[must_use]
    pub fn sigma8(&self) -> f64 {
        top_hat(8.0, |k| self.unit(k)).variance.sqrt() * self.d1_today
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_the_square_of_the_growth_factor() {
        let power = LinearPower::new(Cosmology::simple(), TransferKind::NoWiggle).unwrap();
        let half = power.growth().at(0.5).unwrap().d1;
        assert_eq!(power.at(0.2, 0.5).unwrap(), power.unit(0.2) * half * half);
        assert_eq!(power.at(0.0, 0.5).unwrap(), 0.0);
        assert!(power.at(0.2, 2.0).is_err());
    }
}
