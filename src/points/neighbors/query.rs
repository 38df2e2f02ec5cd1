//! Predicates of searches: pure data.

use super::error::NeighborError;

/// The largest number of neighbors per query.
pub const MAX_K: u32 = 1024;

/// The order of the rows of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOrder {
    /// Row `i` belongs to query `i` of the input.
    Input,
    /// Row `i` belongs to query `i` along the curve: `Tree::order()[i]`.
    Curve,
}

impl RowOrder {
    /// Returns 1 if rows follow input order, else 0, for kernels.
    pub fn by_number(self) -> u32 {
        u32::from(self == RowOrder::Input)
    }
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
