//! Steps of conjugate gradients on the device of one rank that never wait for the host.
//!
//! Beside the products a step takes seven dispatches, and eight with a preconditioner: two for the
//! sum `d.q` and one for the length of the step, an update that also measures the terms of the
//! other sums, these sums, the scalars, and the next direction. Scalars follow from the integers of
//! exact sums in arithmetic that rounds like f64, so they have the bits of the host's.

use std::sync::Arc;

use super::error::{InferenceError, Result};
use super::vector_space::{CgVectors, SolveStep, StepLimits, StepScalars, StepUpdate, StepsEnd};
use crate::exchange::{Division, ELEMENT, FIXED, SeveralSums, Summed, SummedTerms, bits_for, of_values, sum_value};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Profile, RawArray};
use crate::operators::{Contents, Vector};
use crate::rank::Rank;

/// Steps from one look of the host to the next, on GPUs.
const AHEAD: u64 = 4;

/// Numbers of a vector up to which the host looks less often than in each step. A step of more
/// takes longer than a wait, and those behind the end would be wasted.
const SHORT: u64 = 1 << 20;

/// Words of `step_words.wgsl`.
const WORDS: usize = 52;
const GAMMA: usize = 8;
const ENERGY: usize = 12;
const SUMS_AT: usize = 16;
const LAST_AT: usize = 32;
const EARLIER: usize = 48;

crate::gpu::kernel_params! {
    #[derive(Default)]
    struct ScalarParams {
        tiny: [u32; 4],
        /// A limit of sum number `norm`.
        target_norm: [u32; 4],
        least_fall: [u32; 4],
        rise: [u32; 4],
        /// Bits of a term.
        bits: u32,
        sums: u32,
        step: u32,
        is_last: u32,
        /// The number of the sum `r.P r`.
        gamma: u32,
        norm: u32,
    }
}

crate::gpu::kernel_params! {
    struct UpdateParams {
        count: u32,
        /// Elements of an invocation.
        per: u32,
    }
}

/// Returns the kernel of the scalars after `d.q`, or after the other sums.
fn scalars(curvature: bool) -> KernelSource {
    KernelSource::new("inference::step_scalars", include_str!("../../shaders/inference/step_scalars.wgsl"))
        .params::<ScalarParams>()
        .module("gpu::fixed", FIXED)
        .module("gpu::soft_double", include_str!("../../shaders/gpu/soft_double.wgsl"))
        .module("inference::step_words", STEP_WORDS)
        .flag("curvature", curvature)
        .group(1)
        .loop_rounds(128)
}

const STEP_WORDS: &str = include_str!("../../shaders/inference/step_words.wgsl");

/// The terms whose greatest magnitudes an update finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    Nothing,
    Products,
    ProductsAndNorm,
}

const MEASURED: [Measured; 3] = [Measured::Nothing, Measured::Products, Measured::ProductsAndNorm];

fn update(restarts: bool, measured: Measured, quads: bool) -> KernelSource {
    let text = include_str!("../../shaders/inference/step_update.wgsl");
    of_values(KernelSource::new("inference::step_update", text), quads)
        .params::<UpdateParams>()
        .module("exchange::element", ELEMENT)
        .module("inference::step_words", STEP_WORDS)
        .flag("restarts", restarts)
        .flag("measures", measured != Measured::Nothing)
        .flag("norm", measured == Measured::ProductsAndNorm)
        .constant("SUMS", if measured == Measured::ProductsAndNorm { 4 } else { 3 })
}

fn direction(quads: bool) -> KernelSource {
    let text = include_str!("../../shaders/inference/step_direction.wgsl");
    of_values(KernelSource::new("inference::step_direction", text), quads)
        .params::<UpdateParams>()
        .module("inference::step_words", STEP_WORDS)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    let updates = |quads| {
        let updates = [false, true].map(|restarts| MEASURED.map(|measured| update(restarts, measured, quads)));
        updates.into_iter().flatten().chain([direction(quads)])
    };
    [false, true].into_iter().map(scalars).chain([false, true].into_iter().flat_map(updates)).collect()
}

/// By whether elements are four numbers, if they depend on it.
struct StepKernels {
    /// After the sums, and after `d.q`.
    scalars: [Kernel; 2],
    /// By whether the residual comes from a product, and by [`MEASURED`].
    updates: [[[Kernel; 3]; 2]; 2],
    directions: [Kernel; 2],
    sums: SeveralSums,
}

