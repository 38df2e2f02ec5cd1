//! Filters whose results are the numbers of vectors.

use super::filter::{Filter, FilterOutput};
use super::options::{FilterOptions, PassCallbacks};
use super::run::{RunInput, UserArray};
use super::{FftError, Spec};
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, Callback, Gpu, Recorder};
use crate::grid::FieldLayout;

/// The functions on modes of a filter of three results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VectorForm {
    /// `on_mode` gives each of the results.
    Apart,
    /// `on_mode` gives the first result and a field for the other two. Where fields are whole along
    /// y, another `on_mode` gives the three results of these: the first of the first, two of the
    /// second. Two fields pass the first axis backwards and the exchange behind it, not three.
    Spread,
}

/// The functions on modes of a [`VectorFilter`] in its form.
pub(crate) struct VectorCallbacks {
    /// `on_mode` in the fused pass, or as results are read.
    pub filter: Callback,
    /// `on_mode` where two fields become three; of [`VectorForm::Spread`].
    pub spread: Option<Callback>,
}

/// A [`Filter`] of a real field whose results are the first numbers of vectors: at most four. The
/// last pass writes cells of 16 bytes, which those who read several results at a time load at once.
pub(crate) struct VectorFilter(Filter<f32>);

impl VectorFilter {
    /// Returns the form of a filter of a field of `shape`; the same on all ranks.
    ///
    /// # Errors
    /// Same as [`Filter::new`].
    pub fn form(
        gpu: &Gpu,
        shape: [u64; 3],
        comms: &GridComms,
        options: &FilterOptions,
    ) -> Result<VectorForm, FftError> {
        let options = (options, FilterOutput::Vectors);
        let (_, route) = Filter::<f32>::planned(gpu, &Spec::of::<f32>(shape), comms, options)?;
        Ok(if route.is_some_and(|route| route.spreads()) { VectorForm::Spread } else { VectorForm::Apart })
    }

    /// Creates the filter of a field of `shape`, with the callbacks of its [`form`](Self::form); see
    /// [`Filter::new`].
    ///
    /// # Errors
    /// Same as [`Filter::new`].
    pub fn new(
        gpu: &Gpu,
        shape: [u64; 3],
        comms: &GridComms,
        callbacks: VectorCallbacks,
        options: &FilterOptions,
    ) -> Result<Self, FftError> {
        let VectorCallbacks { filter, spread } = callbacks;
        let callbacks = PassCallbacks { filter: Some(filter), spread, ..PassCallbacks::default() };
        let options = (options, FilterOutput::Vectors);
        Ok(VectorFilter(Filter::with_output(gpu, &Spec::of::<f32>(shape), comms, callbacks, options)?))
    }

    /// Returns the bytes that device memory moves; see [`Route::traffic`].
    pub fn traffic(&self) -> u64 {
        self.0.traffic()
    }

    /// Filters `field` into `output`. Collective.
    ///
    /// # Errors
    /// Same as [`Filter::apply`].
    pub fn apply(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<f32>,
        layout: &FieldLayout,
        output: &Array<[f32; 4]>,
        output_layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        const CALL: &str = "VectorFilter::apply";
        self.0.check(CALL, comms, ("a field", field, layout), 1)?;
        let field = RunInput::Array(UserArray::field(field, layout));
        self.run(CALL, recorder, comms, field, (output, output_layout))
    }

    /// Filters the field that `source` defines into `output`. Collective.
    ///
    /// The source defines `fn on_source(at: vec4<u32>) -> T`, the cells of the field; `at` is as in
    /// [`TransformCallbacks`](super::TransformCallbacks). All runs must have sources of one text.
    /// The first pass is submitted and the source dropped, so that its arrays are free for the
    /// other passes.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] if the source has another text than before, or none with
    ///   `on_source`.
    /// - Same as [`apply`](Self::apply).
    pub fn apply_from(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        source: Callback,
        output: &Array<[f32; 4]>,
        output_layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        self.run("VectorFilter::apply_from", recorder, comms, RunInput::Source(source), (output, output_layout))
    }

