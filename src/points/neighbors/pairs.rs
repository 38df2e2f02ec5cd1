//! Histograms of the distances of pairs, with and without weights.

use super::radius::{Action, FEW_BINS, RadiusPass, Tally, WORKGROUP_BINS, WithinSearch, within_kernel};
use super::search::{JointQueries, RankQueries, refuse_self_filter};
use super::{
    Bins, Cursor, GroupShape, NeighborError, PairFilter, Predicate, Queries, RadiusSearch, Search, SearchVariant,
    Traversal, Units, Within, check_radius,
};
use crate::comm::{Communicator, Op};
use crate::gpu::{Array, Callback, KernelSource, Recorder, holds};
use crate::host_memory;
use crate::points::sort::forward_by;
use crate::points::tree::Tree;
use crate::points::{Cloud, chained, upload_u32};
use crate::rank::Rank;

/// Returns the units of a search up to the last edge, and the least squares beyond each edge in
/// them.
fn squared_edges(queries: Queries<'_>, tree: &Tree, bins: &Bins) -> (Units, Vec<f32>) {
    let last = bins.edges()[bins.len()];
    let least = bins.edges().iter().copied().find(|&edge| edge > 0.0).unwrap_or(last);
    let units = queries.units(tree, last, least);
    (units, bins.edges().iter().map(|&edge| units.below(edge)).collect())
}

impl RadiusSearch {
    /// Adds the number of pairs of a query and a source with a distance in each of `bins` to
    /// `counts` (two words per bin, low first; cleared by the caller). With
    /// [`PairFilter::ExcludeSelf`] and a tree's own points, every pair counts twice. Exact for any
    /// number of pairs below 2^64. Recorded only, except the upload of the edges, which submits.
    ///
    /// # Errors
    /// Errors of [`Queries`] and of the device; [`DeviceError::Misuse`](crate::gpu::DeviceError) if
    /// `counts` is too short.
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
        let (units, edges) = squared_edges(queries, tree, bins);
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

/// Weights of points, such as masses: one for each row of this rank, finite and not negative.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairWeights<'a> {
    /// Weights of the points of the search; `None`: 1 each.
    pub points: Option<&'a [f32]>,
    /// Weights of the queries; `None`: 1 each.
    pub queries: Option<&'a [f32]>,
}

/// Pairs in each bin of distance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightedPairs {
    /// Numbers of ordered pairs, as a [`Histogram`](crate::points::Histogram) counts them.
    pub counts: Vec<u64>,
    /// Sums of the products of the two weights of each pair.
    pub sums: Vec<f64>,
}

/// Words of a bin: a sum of 128 bits and a count of 64 bits.
const WORDS: usize = 6;
/// Bins that a workgroup adds up in its memory, 6 KiB.
const WEIGHTED_WORKGROUP_BINS: u32 = 256;
/// Bits of an integer weight.
const BITS: i32 = 31;

fn tally(bins: u32) -> Tally {
    if bins <= WEIGHTED_WORKGROUP_BINS { Tally::Workgroup } else { Tally::Result }
}

/// Weights of this rank as integers, in units that all ranks share.
struct IntegerWeights {
    values: Vec<u32>,
    /// The unit is 2 to this power.
    exponent: i32,
}

impl IntegerWeights {
    /// Checks and converts the weights of `count` points of this rank, or ones. Collective: every
    /// rank calls it.
    fn new(comm: &Communicator, weights: Option<&[f32]>, count: u64) -> Result<Self, NeighborError> {
        let Some(weights) = weights else {
            let ones = std::iter::repeat_n(1 << (BITS - 1), count as usize);
            return Ok(IntegerWeights { values: host_memory::collect("weights", ones)?, exponent: 1 - BITS });
        };
        let mut before = [count];
        comm.scan_exclusive(&mut before, Op::Sum)?;
        comm.together(|| {
            if weights.len() as u64 != count {
                return Err(NeighborError::Weights { found: weights.len() as u64, points: count });
            }
            match (before[0]..).zip(weights).find(|(_, weight)| !(weight.is_finite() && **weight >= 0.0)) {
                Some((index, &value)) => Err(NeighborError::Weight { index, value: value.into() }),
                None => Ok(()),
            }
        })?;
        let largest = weights.iter().fold(0.0, |largest: f64, &weight| largest.max(weight.into()));
        let [largest] = comm.reduced([largest], Op::Max)?;
        // The least power of two above all weights: every weight above 0 is a normal number in f64.
        let above = if largest > 0.0 { (largest.to_bits() >> 52) as i32 - 1022 } else { 1 };
        let exponent = above - BITS;
        let per_unit = 2f64.powi(-exponent);
        let integers = weights.iter().map(|&weight| (f64::from(weight) * per_unit).round() as u32);
        Ok(IntegerWeights { values: host_memory::collect("weights", integers)?, exponent })
    }
}

