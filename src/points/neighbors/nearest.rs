//! The nearest sources of each query.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::callback;
use super::error::NeighborError;
use super::group_shape::GroupShape;
use super::list;
use super::loop_budget::{LoopBudget, unfinished};
use super::query::{KnnQuery, RowOrder};
use super::targets::Queries;
use super::units::{LEAST, Units};
use super::writer::{self, Params, Shape, Traversal};
use crate::gpu::primitives::Reduce;
use crate::gpu::{
    Access, Array, Callback, CallbackKey, DeviceError, Element, Gpu, Kernel, KernelSource, RawArray, Recorder, Trust,
};
use crate::points::tree::{LEAF, Tree};

/// Bytes of scratch that lists for a callback take at a time.
const SCRATCH: u64 = 64 << 20;

/// Lists of neighbours, `k` entries a row: nearest first, equal squares of distances by index. Where there are fewer, index
/// `u32::MAX` and distance infinity.
#[derive(Clone)]
pub struct Lists {
    /// Entries a row.
    pub k: u32,
    /// Numbers of sources in their cloud.
    pub index: Array<u32>,
    /// Their distances.
    pub distance: Array<f32>,
}

/// What one kernel differs from another by.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Lists { shape: Shape, length: u32, resumed: bool },
    Fused { shape: Shape, length: u32, callback: CallbackKey },
    Fold { callback: CallbackKey },
}

/// Kernels by what they differ by.
pub(super) struct Kernels<K>(Mutex<HashMap<K, Arc<Kernel>>>);

impl<K: Eq + Hash> Kernels<K> {
    pub fn new() -> Self {
        Kernels(Mutex::default())
    }

    pub fn get(&self, key: K, trust: Trust, source: impl FnOnce() -> KernelSource) -> Arc<Kernel> {
        let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kernels.entry(key).or_insert_with(|| Arc::new(Kernel::on_word_of(trust, source()))).clone()
    }
}

/// Searches of the nearest sources (k nearest neighbours).
///
/// - Any `k` up to 1024 at run time: lists of up to 32 are kept in registers (kernels are compiled for 1, 2, 4, 8, 16, 24 and 32),
///   longer ones take a walk for each 32 entries.
/// - The result is unique: entries are in the order of (`f32` square of the distance, index), also among coincident points.
/// - Everything is recorded; nothing submits or waits, except in large trees on drivers that limit loops
///   ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)): there a search asks whether it is done.
///
/// ```
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::points::neighbors::{KnnQuery, Nearest, Queries};
/// use meshloom::points::{Cloud, Domain, Frame};
/// use meshloom::points::tree::Builder;
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let domain = Domain::new(&[10.0, 0.0])?; // periodic along x
/// let cloud = Cloud::from_host(&mut recorder, &domain, &[0.5, 0.0, 9.5, 0.0, 3.0, 0.0])?;
/// let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &Frame::new(&domain, cloud.bounds()))?;
/// let lists = Nearest::new(&gpu).lists(&mut recorder, &tree, Queries::Own, &KnnQuery::nearest(2))?;
/// assert_eq!(recorder.download(&lists.index, 0, 6)?, [0, 1, 1, 0, 2, 0]);
/// assert_eq!(recorder.download(&lists.distance, 0, 6)?, [0.0, 1.0, 0.0, 1.0, 0.0, 2.5]);
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct Nearest {
    form: GroupShape,
    rounds: LoopBudget,
    kernels: Kernels<Key>,
    root: Kernel,
    refine: Kernel,
    reduce: Reduce,
}

