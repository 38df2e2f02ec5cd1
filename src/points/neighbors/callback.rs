//! Callbacks on neighbors: what their text must define, and their run over finished lists.

use std::ops::Range;

use super::search_kernel::{IMAGE, NEIGHBOR};
use super::targets::loaded_sides;
use super::{Fixed, Nearest, NeighborError, Queries, Units};
use crate::gpu::{Array, Callback, CallbackKey, DeviceError, KernelCache, KernelSource, RawArray, Recorder};
use crate::points::Domain;
use crate::points::tree::Tree;

/// Name by which kernels import the text.
pub(super) const MODULE: &str = "neighbors::callback";

/// Refuses a text that lacks one of the functions; `place` is the caller's name for it.
pub(super) fn check(place: &str, callback: &Callback) -> Result<(), DeviceError> {
    callback.check(place, &["fn begin", "fn each", "fn end"])?;
    if callback.defines("alias State") || callback.defines("struct State") {
        return Ok(());
    }
    let why = "the text has no type `State`; define it with `alias State = ...;` or `struct State { ... }`";
    Err(DeviceError::misuse(place, why))
}

/// Returns `true` if a query may end before its last neighbor.
pub(super) fn stops(callback: &Callback) -> bool {
    callback.defines("fn done")
}

/// Returns `true` if the text uses the displacement of a neighbor.
pub(super) fn takes_offset(callback: &Callback) -> bool {
    callback.defines("offset")
}

/// Invocations of a workgroup.
const GROUP: u32 = 64;

crate::gpu::kernel_params! {
    struct FoldParams {
        side: [f32; 4],
        /// The first of the queries that the rows are of.
        base: u32,
        rows: u32,
        k: u32,
        radius: f32,
        load_scale: f32,
        offset_unit: f32,
        nothing: u32,
        pad: u32,
    }
}

/// Variant of a kernel of folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FoldVariant {
    /// Rows have lengths of their own.
    is_ragged: bool,
    /// Positions are bound; `Some(true)` if queries are sources.
    own: Option<bool>,
    dims: usize,
}

/// Finished lists, and whose they are.
#[derive(Clone, Copy)]
pub(super) struct FoldedLists<'a> {
    /// Beginnings and ends of rows; `None` for `k` entries each, with missing ones last.
    pub offset: Option<&'a Array<u32>>,
    pub k: u32,
    pub index: &'a Array<u32>,
    pub distance: &'a Array<f32>,
    /// The index of each query, of which row `i` is query `base + i`.
    pub numbers: &'a Array<u32>,
    pub base: u64,
    pub rows: u64,
    /// The radius that a ragged search had.
    pub radius: f32,
}

impl<'a> FoldedLists<'a> {
    /// Returns the lists of the nearest that `knn` has found, for queries `part`.
    pub fn of_nearest(lists: &'a Fixed<Array<u32>>, knn: &Nearest, numbers: &'a Array<u32>, part: Range<u64>) -> Self {
        let Fixed { index, distance, .. } = lists;
        let (base, rows) = (part.start, part.end - part.start);
        FoldedLists { offset: None, k: knn.k, index, distance, numbers, base, rows, radius: knn.within }
    }
}

/// Positions of the points of a search, for displacements.
pub(super) struct FoldedPoints {
    pub domain: Domain,
    pub units: Units,
    /// By the index of sources; needed where the callback uses displacements.
    pub sources: Option<Array<f32>>,
    /// Positions in the order of the numbers of queries; `None` if queries are sources.
    pub queries: Option<Array<f32>>,
}

impl FoldedPoints {
    /// Returns the points of lists that were found within `reach`. Records a dispatch if the
    /// callback uses displacements and the tree has another order than the points.
    pub fn of(
        recorder: &mut Recorder,
        (tree, queries): (&Tree, Queries<'_>),
        reach: f32,
        callback: &Callback,
    ) -> Result<Self, DeviceError> {
        let sources = takes_offset(callback).then(|| tree.by_index(recorder)).transpose()?;
        let units = queries.units(tree, reach, f32::INFINITY);
        Ok(FoldedPoints { domain: *tree.domain(), units, sources, queries: queries.positions().cloned() })
    }
}

/// Runs callbacks over lists; keeps the compiled kernels.
#[derive(Default)]
pub(super) struct Folder(KernelCache<(FoldVariant, CallbackKey)>);

impl Folder {
    /// Records one dispatch over the rows of `lists`.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        lists: FoldedLists<'_>,
        points: &FoldedPoints,
        callback: &Callback,
    ) -> Result<(), NeighborError> {
        let FoldedLists { offset, k, index, distance, numbers, base, rows, radius } = lists;
        let FoldedPoints { domain, units, sources, queries } = points;
        let sources = sources.as_ref().filter(|_| takes_offset(callback));
        let own = sources.map(|_| queries.is_none());
        let variant = FoldVariant { is_ragged: offset.is_some(), own, dims: domain.dims() };
        let kernel = self.0.get((variant, callback.key()), callback.trust(), || fold(variant, callback));
        let params = FoldParams {
            side: loaded_sides(domain, units),
            base: base as u32,
            rows: rows as u32,
            k,
            radius,
            load_scale: units.load_scale(),
            offset_unit: units.offset_unit(),
            nothing: 0,
            pad: 0,
        };
        let mut arrays: Vec<&RawArray> = offset.into_iter().map(Array::raw).collect();
        arrays.extend([index.raw(), distance.raw(), numbers.raw()]);
        arrays.extend(sources.map(Array::raw));
        arrays.extend(queries.as_ref().filter(|_| sources.is_some()).map(Array::raw));
        arrays.extend(callback.arrays());
        let bytes = [bytemuck::bytes_of(&params), &callback.values()].concat();
        Ok(recorder.dispatch_bytes(&kernel, &arrays, &bytes, rows.div_ceil(u64::from(GROUP)))?)
    }
}

/// Returns the kernel that runs `callback` over lists.
fn fold(variant: FoldVariant, callback: &Callback) -> KernelSource {
    let source = KernelSource::new("neighbors::fold", include_str!("../../../shaders/points/neighbors/fold.wgsl"))
        .params::<FoldParams>()
        .module("neighbors::image", IMAGE)
        .module("neighbors::neighbor", NEIGHBOR)
        .flag("rows", variant.is_ragged)
        .flag("offsets", variant.own.is_some())
        .flag("own", variant.own == Some(true))
        .flag("planar", variant.dims == 2)
        .flag("stopping", variant.is_ragged && stops(callback))
        .group(GROUP);
    callback.bind(source, MODULE)
}

/// Returns the kernels of all variants, with a callback that adds up displacements.
pub(super) fn kernels() -> Vec<KernelSource> {
    let callback = Callback::trusted(
        "var<storage, read_write> sums: array<f32>;\nalias State = vec3<f32>;\n\
         fn begin(query: u32, reach: f32) -> State { return State(reach); }\n\
         fn each(state: State, near: Neighbor) -> State { return state + near.distance * near.offset; }\n\
         fn end(query: u32, state: State) { store_sums(query, state.x + state.y + state.z); }",
    );
    let variants = [false, true].into_iter().flat_map(|is_ragged| {
        [(None, 3), (Some(true), 2), (Some(true), 3), (Some(false), 2), (Some(false), 3)]
            .map(|(own, dims)| FoldVariant { is_ragged, own, dims })
    });
    variants.map(|variant| fold(variant, &callback)).collect()
}
