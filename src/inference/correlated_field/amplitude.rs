//! The amplitude of a field by wavenumber, as a function of hyper-parameters, and its prior.
//!
//! A kernel makes a few passes over the wavenumbers, and each needs sums of the pass before. One
//! workgroup makes all passes of few wavenumbers in one dispatch. Several workgroups share many
//! wavenumbers, with a dispatch for each pass. Every rank computes the same.

use super::packing::Packing;
use crate::exchange::FIXED;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Profile, RawArray, Recorder};
use crate::inference::error::{InferenceError, Result};
use crate::operators::{OperatorError, Vector};

/// The prior of a correlated field: its mean, and its variation along axes.
///
/// Hyper-parameters are given by their mean and standard deviation; one with deviation 0 is fixed
/// and has no latent value. The power spectrum is the product over the groups of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldPrior {
    /// Branch of the latent values: `sky` gives `sky/xi`; may be empty.
    pub name: String,
    /// Mean of the field.
    pub offset_mean: f64,
    /// Standard deviation of the mean of the field, a log-normal number.
    pub offset_std: [f64; 2],
    /// Variation along each group of axes.
    pub axes: Vec<AxesPrior>,
}

/// The variation of a field along a group of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct AxesPrior {
    /// Branch of the latent values; may be empty for one group.
    pub name: String,
    /// Which axes of the grid form the group. An axis of one cell may be in any group.
    pub axes: [bool; 3],
    /// Amplitude by wavenumber.
    pub amplitude: AmplitudePrior,
}

/// The quantity that an integrated Wiener process describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorSpectrum {
    /// The logarithm of the power: slopes belong to the power spectrum.
    Power,
    /// The logarithm of the amplitude, the square root of the power.
    Amplitude,
}

/// The scale of a Matérn amplitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaternScale {
    /// `scale` is the standard deviation of the field.
    Deviation,
    /// `scale` is the amplitude at wavenumber 0, in units of the square root of the volume.
    Density,
}

/// The amplitude of a field by wavenumber.
#[derive(Clone, Debug, PartialEq)]
pub enum AmplitudePrior {
    /// A power law, with deviations that follow an integrated Wiener process in the logarithm of
    /// the wavenumber.
    NonParametric {
        /// The quantity that follows the power law.
        of: PriorSpectrum,
        /// Standard deviation of the field, log-normal.
        fluctuations: [f64; 2],
        /// Slope of the power law, normal.
        slope: [f64; 2],
        /// Size of the deviations per square root of the logarithm, log-normal; `None` for a power
        /// law.
        flexibility: Option<[f64; 2]>,
        /// Roughness of the deviations, log-normal; `None` for smooth ones.
        asperity: Option<[f64; 2]>,
    },
    /// `scale (1 + (k / cutoff_wavenumber)^2)^(slope / 4)`: the square root of a Matérn power
    /// spectrum.
    Matern {
        /// The meaning of `scale`.
        of: MaternScale,
        /// The scale, log-normal.
        scale: [f64; 2],
        /// Wavenumber (2 pi over a length) at which the spectrum bends, log-normal; the latent
        /// value is `cutoff`.
        cutoff_wavenumber: [f64; 2],
        /// Slope of the power spectrum at large wavenumbers, normal.
        slope: [f64; 2],
    },
}

impl AmplitudePrior {
    /// Returns the hyper-parameters in the order of their names, and whether each is log-normal.
    /// `steps` tells whether the grid has enough wavenumbers for deviations from a power law.
    pub(super) fn hyper(&self, steps: bool) -> Vec<(&'static str, [f64; 2], bool)> {
        match self {
            AmplitudePrior::NonParametric { fluctuations, slope, flexibility, asperity, .. } => {
                let deviates = flexibility.filter(|_| steps);
                let mut all = Vec::new();
                all.extend(asperity.filter(|_| deviates.is_some()).map(|value| ("asperity", value, true)));
                all.extend(deviates.map(|value| ("flexibility", value, true)));
                all.extend([("fluctuations", *fluctuations, true), ("slope", *slope, false)]);
                all
            }
            AmplitudePrior::Matern { scale, cutoff_wavenumber, slope, .. } => {
                vec![("cutoff", *cutoff_wavenumber, true), ("scale", *scale, true), ("slope", *slope, false)]
            }
        }
    }
}