impl Default for StepKernels {
    fn default() -> Self {
        let updates = |restarts, quads| MEASURED.map(|own| Kernel::trusted(update(restarts, own, quads)));
        StepKernels {
            scalars: [false, true].map(|curvature| Kernel::trusted(scalars(curvature))),
            updates: [false, true].map(|quads| [false, true].map(|restarts| updates(restarts, quads))),
            directions: [false, true].map(|quads| Kernel::trusted(direction(quads))),
            sums: SeveralSums::default(),
        }
    }
}

/// The scalars of solves whose vectors are one array each.
pub(super) struct DeviceSteps {
    kernels: Arc<StepKernels>,
    solves: Vec<SolveWords>,
    /// Number of values of a vector, and of its array with padding.
    total: u64,
    count: u64,
    has_norm: bool,
    ahead: u64,
}

/// The scalars of a solve: an array of its own, so that no kernel of another solve waits for those
/// that write it.
struct SolveWords {
    words: Array<u32>,
    /// The step before the first one.
    first: u64,
}

/// Arrays of vectors as kernels see them.
struct Elements {
    arrays: Vec<RawArray>,
    count: u64,
    /// Whether an element is four numbers.
    is_quads: bool,
}

/// Returns the array of a vector whose leaves are parts of one, all on the device.
pub(super) fn single(vector: &Vector) -> Option<Array<f32>> {
    let is_on_device = vector.contents().iter().all(|contents| matches!(contents, Contents::Device(_)));
    let mut runs = vector.runs(&[], |_| true);
    let array = runs.pop().and_then(|mut run| run.pop())?;
    (is_on_device && runs.is_empty() && array.raw().windows() == 1).then_some(array)
}

/// Returns the words of a number of `soft_double.wgsl`.
pub(super) fn words_of(x: f64) -> [u32; 4] {
    let sign = u32::from(x.is_sign_negative());
    let bits = x.abs().to_bits();
    let (exponent, mantissa) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    if bits == 0 {
        return [0; 4];
    }
    // Infinity is above all numbers, and subnormal ones are normalized.
    let (mantissa, exponent) = match exponent {
        0 => (mantissa << (mantissa.leading_zeros() - 11), -1074 - (mantissa.leading_zeros() as i32 - 11)),
        _ => (mantissa | 1 << 52, exponent - 1075),
    };
    [mantissa as u32, (mantissa >> 32) as u32, exponent as u32, sign]
}

