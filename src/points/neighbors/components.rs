//! Connected components of points within a radius of each other.

use super::query::{RowOrder, check_radius};
use super::{GroupShape, NeighborError, Predicate, Queries};

use super::group_shape::{self, LoopBudget, any_unfinished};
use super::search_kernel::{Cursor, SearchParams, SearchVariant, Traversal, measured, search};
use crate::gpu::primitives::Reduce;
use crate::gpu::{Array, CountParams, Gpu, Kernel, KernelCache, KernelSource, Recorder, Trust};
use crate::points::tree::Tree;

/// Steps towards its root that a point takes per dispatch where drivers limit loops.
const MAX_HOPS: u32 = 256;

crate::gpu::kernel_params! {
    struct FlattenParams {
        count: u32,
        max_hops: u32,
    }
}

/// Finds connected components: points within a radius of each other are linked, as in
/// friends-of-friends.
///
/// - A point's label is the smallest index in its component: it does not depend on the tree, the
///   device or any order of execution.
/// - A link is a neighbor in the sense of [`RadiusSearch`](super::RadiusSearch): inclusive, the
///   nearest image on periodic axes.
/// - Points of a tree node that is not longer than the radius are linked without examining them,
///   and nodes that are in one component with a whole group of points are skipped: coincident
///   points cost O(N).
/// - Memory: 8 bytes per point beside the tree and the labels.
/// - Everything is recorded; nothing submits or waits, except on drivers that limit loops
///   ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)): there it waits to
///   learn whether it is complete.
///
/// The method is a disjoint-set forest that only ever links a root to a lower one (after Jayanti
/// and Tarjan, *Concurrent disjoint set union*, 2021): invocations need not wait for each other,
/// and what each sees may be out of date.
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
/// let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &Frame::over(&domain, cloud.core()))?;
/// let labels = Components::new(&gpu).labels(&mut recorder, &tree, 1.0)?;
/// assert_eq!(recorder.download(&labels, 0, 4)?, [0, 1, 1, 0]);
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct Components {
    form: GroupShape,
    budget: LoopBudget,
    links: KernelCache<SearchVariant>,
    begin: Kernel,
    flatten: Kernel,
    least: Kernel,
    label: Kernel,
    reduce: Reduce,
}

impl Components {
    /// Creates a search with the kernel variant that suits the device.
    #[must_use]
    pub fn new(gpu: &Gpu) -> Self {
        Self::with(gpu, GroupShape::linking(gpu))
    }

    /// In a given form, as far as the device allows it.
    pub fn with(gpu: &Gpu, form: GroupShape) -> Self {
        let form = form.on(gpu);
        let links = KernelCache::default();
        let [begin, flatten, least, label] = fixed_kernels().map(Kernel::trusted);
        Components { form, budget: LoopBudget::of(gpu), links, begin, flatten, least, label, reduce: Reduce::new() }
    }

    /// Sets the number of rounds after which the driver ends loops (at least 1024), or `None`.
    #[must_use]
    pub fn with_rounds(mut self, rounds: Option<u32>) -> Self {
        self.budget = LoopBudget::new(rounds);
        self
    }

