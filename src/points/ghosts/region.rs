//! A rank's points under a tree of boxes, and how far each reaches. Boxes are on the host, points
//! leaf by leaf as they are asked for.
//!
//! What is computed on the host from values that are not there is worth nothing: they are noted,
//! [`Fetcher`] fetches them, and what asked for them is computed again. So a rank downloads the
//! leaves near other ranks' points, by its surface, and waits for the device a few times.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;

use crate::gpu::primitives::Permute;
use crate::gpu::{Array, DeviceElement, DeviceError, Recorder};
use crate::host_memory;
use crate::points::tree::{LEAF, Levels, Tree, leaf_ranges};
use crate::points::{Bounds, Domain, upload_u32};

/// Points of a rank along the curve, and the boxes of a tree over them.
///
/// What comes of points that are not on the host yet is worth nothing until [`Fetcher`] has them.
pub(crate) struct Region {
    /// Coordinates per point.
    pub dims: usize,
    /// Sides; 0 along open axes.
    pub side: [f32; 3],
    /// The levels of the tree.
    pub levels: Levels,
    /// Box of each node.
    pub boxes: Vec<Bounds>,
    points: LeafValues<f32>,
}

/// Points of a leaf that are asked about together before they are one by one.
const PART: u64 = LEAF / 4;

/// Points that follow each other on the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The points of a node: its level, and its number in the level.
    Node(usize, u64),
    /// A part of a leaf, by its number among those of all leaves.
    Part(u64),
}

/// Element met by a traversal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// A node: its level, and its number in it.
    Node(usize, u64),
    /// A point, by its place along the curve.
    Point(usize),
}

impl Region {
    /// Creates the region of a tree. Waits for boxes, 1.2 bytes a point.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn of(recorder: &mut Recorder, tree: &Tree) -> Result<Self, DeviceError> {
        Self::around(recorder, tree.domain(), tree.positions(), tree.boxes())
    }

    /// Creates the region of points along the curve, and of the boxes of a tree over them, as
    /// [`Tree::boxes`] has them. Waits for the boxes.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn around(
        recorder: &mut Recorder,
        domain: &Domain,
        positions: &Array<f32>,
        boxes: &Array<u32>,
    ) -> Result<Self, DeviceError> {
        let words = recorder.download(boxes, 0, boxes.len())?;
        let corner = |words: &[u32]| [0, 1, 2].map(|axis| f32::from_bits(words[axis]));
        let bounds = |node: &[u32]| Bounds { low: corner(node), high: corner(&node[3..]) };
        let dims = domain.dims();
        Ok(Region {
            dims,
            side: domain.sides(),
            levels: Levels::new(positions.len() / dims as u64),
            boxes: host_memory::collect("boxes of a tree", words.chunks_exact(8).map(bounds))?,
            points: LeafValues::of(recorder, positions.clone(), dims as u64)?,
        })
    }

    /// Returns its points, as what can be missing.
    pub fn on_demand(&self) -> &dyn OnDemand {
        &self.points
    }

    /// Returns the number of points.
    pub fn len(&self) -> u64 {
        self.levels.points(self.levels.count(), 0).end
    }

    /// Returns the box of a node.
    pub fn node(&self, level: usize, node: u64) -> &Bounds {
        &self.boxes[(self.levels.start(level) + node) as usize]
    }

    /// Returns the places along the curve of the points of a span.
    pub fn places(&self, span: Span) -> std::ops::Range<usize> {
        let places = match span {
            Span::Node(level, node) => self.levels.points(level, node),
            Span::Part(part) => part * PART..((part + 1) * PART).min(self.len()),
        };
        places.start as usize..places.end as usize
    }

    /// Returns the box around the points of a span.
    pub fn bounds_of(&self, span: Span) -> Bounds {
        match span {
            Span::Node(level, node) => *self.node(level, node),
            Span::Part(part) => {
                let places = part * PART..((part + 1) * PART).min(self.len());
                Bounds::around(self.points.of_points(places), self.dims)
            }
        }
    }

    /// Returns the spans that a span is divided into; none of a part.
    pub fn parts(&self, span: Span) -> Vec<Span> {
        match span {
            Span::Node(0, leaf) => {
                let points = self.levels.points(0, leaf);
                (points.start / PART..points.end.div_ceil(PART)).map(Span::Part).collect()
            }
            Span::Node(level, node) => {
                self.levels.children(level, node).map(|child| Span::Node(level - 1, child)).collect()
            }
            Span::Part(_) => Vec::new(),
        }
    }

    /// Returns the box around all points.
    pub fn bounds(&self) -> Bounds {
        let mut all = Bounds::EMPTY;
        self.top().for_each(|node| all.include(self.node(self.levels.count() - 1, node)));
        all
    }

    /// Returns the nodes of the highest level; none without points.
    pub fn top(&self) -> std::ops::Range<u64> {
        0..self.levels.count().checked_sub(1).map_or(0, |level| self.levels.nodes(level))
    }

    /// Returns the coordinates of the point at a place along the curve.
    pub fn point(&self, at: usize) -> &[f32] {
        self.points.of_points(at as u64..at as u64 + 1)
    }

    /// Calls `visit` for each node and each point that may be within `reach` of `bounds`, nodes
    /// before what they hold; what a node holds is left out unless `visit` returns true for it.
    pub fn walk(&self, bounds: &Bounds, reach: f32, mut visit: impl FnMut(Met, &Bounds) -> bool) {
        let top = self.levels.count();
        let mut stack: Vec<(usize, u64)> = Vec::with_capacity(64);
        stack.extend(self.top().map(|node| (top - 1, node)));
        while let Some((level, node)) = stack.pop() {
            let held = self.node(level, node);
            if !bounds.may_reach(held, reach, &self.side) || !visit(Met::Node(level, node), held) {
                continue;
            }
            if level > 0 {
                stack.extend(self.levels.children(level, node).map(|child| (level - 1, child)));
                continue;
            }
            for (at, point) in (node * LEAF..).zip(self.points.leaf(node).chunks_exact(self.dims)) {
                let point = Bounds::point(point);
                if bounds.may_reach(&point, reach, &self.side) {
                    visit(Met::Point(at as usize), &point);
                }
            }
        }
    }
}

