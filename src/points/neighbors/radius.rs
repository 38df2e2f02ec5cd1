//! All sources within a radius of each query: searches, actions on what they find, and kernels.

use super::callback::{self, MODULE};
use super::lists::{ListOrder, LocalLists};
use super::search_kernel::search;
use super::targets::queries_per_dispatch;
use super::{
    Cursor, FoldedLists, FoldedPoints, Folder, GroupShape, LoopBudget, NeighborError, Predicate, Queries, RowOrder,
    SearchParams, SearchVariant, Traversal, Units, Within, any_unfinished, check_radius,
};
use crate::gpu::primitives::Reduce;
use crate::gpu::{Array, Callback, CallbackKey, Gpu, KernelCache, KernelSource, RawArray, Recorder, Trust};
use crate::points::tree::{LEAF, Tree};

/// The points of a tree within a radius of queries, and the order of rows of results.
#[derive(Clone, Copy)]
pub(super) struct WithinSearch<'a> {
    pub tree: &'a Tree,
    pub queries: Queries<'a>,
    pub within: Within,
    pub rows: RowOrder,
}

impl<'a> WithinSearch<'a> {
    /// Creates a search with a row for each query, in the order of the input.
    pub fn new(tree: &'a Tree, queries: Queries<'a>, within: &Within) -> Self {
        WithinSearch { tree, queries, within: *within, rows: RowOrder::Input }
    }

    /// Sets the order of rows to that of the queries along the curve.
    pub fn along_curve(self) -> Self {
        WithinSearch { rows: RowOrder::Curve, ..self }
    }
}

/// One search, with all that it takes beside the queries' radius.
pub(super) struct RadiusPass<'a> {
    pub search: WithinSearch<'a>,
    pub units: Units,
    pub visit: Action<&'a Callback>,
    /// Arrays of the action.
    pub arrays: Vec<&'a RawArray>,
    /// Traversal of the tree if one dispatch is enough; otherwise it is resumed.
    pub traversal: Traversal,
}

/// Searches of all sources within a radius.
///
/// | call | traversals of the tree | waits |
/// |---|---|---|
/// | [`counts`](Self::counts) | 1 | no |
/// | [`lists`](Self::lists) | 2: count, then fill | once, for the number of all entries |
/// | [`visit`](Self::visit) | 1 | no |
///
/// In large trees on drivers that limit loops
/// ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)) a traversal is cut into
/// portions, and each call waits for each of them.
///
/// Lists are counted before memory is allocated for them, so that no length need be guessed.
///
/// ```
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::points::neighbors::{Predicate, Queries, RadiusSearch};
/// use meshloom::points::{Cloud, Domain, Frame};
/// use meshloom::points::tree::Builder;
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let domain = Domain::new(&[10.0, 0.0])?;
/// let cloud = Cloud::from_host(&mut recorder, &domain, &[0.5, 0.0, 9.5, 0.0, 3.0, 0.0])?;
/// let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &Frame::over(&domain, cloud.core()))?;
/// let lists = RadiusSearch::new(&gpu).lists(&mut recorder, &tree, Queries::Own, &Predicate::within(2.5))?;
/// assert_eq!(recorder.download(&lists.offsets, 0, 4)?, [0, 3, 5, 7]);
/// assert_eq!(recorder.download(&lists.index, 0, 7)?, [0, 1, 2, 0, 1, 0, 2]);
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct RadiusSearch {
    pub(super) form: GroupShape,
    budget: LoopBudget,
    histograms: u32,
    kernels: KernelCache<Key>,
    reduce: Reduce,
    folder: Folder,
    pub(super) order: ListOrder,
}