impl Nearest {
    /// In the form that suits a device.
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu, GroupShape::of(gpu))
    }

    /// In a given form, which the device must allow.
    pub fn with(gpu: &Gpu, form: GroupShape) -> Self {
        Nearest {
            form,
            rounds: LoopBudget::of(gpu),
            kernels: Kernels::new(),
            root: Kernel::trusted(root()),
            refine: Kernel::trusted(refine()),
            reduce: Reduce::new(),
        }
    }

    /// The same for a driver that ends loops after so many rounds (at least 1024), or never.
    #[must_use]
    pub fn with_rounds(mut self, rounds: Option<u32>) -> Self {
        self.rounds = LoopBudget::new(rounds);
        self
    }

    /// The lists of all queries.
    ///
    /// # Errors
    /// [`NeighborError::TooManyNeighbors`], [`NeighborError::Radius`], [`NeighborError::TooLong`], those of
    /// [`Queries`], and of the device.
    pub fn lists(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        ask: &KnnQuery,
    ) -> Result<Lists, NeighborError> {
        ask.check()?;
        let (gpu, rows) = (recorder.gpu().clone(), queries.len(tree));
        let lists = empty_lists(&gpu, rows, ask.k)?;
        self.fill(recorder, tree, queries, ask, &lists, 0..rows)?;
        Ok(lists)
    }

    /// The lists of the queries number `part` along the curve, one after the other: part of the results at a time, for results
    /// that memory would not hold at once. `ask.rows` plays no part; `part` begins with a multiple of 32.
    ///
    /// # Errors
    /// As [`lists`](Self::lists).
    pub fn lists_of(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        ask: &KnnQuery,
        part: Range<u64>,
    ) -> Result<Lists, NeighborError> {
        ask.check()?;
        let part = part.start..part.end.min(queries.len(tree));
        if part.start % 32 != 0 || part.start > part.end {
            let why = format!("queries {part:?} of {}; the first must be a multiple of 32", queries.len(tree));
            return Err(DeviceError::Misuse { what: "Nearest::lists_of".into(), why }.into());
        }
        let lists = empty_lists(&recorder.gpu().clone(), part.end - part.start, ask.k)?;
        self.fill(recorder, tree, queries, &KnnQuery { rows: RowOrder::Curve, ..*ask }, &lists, part)?;
        Ok(lists)
    }

    /// How many leaves of the tree each group of queries along the curve looks at, besides its own, for up to 32 neighbours: what
    /// a search costs, by group; `u32::MAX` for a group that looks at more of them than the driver lets a walk do at once
    /// ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)). Recorded only.
    ///
    /// # Errors
    /// As [`lists`](Self::lists).
    pub fn leaves(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        ask: &KnnQuery,
    ) -> Result<Array<u32>, NeighborError> {
        ask.check()?;
        let (gpu, rows, length) = (recorder.gpu().clone(), queries.len(tree), list::length(ask.k));
        let ask = KnnQuery { k: ask.k.min(length), ..*ask };
        let units = queries.units(tree, ask.within, f32::INFINITY);
        let shape = queries.shape(self.form, tree, Traversal::NearCounted, &units);
        let kernel = self
            .kernels
            .get(Key::Lists { shape, length, resumed: false }, Trust::Library, || stored(shape, length, false));
        let leaves = gpu.array("neighbors::leaves", rows.div_ceil(self.form.queries()))?;
        let lists = empty_lists(&gpu, rows, ask.k)?;
        let mut params = Params { write: ask.k, ..queries.params(tree, &ask, &units)? };
        if let Some(portions) = self.rounds.portions(self.form, tree.len().div_ceil(LEAF), 0)? {
            (params.rounds, params.leaf_rounds) = (portions.rounds, portions.leaf);
        }
        let arrays = [leaves.raw(), lists.index.raw(), lists.distance.raw()].into_iter();
        self.dispatch(recorder, &kernel, tree, queries, params, arrays, 0..rows)?;
        Ok(leaves)
    }

    /// Calls the functions of `callback` (see [`neighbors`](super)) for the list of each query, without storing lists (they pass through scratch, in parts, if `k` is above
    /// 32). `ask.rows` plays no part.
    ///
    /// # Errors
    /// As [`lists`](Self::lists); [`DeviceError::Misuse`] for a callback without its functions,
    /// [`DeviceError::Shader`] for one that does not compile.
    pub fn visit(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        ask: &KnnQuery,
        callback: &Callback,
    ) -> Result<(), NeighborError> {
        ask.check()?;
        callback::check(callback)?;
        let rows = queries.len(tree);
        let leaves = tree.len().div_ceil(LEAF);
        let units = queries.units(tree, ask.within, f32::INFINITY);
        let whole =
            self.rounds.portions(self.form, leaves, 0)?.is_none() && units.finer(&queries.extent(tree)).is_none();
        if whole && ask.k <= list::LENGTHS[list::LENGTHS.len() - 1] {
            let (shape, length) = (queries.shape(self.form, tree, Traversal::Near, &units), list::length(ask.k));
            let key = Key::Fused { shape, length, callback: callback.key() };
            let kernel = self.kernels.get(key, callback.trust(), || fused(shape, length, callback));
            let params = Params { by_number: 1, write: ask.k, ..queries.params(tree, ask, &units)? };
            return self.dispatch(recorder, &kernel, tree, queries, params, callback.arrays(), 0..rows);
        }
        // A part is a whole number of groups.
        let per = (SCRATCH / (8 * u64::from(ask.k.max(1)))).next_multiple_of(self.form.queries());
        let kernel = self.kernels.get(Key::Fold { callback: callback.key() }, callback.trust(), || fold(callback));
        let ask = KnnQuery { rows: RowOrder::Curve, ..*ask };
        let lists = empty_lists(&recorder.gpu().clone(), per.min(rows), ask.k)?;
        for start in (0..rows).step_by(per as usize) {
            let part = start..(start + per).min(rows);
            self.fill(recorder, tree, queries, &ask, &lists, part.clone())?;
            let params = [part.start as u32, (part.end - part.start) as u32, ask.k, 0];
            let mut arrays = vec![lists.index.raw(), lists.distance.raw(), queries.numbers(tree).raw()];
            arrays.extend(callback.arrays());
            recorder.dispatch(&kernel, &arrays, &params, (part.end - part.start).div_ceil(64))?;
        }
        Ok(())
    }

    /// Fills the rows of `part` of the queries along the curve.
    fn fill(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        ask: &KnnQuery,
        lists: &Lists,
        part: Range<u64>,
    ) -> Result<(), NeighborError> {
        let extent = queries.extent(tree);
        let coarse = queries.units(tree, ask.within, f32::INFINITY);
        let mut all: Vec<Units> = std::iter::successors(Some(coarse), |units| units.finer(&extent)).collect();
        // The finest first: each takes from the one before what is too near for its own unit.
        let mut finer: Option<Lists> = None;
        while let Some(units) = all.pop() {
            let last = all.is_empty();
            if last && finer.is_none() {
                return self.fill_in(recorder, tree, queries, ask, (&units, false), (lists, part));
            }
            let into = match last {
                true => lists.clone(),
                false => Lists {
                    k: lists.k,
                    index: recorder.gpu().array("neighbors::finer", lists.index.len())?,
                    distance: recorder.gpu().array("neighbors::finer", lists.index.len())?,
                },
            };
            self.fill_in(recorder, tree, queries, ask, (&units, finer.is_some()), (&into, part.clone()))?;
            if let Some(finer) = &finer {
                let arrays = [into.index.raw(), into.distance.raw(), finer.index.raw(), finer.distance.raw()];
                let count = (part.end - part.start) * u64::from(ask.k);
                let words = [count as u32, units.unit().to_bits(), f32::INFINITY.to_bits(), LEAST.to_bits()];
                recorder.each(&self.refine, &arrays, &words, count)?;
            }
            finer = Some(into);
        }
        Ok(())
    }

    /// The same in one unit; leaves squares where asked to.
    fn fill_in(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        ask: &KnnQuery,
        (units, keep): (&Units, bool),
        (lists, part): (&Lists, Range<u64>),
    ) -> Result<(), NeighborError> {
        let longest = list::LENGTHS[list::LENGTHS.len() - 1];
        let portions = self.rounds.portions(self.form, tree.len().div_ceil(LEAF), 0)?;
        let params = queries.params(tree, ask, units)?;
        // Squares are what a later walk goes on from.
        let squares = ask.k > longest || portions.is_some();
        let groups = (part.end - part.start).div_ceil(self.form.queries());
        let cursor = match portions {
            Some(_) => Some(recorder.gpu().array::<u32>("neighbors::cursor", groups)?),
            None => None,
        };
        for done in (0..ask.k).step_by(longest as usize) {
            let write = (ask.k - done).min(longest);
            let unit = if squares || keep { 0.0 } else { params.unit };
            let params = Params { done, write, unit, ..params };
            let walk = |recorder: &mut Recorder, walk: Traversal, params: Params| {
                let shape = queries.shape(self.form, tree, walk, units);
                let (length, resumed) = (list::length(write), done > 0);
                let key = Key::Lists { shape, length, resumed };
                let kernel = self.kernels.get(key, Trust::Library, || stored(shape, length, resumed));
                let arrays = cursor.iter().map(Array::raw).chain([lists.index.raw(), lists.distance.raw()]);
                self.dispatch(recorder, &kernel, tree, queries, params, arrays, part.clone())
            };
            let (Some(portions), Some(cursor)) = (portions, &cursor) else {
                walk(recorder, Traversal::Near, params)?;
                continue;
            };
            let params = Params { rounds: portions.rounds, leaf_rounds: portions.leaf, ..params };
            walk(recorder, Traversal::NearOrMark, params)?;
            // Few groups have to go on, if any.
            while groups > 0 && unfinished(recorder, &self.reduce, cursor)? {
                walk(recorder, Traversal::Onward, params)?;
            }
        }
        if squares && !keep {
            let count = (part.end - part.start) * u64::from(ask.k);
            let words = [count as u32, params.unit.to_bits(), f32::INFINITY.to_bits(), 0];
            recorder.each(&self.root, &[lists.index.raw(), lists.distance.raw()], &words, count)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn dispatch<'a>(
        &self,
        recorder: &mut Recorder,
        kernel: &Kernel,
        tree: &'a Tree,
        queries: Queries<'a>,
        params: Params,
        arrays: impl Iterator<Item = &'a RawArray>,
        part: Range<u64>,
    ) -> Result<(), NeighborError> {
        let mut bound = queries.arrays(tree);
        bound.extend(arrays);
        let base = part.start as u32;
        queries.dispatch(recorder, self.form, kernel, &bound, Params { base, ..params }, part)
    }
}

