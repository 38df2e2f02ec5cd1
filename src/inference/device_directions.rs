//! Directions of a preconditioner on the device of one rank, which never wait for the host.
//!
//! A product takes seven dispatches: the greatest magnitudes of the products of `r` with all
//! directions and their sums, the scalars, the update of the other parts with the magnitudes of
//! its products, their sums, the scalars, and the update of all parts. With `k` directions of `n`
//! elements it reads `12 k n` bytes of directions, and `16 k` bytes for each element of the other
//! parts. Sums and scalars have the bits of the host's, as those of `device_steps.rs`.

use std::cell::Cell;
use std::sync::Arc;

use super::device_steps::{single, words_of};
use super::error::Result;
use super::vector_space::{AddDirections, Directions, VectorSpace};
use crate::exchange::{Division, FIXED, bits_for, of_values};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray};
use crate::operators::{Contents, PART_BEGINS, Vector};
use crate::rank::Rank;

/// Directions at most.
const MOST: usize = 16;

/// Directions that kernels are written for: a software renderer takes as long for a direction that
/// is not there, and the first preconditioner of a fit has few.
const WRITTEN: [usize; 2] = [4, MOST];

/// Words of `direction_words.wgsl`.
const WORDS: usize = 12 * MOST;

/// Products that can be recorded side by side: each takes words of its own, in turn.
const TURNS: usize = 16;

crate::gpu::kernel_params! {
    struct DirectionParams {
        /// Elements of a vector.
        count: u32,
        directions: u32,
        /// Runs of elements of fields, and of all parts.
        field_tiles: u32,
        tiles: u32,
        /// Workgroups of fields.
        field_groups: u32,
        /// Elements of an invocation.
        per: u32,
        /// Bits of a term of a sum over fields, and over the other parts.
        field_bits: u32,
        other_bits: u32,
    }
}

crate::gpu::kernel_params! {
    struct FactorParams {
        scale: [u32; 4],
        directions: u32,
        field_bits: u32,
        other_bits: u32,
    }
}

const DIRECTION_WORDS: &str = include_str!("../../shaders/inference/direction_words.wgsl");

/// Passes over directions and a vector.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Measure,
    Add,
    UpdateAndMeasure,
    Update,
}

const PASSES: [Pass; 4] = [Pass::Measure, Pass::Add, Pass::UpdateAndMeasure, Pass::Update];

fn pass(pass: Pass, written: usize, quads: bool) -> KernelSource {
    let text = include_str!("../../shaders/inference/directions.wgsl");
    of_values(KernelSource::new("inference::directions", text), quads)
        .params::<DirectionParams>()
        .module("inference::direction_words", DIRECTION_WORDS)
        .flag("updates", matches!(pass, Pass::UpdateAndMeasure | Pass::Update))
        .flag("measures", matches!(pass, Pass::Measure | Pass::UpdateAndMeasure))
        .flag("adds", pass == Pass::Add)
        .constant("DIRECTIONS", MOST as u32)
        .constant("TILE", (PART_BEGINS / if quads { 4 } else { 1 }) as u32)
        .repeat('$', written as u32)
}

fn factors(first: bool) -> KernelSource {
    KernelSource::new("inference::direction_scalars", include_str!("../../shaders/inference/direction_scalars.wgsl"))
        .params::<FactorParams>()
        .module("gpu::fixed", FIXED)
        .module("gpu::soft_double", include_str!("../../shaders/gpu/soft_double.wgsl"))
        .module("inference::direction_words", DIRECTION_WORDS)
        .flag("first", first)
        .constant("DIRECTIONS", MOST as u32)
        .group(MOST as u32)
        .loop_rounds(256)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    let passes = |quads| WRITTEN.into_iter().flat_map(move |written| PASSES.map(|own| pass(own, written, quads)));
    let passes = passes(false).chain(passes(true));
    passes.chain([true, false].map(factors)).collect()
}

struct DirectionKernels {
    /// By whether elements are four numbers, by [`WRITTEN`], and in the order of [`PASSES`].
    passes: [[[Kernel; 4]; 2]; 2],
    /// From the sums with `r`, and from those with the updated vector.
    factors: [Kernel; 2],
}

impl Default for DirectionKernels {
    fn default() -> Self {
        let passes = |written, quads| PASSES.map(|own| Kernel::trusted(pass(own, written, quads)));
        DirectionKernels {
            passes: [false, true].map(|quads| WRITTEN.map(|written| passes(written, quads))),
            factors: [true, false].map(|first| Kernel::trusted(factors(first))),
        }
    }
}

/// Directions whose vectors are one array each.
pub(super) struct DeviceDirections {
    kernels: Arc<DirectionKernels>,
    directions: Array<f32>,
    tiles: Array<u32>,
    matrices: Array<u32>,
    /// Words of several products.
    words: Vec<Array<u32>>,
    next: Cell<usize>,
    params: DirectionParams,
    scale: f64,
}

