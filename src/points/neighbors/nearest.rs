//! The nearest sources of each query.

use std::ops::Range;

use super::callback;
use super::group_shape::{FEW, Portions, is_complete, scan};
use super::search_kernel::search;
use super::units::LEAST;
use super::{
    Cursor, Fixed, FoldedLists, FoldedPoints, Folder, GroupShape, LoopBudget, Nearest, NeighborError, Queries,
    RowOrder, SearchParams, SearchVariant, Traversal, Units, any_unfinished,
};
use crate::gpu::primitives::Reduce;
use crate::gpu::{Array, Callback, DeviceError, Gpu, Kernel, KernelCache, KernelSource, Recorder, Trust};
use crate::points::U64Array;
use crate::points::tree::{LEAF, Tree};

/// Entries that a list can have; longer ones take several passes.
const LENGTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Most rounds of loops per accepted source where entries wait. A leaf takes up to ten times those
/// that the kernel counts: a lane that has sources left afterwards has inserted four.
const QUEUE_ROUNDS: u32 = 12;

/// The longest list.
const LONGEST: u32 = LENGTHS[LENGTHS.len() - 1];

/// Returns the shortest list that holds `k` entries, at most the longest there is.
fn list_length(k: u32) -> u32 {
    LENGTHS.into_iter().find(|&length| length >= k).unwrap_or(LONGEST)
}

/// Bytes of scratch memory that lists for a callback take at a time.
const SCRATCH: u64 = 64 << 20;

/// A search whose results are stored: the lists of `part` of the queries along the curve.
struct ListPass<'a> {
    tree: &'a Tree,
    queries: Queries<'a>,
    knn: Nearest,
    rows: RowOrder,
    lists: Fixed<Array<u32>>,
    part: Range<u64>,
}

/// The traversals of a search in one unit.
struct UnitPass<'a> {
    search: &'a ListPass<'a>,
    units: &'a Units,
    params: SearchParams,
    /// A word per group of queries if traversals are cut into portions.
    cursor: Option<Array<u32>>,
}

/// Searches of the nearest sources (k nearest neighbors).
///
/// - Any `k` up to 1024 at run time: lists of up to 32 are kept in registers (kernels are compiled
///   for 1, 2, 4, 8, 16 and 32), longer ones take a traversal of the tree for each 32 entries.
/// - The result is unique: entries are in the order of (`f32` square of the distance, index), also
///   among coincident points.
/// - Everything is recorded; nothing submits or waits, except in large trees on drivers that limit
///   loops ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)): there a search
///   asks whether it is done. For a few queries whose lists are wanted on the host,
///   [`download_lists`](Self::download_lists) asks for both at once.
///
/// ```
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::points::neighbors::{NearestSearch, Predicate, Queries};
/// use meshloom::points::{Cloud, Domain, Frame};
/// use meshloom::points::tree::Builder;
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let domain = Domain::new(&[10.0, 0.0])?; // periodic along x
/// let cloud = Cloud::from_host(&mut recorder, &domain, &[0.5, 0.0, 9.5, 0.0, 3.0, 0.0])?;
/// let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &Frame::over(&domain, cloud.core()))?;
/// let lists = NearestSearch::new(&gpu).lists(&mut recorder, &tree, Queries::Own, &Predicate::nearest(2))?;
/// assert_eq!(recorder.download(&lists.index, 0, 6)?, [0, 1, 1, 0, 2, 0]);
/// assert_eq!(recorder.download(&lists.distance, 0, 6)?, [0.0, 1.0, 0.0, 1.0, 0.0, 2.5]);
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct NearestSearch {
    form: GroupShape,
    budget: LoopBudget,
    kernels: KernelCache<ListKernel>,
    root: Kernel,
    refine: Kernel,
    reduce: Reduce,
    pub(super) folder: Folder,
}

