//! The mass function of halos in bins of mass: measured, and expected.

use super::error::given;
use super::quadrature::panel;
use super::{CosmologyError, LinearPower, Multiplicity};
use crate::timeline;

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
