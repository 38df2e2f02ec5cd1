//! The cosmology and the units of a snapshot, as its attributes state them.

use std::path::Path;

use super::part_file::{A_POWER, H_POWER, TO_CGS, contradiction};
use super::{KM_S, Opened, group_name, wrong};
use crate::cosmology::expansion_rate;
use crate::io::{IoError, Result};

/// Densities today over the critical one, from a snapshot's attributes: SWIFT's group `Cosmology`,
/// else Gadget-4's `Parameters`, else the `Header` of Gadget-2 or GIZMO. Plain numbers of a file
/// for any universe, not a checked [`Cosmology`](crate::cosmology::Cosmology), since files state no
/// amplitude.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Background {
    /// Density of matter, above 0.
    pub omega_m: f64,
    /// Density of radiation; 0 if it is not stated, as in the layout of Gadget.
    pub omega_r: f64,
    /// Density of dark energy.
    pub omega_de: f64,
    /// w0 and wa of dark energy: -1 and 0 in the layout of Gadget.
    pub dark_energy: [f64; 2],
}

impl Background {
    /// Returns the share of curvature: 1 minus the densities.
    #[must_use]
    pub fn omega_k(&self) -> f64 {
        1.0 - self.omega_m - self.omega_r - self.omega_de
    }

    /// Returns Omega_m(a), the share of matter in the critical density at scale factor a > 0.
    ///
    /// ```
    /// # use meshloom::io::hdf5::Background;
    /// let open = Background { omega_m: 0.5, omega_r: 0.0, omega_de: 0.0, dark_energy: [-1.0, 0.0] };
    /// assert_eq!(open.matter_fraction(0.5), 4.0 / 6.0);
    /// ```
    #[must_use]
    pub fn matter_fraction(&self, a: f64) -> f64 {
        let flat = expansion_rate([self.omega_m, self.omega_r, self.omega_de], self.dark_energy, a).powi(2);
        self.omega_m / (a * a * a) / (flat + self.omega_k() / (a * a))
    }

    /// Reads it from a snapshot's file; `None` if the file states no density of matter above 0, or
    /// that the run was not cosmological.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        let file = Opened::new(path)?;
        let places = [
            ("Cosmology", "Cosmological run", ["Omega_m", "Omega_lambda", "Omega_r"]),
            ("Parameters", "ComovingIntegrationOn", ["Omega0", "OmegaLambda", "Omega_r"]),
            ("Header", "ComovingIntegrationOn", ["Omega0", "OmegaLambda", "Omega_r"]),
            ("Header", "ComovingIntegrationOn", ["Omega_Matter", "Omega_Lambda", "Omega_Radiation"]),
        ];
        let mut first: Option<([String; 2], Self)> = None;
        for (group, cosmological, [matter, dark, radiation]) in places {
            let number = |name: &str| file.number(group, name);
            if number(cosmological)? == Some(0.0) {
                if first.is_none() {
                    return Ok(None);
                }
                continue;
            }
            let (Some(omega_m), Some(omega_de)) = (file.positive(group, matter)?, number(dark)?) else { continue };
            let names = [matter, dark].map(|name| format!("{group}/{name}"));
            let omega_r = number(radiation)?.unwrap_or(0.0);
            let dark_energy = [number("w_0")?.unwrap_or(-1.0), number("w_a")?.unwrap_or(0.0)];
            let Some((own_names, own)) = &first else {
                first = Some((names, Background { omega_m, omega_r, omega_de, dark_energy }));
                continue;
            };
            let pairs = [(own.omega_m, omega_m), (own.omega_de, omega_de)];
            for ((own_name, name), (own, other)) in own_names.iter().zip(&names).zip(pairs) {
                contradiction((own_name, Some(own)), (name, Some(other))).map_err(|why| wrong(path, why))?;
            }
        }
        Ok(first.map(|(_, background)| background))
    }
}

/// Returns the centimeters of a comoving length of 1, with h: as stated by the dataset in the
/// convention of Gadget-4, SWIFT or EAGLE, else by the file in that of SWIFT, else by the file in
/// that of Gadget-4, AREPO or GIZMO. `None` if nothing states them; some codes write 0 for an
/// unknown unit.
pub(super) fn length_unit(file: &Opened, dataset: &str) -> Result<Option<f64>> {
    Ok(said(file, dataset)?.filter(|unit| unit.is_normal() && *unit > 0.0))
}