impl NearestSearch {
    /// Creates a search with the kernel variant that suits the device.
    #[must_use]
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu, GroupShape::of(gpu))
    }

    /// In a given form, as far as the device allows it.
    #[must_use]
    pub fn with(gpu: &Gpu, form: GroupShape) -> Self {
        let form = form.on(gpu);
        NearestSearch {
            form,
            budget: LoopBudget::of(gpu),
            kernels: KernelCache::default(),
            root: Kernel::trusted(root()),
            refine: Kernel::trusted(refine()),
            reduce: Reduce::new(),
            folder: Folder::default(),
        }
    }

    /// Sets the number of rounds after which the driver ends loops (at least 1024), or `None`.
    #[must_use]
    pub fn with_rounds(mut self, rounds: Option<u32>) -> Self {
        self.budget = LoopBudget::new(rounds);
        self
    }

    /// Returns the lists of all queries, in the order of the input.
    ///
    /// # Errors
    /// [`NeighborError::TooManyNeighbors`], [`NeighborError::Radius`], [`NeighborError::TooLong`],
    /// those of [`Queries`], and of the device.
    pub fn lists(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        knn: &Nearest,
    ) -> Result<Fixed<Array<u32>>, NeighborError> {
        knn.check()?;
        let lists = empty_lists(&recorder.gpu().clone(), queries.len(tree), knn.k)?;
        let search = ListPass { tree, queries, knn: *knn, rows: RowOrder::Input, lists, part: 0..queries.len(tree) };
        self.fill(recorder, &search)?;
        Ok(search.lists)
    }

    /// Returns the lists of some of the queries, those number `part` along the curve: results that
    /// memory would not hold at once are computed part by part. Rows are in the order of the curve;
    /// `part` begins with a multiple of 32.
    ///
    /// # Errors
    /// Same as [`lists`](Self::lists).
    pub fn lists_of(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        knn: &Nearest,
        part: Range<u64>,
    ) -> Result<Fixed<Array<u32>>, NeighborError> {
        knn.check()?;
        let part = part.start..part.end.min(queries.len(tree));
        if part.start % 32 != 0 || part.start > part.end {
            let why = format!("queries {part:?} of {}; the first must be a multiple of 32", queries.len(tree));
            return Err(DeviceError::misuse("NearestSearch::lists_of", why).into());
        }
        let lists = empty_lists(&recorder.gpu().clone(), part.end - part.start, knn.k)?;
        let search = ListPass { tree, queries, knn: *knn, rows: RowOrder::Curve, lists, part };
        self.fill(recorder, &search)?;
        Ok(search.lists)
    }

    /// Returns the lists of all queries on the host, in the order of the input.
    ///
    /// Blocks: once, with one submission, for up to 64 groups of queries and 60 KiB of lists, if
    /// `k` is at most 32 and one unit suits all coordinates. On drivers that limit loops
    /// ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)), a traversal that
    /// does not end in its first portion submits, blocks and downloads the lists once per portion.
    ///
    /// # Errors
    /// Same as [`lists`](Self::lists).
    pub fn download_lists(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        knn: &Nearest,
    ) -> Result<Fixed<Vec<u64>, Vec<f32>>, NeighborError> {
        knn.check()?;
        let (k, rows) = (knn.k, queries.len(tree));
        let units = queries.units(tree, knn.within, f32::INFINITY);
        let one_traversal = (1..=LONGEST).contains(&k) && units.finer(&queries.extent(tree)).is_none();
        if !one_traversal || rows.div_ceil(self.form.queries()) > FEW {
            let lists = self.lists(recorder, tree, queries, knn)?;
            let (index, distance) = U64Array::of_words(&lists.index).download_with(recorder, Some(&lists.distance))?;
            return Ok(Fixed { k, index, distance });
        }
        let lists = empty_lists(&recorder.gpu().clone(), rows, k)?;
        let search = ListPass { tree, queries, knn: *knn, rows: RowOrder::Input, lists, part: 0..rows };
        let in_unit = self.in_unit(recorder, &search, &units)?;
        let params = SearchParams { write: k, ..in_unit.params };
        let mut traversal = in_unit.first();
        loop {
            self.traverse(recorder, &in_unit, traversal, params)?;
            // The cursor tells whether the lists that come with it are complete.
            let arrays = [search.lists.index.raw(), search.lists.distance.raw()];
            let arrays: Vec<_> = arrays.into_iter().chain(in_unit.cursor.iter().map(Array::raw)).collect();
            let mut words: [Vec<u32>; 3] = Default::default();
            recorder.download_together(&arrays, |array, piece| {
                words[array].extend(bytemuck::cast_slice::<_, u32>(piece));
            })?;
            let [index, distance, cursor] = words;
            if is_complete(&cursor) {
                let index = index.into_iter().map(|word| if word == u32::MAX { u64::MAX } else { word.into() });
                let distance = distance.into_iter().map(f32::from_bits);
                return Ok(Fixed { k, index: index.collect(), distance: distance.collect() });
            }
            traversal = RESUMED;
        }
    }

    /// Returns the number of leaves of the tree that each group of queries along the curve
    /// examines, besides its own, for up to 32 neighbors: the cost of a search, by group;
    /// `u32::MAX` for a group that examines more than the driver allows in one dispatch
    /// ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)). Recorded only.
    ///
    /// # Errors
    /// Same as [`lists`](Self::lists).
    pub fn leaves(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        knn: &Nearest,
    ) -> Result<Array<u32>, NeighborError> {
        knn.check()?;
        let (gpu, rows, length) = (recorder.gpu().clone(), queries.len(tree), list_length(knn.k));
        let knn = Nearest { k: knn.k.min(length), ..*knn };
        let units = queries.units(tree, knn.within, f32::INFINITY);
        let variant = queries.variant(self.form, tree, Traversal::NEAREST.with(Cursor::Count), &units);
        let kernel = ListKernel { variant, length, later_pass: false };
        let kernel = self.kernels.get(kernel, Trust::Library, || kernel.source());
        let leaves = gpu.array("neighbors::leaves", rows.div_ceil(self.form.queries()))?;
        let lists = empty_lists(&gpu, rows, knn.k)?;
        let mut params = SearchParams { write: knn.k, ..queries.params(tree, &knn, &units)? };
        if let Some(portions) = self.portions(tree)? {
            (params.rounds, params.leaf_rounds) = (portions.rounds, portions.leaf);
        }
        let mut arrays = queries.arrays(tree);
        arrays.extend([leaves.raw(), lists.index.raw(), lists.distance.raw()]);
        queries.dispatch(recorder, self.form, &kernel, &arrays, (params, &[]), 0..rows)?;
        Ok(leaves)
    }

    /// Runs `callback` over the list of each query. Lists pass through scratch memory, in parts.
    ///
    /// # Errors
    /// Same as [`lists`](Self::lists); [`DeviceError::Misuse`] for a callback without its
    /// functions, [`DeviceError::Shader`] for one that does not compile.
    pub fn visit(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        knn: &Nearest,
        callback: &Callback,
    ) -> Result<(), NeighborError> {
        knn.check()?;
        callback::check("Callback on neighbors", callback)?;
        let rows = queries.len(tree);
        let points = FoldedPoints::of(recorder, (tree, queries), knn.within, callback)?;
        // A part is a whole number of groups.
        let per = (SCRATCH / (8 * u64::from(knn.k.max(1)))).next_multiple_of(self.form.queries());
        let lists = empty_lists(&recorder.gpu().clone(), per.min(rows), knn.k)?;
        for start in (0..rows).step_by(per as usize) {
            let part = start..(start + per).min(rows);
            let search =
                ListPass { tree, queries, knn: *knn, rows: RowOrder::Curve, lists: lists.clone(), part: part.clone() };
            self.fill(recorder, &search)?;
            let lists = FoldedLists::of_nearest(&lists, knn, queries.numbers(tree), part);
            self.folder.record(recorder, lists, &points, callback)?;
        }
        Ok(())
    }

    /// Returns the portions of a traversal, if it could take too many rounds.
    fn portions(&self, tree: &Tree) -> Result<Option<Portions>, DeviceError> {
        let each = if self.form.queues() { QUEUE_ROUNDS } else { 0 };
        let portions = self.budget.portions(self.form, tree.len().div_ceil(LEAF), each)?;
        // Kernels count the rounds of queues themselves.
        Ok(portions.map(|portions| Portions { leaf: scan(self.form), ..portions }))
    }

    /// Stores lists, in as many units as the coordinates ask for.
    fn fill(&self, recorder: &mut Recorder, search: &ListPass<'_>) -> Result<(), NeighborError> {
        let ListPass { tree, queries, knn, lists, part, .. } = search;
        let extent = queries.extent(tree);
        let coarsest = queries.units(tree, knn.within, f32::INFINITY);
        let mut all: Vec<Units> = std::iter::successors(Some(coarsest), |units| units.finer(&extent)).collect();
        // The finest first: each takes from the one before it what is too near for its own unit.
        let mut finer: Option<Fixed<Array<u32>>> = None;
        while let Some(units) = all.pop() {
            let last = all.is_empty();
            if last && finer.is_none() {
                return self.fill_in_unit(recorder, search, &units, false);
            }
            let into = match last {
                true => lists.clone(),
                false => empty_lists(&recorder.gpu().clone(), part.end - part.start, knn.k)?,
            };
            let search = ListPass { lists: into.clone(), part: part.clone(), ..*search };
            self.fill_in_unit(recorder, &search, &units, finer.is_some())?;
            if let Some(finer) = &finer {
                let arrays = [into.index.raw(), into.distance.raw(), finer.index.raw(), finer.distance.raw()];
                recorder.each(&self.refine, &arrays, &search.root_params(units.unit(), LEAST), search.entries())?;
            }
            finer = Some(into);
        }
        Ok(())
    }

    /// Same as [`fill`](Self::fill), in one unit. Leaves squares in place of distances if
    /// `keep_squares`.
    fn fill_in_unit(
        &self,
        recorder: &mut Recorder,
        search: &ListPass<'_>,
        units: &Units,
        keep_squares: bool,
    ) -> Result<(), NeighborError> {
        let k = search.knn.k;
        let in_unit = self.in_unit(recorder, search, units)?;
        // Later passes go on from squares.
        let unit = if k > LONGEST || keep_squares { 0.0 } else { units.unit() };
        for done in (0..k).step_by(LONGEST as usize) {
            let params = SearchParams { done, write: (k - done).min(LONGEST), unit, ..in_unit.params };
            self.traverse(recorder, &in_unit, in_unit.first(), params)?;
            // Few groups have to go on, if any.
            while in_unit.is_unfinished(recorder, &self.reduce)? {
                self.traverse(recorder, &in_unit, RESUMED, params)?;
            }
        }
        if k > LONGEST && !keep_squares {
            let arrays = [search.lists.index.raw(), search.lists.distance.raw()];
            recorder.each(&self.root, &arrays, &search.root_params(units.unit(), 0.0), search.entries())?;
        }
        Ok(())
    }

    /// Prepares the traversals of a search in one unit, in portions where a driver limits loops.
    fn in_unit<'a>(
        &self,
        recorder: &Recorder,
        search: &'a ListPass<'a>,
        units: &'a Units,
    ) -> Result<UnitPass<'a>, NeighborError> {
        let ListPass { tree, queries, knn, rows, part, .. } = search;
        let params = SearchParams { by_number: *rows as u32, ..queries.params(tree, knn, units)? };
        let Some(portions) = self.portions(tree)? else { return Ok(UnitPass { search, units, params, cursor: None }) };
        let params = SearchParams { rounds: portions.rounds, leaf_rounds: portions.leaf, ..params };
        let groups = (part.end - part.start).div_ceil(self.form.queries());
        let cursor = Some(recorder.gpu().array("neighbors::cursor", groups)?);
        Ok(UnitPass { search, units, params, cursor })
    }

    /// Records a traversal, or a portion of one, that stores the entries
    /// `params.done..params.done + params.write` of each list.
    fn traverse(
        &self,
        recorder: &mut Recorder,
        in_unit: &UnitPass<'_>,
        traversal: Traversal,
        params: SearchParams,
    ) -> Result<(), NeighborError> {
        let ListPass { tree, queries, lists, part, .. } = in_unit.search;
        let variant = queries.variant(self.form, tree, traversal, in_unit.units);
        let kernel = ListKernel { variant, length: list_length(params.write), later_pass: params.done > 0 };
        let kernel = self.kernels.get(kernel, Trust::Library, || kernel.source());
        let mut arrays = queries.arrays(tree);
        arrays.extend(in_unit.cursor.iter().map(Array::raw).chain([lists.index.raw(), lists.distance.raw()]));
        queries.dispatch(recorder, self.form, &kernel, &arrays, (params, &[]), part.clone())
    }
}

