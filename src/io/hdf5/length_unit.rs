//! The unit of lengths in a file, as its attributes say it.

use hdf5_metno::{Dataset, Location};

use super::attributes::{numbers, single};
use super::part_file::{Opened, wrong};
use super::queries;
use crate::io::IoError;

/// Returns the centimeters of a comoving length of 1, h included: as the dataset says in the convention of SWIFT, Gadget-4 or
/// EAGLE, else as the file says in that of Gadget-4, AREPO or GIZMO.
///
/// `None` where nothing says it; some codes write 0 where they know no unit.
pub(super) fn read(file: &Opened, dataset: Option<&Dataset>) -> Result<Option<f64>, IoError> {
    Ok(said(file, dataset)?.filter(|unit| unit.is_normal() && *unit > 0.0))
}

fn said(file: &Opened, dataset: Option<&Dataset>) -> Result<Option<f64>, IoError> {
    let of_dataset = |name: &str| dataset.map_or(Ok(None), |dataset| number(file, dataset, name));
    let positive = |unit: Option<f64>| unit.filter(|unit| *unit > 0.0);
    if let Some(unit) = positive(of_dataset("Conversion factor to CGS (not including cosmological corrections)")?) {
        return Ok(Some(unit));
    }
    let h = hubble(file)?;
    for (unit, power) in [("to_cgs", "h_scaling"), ("CGSConversionFactor", "h-scale-exponent")] {
        if let Some(unit) = positive(of_dataset(unit)?) {
            let power = of_dataset(power)?.unwrap_or(0.0);
            return Ok(if power == 0.0 { Some(unit) } else { h.map(|h| unit * h.powf(power)) });
        }
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
    for (group, name) in [("Cosmology", "h"), ("Parameters", "HubbleParam"), ("Header", "HubbleParam")] {
        if let Some(h) = of_group(file, group, name)?.filter(|h| *h > 0.0) {
            return Ok(Some(h));
        }
    }
    Ok(None)
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