impl DeviceSteps {
    /// Creates the scalars of solves, or returns `None` if the host must take part: on several
    /// ranks, and for vectors that are not one array each.
    pub fn new(rank: &mut Rank, solves: &[&CgVectors<'_, Vector>], has_norm: bool) -> Result<Option<Self>> {
        let vectors = solves.iter().flat_map(|CgVectors { j, x, r, d, q, z }| [*j, x, r, d, q].into_iter().chain(z));
        let arrays: Option<Vec<_>> = vectors.map(single).collect();
        let (Some(arrays), Some(first), 1) = (arrays, solves.first(), rank.comm.size()) else { return Ok(None) };
        let count = arrays[0].len();
        let total = first.r.space().leaves().map(|(_, leaf)| leaf.total()).sum::<u64>();
        let kernels = rank.shared();
        let words = |_| Ok(SolveWords { words: rank.gpu.array("inference::step_words", WORDS as u64)?, first: 0 });
        let words = solves.iter().map(words).collect::<Result<_, DeviceError>>()?;
        let ahead = match rank.gpu.capabilities().profile {
            Profile::Gpu if total * solves.len() as u64 <= SHORT => AHEAD,
            _ => 1,
        };
        let own = DeviceSteps { kernels, solves: words, total, count, has_norm, ahead };
        let fits = arrays.iter().all(|array| array.len() == count)
            && SeveralSums::is_one_pass(&rank.recorder, &own.sums_of(first)?);
        Ok(fits.then_some(own))
    }

    /// Returns the array of a vector that [`new`](Self::new) has seen.
    fn array(vector: &Vector) -> Result<Array<f32>> {
        single(vector).ok_or_else(|| InferenceError::Invalid {
            what: "conjugate gradients".into(),
            why: "a product has replaced the arrays of its output".into(),
        })
    }

    /// Returns the elements of vectors.
    fn elements(&self, arrays: &[&RawArray]) -> Elements {
        let quads = RawArray::in_quads(arrays);
        let (is_quads, each) = if quads.is_some() { (true, 4) } else { (false, 1) };
        let arrays = quads.unwrap_or_else(|| arrays.iter().map(|&array| array.clone()).collect());
        Elements { arrays, count: self.count / each, is_quads }
    }

    fn summed(&self, x: &Vector, y: Option<&Vector>) -> Result<Summed> {
        let x = Self::array(x)?;
        let terms = match y {
            Some(y) => SummedTerms::Products([x, Self::array(y)?]),
            None => SummedTerms::Magnitudes(x),
        };
        Ok(Summed { terms: vec![terms], total: self.total })
    }

    /// Returns the sums of a step after its update.
    fn sums_of(&self, vectors: &CgVectors<'_, Vector>) -> Result<Vec<Summed>> {
        let CgVectors { j, x, r, z, .. } = vectors;
        let mut sums = vec![self.summed(r, Some(r))?, self.summed(r, Some(x))?, self.summed(j, Some(x))?];
        if let Some(z) = z {
            sums.push(self.summed(r, Some(z))?);
        }
        if self.has_norm {
            sums.push(self.summed(r, None)?);
        }
        Ok(sums)
    }

    fn params(&self, step: u64, sums: usize) -> Result<ScalarParams, DeviceError> {
        let bits = bits_for("conjugate gradients", self.total)?;
        Ok(ScalarParams { bits, sums: sums as u32, step: step as u32, ..ScalarParams::default() })
    }

    /// Returns the end of a solve, if it has ended, from its words.
    fn end(&self, solve: usize, words: &[u32], vectors: &CgVectors<'_, Vector>) -> Result<Option<StepsEnd>> {
        let place = words[0];
        if place == 0 {
            return Ok(None);
        }
        // The sums of `sums_of`.
        let count = 3 + usize::from(vectors.z.is_some()) + usize::from(self.has_norm);
        let bits = bits_for("conjugate gradients", self.total)?;
        let sum = |number: usize| {
            let at = LAST_AT + count + 2 * number;
            let integer = u64::from(words[at + 1]) << 32 | u64::from(words[at]);
            sum_value(words[LAST_AT + number], integer, bits)
        };
        let is_open = place == 2;
        let step = u64::from(words[1]) - u64::from(!is_open);
        // The inverse of `words_of`.
        let number = |at: usize| {
            let mantissa = u64::from(words[at + 1]) << 32 | u64::from(words[at]);
            let magnitude = mantissa as f64 * 2f64.powi(words[at + 2] as i32);
            if words[at + 3] == 1 { -magnitude } else { magnitude }
        };
        Ok(Some(StepsEnd {
            step,
            is_open,
            sums: (step > self.solves[solve].first).then(|| (0..count).map(sum).collect()),
            gamma: number(GAMMA),
            energy: number(ENERGY),
            earlier: number(EARLIER),
        }))
    }
}

impl StepScalars<Rank, Vector> for DeviceSteps {
    fn ahead(&self) -> u64 {
        self.ahead
    }

    fn begin(&mut self, rank: &mut Rank, solve: usize, first: u64, [gamma, energy]: [f64; 2]) -> Result<()> {
        self.solves[solve].first = first;
        let mut words = [0; WORDS];
        words[4] = 1f32.to_bits();
        words[GAMMA..GAMMA + 4].copy_from_slice(&words_of(gamma));
        words[ENERGY..ENERGY + 4].copy_from_slice(&words_of(energy));
        Ok(rank.recorder.upload(&self.solves[solve].words, 0, &words)?)
    }

    fn length(
        &mut self,
        rank: &mut Rank,
        SolveStep { solve, step }: SolveStep,
        vectors: &CgVectors<'_, Vector>,
    ) -> Result<()> {
        let words = &self.solves[solve].words;
        let sum = [self.summed(&vectors.d, Some(&vectors.q))?];
        for adds in [false, true] {
            self.kernels.sums.record_words(&mut rank.recorder, &sum, (words, SUMS_AT), adds)?;
        }
        let params = self.params(step, 1)?;
        Ok(rank.recorder.dispatch(&self.kernels.scalars[1], &[words.raw()], &params, 1)?)
    }

