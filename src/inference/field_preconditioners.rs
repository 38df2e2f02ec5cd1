//! Preconditioners of fields: of modes, and of cells whose modes data know by their wavenumbers.

use std::f64::consts::PI;

use super::conjugate_gradient::{Metric, Precondition};
use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::log_likelihood::FieldPreconditioner;
use super::vector_space::{Elementwise, Reduction, Stream, VectorSpace};
use crate::gpu::{Array, Element, Kernel, KernelSource, RawArray};
use crate::grid::Mesh;
use crate::operators::{
    Contents, Direction, Gather, Hartley, Leaf, Linear, Model, OperatorError, PointwiseOperator, Space, Vector,
    Wavenumbers,
};
use crate::rank::Rank;

/// Levels of precision.
const LEVELS: usize = 3;

/// Distance of levels, in standard deviations of the logarithm of the precision.
const APART: f64 = 1.7;

/// The standard deviation below which the precision counts as the same everywhere.
const SAME: f64 = 0.1;

/// The precision, as a part of the mean, up to which a place counts as without data.
const UNKNOWN: f64 = 1e-3;

/// Distance of places without data below the mean of the others, in their standard deviations. A
/// larger one would leave no level near to either: three levels then take twice as many steps.
const BELOW: f64 = 2.0;

/// The standard deviation that [`BELOW`] counts at least.
const NARROWEST: f64 = 1.5;

crate::gpu::kernel_params! {
    struct ModeParams {
        /// The precision of each level, summed over all places.
        levels: [f32; 4],
        /// The logarithm of the precision at the first level.
        first: f32,
        /// Levels for each unit of the logarithm.
        per_step: f32,
        /// The least logarithm of a precision.
        least: f32,
        count: u32,
        /// A factor of the results.
        scale: f32,
    }
}

/// The kernels by their flags, and their places.
const FLAGS: [&str; 3] = ["spread", "weigh", "gather"];
/// Elements of the arrays of kernels.
const VALUES: [Element; 2] = [Element::F32, Element::Vec4];
const SPREAD: usize = 0;
const WEIGH: usize = 1;
const GATHER: usize = 2;

fn source(flag: &str, value: Element) -> KernelSource {
    let text = KernelSource::new(
        "inference::mode_preconditioner",
        include_str!("../../shaders/inference/mode_preconditioner.wgsl"),
    )
    .params::<ModeParams>()
    .element("Value", value)
    .constant("LEVELS", LEVELS as u32)
    .repeat('$', LEVELS as u32);
    FLAGS.into_iter().fold(text, |text, other| text.flag(other, other == flag))
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    VALUES.into_iter().flat_map(|value| FLAGS.map(|flag| source(flag, value))).collect()
}

/// The preconditioner of the modes of a field.
///
/// With the amplitudes `a`, the Hartley transform `H` and the precision `F` of the data at each
/// place, the metric of excited modes is about `1 + a H F H a`. If `F` is the same everywhere, its
/// inverse is `1 / (1 + c a^2)` with `c` the sum of `F`. Otherwise modes are divided by that for a
/// few levels of `c`, and the results are put together by the precision at each place:
/// ```text
/// P = sum_j D_j H g_j H D_j / n      D_j = 1 / sqrt(1 + c_j a^2),  sum_j g_j = 1
/// ```
/// One product with the metric gives `F`: that of a field of random signs, whose modes are divided
/// by the amplitudes. Modes that data do not know are then removed from `F`. The levels are the
/// mean of `ln F` over places and 1.7 standard deviations from it. Places without data count as two
/// standard deviations of the others, or more, below them.
///
/// Cost of a product with `P`: two transforms of [`LEVELS`] fields and three dispatches, which move
/// 68 bytes for each cell. If `F` is nearly the same everywhere: no transform and two dispatches,
/// which move 40 bytes.
pub(super) struct ModePreconditioner {
    leaf: String,
    amplitude: Array<f32>,
    /// One field of modes and of cells, and [`LEVELS`] of each.
    spaces: [Space; 2],
    batches: [Space; 2],
    /// By [`VALUES`] and [`FLAGS`].
    kernels: [[Kernel; 3]; 2],
    params: ModeParams,
    /// The logarithm of the precision at each cell, and the transform of all levels; `None` where
    /// the precision is the same everywhere.
    levels: Option<(Array<f32>, Hartley)>,
}

