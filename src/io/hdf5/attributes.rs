//! Attributes of groups and datasets: writing them with their types, reading them whatever their types.

use hdf5_metno::types::FixedAscii;
use hdf5_metno::{H5Type, Location, Result};

use super::SnapshotInfo;
use super::units::{KM_S, MPC, Quantity, SUN, System};

/// Text of this length at most.
const TEXT: usize = 160;

/// A single value.
pub(super) fn scalar<T: H5Type>(at: &Location, name: &str, value: T) -> Result<()> {
    at.new_attr::<T>().create(name)?.write_scalar(&value)
}

/// A list, also of one value.
pub(super) fn list<T: H5Type>(at: &Location, name: &str, values: &[T]) -> Result<()> {
    at.new_attr::<T>().shape(values.len()).create(name)?.write_raw(values)
}

/// ASCII text of fixed length, which readers of both families decode.
pub(super) fn text(at: &Location, name: &str, value: &str) -> Result<()> {
    let value = FixedAscii::<TEXT>::from_ascii(value.as_bytes()).map_err(|e| e.to_string())?;
    scalar(at, name, value)
}

/// All values of a numeric attribute as f64; `None` where there is no such attribute.
pub(super) fn numbers(at: &Location, name: &str) -> Result<Option<Vec<f64>>> {
    if has(at, name)? { at.attr(name)?.read_raw::<f64>().map(Some) } else { Ok(None) }
}

/// All values of an attribute of counts; `None` where there is no such attribute.
pub(super) fn counts(at: &Location, name: &str) -> Result<Option<Vec<u64>>> {
    if has(at, name)? { at.attr(name)?.read_raw::<u64>().map(Some) } else { Ok(None) }
}

fn has(at: &Location, name: &str) -> Result<bool> {
    Ok(at.attr_names()?.iter().any(|found| found == name))
}

/// What the numbers of a dataset mean, for readers of Gadget-4's and of SWIFT's files.
pub(super) fn describe(at: &Location, quantity: &Quantity, info: &SnapshotInfo) -> Result<()> {
    scalar(at, "a_scaling", quantity.a_scaling)?;
    scalar(at, "h_scaling", quantity.h_scaling())?;
    scalar(at, "length_scaling", f64::from(quantity.length))?;
    scalar(at, "mass_scaling", f64::from(quantity.mass))?;
    scalar(at, "velocity_scaling", f64::from(quantity.velocity))?;
    scalar(at, "to_cgs", quantity.to_cgs())?;

    let comoving = System::new(info).to_cgs(quantity);
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

/// The group `Units` (and its copy) as SWIFT has it.
pub(super) fn units(at: &Location, info: &SnapshotInfo) -> Result<()> {
    let system = System::new(info);
    list(at, "Unit length in cgs (U_L)", &[system.length])?;
    list(at, "Unit mass in cgs (U_M)", &[system.mass])?;
    list(at, "Unit time in cgs (U_t)", &[system.time])?;
    list(at, "Unit current in cgs (U_I)", &[1f64])?;
    list(at, "Unit temperature in cgs (U_T)", &[1f64])
}

/// The group `Cosmology` as SWIFT has it.
pub(super) fn cosmology(at: &Location, info: &SnapshotInfo) -> Result<()> {
    list(at, "Cosmological run", &[1i32])?;
    let h0 = info.h * 100.0 * KM_S / MPC * System::new(info).time;
    for (name, value) in [
        ("Scale-factor", info.scale_factor),
        ("Redshift", info.redshift()),
        ("h", info.h),
        ("H0 [internal units]", h0),
        ("H [internal units]", h0 * info.expansion_rate()),
        ("Omega_m", info.omega_m),
        ("Omega_b", info.omega_b),
        ("Omega_cdm", info.omega_m - info.omega_b),
        ("Omega_lambda", 1.0 - info.omega_m),
        ("Omega_k", 0.0),
        ("Omega_r", 0.0),
        ("Omega_nu_0", 0.0),
        ("w", -1.0),
        ("w_0", -1.0),
        ("w_a", 0.0),
    ] {
        list(at, name, &[value])?;
    }
    Ok(())
}

/// The group `Parameters` as Gadget-4 has it.
pub(super) fn parameters(at: &Location, info: &SnapshotInfo) -> Result<()> {
    scalar(at, "ComovingIntegrationOn", 1i32)?;
    scalar(at, "BoxSize", info.box_size)?;
    densities(at, info)?;
    scalar(at, "Hubble", 100f64)?;
    scalar(at, "UnitLength_in_cm", MPC)?;
    scalar(at, "UnitMass_in_g", 1e10 * SUN)?;
    scalar(at, "UnitVelocity_in_cm_per_s", KM_S)
}

/// The cosmological parameters by Gadget's names.
pub(super) fn densities(at: &Location, info: &SnapshotInfo) -> Result<()> {
    scalar(at, "Omega0", info.omega_m)?;
    scalar(at, "OmegaLambda", 1.0 - info.omega_m)?;
    scalar(at, "OmegaBaryon", info.omega_b)?;
    scalar(at, "HubbleParam", info.h)
}
