//! Attributes of groups and datasets: written with the types that readers expect, read from any
//! numeric type.

use hdf5_metno::types::FixedAscii;
use hdf5_metno::{Attribute, H5Type, Location, Result};

use super::units::{MPC, SUN, UnitSystem};
use super::{KM_S, Quantity, SnapshotInfo, queries};
use crate::io::Dtype;

/// Largest number of values of a numeric attribute: there are at most 16 particle types, with a few
/// numbers each.
const MAX_VALUES: usize = 64;

/// The length of text attributes in bytes.
const TEXT_BYTES: usize = 160;

/// Writes a scalar attribute.
pub(super) fn scalar<T: H5Type>(at: &Location, name: &str, value: T) -> Result<()> {
    at.new_attr::<T>().create(name)?.write_scalar(&value)
}

/// Writes a one-dimensional attribute, even of one value.
pub(super) fn list<T: H5Type>(at: &Location, name: &str, values: &[T]) -> Result<()> {
    at.new_attr::<T>().shape(values.len()).create(name)?.write_raw(values)
}

/// Writes ASCII text of fixed length, which readers of Gadget-4's and of SWIFT's files decode.
pub(super) fn text(at: &Location, name: &str, value: &str) -> Result<()> {
    let value = FixedAscii::<TEXT_BYTES>::from_ascii(value.as_bytes()).map_err(|e| e.to_string())?;
    scalar(at, name, value)
}

/// Returns all values of a numeric attribute as f64; `None` if it does not exist.
pub(super) fn numbers(at: &Location, name: &str) -> Result<Option<Vec<f64>>> {
    let Some((attribute, _)) = find(at, name)? else { return Ok(None) };
    let values = attribute.read_raw::<f64>()?;
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(Some(values)),
        Some(value) => Err(format!("is {value}; it must be finite").into()),
    }
}

/// Same as [`numbers`], none of which may be negative.
pub(super) fn magnitudes(at: &Location, name: &str) -> Result<Option<Vec<f64>>> {
    let values = numbers(at, name)?;
    match values.iter().flatten().find(|value| **value < 0.0) {
        None => Ok(values),
        Some(value) => Err(format!("is {value}; it must be a number from 0 on").into()),
    }
}

/// Returns all values of an attribute of counts; `None` if it does not exist.
pub(super) fn counts(at: &Location, name: &str) -> Result<Option<Vec<u64>>> {
    let Some((attribute, dtype)) = find(at, name)? else { return Ok(None) };
    let wrong = |value: &dyn std::fmt::Display| format!("is {value}; it must be a whole number from 0 on").into();
    // Some scripts write counts as floats. Negative numbers are read as signed, since HDF5 converts
    // them to unsigned 0.
    if !dtype.is_integer() {
        let values = attribute.read_raw::<f64>()?;
        let whole = |value: &f64| (0.0..2f64.powi(53)).contains(value) && value.fract() == 0.0;
        return match values.iter().find(|value| !whole(value)) {
            None => Ok(Some(values.into_iter().map(|value| value as u64).collect())),
            Some(value) => Err(wrong(value)),
        };
    }
    if matches!(dtype, Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64) {
        return attribute.read_raw::<u64>().map(Some);
    }
    let values = attribute.read_raw::<i64>()?;
    match values.iter().find(|value| **value < 0) {
        None => Ok(Some(values.into_iter().map(|value| value as u64).collect())),
        Some(value) => Err(wrong(value)),
    }
}

/// Returns the number of an attribute of `place`, which errors name; `None` if it is missing.
pub(super) fn number(at: &Location, place: &str, name: &str) -> std::result::Result<Option<f64>, String> {
    numbers(at, name).and_then(single).map_err(|error| format!("{place}/{name} {error}; write it again"))
}

/// Returns the value of an attribute that must have exactly one.
pub(super) fn single<T: Copy>(values: Option<Vec<T>>) -> Result<Option<T>> {
    match values.as_deref() {
        None => Ok(None),
        Some([value]) => Ok(Some(*value)),
        Some(values) => Err(format!("has {} values, of which there must be one", values.len()).into()),
    }
}

/// Returns a numeric attribute with its type; checks its number of values before they are read.
fn find(at: &Location, name: &str) -> Result<Option<(Attribute, Dtype)>> {
    if !queries::has_attribute(at, name)? {
        return Ok(None);
    }
    let attribute = at.attr(name)?;
    let dtype = queries::element_type(&attribute)?.map_err(|words| format!("is {words}, where numbers are needed"))?;
    let space = attribute.space()?;
    let values = space.shape().into_iter().try_fold(1usize, usize::checked_mul);
    match values.filter(|&values| values <= MAX_VALUES) {
        None => Err(format!("has the shape {:?}; {MAX_VALUES} values are the most there can be", space.shape()).into()),
        Some(_) if space.size() == 0 => Err("has no value".into()),
        Some(_) => Ok(Some((attribute, dtype))),
    }
}