fn root() -> KernelSource {
    KernelSource::new("neighbors::root", include_str!("../../../shaders/points/neighbors/root.wgsl"))
        .fields("count: u32, unit: f32, infinity: f32, pad: u32")
        .array("index", Element::U32, Access::Read)
        .array("distance", Element::F32, Access::ReadWrite)
}

fn refine() -> KernelSource {
    KernelSource::new("neighbors::refine", include_str!("../../../shaders/points/neighbors/refine.wgsl"))
        .fields("count: u32, unit: f32, infinity: f32, least: f32")
        .array("index", Element::U32, Access::ReadWrite)
        .array("distance", Element::F32, Access::ReadWrite)
        .array("fine_index", Element::U32, Access::Read)
        .array("fine_distance", Element::F32, Access::Read)
}

/// Kernels of searches in one form of all kinds that there are, with lists of these lengths.
pub(super) fn sources(form: GroupShape, lengths: &[u32]) -> Vec<KernelSource> {
    let mut sources = vec![root(), refine(), fold(&mean_distance())];
    for (dims, own, wide) in [(2, true, false), (3, true, false), (3, true, true), (3, false, false)] {
        for &length in lengths {
            for walk in [Traversal::Near, Traversal::NearOrMark, Traversal::Onward] {
                sources.push(stored(Shape { form, dims, own, walk, wide }, length, dims == 2));
            }
            sources.push(fused(Shape { form, dims, own, walk: Traversal::Near, wide }, length, &mean_distance()));
        }
    }
    sources
}

