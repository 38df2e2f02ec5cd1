//! The header of a snapshot: the cosmology and the epoch of its particles.

use crate::cosmology::{CRITICAL_DENSITY, expansion_rate, peculiar_velocity};

/// What the header of a snapshot says: plain numbers that have not been checked, unlike a
/// [`Cosmology`](crate::cosmology::Cosmology), since files say nothing of an amplitude. Lengths in Mpc/h; the universe is
/// flat, with matter, radiation and dark energy.
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
    /// Mass of a particle in 1e10 Msun/h: the matter in the box over `count`; 0 without particles.
    ///
    /// ```
    /// # use meshloom::io::hdf5::SnapshotInfo;
    /// let info = SnapshotInfo { count: 1, box_size: 1.0, scale_factor: 1.0, omega_m: 1.0, omega_b: 0.0, h: 0.7, omega_r: 0.0, dark_energy: [-1.0, 0.0] };
    /// assert_eq!(info.particle_mass(), 27.7536627);
    /// ```
    pub fn particle_mass(&self) -> f64 {
        let matter = self.omega_m * (CRITICAL_DENSITY / 1e10) * self.box_size.powi(3);
        if self.count == 0 { 0.0 } else { matter / self.count as f64 }
    }

    /// Gadget's velocity for a canonical momentum `p` in H0 Mpc/h: the peculiar velocity in km/s over the square root of a.
    pub fn gadget_velocity(&self, p: f32) -> f32 {
        (peculiar_velocity(f64::from(p), self.scale_factor) / self.scale_factor.sqrt()) as f32
    }

    pub(super) fn redshift(&self) -> f64 {
        1.0 / self.scale_factor - 1.0
    }

    /// Density of dark energy today over the critical one.
    pub(super) fn omega_de(&self) -> f64 {
        1.0 - self.omega_m - self.omega_r
    }

    /// E(a) = H(a)/H0.
    pub(super) fn expansion_rate(&self) -> f64 {
        expansion_rate([self.omega_m, self.omega_r, self.omega_de()], self.dark_energy, self.scale_factor)
    }
}