impl RadiusSearch {
    /// Creates a search with the kernel variant that suits the device.
    #[must_use]
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu, GroupShape::of(gpu))
    }

    /// Sets the number of rounds after which the driver ends loops (at least 1024), or `None`.
    #[must_use]
    pub fn with_rounds(mut self, rounds: Option<u32>) -> Self {
        self.budget = LoopBudget::new(rounds);
        self
    }

    /// Sets the approximate number of workgroups of a histogram of pairs (8192 by default; at least
    /// 1): each counts for many queries in its own memory, if the driver does not limit loops.
    #[must_use]
    pub fn with_histograms(mut self, workgroups: u32) -> Self {
        self.histograms = workgroups.max(1);
        self
    }

    /// In a given form, as far as the device allows it.
    #[must_use]
    pub fn with(gpu: &Gpu, form: GroupShape) -> Self {
        let form = form.on(gpu);
        RadiusSearch {
            form,
            budget: LoopBudget::of(gpu),
            histograms: HISTOGRAMS,
            kernels: KernelCache::default(),
            reduce: Reduce::new(),
            folder: Folder::default(),
            order: ListOrder::new(gpu),
        }
    }

    /// Returns the number of neighbors of each query, in the order of the input. Recorded only.
    ///
    /// # Errors
    /// [`NeighborError::Radius`], errors of [`Queries`], and of the device.
    pub fn counts(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &Within,
    ) -> Result<Array<u32>, NeighborError> {
        self.counts_of(recorder, WithinSearch::new(tree, queries, within))
    }

    /// Same as [`counts`](Self::counts), in the order of the search.
    pub(super) fn counts_of(
        &self,
        recorder: &mut Recorder,
        search: WithinSearch<'_>,
    ) -> Result<Array<u32>, NeighborError> {
        let counts = recorder.gpu().array("neighbors::counts", search.queries.len(search.tree))?;
        recorder.clear(&counts);
        self.enumerate(recorder, search, Action::Count, vec![counts.raw()])?;
        Ok(counts)
    }

    /// Returns the neighbors of each query, in the order of the input. Waits once.
    ///
    /// # Errors
    /// Same as [`counts`](Self::counts), and [`NeighborError::TooLong`] for 2^32 entries and more.
    pub fn lists(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &Within,
    ) -> Result<LocalLists, NeighborError> {
        self.lists_of(recorder, WithinSearch::new(tree, queries, within)).map(|(lists, _)| lists)
    }

    /// Same as [`lists`](Self::lists), in the order of the search, with the length of the longest.
    pub(super) fn lists_of(
        &self,
        recorder: &mut Recorder,
        search: WithinSearch<'_>,
    ) -> Result<(LocalLists, u32), NeighborError> {
        let counts = self.counts_of(recorder, search)?;
        let (lists, longest) = self.unordered(recorder, search, counts)?;
        let WithinSearch { tree, queries, .. } = search;
        Ok((self.order.by_index(recorder, lists, (queries.len(tree), longest), tree.len())?, longest))
    }

    /// Returns the neighbors of queries with these `counts`, unordered, and the length of the
    /// longest list. Waits once.
    ///
    /// # Errors
    /// Same as [`lists`](Self::lists).
    pub(super) fn unordered(
        &self,
        recorder: &mut Recorder,
        search: WithinSearch<'_>,
        counts: Array<u32>,
    ) -> Result<(LocalLists, u32), NeighborError> {
        let (lists, longest) = self.order.allocate(recorder, &counts)?;
        // The place of the next entry of each row; the counts are no longer needed.
        let next = counts;
        recorder.copy(&lists.offsets, 0, &next, 0, next.len())?;
        let arrays = vec![next.raw(), lists.index.raw(), lists.distance.raw()];
        self.enumerate(recorder, search, Action::Fill, arrays)?;
        Ok((lists, longest))
    }

    /// Runs `callback` on the neighbors of each query, in no particular order. Recorded only.
    ///
    /// # Errors
    /// Same as [`counts`](Self::counts); [`Misuse`](crate::gpu::DeviceError::Misuse) for a callback
    /// without its functions or with more rounds per neighbor than a driver that limits loops
    /// allows, [`Shader`](crate::gpu::DeviceError::Shader) for one that does not compile.
    pub fn visit(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &Within,
        callback: &Callback,
    ) -> Result<(), NeighborError> {
        check_radius(within.radius)?;
        callback::check("Callback on neighbors", callback)?;
        let arrays = callback.arrays().collect();
        self.enumerate(recorder, WithinSearch::new(tree, queries, within), Action::Callback(callback), arrays)
    }

    /// Runs `callback` on the neighbors of each query, for each query once; with `is_ordered` in
    /// ascending order of the index.
    ///
    /// One traversal where the order of the tree is that of the index or does not matter, and one
    /// dispatch is enough. Otherwise neighbors are listed, sorted and visited: two traversals, a
    /// wait, and 8 bytes per neighbor.
    pub(super) fn visit_once(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        within: &Within,
        (callback, is_ordered): (&Callback, bool),
    ) -> Result<(), NeighborError> {
        let leaves = tree.len().div_ceil(LEAF);
        let at_once = self.budget.portions(self.form, leaves, callback.rounds())?.is_none();
        if at_once && (!is_ordered || tree.is_sorted) {
            return self.visit(recorder, tree, queries, within, callback);
        }
        callback::check("Callback on neighbors", callback)?;
        let (lists, longest) = self.lists_of(recorder, WithinSearch::new(tree, queries, within).along_curve())?;
        self.budget.check_rows("neighbors::fold", longest, callback.rounds())?;
        let points = FoldedPoints::of(recorder, (tree, queries), within.radius, callback)?;
        let folded = FoldedLists {
            offset: Some(&lists.offsets),
            k: 0,
            index: &lists.index,
            distance: &lists.distance,
            numbers: queries.numbers(tree),
            base: 0,
            rows: queries.len(tree),
            radius: within.radius,
        };
        self.folder.record(recorder, folded, &points, callback)
    }

    /// Searches along the curve, in units that suit the radius.
    fn enumerate<'a>(
        &self,
        recorder: &mut Recorder,
        search: WithinSearch<'a>,
        visit: Action<&'a Callback>,
        arrays: Vec<&'a RawArray>,
    ) -> Result<(), NeighborError> {
        let units = search.queries.units(search.tree, search.within.radius, f32::INFINITY);
        self.run(recorder, &RadiusPass { search, units, visit, arrays, traversal: Traversal::CURVE })
    }

    /// Runs a search: in one dispatch, or in portions where a driver limits loops.
    pub(super) fn run(&self, recorder: &mut Recorder, pass: &RadiusPass<'_>) -> Result<(), NeighborError> {
        let RadiusPass { search, units, visit, .. } = pass;
        let &WithinSearch { tree, queries, within, rows: order } = search;
        check_radius(within.radius)?;
        let portions = self.budget.portions(self.form, tree.len().div_ceil(LEAF), visit.rounds())?;
        let cursor = if portions.is_some() { Cursor::Resume } else { Cursor::None };
        let variant = queries.variant(self.form, tree, pass.traversal.with(cursor), units);
        let kernel = self.kernels.get(visit.key(variant), visit.trust(), || within_kernel(variant, visit));
        let knn = Predicate::nearest(0).within(within.radius);
        let (skip, by_number) = (within.filter as u32, order as u32);
        let params = SearchParams { skip, by_number, ..queries.params(tree, &knn, units)? };
        let (mut arrays, rows, values) = (queries.arrays(tree), queries.len(tree), visit.values());
        if rows == 0 {
            return Ok(());
        }
        let Some(portions) = portions else {
            let at_once = rows.min(queries_per_dispatch(recorder.gpu().capabilities().profile));
            let params = SearchParams { blocks: self.blocks(visit, at_once), ..params };
            arrays.extend(&pass.arrays);
            return queries.dispatch(recorder, self.form, &kernel, &arrays, (params, &values), 0..rows);
        };
        let params = SearchParams { rounds: portions.rounds, leaf_rounds: portions.leaf, ..params };
        let cursor = recorder.gpu().array::<u32>("neighbors::cursor", rows.div_ceil(self.form.queries()))?;
        recorder.clear(&cursor);
        arrays.push(cursor.raw());
        arrays.extend(&pass.arrays);
        loop {
            queries.dispatch(recorder, self.form, &kernel, &arrays, (params, &values), 0..rows)?;
            if !any_unfinished(recorder, &self.reduce, &cursor)? {
                return Ok(());
            }
        }
    }

    /// Blocks of queries that a workgroup takes of the `rows` of a dispatch: as many as leave
    /// enough workgroups, where that saves work at its end. Not where a driver ends the loops of an
    /// invocation after a number of rounds.
    fn blocks(&self, visit: &Action<&Callback>, rows: u64) -> u32 {
        let block = self.form.block();
        match visit.in_workgroups() && !self.budget.is_limited() {
            true => rows.div_ceil(block * u64::from(self.histograms)).clamp(1, (MOST_QUERIES / block).max(1)) as u32,
            false => 1,
        }
    }
}

