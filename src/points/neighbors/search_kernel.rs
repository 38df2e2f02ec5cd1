//! The kernels of group searches: what they differ in, their parameters, and their text.

use super::group_shape::{GroupShape, Lanes};
use crate::gpu::KernelSource;
use crate::points::tree::{FAN, LEAF};

/// Variant of a kernel of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SearchVariant {
    pub form: GroupShape,
    /// Coordinates per point: 2 or 3.
    pub dims: usize,
    /// The queries are the tree's own points, in its order.
    pub own: bool,
    pub traversal: Traversal,
    /// Differences are brought to the unit of squares one by one; see
    /// [`Units`](super::units::Units).
    pub wide: bool,
}

/// In which order a group looks at leaves, and whether it can stop and go on in another dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Traversal {
    pub order: LeafOrder,
    /// Only leaves from the group's own on, and only sources behind a query: each pair of points
    /// once.
    pub half: bool,
    pub cursor: Cursor,
}

/// The order in which leaves are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeafOrder {
    /// The nearest first, after the group's own.
    NearestFirst,
    /// Along the curve.
    Curve,
}

/// Contents of the array `cursor`, one word per group; `u32::MAX` for a group that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cursor {
    /// No array: every group is traversed to the end.
    None,
    /// 0 for a group that had to stop.
    Mark,
    /// Number of leaves that the group has examined; `u32::MAX` for one that had to stop.
    Count,
    /// The leaf at which the group has stopped, and goes on.
    Resume,
}

impl Traversal {
    /// Nearest leaves first, to the end.
    pub const NEAREST: Traversal = Traversal { order: LeafOrder::NearestFirst, half: false, cursor: Cursor::None };
    /// Along the curve, to the end.
    pub const CURVE: Traversal = Traversal { order: LeafOrder::Curve, half: false, cursor: Cursor::None };

    pub const fn half(self) -> Traversal {
        Traversal { half: true, ..self }
    }

    pub const fn with(self, cursor: Cursor) -> Traversal {
        Traversal { cursor, ..self }
    }
}

crate::gpu::kernel_params! {
    /// The parameters of every search.
    #[derive(Default)]
    pub(super) struct SearchParams {
        /// Sides as coordinates are loaded; far beyond any difference along open axes.
        pub side: [f32; 4],
        /// First node of each level.
        pub starts: [[u32; 4]; 3],
        pub levels: u32,
        pub sources: u32,
        /// The query at which this dispatch ends.
        pub queries: u32,
        /// First query of the dispatch.
        pub first: u32,
        /// Squared, in the unit of squares.
        pub reach: f32,
        /// Factor of the roots of squares; 0 if squares are stored.
        pub unit: f32,
        pub infinity: f32,
        /// Entries of a row.
        pub k: u32,
        /// Entries of a row that are there already, and that are to be written.
        pub done: u32,
        pub write: u32,
        /// Rows are by the index of the query (1) or along the curve (0).
        pub by_number: u32,
        /// Leaves out: nothing (0), the source with the index of the query (1), those up to that
        /// index (2).
        pub skip: u32,
        /// Rows along the curve are counted from this query.
        pub base: u32,
        /// The radius as the caller gave it.
        pub radius: f32,
        /// Rounds of loops after which a traversal stops, and those that a leaf takes.
        pub rounds: u32,
        pub leaf_rounds: u32,
        /// See `Units`.
        pub load_scale: f32,
        pub square_scale: f32,
        pub max_difference: f32,
        /// Blocks of queries, of a workgroup's size each, that a workgroup takes one after the
        /// other.
        pub blocks: u32,
        /// 0, which compilers do not know.
        pub nothing: u32,
        /// Factor of differences of loaded coordinates for displacements.
        pub offset_unit: f32,
        /// Parameters of callbacks begin at a multiple of 16 bytes.
        pub pad: [u32; 2],
    }
}

/// Entries of a traversal's stack.
const STACK: u32 = 80;

/// Returns the search `text`, one of the kernels that import `neighbors::search`.
pub(super) fn search(label: &str, text: &'static str, variant: SearchVariant) -> KernelSource {
    let SearchVariant { form, dims, own, traversal, wide } = variant;
    let lanes = match form.lanes {
        Lanes::Alone => include_str!("../../../shaders/points/neighbors/lanes_single.wgsl"),
        Lanes::Subgroup { .. } => include_str!("../../../shaders/points/neighbors/lanes_subgroup.wgsl"),
        Lanes::Workgroup(_) => include_str!("../../../shaders/points/neighbors/lanes_workgroup.wgsl"),
    };
    let least = form.least_lanes();
    measured(KernelSource::new(label, text), wide)
        .params::<SearchParams>()
        .group(form.workgroup())
        .module("neighbors::search", include_str!("../../../shaders/points/neighbors/search.wgsl"))
        .module("neighbors::image", IMAGE)
        .module("neighbors::lanes", lanes)
        .module("neighbors::nearest_first", include_str!("../../../shaders/points/neighbors/nearest_first.wgsl"))
        .module("neighbors::in_order", include_str!("../../../shaders/points/neighbors/in_order.wgsl"))
        .module("neighbors::query_reach", include_str!("../../../shaders/points/neighbors/query_reach.wgsl"))
        .module("neighbors::neighbor", NEIGHBOR)
        .module("neighbors::rounded_sqrt", include_str!("../../../shaders/points/neighbors/rounded_sqrt.wgsl"))
        .constant("LEAF", LEAF as u32)
        .constant("FAN", FAN as u32)
        .constant("STACK", STACK)
        .constant("LANES", least)
        .constant("SLOTS", form.slots)
        .flag("planar", dims == 2)
        .flag("own", own)
        .flag("nearest_first", traversal.order == LeafOrder::NearestFirst)
        .flag("half", traversal.half)
        .flag("cursor", traversal.cursor != Cursor::None)
        .flag("marks", traversal.cursor == Cursor::Mark)
        .flag("counts", traversal.cursor == Cursor::Count)
        .flag("resumes", traversal.cursor == Cursor::Resume)
        .repeat('#', form.slots)
        .repeat('$', form.children())
        .repeat('?', STACK.div_ceil(least))
}

/// Returns a kernel that measures distances as searches do.
pub(super) fn measured(source: KernelSource, wide: bool) -> KernelSource {
    source
        .module("neighbors::measure", include_str!("../../../shaders/points/neighbors/measure.wgsl"))
        .module("neighbors::fits_reach", include_str!("../../../shaders/points/neighbors/fits_reach.wgsl"))
        .flag("wide", wide)
}

/// Differences to nearest images.
pub(super) const IMAGE: &str = include_str!("../../../shaders/points/neighbors/image.wgsl");

/// Data of a neighbor for callbacks.
pub(super) const NEIGHBOR: &str = include_str!("../../../shaders/points/neighbors/neighbor.wgsl");
