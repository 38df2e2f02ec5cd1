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