impl ModePreconditioner {
    /// Creates the part of a leaf at the modes of a mesh, with their amplitudes.
    pub fn new(leaf: String, mesh: &Mesh, amplitude: Array<f32>) -> Result<Self> {
        let [one, all] = [1, LEVELS as u64].map(|batch| {
            let leaves = [Leaf::modes(mesh), Leaf::cells(mesh)];
            leaves.map(|own| Space::of("field", if batch > 1 { own.batch(batch) } else { own }))
        });
        let ([modes, cells], [many_modes, many_cells]) = (one, all);
        let params = ModeParams { levels: [0.0; 4], first: 0.0, per_step: 0.0, least: 0.0, count: 0, scale: 0.0 };
        Ok(ModePreconditioner {
            leaf,
            amplitude,
            spaces: [modes?, cells?],
            batches: [many_modes?, many_cells?],
            kernels: VALUES.map(|value| FLAGS.map(|flag| Kernel::trusted(source(flag, value)))),
            params,
            levels: None,
        })
    }

    /// Applies a function of one field, or of a field `x` and the amplitudes `a`.
    fn map(&self, rank: &mut Rank, text: &str, x: &Vector, with_amplitude: bool) -> Result<Vector, OperatorError> {
        let Some((_, leaf)) = x.space().only() else { return Ok(x.clone()) };
        let mut arrays = vec![("x", x.single()?)];
        if with_amplitude {
            arrays.insert(0, ("a", &self.amplitude));
        }
        let space = Space::new(arrays.iter().map(|(name, _)| (*name, leaf.clone())))?;
        let contents = arrays.iter().map(|(_, array)| Contents::Device((*array).clone())).collect();
        let map = Model::new(PointwiseOperator::wgsl(text, "f", &space, "field")?);
        map.value(rank, &Vector::over(&space, contents)?)
    }

    /// Records one of the kernels over the modes or cells of the first array.
    fn record(&self, rank: &mut Rank, which: usize, arrays: &[&Array<f32>]) -> Result<(), OperatorError> {
        // Ranks may have other numbers of cells than of modes.
        let count = arrays[0].len();
        let arrays: Vec<&RawArray> = arrays.iter().map(|array| array.raw()).collect();
        let quads = RawArray::in_quads(&arrays);
        let kernel = &self.kernels[usize::from(quads.is_some())][which];
        let (arrays, count) = match &quads {
            Some(quads) => (quads.iter().collect(), count / 4),
            None => (arrays, count),
        };
        let params = ModeParams { count: count as u32, ..self.params };
        Ok(rank.recorder.each(kernel, &arrays, &params, count)?)
    }
}

/// Random signs from white noise.
const SIGN: &str = "fn f(x: f32) -> f32 { return select(-1.0, 1.0, x >= 0.0); }";
const DIVIDE: &str = "fn f(a: f32, x: f32) -> f32 { return select(0.0, x / a, abs(a) > 1e-30); }";
/// Keeps the modes that data know: those with an amplitude above 1 in the units of `a`.
const SMOOTH: &str =
    "fn f(a: f32, x: f32) -> f32 { let known = a * a; return select(x, x * known / (1.0 + known), a != 0.0); }";

/// The logarithm of the precision, in units of the mean precision, over all places.
#[derive(Debug)]
struct LogPrecision {
    mean: f64,
    deviation: f64,
    /// The value of places without data.
    least: f64,
}

