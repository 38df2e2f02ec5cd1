//! The functions on modes of the filter that makes a force.

use super::{Config, Result};
use crate::fft::{Operator, OperatorTables, Spectral, VectorCallbacks, VectorForm, Wave};
use crate::gpu::{Callback, Recorder};
use crate::grid::Box3;

crate::gpu::kernel_params! {
    struct SpreadParams {
        /// The first slope along z.
        slopes_start: [u32; 4],
    }
}

/// Returns the kernel of the force along `axis` on the density contrast, times `sign`, for the
/// modes of `part`; with the sign -1 its conjugate.
pub(super) fn kernel(config: &Config, axis: usize, sign: f64, part: &Box3) -> OperatorTables {
    // F = -grad phi and phi = -1.5 Omega_m delta / k^2: F(k) = i k 1.5 Omega_m delta / k^2.
    potential(config, [0.0, sign], &|a, wave| if a == axis { slope(config, wave) } else { 1.0 }, part)
}

/// Returns the kernel of minus the potential times `constant` and a factor of each axis.
fn potential(config: &Config, constant: [f64; 2], factor: &dyn Fn(usize, Wave) -> f64, part: &Box3) -> OperatorTables {
    let laplacian = config.laplacian;
    let operator = Operator {
        constant: constant.map(|part| part * 1.5 * config.cosmology.omega_m()),
        factor,
        laplacian: Some(&|_, wave| laplacian.at(wave.w) / (wave.spacing * wave.spacing)),
    };
    operator.tables(config.cells(), config.size(), part)
}

/// Returns the derivative of a mode along its axis, without the imaginary unit.
fn slope(config: &Config, wave: Wave) -> f64 {
    config.gradient.at(wave.w, wave.nyquist) / wave.spacing
}

/// Returns the functions on modes for a filter of this form, whose fused pass has the modes of
/// `part`.
pub(super) fn callbacks(
    config: &Config,
    recorder: &mut Recorder,
    form: VectorForm,
    part: &Box3,
) -> Result<VectorCallbacks> {
    if form == VectorForm::Apart {
        let gradients = [0, 1, 2].map(|axis| kernel(config, axis, 1.0, part));
        let filter = Spectral::new(recorder, &gradients, part)?.trusted_callback();
        return Ok(VectorCallbacks { filter, spread: None });
    }
    let first = potential(config, [1.0, 0.0], &|a, wave| if a == 0 { slope(config, wave) } else { 1.0 }, part);
    let second = potential(config, [1.0, 0.0], &|_, _| 1.0, part);
    let filter = Spectral::new(recorder, &[first, second], part)?.trusted_callback();
    let (cells, size) = (config.cells(), config.size());
    let slopes = [1, 2].map(|axis| {
        let waves = (0..cells[axis]).map(move |index| Wave::new(index, cells[axis], size[axis]));
        waves.map(|wave| slope(config, wave) as f32).collect::<Vec<f32>>()
    });
    let array = recorder.gpu().array("pm::slopes", cells[1] + cells[2])?;
    recorder.upload(&array, 0, &slopes.concat())?;
    let params = SpreadParams { slopes_start: [cells[1] as u32, 0, 0, 0] };
    let text = include_str!("../../shaders/pm/force_spread.wgsl");
    Ok(VectorCallbacks { filter, spread: Some(Callback::trusted(text).read("slopes", &array).params(&params)) })
}