crate::gpu::kernel_params! {
    /// Parameters of the kernels of amplitudes.
    #[derive(Default)]
    struct AmplitudeParams {
        /// Places of the latent values of flexibility (or cutoff), asperity, slope and
        /// fluctuations.
        places: [u32; 4],
        /// Mean and deviation of the logarithms of flexibility (or cutoff) and asperity.
        shape: [f32; 4],
        slope: [f32; 2],
        /// Mean and deviation of the logarithm of the fluctuations, or the scale.
        fluctuations: [f32; 2],
        /// Mean and deviation of the logarithm of the amplitude of mode 0.
        offset: [f32; 2],
        bins: u32,
        /// Place of the latent value of the amplitude of mode 0.
        zero: u32,
        /// Whether amplitudes are in units of that of mode 0.
        follows: u32,
        half: f32,
        power: f32,
        /// Bits of the terms of the sums that are cotangents of amplitudes.
        bits: u32,
        /// Whether the cotangent of the amplitude of mode 0 is added to.
        adds: u32,
        /// Workgroups that share the tiles of modes, and tiles of each.
        chunks: u32,
        tiles: u32,
        /// The pass of this dispatch, where there are several workgroups.
        phase: u32,
        /// Always 0; a parameter so that it is not folded.
        opaque_zero: u32,
    }
}

/// Modes of a tile, which a workgroup takes at a time: what fits into workgroup memory.
const TILE: usize = 512;

/// Tiles up to which one workgroup takes less time than several dispatches do.
const ALONE: usize = 16;

/// Workgroups that are enough for any device. Each reads the sums of all.
const CHUNKS: usize = 256;

/// Tiles of a workgroup at most, each of which takes some 400 rounds of loops on software
/// renderers: llvmpipe silently ends all loops of an invocation after 65,535.
const MOST_TILES: usize = 64;

/// Numbers that a workgroup writes for the next pass.
const PARTIALS: usize = 8;

/// Returns the workgroups that share the tiles of `bins` modes, and tiles of each.
fn chunks(bins: usize) -> [usize; 2] {
    let tiles = bins.div_ceil(TILE);
    let per = if tiles <= ALONE { tiles.max(1) } else { tiles.div_ceil(CHUNKS).min(MOST_TILES) };
    [tiles.div_ceil(per).max(1), per]
}

/// The parts of the exponent of a kernel, and whether one workgroup takes all modes.
#[derive(Clone, Copy)]
struct Form {
    wiener: bool,
    rough: bool,
    matern: bool,
    alone: bool,
}

/// Forms of kernels for few wavenumbers.
const FORMS: [Form; 4] = [
    Form { wiener: true, rough: true, matern: false, alone: true },
    Form { wiener: true, rough: false, matern: false, alone: true },
    Form { wiener: false, rough: false, matern: false, alone: true },
    Form { wiener: false, rough: false, matern: true, alone: true },
];

const TEXTS: [(&str, &str); 3] = [
    ("inference::amplitude", include_str!("../../../shaders/inference/amplitude.wgsl")),
    ("inference::amplitude_jvp", include_str!("../../../shaders/inference/amplitude_jvp.wgsl")),
    ("inference::amplitude_vjp", include_str!("../../../shaders/inference/amplitude_vjp.wgsl")),
];

