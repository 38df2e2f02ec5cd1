//! The parameters of a flat universe of matter, dark energy and, where asked for, radiation.

use super::CosmologyError;
use super::error::given;

/// Amplitude of the initial fluctuations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amplitude {
    /// A_s: the dimensionless power of the primordial curvature at the pivot k = 0.05/Mpc; in (0,
    /// 1].
    Primordial(f64),
    /// sigma_8: the linear rms contrast in spheres of 8 Mpc/h at a = 1, with the full transfer
    /// function; in (0, 100].
    Sigma8(f64),
}

impl Amplitude {
    fn check(&self) -> Result<(), CosmologyError> {
        match *self {
            Amplitude::Primordial(value) => given("A_s", value).require(
                value > 0.0 && value <= 1.0,
                "in (0, 1]",
                "give the primordial amplitude itself, not its logarithm (about 2.1e-9)",
            ),
            Amplitude::Sigma8(value) => given("sigma8", value).require(
                value > 0.0 && value <= 100.0,
                "in (0, 100]",
                "give the rms linear contrast in spheres of 8 Mpc/h (about 0.8)",
            ),
        }
    }
}

/// Input of [`Cosmology::new`]: plain numbers, not yet checked.
///
/// The default is the set of [`Cosmology::planck18_primordial`]: a cosmological constant, and no
/// radiation in the expansion. The program's universe, that of a default run, is another:
/// `Cosmology::planck18().parameters()`.
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
    /// Dark energy's ratio of pressure to density today, in [-3, -0.3]; -1 for a cosmological
    /// constant.
    pub w0: f64,
    /// Evolution of the equation of state: w(a) = w0 + wa (1 - a) (Chevallier & Polarski 2001,
    /// Linder 2003); w0 + wa is in [-5, -0.3], so that dark energy is negligible at early times.
    pub wa: f64,
    /// Number of relativistic neutrino species, in [0, 20]: photons and this number of massless
    /// neutrinos, of (4/11)^(1/3) the photons' temperature, take part in the expansion. `None` for
    /// an expansion without radiation.
    pub radiation: Option<f64>,
}

/// Neutrino species of the standard model (Mangano et al. 2005).
pub(super) const NEUTRINOS: f64 = 3.046;

/// Density of a massless species over that of photons: 7/8 (4/11)^(4/3).
const NEUTRINO: f64 = 0.227_107_317_660_239;

/// Omega_gamma h^2 of photons at 1 K: 4 sigma T^4/c^3 over the critical density (CODATA 2018, a
/// megaparsec of IAU 2015).
const PHOTONS: f64 = 4.481_62e-7;

/// A_s of [`Cosmology::planck18`], for which sigma_8 is 0.8102.
const PLANCK18_AMPLITUDE: f64 = 1.996_492_182_025e-9;

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
            w0: -1.0,
            wa: 0.0,
            radiation: None,
        }
    }
}

impl Parameters {
    /// Density of radiation today over the critical one.
    pub(super) fn omega_r(&self) -> f64 {
        let square = self.t_cmb * self.t_cmb;
        let photons = PHOTONS * square * square / (self.h * self.h);
        self.radiation.map_or(0.0, |neutrinos| photons * (1.0 + neutrinos * NEUTRINO))
    }

    /// Checks that each parameter is in its range.
    pub(super) fn check(&self) -> Result<(), CosmologyError> {
        let Parameters { n_s, omega_m, omega_b, h, t_cmb, w0, wa, .. } = *self;
        // With less matter, the cosmological constant would matter where the integration of growth
        // starts.
        given("Omega_m", omega_m)
            .within(1e-3..=1.0, "give the matter density as a fraction of the critical density (about 0.3)")?;
        let allowed = format!("in [0, Omega_m = {omega_m})");
        let is_part = omega_b >= 0.0 && omega_b < omega_m;
        given("Omega_b", omega_b).require(is_part, allowed, "baryons are a part of the matter (about 0.05)")?;
        given("h", h).within(0.01..=3.0, "give the Hubble constant in units of 100 km/s/Mpc (about 0.7)")?;
        given("n_s", n_s).within(-1.0..=3.0, "give the spectral index (about 0.96)")?;
        given("T_cmb", t_cmb)
            .within(0.1..=100.0, "give the temperature of the microwave background in kelvin (2.7255)")?;
        given("w0", w0).within(
            -3.0..=-0.3,
            "give dark energy's ratio of pressure to density today (-1 for a cosmological constant)",
        )?;
        given("wa", wa).require(
            (-5.0..=-0.3).contains(&(w0 + wa)),
            format!("such that w0 + wa is in [-5, -0.3], where w0 = {w0}"),
            "dark energy must be nothing at early times; give a smaller wa (0 for a constant w)",
        )?;
        if let Some(neutrinos) = self.radiation {
            given("N_eff", neutrinos).within(0.0..=20.0, "give the number of neutrino species (3.046)")?;
            let omega_r = self.omega_r();
            given("Omega_m", omega_m).require(
                1.0 - omega_m - omega_r >= 0.0,
                format!("at most 1 less the density of radiation, {omega_r:e}"),
                "the universe is flat; give less matter or no radiation",
            )?;
        }
        self.amplitude.check()
    }
}