fn said(file: &Opened, name: &str) -> Result<Option<f64>> {
    let dataset = file.dataset(name)?;
    let first_of = |names: &[&'static str]| {
        let found = dataset.as_ref().map_or(Ok(None), |dataset| file.first_of(name, dataset, names));
        Ok::<_, IoError>(found?.map(|(_, value)| value))
    };
    let h = hubble(file)?;
    // The unit of a dataset excludes h if the dataset has a power of h.
    let power = first_of(&H_POWER)?.unwrap_or(0.0);
    let with_h = |unit: f64| if power == 0.0 { Some(unit) } else { h.map(|h| unit * h.powf(power)) };
    for name in TO_CGS {
        if let Some(unit) = first_of(&[name])?.filter(|unit| *unit > 0.0) {
            return Ok(with_h(unit));
        }
    }
    if let Some(unit) = file.positive("Units", "Unit length in cgs (U_L)")? {
        return Ok(with_h(unit));
    }
    for (group, name) in
        [("Parameters", "UnitLength_in_cm"), ("Header", "UnitLength_in_cm"), ("Header", "UnitLength_In_CGS")]
    {
        if let Some(unit) = file.positive(group, name)? {
            return Ok(h.map(|h| unit / h));
        }
    }
    Ok(None)
}

/// Returns the Hubble constant in 100 km/s/Mpc; `None` if the file states none above 0.
pub(super) fn hubble(file: &Opened) -> Result<Option<f64>> {
    let mut first: Option<(String, f64)> = None;
    for (group, name) in [("Cosmology", "h"), ("Parameters", "HubbleParam"), ("Header", "HubbleParam")] {
        let Some(h) = file.positive(group, name)? else { continue };
        let name = format!("{group}/{name}");
        match &first {
            None => first = Some((name, h)),
            Some((own, value)) => {
                contradiction((own, Some(*value)), (&name, Some(h))).map_err(|why| wrong(file.path(), why))?;
            }
        }
    }
    Ok(first.map(|(_, h)| h))
}

/// The unit of a snapshot's velocities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VelocityUnit {
    /// The factor that makes velocities peculiar.
    pub factor: f64,
    /// Whether the products are in km/s, and not in the file's unit.
    pub km_s: bool,
}

impl VelocityUnit {
    /// Reads the unit of a type's velocities from a snapshot's file of scale factor `a`.
    pub(super) fn read(path: &Path, particle_type: usize, a: f64) -> Result<Option<Self>> {
        let file = Opened::new(path)?;
        let velocities = format!("{}/Velocities", group_name(particle_type));
        let Some((name, dataset)) = file.of_particles(&velocities)? else { return Ok(None) };
        let first_of = |names| Ok::<_, IoError>(file.first_of(&name, &dataset, names)?.map(|(_, value)| value));
        let Some(power) = first_of(&A_POWER)? else { return Ok(None) };
        let own = first_of(&TO_CGS)?;
        // The unit of a dataset excludes h if the dataset has a power of h.
        let h_power = first_of(&H_POWER)?.filter(|_| own.is_some()).unwrap_or(0.0);
        let h = if h_power == 0.0 { None } else { hubble(&file)? };
        if h_power != 0.0 && h.is_none() {
            let why = format!(
                "{name}: the power of h is {h_power}, but no h above 0 is in Cosmology, Parameters or Header; add HubbleParam"
            );
            return Err(wrong(path, why));
        }
        // Some codes write 0 for an unknown unit.
        let cgs = match own.filter(|unit| *unit > 0.0) {
            None => file.positive("Parameters", "UnitVelocity_in_cm_per_s")?,
            own => own,
        };
        let factor = a.powf(power) * h.map_or(1.0, |h| h.powf(h_power)) * cgs.map_or(1.0, |cgs| cgs / KM_S);
        Ok(Some(VelocityUnit { factor, km_s: cgs.is_some() }))
    }
}
