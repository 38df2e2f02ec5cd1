//! The queries of a search.

use std::ops::Range;

use super::{GroupShape, Nearest, NeighborError, SearchParams, SearchVariant, Traversal, Units};
use crate::gpu::{Array, Kernel, Profile, RawArray, Recorder};
use crate::points::tree::{Builder, Tree};
use crate::points::{Cloud, Domain, Extent, Frame};

/// Queries per dispatch, so that none takes seconds: watchdogs of displays and drivers end such
/// dispatches. A GPU's least is taken for ten times as fast as a software renderer.
pub(super) const fn queries_per_dispatch(profile: Profile) -> u64 {
    match profile {
        Profile::Gpu => 1 << 23,
        Profile::Software => 1 << 20,
    }
}

/// Finite stand-in for the side of an open axis: half of it, 2^126, is larger than any difference
/// of loaded coordinates, which are below 2^125.
const OPEN_SIDE: f32 = f32::from_bits((127 + 127) << 23);

/// Query points other than the points of the tree, in the order of a curve, so that neighboring
/// ones traverse the tree together.
#[derive(Clone)]
pub struct QueryPoints {
    domain: Domain,
    pub(super) positions: Array<f32>,
    numbers: Array<u32>,
    /// Extent of all points that are searched for together, on other ranks too.
    pub(super) extent: Extent,
}

/// Sides as coordinates are loaded.
pub(super) fn loaded_sides(domain: &Domain, units: &Units) -> [f32; 4] {
    let side = |axis: usize| domain.side(axis).map_or(OPEN_SIDE, |side| side * units.load_scale());
    [side(0), side(1), side(2), OPEN_SIDE]
}

/// Refuses queries in another domain than the points.
pub(super) fn in_one_domain(queries: &Domain, points: &Domain) -> Result<(), NeighborError> {
    if queries == points {
        return Ok(());
    }
    let sides = |domain: &Domain| format!("{:?}", &domain.sides()[..domain.dims()]);
    Err(NeighborError::Domain { queries: sides(queries), points: sides(points) })
}

impl QueryPoints {
    /// Arranges the points of `cloud` for searches in `tree`. Recorded only.
    ///
    /// # Errors
    /// [`NeighborError::Domain`] if the tree's points lie in another domain, and errors of the
    /// device.
    pub fn new(recorder: &mut Recorder, builder: &Builder, cloud: &Cloud, tree: &Tree) -> Result<Self, NeighborError> {
        in_one_domain(cloud.domain(), tree.domain())?;
        let frame = Frame::over(cloud.domain(), cloud.core());
        let (positions, numbers) = builder.arranged(recorder, cloud, &frame)?;
        Ok(QueryPoints { domain: *cloud.domain(), positions, numbers, extent: Extent::of(cloud) })
    }

    /// Points that are arranged already, for searches in `tree`.
    pub(crate) fn arranged(tree: &Tree, positions: Array<f32>, numbers: Array<u32>, extent: Extent) -> Self {
        QueryPoints { domain: *tree.domain(), positions, numbers, extent }
    }

    /// Returns the number of points.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.numbers.len()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Index in its cloud of each point along the curve; to be read only.
    #[must_use]
    pub fn order(&self) -> &Array<u32> {
        &self.numbers
    }
}

/// The queries of a search.
#[derive(Clone, Copy)]
pub enum Queries<'a> {
    /// The tree's own points.
    Own,
    /// Other points.
    At(&'a QueryPoints),
}

impl<'a> Queries<'a> {
    /// Returns the number of queries.
    #[must_use]
    pub fn len(&self, tree: &Tree) -> u64 {
        self.points().map_or(tree.len(), QueryPoints::len)
    }

    /// Index in its input of each query along the curve.
    #[must_use]
    pub fn numbers(&self, tree: &'a Tree) -> &'a Array<u32> {
        self.points().map_or(tree.order(), QueryPoints::order)
    }

    /// Returns the points of the queries; `None` if they are the tree's own points.
    fn points(&self) -> Option<&'a QueryPoints> {
        match self {
            Queries::Own => None,
            Queries::At(targets) => Some(targets),
        }
    }

    /// Returns the queries at `part` along the curve, as separate query points. Recorded only.
    pub(super) fn part(
        &self,
        recorder: &mut Recorder,
        tree: &'a Tree,
        part: Range<u64>,
    ) -> Result<QueryPoints, NeighborError> {
        let own = (tree.positions(), tree.extent());
        let (all, extent) = self.points().map_or(own, |targets| (&targets.positions, targets.extent));
        let (gpu, dims, count) = (recorder.gpu().clone(), tree.domain().dims() as u64, part.end - part.start);
        let positions = gpu.array("neighbors::targets", dims * count)?;
        recorder.copy(all, dims * part.start, &positions, 0, dims * count)?;
        let numbers = gpu.array("neighbors::targets", count)?;
        recorder.copy(self.numbers(tree), part.start, &numbers, 0, count)?;
        Ok(QueryPoints { domain: *tree.domain(), positions, numbers, extent })
    }

