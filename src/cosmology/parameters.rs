//! The parameters of a flat universe of matter and a cosmological constant.

use super::CosmologyError;
use super::error::require;

/// How strong the initial fluctuations are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amplitude {
    /// A_s: the dimensionless power of the primordial curvature at the pivot k = 0.05/Mpc; in (0, 1].
    Primordial(f64),
    /// sigma_8: the linear rms contrast in spheres of 8 Mpc/h at a = 1, with the full transfer function; in (0, 100].
    Sigma8(f64),
}

/// What [`Cosmology::new`] is made from: plain numbers, not yet checked.
///
/// The default is [`Cosmology::planck18`]'s set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Strength of the initial fluctuations.
    pub amplitude: Amplitude,
    /// Spectral index n_s of the primordial fluctuations, in [-1, 3].
    pub n_s: f64,
    /// Matter density today (cold and baryonic) over the critical one, in [1e-3, 1].
    pub omega_m: f64,
    /// Baryon density today over the critical one, in [0, omega_m).
    pub omega_b: f64,
    /// Hubble constant in 100 km/s/Mpc, in [0.01, 3].
    pub h: f64,
    /// Temperature of the microwave background in kelvin, in [0.1, 100].
    pub t_cmb: f64,
}

/// Mean temperature of the microwave background in kelvin: Fixsen (2009), ApJ 707, 916.
const T_CMB: f64 = 2.7255;

impl Default for Parameters {
    fn default() -> Self {
        Self {
            amplitude: Amplitude::Primordial(2.105e-9),
            n_s: 0.9665,
            omega_m: 0.3111,
            omega_b: 0.04897,
            h: 0.6766,
            t_cmb: T_CMB,
        }
    }
}

impl Parameters {
    /// Checks that each parameter is in its range.
    pub(super) fn check(&self) -> Result<(), CosmologyError> {
        let Parameters { amplitude, n_s, omega_m, omega_b, h, t_cmb } = *self;
        require(
            // With less, the cosmological constant would matter where the integration of growth starts.
            (1e-3..=1.0).contains(&omega_m),
            "Omega_m",
            omega_m,
            "in [0.001, 1]",
            "give the matter density as a fraction of the critical density (about 0.3)",
        )?;
        require(
            omega_b >= 0.0 && omega_b < omega_m,
            "Omega_b",
            omega_b,
            format!("in [0, Omega_m = {omega_m})"),
            "baryons are a part of the matter (about 0.05)",
        )?;
        require(
            (0.01..=3.0).contains(&h),
            "h",
            h,
            "in [0.01, 3]",
            "give the Hubble constant in units of 100 km/s/Mpc (about 0.7)",
        )?;
        require((-1.0..=3.0).contains(&n_s), "n_s", n_s, "in [-1, 3]", "give the spectral index (about 0.96)")?;
        require(
            (0.1..=100.0).contains(&t_cmb),
            "T_cmb",
            t_cmb,
            "in [0.1, 100]",
            "give the temperature of the microwave background in kelvin (2.7255)",
        )?;
        match amplitude {
            Amplitude::Primordial(value) => require(
                value > 0.0 && value <= 1.0,
                "A_s",
                value,
                "in (0, 1]",
                "give the primordial amplitude itself, not its logarithm (about 2.1e-9)",
            )?,
            Amplitude::Sigma8(value) => require(
                value > 0.0 && value <= 100.0,
                "sigma8",
                value,
                "in (0, 100]",
                "give the rms linear contrast in spheres of 8 Mpc/h (about 0.8)",
            )?,
        };
        Ok(())
    }
}

/// A flat universe of matter and a cosmological constant.
///
/// - Its parameters have been checked, and cannot be changed afterwards.
/// - The density of the cosmological constant is 1 - [`omega_m`](Self::omega_m).
/// - Radiation is left out of the expansion; its temperature enters the transfer function only.
///
/// ```
/// use meshloom::cosmology::{Amplitude, Cosmology, Parameters};
///
/// let ours = Cosmology::new(Parameters { amplitude: Amplitude::Sigma8(0.8), omega_m: 0.28, ..Default::default() })?;
/// assert!((ours.primordial_amplitude() - 2.3e-9).abs() < 2e-10);
///
/// let percent = Cosmology::new(Parameters { omega_m: 31.0, ..Default::default() }).unwrap_err();
/// assert!(percent.to_string().starts_with("Omega_m = 31 is not allowed"));
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cosmology {
    primordial_amplitude: f64,
    n_s: f64,
    omega_m: f64,
    omega_b: f64,
    h: f64,
    t_cmb: f64,
}

impl Cosmology {
    /// The cosmology of parameters that have been checked, with this A_s.
    pub(super) fn from_checked(parameters: &Parameters, primordial_amplitude: f64) -> Self {
        let Parameters { n_s, omega_m, omega_b, h, t_cmb, .. } = *parameters;
        Self { primordial_amplitude, n_s, omega_m, omega_b, h, t_cmb }
    }

    /// Planck 2018 (TT,TE,EE+lowE+lensing+BAO), with massless neutrinos: A_s = 2.105e-9, n_s = 0.9665,
    /// Omega_m = 0.3111, Omega_b = 0.04897, h = 0.6766. Source: Planck Collaboration (2020), A&A 641, A6, table 2.
    pub fn planck18() -> Self {
        Self { primordial_amplitude: 2.105e-9, n_s: 0.9665, omega_m: 0.3111, omega_b: 0.04897, h: 0.6766, t_cmb: T_CMB }
    }

    /// Round numbers for tests and comparisons: A_s = 2e-9, n_s = 0.96, Omega_m = 0.3, Omega_b = 0.05, h = 0.7.
    pub fn simple() -> Self {
        Self { primordial_amplitude: 2e-9, n_s: 0.96, omega_m: 0.3, omega_b: 0.05, h: 0.7, t_cmb: T_CMB }
    }

    /// A_s, the dimensionless power of the primordial curvature at k = 0.05/Mpc.
    pub fn primordial_amplitude(&self) -> f64 {
        self.primordial_amplitude
    }

    /// Spectral index of the primordial fluctuations.
    pub fn n_s(&self) -> f64 {
        self.n_s
    }

    /// Matter density today over the critical density.
    pub fn omega_m(&self) -> f64 {
        self.omega_m
    }

    /// Baryon density today over the critical density.
    pub fn omega_b(&self) -> f64 {
        self.omega_b
    }

    /// Hubble constant in 100 km/s/Mpc.
    pub fn h(&self) -> f64 {
        self.h
    }

    /// Temperature of the microwave background in kelvin.
    pub fn t_cmb(&self) -> f64 {
        self.t_cmb
    }
}
