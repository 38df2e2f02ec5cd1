//! All sources within a radius of each query.

use super::callback;
use super::error::NeighborError;
use super::group_shape::GroupShape;
use super::loop_budget::{LoopBudget, unfinished};
use super::nearest::{Kernels, NEIGHBOR};
use super::query::{KnnQuery, RadiusQuery, check_radius};
use super::targets::Queries;
use super::units::Units;
use super::writer::{self, Params, Shape, Traversal};
use crate::gpu::primitives::{Count, Keys, Permute, Reduce, Scan, Sort};
use crate::gpu::{Access, Array, Callback, CallbackKey, Element, Gpu, Kernel, KernelSource, Recorder};
use crate::points::tree::{LEAF, Tree};

/// Lists of neighbours of any length: row `i` is entries `offset[i]..offset[i + 1]`, in ascending order of the index.
#[derive(Clone)]
pub struct NeighborLists {
    /// Where each row begins, and behind the last one the number of all entries.
    pub offset: Array<u32>,
    /// Numbers of sources in their cloud.
    pub index: Array<u32>,
    /// Their distances.
    pub distance: Array<f32>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    shape: Shape,
    callback: CallbackKey,
    told: Told,
}

/// What a callback is told of how far a neighbour is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Told {
    /// Its distance.
    Distance,
    /// The square of it in the unit of the search, as it is compared.
    Square,
}

/// Searches of all sources within a radius.
///
/// | call | walks | waits |
/// |---|---|---|
/// | [`counts`](Self::counts) | 1 | no |
/// | [`lists`](Self::lists) | 2: count, then fill | once, for the number of all entries |
/// | [`visit`](Self::visit) | 1 | no |
///
/// In large trees on drivers that limit loops ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)) a walk is done in
/// portions, and each call waits for each.
///
/// No length is ever guessed: lists are counted before memory is taken for them.
///
/// ```
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::points::neighbors::{Queries, RadiusQuery, Radius};
/// use meshloom::points::{Cloud, Domain, Frame};
/// use meshloom::points::tree::Builder;
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let domain = Domain::new(&[10.0, 0.0])?;
/// let cloud = Cloud::from_host(&mut recorder, &domain, &[0.5, 0.0, 9.5, 0.0, 3.0, 0.0])?;
/// let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &Frame::new(&domain, cloud.bounds()))?;
/// let lists = Radius::new(&gpu).lists(&mut recorder, &tree, Queries::Own, &RadiusQuery::radius(2.5))?;
/// assert_eq!(recorder.download(&lists.offset, 0, 4)?, [0, 3, 5, 7]);
/// assert_eq!(recorder.download(&lists.index, 0, 7)?, [0, 1, 2, 0, 1, 0, 2]);
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct Radius {
    form: GroupShape,
    rounds: LoopBudget,
    kernels: Kernels<Key>,
    scan: Scan,
    reduce: Reduce,
    sort: Sort,
    permute: Permute,
    total: Kernel,
    short: Kernel,
    row_of: Kernel,
}

/// Entries of rows that one invocation sorts.
const SHORT: u32 = 64;

const COUNT: &str = "
alias State = u32;
fn begin(query: u32, reach: f32) -> State { return load_counts(query); }
fn each(state: State, near: Neighbor) -> State { return state + 1u; }
fn end(query: u32, state: State) { store_counts(query, state); }
";

const FILL: &str = "
alias State = u32;
fn begin(query: u32, reach: f32) -> State { return load_next(query); }
fn each(state: State, near: Neighbor) -> State {
    store_index(state, near.index);
    store_distance(state, near.distance);
    return state + 1u;
}
fn end(query: u32, state: State) { store_next(query, state); }
";