    /// Returns the label of each point of the tree's cloud, in its order: the least index of a
    /// point in its component.
    ///
    /// # Errors
    /// [`NeighborError::Radius`], and errors of the device.
    pub fn labels(&self, recorder: &mut Recorder, tree: &Tree, radius: f32) -> Result<Array<u32>, NeighborError> {
        check_radius(radius)?;
        let (gpu, count) = (recorder.gpu().clone(), tree.len());
        let knn = Predicate::nearest(0).within(radius);
        let units = Queries::Own.units(tree, radius, f32::INFINITY);
        let stop = self.budget.linking(self.form);
        let params = SearchParams {
            rounds: stop.unwrap_or(u32::MAX / 2),
            leaf_rounds: group_shape::link(self.form),
            by_number: RowOrder::Curve as u32,
            ..Queries::Own.params(tree, &knn, &units)?
        };
        let labels = gpu.array::<u32>("neighbors::labels", count)?;
        if count == 0 {
            return Ok(labels);
        }
        let parent = gpu.array::<u32>("neighbors::parent", count)?;
        recorder.each(&self.begin, &[tree.boxes().raw(), parent.raw()], &params, count)?;
        // Only where a traversal may have to stop.
        let cursor = stop.map(|_| gpu.array::<u32>("neighbors::cursor", count.div_ceil(self.form.queries())));
        let cursor = cursor.transpose()?;
        cursor.iter().for_each(|cursor| recorder.clear(cursor));
        let variant = link_variant(self.form, tree.domain().dims(), units.wide, cursor.is_some());
        let kernel = self.links.get(variant, Trust::Library, || link(variant));
        let mut arrays = vec![tree.positions().raw(), parent.raw(), tree.boxes().raw()];
        arrays.extend(cursor.iter().map(Array::raw));
        loop {
            Queries::Own.dispatch(recorder, self.form, &kernel, &arrays, (params, &[]), 0..count)?;
            self.flatten(recorder, &parent, stop.is_some())?;
            match &cursor {
                Some(cursor) if any_unfinished(recorder, &self.reduce, cursor)? => {}
                _ => break,
            }
        }
        let least = gpu.array::<u32>("neighbors::least", count)?;
        recorder.clear(&least);
        let params = CountParams { count: count as u32 };
        recorder.each(&self.least, &[parent.raw(), tree.order().raw(), least.raw()], &params, count)?;
        let arrays = [parent.raw(), tree.order().raw(), least.raw(), labels.raw()];
        recorder.each(&self.label, &arrays, &params, count)?;
        Ok(labels)
    }

    /// Links all points to their roots.
    fn flatten(&self, recorder: &mut Recorder, parent: &Array<u32>, limited: bool) -> Result<(), NeighborError> {
        let left = recorder.gpu().array::<u32>("neighbors::left", 1)?;
        let max_hops = if limited { MAX_HOPS } else { u32::MAX };
        let params = FlattenParams { count: parent.len() as u32, max_hops };
        loop {
            recorder.clear(&left);
            recorder.each(&self.flatten, &[parent.raw(), left.raw()], &params, parent.len())?;
            if !limited || recorder.download(&left, 0, 1)?[0] == 0 {
                return Ok(());
            }
        }
    }
}

/// Returns the search that links; one that is `limited` can stop and go on.
fn link_variant(form: GroupShape, dims: usize, wide: bool, limited: bool) -> SearchVariant {
    let cursor = if limited { Cursor::Resume } else { Cursor::None };
    SearchVariant { form, dims, own: true, traversal: Traversal::CURVE.half().with(cursor), wide }
}

fn link(variant: SearchVariant) -> KernelSource {
    search("neighbors::link", include_str!("../../../shaders/points/neighbors/link.wgsl"), variant)
        .flag("links", true)
        .flag("histogram", false)
        .flag("queued", false)
        .flag("whole", false)
        .flag("offsets", false)
}

/// Returns the kernels that begin, flatten, find the least points of, and label components.
fn fixed_kernels() -> [KernelSource; 4] {
    let begin = include_str!("../../../shaders/points/neighbors/link_begin.wgsl");
    [
        measured(KernelSource::new("neighbors::link_begin", begin), true).params::<SearchParams>(),
        KernelSource::new(
            "neighbors::link_flatten",
            include_str!("../../../shaders/points/neighbors/link_flatten.wgsl"),
        )
        .params::<FlattenParams>(),
        KernelSource::new("neighbors::link_least", include_str!("../../../shaders/points/neighbors/link_least.wgsl"))
            .params::<CountParams>(),
        KernelSource::new("neighbors::link_label", include_str!("../../../shaders/points/neighbors/link_label.wgsl"))
            .params::<CountParams>(),
    ]
}

/// Returns the kernels of this file in one form of groups.
pub(super) fn kernels(form: GroupShape) -> Vec<KernelSource> {
    let links = [(2, false, false), (3, false, true), (3, true, false)];
    let links = links.map(|(dims, wide, limited)| link(link_variant(form, dims, wide, limited)));
    links.into_iter().chain(fixed_kernels()).collect()
}