/// Returns a kernel for a class of devices. On software renderers workgroups are small: lavapipe
/// runs one of 8 as one subgroup, so that barriers cost nothing. Each invocation then takes places
/// in a row.
fn source((label, text): (&str, &'static str), form: Form, profile: Profile) -> KernelSource {
    let group = if profile == Profile::Software { 8 } else { profile.workgroup_shape().group };
    KernelSource::new(label, text)
        .group(group)
        .params::<AmplitudeParams>()
        .constant("TILE", TILE as u32)
        .constant("PARTIALS", PARTIALS as u32)
        .module("gpu::fixed", FIXED)
        .module("inference::amplitude_common", include_str!("../../../shaders/inference/amplitude_common.wgsl"))
        .flag("wiener", form.wiener)
        .flag("rough", form.rough)
        .flag("matern", form.matern)
        .flag("shaped", form.wiener || form.matern)
        .flag("alone", form.alone)
        .flag("rows", profile == Profile::Software)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    let forms = FORMS.into_iter().flat_map(|form| [true, false].map(|alone| Form { alone, ..form }));
    let forms = forms.flat_map(|form| [Profile::Gpu, Profile::Software].map(|profile| (profile, form)));
    forms.flat_map(|(profile, form)| TEXTS.map(|text| source(text, form, profile))).collect()
}

/// The amplitudes at a point.
pub(super) struct AmplitudeAt {
    /// One for each wavenumber, then the share of each in the variance.
    pub amplitude: Array<f32>,
    /// The excitations of its Wiener process.
    spectrum: Option<Array<f32>>,
}

/// The amplitude of one group of axes.
pub(super) struct Amplitude {
    params: AmplitudeParams,
    /// Abscissae, and the widths between them.
    table: Array<f32>,
    multiplicity: Array<f32>,
    /// The leaf of the excitations of its Wiener process, if it has one.
    pub spectrum: Option<String>,
    /// Kernels of value, tangent and cotangent.
    pub kernels: [Kernel; 3],
}

/// The inputs of an amplitude beside its prior.
pub(super) struct Parts<'a> {
    /// Wavenumbers, from 0 on.
    pub wavenumbers: &'a [f64],
    /// Number of modes of each, on the device.
    pub multiplicity: Array<f32>,
    /// Places of latent values by names of leaves.
    pub packing: &'a Packing,
    /// Prefix of the names of hyper-parameters.
    pub branch: &'a str,
    /// Leaf and prior of the amplitude of mode 0.
    pub zero: (&'a str, [f64; 2]),
    /// Whether this is not the first group of axes.
    pub follows: bool,
    /// Volume of the axes of the group.
    pub volume: f64,
}

impl Amplitude {
    /// Creates the amplitude of `prior`. Submits what was recorded.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] for an invalid hyper-parameter.
    pub fn new(recorder: &mut Recorder, prior: &AmplitudePrior, parts: Parts<'_>) -> Result<Self> {
        let bins = parts.wavenumbers.len();
        let params = params(prior, &parts)?;
        let alone = params.chunks == 1;
        let form = match prior {
            AmplitudePrior::NonParametric { flexibility, asperity, .. } => {
                let wiener = flexibility.is_some() && bins > 2;
                Form { wiener, rough: wiener && asperity.is_some(), matern: false, alone }
            }
            AmplitudePrior::Matern { .. } => Form { wiener: false, rough: false, matern: true, alone },
        };
        let table = table(parts.wavenumbers, form.matern);
        let table = recorder.uploaded("inference::wavenumbers", &table)?;
        let profile = recorder.gpu().capabilities().profile;
        let kernels = TEXTS.map(|text| Kernel::trusted(source(text, form, profile)));
        let spectrum = form.wiener.then(|| format!("{}spectrum", parts.branch));
        Ok(Amplitude { params, table, multiplicity: parts.multiplicity, spectrum, kernels })
    }

    /// Creates an array of `each` numbers for each wavenumber.
    fn array(&self, recorder: &Recorder, each: u64) -> Result<Array<f32>, DeviceError> {
        recorder.gpu().array("inference::amplitude", each * u64::from(self.params.bins))
    }

    /// Returns the passes of value, tangent and cotangent that are dispatches of their own where
    /// several workgroups share the modes.
    fn phases(&self) -> [&'static [u32]; 3] {
        match self.spectrum {
            Some(_) => [&[0, 1, 2], &[0, 1, 2], &[0, 1, 2, 3]],
            None => [&[1, 2], &[1, 2], &[0, 1, 3]],
        }
    }

    /// Returns the dispatches of value, tangent and cotangent.
    pub fn dispatches(&self) -> [u64; 3] {
        self.phases().map(|phases| if self.params.chunks > 1 { phases.len() as u64 } else { 1 })
    }

    /// Records the passes of value (0), tangent (1) or cotangent (2).
    fn record(
        &self,
        recorder: &mut Recorder,
        which: usize,
        arrays: &[&RawArray],
        params: AmplitudeParams,
    ) -> Result<(), DeviceError> {
        // Sums that the workgroups of a pass write for the next pass. Each call has its own, so
        // that calls do not depend on each other.
        let partials =
            recorder.gpu().array::<f32>("inference::partials", u64::from(params.chunks) * PARTIALS as u64)?;
        let arrays = [arrays, &[partials.raw()]].concat();
        let phases = if params.chunks > 1 { self.phases()[which] } else { &[0] };
        for &phase in phases {
            let workgroups = if phase == 3 { 1 } else { params.chunks };
            let params = AmplitudeParams { phase, ..params };
            recorder.dispatch(&self.kernels[which], &arrays, &params, workgroups.into())?;
        }
        Ok(())
    }

    /// Returns the leaf that excites the Wiener process.
    fn excitations<'a>(&self, x: &'a Vector) -> Result<Option<&'a Array<f32>>, OperatorError> {
        self.spectrum.as_ref().map(|name| x.array(name)).transpose()
    }

    /// Records the amplitudes for latent values `x` with the hyper-parameters `p`.
    pub fn apply(&self, recorder: &mut Recorder, x: &Vector, p: &Array<f32>) -> Result<AmplitudeAt, OperatorError> {
        let (amplitude, spectrum) = (self.array(recorder, 2)?, self.excitations(x)?);
        let others = [&self.table, &self.multiplicity, &amplitude];
        let arrays: Vec<_> = [p].into_iter().chain(spectrum).chain(others).map(Array::raw).collect();
        self.record(recorder, 0, &arrays, self.params)?;
        Ok(AmplitudeAt { amplitude, spectrum: spectrum.cloned() })
    }

    /// Records pairs of the amplitudes and their tangents for the tangents `dx` and `dp` of latent
    /// values and hyper-parameters.
    pub fn jvp(
        &self,
        recorder: &mut Recorder,
        (p, at): (&Array<f32>, &AmplitudeAt),
        (dx, dp): (&Vector, &Array<f32>),
    ) -> Result<Array<[f32; 2]>, OperatorError> {
        let (pairs, d_spectrum) = (self.array(recorder, 2)?, self.excitations(dx)?);
        let pairs = pairs.cast::<[f32; 2]>()?;
        let spectra = at.spectrum.iter().chain(d_spectrum);
        let inputs = [p, dp].into_iter().chain(spectra).chain([&self.table, &at.amplitude]).map(Array::raw);
        let arrays: Vec<_> = inputs.chain([pairs.raw()]).collect();
        self.record(recorder, 1, &arrays, self.params)?;
        Ok(pairs)
    }

    /// Records the cotangent for sums of terms of `bits` bits: of the hyper-parameters in `out`,
    /// and of the excitations in `dx`. The cotangent of the amplitude of mode 0 is added to the one
    /// in `out` unless this is the `first` group.
    pub fn vjp(
        &self,
        recorder: &mut Recorder,
        (p, at): (&Array<f32>, &AmplitudeAt),
        (sums, bits): (&Array<u32>, u32),
        (dx, out, first): (&Vector, &Array<f32>, bool),
    ) -> Result<(), OperatorError> {
        let own = [p, &self.table, &at.amplitude].map(Array::raw);
        let spectra = at.spectrum.iter().chain(self.excitations(dx)?).map(Array::raw);
        let arrays: Vec<_> = own.into_iter().chain([sums.raw(), out.raw()]).chain(spectra).collect();
        Ok(self.record(recorder, 2, &arrays, AmplitudeParams { bits, adds: u32::from(!first), ..self.params })?)
    }

    /// Returns the number of wavenumbers.
    pub fn len(&self) -> u64 {
        self.params.bins.into()
    }
}

