//! All sources within a radius of each query.

use super::callback::{self, MODULE};
use super::error::NeighborError;
use super::group_shape::GroupShape;
use super::kernel_cache::KernelCache;
use super::loop_budget::{LoopBudget, any_unfinished};
use super::query::{KnnQuery, RadiusQuery, check_radius};
use super::search_kernel::{Cursor, SearchParams, SearchVariant, Traversal, search};
use super::tally::Tally;
use super::targets::Queries;
use super::units::Units;
use crate::gpu::primitives::{Count, Keys, Permute, Reduce, Scan, Sort};
use crate::gpu::{Array, Callback, CallbackKey, Gpu, Kernel, KernelSource, RawArray, Recorder, Trust};
use crate::points::tree::{LEAF, Tree};

/// Lists of neighbours of any length: row `i` is entries `offset[i]..offset[i + 1]`, in ascending order of the index.
#[derive(Clone)]
pub struct NeighborLists {
    /// Where each row begins; after the last one the number of all entries.
    pub offset: Array<u32>,
    /// Indices of sources in their cloud.
    pub index: Array<u32>,
    /// Their distances.
    pub distance: Array<f32>,
}

/// What is done with the neighbours that a search finds.
#[derive(Clone)]
pub(super) enum Visit<'a> {
    /// They are counted.
    Count,
    /// They are listed.
    Fill,
    /// Each adds `weight` to the bin of its distance, one of `bins`.
    Pairs { bins: u32, weight: u32, tally: Tally },
    /// A callback runs.
    Callback(&'a Callback),
}

/// What distinguishes the kernels of this file.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Count(SearchVariant),
    Fill(SearchVariant),
    Pairs { variant: SearchVariant, bins: u32, weight: u32, tally: Tally },
    Callback { variant: SearchVariant, callback: CallbackKey },
}

/// One search, with all that it takes beside the queries' radius.
pub(super) struct RadiusSearch<'a> {
    pub tree: &'a Tree,
    pub queries: Queries<'a>,
    pub within: RadiusQuery,
    pub units: Units,
    pub visit: Visit<'a>,
    /// The arrays of what is done with neighbours.
    pub arrays: Vec<&'a RawArray>,
    /// How the tree is traversed where one dispatch is enough; otherwise it is resumed.
    pub traversal: Traversal,
}

crate::gpu::kernel_params! {
    struct RowsParams {
        count: u32,
    }
}

crate::gpu::kernel_params! {
    struct EntriesParams {
        entries: u32,
        rows: u32,
        /// Bits of an index.
        index_bits: u32,
    }
}

/// Searches of all sources within a radius.
///
/// | call | traversals of the tree | waits |
/// |---|---|---|
/// | [`counts`](Self::counts) | 1 | no |
/// | [`lists`](Self::lists) | 2: count, then fill | once, for the number of all entries |
/// | [`visit`](Self::visit) | 1 | no |
///
/// In large trees on drivers that limit loops ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)) a traversal is cut
/// into portions, and each call waits for each of them.
///
/// Lists are counted before memory is allocated for them, so that no length need be guessed.
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
    pub(super) form: GroupShape,
    budget: LoopBudget,
    histograms: u32,
    kernels: KernelCache<Key>,
    scan: Scan,
    reduce: Reduce,
    sort: Sort,
    permute: Permute,
    total: Kernel,
    sort_rows: Kernel,
    entry_keys: Kernel,
}

/// The longest row that is sorted in workgroup memory.
const SHORT: u32 = 64;

/// Invocations of a workgroup that sorts rows, and its rows.
const SORT_GROUP: u32 = 64;
const SORT_ROWS: u32 = 4;

