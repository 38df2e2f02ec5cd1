//! Connected components of points that lie near each other.

use super::error::NeighborError;
use super::group_shape::GroupShape;
use super::loop_budget::{self, LoopBudget, unfinished};
use super::query::{KnnQuery, RowOrder, check_radius};
use super::targets::Queries;
use super::writer::{self, Params, Shape, Traversal};
use crate::gpu::primitives::Reduce;
use crate::gpu::{Access, Array, Element, Gpu, Kernel, KernelSource, Recorder};
use crate::points::tree::Tree;

/// What diagonals of boxes are taken to be longer by, so that rounding never makes neighbours of points that are none.
const TIGHTER: &str = "const TIGHTER: f32 = 1.000004;\n";

/// Steps towards a root that a point takes at a time where drivers limit loops.
const HOPS: u32 = 256;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Begin {
    starts: [u32; 12],
    count: u32,
    levels: u32,
    reach: f32,
    load_unit: f32,
    zoom: f32,
    farthest: f32,
    pad: [u32; 2],
}

/// Finds connected components: points are linked that lie within a radius of each other, as in friends-of-friends.
///
/// - A point's label is the least number of a point in its component: it does not depend on the tree, the device or the order
///   of anything.
/// - A link is what [`Radius`](super::Radius) counts as a neighbour: inclusive, the nearest image on periodic axes.
/// - Points of a node of the tree that is no longer than the radius are linked without looking at them, and nodes that are one with
///   a whole group of points are passed by: points that coincide cost O(N).
/// - Memory: 8 bytes a point besides the tree and the labels.
/// - Everything is recorded; nothing submits or waits, except on drivers that limit loops
///   ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)): there it asks whether it is done.
///
/// The method is a disjoint-set forest that only ever hooks a root to a lower one (after Jayanti and Tarjan, *Concurrent disjoint
/// set union*, 2021): invocations need not wait for each other, and what each sees may be out of date.
///
/// ```
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::points::neighbors::Components;
/// use meshloom::points::{Cloud, Domain, Frame};
/// use meshloom::points::tree::Builder;
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let domain = Domain::new(&[10.0, 0.0])?; // periodic along x
/// let cloud = Cloud::from_host(&mut recorder, &domain, &[3.0, 0.0, 9.5, 0.0, 0.5, 0.0, 4.0, 0.0])?;
/// let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &Frame::new(&domain, cloud.bounds()))?;
/// let labels = Components::new(&gpu).labels(&mut recorder, &tree, 1.0)?;
/// assert_eq!(recorder.download(&labels, 0, 4)?, [0, 1, 1, 0]);
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct Components {
    form: GroupShape,
    rounds: LoopBudget,
    /// By dimensions, then by how they measure.
    links: [[Kernel; 2]; 2],
    begin: Kernel,
    flatten: Kernel,
    least: Kernel,
    label: Kernel,
    reduce: Reduce,
}

