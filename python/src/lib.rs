//! `meshloom._native`: what the Python files of the package call. Arguments are checked there; here
//! work is handed to the device and results to NumPy.

mod chatter;
mod comm;
mod correlated_field;
mod cosmology;
mod custom;
mod device_array;
mod devices;
mod failure;
mod fields;
mod groups;
mod handle;
mod host_array;
mod inference;
mod jacobian;
mod likelihood;
mod messages;
mod models;
#[cfg(feature = "mpi")]
mod mpi_comm;
mod operators;
mod points;
mod power;
mod sampler;
mod search;
mod session;
mod simulation;
mod sort;
mod transform;

use pyo3::prelude::*;

/// Functions and classes for the Python files of the package.
#[pymodule]
mod _native {
    use super::*;

    /// Before any device is looked for.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::messages::collect();
        crate::chatter::silence(module.py())
    }

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const version: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::comm::{Comm, alone, close, launched_ranks, run_ranks};
    #[pymodule_export]
    use crate::correlated_field::{NativeCorrelatedField, correlated_field};
    #[pymodule_export]
    use crate::cosmology::{
        comoving_distance, growth, growth_rate, halo_mass_function, linear_power, nonlinear_power, particle_mass,
        sigma, usual_cosmology,
    };
    #[pymodule_export]
    use crate::custom::{custom, host_map, matrix};
    #[pymodule_export]
    use crate::device_array::{DeviceArray, elementwise, result_type, undefined};
    #[pymodule_export]
    use crate::devices::{devices, unused_hardware};
    #[pymodule_export]
    use crate::failure::{Error, NotFinite};
    #[pymodule_export]
    use crate::fields::{NativePoints, leaf_box, leaf_shape};
    #[pymodule_export]
    use crate::groups::fof;
    #[pymodule_export]
    use crate::inference::{NativeFit, NativeOptions, NativeSamples};
    #[pymodule_export]
    use crate::likelihood::{NativeLikelihood, prior, prior_inverse};
    #[pymodule_export]
    use crate::models::{
        amplitudes, block, constant, convolution, diagonal, fourier, gather, interpolation, inverse_fourier, join,
        light_cone, linear_density, lines_of_sight, paint, pointwise, readout, redshift_space, repeat, select,
        simulation, stencil, white_noise,
    };
    #[cfg(feature = "mpi")]
    #[pymodule_export]
    use crate::mpi_comm::{from_mpi, mpi_library};
    #[pymodule_export]
    use crate::operators::{NativeLinearization, NativeModel};
    #[pymodule_export]
    use crate::power::{power_of_field, power_of_points};
    #[pymodule_export]
    use crate::sampler::{NativeSampler, diagnostics};
    #[pymodule_export]
    use crate::search::Search;
    #[pymodule_export]
    use crate::session::take_warnings;
    #[pymodule_export]
    use crate::simulation::{noise_of_seed, run_warnings, simulate};
    #[pymodule_export]
    use crate::sort::sort;
    #[pymodule_export]
    use crate::transform::{transform, transform_on_device};
}