impl Radius {
    /// In the form that suits a device.
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu, GroupShape::of(gpu))
    }

    /// The same for a driver that ends loops after so many rounds (at least 1024), or never.
    #[must_use]
    pub fn with_rounds(mut self, rounds: Option<u32>) -> Self {
        self.budget = LoopBudget::new(rounds);
        self
    }

    /// The same with so many workgroups for a histogram of pairs, about (8192 otherwise; at least 1): each counts for many queries in memory of its
    /// own, where the driver does not limit loops.
    #[must_use]
    pub fn with_histograms(mut self, workgroups: u32) -> Self {
        self.histograms = workgroups.max(1);
        self
    }

    /// In a given form, as far as the device allows it.
    pub fn with(gpu: &Gpu, form: GroupShape) -> Self {
        let form = form.on(gpu);
        Radius {
            form,
            budget: LoopBudget::of(gpu),
            histograms: HISTOGRAMS,
            kernels: KernelCache::new(),
            scan: Scan::new(),
            reduce: Reduce::new(),
            sort: Sort::new(gpu),
            permute: Permute::new(),
            total: Kernel::trusted(total()),
            sort_rows: Kernel::trusted(sort_rows()),
            entry_keys: Kernel::trusted(entry_keys()),
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
        self.enumerate(recorder, tree, queries, within, Visit::Count, vec![counts.raw()])?;
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
        recorder.each(&self.total, &[counts.raw(), total.raw()], &RowsParams { count: rows as u32 }, rows)?;
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
        // The place of the next entry of each row; the counts are no longer needed.
        let next = counts;
        recorder.copy(&lists.offset, 0, &next, 0, rows)?;
        let arrays = vec![next.raw(), lists.index.raw(), lists.distance.raw()];
        self.enumerate(recorder, tree, queries, within, Visit::Fill, arrays)?;
        if longest > SHORT {
            return self.sorted(recorder, lists, rows, tree.len());
        }
        let arrays = [lists.offset.raw(), lists.index.raw(), lists.distance.raw()];
        let groups = rows.div_ceil(u64::from(SORT_ROWS));
        recorder.dispatch(&self.sort_rows, &arrays, &RowsParams { count: rows as u32 }, groups)?;
        Ok(lists)
    }

    /// Lists with their rows in ascending order of the index, which is below `sources`: one sort of all entries by (row, index).
    fn sorted(
        &self,
        recorder: &mut Recorder,
        lists: NeighborLists,
        rows: u64,
        sources: u64,
    ) -> Result<NeighborLists, NeighborError> {
        let index = lists.index.clone();
        self.sorted_by(recorder, lists, rows, (&index, bits(sources)))
    }

    /// Lists with their `rows` in ascending order of the distance. Recorded only.
    pub(super) fn by_distance(
        &self,
        recorder: &mut Recorder,
        lists: NeighborLists,
        rows: u64,
    ) -> Result<NeighborLists, NeighborError> {
        // The bits of reals from 0 on ascend as they do.
        let distance = lists.distance.cast::<u32>()?;
        self.sorted_by(recorder, lists, rows, (&distance, u32::BITS))
    }

    /// Lists with their `rows` in ascending order of a word of so many bits an entry: one sort of all entries.
    fn sorted_by(
        &self,
        recorder: &mut Recorder,
        lists: NeighborLists,
        rows: u64,
        (word, word_bits): (&Array<u32>, u32),
    ) -> Result<NeighborLists, NeighborError> {
        let (gpu, entries) = (recorder.gpu().clone(), lists.index.len());
        let array = |label: &str| gpu.array::<u32>(label, entries);
        let (high, low, order) = (array("neighbors::high")?, array("neighbors::low")?, array("neighbors::order")?);
        let params = EntriesParams { entries: entries as u32, rows: rows as u32, index_bits: word_bits };
        let arrays = [lists.offset.raw(), word.raw(), high.raw(), low.raw()];
        recorder.each(&self.entry_keys, &arrays, &params, entries)?;
        let keys = Keys::U64 { high: &high, low: &low }.bits(bits(rows) + word_bits);
        self.sort.order(recorder, keys, &order, Count::All)?;
        let index = gpu.array("neighbors::index", entries)?;
        let distance = gpu.array("neighbors::distance", entries)?;
        self.permute.gather(recorder, &lists.index, &order, &index, 1, Count::All)?;
        self.permute.gather(recorder, &lists.distance, &order, &distance, 1, Count::All)?;
        Ok(NeighborLists { offset: lists.offset, index, distance })
    }

    /// Runs `callback` on the neighbours of each query, in no particular order. Recorded only.
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
        check_radius(within.radius)?;
        callback::check(callback)?;
        self.enumerate(recorder, tree, queries, within, Visit::Callback(callback), callback.arrays().collect())
    }

    /// Searches along the curve, in units that suit the radius.
    fn enumerate<'a>(
        &self,
        recorder: &mut Recorder,
        tree: &'a Tree,
        queries: Queries<'a>,
        within: &RadiusQuery,
        visit: Visit<'a>,
        arrays: Vec<&'a RawArray>,
    ) -> Result<(), NeighborError> {
        let units = queries.units(tree, within.radius, f32::INFINITY);
        let (within, traversal) = (*within, Traversal::CURVE);
        self.run(recorder, &RadiusSearch { tree, queries, within, units, visit, arrays, traversal })
    }

    /// Runs a search: in one dispatch, or in portions where a driver limits loops.
    pub(super) fn run(&self, recorder: &mut Recorder, search: &RadiusSearch<'_>) -> Result<(), NeighborError> {
        let RadiusSearch { tree, queries, within, units, visit, .. } = search;
        check_radius(within.radius)?;
        let portions = self.budget.portions(self.form, tree.len().div_ceil(LEAF), visit.rounds())?;
        let cursor = if portions.is_some() { Cursor::Resume } else { Cursor::None };
        let variant = queries.variant(self.form, tree, search.traversal.with(cursor), units);
        let kernel = self.kernels.get(visit.key(variant), visit.trust(), || within_kernel(variant, visit));
        let knn = KnnQuery { within: within.radius, rows: within.rows, ..KnnQuery::nearest(0) };
        let params = SearchParams { skip: within.which as u32, ..queries.params(tree, &knn, units)? };
        let (mut arrays, rows) = (queries.arrays(tree), queries.len(tree));
        if rows == 0 {
            return Ok(());
        }
        let Some(portions) = portions else {
            let params = SearchParams { blocks: self.blocks(visit, rows), ..params };
            arrays.extend(&search.arrays);
            return queries.dispatch(recorder, self.form, &kernel, &arrays, params, 0..rows);
        };
        let params = SearchParams { rounds: portions.rounds, leaf_rounds: portions.leaf, ..params };
        let cursor = recorder.gpu().array::<u32>("neighbors::cursor", rows.div_ceil(self.form.queries()))?;
        recorder.clear(&cursor);
        arrays.push(cursor.raw());
        arrays.extend(&search.arrays);
        loop {
            queries.dispatch(recorder, self.form, &kernel, &arrays, params, 0..rows)?;
            if !any_unfinished(recorder, &self.reduce, &cursor)? {
                return Ok(());
            }
        }
    }
}

