//! Results of searches over ranks, on the host.

use meshloom::Rank;
use meshloom::points::neighbors::{Nearest, NeighborError, Overdense, PairWeights, WeightedPairs, Within};
use meshloom::points::{
    Bins, Counts, Fixed, Histogram, Lists, Particles, Predicate, Ragged, Search, Targets, WeightedHistogram,
};

type Result<T> = std::result::Result<T, NeighborError>;

pub fn nearest(
    rank: &mut Rank,
    search: &Search,
    queries: Option<&Particles>,
    knn: &Nearest,
) -> Result<Fixed<Vec<u64>, Vec<f32>>> {
    Ok(rank.query(search, queries.into(), *knn, Lists)?.download(rank)?)
}

pub fn within(
    rank: &mut Rank,
    search: &Search,
    queries: Option<&Particles>,
    within: &Within,
) -> Result<Ragged<Vec<u64>, Vec<u64>, Vec<f32>>> {
    Ok(rank.query(search, queries.into(), *within, Lists)?.download(rank)?)
}

pub fn counts(rank: &mut Rank, search: &Search, queries: Option<&Particles>, within: &Within) -> Result<Vec<u64>> {
    let counts = rank.query(search, queries.into(), *within, Counts)?;
    let counts = rank.recorder.download(&counts, 0, counts.len())?;
    Ok(counts.into_iter().map(u64::from).collect())
}

/// Returns all pairs of two different points, or of a query and a point.
fn all(queries: Option<&Particles>) -> Within {
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

pub fn overdense(rank: &mut Rank, search: &Search, queries: &Particles, spheres: &Overdense) -> Result<Vec<u64>> {
    rank.query(search, Targets::Of(queries), spheres.clone(), Counts)
}
