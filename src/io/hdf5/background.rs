//! The background cosmology of a snapshot, as its attributes say it.

use std::path::Path;

use hdf5_metno::{Group, Location, Result};

use super::attributes::{numbers, single};
use super::part_file::{Opened, contradiction, wrong};
use super::queries;
use crate::cosmology::expansion_rate;
use crate::io::IoError;

/// Densities today over the critical one, which a snapshot's attributes give: of SWIFT's group `Cosmology`, else of Gadget-4's `Parameters`, else of the
/// `Header` as Gadget-2 or GIZMO writes it. Plain numbers of a file, of any universe, and not a checked [`Cosmology`](crate::cosmology::Cosmology): files say
/// nothing of an amplitude.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Background {
    /// Density of matter, above 0.
    pub omega_m: f64,
    /// Density of radiation: 0 where it is not said, as in the layout of Gadget.
    pub omega_r: f64,
    /// Density of dark energy.
    pub omega_de: f64,
    /// w0 and wa of dark energy: -1 and 0 in the layout of Gadget.
    pub dark_energy: [f64; 2],
}

impl Background {
    /// What the densities leave to 1: the curvature's share.
    pub fn omega_k(&self) -> f64 {
        1.0 - self.omega_m - self.omega_r - self.omega_de
    }

    /// Omega_m(a): the share of matter in the critical density at scale factor a > 0.
    ///
    /// ```
    /// # use meshloom::io::hdf5::Background;
    /// let open = Background { omega_m: 0.5, omega_r: 0.0, omega_de: 0.0, dark_energy: [-1.0, 0.0] };
    /// assert_eq!(open.matter_fraction(0.5), 4.0 / 6.0);
    /// ```
    pub fn matter_fraction(&self, a: f64) -> f64 {
        let flat = expansion_rate([self.omega_m, self.omega_r, self.omega_de], self.dark_energy, a).powi(2);
        self.omega_m / (a * a * a) / (flat + self.omega_k() / (a * a))
    }

    /// That of a snapshot's file; none where it says nothing of a density of matter above 0, or that its run was none of cosmology.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, IoError> {
        let file = Opened::new(path)?;
        let group = |name: &'static str| {
            let found =
                queries::has_link(&file.hdf5, name).and_then(|there| there.then(|| file.hdf5.group(name)).transpose());
            found.map_err(|error| wrong(path, format!("{name}: {error}; write it again")))
        };
        let places = [
            ("Cosmology", "Cosmological run", ["Omega_m", "Omega_lambda", "Omega_r"]),
            ("Parameters", "ComovingIntegrationOn", ["Omega0", "OmegaLambda", "Omega_r"]),
            ("Header", "ComovingIntegrationOn", ["Omega0", "OmegaLambda", "Omega_r"]),
            ("Header", "ComovingIntegrationOn", ["Omega_Matter", "Omega_Lambda", "Omega_Radiation"]),
        ];
        let mut first: Option<([String; 2], Self)> = None;
        for (name, cosmological, densities) in places {
            let Some(group) = group(name)? else { continue };
            let found = said_by(&group, cosmological, densities);
            match (found.map_err(|error| wrong(path, format!("{name}/{error}; write it again")))?, &first) {
                (Said::Background(background), None) => {
                    let names = [0, 1].map(|n| format!("{name}/{}", densities[n]));
                    first = Some((names, background));
                }
                (Said::Background(other), Some((names, own))) => {
                    let pairs = [(own.omega_m, other.omega_m), (own.omega_de, other.omega_de)];
                    for (n, (own, other)) in pairs.into_iter().enumerate() {
                        let other_name = format!("{name}/{}", densities[n]);
                        contradiction((&names[n], Some(own)), (&other_name, Some(other)))
                            .map_err(|why| wrong(path, why))?;
                    }
                }
                (Said::NoCosmology, None) => return Ok(None),
                (Said::NoCosmology, Some(_)) | (Said::Nothing, _) => {}
            }
        }
        Ok(first.map(|(_, background)| background))
    }
}

/// What a group of attributes says.
enum Said {
    Background(Background),
    /// The run was none of cosmology.
    NoCosmology,
    Nothing,
}

fn said_by(group: &Group, cosmological: &str, [matter, dark, radiation]: [&str; 3]) -> Result<Said> {
    let number = |name: &str| one(group, name);
    if number(cosmological)? == Some(0.0) {
        return Ok(Said::NoCosmology);
    }
    let (Some(omega_m), Some(omega_de)) = (number(matter)?.filter(|density| *density > 0.0), number(dark)?) else {
        return Ok(Said::Nothing);
    };
    let omega_r = number(radiation)?.unwrap_or(0.0);
    let dark_energy = [number("w_0")?.unwrap_or(-1.0), number("w_a")?.unwrap_or(0.0)];
    Ok(Said::Background(Background { omega_m, omega_r, omega_de, dark_energy }))
}

/// The number of an attribute that has one value; its error begins with its name.
fn one(at: &Location, name: &str) -> Result<Option<f64>> {
    numbers(at, name).and_then(single).map_err(|error| format!("{name} {error}").into())
}