/// Values of all nodes of a tree from those of its leaves: each node has what `join` makes of the
/// values of those that it holds.
fn upwards<T>(levels: &Levels, leaves: Vec<T>, join: impl Fn(&[T]) -> T) -> Vec<T> {
    let mut values = leaves;
    values.reserve(levels.total() as usize - values.len());
    for level in 1..levels.count() {
        let below = levels.start(level - 1);
        for node in 0..levels.nodes(level) {
            let held = levels.children(level, node);
            values.push(join(&values[(below + held.start) as usize..(below + held.end) as usize]));
        }
    }
    values
}

/// Reach of the points of a region; infinity for everything.
pub(crate) enum Reach {
    /// One reach for all points.
    Same(f32),
    /// By place along the curve, and by node: that of the point that reaches farthest.
    Each { points: LeafValues<f32>, nodes: Vec<f32> },
}

impl Reach {
    /// For each point of a region, along the curve: numbers from 0 on. Waits for those of leaves.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn each(recorder: &mut Recorder, region: &Region, reach: Array<f32>) -> Result<Reach, DeviceError> {
        let leaves = leaf_ranges(recorder, &reach.cast()?)?;
        let leaves = leaves.into_iter().map(|[_, farthest]| f32::from_bits(farthest)).collect();
        let points = LeafValues::of(recorder, reach, 1)?;
        Ok(Reach::Each { points, nodes: upwards(&region.levels, leaves, farthest) })
    }

    /// Returns what can be missing.
    pub fn on_demand(&self) -> Option<&dyn OnDemand> {
        match self {
            Reach::Same(_) => None,
            Reach::Each { points, .. } => Some(points),
        }
    }

    /// Returns the reach of a span of a region.
    pub fn of(&self, region: &Region, span: Span) -> f32 {
        match (self, span) {
            (Reach::Same(reach), _) => *reach,
            (Reach::Each { nodes, .. }, Span::Node(level, node)) => nodes[(region.levels.start(level) + node) as usize],
            (Reach::Each { points, .. }, Span::Part(_)) => {
                let places = region.places(span);
                farthest(points.of_points(places.start as u64..places.end as u64))
            }
        }
    }

    /// Returns the reach of the point at a place along the curve.
    pub fn of_point(&self, at: usize) -> f32 {
        match self {
            Reach::Same(reach) => *reach,
            Reach::Each { points, .. } => farthest(points.of_points(at as u64..at as u64 + 1)),
        }
    }
}

/// Returns the greatest of several reaches.
fn farthest(reaches: &[f32]) -> f32 {
    reaches.iter().copied().fold(0.0, f32::max)
}

#[cfg(test)]
impl Region {
    /// A region over points of the host that are arranged along a curve.
    pub fn over(dims: usize, side: [f32; 3], points: &[f32]) -> Self {
        let levels = Levels::new((points.len() / dims) as u64);
        let leaves = points.chunks(LEAF as usize * dims).map(|leaf| Bounds::around(leaf, dims)).collect();
        let union = |a: Bounds, b: &Bounds| {
            let mut union = a;
            union.include(b);
            union
        };
        let boxes = upwards(&levels, leaves, |below| below.iter().fold(Bounds::EMPTY, union));
        Region { dims, side, levels, boxes, points: LeafValues::over(points, dims as u64) }
    }
}

