//! The parameters of a flat universe of matter and a cosmological constant.

use super::error::require;
use super::{CosmologyError, LinearPower, TransferKind};

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
    /// Checks the parameters and, for [`Amplitude::Sigma8`], finds the A_s that belongs to it.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] for the first parameter that is outside the range given at its field.
    pub fn new(parameters: Parameters) -> Result<Self, CosmologyError> {
        let Parameters { amplitude, n_s, omega_m, omega_b, h, t_cmb } = parameters;
        require(
            // With less, matter would not rule yet where the growth's integration starts.
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
        let with_amplitude = |primordial_amplitude| Self { primordial_amplitude, n_s, omega_m, omega_b, h, t_cmb };
        match amplitude {
            Amplitude::Primordial(value) => {
                require(
                    value > 0.0 && value <= 1.0,
                    "A_s",
                    value,
                    "in (0, 1]",
                    "give the primordial amplitude itself, not its logarithm (about 2.1e-9)",
                )?;
                Ok(with_amplitude(value))
            }
            Amplitude::Sigma8(value) => {
                require(
                    value > 0.0 && value <= 100.0,
                    "sigma8",
                    value,
                    "in (0, 100]",
                    "give the rms linear contrast in spheres of 8 Mpc/h (about 0.8)",
                )?;
                // sigma_8^2 is proportional to A_s, so one evaluation at A_s = 1 is enough.
                let unit = LinearPower::new(with_amplitude(1.0), TransferKind::Full)?.sigma8();
                Ok(with_amplitude((value / unit).powi(2)))
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_out_of_range_and_names_it() {
        let base = Parameters::default();
        let nan = f64::NAN;
        let cases = [
            ("Omega_m", Parameters { omega_m: 0.0, ..base }),
            ("Omega_m", Parameters { omega_m: 1.01, ..base }),
            ("Omega_m", Parameters { omega_m: nan, ..base }),
            ("Omega_b", Parameters { omega_b: -0.01, ..base }),
            ("Omega_b", Parameters { omega_b: base.omega_m, ..base }),
            ("Omega_b", Parameters { omega_b: nan, ..base }),
            ("h", Parameters { h: 0.0, ..base }),
            ("h", Parameters { h: 67.7, ..base }),
            ("h", Parameters { h: f64::INFINITY, ..base }),
            ("n_s", Parameters { n_s: nan, ..base }),
            ("T_cmb", Parameters { t_cmb: 0.0, ..base }),
            ("A_s", Parameters { amplitude: Amplitude::Primordial(3.05), ..base }),
            ("A_s", Parameters { amplitude: Amplitude::Primordial(0.0), ..base }),
            ("sigma8", Parameters { amplitude: Amplitude::Sigma8(-0.8), ..base }),
            ("sigma8", Parameters { amplitude: Amplitude::Sigma8(nan), ..base }),
        ];
        for (name, parameters) in cases {
            let Err(CosmologyError::OutOfRange { quantity, .. }) = Cosmology::new(parameters) else {
                panic!("{name}: {parameters:?} was accepted");
            };
            assert_eq!(quantity, name);
        }
    }

    #[test]
    fn everything_in_range_has_a_power_spectrum() {
        for omega_m in [1e-3, 0.3, 1.0] {
            for baryons in [0.0, 0.16, 0.999] {
                for (h, t_cmb) in [(0.01, 0.1), (0.01, 100.0), (0.7, 2.7), (3.0, 0.1), (3.0, 100.0)] {
                    for n_s in [-1.0, 3.0] {
                        let amplitude = Amplitude::Sigma8(0.8);
                        let parameters = Parameters { amplitude, n_s, omega_m, omega_b: baryons * omega_m, h, t_cmb };
                        let found = Cosmology::new(parameters).unwrap().primordial_amplitude();
                        assert!(found > 0.0 && found.is_finite(), "{parameters:?}: {found}");
                    }
                }
            }
        }
    }

    #[test]
    fn presets_pass_their_own_check() {
        assert_eq!(Cosmology::new(Parameters::default()), Ok(Cosmology::planck18()));
    }

    #[test]
    fn sigma8_is_met() {
        let target = 0.75;
        let cosmology =
            Cosmology::new(Parameters { amplitude: Amplitude::Sigma8(target), ..Default::default() }).unwrap();
        let found = LinearPower::new(cosmology, TransferKind::Full).unwrap().sigma8();
        assert!((found - target).abs() < 1e-13, "{found}");
    }
}