    /// Coordinates of queries along the curve; `None` if they are the tree's own points.
    pub(super) fn positions(&self) -> Option<&'a Array<f32>> {
        self.points().map(|targets| &targets.positions)
    }

    /// Returns the extent of the coordinates, including the tree's.
    pub(super) fn extent(&self, tree: &Tree) -> Extent {
        self.points().map_or(tree.extent(), |targets| tree.extent().union(&targets.extent))
    }

    /// Returns the units of a search up to `reach` that distinguishes lengths from `least` on.
    pub(super) fn units(&self, tree: &Tree, reach: f32, least: f32) -> Units {
        Units::new(&self.extent(tree), reach, least)
    }

    /// Returns the kernels that search for these queries.
    pub(super) fn variant(&self, form: GroupShape, tree: &Tree, traversal: Traversal, units: &Units) -> SearchVariant {
        SearchVariant {
            form,
            dims: tree.domain().dims(),
            own: matches!(self, Queries::Own),
            traversal,
            wide: units.wide,
        }
    }

    /// Returns the arrays that every search binds.
    pub(super) fn arrays(&self, tree: &'a Tree) -> Vec<&'a RawArray> {
        let mut arrays = vec![tree.positions().raw(), tree.order().raw(), tree.boxes().raw()];
        if let Queries::At(targets) = self {
            arrays.extend([targets.positions.raw(), targets.numbers.raw()]);
        }
        arrays
    }

    /// Returns the parameters of a search with rows in input order, without those of a traversal
    /// that stops and of lists with existing entries.
    pub(super) fn params(&self, tree: &Tree, knn: &Nearest, units: &Units) -> Result<SearchParams, NeighborError> {
        if let Queries::At(targets) = self {
            in_one_domain(&targets.domain, tree.domain())?;
        }
        Ok(SearchParams {
            side: loaded_sides(tree.domain(), units),
            starts: tree.levels().words(),
            levels: tree.levels().count() as u32,
            sources: tree.len() as u32,
            queries: self.len(tree) as u32,
            reach: units.at_most(knn.within),
            unit: units.unit(),
            infinity: f32::INFINITY,
            k: knn.k,
            by_number: 1,
            skip: u32::from(knn.excludes_self),
            radius: knn.within,
            rounds: u32::MAX,
            load_scale: units.load_scale(),
            square_scale: units.square_scale(),
            max_difference: units.max_difference(),
            blocks: 1,
            offset_unit: units.offset_unit(),
            ..Default::default()
        })
    }

    /// Records `kernel` over `part` of the queries along the curve, with the parameters of a search
    /// and those of a callback. `part` begins where a leaf does. What takes several dispatches
    /// takes as many submissions where it can, since some drivers watch these as a whole.
    pub(super) fn dispatch(
        &self,
        recorder: &mut Recorder,
        form: GroupShape,
        kernel: &Kernel,
        arrays: &[&RawArray],
        (params, values): (SearchParams, &[u8]),
        part: Range<u64>,
    ) -> Result<(), NeighborError> {
        let most = queries_per_dispatch(recorder.gpu().capabilities().profile);
        for chunk in chunks(part.clone(), most) {
            let workgroups = form.workgroups(chunk.end - chunk.start).div_ceil(u64::from(params.blocks));
            let [first, queries, base] = [chunk.start, chunk.end, part.start].map(|query| query as u32);
            if chunk.start > part.start {
                recorder.submit_meanwhile()?;
            }
            let params = SearchParams { first, queries, base, ..params };
            let bytes = [bytemuck::bytes_of(&params), values].concat();
            recorder.dispatch_bytes(kernel, arrays, &bytes, workgroups)?;
        }
        Ok(())
    }
}

/// Queries of one dispatch after another. A dispatch ends with its own: it has more workgroups than
/// they need where those come in rows or take several blocks, and what these would search for
/// belongs to the next.
fn chunks(part: Range<u64>, most: u64) -> impl Iterator<Item = Range<u64>> {
    let end = part.end;
    part.step_by(most as usize).map(move |first| first..(first + most).min(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_in_one_chunk() {
        for (part, most) in [(0..0, 4), (0..3, 4), (0..4, 4), (8..21, 4), (0..(1 << 23) + 1, 1 << 23)] {
            let mut at = part.start;
            for chunk in chunks(part.clone(), most) {
                assert!(chunk.start == at && chunk.end > at && chunk.end - at <= most, "{part:?} {chunk:?}");
                at = chunk.end;
            }
            assert_eq!(at, part.end);
        }
    }
}