impl LogPrecision {
    /// Computes it from the number of places, and of those with data the number and the sums of the
    /// logarithm and of its square.
    fn new(total: f64, [known, sum, squares]: [f64; 3]) -> Self {
        let unknown = total - known;
        let of_known = sum / known.max(1.0);
        let variance = (squares / known.max(1.0) - of_known * of_known).max(0.0);
        let least = UNKNOWN.ln().max(of_known - BELOW * variance.sqrt().max(NARROWEST));
        let mean = (sum + unknown * least) / total;
        let apart = [of_known - mean, least - mean].map(|x| x * x);
        let deviation = ((known * (variance + apart[0]) + unknown * apart[1]) / total).sqrt();
        LogPrecision { mean, deviation, least }
    }
}

impl FieldPreconditioner<Rank> for ModePreconditioner {
    fn part(&self) -> &str {
        &self.leaf
    }

    fn build(&mut self, rank: &mut Rank, metric: &mut Metric<'_, Rank>, stream: Stream, like: &Vector) -> Result<()> {
        let [modes, cells] = &self.spaces;
        let total = cells.only().map_or(1, |(_, leaf)| leaf.total()) as f64;
        let hartley = Hartley::new(rank, cells)?;
        let mut noise = Vector::new(&rank.gpu, cells)?;
        rank.white_noise(stream, &mut noise)?;
        let signs = self.map(rank, SIGN, &noise, false)?;
        // v = H z / (n a), so that the field of v is z.
        let mut of_signs = Vector::new(&rank.gpu, modes)?;
        hartley.run(rank, Direction::Forward, &signs, &mut of_signs)?;
        let divided = self.map(rank, DIVIDE, &of_signs, true)?;
        let mut v = Vector::zeros(&mut rank.recorder, like.space())?;
        let mut own = Vector::over(modes, vec![Contents::Device(v.array(&self.leaf)?.clone())])?;
        rank.vector_axpby(1.0 / total, &divided, 0.0, &mut own)?;
        v.put(own);
        let mut product = rank.like(like)?;
        metric(rank, &v, &mut product)?;
        let sum = rank.reduce(&[Reduction::Dot(&v, &product)])?[0].max(0.0);
        // The field of the product over the amplitudes is n F z.
        let product = Vector::over(modes, vec![Contents::Device(product.array(&self.leaf)?.clone())])?;
        let divided = self.map(rank, DIVIDE, &product, true)?;
        let mut field = Vector::new(&rank.gpu, cells)?;
        hartley.run(rank, Direction::Adjoint, &divided, &mut field)?;
        let mut precision = Vector::new(&rank.gpu, cells)?;
        rank.multiply(1.0, [&signs, &field], 0.0, &mut precision)?;
        // Amplitudes in units in which data know modes above 1.
        let unit = sum.sqrt();
        let scaled = rank.gpu.array("inference::modes", self.amplitude.len())?;
        let plain = std::mem::replace(&mut self.amplitude, scaled);
        let of = |array: &Array<f32>| Vector::over(modes, vec![Contents::Device(array.clone())]);
        rank.vector_axpby(unit, &of(&plain)?, 0.0, &mut of(&self.amplitude)?)?;
        hartley.run(rank, Direction::Forward, &precision, &mut of_signs)?;
        let smooth = self.map(rank, SMOOTH, &of_signs, true)?;
        hartley.run(rank, Direction::Adjoint, &smooth, &mut field)?;
        // In units of the mean, which is sum / n; n twice from transforms, once from the field.
        let mut relative = Vector::new(&rank.gpu, cells)?;
        if sum > 0.0 {
            rank.vector_axpby(1.0 / (sum * total), &field, 0.0, &mut relative)?;
        } else {
            relative = Vector::zeros(&mut rank.recorder, cells)?;
        }
        let text = format!("fn f(x: f32) -> f32 {{ return log(max(x, {UNKNOWN:?})); }}");
        let logarithm = self.map(rank, &text, &relative, false)?;
        let text = format!("fn f(x: f32) -> f32 {{ return select(0.0, 1.0, x > {UNKNOWN:?}); }}");
        let known = self.map(rank, &text, &relative, false)?;
        let mut of_known = Vector::new(&rank.gpu, cells)?;
        rank.multiply(1.0, [&logarithm, &known], 0.0, &mut of_known)?;
        let sums = rank.reduce(&[
            Reduction::Dot(&known, &known),
            Reduction::Dot(&of_known, &known),
            Reduction::Dot(&of_known, &of_known),
        ])?;
        let LogPrecision { mean, deviation, least } = LogPrecision::new(total, [sums[0], sums[1], sums[2]]);
        let step = APART * deviation;
        // Amplitudes are in units of the sum.
        let level = |number: usize| (mean + (number as f64 - 1.0) * step).exp() as f32;
        self.params.levels = [level(0), level(1), level(2), 0.0];
        if deviation < SAME {
            // Without transforms the levels are equal.
            self.params.levels = [1.0; 4];
            self.params.scale = 1.0 / LEVELS as f32;
            return Ok(());
        }
        self.params.scale = (1.0 / total) as f32;
        self.params.first = (mean - step) as f32;
        self.params.per_step = (1.0 / step) as f32;
        self.params.least = least as f32;
        let many = Hartley::new(rank, &self.batches[1])?;
        self.levels = Some((logarithm.single()?.clone(), many));
        Ok(())
    }