#[cfg(test)]
impl Reach {
    /// For each point of a region, as the host has them.
    pub fn on_host(region: &Region, reach: &[f32]) -> Reach {
        let leaves = reach.chunks(LEAF as usize).map(farthest).collect();
        Reach::Each { points: LeafValues::over(reach, 1), nodes: upwards(&region.levels, leaves, farthest) }
    }
}

/// Values of points along the curve.
pub(crate) struct LeafValues<T> {
    /// Values of each point.
    width: u64,
    /// Leaves still on the device, and the kernel that gathers them; `None` if all are local.
    device: Option<Box<(Array<T>, Permute)>>,
    leaves: Vec<OnceCell<Box<[T]>>>,
    missing: RefCell<BTreeSet<u32>>,
    /// Number of leaves found missing since the last fetch.
    misses: Cell<usize>,
}

impl<T: DeviceElement> LeafValues<T> {
    /// Creates the values in an array of the device, `width` of each point. Waits for the last leaf
    /// if it is incomplete.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn of(recorder: &mut Recorder, values: Array<T>, width: u64) -> Result<Self, DeviceError> {
        let (count, each) = (values.len(), LEAF * width);
        let count_of_leaves = count.div_ceil(each) as usize;
        let leaves: Vec<OnceCell<Box<[T]>>> =
            host_memory::collect("values of leaves", (0..count_of_leaves).map(|_| OnceCell::new()))?;
        if !count.is_multiple_of(each)
            && let Some(last) = leaves.last()
        {
            let first = count / each * each;
            let _ = last.set(recorder.download(&values, first, count - first)?.into());
        }
        let (device, missing) = (Some(Box::new((values, Permute::new()))), RefCell::default());
        Ok(LeafValues { width, device, leaves, missing, misses: Cell::new(0) })
    }

    /// Returns the values of a leaf; none, and noted, where they are not here.
    pub fn leaf(&self, leaf: u64) -> &[T] {
        match self.leaves.get(leaf as usize).and_then(OnceCell::get) {
            Some(values) => values,
            None => {
                self.missing.borrow_mut().insert(leaf as u32);
                self.misses.set(self.misses.get() + 1);
                &[]
            }
        }
    }

    /// Returns the values of points that follow each other in one leaf; none, and noted, where they
    /// are not here.
    pub fn of_points(&self, places: std::ops::Range<u64>) -> &[T] {
        let leaf = places.start / LEAF;
        let [first, end] = [places.start, places.end].map(|at| ((at - leaf * LEAF) * self.width) as usize);
        self.leaf(leaf).get(first..end).unwrap_or(&[])
    }
}

/// Values that can be missing.
pub(crate) trait OnDemand {
    /// Returns how often any were missing since they were last fetched.
    fn misses(&self) -> usize;
    /// Fetches those that were missing. Waits.
    fn fetch(&self, recorder: &mut Recorder) -> Result<(), DeviceError>;
}

impl<T: DeviceElement> OnDemand for LeafValues<T> {
    fn misses(&self) -> usize {
        self.misses.get()
    }

    fn fetch(&self, recorder: &mut Recorder) -> Result<(), DeviceError> {
        self.misses.set(0);
        let leaves: Vec<u32> = self.missing.take().into_iter().collect();
        let (Some((values, permute)), false) = (self.device.as_deref(), leaves.is_empty()) else { return Ok(()) };
        let (index, each) = (upload_u32(recorder, &leaves)?, LEAF * self.width);
        let rows = permute.gathered(recorder, "ghosts::leaves", values, &index, each)?;
        let rows = recorder.download(&rows, 0, rows.len())?;
        for (leaf, values) in leaves.into_iter().zip(rows.chunks(each as usize)) {
            let _ = self.leaves[leaf as usize].set(values.into());
        }
        Ok(())
    }
}

/// Computes what needs values that may be missing.
pub(crate) struct Fetcher<'a> {
    /// `None` where all values are of the host.
    recorder: Option<&'a mut Recorder>,
    stores: Vec<&'a dyn OnDemand>,
}

impl<'a> Fetcher<'a> {
    /// Fetches what is missing in any of these.
    pub fn new(recorder: &'a mut Recorder, stores: Vec<&'a dyn OnDemand>) -> Self {
        Fetcher { recorder: Some(recorder), stores }
    }

    fn misses(&self) -> usize {
        self.stores.iter().map(|store| store.misses()).sum()
    }

