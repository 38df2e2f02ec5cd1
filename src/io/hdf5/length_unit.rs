//! The unit of lengths in a file, as its attributes say it.

use hdf5_metno::{Dataset, Location};

use super::attributes::{numbers, single};
use super::part_file::{H_POWER, Opened, TO_CGS, contradiction, wrong};
use super::queries;
use crate::io::IoError;

/// Centimetres of a comoving length of 1, h included: as the dataset says in the convention of Gadget-4, SWIFT or EAGLE, else the file in that of SWIFT, else the file in that of
/// Gadget-4, AREPO or GIZMO. None where nothing does; some codes write 0 where they know no unit.
pub(super) fn read(file: &Opened, dataset: Option<&Dataset>) -> Result<Option<f64>, IoError> {
    Ok(said(file, dataset)?.filter(|unit| unit.is_normal() && *unit > 0.0))
}

fn said(file: &Opened, dataset: Option<&Dataset>) -> Result<Option<f64>, IoError> {
    let positive = |unit: Option<f64>| unit.filter(|unit| *unit > 0.0);
    let first_of = |names: &[&'static str]| {
        let found = dataset.map_or(Ok(None), |dataset| file.first_of("Coordinates", dataset, names));
        Ok::<_, IoError>(found?.map(|(_, value)| value))
    };
    let h = hubble(file)?;
    // A dataset's unit is without h where it has a power of h.
    let power = first_of(&H_POWER)?.unwrap_or(0.0);
    let with_h = |unit: f64| if power == 0.0 { Some(unit) } else { h.map(|h| unit * h.powf(power)) };
    for name in TO_CGS {
        if let Some(unit) = positive(first_of(&[name])?) {
            return Ok(with_h(unit));
        }
    }
    if let Some(unit) = positive(of_group(file, "Units", "Unit length in cgs (U_L)")?) {
        return Ok(with_h(unit));
    }
    for (group, name) in
        [("Parameters", "UnitLength_in_cm"), ("Header", "UnitLength_in_cm"), ("Header", "UnitLength_In_CGS")]
    {
        if let Some(unit) = positive(of_group(file, group, name)?) {
            return Ok(h.map(|h| unit / h));
        }
    }
    Ok(None)
}

/// The Hubble constant in 100 km/s/Mpc; none where the file does not say one above 0.
pub(super) fn hubble(file: &Opened) -> Result<Option<f64>, IoError> {
    let mut first: Option<(String, f64)> = None;
    for (group, name) in [("Cosmology", "h"), ("Parameters", "HubbleParam"), ("Header", "HubbleParam")] {
        let Some(h) = of_group(file, group, name)?.filter(|h| *h > 0.0) else { continue };
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

fn of_group(file: &Opened, group: &str, name: &str) -> Result<Option<f64>, IoError> {
    let found =
        queries::has_link(&file.hdf5, group).and_then(|there| there.then(|| file.hdf5.group(group)).transpose());
    match found.map_err(|error| wrong(file.path(), format!("{group}: {error}; write it again")))? {
        None => Ok(None),
        Some(group) => number(file, &group, name),
    }
}

fn number(file: &Opened, at: &Location, name: &str) -> Result<Option<f64>, IoError> {
    let found = numbers(at, name).and_then(single);
    found.map_err(|error| wrong(file.path(), format!("{name} {error}; write it again")))
}
