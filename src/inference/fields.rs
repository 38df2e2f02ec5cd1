//! Fields of a rank as vectors, and stacks of them: several vectors as one, on which each dispatch
//! works at once.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device_directions::DeviceDirections;
use super::device_steps::DeviceSteps;
use super::error::{InferenceError, Result};
use super::vector_space::{
    AddDirections, CgVectors, Directions, Elementwise, Reduction, Share, Staged, StepScalars, Stream, VectorSpace,
    no_part,
};
use crate::exchange::of_values;
use crate::gpu::{self, Array, DeviceError, Kernel, KernelCache, KernelSource, RawArray, Recorder, Trust};
use crate::grid::volume;
use crate::host_memory;
use crate::operators::{
    Contents, Leaf, Model, OperatorError, PointOrder, PointwiseOperator, Space, Support, Vector, VectorSum,
};
use crate::pm::{device_point_noise, device_white_noise};
use crate::random::fill_white_noise;
use crate::rank::{PlanKey, Rank};

/// Values of this rank in all vectors that are computed together. A step of more takes longer than
/// its dispatches and waits, so memory for more would gain nothing.
const TOGETHER: u64 = 1 << 22;

impl VectorSpace for Rank {
    type Vector = Vector;

    fn like(&mut self, x: &Vector) -> Result<Vector> {
        Ok(Vector::joined(&mut self.recorder, x.space())?)
    }

    fn zeros(&mut self, x: &Vector) -> Result<Vector> {
        Ok(Vector::zeros(&mut self.recorder, x.space())?)
    }

    fn axpby(&mut self, a: f64, x: &Vector, b: f64, y: &mut Vector) -> Result<()> {
        Ok(self.vector_axpby(a, x, b, y)?)
    }

    fn multiply(&mut self, a: f64, xz: [&Vector; 2], b: f64, y: &mut Vector) -> Result<()> {
        Ok(self.vector_multiply(a, xz, b, y)?)
    }

    fn map(&mut self, function: Elementwise, x: &mut Vector) -> Result<()> {
        let text = match function {
            Elementwise::Sqrt => "fn f(x: f32) -> f32 { return sqrt(max(x, 0.0)); }",
            Elementwise::Sign => "fn f(x: f32) -> f32 { return select(-1.0, 1.0, x >= 0.0); }",
            Elementwise::Deviation => "fn f(x: f32) -> f32 { return inverseSqrt(1.0 + max(x, 0.0)); }",
        };
        for run in x.runs(&[], |_| true) {
            let flat = Space::of("x", Leaf::vector(run[0].len()))?;
            let map = Model::new(PointwiseOperator::wgsl(text, "f", &flat, "y")?);
            let mapped = map.value(self, &Vector::over(&flat, vec![Contents::Device(run[0].clone())])?)?;
            self.recorder.copy(mapped.array("y")?, 0, &run[0], 0, run[0].len())?;
        }
        for own in x.contents_mut() {
            if let Contents::Host(values) = own {
                values.iter_mut().for_each(|x| *x = function.of(*x));
            }
        }
        Ok(())
    }

    fn add(&mut self, parts: Option<&[String]>, terms: &[(f64, &Vector)], y: &mut Vector) -> Result<()> {
        let space = parts.map_or_else(|| y.space().clone(), |parts| among(y.space(), parts));
        let mut own = y.part(&space, "add")?;
        let parts = terms.iter().map(|(a, x)| Ok((*a, x.part(&space, "add")?)));
        let parts: Vec<(f64, Vector)> = parts.collect::<Result<_, OperatorError>>()?;
        self.vector_add(&parts, &mut own)?;
        y.put(own);
        Ok(())
    }