/// Workgroups of a histogram, about: enough for any GPU, and few enough that what they add to the
/// bins at their ends takes little.
const HISTOGRAMS: u32 = 8192;
/// Queries that a workgroup of a histogram takes at most.
const MOST_QUERIES: u64 = 1 << 15;

/// Returns the kernels of this file in one form of groups.
pub(super) fn kernels(form: GroupShape) -> Vec<KernelSource> {
    let mut kernels = Vec::new();
    let resumed = Traversal::CURVE.with(Cursor::Resume);
    for (dims, own, wide) in [(2, true, false), (3, true, false), (3, true, true), (3, false, false)] {
        let variant = |traversal| SearchVariant { form, dims, own, traversal, wide };
        kernels.extend([
            within_kernel(variant(Traversal::CURVE), &Action::Count),
            within_kernel(variant(resumed), &Action::Count),
            within_kernel(variant(Traversal::CURVE), &Action::Fill),
        ]);
    }
    kernels
}

/// Action on the neighbors that a search finds; `C` is a callback, or the key of its kernels.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Action<C> {
    /// They are counted.
    Count,
    /// They are listed.
    Fill,
    /// Each adds `weight` to the bin of its distance, one of `bins`.
    Pairs { bins: u32, weight: u32, tally: Tally },
    /// Each adds the product of its weight and the query's to the bin of its distance, one of
    /// `bins`. With `has_queries`, queries are not sources and have their own weights.
    WeightedPairs { bins: u32, has_queries: bool, tally: Tally },
    /// A callback runs.
    Callback(C),
}