    fn update(
        &mut self,
        rank: &mut Rank,
        solve: usize,
        update: StepUpdate,
        vectors: &mut CgVectors<'_, Vector>,
    ) -> Result<()> {
        let restarts = update == StepUpdate::Residual;
        let measured = match (update, &vectors.z, self.has_norm) {
            (StepUpdate::Solution, ..) | (_, Some(_), _) => Measured::Nothing,
            (_, _, false) => Measured::Products,
            (_, _, true) => Measured::ProductsAndNorm,
        };
        let [d, q, x, r] = [&vectors.d, &vectors.q, &vectors.x, &vectors.r].map(Self::array);
        let (d, q, x, r, j) = (d?, q?, x?, r?, Self::array(vectors.j)?);
        let mut arrays = vec![q.raw(), j.raw()];
        arrays.extend((!restarts).then_some(d.raw()));
        arrays.extend([x.raw(), r.raw()]);
        let Elements { arrays, count, is_quads } = self.elements(&arrays);
        let kernel = &self.kernels.updates[usize::from(is_quads)][usize::from(restarts)][measured as usize];
        let arrays: Vec<_> = arrays.iter().chain([self.solves[solve].words.raw()]).collect();
        let division = Division::new(&rank.recorder, count, is_quads, rank.gpu.workgroup_shape().items.into());
        let params = UpdateParams { count: count as u32, per: division.per as u32 };
        Ok(rank.recorder.dispatch(kernel, &arrays, &params, division.groups(count))?)
    }

    fn sums(
        &mut self,
        rank: &mut Rank,
        SolveStep { solve, step }: SolveStep,
        limits: &StepLimits,
        vectors: &mut CgVectors<'_, Vector>,
    ) -> Result<()> {
        let words = &self.solves[solve].words;
        let sums = self.sums_of(vectors)?;
        if vectors.z.is_some() {
            self.kernels.sums.record_words(&mut rank.recorder, &sums, (words, SUMS_AT), false)?;
        }
        self.kernels.sums.record_words(&mut rank.recorder, &sums, (words, SUMS_AT), true)?;
        // The square of the norm is compared with more than the square of its limit. The host
        // computes the root.
        let target_norm = match limits.resnorm {
            Some(resnorm) if self.has_norm => resnorm,
            Some(resnorm) => resnorm * resnorm * (1.0 + 1e-12),
            None => 0.0,
        };
        let params = ScalarParams {
            tiny: words_of(limits.tiny),
            target_norm: words_of(target_norm),
            least_fall: words_of(limits.absdelta.unwrap_or(f64::NEG_INFINITY)),
            rise: words_of(limits.rise),
            is_last: u32::from(limits.is_last),
            gamma: if vectors.z.is_some() { 3 } else { 0 },
            norm: if self.has_norm { sums.len() as u32 - 1 } else { 0 },
            ..self.params(step, sums.len())?
        };
        rank.recorder.dispatch(&self.kernels.scalars[0], &[words.raw()], &params, 1)?;
        let [z, d] = [vectors.z.as_ref().unwrap_or(&vectors.r), &vectors.d].map(Self::array);
        let (z, d) = (z?, d?);
        let Elements { arrays, count, is_quads } = self.elements(&[z.raw(), d.raw()]);
        let params = UpdateParams { count: count as u32, per: 0 };
        let arrays: Vec<_> = [words.raw()].into_iter().chain(&arrays).collect();
        Ok(rank.recorder.each(&self.kernels.directions[usize::from(is_quads)], &arrays, &params, count)?)
    }

    fn look(&mut self, rank: &mut Rank, solves: &[(usize, &CgVectors<'_, Vector>)]) -> Result<Vec<Option<StepsEnd>>> {
        let arrays: Vec<_> = solves.iter().map(|&(solve, _)| self.solves[solve].words.raw()).collect();
        let mut words = vec![Vec::new(); solves.len()];
        rank.recorder
            .download_together(&arrays, |at, piece| words[at].extend_from_slice(bytemuck::cast_slice(piece)))?;
        words.iter().zip(solves).map(|(words, &(solve, vectors))| self.end(solve, words, vectors)).collect()
    }
}