    fn scale(&self, rank: &mut Rank, out: &mut Vector) -> Result<bool> {
        // Amplitudes are in units in which the sum of the precision is 1.
        const SCALE: &str = "fn f(x: f32) -> f32 { return inverseSqrt(1.0 + x * x); }";
        let amplitude = Vector::over(&self.spaces[0], vec![Contents::Device(self.amplitude.clone())])?;
        let scale = self.map(rank, SCALE, &amplitude, false)?;
        let (scale, out) = (scale.single()?, out.array(&self.leaf)?);
        rank.recorder.copy(scale, 0, out, 0, scale.len())?;
        Ok(true)
    }

    fn share(&mut self, rank: &mut Rank, groups: &SampleGroups) -> Result<()> {
        let ModeParams { levels, first, per_step, least, scale, .. } = self.params;
        let has_levels = f32::from(u8::from(self.levels.is_some()));
        let own = [levels[0], levels[1], levels[2], first, per_step, least, scale, has_levels];
        let mut numbers = own.map(f64::from);
        groups.share_numbers(&mut numbers)?;
        let [a, b, c, first, per_step, least, scale, has_levels] = numbers.map(|x| x as f32);
        self.params = ModeParams { levels: [a, b, c, levels[3]], first, per_step, least, scale, ..self.params };
        let [modes, cells] = &self.spaces;
        groups.share(rank, 0, Vector::over(modes, vec![Contents::Device(self.amplitude.clone())])?)?;
        if has_levels == 0.0 {
            self.levels = None;
            return Ok(());
        }
        let (precision, many) = match self.levels.take() {
            Some(levels) => levels,
            None => {
                (Vector::zeros(&mut rank.recorder, cells)?.single()?.clone(), Hartley::new(rank, &self.batches[1])?)
            }
        };
        groups.share(rank, 0, Vector::over(cells, vec![Contents::Device(precision.clone())])?)?;
        self.levels = Some((precision, many));
        Ok(())
    }
}

impl Precondition<Rank> for ModePreconditioner {
    fn apply(&self, rank: &mut Rank, r: &Vector, out: &mut Vector) -> Result<()> {
        let (r, out) = (r.array(&self.leaf)?, out.array(&self.leaf)?);
        let [many_modes, many_cells] = &self.batches;
        let mut modes = Vector::new(&rank.gpu, many_modes)?;
        self.record(rank, SPREAD, &[&self.amplitude, r, modes.single()?])?;
        if let Some((precision, hartley)) = &self.levels {
            let mut cells = Vector::new(&rank.gpu, many_cells)?;
            hartley.run(rank, Direction::Adjoint, &modes, &mut cells)?;
            self.record(rank, WEIGH, &[precision, cells.single()?])?;
            hartley.run(rank, Direction::Forward, &cells, &mut modes)?;
        }
        self.record(rank, GATHER, &[&self.amplitude, modes.single()?, out])?;
        Ok(())
    }
}