impl Search {
    /// Counts pairs of a query and a point within a radius by distance, and adds up the products of
    /// their weights; see [`WeightedHistogram`](crate::points::WeightedHistogram).
    ///
    /// # Errors
    /// Those of a histogram, and, the same on all ranks:
    /// - [`NeighborError::Weights`] if a rank has more or fewer weights than points.
    /// - [`NeighborError::Weight`] for a weight that is negative or not finite.
    pub(super) fn weighted_pairs(
        &self,
        rank: &mut Rank,
        queries: Option<&Cloud>,
        (bins, within): (&Bins, &Within),
        weights: PairWeights<'_>,
    ) -> Result<WeightedPairs, NeighborError> {
        let given = [weights.points.is_some(), weights.queries.is_some()];
        self.agree(
            "weighted pairs",
            queries,
            &[("weights given for points and queries", &given), ("query", within), ("bins", bins)],
        )?;
        check_radius(within.radius)?;
        refuse_self_filter(queries, within.filter != PairFilter::All)?;
        let within = Within { radius: within.radius.min(bins.edges()[bins.len()]), ..*within };
        let comm = self.points.comm.clone();
        let of_points = IntegerWeights::new(&comm, weights.points, self.points.input_rows())?;
        let of_queries = match queries {
            Some(cloud) => Some(IntegerWeights::new(&comm, weights.queries, cloud.len())?),
            None => None,
        };
        let exponent = of_points.exponent + of_queries.as_ref().unwrap_or(&of_points).exponent;

        let local = self.arrange_queries(rank, queries)?;
        let (joint, ghosts) = self.points_within(rank, &local, within.radius)?;
        let sources = upload_u32(&mut rank.recorder, &of_points.values)?;
        let mut sources = forward_by(self.points.route.as_ref(), rank, &sources, 1)?;
        if let Some(ghosts) = &ghosts {
            let fetched = ghosts.refresh(rank, &sources, 1)?;
            if let Some((joint, _)) = &joint {
                sources = joint.joined(&mut rank.recorder, &sources, &fetched, 1)?;
            }
        }
        let mut table = sources;
        if let Some(of_queries) = &of_queries {
            let values = upload_u32(&mut rank.recorder, &of_queries.values)?;
            let values = forward_by(self.route(&local), rank, &values, 1)?;
            table = chained(&mut rank.recorder, &table, &values)?;
        }
        let mut limbs = self.add_weighted(rank, (&local, joint.as_ref()), (bins, within), &table, queries.is_some())?;
        comm.all_reduce(&mut limbs, Op::Sum)?;
        Ok(WeightedPairs {
            counts: limbs.chunks_exact(WORDS).map(|limbs| joined(&limbs[4..]) as u64).collect(),
            sums: limbs.chunks_exact(WORDS).map(|limbs| joined(&limbs[..4]) as f64 * 2f64.powi(exponent)).collect(),
        })
    }

    /// Returns the words of this rank's sums and counts, each in a separate number. `table` has the
    /// weights of the sources, then those of queries that are not sources.
    fn add_weighted(
        &self,
        rank: &mut Rank,
        (local, joint): (&RankQueries, Option<&JointQueries>),
        (bins, within): (&Bins, Within),
        table: &Array<u32>,
        has_queries: bool,
    ) -> Result<Vec<u64>, NeighborError> {
        let (points, queries) = self.scope(local, joint);
        let (recorder, tree) = (&mut rank.recorder, &points.tree);
        let (units, edges) = squared_edges(queries, tree, bins);
        let edges = upload_u32(recorder, bytemuck::cast_slice(&edges))?;
        let table = chained(recorder, &edges, table)?;
        let sums = recorder.gpu().array::<u32>("neighbors::sums", (WORDS * bins.len()) as u64)?;
        recorder.clear(&sums);
        let count = bins.len() as u32;
        self.radius.run(
            recorder,
            &RadiusPass {
                search: WithinSearch::new(tree, queries, &within),
                units,
                visit: Action::WeightedPairs { bins: count, has_queries, tally: tally(count) },
                arrays: vec![table.raw(), sums.raw()],
                traversal: Traversal::CURVE,
            },
        )?;
        Ok(recorder.download(&sums, 0, sums.len())?.into_iter().map(u64::from).collect())
    }
}

/// Returns the number whose words of 32 bits, low first, are sums of words.
fn joined(limbs: &[u64]) -> u128 {
    limbs.iter().rev().fold(0, |number, &limb| (number << 32).wrapping_add(limb.into()))
}

/// Kernels of histograms in one form of groups.
pub(super) fn kernels(form: GroupShape) -> Vec<KernelSource> {
    let of = |own: bool, traversal: Traversal, action: Action<&Callback>| {
        within_kernel(SearchVariant { form, dims: 3, own, traversal, wide: false }, &action)
    };
    let pairs = |traversal: Traversal, bins: u32, weight: u32| {
        of(true, traversal, Action::Pairs { bins, weight, tally: Tally::of(form, bins) })
    };
    let weighted = |own: bool, bins: u32| {
        of(own, Traversal::CURVE, Action::WeightedPairs { bins, has_queries: !own, tally: tally(bins) })
    };
    let half = Traversal::CURVE.half();
    vec![
        pairs(half, FEW_BINS, 2),
        pairs(Traversal::CURVE, FEW_BINS, 1),
        pairs(half, FEW_BINS + 1, 2),
        pairs(half.with(Cursor::Resume), WORKGROUP_BINS + 1, 2),
        weighted(true, 16),
        weighted(false, 16),
        weighted(true, WEIGHTED_WORKGROUP_BINS + 1),
    ]
}
