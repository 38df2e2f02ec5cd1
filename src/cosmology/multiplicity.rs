//! Multiplicity functions f(sigma), the share of mass in halos, and mass functions from them.

use std::f64::consts::PI;

use super::error::given;
use super::{CosmologyError, MassVariance};

/// The linear contrast at which a sphere has collapsed in a universe of matter alone: 3/20 (12
/// pi)^(2/3), rounded as both papers that use it do.
pub const DELTA_C: f64 = 1.686;

/// A multiplicity function f(sigma): the share of all mass in halos, by ln(1/sigma).
///
/// ```text
/// dn/dlnM = f(sigma) rho_m/M |d ln sigma/d ln M|
/// ```
///
/// ```
/// use meshloom::cosmology::{Cosmology, LinearPower, Multiplicity, TransferKind};
///
/// let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full)?;
/// let cluster = power.mass_variance(1e15, 1.0)?; // Msun/h, today
/// let [old, new] = [Multiplicity::PressSchechter, Multiplicity::TINKER_MEAN].map(|f| f.dn_dlnm(&cluster).unwrap());
/// assert!(new > 1.5 * old && new < 1e-6); // about one in (100 Mpc/h)^3
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Multiplicity {
    /// Spherical collapse: `sqrt(2/pi) nu exp(-nu^2/2)` with `nu = DELTA_C/sigma`. All mass is in
    /// halos.
    ///
    /// Press & Schechter (1974), ApJ 187, 425, with the factor of 2 for the cloud-in-cloud problem.
    PressSchechter,
    /// Ellipsoidal collapse: `A sqrt(2a/pi) (1 + (a nu^2)^-p) nu exp(-a nu^2/2)`, A = 0.3222, a =
    /// 0.707, p = 0.3. All mass is in halos. Close to the mass function of friends-of-friends
    /// groups with linking length 0.2.
    ///
    /// Sheth & Tormen (1999), MNRAS 308, 119, equation 10; (2002), MNRAS 329, 61.
    ShethTormen,
    /// Groups of friends of friends with linking length 0.2, measured in simulations, at every
    /// epoch: `A ((b/sigma)^a + 1) exp(-c/sigma^2)`, A = 0.282, a = 2.163, b = 1.406, c = 1.210.
    /// The fit is for 0.27 <= sigma <= 1.73.
    ///
    /// Watson et al. (2013), MNRAS 433, 1230, equation 12.
    Watson,
    /// Spheres of `overdensity` times the mean density, measured in simulations: the fit
    /// `A ((sigma/b)^-a + 1) exp(-c/sigma^2)` is good to about 5 % from 1e11 to 1e15 Msun/h and up
    /// to z = 2; what lies beyond is an extrapolation.
    ///
    /// Tinker et al. (2008), ApJ 688, 709, equations 3, 5-8 and table 2, whose rows are
    /// interpolated linearly in the logarithm of the overdensity.
    Tinker {
        /// Mean density within a halo over the mean density of matter, in [200, 3200].
        overdensity: f64,
    },
}

/// Overdensity, then A, a, b and c at z = 0: table 2 of Tinker et al. (2008).
const TINKER: [(f64, [f64; 4]); 9] = [
    (200.0, [0.186, 1.47, 2.57, 1.19]),
    (300.0, [0.200, 1.52, 2.25, 1.27]),
    (400.0, [0.212, 1.56, 2.05, 1.34]),
    (600.0, [0.218, 1.61, 1.87, 1.45]),
    (800.0, [0.248, 1.87, 1.59, 1.58]),
    (1200.0, [0.255, 2.13, 1.51, 1.80]),
    (1600.0, [0.260, 2.30, 1.46, 1.97]),
    (2400.0, [0.260, 2.53, 1.44, 2.24]),
    (3200.0, [0.260, 2.66, 1.41, 2.44]),
];

impl Multiplicity {
    /// [`Tinker`](Self::Tinker) for 200 times the mean density, the usual definition of a halo.
    pub const TINKER_MEAN: Self = Self::Tinker { overdensity: 200.0 };

    /// f(sigma) at scale factor `a`; only that of [`Tinker`](Self::Tinker) depends on `a`.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless sigma is positive and finite, 0 < a <= 1, and the
    /// overdensity in its range.
    pub fn at(&self, sigma: f64, a: f64) -> Result<f64, CosmologyError> {
        given("sigma", sigma).positive("give the rms linear contrast in spheres of the halo's mass")?;
        given("a", a).require(a > 0.0 && a <= 1.0, "in (0, 1]", "give a scale factor, a = 1/(1+z), up to today")?;
        let nu = DELTA_C / sigma;
        match *self {
            Self::PressSchechter => Ok((2.0 / PI).sqrt() * nu * (-0.5 * nu * nu).exp()),
            Self::ShethTormen => {
                let scaled = 0.707 * nu * nu;
                Ok(0.3222 * (2.0 / PI * scaled).sqrt() * (1.0 + scaled.powf(-0.3)) * (-0.5 * scaled).exp())
            }
            Self::Watson => Ok(0.282 * ((1.406 / sigma).powf(2.163) + 1.0) * (-1.210 / (sigma * sigma)).exp()),
            Self::Tinker { overdensity } => {
                let [amplitude, slope, turn, cut] = tinker(overdensity, a)?;
                Ok(amplitude * ((sigma / turn).powf(-slope) + 1.0) * (-cut / (sigma * sigma)).exp())
            }
        }
    }

