//! Overdensities that define the mass of a halo.

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

/// Density of the sphere that defines a halo's mass.
///
/// Written `200m` (of the mean density of matter), `500c` (of the critical density) or `vir`.
///
/// ```
/// use meshloom::cosmology::{Cosmology, Overdensity};
///
/// let simple = Cosmology::simple();
/// let over_mean = |text: &str| text.parse::<Overdensity>().map(|density| density.over_mean(simple.matter_fraction(1.0)));
/// assert_eq!((over_mean("200m"), over_mean("300c")), (Ok(200.0), Ok(1000.0)));
/// // Matter alone collapses to 18 pi^2 times its mean.
/// assert!((Overdensity::Virial.over_mean(simple.matter_fraction(1e-3)) / 177.65 - 1.0).abs() < 1e-4);
/// assert!("200".parse::<Overdensity>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Overdensity {
    /// This multiple of the mean density of matter at that time.
    Mean(f64),
    /// This multiple of the critical density at that time.
    Critical(f64),
    /// The density of a top hat that has virialized in a flat universe (Bryan & Norman 1998): 18
    /// pi^2 + 82 x - 39 x^2 times the critical density, with x = Omega_m(a) - 1.
    Virial,
}

impl Overdensity {
    /// Returns what it is of the mean density of matter at a time when matter is this fraction of
    /// the critical density ([`Cosmology::matter_fraction`](super::Cosmology::matter_fraction)),
    /// which is above 0.
    #[must_use]
    pub fn over_mean(self, matter_fraction: f64) -> f64 {
        match self {
            Overdensity::Mean(times) => times,
            Overdensity::Critical(times) => times / matter_fraction,
            Overdensity::Virial => {
                let x = matter_fraction - 1.0;
                (18.0 * PI * PI + 82.0 * x - 39.0 * x * x) / matter_fraction
            }
        }
    }
}

impl fmt::Display for Overdensity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Overdensity::Mean(times) => write!(f, "{times}m"),
            Overdensity::Critical(times) => write!(f, "{times}c"),
            Overdensity::Virial => f.write_str("vir"),
        }
    }
}

impl FromStr for Overdensity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let times = |number: &str| number.parse::<f64>().ok().filter(|times| *times >= 1.0 && *times <= 1e6);
        let (mean, critical) = (text.strip_suffix('m').and_then(times), text.strip_suffix('c').and_then(times));
        match (text, mean, critical) {
            ("vir", ..) => Ok(Overdensity::Virial),
            (_, Some(times), _) => Ok(Overdensity::Mean(times)),
            (_, _, Some(times)) => Ok(Overdensity::Critical(times)),
            _ => Err(format!(
                "`{text}` is no overdensity; it must be vir, or a number from 1 to 1e6 with m (mean) or c (critical)"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::Cosmology;

    #[test]
    fn names_come_back_and_others_are_refused() {
        for name in ["200m", "500c", "vir", "2.5c"] {
            assert_eq!(name.parse::<Overdensity>().unwrap().to_string(), name);
        }
        for name in ["", "m", "0m", "-200c", "nanm", "infc", "200x", "virial"] {
            assert!(name.parse::<Overdensity>().is_err(), "{name}");
        }
    }

    #[test]
    fn the_virial_overdensity_of_today_is_the_published_one() {
        // Omega_m = 0.3: some 101 times critical, 337 times the mean (Bryan & Norman 1998, as
        // quoted by Klypin et al. 2011).
        let times = Overdensity::Virial.over_mean(Cosmology::simple().matter_fraction(1.0));
        assert!((times - 337.0).abs() < 1.0, "{times}");
    }
}