/// A callback for tests: the mean distance, into no array.
fn mean_distance() -> Callback {
    Callback::trusted(
        "alias State = f32;\nfn begin(query: u32, reach: f32) -> State { return reach; }\n\
         fn each(state: State, near: Neighbor) -> State { return state + near.distance; }\n\
         fn end(query: u32, state: State) { }",
    )
}

pub(crate) fn empty_lists(gpu: &Gpu, rows: u64, k: u32) -> Result<Lists, NeighborError> {
    let entries = rows * u64::from(k);
    if entries > u64::from(u32::MAX) {
        return Err(NeighborError::TooLong { rows, each: k.into() });
    }
    Ok(Lists {
        k,
        index: gpu.array("neighbors::index", entries)?,
        distance: gpu.array("neighbors::distance", entries)?,
    })
}

const PUT: &str = "
fn put(line: u32, i: u32, d: f32, s: u32) {
    let at = line * params.k + params.done + i;
    store_index(at, s);
    // Squares, if more is to come.
    if params.unit == 0.0 { store_distance(at, d); return; }
    store_distance(at, select(params.infinity, params.unit * sqrt(d), s != NONE));
}
";

pub(super) const NEIGHBOR: &str = "struct Neighbor {\n    index: u32,\n    distance: f32,\n}\n";