/// Returns abscissae of all modes, then the widths of the steps that end at each.
fn table(wavenumbers: &[f64], matern: bool) -> Vec<f32> {
    let log = |k: f64| if k > 0.0 { (k / wavenumbers[1]).ln() } else { 0.0 };
    let abscissa = |&k: &f64| if matern { k as f32 } else { log(k) as f32 };
    let widths = (0..wavenumbers.len()).map(|mode| match mode {
        0 | 1 => 0.0,
        mode => (wavenumbers[mode] / wavenumbers[mode - 1]).ln() as f32,
    });
    wavenumbers.iter().map(abscissa).chain(widths).collect()
}

fn params(prior: &AmplitudePrior, parts: &Parts<'_>) -> Result<AmplitudeParams> {
    let bins = parts.wavenumbers.len();
    let hyper = prior.hyper(bins > 2);
    let leaf = |name: &str| format!("{}{name}", parts.branch);
    let place = |name: &str| parts.packing.place(name).map_or(u32::MAX, |place| place as u32);
    let of = |name: &str| match hyper.iter().find(|own| own.0 == name) {
        None => Ok([0.0; 2]),
        Some((_, given, log)) => normal(&leaf(name), *given, *log),
    };
    let (names, half, power) = match prior {
        AmplitudePrior::NonParametric { of, .. } => {
            let half = if *of == PriorSpectrum::Power { 0.5 } else { 1.0 };
            (["flexibility", "asperity", "slope", "fluctuations"], half, 2.0 * half)
        }
        AmplitudePrior::Matern { of, .. } => {
            let power = match of {
                MaternScale::Deviation => 2.0,
                MaternScale::Density => 0.0,
            };
            (["cutoff", "asperity", "slope", "scale"], 1.0, power)
        }
    };
    let [shape, rough, slope, mut fluctuations] = [of(names[0])?, of(names[1])?, of(names[2])?, of(names[3])?];
    if power == 0.0 {
        fluctuations[0] -= parts.volume.ln() / 2.0;
    }
    let offset = normal(parts.zero.0, parts.zero.1, true)?;
    let [chunks, tiles] = chunks(bins);
    let pair = |values: [f64; 2]| values.map(|value| value as f32);
    Ok(AmplitudeParams {
        places: names.map(|name| place(&leaf(name))),
        shape: [shape[0] as f32, shape[1] as f32, rough[0] as f32, rough[1] as f32],
        slope: pair(slope),
        fluctuations: pair(fluctuations),
        offset: pair(offset),
        bins: bins as u32,
        zero: place(parts.zero.0),
        follows: parts.follows.into(),
        half,
        power,
        chunks: chunks as u32,
        tiles: tiles as u32,
        ..AmplitudeParams::default()
    })
}