impl Radius {
    /// In the form that suits a device.
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu, GroupShape::of(gpu))
    }

    /// The same for a driver that ends loops after so many rounds (at least 1024), or never.
    #[must_use]
    pub fn with_rounds(mut self, rounds: Option<u32>) -> Self {
        self.rounds = LoopBudget::new(rounds);
        self
    }

    /// In a given form, which the device must allow.
    pub fn with(gpu: &Gpu, form: GroupShape) -> Self {
        let [total, short, row_of] = helpers();
        Radius {
            form,
            rounds: LoopBudget::of(gpu),
            kernels: Kernels::new(),
            scan: Scan::new(),
            reduce: Reduce::new(),
            sort: Sort::new(gpu),
            permute: Permute::new(),
            total: Kernel::trusted(total),
            short: Kernel::trusted(short),
            row_of: Kernel::trusted(row_of),
        }
    }

    /// How many neighbours each query has. Recorded only.
    ///
    /// # Errors
    /// [`NeighborError::Radius`], those of [`Queries`], and of the device.
    pub fn counts(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &RadiusQuery,
    ) -> Result<Array<u32>, NeighborError> {
        let counts = recorder.gpu().array("neighbors::counts", queries.len(tree))?;
        recorder.clear(&counts);
        self.visit(recorder, tree, queries, within, &Callback::trusted(COUNT).write("counts", &counts))?;
        Ok(counts)
    }

    /// The neighbours of each query. Waits once.
    ///
    /// # Errors
    /// As [`counts`](Self::counts), and [`NeighborError::TooLong`] for 2^32 entries and more.
    pub fn lists(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &RadiusQuery,
    ) -> Result<NeighborLists, NeighborError> {
        let (gpu, rows) = (recorder.gpu().clone(), queries.len(tree));
        let counts = self.counts(recorder, tree, queries, within)?;
        let total = gpu.array::<u32>("neighbors::total", 2)?;
        recorder.clear(&total);
        recorder.each(&self.total, &[counts.raw(), total.raw()], &[rows as u32, 0, 0, 0], rows)?;
        let offset = gpu.array("neighbors::offset", rows + 1)?;
        self.scan.exclusive(recorder, &counts, &offset, Count::All)?;
        let longest = gpu.array::<u32>("neighbors::longest", 1)?;
        self.reduce.max(recorder, &counts, &longest, Count::All)?;
        let longest = recorder.download(&longest, 0, 1)?[0];
        let words = recorder.download(&total, 0, 2)?;
        if words[1] > 0 {
            let entries = u64::from(words[0]) | u64::from(words[1]) << 32;
            return Err(NeighborError::TooLong { rows, each: entries / rows.max(1) });
        }
        let entries = u64::from(words[0]);
        let lists = NeighborLists {
            offset,
            index: gpu.array("neighbors::index", entries)?,
            distance: gpu.array("neighbors::distance", entries)?,
        };
        // Where the next entry of each row goes: the counts are no longer needed.
        let next = counts;
        recorder.copy(&lists.offset, 0, &next, 0, rows)?;
        let fill = Callback::trusted(FILL)
            .write("next", &next)
            .write("index", &lists.index)
            .write("distance", &lists.distance);
        self.visit(recorder, tree, queries, within, &fill)?;
        if longest > SHORT {
            return self.sorted(recorder, lists, rows);
        }
        let arrays = [lists.offset.raw(), lists.index.raw(), lists.distance.raw()];
        recorder.dispatch(&self.short, &arrays, &[rows as u32, 0, 0, 0], rows.div_ceil(64))?;
        Ok(lists)
    }

    /// Lists with their rows in ascending order of the index: one sort of all entries by (row, index).
    fn sorted(&self, recorder: &mut Recorder, lists: NeighborLists, rows: u64) -> Result<NeighborLists, NeighborError> {
        let (gpu, entries) = (recorder.gpu().clone(), lists.index.len());
        let (row, order) =
            (gpu.array::<u32>("neighbors::row", entries)?, gpu.array::<u32>("neighbors::order", entries)?);
        let params = [entries as u32, rows as u32, 0, 0];
        recorder.each(&self.row_of, &[lists.offset.raw(), row.raw()], &params, entries)?;
        self.sort.order(recorder, Keys::U64 { high: &row, low: &lists.index }, &order, Count::All)?;
        let index = gpu.array("neighbors::index", entries)?;
        let distance = gpu.array("neighbors::distance", entries)?;
        self.permute.gather(recorder, &lists.index, &order, &index, 1, Count::All)?;
        self.permute.gather(recorder, &lists.distance, &order, &distance, 1, Count::All)?;
        Ok(NeighborLists { offset: lists.offset, index, distance })
    }

    /// Calls the functions of `callback` (see [`neighbors`](super)) for the neighbours of each query, in no order. Recorded only.
    ///
    /// # Errors
    /// As [`counts`](Self::counts); [`Misuse`](crate::gpu::DeviceError::Misuse) for a callback without its functions or
    /// with more rounds per neighbour than a driver that limits loops allows,
    /// [`Shader`](crate::gpu::DeviceError::Shader) for one that does not compile.
    pub fn visit(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &RadiusQuery,
        callback: &Callback,
    ) -> Result<(), NeighborError> {
        let units = queries.units(tree, within.radius, f32::INFINITY);
        self.walk(
            recorder,
            tree,
            queries,
            within,
            (&units, callback, Told::Distance),
            [Traversal::Ordered, Traversal::Onward],
        )
    }

    /// The same in these units by one of two walks: one to the end, and one that is done in portions.
    pub(super) fn walk(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &RadiusQuery,
        (units, callback, told): (&Units, &Callback, Told),
        [whole, onward]: [Traversal; 2],
    ) -> Result<(), NeighborError> {
        check_radius(within.radius)?;
        callback::check(callback)?;
        let portions = self.rounds.portions(self.form, tree.len().div_ceil(LEAF), callback.rounds())?;
        let walk = if portions.is_some() { onward } else { whole };
        let shape = queries.shape(self.form, tree, walk, units);
        let kernel = self
            .kernels
            .get(Key { shape, callback: callback.key(), told }, callback.trust(), || source(shape, callback, told));
        let ask = KnnQuery { within: within.radius, rows: within.rows, ..KnnQuery::nearest(0) };
        let params = Params { skip: within.which as u32, ..queries.params(tree, &ask, units)? };
        let (mut arrays, rows) = (queries.arrays(tree), queries.len(tree));
        if rows == 0 {
            return Ok(());
        }
        let Some(portions) = portions else {
            arrays.extend(callback.arrays());
            return queries.dispatch(recorder, self.form, &kernel, &arrays, params, 0..rows);
        };
        let params = Params { rounds: portions.rounds, leaf_rounds: portions.leaf, ..params };
        let cursor = recorder.gpu().array::<u32>("neighbors::cursor", rows.div_ceil(self.form.queries()))?;
        recorder.clear(&cursor);
        arrays.push(cursor.raw());
        arrays.extend(callback.arrays());
        loop {
            queries.dispatch(recorder, self.form, &kernel, &arrays, params, 0..rows)?;
            if !unfinished(recorder, &self.reduce, &cursor)? {
                return Ok(());
            }
        }
    }
}