    fn fetch(&mut self) -> Result<(), DeviceError> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        self.stores.iter().try_for_each(|store| store.fetch(recorder))
    }

    /// Returns what `run` gives, with everything there that it asks for: it is called until nothing
    /// was missing.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn complete<R>(&mut self, mut run: impl FnMut() -> R) -> Result<R, DeviceError> {
        loop {
            let found = run();
            if self.misses() == 0 {
                return Ok(found);
            }
            self.fetch()?;
        }
    }

    /// Returns what `run` gives for each of `items`, with everything there that it asks for: those
    /// that missed anything are asked again, together.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn each<T: Copy, R>(&mut self, items: &[T], mut run: impl FnMut(T) -> R) -> Result<Vec<R>, DeviceError> {
        let mut found: Vec<Option<R>> = host_memory::collect("answers to other ranks", items.iter().map(|_| None))?;
        let mut open = host_memory::collect("requests of other ranks", 0..items.len())?;
        while !open.is_empty() {
            open.retain(|&item| {
                let before = self.misses();
                let answer = run(items[item]);
                let whole = self.misses() == before;
                if whole {
                    found[item] = Some(answer);
                }
                !whole
            });
            if !open.is_empty() {
                self.fetch()?;
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

#[cfg(test)]
impl<T: DeviceElement> LeafValues<T> {
    /// Creates values on the host, `width` of each point.
    pub fn over(values: &[T], width: u64) -> Self {
        let leaves = values.chunks((LEAF * width) as usize).map(|leaf| OnceCell::from(Box::from(leaf))).collect();
        LeafValues { width, device: None, leaves, missing: RefCell::default(), misses: Cell::new(0) }
    }
}

#[cfg(test)]
impl Fetcher<'_> {
    /// Returns where nothing is missing.
    pub fn of_host() -> Self {
        Fetcher { recorder: None, stores: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(n: usize) -> Vec<f32> {
        (0..n).flat_map(|i| [(i as f32 * 0.618).fract(), (i as f32 * 0.414).fract()]).collect()
    }

    fn region(n: usize) -> Region {
        Region::over(2, [1.0, 0.0, 0.0], &points(n))
    }

    #[test]
    fn nodes_hold_their_points_and_reach_as_far() {
        for n in [0, 1, 32, 33, 1000, 2049] {
            let (region, points) = (region(n), points(n));
            let reach = Reach::on_host(&region, &(0..n).map(|at| (at * 7 % 101) as f32).collect::<Vec<f32>>());
            assert_eq!(region.len(), n as u64);
            assert_eq!(region.boxes.len() as u64, region.levels.total());
            // From the top down each point is in one span.
            let mut spans: Vec<Span> = region.top().map(|node| Span::Node(region.levels.count() - 1, node)).collect();
            while !spans.is_empty() {
                assert!(spans.iter().flat_map(|&span| region.places(span)).eq(0..n));
                for &span in &spans {
                    let places = region.places(span);
                    let part = &points[2 * places.start..2 * places.end];
                    assert_eq!(region.bounds_of(span), Bounds::around(part, 2));
                    assert_eq!(
                        reach.of(&region, span),
                        farthest(&places.map(|at| reach.of_point(at)).collect::<Vec<_>>())
                    );
                }
                spans = spans.into_iter().flat_map(|span| region.parts(span)).collect();
            }
            assert_eq!(region.bounds(), Bounds::around(&points, 2));
        }
    }

    #[test]
    fn a_walk_meets_the_points_of_brute_force() {
        let region = region(1000);
        let low = |x: f32, y: f32| [x, y, 0.0];
        for (low, high, reach) in [
            (low(0.9, 0.0), low(0.95, 1.0), 0.1),
            (low(0.1, 0.0), low(0.2, 0.3), 0.05),
            (low(0.5, 0.5), low(0.5, 0.5), 0.0),
            (low(0.4, 0.4), low(0.6, 0.6), f32::INFINITY),
        ] {
            let bounds = Bounds { low, high };
            let near = |at: &usize| bounds.may_reach(&Bounds::point(region.point(*at)), reach, &region.side);
            let want: Vec<usize> = (0..1000).filter(near).collect();
            let mut met = Vec::new();
            region.walk(&bounds, reach, |what, _| {
                if let Met::Point(at) = what {
                    met.push(at);
                }
                true
            });
            met.sort_unstable();
            assert_eq!(met, want);
        }
        region.walk(&region.bounds(), 1.0, |what, _| {
            assert!(matches!(what, Met::Node(level, _) if level == region.levels.count() - 1), "left out: {what:?}");
            false
        });
    }
}