/// Key of the kernels of such searches.
type Key = (SearchVariant, Action<CallbackKey>);

impl Action<&Callback> {
    /// Returns `true` if workgroups count for themselves, before they add up what they have.
    pub fn in_workgroups(&self) -> bool {
        let (Action::Pairs { tally, .. } | Action::WeightedPairs { tally, .. }) = self else { return false };
        matches!(tally, Tally::Registers | Tally::Workgroup)
    }

    pub fn key(&self, variant: SearchVariant) -> Key {
        let action = match *self {
            Action::Count => Action::Count,
            Action::Fill => Action::Fill,
            Action::Pairs { bins, weight, tally } => Action::Pairs { bins, weight, tally },
            Action::WeightedPairs { bins, has_queries, tally } => Action::WeightedPairs { bins, has_queries, tally },
            Action::Callback(callback) => Action::Callback(callback.key()),
        };
        (variant, action)
    }

    /// Returns the values of its parameters.
    pub fn values(&self) -> Vec<u8> {
        if let Action::Callback(callback) = self { callback.values() } else { Vec::new() }
    }

    /// Returns the rounds of loops per neighbor.
    pub fn rounds(&self) -> u32 {
        if let Action::Callback(callback) = self { callback.rounds() } else { 0 }
    }

    pub fn trust(&self) -> Trust {
        if let Action::Callback(callback) = self { callback.trust() } else { Trust::Library }
    }
}

/// Returns the kernel of a search within a radius.
pub(super) fn within_kernel(variant: SearchVariant, visit: &Action<&Callback>) -> KernelSource {
    let text = include_str!("../../../shaders/points/neighbors/within.wgsl");
    let pairs = matches!(visit, Action::Pairs { .. } | Action::WeightedPairs { .. });
    let stopping = matches!(visit, Action::Callback(callback) if callback::stops(callback));
    let source = search("neighbors::within", text, variant)
        .flag("links", false)
        .flag("squares", pairs)
        .flag("histogram", visit.in_workgroups())
        .flag("queued", false)
        .flag("whole", matches!(visit, Action::Count | Action::Pairs { .. }))
        .module("neighbors::whole_nodes", include_str!("../../../shaders/points/neighbors/whole_nodes.wgsl"))
        .flag("offsets", matches!(visit, Action::Callback(callback) if callback::takes_offset(callback)))
        .flag("stopping", stopping);
    let library = |source: KernelSource, text: &'static str| source.module(MODULE, text);
    match *visit {
        Action::Count => library(source, include_str!("../../../shaders/points/neighbors/count.wgsl")),
        Action::Fill => library(source, include_str!("../../../shaders/points/neighbors/fill.wgsl")),
        Action::Pairs { bins, weight, tally } => {
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
        Action::WeightedPairs { bins, has_queries, .. } => {
            library(source, include_str!("../../../shaders/points/neighbors/pairs_weighted.wgsl"))
                .flag("other", has_queries)
                .constant("BINS", bins)
                .constant("HALF", bins.next_power_of_two() / 2)
                .repeat('@', bins.next_power_of_two().ilog2())
        }
        Action::Callback(callback) => callback.bind(source, MODULE),
    }
}

/// Bins that an invocation counts in registers, one for each edge.
pub(super) const FEW_BINS: u32 = 16;
/// Bins that a workgroup counts in its memory, 8 KiB.
pub(super) const WORKGROUP_BINS: u32 = 2048;

/// Memory in which pairs are counted before they are added to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tally {
    /// In registers of each invocation, then in workgroup memory.
    Registers,
    /// In workgroup memory.
    Workgroup,
    /// Nowhere: each is added to the result.
    Result,
}

impl Tally {
    /// Software renderers, whose invocations have several queries each, count few bins in
    /// registers: an access to workgroup memory takes them as long as comparing with all edges. On
    /// a GPU the registers would cost half of the groups in flight.
    pub fn of(form: GroupShape, bins: u32) -> Self {
        match bins {
            ..=FEW_BINS if form.slots > 1 => Tally::Registers,
            ..=WORKGROUP_BINS => Tally::Workgroup,
            _ => Tally::Result,
        }
    }
}
