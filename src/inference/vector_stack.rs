//! Stacks of vectors of a rank: several vectors of a space as one, on which each dispatch works at
//! once.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{InferenceError, Result};
use crate::exchange::of_values;
use crate::gpu::{self, Kernel, KernelCache, KernelSource, RawArray, Trust};
use crate::operators::{Contents, Space, Vector};
use crate::rank::{PlanKey, Rank};

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

/// Returns how many vectors a stack can have at most; 1 if work on several cannot be recorded at
/// once: values on the host or on other ranks take part in it.
pub(super) fn most(rank: &mut Rank, like: &Vector) -> usize {
    let is_on_device = like.contents().iter().all(|contents| contents.on_device().is_some());
    let is_possible = rank.comm.size() == 1 && is_on_device && works(rank, like).load(Ordering::Relaxed);
    if is_possible { gpu::MOST_COPIES as usize } else { 1 }
}

/// Records work on stacks of `copies` vectors; `false` if that is not possible, as on several
/// ranks.
pub(super) fn stacked(
    rank: &mut Rank,
    like: &Vector,
    copies: usize,
    work: &mut dyn FnMut(&mut Rank) -> Result<()>,
) -> Result<bool> {
    if rank.comm.size() > 1 {
        return Ok(false);
    }
    let made = gpu::stacked(copies.try_into().unwrap_or(u32::MAX), || work(rank))?.is_some();
    if !made {
        tracing::debug!(rank = rank.index(), copies, "vectors are computed one by one");
        works(rank, like).store(false, Ordering::Relaxed);
    }
    Ok(made)
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

/// Returns one of the vectors, which shares the memory of the stack.
pub(super) fn entry(stack: &Vector, number: usize) -> Result<Vector> {
    has(stack, &(number..number.saturating_add(1)))?;
    let one = |contents: &Contents| match contents {
        Contents::Device(array) => Contents::Device(array.entry(number as u32)),
        Contents::Host(values) => Contents::Host(values.clone()),
    };
    Ok(Vector::over(stack.space(), stack.contents().iter().map(one).collect())?)
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

/// Returns the sum of entries of a stack, a power of two of them, in the order of a binary tree.
/// Records one dispatch, which reads each value once.
pub(super) fn sum(rank: &mut Rank, stack: &Vector, entries: Range<usize>) -> Result<Vector> {
    has(stack, &entries)?;
    if !entries.len().is_power_of_two() {
        let why = format!("expected a power of two of neighboring vectors, got {entries:?}");
        return Err(InferenceError::Invalid { what: "a sum of stacked vectors".into(), why });
    }
    let out = Vector::joined(&mut rank.recorder, stack.space())?;
    let kernels: Arc<TreeKernels> = rank.shared();
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
        rank.recorder.each(&kernel, &arrays, &params, count)?;
    }
    Ok(out)
}
