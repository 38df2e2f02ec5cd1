//! A cosmology from its parameters: the amplitude of the power spectrum from sigma_8.

use super::{Amplitude, Cosmology, CosmologyError, LinearPower, Parameters, TransferKind};

impl Cosmology {
    /// Checks the parameters and, for [`Amplitude::Sigma8`], finds the A_s that belongs to it.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] for the first parameter that is outside the range given at
    /// its field.
    pub fn new(parameters: Parameters) -> Result<Self, CosmologyError> {
        parameters.check()?;
        match parameters.amplitude {
            Amplitude::Primordial(value) => Ok(Self::from_checked(&parameters, value)),
            Amplitude::Sigma8(value) => {
                // sigma_8^2 is proportional to A_s, so one evaluation at A_s = 1 is enough.
                let unit = LinearPower::new(Self::from_checked(&parameters, 1.0), TransferKind::Full)?.sigma8();
                Ok(Self::from_checked(&parameters, (value / unit).powi(2)))
            }
        }
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