    /// dn/dlnM: halos per unit of ln M and of comoving volume, in (h/Mpc)^3.
    ///
    /// # Errors
    /// Same as [`at`](Self::at).
    pub fn dn_dlnm(&self, at: &MassVariance) -> Result<f64, CosmologyError> {
        Ok(self.at(at.sigma, at.a)? * at.matter_density / at.mass * at.slope.abs())
    }
}

/// A, a, b and c of an overdensity at an epoch.
fn tinker(overdensity: f64, a: f64) -> Result<[f64; 4], CosmologyError> {
    let (first, last) = (TINKER[0].0, TINKER[TINKER.len() - 1].0);
    given("overdensity", overdensity)
        .within(first..=last, "give the density of a halo over the mean density of matter (200)")?;
    let above = TINKER.iter().position(|&(row, _)| row >= overdensity).unwrap_or(TINKER.len() - 1).max(1);
    let ((low, from), (high, to)) = (TINKER[above - 1], TINKER[above]);
    let weight = (overdensity / low).ln() / (high / low).ln();
    let [amplitude, slope, turn, cut]: [f64; 4] = std::array::from_fn(|i| from[i] + weight * (to[i] - from[i]));
    let alpha = 10f64.powf(-(0.75 / (overdensity / 75.0).log10()).powf(1.2));
    // The paper's (1+z)^-x is a^x.
    Ok([amplitude * a.powf(0.14), slope * a.powf(0.06), turn * a.powf(alpha), cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the integral of f over ln(1/sigma), by a plain trapezium: f is smooth and vanishes
    /// at both ends.
    fn all_mass(f: Multiplicity) -> f64 {
        let step = 1e-3;
        // sigma from e^-4 (f below 1e-300) to e^60: the slowest f falls as sigma^-0.4, to 4e-11.
        (-4_000..60_000).map(|i| f.at((f64::from(i) * step).exp(), 1.0).unwrap() * step).sum()
    }

    #[test]
    fn all_mass_is_in_halos() {
        assert!((all_mass(Multiplicity::PressSchechter) - 1.0).abs() < 1e-9);
        // Exactly normalized, A = 1/(1 + Gamma(1/2 - p)/(2^p sqrt(pi))) = 0.322184; the papers give
        // four digits.
        assert!((all_mass(Multiplicity::ShethTormen) - 0.3222 / 0.322_184).abs() < 1e-5);
    }

    #[test]
    fn tinker_meets_the_rows_of_its_table_and_runs_between_them() {
        for (overdensity, [amplitude, slope, turn, cut]) in TINKER {
            for sigma in [0.4, 1.0, 2.5_f64] {
                let row = amplitude * ((sigma / turn).powf(-slope) + 1.0) * (-cut / (sigma * sigma)).exp();
                let found = Multiplicity::Tinker { overdensity }.at(sigma, 1.0).unwrap();
                assert!((found / row - 1.0).abs() < 1e-14);
            }
        }
        // Halfway in the logarithm between 200 and 400 would be 283; between 200 and 300 it is 245.
        let [middle, ..] = tinker((200.0 * 300.0_f64).sqrt(), 1.0).unwrap();
        assert!((middle - 0.193).abs() < 1e-15);
        // alpha of 200 is 10^-1.97162: log10(200/75) is 0.425969, 0.75 over it 1.760692, to the
        // power of 1.2 1.97162.
        let [_, _, turn, _] = tinker(200.0, 0.5).unwrap();
        assert!(((2.57 / turn).log2() - 0.010_675).abs() < 2e-6, "{}", (2.57 / turn).log2());
    }

    #[test]
    fn impossible_arguments_are_refused() {
        let refused = |f: Multiplicity, sigma, a| match f.at(sigma, a) {
            Err(CosmologyError::OutOfRange { quantity, .. }) => quantity,
            other => panic!("{other:?}"),
        };
        for f in [Multiplicity::PressSchechter, Multiplicity::ShethTormen, Multiplicity::TINKER_MEAN] {
            for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
                assert_eq!(refused(f, bad, 1.0), "sigma");
                assert_eq!(refused(f, 1.0, bad), "a");
            }
            assert_eq!(refused(f, 1.0, 1.1), "a");
        }
        for overdensity in [0.0, 199.0, 3201.0, f64::NAN] {
            assert_eq!(refused(Multiplicity::Tinker { overdensity }, 1.0, 1.0), "overdensity");
        }
    }
}