impl UnitPass<'_> {
    /// Returns the traversal to begin with.
    fn first(&self) -> Traversal {
        Traversal::NEAREST.with(if self.cursor.is_some() { Cursor::Mark } else { Cursor::None })
    }

    /// Returns `true` if a group of queries has to go on. Blocks if the traversal is cut into
    /// portions.
    fn is_unfinished(&self, recorder: &mut Recorder, reduce: &Reduce) -> Result<bool, DeviceError> {
        match self.cursor.as_ref().filter(|cursor| !cursor.is_empty()) {
            Some(cursor) => any_unfinished(recorder, reduce, cursor),
            None => Ok(false),
        }
    }
}

impl ListPass<'_> {
    /// Entries of all lists.
    fn entries(&self) -> u64 {
        (self.part.end - self.part.start) * u64::from(self.knn.k)
    }

    fn root_params(&self, unit: f32, least: f32) -> RootParams {
        RootParams { count: self.entries() as u32, unit, infinity: f32::INFINITY, least }
    }
}

/// Allocates lists of `k` entries for `rows` rows.
pub(crate) fn empty_lists(gpu: &Gpu, rows: u64, k: u32) -> Result<Fixed<Array<u32>>, NeighborError> {
    let entries = rows * u64::from(k);
    if entries > u64::from(u32::MAX) {
        return Err(NeighborError::TooLong { rows, each: k.into() });
    }
    Ok(Fixed {
        k,
        index: gpu.array("neighbors::index", entries)?,
        distance: gpu.array("neighbors::distance", entries)?,
    })
}

