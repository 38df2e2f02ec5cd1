//! Histograms of the distances of pairs.

use super::action::{Action, within_kernel};
use super::action::{FEW_BINS, Tally, WORKGROUP_BINS};
use super::error::NeighborError;
use super::group_shape::GroupShape;
use super::query::{PairFilter, Predicate, Within};
use super::radius::{RadiusPass, RadiusSearch, WithinSearch};
use super::search_kernel::{Cursor, SearchVariant, Traversal};
use super::targets::Queries;
use crate::gpu::{Array, KernelSource, Recorder, holds};
use crate::points::domain::Domain;
use crate::points::tree::Tree;

/// The least edge above 0 in units of the last one.
const LEAST_EDGE: f64 = 1e-33;
/// The largest number of bins.
const MAX_BINS: usize = 4096;

/// Edges of the bins of a histogram of distances: from 0 on, ascending; bin `i` holds `edges[i] <=
/// r < edges[i + 1]`, where `r` is the [distance](super) as `f32`.
#[derive(Clone, Debug, PartialEq)]
pub struct Bins(Vec<f32>);

impl Bins {
    /// Bins with these edges, rounded to `f32`: 2 to 4097.
    ///
    /// # Errors
    /// [`NeighborError::Edges`] unless they are numbers from 0 on, each above the one before, also
    /// as `f32`; [`NeighborError::EdgesApart`] where the first above 0 is less than 1e-33 of the
    /// last.
    pub fn new(edges: &[f64]) -> Result<Self, NeighborError> {
        let narrow: Vec<f32> = edges.iter().map(|&edge| edge as f32).collect();
        let wrong = (0..narrow.len()).find(|&i| {
            let above = if i == 0 { narrow[i] >= 0.0 } else { narrow[i] > narrow[i - 1] };
            !(above && narrow[i].is_finite())
        });
        let number = || {
            (!(2..=MAX_BINS + 1).contains(&narrow.len())).then_some(narrow.len().min(MAX_BINS + 1).saturating_sub(1))
        };
        if let Some(index) = wrong.or_else(number) {
            return Err(NeighborError::Edges { index, value: edges.get(index).copied().unwrap_or(f64::NAN) });
        }
        let bins = Bins(narrow);
        let last = f64::from(bins.0[bins.len()]);
        match bins.0.iter().position(|&edge| edge > 0.0 && f64::from(edge) < last * LEAST_EDGE) {
            Some(index) => Err(NeighborError::EdgesApart { index, value: edges[index], last }),
            None => Ok(bins),
        }
    }

    /// Returns the edges.
    #[must_use]
    pub fn edges(&self) -> &[f32] {
        &self.0
    }

    /// Returns the number of bins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len() - 1
    }

    /// False: there is at least one bin.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns a warning if a bin reaches beyond half of the shortest periodic side of `domain`.
    ///
    /// A pair counts once, at the distance of its nearest images. Beyond half a side fewer pairs
    /// have that distance than an infinite periodic space has, so that the usual normalization by
    /// random points is wrong.
    pub fn doubt(&self, domain: &Domain) -> Option<String> {
        let half = (0..domain.dims()).filter_map(|axis| domain.side(axis)).fold(f32::INFINITY, f32::min) / 2.0;
        let last = self.0[self.len()];
        (last > half).then(|| {
            format!(
                "bins reach to {last}, beyond {half}, half of the shortest periodic side: each pair counts once, at the distance of \
                 its nearest images, so bins beyond that hold fewer pairs than an infinite periodic space has"
            )
        })
    }
}

impl RadiusSearch {
    /// Adds the number of pairs of a query and a source with a distance in each of `bins` to
    /// `counts` (two words per bin, low first; cleared by the caller). With
    /// [`PairFilter::ExcludeSelf`] and a tree's own points, every pair counts twice. Exact for any
    /// number of pairs below 2^64. Recorded only, except the upload of the edges, which submits.
    ///
    /// # Errors
    /// Errors of [`Queries`] and of the device; [`DeviceError::Misuse`] if `counts` is too short.
    pub fn pairs(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        bins: &Bins,
        filter: PairFilter,
        counts: &Array<u32>,
    ) -> Result<(), NeighborError> {
        let within = Predicate::within(bins.edges()[bins.len()]).filter(filter);
        self.pairs_within(recorder, tree, queries, (bins, within), counts)
    }