/// Writes the attributes that give the unit and scaling of a dataset, for readers of Gadget-4's and
/// of SWIFT's files.
pub(super) fn describe(at: &Location, quantity: &Quantity, info: &SnapshotInfo) -> Result<()> {
    scalar(at, "a_scaling", quantity.a_scaling)?;
    scalar(at, "h_scaling", quantity.h_scaling())?;
    scalar(at, "length_scaling", f64::from(quantity.length))?;
    scalar(at, "mass_scaling", f64::from(quantity.mass))?;
    scalar(at, "velocity_scaling", f64::from(quantity.velocity))?;
    scalar(at, "to_cgs", quantity.to_cgs())?;

    let comoving = UnitSystem::new(info).to_cgs(quantity);
    let time = -quantity.velocity;
    let length = quantity.length + quantity.velocity;
    for (name, power) in [("I", 0), ("L", length), ("M", quantity.mass), ("T", 0), ("t", time)] {
        list(at, &format!("U_{name} exponent"), &[power as f32])?;
    }
    list(at, "a-scale exponent", &[quantity.a_scaling as f32])?;
    list(at, "h-scale exponent", &[0f32])?;
    list(at, "Conversion factor to CGS (not including cosmological corrections)", &[comoving])?;
    let physical = comoving * info.scale_factor.powf(quantity.a_scaling);
    list(at, "Conversion factor to physical CGS (including cosmological corrections)", &[physical])?;
    list(at, "Value stored as physical", &[i32::from(quantity.a_scaling == 0.0)])?;
    list(at, "Property can be converted to comoving", &[1i32])?;
    text(at, "Description", quantity.description)
}

/// Writes the attributes of SWIFT's groups `Units` and `InternalCodeUnits`.
pub(super) fn units(at: &Location, info: &SnapshotInfo) -> Result<()> {
    let system = UnitSystem::new(info);
    list(at, "Unit length in cgs (U_L)", &[system.length])?;
    list(at, "Unit mass in cgs (U_M)", &[system.mass])?;
    list(at, "Unit time in cgs (U_t)", &[system.time])?;
    list(at, "Unit current in cgs (U_I)", &[1f64])?;
    list(at, "Unit temperature in cgs (U_T)", &[1f64])
}

/// Writes the attributes of SWIFT's group `Cosmology`.
pub(super) fn cosmology(at: &Location, info: &SnapshotInfo) -> Result<()> {
    list(at, "Cosmological run", &[1i32])?;
    let [w0, wa] = info.dark_energy;
    let h0 = info.h * 100.0 * KM_S / MPC * UnitSystem::new(info).time;
    for (name, value) in [
        ("Scale-factor", info.scale_factor),
        ("Redshift", info.redshift()),
        ("h", info.h),
        ("H0 [internal units]", h0),
        ("H [internal units]", h0 * info.expansion_rate()),
        ("Omega_m", info.omega_m),
        ("Omega_b", info.omega_b),
        ("Omega_cdm", info.omega_m - info.omega_b),
        ("Omega_lambda", info.omega_de()),
        ("Omega_k", 0.0),
        ("Omega_r", info.omega_r),
        ("Omega_nu_0", 0.0),
        ("w", w0 + wa * (1.0 - info.scale_factor)),
        ("w_0", w0),
        ("w_a", wa),
    ] {
        list(at, name, &[value])?;
    }
    Ok(())
}

/// Writes the attributes of Gadget-4's group `Parameters`.
pub(super) fn parameters(at: &Location, info: &SnapshotInfo) -> Result<()> {
    scalar(at, "ComovingIntegrationOn", 1i32)?;
    scalar(at, "BoxSize", info.box_size)?;
    densities(at, info)?;
    scalar(at, "Hubble", 100f64)?;
    scalar(at, "UnitLength_in_cm", MPC)?;
    scalar(at, "UnitMass_in_g", 1e10 * SUN)?;
    scalar(at, "UnitVelocity_in_cm_per_s", KM_S)
}

/// Writes the cosmological parameters under Gadget's names.
pub(super) fn densities(at: &Location, info: &SnapshotInfo) -> Result<()> {
    scalar(at, "Omega0", info.omega_m)?;
    scalar(at, "OmegaLambda", info.omega_de())?;
    scalar(at, "OmegaBaryon", info.omega_b)?;
    scalar(at, "HubbleParam", info.h)
}
