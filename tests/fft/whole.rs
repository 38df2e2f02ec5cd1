//! Transforms of all axes in one workgroup: one dispatch, and the bits of passes.

use super::fourier::*;
use meshloom::fft::{Norm, Spec, TransformCallbacks, TransformTuning};
use meshloom::gpu::{Callback, Options, Profile, Recorder};

/// Returns a setup of kernels for GPUs.
fn gpu_setup() -> Setup {
    Setup { tuning: Some(TransformTuning::profile(Profile::Gpu)), ..Setup::default() }
}

/// Returns a setup whose arrays of `bytes` bytes or more have several windows, which one workgroup
/// does not take.
fn windows(setup: &Setup, bytes: u64) -> Setup {
    let window_bytes = Some((bytes.next_power_of_two() / 2).max(256));
    Setup { options: Options { window_bytes, ..setup.options.clone() }, ..setup.clone() }
}

/// Returns the dispatches of a forward and an inverse transform.
fn dispatches<T: Cell>(setup: &Setup, spec: &Spec) -> [u64; 2] {
    let found = on_ranks::<T, _>(setup, spec, |rank| {
        let (field, spectrum) = (rank.field(&random::<T>(cells(spec), 1)), rank.spectrum(&random(modes(spec), 2)));
        // Dispatches count when they are submitted.
        let count = |recorder: &mut Recorder| {
            recorder.submit().unwrap();
            recorder.counts().dispatches
        };
        let first = count(&mut rank.recorder);
        rank.forward(&field, &spectrum);
        let second = count(&mut rank.recorder);
        rank.inverse(&spectrum, &field);
        [second - first, count(&mut rank.recorder) - second]
    });
    found[0]
}

/// A transform takes one dispatch, agrees with rustfft, and has the bits of its passes: those of
/// arrays in several windows, and those of several ranks.
fn agrees<T: Cell>(setup: &Setup, spec: &Spec) {
    let spec = of::<T>(spec);
    let (field, spectrum) = (random::<T>(cells(&spec), 1), random::<T::Mode>(modes(&spec), 2));
    assert_eq!(dispatches::<T>(setup, &spec), [1, 1], "{spec:?}");
    let (there, back) = if setup.callbacks.load.is_none() {
        check::<T>(setup, &spec, "one workgroup")
    } else {
        (forward(setup, &spec, &field), inverse::<T>(setup, &spec, &spectrum))
    };
    let smaller = std::mem::size_of_val(&field[..]).min(std::mem::size_of_val(&spectrum[..]));
    let by_passes = windows(setup, smaller as u64);
    assert!(dispatches::<T>(&by_passes, &spec).into_iter().all(|count| count > 1), "{spec:?}: passes");
    let several = [[2, 1], [1, 3]].map(|parts| Setup { parts, halo: [[1, 0], [0, 2], [1, 1]], ..setup.clone() });
    for other in [by_passes].iter().chain(&several) {
        let what = format!("{spec:?} on {:?}", other.parts);
        same(&forward(other, &spec, &field), &there, &format!("{what}: spectrum"));
        same(&inverse::<T>(other, &spec, &spectrum), &back, &format!("{what}: field"));
    }
}

#[test]
fn complex_fields_in_one_workgroup() {
    let (setup, spec) = (gpu_setup(), Spec::of::<[f32; 2]>);
    for spec in [
        spec([1, 40, 48]),
        // Odd and mixed lengths along three axes, in a batch.
        spec([12, 10, 9]).fields(2).norm(Norm::Ortho),
        // Convolutions along the last axis, and along the one before it.
        spec([1, 6, 37]),
        spec([1, 41, 18]),
        // An axis that is not transformed, in each place.
        spec([3, 20, 18]).axes([false, true, true]).fields(2),
        spec([20, 3, 18]).axes([true, false, true]),
        spec([20, 18, 3]).axes([true, true, false]),
        // Zeros behind the cells, and fewer modes.
        spec([5, 6, 7]).points([10, 12, 14]).modes([6, 12, 9]),
    ] {
        agrees::<[f32; 2]>(&setup, &spec);
    }
}

#[test]
fn real_fields_in_one_workgroup() {
    let (setup, spec) = (gpu_setup(), Spec::of::<f32>);
    for spec in [
        spec([1, 40, 64]),
        spec([9, 10, 11]).fields(3),
        // A line by itself, whose convolution needs cells of its own.
        spec([1, 19, 41]),
        spec([6, 5, 14]).points([12, 10, 24]).modes([6, 10, 12]).norm(Norm::Forward),
    ] {
        agrees::<f32>(&setup, &spec);
    }
    if setup.gpu().capabilities().f64 {
        agrees::<f64>(&setup, &Spec::of::<f64>([3, 20, 10]));
    }
}

#[test]
fn callbacks_in_one_workgroup() {
    let on = |function: &str, value: &str| {
        Callback::new(format!(
            "fn {function}(value: {value}, at: vec4<u32>) -> {value} {{
                return value * (Real(1u + at.x + 2u * at.y) + 0.3 * Real(at.z + 5u * at.w));
            }}"
        ))
    };
    let on_mode = |by: &str| {
        Callback::new(format!(
            "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {{
                return multiply(value, Complex(Real(at.x + at.w), {by} * Real(at.y + 3u * at.z)));
            }}"
        ))
    };
    let callbacks = TransformCallbacks {
        load: Some(on("on_load", "Real")),
        forward: Some(on_mode("0.7")),
        inverse: Some(on_mode("-0.2")),
        store: Some(on("on_store", "Real")),
    };
    let setup = Setup { callbacks, halo: [[1, 2], [0, 1], [2, 1]], ..gpu_setup() };
    agrees::<f32>(&setup, &Spec::of::<f32>([6, 10, 18]).fields(2));
    agrees::<f32>(&setup, &Spec::of::<f32>([3, 10, 18]).axes([false, true, true]).fields(2));
}

#[test]
fn arrays_beyond_a_workgroup_take_passes() {
    let setup = gpu_setup();
    let count = |spec: &Spec| dispatches::<[f32; 2]>(&setup, spec);
    assert_eq!(count(&Spec::of::<[f32; 2]>([1, 96, 96])), [2, 2]);
    assert_eq!(count(&Spec::of::<[f32; 2]>([20, 20, 20])), [3, 3]);
    // Software renderers run a workgroup on one core.
    let tuning = Some(TransformTuning::profile(Profile::Software));
    let software = Setup { tuning, ..Setup::default() };
    assert_eq!(dispatches::<[f32; 2]>(&software, &Spec::of::<[f32; 2]>([1, 12, 12])), [2, 2]);
}
