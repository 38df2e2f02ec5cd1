//! Multiplicity functions f(sigma), the share of mass in halos, and mass functions in bins of mass:
//! measured, and expected.

use std::f64::consts::PI;

use super::error::given;
use super::quadrature::panel;
use super::{CosmologyError, LinearPower, MassVariance};
use crate::timeline;

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

/// Bins of halo mass, of equal width in its logarithm as far as the mass of a particle allows.
///
/// They depend on the parameters of a run only, so the tables of two runs compare row by row.
/// Masses of groups are multiples of a particle's mass; edges are at (n + 1/2) particle masses, so
/// the number of possible masses in a bin is its width, and no mass is on an edge. Bins that would
/// be narrower than a particle's mass are merged.
///
/// ```
/// use meshloom::cosmology::MassBins;
///
/// let bins = MassBins::new(1e11, 20, 1_000_000, 5)?;
/// assert_eq!(bins.edges()[..4], [19.5e11, 30.5e11, 48.5e11, 77.5e11]); // nearest to factors of 10^0.2
/// assert!(bins.edges().last() > Some(&1e17)); // no halo is heavier than all particles
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MassBins {
    edges: Vec<f64>,
}

/// One bin of a measured mass function.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct MassBin {
    /// Lower edge in Msun/h, part of the bin.
    pub mass_low: f64,
    /// Upper edge in Msun/h, part of the next bin.
    pub mass_high: f64,
    /// The geometric center in Msun/h: defined for empty bins too, and the same in every run.
    pub mass: f64,
    /// Halos found.
    pub count: u64,
    /// dn/dlnM = count/(V ln(mass_high/mass_low)), in (h/Mpc)^3.
    pub dn_dlnm: f64,
    /// Its Poisson error, dn/dlnM over the square root of the count; 0 where there are none.
    pub error: f64,
}

impl MassBins {
    /// Bins from `min_members` particles to all `particles` of a run (at least one bin),
    /// `per_decade` for a factor of 10 in mass; `particle_mass` in Msun/h.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless the particle mass is positive and finite (with all
    /// particles too), 1 <= `min_members` <= `particles` <= 2^50 and 1 <= `per_decade` <= 1000.
    pub fn new(particle_mass: f64, min_members: u64, particles: u64, per_decade: u32) -> Result<Self, CosmologyError> {
        // Multiples of 1/2 are exact in f64 up to here.
        const MAX_PARTICLES: u64 = 1 << 50;
        given("particles", particles as f64).require(
            (1..=MAX_PARTICLES).contains(&particles),
            "in [1, 2^50]",
            "give the number of all particles",
        )?;
        given("min_members", min_members as f64).require(
            (1..=particles).contains(&min_members),
            format!("in [1, particles = {particles}]"),
            "give the size of the smallest group that counts (about 20)",
        )?;
        given("particle mass", particle_mass).require(
            particle_mass > 0.0 && (particle_mass * 10.0 * particles as f64).is_finite(),
            "positive and finite",
            "give the mass of a particle in Msun/h",
        )?;
        given("bins per decade", per_decade.into())
            .within(1.0..=1000.0, "give the number of bins for a factor of 10 in mass (about 5)")?;
        let ideal = |i: u32| (min_members as f64 - 0.5) * 10f64.powf(f64::from(i) / f64::from(per_decade));
        let mut counts = vec![min_members as f64 - 0.5];
        for i in 1.. {
            let edge = ideal(i).floor() + 0.5;
            if edge > counts[counts.len() - 1] {
                counts.push(edge);
            }
            if edge > particles as f64 {
                break;
            }
        }
        Ok(Self { edges: counts.into_iter().map(|count| count * particle_mass).collect() })
    }

    /// Edges in Msun/h, ascending: one more than bins.
    #[must_use]
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// Returns the expectation of each of `models` in each bin at scale factor `a`: the mean of
    /// dn/dlnM over the bin's ln M, in (h/Mpc)^3, one list per model. A count measures this mean,
    /// not dn/dlnM at the center of a wide bin.
    ///
    /// # Errors
    /// Same as [`LinearPower::mass_variance`] and [`Multiplicity::at`].
    pub fn expected<const N: usize>(
        &self,
        power: &LinearPower,
        models: &[Multiplicity; N],
        a: f64,
    ) -> Result<[Vec<f64>; N], CosmologyError> {
        let _activity = timeline::activity!("mass function");
        let at = |mass: f64| -> Result<[f64; N], CosmologyError> {
            let variance = power.mass_variance(mass, a)?;
            let mut values = [0.0; N];
            for (value, model) in values.iter_mut().zip(models) {
                *value = model.dn_dlnm(&variance)?;
            }
            Ok(values)
        };
        let mut expected = [const { Vec::new() }; N];
        for edges in self.edges.windows(2) {
            let mut failure = None;
            let sums = panel(edges[0], edges[1], |mass| {
                at(mass).unwrap_or_else(|error| {
                    failure = Some(error);
                    [0.0; N]
                })
            });
            if let Some(error) = failure {
                return Err(error);
            }
            for (list, sum) in expected.iter_mut().zip(sums) {
                list.push(sum / (edges[1] / edges[0]).ln());
            }
        }
        Ok(expected)
    }