/// The second portion of a traversal and later ones.
const RESUMED: Traversal = Traversal::CURVE.with(Cursor::Resume);

crate::gpu::kernel_params! {
    /// Parameters of the conversion of squares to distances.
    struct RootParams {
        pub count: u32,
        pub unit: f32,
        pub infinity: f32,
        /// Lesser squares are replaced by results in a finer unit (`refine.wgsl` only).
        pub least: f32,
    }
}

/// Lengths of lists whose entries wait to be inserted together, where they do: a queue besides
/// longer ones would spill registers on RDNA 3.
const QUEUED: std::ops::RangeInclusive<u32> = 4..=16;

/// Returns the kernel that replaces squares by distances.
fn root() -> KernelSource {
    KernelSource::new("neighbors::root", include_str!("../../../shaders/points/neighbors/root.wgsl"))
        .params::<RootParams>()
}

/// Returns the kernel that replaces squares by distances, small ones by results in a finer unit.
fn refine() -> KernelSource {
    KernelSource::new("neighbors::refine", include_str!("../../../shaders/points/neighbors/refine.wgsl"))
        .params::<RootParams>()
}

/// A search that stores lists of up to `length` entries; `later_pass` if others were stored before.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ListKernel {
    pub variant: SearchVariant,
    pub length: u32,
    pub later_pass: bool,
}

