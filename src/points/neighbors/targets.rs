//! The queries of a search.

use super::error::NeighborError;
use super::group_shape::GroupShape;
use super::query::{KnnQuery, RowOrder};
use super::writer::{Params, Shape, Traversal};
use crate::gpu::{Array, Kernel, RawArray, Recorder};
use crate::points::tree::{Builder, Tree};
use crate::points::{Cloud, Domain, Frame};

/// Groups a dispatch: displays freeze, and drivers give up, when one takes seconds.
const GROUPS: u64 = 1 << 15;
/// Stands for infinity among scaled sides: no difference is as large, and its square is no use to anyone.
const OPEN_SIDE: f32 = 4.6e18;
/// A square of a scaled distance that nothing has.
const NOWHERE: f32 = 4e37;

/// Places that neighbours are asked for, other than the points of the tree: in the order of a curve, so that neighbouring
/// ones walk together.
#[derive(Clone)]
pub struct Targets {
    domain: Domain,
    positions: Array<f32>,
    numbers: Array<u32>,
    scale: f32,
}

impl Targets {
    /// Arranges the points of `cloud` for searches in `tree`. Recorded only.
    ///
    /// # Errors
    /// [`NeighborError::Domain`] when the tree's points lie in another domain, [`NeighborError::TooFar`] when squares of distances
    /// would leave the range of `f32`, and those of the device.
    pub fn new(recorder: &mut Recorder, builder: &Builder, cloud: &Cloud, tree: &Tree) -> Result<Self, NeighborError> {
        if cloud.domain() != tree.domain() {
            let sides = |domain: &Domain| format!("{:?}", &domain.sides()[..domain.dims()]);
            return Err(NeighborError::Domain { queries: sides(cloud.domain()), points: sides(tree.domain()) });
        }
        let frame = Frame::new(cloud.domain(), cloud.bounds());
        if let Some(bounds) = cloud.bounds() {
            let scale = f64::from(tree.scale());
            let far = |axis: usize| {
                let (low, span) = (f64::from(tree.frame().low[axis]), f64::from(tree.frame().span[axis]));
                let (below, above) = (low - f64::from(bounds.low[axis]), f64::from(bounds.high[axis]) - low - span);
                below.max(above).max(0.0) * scale
            };
            let ratio = far(0).max(far(1)).max(far(2));
            if ratio > 1e17 {
                return Err(NeighborError::TooFar { ratio });
            }
        }
        let (positions, numbers) = builder.arranged(recorder, cloud, &frame, tree.scale())?;
        Ok(Targets { domain: *cloud.domain(), positions, numbers, scale: tree.scale() })
    }

    /// Places that are arranged and scaled already, for searches in `tree`.
    pub(crate) fn like(tree: &Tree, positions: Array<f32>, numbers: Array<u32>) -> Self {
        Targets { domain: *tree.domain(), positions, numbers, scale: tree.scale() }
    }

    /// The places along the curve, scaled as those of the tree.
    pub(crate) fn positions(&self) -> &Array<f32> {
        &self.positions
    }

    /// Number of places.
    pub fn len(&self) -> u64 {
        self.numbers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Number of each place along the curve in its cloud; to be read only.
    pub fn order(&self) -> &Array<u32> {
        &self.numbers
    }
}

/// Whose neighbours are asked for.
#[derive(Clone, Copy)]
pub enum Queries<'a> {
    /// Those of the tree's own points.
    Own,
    /// Those of other places.
    At(&'a Targets),
}

impl<'a> Queries<'a> {
    /// Number of queries.
    pub fn len(&self, tree: &Tree) -> u64 {
        match self {
            Queries::Own => tree.len(),
            Queries::At(targets) => targets.len(),
        }
    }

    /// Number of each query along the curve in its input.
    pub fn numbers(&self, tree: &'a Tree) -> &'a Array<u32> {
        match self {
            Queries::Own => tree.order(),
            Queries::At(targets) => &targets.numbers,
        }
    }

    pub(super) fn shape(&self, form: GroupShape, tree: &Tree, walk: Traversal) -> Shape {
        Shape { form, dims: tree.domain().dims(), own: matches!(self, Queries::Own), walk }
    }

    /// The arrays that every search binds.
    pub(super) fn arrays(&self, tree: &'a Tree) -> Vec<&'a RawArray> {
        let mut arrays = vec![tree.positions().raw(), tree.order().raw(), tree.boxes().raw()];
        if let Queries::At(targets) = self {
            arrays.extend([targets.positions.raw(), targets.numbers.raw()]);
        }
        arrays
    }

    pub(super) fn params(&self, tree: &Tree, ask: &KnnQuery) -> Result<Params, NeighborError> {
        if let Queries::At(targets) = self
            && (targets.domain != *tree.domain() || targets.scale != tree.scale())
        {
            let sides = |domain: &Domain| format!("{:?}", &domain.sides()[..domain.dims()]);
            return Err(NeighborError::Domain { queries: sides(&targets.domain), points: sides(tree.domain()) });
        }
        let scale = tree.scale();
        let side = |axis: usize| tree.domain().side(axis).map_or(OPEN_SIDE, |side| side * scale);
        let side = [side(0), side(1), side(2), OPEN_SIDE];
        let reach = ask.within * scale;
        Ok(Params {
            side,
            half_side: side.map(|side| 0.5 * side),
            starts: tree.levels().words(),
            levels: tree.levels().count() as u32,
            sources: tree.len() as u32,
            queries: self.len(tree) as u32,
            first: 0,
            reach: (reach * reach).min(NOWHERE),
            unit: 1.0 / scale,
            infinity: f32::INFINITY,
            k: ask.k,
            done: 0,
            write: 0,
            by_number: u32::from(ask.rows == RowOrder::Input),
            skip: u32::from(ask.without_self),
            base: 0,
            radius: ask.within,
            rounds: u32::MAX,
            leaf_rounds: 0,
        })
    }

    /// Records `kernel` over the groups of `part` of the queries along the curve, which begins with a group.
    pub(super) fn dispatch(
        &self,
        recorder: &mut Recorder,
        form: GroupShape,
        kernel: &Kernel,
        arrays: &[&RawArray],
        params: Params,
        part: std::ops::Range<u64>,
    ) -> Result<(), NeighborError> {
        let (start, end) = (part.start / form.queries(), part.end.div_ceil(form.queries()));
        for first in (start..end).step_by(GROUPS as usize) {
            let params = Params { first: first as u32, queries: part.end as u32, ..params };
            recorder.dispatch(kernel, arrays, &params, form.workgroups((end - first).min(GROUPS)))?;
        }
        Ok(())
    }
}