/// Products with the metric.
const PROBES: u32 = 4;

/// Bins of wavenumbers, at most.
const BINS: f64 = 4096.0;

/// The preconditioner of cells whose modes data know by their wavenumbers.
///
/// White noise at cells that an evolution filters, as in a simulation, has a metric that is about
/// diagonal in modes: `1 + d(k)`. Products with fields `v` of random signs give `d`, the ratio of
/// `Re(H v H M v)` to `(H v)^2` over the modes of a bin of wavenumbers, with the Hartley transform
/// `H`. With `n` cells
/// ```text
/// P = H 1 / (1 + d(k)) H / n
/// ```
/// Cost of a product with `P`: two transforms and a dispatch that moves 12 bytes for each mode.
pub(super) struct FilterPreconditioner {
    leaf: String,
    modes: Space,
    hartley: Hartley,
    /// From a number for each bin to modes.
    bins: Gather,
    /// `d` of each bin.
    precision: Vec<f64>,
    /// `1 / (n (1 + d))` and `1 / (n sqrt(1 + d))` of each mode.
    weights: [Vector; 2],
}

impl FilterPreconditioner {
    /// Creates the part of a leaf at the cells of a mesh.
    pub fn new(rank: &mut Rank, leaf: String, mesh: &Mesh) -> Result<Self> {
        let [modes, cells] = [Leaf::modes(mesh), Leaf::cells(mesh)].map(|own| Space::of("field", own));
        let (modes, cells) = (modes?, cells?);
        let (shape, size) = (mesh.shape(), mesh.size());
        let axes = || (0..3).filter(|&axis| shape[axis] > 1);
        let most = axes().map(|axis| (PI * shape[axis] as f64 / size[axis]).powi(2)).sum::<f64>().sqrt();
        let first = axes().map(|axis| 2.0 * PI / size[axis]).fold(f64::INFINITY, f64::min).max(most / BINS);
        // The mode 0 has a bin of its own.
        let count = if first.is_finite() { (most / first).ceil() as u64 + 2 } else { 1 };
        let first = if first.is_finite() { first } else { 1.0 };
        let edges: Vec<f64> =
            (0..=count).map(|edge| if edge == 0 { 0.0 } else { (edge as f64 - 0.5) * first }).collect();
        let bins = Wavenumbers::edges(mesh, &edges)?.amplitudes(rank, &modes)?;
        let weights = [Vector::new(&rank.gpu, &modes)?, Vector::new(&rank.gpu, &modes)?];
        let precision = vec![0.0; count as usize];
        Ok(FilterPreconditioner { leaf, modes, hartley: Hartley::new(rank, &cells)?, bins, precision, weights })
    }

    /// Fills the weights of modes from the precision of bins.
    fn weigh(&mut self, rank: &mut Rank) -> Result<()> {
        let total = self.modes.only().map_or(1, |(_, leaf)| leaf.total()) as f64;
        for (power, weights) in [1.0, 0.5].into_iter().zip(&mut self.weights) {
            let values: Vec<f64> = self.precision.iter().map(|d| (1.0 + d).powf(-power) / total).collect();
            let mut of_bins = Vector::new(&rank.gpu, &self.bins.signature().domain)?;
            of_bins.set(&mut rank.recorder, "amplitudes", &values)?;
            self.bins.run(rank, Direction::Forward, &of_bins, weights)?;
        }
        Ok(())
    }

