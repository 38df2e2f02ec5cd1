//! The unit of a snapshot's velocities, as the attributes of their dataset say it.

use std::path::Path;

use hdf5_metno::Location;

use super::attributes::{numbers, single};
use super::length_unit;
use super::part_file::{A_POWER, H_POWER, Opened, TO_CGS, group_name, wrong};
use super::units::KM_S;
use crate::io::IoError;

/// What velocities of a snapshot are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VelocityUnit {
    /// The factor that makes them peculiar.
    pub factor: f64,
    /// Whether they are then in km/s, and not in the file's unit.
    pub km_s: bool,
}

impl VelocityUnit {
    /// That of the velocities of a type in a snapshot's file of scale factor `a`.
    pub(super) fn read(path: &Path, particle_type: usize, a: f64) -> Result<Option<Self>, IoError> {
        let file = Opened::new(path)?;
        let Some((name, dataset)) = file.of_particles(&group_name(particle_type), "Velocities")? else {
            return Ok(None);
        };
        let number = |at: &Location, name: &str| {
            let found = numbers(at, name).and_then(single);
            found.map_err(|error| wrong(path, format!("Velocities: {name} {error}; write it again")))
        };
        let first_of = |names| Ok::<_, IoError>(file.first_of(name, &dataset, names)?.map(|(_, value)| value));
        let Some(power) = first_of(&A_POWER)? else { return Ok(None) };
        let own = first_of(&TO_CGS)?;
        // The unit of a dataset is without h where it has a power of h.
        let h_power = first_of(&H_POWER)?.filter(|_| own.is_some()).unwrap_or(0.0);
        let h = if h_power == 0.0 { None } else { length_unit::hubble(&file)? };
        if h_power != 0.0 && h.is_none() {
            let why = format!(
                "{name}: the power of h is {h_power}, but no h above 0 is in Cosmology, Parameters or Header; add HubbleParam"
            );
            return Err(wrong(path, why));
        }
        // Some codes write 0 where they know no unit.
        let cgs = match (own.filter(|unit| *unit > 0.0), file.hdf5.group("Parameters")) {
            (None, Ok(parameters)) => number(&parameters, "UnitVelocity_in_cm_per_s")?.filter(|unit| *unit > 0.0),
            (own, _) => own,
        };
        let factor = a.powf(power) * h.map_or(1.0, |h| h.powf(h_power)) * cgs.map_or(1.0, |cgs| cgs / KM_S);
        Ok(Some(VelocityUnit { factor, km_s: cgs.is_some() }))
    }
}