    fn reduce(&mut self, what: &[Reduction<'_, Vector>]) -> Result<Vec<f64>> {
        // Vectors of the parts of reductions over some parts.
        let restricted = |reduction: &Reduction<'_, Vector>| match reduction {
            Reduction::DotOver(parts, x, y) => {
                let space = among(x.space(), parts);
                Ok(Some([x.part(&space, "dot")?, y.part(&space, "dot")?]))
            }
            _ => Ok::<_, InferenceError>(None),
        };
        let parts = what.iter().map(restricted).collect::<Result<Vec<_>, _>>()?;
        let terms: Vec<VectorSum<'_>> = what
            .iter()
            .zip(&parts)
            .map(|(reduction, parts)| match (reduction, parts) {
                (_, Some([x, y])) => VectorSum::Products([x, y]),
                (Reduction::Dot(x, y) | Reduction::DotOver(_, x, y), None) => VectorSum::Products([x, y]),
                (Reduction::Norm1(x), None) => VectorSum::Magnitudes(x),
                (Reduction::Sum(x), None) => VectorSum::Values(x),
            })
            .collect();
        match self.vector_reductions(&terms) {
            Err(OperatorError::NotFinite { what, value, .. }) => Err(InferenceError::NotFinite { what, value }),
            found => Ok(found?),
        }
    }

    fn epsilon(&self) -> f64 {
        f64::from(f32::EPSILON)
    }

    fn len(&self, x: &Vector) -> u64 {
        x.space().total_numbers()
    }

    fn white_noise(&mut self, stream: Stream, out: &mut Vector) -> Result<()> {
        let space = out.space().clone();
        for (number, ((name, leaf), own)) in space.leaves().zip(out.contents_mut()).enumerate() {
            // Each field of a batch and each component has a stream of its own; a leaf is known by
            // its place among the names.
            let streams = (0..leaf.fields() as u32).map(|field| stream.below([number as u32, field, 0]).0);
            if let (Contents::Device(array), Support::Points { order: PointOrder::Numbers(numbers), .. }) =
                (&*own, &leaf.support)
            {
                if leaf.numbers() > 1 {
                    let why = "noise of complex numbers at numbered points; give them as two components".into();
                    return Err(InferenceError::Invalid { what: "white noise".into(), why });
                }
                let noise = |recorder: &mut Recorder, seed, out: &Array<f32>| {
                    device_point_noise(recorder, seed, (numbers.array(), numbers.get()), out)
                };
                fill_each(&mut self.recorder, streams, array, noise)?;
                continue;
            }
            let share = share_of(self, name, leaf)?;
            match own {
                Contents::Device(array) => fill(&mut self.recorder, &share, streams, array)?,
                Contents::Host(values) => {
                    let places = leaf.places();
                    let noise = streams.flat_map(|seed| (0..places).map(move |i| crate::random::white_noise(seed, i)));
                    values.iter_mut().zip(noise).for_each(|(value, noise)| *value = noise);
                }
            }
        }
        Ok(())
    }

    fn parts(&self, x: &Vector) -> Vec<(String, u64)> {
        x.space().leaves().map(|(name, leaf)| (name.to_string(), leaf.total())).collect()
    }

    fn clear_part(&mut self, name: &str, x: &mut Vector) -> Result<()> {
        let Some(at) = x.space().position(name) else { return Err(no_part(name, &VectorSpace::parts(self, x))) };
        match &mut x.contents_mut()[at] {
            Contents::Device(array) => self.recorder.clear(array),
            Contents::Host(values) => values.fill(0.0),
        }
        Ok(())
    }

    fn shares(&self, x: &Vector) -> Result<Vec<Share>> {
        x.space().leaves().map(|(name, leaf)| share_of(self, name, leaf)).collect()
    }

    fn submit(&mut self) -> Result<()> {
        self.recorder.submit()?;
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.recorder.wait()?;
        self.gpu.trim();
        Ok(())
    }

    fn allocated(&self) -> u64 {
        self.gpu.allocated()
    }

    fn concurrency(&self, x: &Vector) -> usize {
        let each = VectorSpace::len(self, x).div_ceil(self.comm.size() as u64).max(1);
        (TOGETHER / each).max(1) as usize
    }