    /// [`pairs`](Self::pairs) within a radius, at most the last edge.
    pub(super) fn pairs_within(
        &self,
        recorder: &mut Recorder,
        tree: &Tree,
        queries: Queries<'_>,
        (bins, within): (&Bins, Within),
        counts: &Array<u32>,
    ) -> Result<(), NeighborError> {
        holds("RadiusSearch::pairs", "words for counts", counts, 2 * bins.len() as u64)?;
        let last = bins.edges()[bins.len()];
        let least = bins.edges().iter().copied().find(|&edge| edge > 0.0).unwrap_or(last);
        let units = queries.units(tree, last, least);
        let edges: Vec<f32> = bins.edges().iter().map(|&edge| units.below(edge)).collect();
        let edges = recorder.uploaded("neighbors::edges", &edges)?;
        // Between points of one tree each pair is found once.
        let (traversal, filter, weight) = match (queries, within.filter) {
            (Queries::Own, PairFilter::ExcludeSelf) => (Traversal::CURVE.half(), PairFilter::All, 2),
            (Queries::Own, PairFilter::Half) => (Traversal::CURVE.half(), PairFilter::All, 1),
            (_, filter) => (Traversal::CURVE, filter, 1),
        };
        let search = WithinSearch::new(tree, queries, &within.filter(filter));
        let visit = Action::Pairs { bins: bins.len() as u32, weight, tally: Tally::of(self.form, bins.len() as u32) };
        let arrays = vec![edges.raw(), counts.raw()];
        self.run(recorder, &RadiusPass { search, units, visit, arrays, traversal })
    }
}

/// Kernels of histograms in one form of groups.
pub(super) fn kernels(form: GroupShape) -> Vec<KernelSource> {
    let half = Traversal::CURVE.half();
    let of = |traversal: Traversal, bins: u32, weight: u32| {
        let variant = SearchVariant { form, dims: 3, own: true, traversal, wide: false };
        within_kernel(variant, &Action::Pairs { bins, weight, tally: Tally::of(form, bins) })
    };
    let more = FEW_BINS + 1;
    vec![
        of(half, FEW_BINS, 2),
        of(Traversal::CURVE, FEW_BINS, 1),
        of(half, more, 2),
        of(half.with(Cursor::Resume), WORKGROUP_BINS + 1, 2),
    ]
}

/// Returns the 64-bit counts that [`RadiusSearch::pairs`] left in two words each.
#[must_use]
pub fn join_u64(words: &[u32]) -> Vec<u64> {
    words.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_beyond_half_a_side_are_doubtful() {
        let bins = Bins::new(&[0.0, 1.0, 5.0]).unwrap();
        let doubt = |sides: &[f64]| bins.doubt(&Domain::new(sides).unwrap());
        for sides in [&[10.0, 10.0][..], &[0.0, 0.0, 0.0], &[0.0, 10.0, 0.0]] {
            assert_eq!(doubt(sides), None, "{sides:?}");
        }
        assert!(doubt(&[0.0, 20.0, 9.5]).unwrap().contains("beyond 4.75, half of the shortest periodic side"));
    }

    #[test]
    fn edges_ascend() {
        assert_eq!(Bins::new(&[0.0, 0.5, 2.0]).unwrap().edges(), [0.0, 0.5, 2.0]);
        let wrong = |edges: &[f64]| match Bins::new(edges) {
            Err(NeighborError::Edges { index, .. }) => index,
            other => panic!("{other:?}"),
        };
        assert_eq!(wrong(&[0.0, 1.0, 1.0]), 2);
        assert_eq!(wrong(&[1.0, 1.0 + 1e-12]), 1, "equal as f32");
        assert_eq!(wrong(&[-1.0, 1.0]), 0);
        assert_eq!(wrong(&[0.0, f64::NAN]), 1);
        assert_eq!(wrong(&[0.0, 1e300]), 1);
        assert_eq!(wrong(&[1.0]), 0);
        assert_eq!(wrong(&[]), 0);
        let many: Vec<f64> = (0..4098).map(f64::from).collect();
        assert_eq!(wrong(&many), 4096);
        assert!(Bins::new(&many[..4097]).is_ok());
        let apart = |edges: &[f64]| matches!(Bins::new(edges), Err(NeighborError::EdgesApart { index: 1, .. }));
        assert!(apart(&[0.0, 1e-34, 1.0]) && !apart(&[0.0, 1e-32, 1.0]) && !apart(&[0.0, 1e-38, 1e-6]));
    }
}
