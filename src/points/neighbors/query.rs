//! Predicates of searches: pure data.

use super::NeighborError;
use crate::points::Domain;

/// The largest number of neighbors per query.
pub const MAX_K: u32 = 1024;

/// The order of the rows of results, with its number for kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOrder {
    /// Row `i` belongs to query `i` along the curve: `Tree::order()[i]`.
    Curve = 0,
    /// Row `i` belongs to query `i` of the input.
    Input = 1,
}

/// Selects the nearest points; made by [`Predicate::nearest`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Nearest {
    /// Neighbors per query, 0 to 1024.
    pub k: u32,
    /// Largest distance, inclusive; infinity for no limit. Compared with the distance rounded to
    /// `f32`.
    pub within: f32,
    /// Leaves out the point that is the query itself, by its index; other points at its place stay.
    pub excludes_self: bool,
}

impl Nearest {
    /// Sets the largest distance, inclusive.
    #[must_use]
    pub fn within(self, radius: f32) -> Self {
        Nearest { within: radius, ..self }
    }

    /// Leaves each query out of its own neighbors.
    #[must_use]
    pub fn exclude_self(self) -> Self {
        Nearest { excludes_self: true, ..self }
    }

    /// Checks `k` and the distance.
    pub(super) fn check(&self) -> Result<(), NeighborError> {
        if self.k > MAX_K {
            return Err(NeighborError::TooManyNeighbors { k: self.k.into() });
        }
        check_radius(self.within)
    }
}

/// Selects which points count as neighbors of a query that is one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PairFilter {
    /// All points, the query itself among them.
    #[default]
    All,
    /// All points but the query itself, by its index.
    ExcludeSelf,
    /// Points with a higher index than the query: each pair once.
    Half,
}

/// Selects all points within a radius; made by [`Predicate::within`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Within {
    /// Largest distance, inclusive. Compared with the distance rounded to `f32`. Along a periodic
    /// axis a pair counts once, by its nearest images, however large the radius.
    pub radius: f32,
    /// Which points count.
    pub filter: PairFilter,
}

impl Within {
    /// Leaves each query out of its own neighbors.
    #[must_use]
    pub fn exclude_self(self) -> Self {
        self.filter(PairFilter::ExcludeSelf)
    }

    /// Takes each pair once: the neighbors with a higher index than the query.
    #[must_use]
    pub fn half(self) -> Self {
        self.filter(PairFilter::Half)
    }

    /// Sets which points count.
    #[must_use]
    pub fn filter(self, filter: PairFilter) -> Self {
        Within { filter, ..self }
    }
}

/// Selects spheres about targets by their mean density; made by [`Predicate::overdensity`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Overdense {
    /// Mean number densities, in points per unit of volume (of area, in a plane); each above 0.
    pub densities: Vec<f64>,
    /// Smallest number of points of a sphere, at least 1.
    pub least: u32,
}

/// Selects the neighbors that [`Rank::query`](crate::Rank::query) looks for.
///
/// ```
/// use meshloom::points::Predicate;
///
/// let nearest = Predicate::nearest(32).within(0.5).exclude_self();
/// assert_eq!((nearest.k, nearest.within, nearest.excludes_self), (32, 0.5, true));
/// let pairs = Predicate::within(0.5).half();
/// assert_eq!(pairs.radius, 0.5);
/// ```
pub struct Predicate(());

impl Predicate {
    /// Selects the `k` nearest points, 0 to 1024; the query itself is among them unless left out.
    #[must_use]
    pub fn nearest(k: u32) -> Nearest {
        Nearest { k, within: f32::INFINITY, excludes_self: false }
    }

    /// Selects all points within `radius`, inclusive; the query itself is among them unless left
    /// out.
    #[must_use]
    pub fn within(radius: f32) -> Within {
        Within { radius, filter: PairFilter::All }
    }

    /// Selects spheres about targets by their mean density: for each of `densities`, in points per
    /// unit of volume (of area, in a plane), the innermost sphere that is not denser.
    ///
    /// For a density n the output [`Counts`](crate::points::Counts) is the smallest `N >= least`
    /// such that N points lie within the radius `r` with `N = n V(r)` and point N + 1 does not; 0
    /// if the sphere that just holds `least` points is less dense already. The radius follows from
    /// `V(r) = N / n`. Pairs count once, by their nearest images, so that spheres longer than a
    /// periodic side are meaningless.
    ///
    /// All targets are searched within a small radius; those whose spheres reach farther are
    /// searched again within 1.5 times the radius, until none is left. Each search lists and sorts
    /// the points about each remaining target: 37 bytes of device memory per entry. At most 2^26
    /// entries are sorted at a time (2.5 GB) unless a single target has more.
    ///
    /// ```
    /// use meshloom::points::{Counts, Domain, Particles, Predicate, Targets};
    ///
    /// meshloom::run(|rank| {
    ///     let domain = Domain::open(2)?;
    ///     let points: Vec<f32> = (1..=9).flat_map(|r| [r as f32, 0.0]).collect();
    ///     let rows = if rank.comm.rank() == 0 { points.len() } else { 0 };
    ///     let points = Particles::from_host(rank, &domain, &points[..rows])?;
    ///     let center = Particles::from_host(rank, &domain, &[0.0, 0.0])?;
    ///     let search = rank.search(&points)?;
    ///     // At 0.1 per unit of area one point fills a circle of radius 1.78, at 0.075 two fill one of 2.91; at 1 the first does
    ///     // not fill its own.
    ///     let spheres = Predicate::overdensity(&[0.1, 0.075, 1.0], 1);
    ///     assert_eq!(rank.query(&search, Targets::Of(&center), spheres, Counts)?, [1, 2, 0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    #[must_use]
    pub fn overdensity(densities: &[f64], least: u32) -> Overdense {
        Overdense { densities: densities.to_vec(), least }
    }
}

/// Checks a radius.
pub(super) fn check_radius(radius: f32) -> Result<(), NeighborError> {
    if radius >= 0.0 { Ok(()) } else { Err(NeighborError::Radius { radius: radius.into() }) }
}

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

/// Returns the 64-bit counts that [`RadiusSearch::pairs`](super::RadiusSearch::pairs) left in two
/// words each.
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