    /// Halos of each bin.
    ///
    /// `masses` in Msun/h, in any order; those below the first edge or above the last are not
    /// counted.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] if a mass is not positive and finite.
    pub fn counts(&self, masses: &[f32]) -> Result<Vec<u64>, CosmologyError> {
        let mut counts = vec![0u64; self.edges.len() - 1];
        for mass in masses.iter().map(|&mass| f64::from(mass)) {
            given("halo mass", mass).positive("give masses in Msun/h, and check what they were computed from")?;
            let above = self.edges.partition_point(|&edge| edge <= mass);
            if let Some(count) = above.checked_sub(1).and_then(|bin| counts.get_mut(bin)) {
                *count += 1;
            }
        }
        Ok(counts)
    }

    /// Returns the mass function of halos in a cube of side `box_size` in Mpc/h, of which `counts`
    /// are in the bins: their number per bin, and per unit of ln M and of volume. One [`MassBin`]
    /// for each bin in order, also for empty ones. Counts of ranks add up.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless the box is positive and finite, and there is a count
    /// for each bin.
    ///
    /// ```
    /// use meshloom::cosmology::MassBins;
    ///
    /// let bins = MassBins::new(1e12, 10, 100_000, 1)?;
    /// let found = bins.mass_function(&bins.counts(&[1e13, 2e13, 5e14, 3e12])?, 100.0)?;
    /// assert_eq!(found.iter().map(|bin| bin.count).collect::<Vec<_>>(), [2, 1, 0, 0, 0]);
    /// # Ok::<(), meshloom::cosmology::CosmologyError>(())
    /// ```
    pub fn mass_function(&self, counts: &[u64], box_size: f64) -> Result<Vec<MassBin>, CosmologyError> {
        let volume = box_size.powi(3);
        given("box", box_size).require(
            box_size > 0.0 && volume > 0.0 && volume.is_finite(),
            "positive and finite",
            "give the side of the box in Mpc/h",
        )?;
        let wanted = self.edges.len() - 1;
        given("counts", counts.len() as f64).require(
            counts.len() == wanted,
            format!("as many as bins, {wanted}"),
            "give those that these bins count",
        )?;
        let bin = |(edges, &count): (&[f64], &u64)| {
            let density = 1.0 / (volume * (edges[1] / edges[0]).ln());
            MassBin {
                mass_low: edges[0],
                mass_high: edges[1],
                mass: (edges[0] * edges[1]).sqrt(),
                count,
                dn_dlnm: count as f64 * density,
                error: (count as f64).sqrt() * density,
            }
        };
        Ok(self.edges.windows(2).zip(counts).map(bin).collect())
    }
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

    #[test]
    fn every_count_of_particles_is_in_one_bin_whatever_its_mass() {
        // f32 masses of up to 2^22 particles are right to a quarter of one.
        for particle_mass in [1.0, 6.9e11, 3.33e9] {
            let bins = MassBins::new(particle_mass, 8, 20_000, 10).unwrap();
            let masses: Vec<f32> = (1..=20_000).map(|n| (f64::from(n) * particle_mass) as f32).collect();
            let found = bins.mass_function(&bins.counts(&masses).unwrap(), 10.0).unwrap();
            assert_eq!(found.iter().map(|bin| bin.count).sum::<u64>(), 20_000 - 7);
            // A bin that is full of whole numbers has as many as it is wide.
            for bin in &found[..found.len() - 1] {
                assert_eq!(bin.count as f64, ((bin.mass_high - bin.mass_low) / particle_mass).round());
            }
        }
    }

    #[test]
    fn narrow_bins_are_merged_and_one_is_left() {
        let bins = MassBins::new(1.0, 1, 50, 100).unwrap();
        assert_eq!(bins.edges()[..5], [0.5, 1.5, 2.5, 3.5, 4.5]);
        assert!(bins.edges().windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(MassBins::new(1.0, 7, 7, 1).unwrap().edges(), [6.5, 65.5]);
    }

    #[test]
    fn impossible_bins_and_halos_are_refused() {
        let refused = |result: Result<MassBins, CosmologyError>| match result {
            Err(CosmologyError::OutOfRange { quantity, .. }) => quantity,
            other => panic!("{other:?}"),
        };
        for mass in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e308] {
            assert_eq!(refused(MassBins::new(mass, 20, 1000, 5)), "particle mass");
        }
        assert_eq!(refused(MassBins::new(1.0, 0, 1000, 5)), "min_members");
        assert_eq!(refused(MassBins::new(1.0, 1001, 1000, 5)), "min_members");
        assert_eq!(refused(MassBins::new(1.0, 1, u64::MAX, 5)), "particles");
        assert_eq!(refused(MassBins::new(1.0, 20, 1000, 0)), "bins per decade");
        assert_eq!(refused(MassBins::new(1.0, 20, 1000, 1001)), "bins per decade");
        let bins = MassBins::new(1.0, 20, 1000, 5).unwrap();
        for mass in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(bins.counts(&[30.0, mass]).is_err());
        }
        for side in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e200, 1e-200] {
            assert!(bins.mass_function(&bins.counts(&[30.0]).unwrap(), side).is_err());
        }
        assert!(bins.mass_function(&[1, 2], 10.0).is_err());
    }
}