    fn run(
        &self,
        call: &'static str,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        input: RunInput<'_>,
        (output, layout): (&Array<[f32; 4]>, &FieldLayout),
    ) -> Result<(), ExchangeError> {
        self.0.check(call, comms, ("an output", output, layout), self.0.output_fields())?;
        self.0.run(call, recorder, comms, input, UserArray::field(output, layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;
    use crate::fft::TransformTuning;
    use crate::gpu::{Options, Profile};
    use crate::grid::Grid;

    /// Multiplies by a power of two for each mode and result, exactly: before or after a transform
    /// along an axis on which it does not depend.
    const FACTORS: &str = "fn factor_of(at: vec4<u32>, result: u32) -> Real {
    let steps = array<u32, 4>(at.x % 3u, at.y % 4u + at.z % 2u, at.z % 3u, at.y % 2u);
    return Real(1u << steps[result]);
}
";
    const ALL: &str = "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    return value * factor_of(at, result);
}";
    const FIRST: &str = "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    return value * select(factor_of(at, 0u), 1.0, result == 1u);
}";
    const OTHERS: &str = "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    return value * select(factor_of(at, result), 1.0, result == 0u);
}";

    struct Case {
        shape: [u64; 3],
        parts: [usize; 2],
        results: u32,
        profile: Profile,
        cache_bytes: u64,
    }

    /// Returns the cells of a rank's vectors, ghost cells included, and those that the filter of
    /// fields gives, by number; NaN beyond the results. Ghost cells are NaN before.
    fn cells_of(gpu: &Gpu, comms: &mut GridComms, case: &Case) -> Result<[Vec<u32>; 2], crate::Error> {
        let mut recorder = Recorder::new(gpu)?;
        let [all, first, others] = [ALL, FIRST, OTHERS].map(|text| Callback::trusted([FACTORS, text].concat()));
        let spec = Spec::of::<f32>(case.shape);
        let tuning = TransformTuning { cache_bytes: case.cache_bytes, ..TransformTuning::profile(case.profile) };
        let mut options = FilterOptions::default().results(case.results).tuning(tuning);
        // One dispatch for each result of the fused pass.
        options.reach = Some(1);
        let fields = Filter::<f32>::new(gpu, &spec, comms, &all, &options)?;
        let callbacks = match VectorFilter::form(gpu, case.shape, comms, &options)? {
            VectorForm::Apart => VectorCallbacks { filter: all, spread: None },
            VectorForm::Spread => VectorCallbacks { filter: first, spread: Some(others) },
        };
        let vectors = VectorFilter::new(gpu, case.shape, comms, callbacks, &options)?;
        let own = fields.field_layout();
        let layout = FieldLayout::new(fields.field_part(), [[1, 2], [0, 1], [1, 0]]);
        let (len, results) = (layout.len(), u64::from(case.results));
        let field = gpu.array::<f32>("field", own.len())?;
        let numbers: Vec<f32> = (0..own.len()).map(|i| (i * 7919 % 1021) as f32 / 37.0 - 13.0).collect();
        recorder.upload(&field, 0, &numbers)?;
        let (apart, together) = (gpu.array::<f32>("fields", results * len)?, gpu.array::<[f32; 4]>("vectors", len)?);
        recorder.upload(&apart, 0, &vec![f32::NAN; (results * len) as usize])?;
        recorder.upload(&together, 0, &vec![[f32::NAN; 4]; len as usize])?;
        fields.apply(&mut recorder, comms, &field, &own, &apart, &layout)?;
        vectors.apply(&mut recorder, comms, &field, &own, &together, &layout)?;
        let (apart, together) = (recorder.download(&apart, 0, results * len)?, recorder.download(&together, 0, len)?);
        let number = |cell: u64, number: u64| match number {
            number if number < results => apart[(number * len + cell) as usize],
            _ => f32::NAN,
        };
        let expected =
            (0..len).flat_map(|cell| (0..4).map(move |n| (cell, n))).map(|(cell, n)| number(cell, n).to_bits());
        let kept = |[x, y, z, w]: [f32; 4]| {
            [x, y, z, w].into_iter().enumerate().map(|(n, value)| if n as u64 >= results { f32::NAN } else { value })
        };
        Ok([together.into_iter().flat_map(kept).map(f32::to_bits).collect(), expected.collect()])
    }

    /// Returns the cells of all ranks, as [`cells_of`] does.
    fn all_cells(gpu: &Gpu, case: &Case) -> Result<Vec<[Vec<u32>; 2]>, crate::comm::RunError> {
        let ranks = case.parts[0] * case.parts[1];
        run_threads(ranks, |comm| {
            let mut comms = GridComms::new(&comm, Grid::new(case.parts, ranks)?)?;
            cells_of(gpu, &mut comms, case)
        })
    }

    fn check(gpu: &Gpu, case: &Case) {
        let Case { shape, parts, results, profile, .. } = case;
        let found = all_cells(gpu, case);
        let what = format!("{results} results of {shape:?} on {parts:?}, {profile:?}");
        for [found, expected] in found.unwrap_or_else(|error| panic!("{error}: {what}")) {
            let values = |bits: &[u32]| -> Vec<f32> { bits.iter().map(|&bits| f32::from_bits(bits)).collect() };
            let (values, wanted) = (values(&found), values(&expected));
            let most =
                wanted.iter().filter(|value| value.is_finite()).fold(0.0f32, |most, value| most.max(value.abs()));
            // Stages of fewer points round differently: by a unit or two for each bit of an index.
            let tolerance = 2.0 * 13.0 * f32::EPSILON * most;
            let is_close = |(a, b): (&f32, &f32)| a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance;
            assert!(values.iter().zip(&wanted).all(is_close), "{what}");
        }
    }

    /// Lengths along z are even, odd, prime, and take the passes of a four-step transform and of a
    /// long convolution; one axis alone takes two transforms. Three axes and results spread two
    /// fields along y.
    #[test]
    fn vectors_are_the_fields() {
        let options = Options::from_env().unwrap();
        let gpu = Gpu::open(&options, 0).unwrap();
        for (shape, parts, results) in [
            ([8, 6, 16], [1, 1], 3),
            ([6, 5, 128], [2, 2], 3),
            ([5, 4, 15], [2, 1], 3),
            ([4, 3, 37], [1, 3], 2),
            ([2, 2, 26], [1, 1], 3),
            ([3, 2, 30], [4, 1], 4),
            ([1, 1, 12], [1, 1], 3),
            ([1, 3, 8192], [1, 1], 3),
        ] {
            check(&gpu, &Case { shape, parts, results, profile: Profile::Gpu, cache_bytes: 0 });
        }
        for (shape, parts) in
            [([6, 5, 128], [2, 2]), ([5, 4, 15], [1, 1]), ([1, 1, 12], [1, 1]), ([1, 3, 4093], [1, 2])]
        {
            check(&gpu, &Case { shape, parts, results: 3, profile: Profile::Software, cache_bytes: 0 });
        }
        // Arrays in several windows.
        let gpu = Gpu::open(&Options { window_bytes: Some(1024), ..options }, 0).unwrap();
        for parts in [[1, 1], [2, 1]] {
            check(&gpu, &Case { shape: [6, 5, 14], parts, results: 3, profile: Profile::Gpu, cache_bytes: 0 });
        }
    }

    #[test]
    fn vectors_in_layers_have_the_same_bits() {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        for profile in [Profile::Gpu, Profile::Software] {
            for (shape, parts, results) in [([8, 6, 16], [1, 1], 3), ([7, 5, 10], [3, 1], 3), ([6, 3, 14], [1, 1], 2)] {
                let of = |cache_bytes| Case { shape, parts, results, profile, cache_bytes };
                let [plain, layered] = [0, 2000].map(|cache_bytes| all_cells(&gpu, &of(cache_bytes)).unwrap());
                assert!(plain == layered, "{shape:?} on {parts:?}, {profile:?}");
            }
        }
    }
}