impl ListKernel {
    /// Returns its text.
    pub fn source(self) -> KernelSource {
        let ListKernel { variant, length, later_pass } = self;
        search("neighbors::nearest", include_str!("../../../shaders/points/neighbors/nearest.wgsl"), variant)
            .module("neighbors::knn_list", include_str!("../../../shaders/points/neighbors/knn_list.wgsl"))
            .flag("links", false)
            .flag("histogram", false)
            .flag("offsets", false)
            .flag("network", variant.form.queues())
            .flag("queued", variant.form.queues() && QUEUED.contains(&length))
            .flag("whole", false)
            .flag("later_pass", later_pass)
            .constant("LENGTH", length)
            .repeat('@', length)
    }
}

/// Returns the kernels of nearest searches in one form of groups, with lists of these lengths.
pub(super) fn kernels(form: GroupShape, lengths: &[u32]) -> Vec<KernelSource> {
    let mut kernels = vec![root(), refine()];
    let marked = Traversal::NEAREST.with(Cursor::Mark);
    for (dims, own, wide) in [(2, true, false), (3, true, false), (3, true, true), (3, false, false)] {
        for &length in lengths {
            for traversal in [Traversal::NEAREST, marked, RESUMED] {
                let variant = SearchVariant { form, dims, own, traversal, wide };
                kernels.push(ListKernel { variant, length, later_pass: dims == 2 }.source());
            }
        }
    }
    kernels
}