impl Radius {
    /// Blocks of queries that a workgroup takes: as many as leave enough workgroups, where that saves work at its end. Not where a driver ends
    /// the loops of an invocation after a number of rounds.
    fn blocks(&self, visit: &Visit<'_>, rows: u64) -> u32 {
        let block = self.form.block();
        match visit.in_workgroups() && !self.budget.is_limited() {
            true => rows.div_ceil(block * u64::from(self.histograms)).clamp(1, (MOST_QUERIES / block).max(1)) as u32,
            false => 1,
        }
    }
}

impl Visit<'_> {
    /// Whether workgroups count for themselves, before they add up what they have.
    fn in_workgroups(&self) -> bool {
        matches!(self, Visit::Pairs { tally: Tally::Registers | Tally::Workgroup, .. })
    }

    fn key(&self, variant: SearchVariant) -> Key {
        match *self {
            Visit::Count => Key::Count(variant),
            Visit::Fill => Key::Fill(variant),
            Visit::Pairs { bins, weight, tally } => Key::Pairs { variant, bins, weight, tally },
            Visit::Callback(callback) => Key::Callback { variant, callback: callback.key() },
        }
    }

    /// Rounds of loops per neighbour.
    fn rounds(&self) -> u32 {
        if let Visit::Callback(callback) = self { callback.rounds() } else { 0 }
    }

    fn trust(&self) -> Trust {
        if let Visit::Callback(callback) = self { callback.trust() } else { Trust::Library }
    }
}

