//! The header and the units of written files, in the conventions of Gadget-4 and of SWIFT.
//!
//! Lengths are comoving Mpc/h, masses 1e10 Msun/h, velocities km/s: the same numbers in both
//! families of readers. In Gadget-4 units are free of h and each dataset has a power of h; in SWIFT
//! h is part of the units.

use crate::cosmology::{CRITICAL_DENSITY, expansion_rate, peculiar_velocity};

/// The header of a snapshot: plain numbers that have not been checked, unlike a
/// [`Cosmology`](crate::cosmology::Cosmology), since files state no amplitude. Lengths in Mpc/h.
/// The universe is flat, with matter, radiation and dark energy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SnapshotInfo {
    /// Number of particles in all files; all have the same mass.
    pub count: u64,
    /// Side of the periodic box, comoving.
    pub box_size: f64,
    /// Scale factor a.
    pub scale_factor: f64,
    /// Matter density today over the critical one.
    pub omega_m: f64,
    /// Baryon density today over the critical one, which is part of the matter density.
    pub omega_b: f64,
    /// Hubble constant in 100 km/s/Mpc.
    pub h: f64,
    /// Radiation density today over the critical one.
    pub omega_r: f64,
    /// w0 and wa of dark energy: -1 and 0 for a cosmological constant.
    pub dark_energy: [f64; 2],
}

impl SnapshotInfo {
    /// Returns the mass of a particle in 1e10 Msun/h: the matter in the box over `count`; 0 without
    /// particles.
    ///
    /// ```
    /// # use meshloom::io::hdf5::SnapshotInfo;
    /// let info = SnapshotInfo { count: 1, box_size: 1.0, scale_factor: 1.0, omega_m: 1.0, omega_b: 0.0, h: 0.7, omega_r: 0.0, dark_energy: [-1.0, 0.0] };
    /// assert_eq!(info.particle_mass(), 27.7536627);
    /// ```
    #[must_use]
    pub fn particle_mass(&self) -> f64 {
        let matter = self.omega_m * (CRITICAL_DENSITY / 1e10) * self.box_size.powi(3);
        if self.count == 0 { 0.0 } else { matter / self.count as f64 }
    }

    /// Returns Gadget's velocity for a canonical momentum `p` in H0 Mpc/h: the peculiar velocity in
    /// km/s over the square root of a.
    #[must_use]
    pub fn gadget_velocity(&self, p: f32) -> f32 {
        (peculiar_velocity(f64::from(p), self.scale_factor) / self.scale_factor.sqrt()) as f32
    }

    pub(super) fn redshift(&self) -> f64 {
        1.0 / self.scale_factor - 1.0
    }

    /// Returns the density of dark energy today over the critical one.
    pub(super) fn omega_de(&self) -> f64 {
        1.0 - self.omega_m - self.omega_r
    }

    /// Returns E(a) = H(a)/H0.
    pub(super) fn expansion_rate(&self) -> f64 {
        expansion_rate([self.omega_m, self.omega_r, self.omega_de()], self.dark_energy, self.scale_factor)
    }
}

/// A megaparsec in cm (IAU 2015 B2).
pub(super) const MPC: f64 = 3.085_677_581_491_367e24;
/// The Sun's mass in g: GM of IAU 2015 B3 over G of CODATA 2018.
pub(super) const SUN: f64 = 1.988_409_870_698_051e33;
/// km/s in cm/s.
pub(super) const KM_S: f64 = 1e5;

/// The physical quantity of a dataset: the powers of its units, and its scaling with a.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantity {
    pub length: i32,
    pub mass: i32,
    pub velocity: i32,
    /// A physical value is `a^a_scaling` times that in the file.
    pub a_scaling: f64,
    pub description: &'static str,
}

impl Quantity {
    /// Creates a pure number.
    pub const fn number(description: &'static str) -> Self {
        Quantity { length: 0, mass: 0, velocity: 0, a_scaling: 0.0, description }
    }

    /// Creates a comoving length in Mpc/h.
    pub const fn length(description: &'static str) -> Self {
        Quantity { length: 1, a_scaling: 1.0, ..Self::number(description) }
    }

    /// Creates a mass in 1e10 Msun/h.
    pub const fn mass(description: &'static str) -> Self {
        Quantity { mass: 1, ..Self::number(description) }
    }

    /// Creates a velocity in km/s; `a^a_scaling` times the number is physical.
    pub const fn velocity(a_scaling: f64, description: &'static str) -> Self {
        Quantity { velocity: 1, a_scaling, ..Self::number(description) }
    }

    /// Returns the power of h in the numbers: lengths and masses are in units divided by h.
    pub fn h_scaling(self) -> f64 {
        -f64::from(self.length + self.mass)
    }

    /// Returns the value of the unit in cgs, without h and a.
    pub fn to_cgs(self) -> f64 {
        MPC.powi(self.length) * (1e10 * SUN).powi(self.mass) * KM_S.powi(self.velocity)
    }
}

/// SWIFT's system of units in cgs, with h in the units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct UnitSystem {
    pub length: f64,
    pub mass: f64,
    /// The unit of time for which the unit of velocity is km/s.
    pub time: f64,
}

impl UnitSystem {
    pub fn new(info: &SnapshotInfo) -> Self {
        let length = MPC / info.h;
        UnitSystem { length, mass: 1e10 * SUN / info.h, time: length / KM_S }
    }

    /// Returns the value of a quantity's unit in cgs, without a.
    pub fn to_cgs(self, quantity: &Quantity) -> f64 {
        self.length.powi(quantity.length) * self.mass.powi(quantity.mass) * KM_S.powi(quantity.velocity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_say_the_same() {
        let info = SnapshotInfo {
            count: 8,
            box_size: 10.0,
            scale_factor: 0.5,
            omega_m: 0.3,
            omega_b: 0.05,
            h: 0.7,
            omega_r: 0.0,
            dark_energy: [-1.0, 0.0],
        };
        let system = UnitSystem::new(&info);
        for quantity in [
            Quantity::number(""),
            Quantity::length(""),
            Quantity::mass(""),
            Quantity::velocity(0.5, ""),
            Quantity { mass: 1, ..Quantity::length("") },
        ] {
            let gadget = quantity.to_cgs() * info.h.powf(quantity.h_scaling());
            assert!((gadget / system.to_cgs(&quantity) - 1.0).abs() < 1e-14, "{quantity:?}");
        }
        // H0 = 100 km/s/(Mpc/h) in these units.
        assert!((system.time * KM_S / system.length - 1.0).abs() < 1e-14);
    }
}
