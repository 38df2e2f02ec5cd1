//! What a search looks for: pure data.

use super::error::NeighborError;

/// The largest number of neighbours per query.
pub const MAX_K: u32 = 1024;

/// The order of the rows of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOrder {
    /// Row `i` is of query `i` of the input.
    Input,
    /// Row `i` is of the query that is number `i` along the curve: of `Tree::order()[i]`.
    Curve,
}

impl RowOrder {
    /// What kernels are told: whether a row is that of the query's number.
    pub fn by_number(self) -> u32 {
        u32::from(self == RowOrder::Input)
    }
}

/// A search of the nearest neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnnQuery {
    /// Neighbours per query, from 0 to 1024.
    pub k: u32,
    /// Largest distance, inclusive; infinity for no limit. The [distance](super) rounded to `f32` is compared.
    pub within: f32,
    /// Leaves out the source that is the query itself (not others at its place): the one with its index.
    pub without_self: bool,
}

impl KnnQuery {
    /// The `k` nearest of all sources at any distance, a point itself among its own.
    pub fn nearest(k: u32) -> Self {
        KnnQuery { k, within: f32::INFINITY, without_self: false }
    }

    /// Sets the largest distance, inclusive.
    #[must_use]
    pub fn within(self, radius: f32) -> Self {
        KnnQuery { within: radius, ..self }
    }

    /// Leaves each query out of its own neighbors.
    #[must_use]
    pub fn exclude_self(self) -> Self {
        KnnQuery { without_self: true, ..self }
    }
}

/// Which sources count as neighbours of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PairFilter {
    /// All, the query itself too where it is one.
    #[default]
    All,
    /// All but the one with the query's index: the query itself.
    Others,
    /// Those with a higher index than the query: each pair once (half lists).
    Above,
}

/// A search within a radius.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RadiusQuery {
    /// Largest distance, inclusive. The [distance](super) rounded to `f32` is compared.
    /// Along a periodic axis a pair counts once, by its nearest images, however large the radius.
    pub radius: f32,
    /// Which sources.
    pub which: PairFilter,
}

impl RadiusQuery {
    /// All sources within `radius`, the query itself among them.
    pub fn radius(radius: f32) -> Self {
        RadiusQuery { radius, which: PairFilter::All }
    }

    /// Leaves each query out of its own neighbors.
    #[must_use]
    pub fn exclude_self(self) -> Self {
        RadiusQuery { which: PairFilter::Others, ..self }
    }

    /// Takes each pair once: the neighbors with a higher index than the query.
    #[must_use]
    pub fn half(self) -> Self {
        RadiusQuery { which: PairFilter::Above, ..self }
    }
}

/// Selects spheres about targets by their mean density; made by [`Predicate::overdensity`](crate::points::Predicate::overdensity), which says
/// what is found.
#[derive(Clone, Debug, PartialEq)]
pub struct OverdensityQuery {
    /// Mean number densities, in points per unit of volume (of area, in a plane); each above 0.
    pub densities: Vec<f64>,
    /// Smaller spheres than those that hold so many points are not looked at; 1 or more.
    pub least: u32,
}

/// Selects the neighbors that [`Rank::query`](crate::Rank::query) looks for.
///
/// ```
/// use meshloom::points::Predicate;
///
/// let nearest = Predicate::nearest(32).within(0.5).exclude_self();
/// assert_eq!((nearest.k, nearest.within, nearest.without_self), (32, 0.5, true));
/// let pairs = Predicate::within(0.5).half();
/// assert_eq!(pairs.radius, 0.5);
/// ```
pub struct Predicate(());

impl Predicate {
    /// Selects the `k` nearest points, 0 to 1024; the query itself is among them unless left out.
    pub fn nearest(k: u32) -> KnnQuery {
        KnnQuery::nearest(k)
    }

    /// Selects all points within `radius`, inclusive; the query itself is among them unless left out.
    pub fn within(radius: f32) -> RadiusQuery {
        RadiusQuery::radius(radius)
    }

    /// Selects spheres about targets by their mean density: for each of `densities`, in points per unit of volume (of area, in a plane),
    /// the first one from inside out that is no denser.
    ///
    /// For a density n the output [`Counts`](crate::points::Counts) is the least `N >= least` such that N points are within the radius `r`
    /// at which `N = n V(r)`, and point N + 1 is not; 0 if the sphere that just holds `least` points is less dense already. The radius
    /// follows: `V(r) = N / n`. Pairs count once, by their nearest images, so that spheres longer than a periodic side mean nothing.
    ///
    /// All targets are searched within a small radius; those whose spheres reach farther again, within one and a half times as much, until
    /// none is left. Each search lists and sorts the points about each target that is left: 37 bytes of device memory per entry. Targets
    /// with 2^26 entries take turns, so that lists take 2.5 GB at most, unless a single one is longer.
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
    pub fn overdensity(densities: &[f64], least: u32) -> OverdensityQuery {
        OverdensityQuery { densities: densities.to_vec(), least }
    }
}

impl KnnQuery {
    /// Refuses more neighbours than lists hold, and invalid distances.
    pub(super) fn check(&self) -> Result<(), NeighborError> {
        if self.k > MAX_K {
            return Err(NeighborError::TooManyNeighbors { k: self.k.into() });
        }
        check_radius(self.within)
    }
}

/// Refuses an invalid radius.
pub(super) fn check_radius(radius: f32) -> Result<(), NeighborError> {
    if radius >= 0.0 { Ok(()) } else { Err(NeighborError::Radius { radius: radius.into() }) }
}
