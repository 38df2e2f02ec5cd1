//! Results of searches over ranks, on the host.

use meshloom::Rank;
use meshloom::points::neighbors::{
    KnnQuery, KnnResult, NeighborError, OverdensityQuery, PairWeights, RadiusQuery, RadiusResult, WeightedPairs,
};
use meshloom::points::{Bins, Counts, Histogram, Lists, Particles, Predicate, Search, Targets, WeightedHistogram};

type Result<T> = std::result::Result<T, NeighborError>;

pub fn nearest(rank: &mut Rank, search: &Search, queries: Option<&Particles>, knn: &KnnQuery) -> Result<KnnResult> {
    Ok(rank.query(search, queries.into(), *knn, Lists)?.download(rank)?)
}

pub fn within(
    rank: &mut Rank,
    search: &Search,
    queries: Option<&Particles>,
    within: &RadiusQuery,
) -> Result<RadiusResult> {
    Ok(rank.query(search, queries.into(), *within, Lists)?.download(rank)?)
}

pub fn counts(rank: &mut Rank, search: &Search, queries: Option<&Particles>, within: &RadiusQuery) -> Result<Vec<u64>> {
    let counts = rank.query(search, queries.into(), *within, Counts)?;
    let counts = rank.recorder.download(&counts, 0, counts.len())?;
    Ok(counts.into_iter().map(u64::from).collect())
}

/// All pairs of two different points, or of a query and a point.
fn all(queries: Option<&Particles>) -> RadiusQuery {
    let all = Predicate::within(f32::INFINITY);
    if queries.is_none() { all.exclude_self() } else { all }
}

pub fn pairs(rank: &mut Rank, search: &Search, queries: Option<&Particles>, bins: &Bins) -> Result<Vec<u64>> {
    rank.query(search, queries.into(), all(queries), Histogram(bins))
}

pub fn weighted_pairs(
    rank: &mut Rank,
    search: &Search,
    queries: Option<&Particles>,
    bins: &Bins,
    weights: PairWeights<'_>,
) -> Result<WeightedPairs> {
    rank.query(search, queries.into(), all(queries), WeightedHistogram { bins, weights })
}

pub fn overdense(
    rank: &mut Rank,
    search: &Search,
    queries: &Particles,
    spheres: &OverdensityQuery,
) -> Result<Vec<u64>> {
    rank.query(search, Targets::Of(queries), spheres.clone(), Counts)
}