impl Components {
    /// In the form that suits a device.
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu, GroupShape::linking(gpu))
    }

    /// In a given form, which the device must allow.
    pub fn with(gpu: &Gpu, form: GroupShape) -> Self {
        let [begin, flatten, least, label] = helpers().map(Kernel::trusted);
        let links = [2, 3].map(|dims| [false, true].map(|wide| Kernel::trusted(link(form, dims, wide))));
        Components { form, rounds: LoopBudget::of(gpu), links, begin, flatten, least, label, reduce: Reduce::new() }
    }

    /// The same for a driver that ends loops after so many rounds (at least 1024), or never.
    #[must_use]
    pub fn with_rounds(mut self, rounds: Option<u32>) -> Self {
        self.rounds = LoopBudget::new(rounds);
        self
    }

    /// The label of each point of the tree's cloud, in its order: the least number of a point in its component.
    ///
    /// # Errors
    /// [`NeighborError::Radius`], and those of the device.
    pub fn labels(&self, recorder: &mut Recorder, tree: &Tree, radius: f32) -> Result<Array<u32>, NeighborError> {
        check_radius(radius)?;
        let (gpu, count) = (recorder.gpu().clone(), tree.len());
        let ask = KnnQuery { within: radius, rows: RowOrder::Curve, ..KnnQuery::nearest(0) };
        let units = Queries::Own.units(tree, radius, f32::INFINITY);
        let stop = self.rounds.linking(self.form);
        let params = Params {
            rounds: stop.unwrap_or(u32::MAX / 2),
            leaf_rounds: loop_budget::link(self.form),
            ..Queries::Own.params(tree, &ask, &units)?
        };
        let labels = gpu.array::<u32>("neighbors::labels", count)?;
        if count == 0 {
            return Ok(labels);
        }
        let parent = gpu.array::<u32>("neighbors::parent", count)?;
        let begin = Begin {
            starts: tree.levels().words(),
            count: count as u32,
            levels: tree.levels().count() as u32,
            reach: params.reach,
            load_unit: params.load_unit,
            zoom: params.zoom,
            farthest: params.farthest,
            pad: [0; 2],
        };
        recorder.each(&self.begin, &[tree.boxes().raw(), parent.raw()], &begin, count)?;
        let cursor = gpu.array::<u32>("neighbors::cursor", count.div_ceil(self.form.queries()))?;
        recorder.clear(&cursor);
        let kernel = &self.links[tree.domain().dims() - 2][usize::from(units.wide())];
        let arrays = [tree.positions().raw(), parent.raw(), tree.boxes().raw(), cursor.raw()];
        loop {
            Queries::Own.dispatch(recorder, self.form, kernel, &arrays, params, 0..count)?;
            self.flat(recorder, &parent, stop.is_some())?;
            if stop.is_none() || !unfinished(recorder, &self.reduce, &cursor)? {
                break;
            }
        }
        let least = gpu.array::<u32>("neighbors::least", count)?;
        recorder.clear(&least);
        let words = [count as u32, 0, 0, 0];
        recorder.each(&self.least, &[parent.raw(), tree.order().raw(), least.raw()], &words, count)?;
        let arrays = [parent.raw(), tree.order().raw(), least.raw(), labels.raw()];
        recorder.each(&self.label, &arrays, &words, count)?;
        Ok(labels)
    }

    /// Brings all points to their roots.
    fn flat(&self, recorder: &mut Recorder, parent: &Array<u32>, limited: bool) -> Result<(), NeighborError> {
        let left = recorder.gpu().array::<u32>("neighbors::left", 1)?;
        let params = [parent.len() as u32, if limited { HOPS } else { u32::MAX }, 0, 0];
        loop {
            recorder.clear(&left);
            recorder.each(&self.flatten, &[parent.raw(), left.raw()], &params, parent.len())?;
            if !limited || recorder.download(&left, 0, 1)?[0] == 0 {
                return Ok(());
            }
        }
    }
}

fn link(form: GroupShape, dims: usize, wide: bool) -> KernelSource {
    let shape = Shape { form, dims, own: true, walk: Traversal::Links, wide };
    writer::search("link", shape, include_str!("../../../shaders/points/neighbors/link.wgsl"), TIGHTER)
}

fn helpers() -> [KernelSource; 4] {
    let kernel = |name: &str, text: &str| KernelSource::new(format!("neighbors::link_{name}"), text.to_string());
    let begin = include_str!("../../../shaders/points/neighbors/link_begin.wgsl");
    let begin = kernel("begin", &format!("{TIGHTER}{}{begin}", writer::measure(true)))
        .fields("starts: array<vec4<u32>, 3>, count: u32, levels: u32, reach: f32, load_unit: f32, zoom: f32, farthest: f32, pad: vec2<u32>")
        .array("box", Element::U32, Access::Read)
        .array("parent", Element::U32, Access::ReadWrite);
    let flatten = kernel("flatten", include_str!("../../../shaders/points/neighbors/link_flatten.wgsl"))
        .fields("count: u32, hops: u32, pad0: u32, pad1: u32")
        .array("parent", Element::U32, Access::Atomic)
        .array("left", Element::U32, Access::Atomic);
    let [least, label] = [
        ("least", include_str!("../../../shaders/points/neighbors/link_least.wgsl"), Access::Atomic),
        ("label", include_str!("../../../shaders/points/neighbors/link_label.wgsl"), Access::Read),
    ]
    .map(|(name, text, access)| {
        kernel(name, text)
            .fields("count: u32, pad0: u32, pad1: u32, pad2: u32")
            .array("parent", Element::U32, Access::Read)
            .array("order", Element::U32, Access::Read)
            .array("least", Element::U32, access)
    });
    [begin, flatten, least, label.array("label", Element::U32, Access::ReadWrite)]
}

/// Kernels in one form of all kinds that there are.
pub(super) fn sources(form: GroupShape) -> Vec<KernelSource> {
    [(2, false), (3, false), (3, true)]
        .into_iter()
        .map(|(dims, wide)| link(form, dims, wide))
        .chain(helpers())
        .collect()
}