/// Returns mean and standard deviation of the normal number behind a hyper-parameter, or behind its
/// logarithm.
fn normal(leaf: &str, [mean, std]: [f64; 2], log: bool) -> Result<[f64; 2]> {
    if !(mean.is_finite() && std.is_finite() && std >= 0.0) || log && mean <= 0.0 {
        let wanted = if log { "a positive mean and" } else { "a mean and" };
        let why = format!("mean and standard deviation {:?}; it needs {wanted} a deviation of 0 or more", [mean, std]);
        return Err(InferenceError::Invalid { what: format!("the hyper-parameter `{leaf}`"), why });
    }
    if !log {
        return Ok([mean, std]);
    }
    let variance = (std / mean).powi(2).ln_1p();
    Ok([mean.ln() - variance / 2.0, variance.sqrt()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workgroups_share_tiles_in_bounded_parts() {
        for bins in [1, TILE, TILE * ALONE, TILE * ALONE + 1, 1 << 20, 1 << 30] {
            let [chunks, per] = chunks(bins);
            assert!(per <= MOST_TILES, "{bins}: {per} tiles");
            assert!(
                chunks * per >= bins.div_ceil(TILE) && (chunks - 1) * per < bins.div_ceil(TILE),
                "{bins}: {chunks}"
            );
        }
        assert_eq!((chunks(TILE * ALONE)[0], chunks(1 << 20)[0]), (1, 256));
    }
}