    fn most_stacked(&mut self, x: &Vector) -> usize {
        // Values on the host or on other ranks take part in the work.
        let is_on_device = x.contents().iter().all(|contents| contents.on_device().is_some());
        let is_possible = self.comm.size() == 1 && is_on_device && works(self, x).load(Ordering::Relaxed);
        let most = if is_possible { gpu::MOST_COPIES as usize } else { 1 };
        most.min(self.concurrency(x))
    }

    fn stacked(&mut self, x: &Vector, copies: usize, work: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<bool> {
        if self.comm.size() > 1 {
            return Ok(false);
        }
        let made = gpu::stacked(copies.try_into().unwrap_or(u32::MAX), || work(self))?.is_some();
        if !made {
            tracing::debug!(rank = self.index(), copies, "vectors are computed one by one");
            works(self, x).store(false, Ordering::Relaxed);
        }
        Ok(made)
    }

    fn entry(&mut self, stack: &Vector, number: usize) -> Result<Vector> {
        has(stack, &(number..number.saturating_add(1)))?;
        let one = |contents: &Contents| match contents {
            Contents::Device(array) => Contents::Device(array.entry(number as u32)),
            Contents::Host(values) => Contents::Host(values.clone()),
        };
        Ok(Vector::over(stack.space(), stack.contents().iter().map(one).collect())?)
    }

    fn sum_of_entries(&mut self, stack: &Vector, entries: Range<usize>) -> Result<Vector> {
        has(stack, &entries)?;
        if !entries.len().is_power_of_two() {
            let why = format!("expected a power of two of neighboring vectors, got {entries:?}");
            return Err(InferenceError::Invalid { what: "a sum of stacked vectors".into(), why });
        }
        let out = Vector::joined(&mut self.recorder, stack.space())?;
        let kernels: Arc<TreeKernels> = self.shared();
        for run in stack.runs(&[&out], |_| true) {
            let [x, y] = &run[..] else { continue };
            let (x, stride) = x.raw().all_copies();
            let arrays = [&x, y.raw()];
            let quads = RawArray::in_quads(&arrays).filter(|_| stride.is_multiple_of(4));
            let each = if quads.is_some() { 4 } else { 1 };
            let key = (entries.len().ilog2(), quads.is_some());
            let kernel: Arc<Kernel> = kernels.0.get(key, Trust::Library, || source(key.0, key.1));
            let arrays = quads.as_deref().map_or(arrays, |quads| [&quads[0], &quads[1]]);
            let (count, first) = (y.len() / each, entries.start as u32);
            let params = CopiesParams { count: count as u32, stride: (stride / each) as u32, first };
            self.recorder.each(&kernel, &arrays, &params, count)?;
        }
        Ok(out)
    }

    fn waits(&self) -> u64 {
        self.recorder.counts().downloads
    }

    fn step_scalars(
        &mut self,
        solves: &[&CgVectors<'_, Vector>],
        has_norm: bool,
    ) -> Result<Option<Box<dyn StepScalars<Self, Vector>>>> {
        let found = DeviceSteps::new(self, solves, has_norm)?;
        Ok(found.map(|own| Box::new(own) as Box<dyn StepScalars<Self, Vector>>))
    }

    fn directions(&mut self, from: &Directions<Vector>) -> Result<Option<Box<dyn AddDirections<Self, Vector>>>> {
        let found = DeviceDirections::new(self, from)?;
        Ok(found.map(|own| Box::new(own) as Box<dyn AddDirections<Self, Vector>>))
    }

    fn stage(&mut self, x: &Vector) -> Result<Staged> {
        let doubles = x.contents().iter().filter_map(Contents::on_host).flatten().copied().collect();
        Ok(Staged { singles: x.download(&mut self.recorder)?, doubles })
    }

    fn unstage(&mut self, from: &Staged, x: &mut Vector) -> Result<()> {
        let (mut singles, mut doubles) = (0, 0);
        x.contents().iter().for_each(|contents| match contents {
            Contents::Device(array) => singles += array.len() as usize,
            Contents::Host(values) => doubles += values.len(),
        });
        let given = [from.singles.len(), from.doubles.len()];
        if given != [singles, doubles] {
            let why = format!(
                "{given:?} numbers in f32 and f64 are given, a rank has {singles} and {doubles}; was it written on other ranks?"
            );
            return Err(InferenceError::Invalid { what: "staged fields".into(), why });
        }
        x.upload(&mut self.recorder, &from.singles)?;
        let mut rest = &from.doubles[..];
        for contents in x.contents_mut() {
            if let Contents::Host(values) = contents {
                let own;
                (own, rest) = rest.split_at(values.len());
                values.copy_from_slice(own);
            }
        }
        Ok(())
    }
}

/// Returns the leaves of some parts, in the order of the space.
fn among(space: &Space, parts: &[String]) -> Space {
    space.filtered(|name| parts.iter().any(|part| part == name))
}

/// Returns the part of a leaf on this rank.
fn share_of(rank: &Rank, name: &str, leaf: &Leaf) -> Result<Share> {
    let line = |first: u64, len: u64, total: u64| ([1, 1, total], [0..1, 0..1, first..first + len]);
    let (mut shape, mut own) = match &leaf.support {
        Support::Cells { mesh } if mesh.has_ghosts() => {
            let why = format!("leaf `{name}` has ghost cells; noise and states are of cells that each are one rank's");
            return Err(InferenceError::Invalid { what: "fields as vectors".into(), why });
        }
        Support::Cells { mesh } => (mesh.shape(), mesh.own().clone()),
        Support::Modes { mesh, half } => {
            let [n0, n1, n2] = mesh.shape();
            ([n0, n1, if *half { n2 / 2 + 1 } else { n2 }], mesh.modes(*half))
        }
        Support::Points { order, .. } if *order != PointOrder::Ranks && rank.comm.size() > 1 => {
            let why = format!(
                "leaf `{name}` is {leaf}, which stand in an order that goes by ranks; a state of several ranks is of points of one \
                 order, or one rank holds all"
            );
            return Err(InferenceError::Invalid { what: "fields as vectors".into(), why });
        }
        // Points stand one rank after the other.
        Support::Points { own, total, .. } => {
            let mut first = [*own];
            rank.comm.scan_exclusive(&mut first, crate::comm::Op::Sum)?;
            line(first[0], *own, *total)
        }
        Support::Vector { len } | Support::Parameters { len } => line(0, *len, *len),
    };
    // The two numbers of a complex one stand side by side.
    let numbers = leaf.numbers();
    shape[2] *= numbers;
    own[2] = numbers * own[2].start..numbers * own[2].end;
    let is_double = leaf.is_on_host();
    Ok(Share { shape, own, fields: leaf.fields(), is_replicated: !leaf.is_distributed(), is_double })
}

/// Fills the fields of `array` by `noise`, one for each stream.
fn fill_each(
    recorder: &mut Recorder,
    mut streams: impl ExactSizeIterator<Item = u64>,
    array: &Array<f32>,
    noise: impl Fn(&mut Recorder, u64, &Array<f32>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let fields = streams.len().max(1) as u64;
    if fields == 1 {
        return streams.try_for_each(|seed| noise(recorder, seed, array));
    }
    let count = array.len() / fields;
    let one = recorder.gpu().array("inference::noise", count)?;
    for (seed, field) in streams.zip(0..) {
        noise(recorder, seed, &one)?;
        recorder.copy(&one, 0, array, field * count, count)?;
    }
    Ok(())
}

/// Numbers of a replicated leaf whose noise the host computes: waits and transfers of the device
/// take longer than their logarithms.
const HOST_NOISE: u64 = 4096;

/// Fills `array` with one field for each stream, on the device. Waits for the device once for each
/// stream.
///
/// The host computes short replicated leaves, such as hyper-parameters. Both give the same bits.
fn fill(
    recorder: &mut Recorder,
    share: &Share,
    streams: impl ExactSizeIterator<Item = u64>,
    array: &Array<f32>,
) -> Result<()> {
    if share.is_replicated && array.len() <= HOST_NOISE {
        let mut values = host_memory::zeros("white noise", array.len() as usize)?;
        let fields = values.chunks_mut(volume(&share.own).max(1) as usize);
        fields.zip(streams).for_each(|(field, seed)| fill_white_noise(seed, 0, field));
        return Ok(recorder.upload(array, 0, &values)?);
    }
    let noise = |recorder: &mut Recorder, seed, out: &Array<f32>| {
        device_white_noise(recorder, seed, share.shape, &share.own, out)
    };
    Ok(fill_each(recorder, streams, array, noise)?)
}

/// Whether work on vectors of a space could be recorded for several at once until now.
#[derive(PartialEq)]
struct StackKey(Space);

impl PlanKey for StackKey {
    type Plan = AtomicBool;
}

fn works(rank: &mut Rank, like: &Vector) -> Arc<AtomicBool> {
    let Ok(works) = rank.plan(StackKey(like.space().clone()), |_| Ok::<_, Infallible>(AtomicBool::new(true)));
    works
}

/// Refuses entries that a stack does not have.
fn has(stack: &Vector, entries: &Range<usize>) -> Result<()> {
    let arrays = stack.contents().iter().filter_map(Contents::on_device);
    let copies = arrays.map(|array| array.raw().copies() as usize).min().unwrap_or(1);
    if entries.end <= copies {
        return Ok(());
    }
    let why = format!("expected vectors 0 to {}, got {entries:?}", copies - 1);
    Err(InferenceError::Invalid { what: "a stack of vectors".into(), why })
}

crate::gpu::kernel_params! {
    struct CopiesParams {
        count: u32,
        stride: u32,
        first: u32,
    }
}

/// Returns the kernel of the sum of `1 << level` copies.
fn source(level: u32, quads: bool) -> KernelSource {
    let mut terms: Vec<String> = (0..1 << level).map(|number| format!("copy(i, {number}u)")).collect();
    while terms.len() > 1 {
        terms = terms.chunks(2).map(|pair| format!("({})", pair.join(" + "))).collect();
    }
    let tree = format!("fn sum_of_copies(i: u32) -> Value {{ return {}; }}\n", terms.concat());
    let text = include_str!("../../shaders/inference/sum_of_copies.wgsl");
    of_values(KernelSource::new("inference::sum_of_copies", text), quads)
        .params::<CopiesParams>()
        .module("inference::tree", tree)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    let levels = 0..=gpu::MOST_COPIES.ilog2();
    levels.flat_map(|level| [false, true].map(|quads| source(level, quads))).collect()
}

#[derive(Default)]
struct TreeKernels(KernelCache<(u32, bool)>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Gpu, Options};

    #[test]
    fn long_replicated_leaves_have_the_noise_of_the_host() {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        let mut recorder = Recorder::new(&gpu).unwrap();
        // On the host, on the device, and on the device for each of two fields.
        for (len, seeds) in [(HOST_NOISE, &[7][..]), (HOST_NOISE + 1, &[7]), (HOST_NOISE - 1, &[7, 9])] {
            let (shape, own, fields) = ([1, 1, len], [0..1, 0..1, 0..len], seeds.len() as u64);
            let share = Share { shape, own, fields, is_replicated: true, is_double: false };
            let array = gpu.array::<f32>("noise", len * fields).unwrap();
            fill(&mut recorder, &share, seeds.iter().copied(), &array).unwrap();
            let found = recorder.download(&array, 0, array.len()).unwrap();
            let mut wanted = vec![0.0; found.len()];
            wanted.chunks_mut(len as usize).zip(seeds).for_each(|(field, &seed)| fill_white_noise(seed, 0, field));
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&found), bits(&wanted), "{len} x {fields}");
        }
    }
}
