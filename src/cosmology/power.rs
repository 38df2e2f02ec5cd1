//! The linear matter power spectrum, and the amplitudes of a periodic box's modes from it.

use std::f64::consts::PI;

use super::error::given;
use super::{Cosmology, CosmologyError, Growth, PowerTable, TransferFunction, TransferKind};
use crate::parallel;

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
    pub(super) d1_today: f64,
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
}

/// The largest grid of [`mode_amplitudes`]: its table has 2e8 entries (768 MiB).
pub const MAX_PARTICLES_PER_AXIS: usize = 1 << 14;

/// sqrt(P(k) N/V) of the D = 1 field, for every wave vector of an `n`^3 grid in a periodic cube.
///
/// The entry of wave vector k = 2 pi/L (mx, my, mz) is at mx^2 + my^2 + mz^2, an integer, so a
/// device finds it without floating-point arithmetic. The table has 3 (n/2)^2 + 1 entries; entry 0
/// is 0, since the mean density has no contrast.
///
/// With white noise w of unit variance on the grid and its unnormalized transform w_k, `delta_k =
/// w_k * table[m^2]` is the linear contrast at D1 = 1: its power, |delta_k|^2 V/N^2, is P(k)/D1^2
/// on average (N = n^3, V = L^3).
///
/// # Errors
/// [`CosmologyError::OutOfRange`] unless 1 <= n <= [`MAX_PARTICLES_PER_AXIS`] and `box_size` (L, in
/// Mpc/h) is positive, finite, and leaves every amplitude within `f32`.
///
/// ```
/// use meshloom::cosmology::{Cosmology, LinearPower, TransferKind, mode_amplitudes};
///
/// let power = LinearPower::new(Cosmology::simple(), TransferKind::Full)?;
/// let table = mode_amplitudes(&power, 16, 64.0)?;
/// assert_eq!(table.len(), 3 * 8 * 8 + 1);
/// assert_eq!(table[0], 0.0);
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
pub fn mode_amplitudes(power: &LinearPower, n: usize, box_size: f64) -> Result<Vec<f32>, CosmologyError> {
    let most = MAX_PARTICLES_PER_AXIS as f64;
    given("particles", n as f64).within(1.0..=most, "give the number of particles along one axis")?;
    given("box", box_size).positive("give the side of the box in Mpc/h")?;
    let density = (n as f64 / box_size).powi(3);
    let fundamental = 2.0 * PI / box_size;
    let last = 3 * (n / 2) * (n / 2);
    let ([low, high], corner) = (power.range(), fundamental * (last as f64).sqrt());
    let allowed = format!(
        "such that its modes, from {fundamental:e} to {corner:e} h/Mpc, are within the table of the power, {low:e} to {high:e}"
    );
    let is_covered = last == 0 || (low <= fundamental && corner <= high);
    given("box", box_size).require(is_covered, allowed, "give a longer table, another box or fewer particles")?;
    let amplitude = |m2: usize| (power.unit(fundamental * (m2 as f64).sqrt()) * density).sqrt();
    let table: Vec<f32> = parallel::map(last + 1, 1 << 10, amplitude).into_iter().map(|value| value as f32).collect();
    given("box", box_size).require(
        table.iter().enumerate().all(|(m2, amplitude)| amplitude.is_finite() && (m2 == 0 || *amplitude > 0.0)),
        "such that every mode's amplitude is a normal f32",
        "choose a box nearer to the scales of structure (1 to 1e5 Mpc/h)",
    )?;
    Ok(table)
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

    fn power() -> LinearPower {
        LinearPower::new(Cosmology::simple(), TransferKind::Full).unwrap()
    }

    #[test]
    fn entries_are_the_power_of_their_wave_vector() {
        let power = power();
        for (n, length) in [(6, 28), (7, 28), (1, 1)] {
            let table = mode_amplitudes(&power, n, 50.0).unwrap();
            assert_eq!(table.len(), length);
            let volume_per_cell = (50.0 / n as f64).powi(3);
            for (m2, &amplitude) in table.iter().enumerate() {
                let k = 2.0 * PI / 50.0 * (m2 as f64).sqrt();
                let found = f64::from(amplitude).powi(2) * volume_per_cell;
                assert!((found - power.unit(k)).abs() <= 2.0 * f64::from(f32::EPSILON) * power.unit(k));
            }
        }
    }

    #[test]
    fn modes_beyond_a_table_are_refused() {
        let rows: String = (0..=30).map(|i| 0.01 * 1.2f64.powi(i)).map(|k| format!("{k} {}\n", 1.0 / k)).collect();
        let table = crate::cosmology::PowerTable::parse(&rows).unwrap();
        let power = LinearPower::tabulated(Cosmology::simple(), table).unwrap();
        // From 0.01 to 2.37 h/Mpc.
        assert!(mode_amplitudes(&power, 8, 100.0).is_ok() && mode_amplitudes(&power, 8, 600.0).is_ok());
        assert!(mode_amplitudes(&power, 8, 630.0).is_err() && mode_amplitudes(&power, 64, 100.0).is_err());
        assert!(mode_amplitudes(&power, 1, 1000.0).is_ok());
    }

    #[test]
    fn impossible_grids_are_refused() {
        let power = power();
        for (n, box_size) in
            [(0, 50.0), (usize::MAX, 50.0), (4, 0.0), (4, -1.0), (4, f64::NAN), (4, f64::INFINITY), (4, 1e-300)]
        {
            assert!(mode_amplitudes(&power, n, box_size).is_err(), "{n} {box_size}");
        }
    }
}