/// Names for the parts of `nearest.wgsl` that differ.
fn around(resumed: bool, walk: Traversal) -> String {
    // Where a walk has stopped, the last entry that it had bounds all entries.
    let reach = match walk {
        Traversal::Onward => "load_distance(line * params.k + params.done + params.write - 1u)",
        _ => "params.reach",
    };
    let (last, behind) = if resumed {
        let at = "line * params.k + params.done - 1u";
        (
            format!("let at = {at};\n    return Entry(load_distance(at), load_index(at));"),
            "d > last.distance || (d == last.distance && s > last.index)",
        )
    } else {
        ("return Entry(-1.0, 0u);".into(), "true")
    };
    format!(
        "fn first_reach(line: u32) -> f32 {{ return {reach}; }}\nfn last_of(line: u32) -> Entry {{\n    {last}\n}}\n\
         fn behind(last: Entry, d: f32, s: u32) -> bool {{ return {behind}; }}\n"
    )
}

fn nearest() -> &'static str {
    include_str!("../../../shaders/points/neighbors/nearest.wgsl")
}

/// For walks that begin at the first leaf.
const NO_RESTORE: &str = "fn restore#(line: u32) { }\n";

fn stored(shape: Shape, length: u32, resumed: bool) -> KernelSource {
    let restoring = if shape.walk == Traversal::Onward { list::restoring(length) } else { NO_RESTORE.into() };
    let visit = format!("{}{}{restoring}{}", nearest(), list::wgsl(length), list::storing(length));
    let source = writer::search("nearest", shape, &visit, &format!("{}{PUT}", around(resumed, shape.walk)));
    source.array("index", Element::U32, Access::ReadWrite).array("distance", Element::F32, Access::ReadWrite)
}

fn fused(shape: Shape, length: u32, callback: &Callback) -> KernelSource {
    let visit = format!("{}{}{NO_RESTORE}{}", nearest(), list::wgsl(length), list::folding(length));
    let text = format!("{}{NEIGHBOR}{}", around(false, shape.walk), callback.wgsl());
    writer::search("nearest_visit", shape, &visit, &text)
}

fn fold(callback: &Callback) -> KernelSource {
    let text =
        format!("{NEIGHBOR}{}\n{}", include_str!("../../../shaders/points/neighbors/fold.wgsl"), callback.wgsl());
    KernelSource::new("neighbors::fold", text)
        .fields("base: u32, rows: u32, k: u32, pad: u32")
        .group(64)
        .array("index", Element::U32, Access::Read)
        .array("distance", Element::F32, Access::Read)
        .array("number", Element::U32, Access::Read)
}