/// Workgroups of a histogram, about: enough for any GPU, and few enough that what they add to the bins at their ends takes little.
const HISTOGRAMS: u32 = 8192;
/// Queries that a workgroup of a histogram takes at most.
const MOST_QUERIES: u64 = 1 << 15;

/// The kernel of a search within a radius.
pub(super) fn within_kernel(variant: SearchVariant, visit: &Visit<'_>) -> KernelSource {
    let text = include_str!("../../../shaders/points/neighbors/within.wgsl");
    let pairs = matches!(visit, Visit::Pairs { .. });
    let stopping = matches!(visit, Visit::Callback(callback) if callback::stops(callback));
    let source = search("neighbors::within", text, variant)
        .flag("links", false)
        .flag("squares", pairs)
        .flag("histogram", visit.in_workgroups())
        .flag("stopping", stopping);
    let library = |source: KernelSource, text: &'static str| source.module(MODULE, text);
    match *visit {
        Visit::Count => library(source, include_str!("../../../shaders/points/neighbors/count.wgsl")),
        Visit::Fill => library(source, include_str!("../../../shaders/points/neighbors/fill.wgsl")),
        Visit::Pairs { bins, weight, tally } => {
            let source = source.constant("BINS", bins).constant("WEIGHT", weight);
            match tally {
                Tally::Registers => {
                    let text = include_str!("../../../shaders/points/neighbors/pairs_few_bins.wgsl");
                    library(source, text).repeat('@', bins + 1)
                }
                Tally::Workgroup | Tally::Result => {
                    library(source, include_str!("../../../shaders/points/neighbors/pairs.wgsl"))
                        .constant("HALF", bins.next_power_of_two() / 2)
                        .repeat('@', bins.next_power_of_two().ilog2())
                }
            }
        }
        Visit::Callback(callback) => callback.bind(source, MODULE),
    }
}

fn total() -> KernelSource {
    KernelSource::new("neighbors::total", include_str!("../../../shaders/points/neighbors/total.wgsl"))
        .params::<RowsParams>()
}

fn sort_rows() -> KernelSource {
    KernelSource::new("neighbors::sort_rows", include_str!("../../../shaders/points/neighbors/sort_rows.wgsl"))
        .params::<RowsParams>()
        .constant("SHORT", SHORT)
        .constant("ROWS", SORT_ROWS)
        .group(SORT_GROUP)
}

/// Bits of a number below `count`.
fn bits(count: u64) -> u32 {
    u64::BITS - count.saturating_sub(1).leading_zeros()
}

fn entry_keys() -> KernelSource {
    KernelSource::new("neighbors::entry_keys", include_str!("../../../shaders/points/neighbors/entry_keys.wgsl"))
        .params::<EntriesParams>()
}

/// The kernels of this file in one form of groups.
pub(super) fn kernels(form: GroupShape) -> Vec<KernelSource> {
    let mut kernels = vec![total(), sort_rows(), entry_keys()];
    let resumed = Traversal::CURVE.with(Cursor::Resume);
    for (dims, own, wide) in [(2, true, false), (3, true, false), (3, true, true), (3, false, false)] {
        let variant = |traversal| SearchVariant { form, dims, own, traversal, wide };
        kernels.extend([
            within_kernel(variant(Traversal::CURVE), &Visit::Count),
            within_kernel(variant(resumed), &Visit::Count),
            within_kernel(variant(Traversal::CURVE), &Visit::Fill),
        ]);
    }
    kernels
}
