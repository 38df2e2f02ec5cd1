//! Cosmologies, linear power and mass functions.

use meshloom::cosmology::{
    Amplitude, Cosmology, CosmologyError, Growth, Halofit, LinearPower, Multiplicity, Parameters, TransferKind,
};
use meshloom::host_memory;
use meshloom::pm::Config;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::host_array::to_numpy;

/// Matter and baryons over the critical density, Hubble constant, spectral index, amplitude,
/// whether that is sigma8, temperature, dark energy's w0 and wa, relativistic neutrinos.
pub type CosmologyTuple = (f64, f64, f64, f64, f64, bool, f64, f64, f64, Option<f64>);

/// Returns the cosmology of these parameters.
pub fn cosmology(parameters: CosmologyTuple) -> PyResult<Cosmology> {
    let (omega_m, omega_b, h, n_s, amplitude, is_sigma8, t_cmb, w0, wa, radiation) = parameters;
    let amplitude = if is_sigma8 { Amplitude::Sigma8(amplitude) } else { Amplitude::Primordial(amplitude) };
    let parameters = Parameters { amplitude, n_s, omega_m, omega_b, h, t_cmb, w0, wa, radiation };
    Ok(Cosmology::new(parameters).map_err(Failure::from)?)
}

/// Returns the default cosmology of a run, equal to the program's.
#[pyfunction]
pub fn usual_cosmology() -> CosmologyTuple {
    let Parameters { amplitude, n_s, omega_m, omega_b, h, t_cmb, w0, wa, radiation } =
        Config::default().cosmology.parameters();
    let (amplitude, is_sigma8) = match amplitude {
        Amplitude::Primordial(a_s) => (a_s, false),
        Amplitude::Sigma8(sigma8) => (sigma8, true),
    };
    (omega_m, omega_b, h, n_s, amplitude, is_sigma8, t_cmb, w0, wa, radiation)
}

fn linear(parameters: CosmologyTuple) -> PyResult<LinearPower> {
    Ok(LinearPower::new(cosmology(parameters)?, TransferKind::Full).map_err(Failure::from)?)
}

/// Returns a function of each of these numbers.
fn each<'py>(
    numbers: PyReadonlyArray1<'py, f64>,
    function: impl Fn(f64) -> Result<f64, CosmologyError>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let numbers_of = numbers.as_array();
    let mut values = host_memory::reserve("numbers", numbers_of.len()).map_err(Failure::from)?;
    for &number in numbers_of {
        values.push(function(number).map_err(Failure::from)?);
    }
    Ok(to_numpy(numbers.py(), values))
}

/// Returns the linear growth factor at scale factors, which is a in the matter era.
#[pyfunction]
pub fn growth<'py>(a: PyReadonlyArray1<'py, f64>, parameters: CosmologyTuple) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let growth = Growth::new(cosmology(parameters)?);
    each(a, |a| Ok(growth.at(a)?.d1))
}

/// Returns its logarithmic derivative, dlnD/dlna.
#[pyfunction]
pub fn growth_rate<'py>(
    a: PyReadonlyArray1<'py, f64>,
    parameters: CosmologyTuple,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let growth = Growth::new(cosmology(parameters)?);
    each(a, |a| Ok(growth.at(a)?.f1()))
}

/// Returns the comoving distance in Mpc/h from which light of scale factors arrives today.
#[pyfunction]
pub fn comoving_distance<'py>(
    a: PyReadonlyArray1<'py, f64>,
    parameters: CosmologyTuple,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let cosmology = cosmology(parameters)?;
    each(a, |a| cosmology.comoving_distance(a))
}

/// Returns the linear rms contrast in spheres of radii in Mpc/h.
#[pyfunction]
pub fn sigma<'py>(
    radius: PyReadonlyArray1<'py, f64>,
    a: f64,
    parameters: CosmologyTuple,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let power = linear(parameters)?;
    each(radius, |radius| power.sigma(radius, a))
}

/// Returns the linear power spectrum at wavenumbers in h/Mpc, in (Mpc/h)^3.
#[pyfunction]
pub fn linear_power<'py>(
    k: PyReadonlyArray1<'py, f64>,
    a: f64,
    parameters: CosmologyTuple,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let power = linear(parameters)?;
    each(k, |k| power.at(k, a))
}

/// Returns the nonlinear power spectrum by halofit, likewise.
#[pyfunction]
pub fn nonlinear_power<'py>(
    k: PyReadonlyArray1<'py, f64>,
    a: f64,
    parameters: CosmologyTuple,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let power = linear(parameters)?;
    let halofit = Halofit::new(&power, a).map_err(Failure::from)?;
    each(k, |k| Ok(halofit.at(k)))
}

/// dn/dlnM of a model at masses in Msun/h, in (h/Mpc)^3.
#[pyfunction]
pub fn halo_mass_function<'py>(
    mass: PyReadonlyArray1<'py, f64>,
    a: f64,
    model: &str,
    overdensity: f64,
    parameters: CosmologyTuple,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let model = match model {
        "press-schechter" => Multiplicity::PressSchechter,
        "sheth-tormen" => Multiplicity::ShethTormen,
        "watson" => Multiplicity::Watson,
        "tinker" => Multiplicity::Tinker { overdensity },
        _ => {
            let known = "\"press-schechter\", \"sheth-tormen\", \"watson\" or \"tinker\"";
            return Err(PyValueError::new_err(format!("model: expected {known}, got {model:?}")));
        }
    };
    let power = linear(parameters)?;
    each(mass, |mass| model.dn_dlnm(&power.mass_variance(mass, a)?))
}

/// Returns the mass in Msun/h of each of `count` particles in a box of this side in Mpc/h.
#[pyfunction]
pub fn particle_mass(side: f64, count: u64, parameters: CosmologyTuple) -> PyResult<f64> {
    Ok(cosmology(parameters)?.particle_mass(side, count))
}
