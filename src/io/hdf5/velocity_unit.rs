//! The unit of a snapshot's velocities, as the attributes of their dataset say it.

use std::path::Path;

use hdf5_metno::Location;

use super::attributes::{numbers, single};
use super::part_file::{Opened, group_name, wrong};
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
        let Some(dataset) = file.dataset(&group_name(particle_type), "Velocities")? else {
            return Ok(None);
        };
        let number = |at: &Location, name: &str| {
            let found = numbers(at, name).and_then(single);
            found.map_err(|error| wrong(path, format!("Velocities: {name} {error}; write it again")))
        };
        let first_of = |names: &[&str]| -> Result<Option<f64>, IoError> {
            names.iter().try_fold(None, |found, name| if found.is_some() { Ok(found) } else { number(&dataset, name) })
        };
        let Some(power) = first_of(&["a_scaling", "a-scale exponent", "aexp-scale-exponent"])? else { return Ok(None) };
        let units =
            ["to_cgs", "Conversion factor to CGS (not including cosmological corrections)", "CGSConversionFactor"];
        let own = first_of(&units)?;
        // Some codes write 0 where they know no unit.
        let cgs = match (own.filter(|unit| *unit > 0.0), file.hdf5.group("Parameters")) {
            (None, Ok(parameters)) => number(&parameters, "UnitVelocity_in_cm_per_s")?.filter(|unit| *unit > 0.0),
            (own, _) => own,
        };
        let factor = a.powf(power) * cgs.map_or(1.0, |cgs| cgs / KM_S);
        Ok(Some(VelocityUnit { factor, km_s: cgs.is_some() }))
    }
}