/// A flat universe of matter and dark energy, and of radiation where its parameters say so.
///
/// - Its parameters have been checked, and cannot be changed afterwards.
/// - The density of dark energy is 1 - [`omega_m`](Self::omega_m) - [`omega_r`](Self::omega_r); it
///   does not cluster.
/// - The temperature of the microwave background enters the transfer function also where radiation
///   is left out of the expansion.
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
    /// With a primordial amplitude.
    parameters: Parameters,
    primordial_amplitude: f64,
    omega_r: f64,
}

impl Cosmology {
    /// Creates the cosmology of parameters that have been checked, with this A_s.
    pub(super) fn from_checked(parameters: &Parameters, primordial_amplitude: f64) -> Self {
        let amplitude = Amplitude::Primordial(primordial_amplitude);
        Self {
            parameters: Parameters { amplitude, ..*parameters },
            primordial_amplitude,
            omega_r: parameters.omega_r(),
        }
    }

    /// Planck 2018 (TT,TE,EE+lowE+lensing+BAO), with the published sigma_8: sigma_8 = 0.8102, n_s =
    /// 0.9665, Omega_m = 0.3111, Omega_b = 0.04897, h = 0.6766, and radiation in the expansion.
    /// Source: Planck Collaboration (2020), A&A 641, A6, table 2.
    ///
    /// A_s is what gives this sigma_8 with the transfer function of Eisenstein & Hu, 5 % below the
    /// published one: the function leaves out the mass of neutrinos and is itself some percent off.
    #[must_use]
    pub fn planck18() -> Self {
        let parameters = Parameters { radiation: Some(NEUTRINOS), ..Parameters::default() };
        Self::from_checked(&parameters, PLANCK18_AMPLITUDE)
    }

    /// [`planck18`](Self::planck18) with the published amplitude of the primordial power, A_s =
    /// 2.105e-9, and no radiation in the expansion. Its sigma_8 with the transfer function of
    /// Eisenstein & Hu is 0.8316.
    #[must_use]
    pub fn planck18_primordial() -> Self {
        Self::from_checked(&Parameters::default(), 2.105e-9)
    }

    /// Round numbers for tests and comparisons: A_s = 2e-9, n_s = 0.96, Omega_m = 0.3, Omega_b =
    /// 0.05, h = 0.7; no radiation.
    #[must_use]
    pub fn simple() -> Self {
        let parameters = Parameters { n_s: 0.96, omega_m: 0.3, omega_b: 0.05, h: 0.7, ..Parameters::default() };
        Self::from_checked(&parameters, 2e-9)
    }

    /// Returns the parameters, with a primordial amplitude: [`new`](Self::new) makes this cosmology
    /// of them.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// A_s, the dimensionless power of the primordial curvature at k = 0.05/Mpc.
    #[must_use]
    pub fn primordial_amplitude(&self) -> f64 {
        self.primordial_amplitude
    }

    /// Spectral index of the primordial fluctuations.
    #[must_use]
    pub fn n_s(&self) -> f64 {
        self.parameters.n_s
    }

    /// Matter density today over the critical density.
    #[must_use]
    pub fn omega_m(&self) -> f64 {
        self.parameters.omega_m
    }

    /// Baryon density today over the critical density.
    #[must_use]
    pub fn omega_b(&self) -> f64 {
        self.parameters.omega_b
    }

    /// Density of radiation today over the critical density; 0 where the expansion has none.
    #[must_use]
    pub fn omega_r(&self) -> f64 {
        self.omega_r
    }

    /// Density of dark energy today over the critical density: what is left of a flat universe.
    #[must_use]
    pub fn omega_de(&self) -> f64 {
        1.0 - self.parameters.omega_m - self.omega_r
    }

    /// Hubble constant in 100 km/s/Mpc.
    #[must_use]
    pub fn h(&self) -> f64 {
        self.parameters.h
    }

    /// Temperature of the microwave background in kelvin.
    #[must_use]
    pub fn t_cmb(&self) -> f64 {
        self.parameters.t_cmb
    }

    /// Dark energy's ratio of pressure to density today, and its derivative by -a.
    #[must_use]
    pub fn dark_energy(&self) -> [f64; 2] {
        [self.parameters.w0, self.parameters.wa]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{LinearPower, TransferKind};

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
            ("w0", Parameters { w0: -0.2, ..base }),
            ("w0", Parameters { w0: nan, ..base }),
            ("wa", Parameters { wa: 0.8, ..base }),
            ("wa", Parameters { wa: nan, ..base }),
            ("N_eff", Parameters { radiation: Some(-1.0), ..base }),
            ("Omega_m", Parameters { omega_m: 1.0, radiation: Some(3.046), ..base }),
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
                        let omega_b = baryons * omega_m;
                        let parameters =
                            Parameters { amplitude, n_s, omega_m, omega_b, h, t_cmb, ..Default::default() };
                        let found = Cosmology::new(parameters).unwrap().primordial_amplitude();
                        assert!(found > 0.0 && found.is_finite(), "{parameters:?}: {found}");
                    }
                }
            }
        }
    }

    #[test]
    fn presets_pass_their_own_check() {
        for preset in [Cosmology::planck18(), Cosmology::planck18_primordial(), Cosmology::simple()] {
            assert_eq!(Cosmology::new(preset.parameters()), Ok(preset));
        }
        // The published one.
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        assert!(
            (power.sigma8() - 0.8102).abs() < 1e-9,
            "{:.17e} {}",
            power.cosmology().primordial_amplitude(),
            power.sigma8()
        );
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