/// The kernels that are no searches.
fn helpers() -> [KernelSource; 3] {
    let total = KernelSource::new("neighbors::total", include_str!("../../../shaders/points/neighbors/total.wgsl"))
        .fields("count: u32, pad0: u32, pad1: u32, pad2: u32")
        .array("counts", Element::U32, Access::Read)
        .array("total", Element::U32, Access::Atomic);
    let short = KernelSource::new("neighbors::rows", include_str!("../../../shaders/points/neighbors/rows.wgsl"))
        .fields("count: u32, pad0: u32, pad1: u32, pad2: u32")
        .group(64)
        .array("offset", Element::U32, Access::Read)
        .array("index", Element::U32, Access::ReadWrite)
        .array("distance", Element::F32, Access::ReadWrite);
    let row_of = KernelSource::new("neighbors::row_of", include_str!("../../../shaders/points/neighbors/row_of.wgsl"))
        .fields("entries: u32, rows: u32, pad0: u32, pad1: u32")
        .array("offset", Element::U32, Access::Read)
        .array("row", Element::U32, Access::ReadWrite);
    [total, short, row_of]
}

/// Kernels of searches in one form of all kinds that there are.
pub(super) fn sources(form: GroupShape) -> Vec<KernelSource> {
    let mut sources: Vec<KernelSource> = helpers().into();
    for (dims, own, wide) in [(2, true, false), (3, true, false), (3, true, true), (3, false, false)] {
        let shape = |walk| Shape { form, dims, own, walk, wide };
        let count = |walk| {
            source(shape(walk), &Callback::trusted(COUNT), Told::Distance).array(
                "counts",
                Element::U32,
                Access::ReadWrite,
            )
        };
        let fill = source(shape(Traversal::Ordered), &Callback::trusted(FILL), Told::Distance)
            .array("next", Element::U32, Access::ReadWrite)
            .array("index", Element::U32, Access::ReadWrite)
            .array("distance", Element::F32, Access::ReadWrite);
        sources.extend([count(Traversal::Ordered), count(Traversal::Onward), fill]);
    }
    sources
}

/// The search that calls a callback.
pub(super) fn source(shape: Shape, callback: &Callback, told: Told) -> KernelSource {
    let told = if told == Told::Square { "d" } else { "params.unit * sqrt(d)" };
    let done = if callback::stops(callback) { "done(state)" } else { "false" };
    let text = format!(
        "{NEIGHBOR}{}\nfn finished(state: State) -> bool {{ return {done}; }}\nfn told(d: f32) -> f32 {{ return {told}; }}\n",
        callback.wgsl()
    );
    writer::search("within", shape, include_str!("../../../shaders/points/neighbors/visit.wgsl"), &text)
}