    /// Computes `out = H w H v` of a part.
    fn filter(&self, rank: &mut Rank, weights: &Vector, v: &Vector, out: &Vector) -> Result<()> {
        let cells = &self.hartley.signature().domain;
        let of = |vector: &Vector| Vector::over(cells, vec![Contents::Device(vector.array(&self.leaf)?.clone())]);
        let (v, mut out) = (of(v)?, of(out)?);
        let [mut modes, mut weighted] = [Vector::new(&rank.gpu, &self.modes)?, Vector::new(&rank.gpu, &self.modes)?];
        self.hartley.run(rank, Direction::Forward, &v, &mut modes)?;
        rank.multiply(1.0, [weights, &modes], 0.0, &mut weighted)?;
        Ok(self.hartley.run(rank, Direction::Adjoint, &weighted, &mut out)?)
    }
}

impl FieldPreconditioner<Rank> for FilterPreconditioner {
    fn part(&self) -> &str {
        &self.leaf
    }

    fn build(&mut self, rank: &mut Rank, metric: &mut Metric<'_, Rank>, stream: Stream, like: &Vector) -> Result<()> {
        let cells = self.hartley.signature().domain.clone();
        let [mut products, mut squares] =
            [Vector::zeros(&mut rank.recorder, &self.modes)?, Vector::zeros(&mut rank.recorder, &self.modes)?];
        let [mut of_signs, mut of_product] =
            [Vector::new(&rank.gpu, &self.modes)?, Vector::new(&rank.gpu, &self.modes)?];
        for probe in 0..PROBES {
            let mut signs = Vector::new(&rank.gpu, &cells)?;
            rank.white_noise(stream.below([probe, 0, 0]), &mut signs)?;
            rank.map(Elementwise::Sign, &mut signs)?;
            let mut v = Vector::zeros(&mut rank.recorder, like.space())?;
            let mut own = Vector::over(&cells, vec![Contents::Device(v.array(&self.leaf)?.clone())])?;
            rank.vector_axpby(1.0, &signs, 0.0, &mut own)?;
            v.put(own);
            let mut product = rank.like(like)?;
            metric(rank, &v, &mut product)?;
            let product = Vector::over(&cells, vec![Contents::Device(product.array(&self.leaf)?.clone())])?;
            self.hartley.run(rank, Direction::Forward, &signs, &mut of_signs)?;
            self.hartley.run(rank, Direction::Forward, &product, &mut of_product)?;
            rank.multiply(1.0, [&of_signs, &of_product], 1.0, &mut products)?;
            rank.multiply(1.0, [&of_signs, &of_signs], 1.0, &mut squares)?;
        }
        let mut sums = |modes: &Vector| -> Result<Vec<f64>, OperatorError> {
            let mut of_bins = Vector::new(&rank.gpu, &self.bins.signature().domain)?;
            self.bins.run(rank, Direction::Adjoint, modes, &mut of_bins)?;
            of_bins.get(&mut rank.recorder, "amplitudes")
        };
        let (products, squares) = (sums(&products)?, sums(&squares)?);
        for (precision, (product, square)) in self.precision.iter_mut().zip(products.iter().zip(&squares)) {
            let ratio =
                InferenceError::finite("the precision of modes", if *square > 0.0 { product / square } else { 0.0 })?;
            *precision = ratio.max(0.0);
        }
        self.weigh(rank)
    }

    fn root(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<()> {
        self.filter(rank, &self.weights[1], v, out)
    }

    fn numbers(&self) -> &[f64] {
        &self.precision
    }

    fn restore(&mut self, rank: &mut Rank, numbers: &[f64]) -> Result<()> {
        self.precision.copy_from_slice(numbers);
        self.weigh(rank)
    }

    fn share(&mut self, rank: &mut Rank, groups: &SampleGroups) -> Result<()> {
        groups.share_numbers(&mut self.precision)?;
        self.weigh(rank)
    }
}

impl Precondition<Rank> for FilterPreconditioner {
    fn apply(&self, rank: &mut Rank, r: &Vector, out: &mut Vector) -> Result<()> {
        self.filter(rank, &self.weights[0], r, out)
    }
}