impl DeviceDirections {
    /// Copies directions to one array; `None` if the host must take part: on several ranks, and
    /// for vectors that are not one array each.
    pub fn new(rank: &mut Rank, from: &Directions<Vector>) -> Result<Option<Self>> {
        let arrays: Option<Vec<_>> = from.vectors.iter().map(single).collect();
        let (Some(arrays), 1, 1..=MOST) = (arrays, rank.comm.size(), from.vectors.len()) else { return Ok(None) };
        let count = arrays[0].len();
        if arrays.iter().any(|array| array.len() != count) {
            return Ok(None);
        }
        let directions = rank.gpu.array("inference::directions", count * arrays.len() as u64)?;
        if directions.raw().windows() > 1 {
            return Ok(None);
        }
        for (array, number) in arrays.iter().zip(0..) {
            rank.recorder.copy(array, 0, &directions, number * count, count)?;
        }
        let begin = arrays[0].raw().start();
        let [fields, others] = [&from.fields, &from.others].map(|parts| tiles(&from.vectors[0], begin, parts));
        let bits = |parts: &[String]| bits_for("preconditioner", values(&from.vectors[0], parts));
        let params = DirectionParams {
            count: count as u32,
            directions: arrays.len() as u32,
            field_tiles: fields.len() as u32,
            tiles: (fields.len() + others.len()) as u32,
            field_groups: 0,
            per: 0,
            field_bits: bits(&from.fields)?,
            other_bits: bits(&from.others)?,
        };
        let kernels = rank.shared();
        let tiles = rank.recorder.uploaded("inference::direction_numbers", &[fields, others].concat())?;
        let numbers = from.inner.iter().chain(&from.coarse).flatten().flat_map(|&number| words_of(number));
        let matrices = rank.recorder.uploaded("inference::direction_numbers", &numbers.collect::<Vec<_>>())?;
        let words = (0..TURNS).map(|_| rank.gpu.array("inference::direction_words", WORDS as u64));
        let words: Vec<Array<u32>> = words.collect::<Result<_, _>>()?;
        words.iter().for_each(|words| rank.recorder.clear(words));
        let (next, scale) = (Cell::new(0), from.scale);
        Ok(Some(DeviceDirections { kernels, directions, tiles, matrices, words, next, params, scale }))
    }

    /// Records a pass over the other parts, or over all.
    fn record(
        &self,
        rank: &mut Rank,
        (pass, over_all): (Pass, bool),
        y: &Array<f32>,
        words: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let [fields, all] = [self.params.field_tiles, self.params.tiles].map(u64::from);
        let numbers = [self.directions.raw(), y.raw()];
        let quads = RawArray::in_quads(&numbers);
        let each = if quads.is_some() { 4 } else { 1 };
        let [directions, y] = quads.as_deref().map_or(numbers, |quads| [&quads[0], &quads[1]]);
        let tile = PART_BEGINS / each;
        let least = u64::from(rank.gpu.workgroup_shape().items);
        let division = Division::new(&rank.recorder, all * tile, quads.is_some(), least);
        let groups = |tiles: u64| division.groups(tiles * tile);
        let field_groups = if over_all { groups(fields) } else { 0 };
        let (per, count) = (division.per as u32, self.params.count / each as u32);
        let params = DirectionParams { field_groups: field_groups as u32, per, count, ..self.params };
        let arrays = [directions, self.tiles.raw(), y, words.raw()];
        let written = usize::from(self.params.directions as usize > WRITTEN[0]);
        rank.recorder.dispatch(
            &self.kernels.passes[usize::from(quads.is_some())][written][pass as usize],
            &arrays,
            &params,
            field_groups + groups(all - fields),
        )
    }

    /// Records the factors of an update.
    fn factors(&self, rank: &mut Rank, first: bool, words: &Array<u32>) -> Result<(), DeviceError> {
        let DirectionParams { directions, field_bits, other_bits, .. } = self.params;
        let params = FactorParams { scale: words_of(self.scale), directions, field_bits, other_bits };
        match first {
            true => rank.recorder.dispatch(&self.kernels.factors[0], &[self.matrices.raw(), words.raw()], &params, 1),
            false => rank.recorder.dispatch(&self.kernels.factors[1], &[words.raw()], &params, 1),
        }
    }

    /// Records all passes.
    fn add_arrays(&self, rank: &mut Rank, r: &Array<f32>, out: &Array<f32>) -> Result<(), DeviceError> {
        let turn = self.next.get();
        self.next.set((turn + 1) % TURNS);
        let words = &self.words[turn];
        self.record(rank, (Pass::Measure, true), r, words)?;
        self.record(rank, (Pass::Add, true), r, words)?;
        self.factors(rank, true, words)?;
        self.record(rank, (Pass::UpdateAndMeasure, false), out, words)?;
        self.record(rank, (Pass::Add, false), out, words)?;
        self.factors(rank, false, words)?;
        self.record(rank, (Pass::Update, true), out, words)
    }
}

impl AddDirections<Rank, Vector> for DeviceDirections {
    fn add(&self, rank: &mut Rank, r: &Vector, out: &mut Vector) -> Result<()> {
        if let (Some(r), Some(out)) = (single(r), single(out)) {
            return Ok(self.add_arrays(rank, &r, &out)?);
        }
        // A copy is one array.
        let (own, mut sum) = (VectorSpace::copy(rank, r)?, VectorSpace::copy(rank, out)?);
        self.add(rank, &own, &mut sum)?;
        VectorSpace::axpby(rank, 1.0, &sum, 0.0, out)
    }
}

/// Returns the numbers of runs of [`PART_BEGINS`] elements of some parts of a vector whose array
/// begins at `begin`.
fn tiles(vector: &Vector, begin: u64, parts: &[String]) -> Vec<u32> {
    let leaves = vector.space().names().zip(vector.contents()).filter(|(name, _)| parts.iter().any(|p| p == name));
    let mut tiles: Vec<u32> = leaves
        .filter_map(|(_, contents)| match contents {
            Contents::Device(array) => Some(array.raw().start() - begin..array.raw().start() - begin + array.len()),
            Contents::Host(_) => None,
        })
        .flat_map(|range| (range.start / PART_BEGINS) as u32..range.end.div_ceil(PART_BEGINS) as u32)
        .collect();
    tiles.sort_unstable();
    tiles
}

/// Returns the number of values of some parts.
fn values(vector: &Vector, parts: &[String]) -> u64 {
    let leaves = vector.space().leaves().filter(|(name, _)| parts.iter().any(|part| part == name));
    leaves.map(|(_, leaf)| leaf.total()).sum()
}
