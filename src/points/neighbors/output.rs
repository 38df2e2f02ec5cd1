//! One verb for all searches: what is looked for, and what comes of it.

use super::overdensity::ENTRIES;
use super::visitor::Visit;
use super::{Bins, Fixed, Nearest, NeighborError, Overdense, PairWeights, Ragged, Search, WeightedPairs, Within};
use crate::gpu::Array;
use crate::points::{Attributes, Cloud, Particles};
use crate::rank::Rank;

/// Points whose neighbors are wanted.
#[derive(Clone, Copy)]
pub enum Targets<'a> {
    /// The points of the search.
    Own,
    /// Other points in the same domain.
    Of(&'a Particles),
}

impl<'a> Targets<'a> {
    fn particles(self) -> Option<&'a Particles> {
        match self {
            Targets::Own => None,
            Targets::Of(particles) => Some(particles),
        }
    }

    fn cloud(self) -> Option<&'a Cloud> {
        self.particles().map(Particles::cloud)
    }
}

/// Results of a search for a predicate `P`: lists, counts, histograms, or what a visit writes.
pub trait Output<P>: sealed::Sealed {
    /// Type of the results.
    type Result;

    #[doc(hidden)]
    fn run(
        self,
        rank: &mut Rank,
        search: &Search,
        targets: Targets<'_>,
        predicate: P,
    ) -> Result<Self::Result, NeighborError>;
}

mod sealed {
    /// Keeps [`Output`](super::Output) to the types of this module.
    pub trait Sealed {}
    impl Sealed for super::Lists {}
    impl Sealed for super::HostLists {}
    impl Sealed for super::Counts {}
    impl Sealed for super::Histogram<'_> {}
    impl Sealed for super::WeightedHistogram<'_> {}
    impl Sealed for super::Visit {}
}

/// Lists of neighbors: [`Fixed`] for the nearest, [`Ragged`] for all within a radius.
#[derive(Clone, Copy, Debug)]
pub struct Lists;

/// Lists of neighbors on the host: [`Fixed`] for the nearest, [`Ragged`] for all within a radius.
///
/// Blocks. The entries are those of [`Lists`] after its download. The nearest of a few targets on
/// one rank cost one submission and one wait. [`Lists`] and a download wait twice on drivers that
/// limit loops ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)).
///
/// ```
/// use meshloom::points::{Domain, HostLists, Particles, Predicate, Targets};
///
/// meshloom::run(|rank| {
///     let rows: &[f32] = if rank.comm.rank() == 0 { &[0.0, 0.0, 1.0, 0.0, 3.0, 0.0] } else { &[] };
///     let points = Particles::from_host(rank, &Domain::open(2)?, rows)?;
///     let search = rank.search(&points)?;
///     let place = Particles::from_host(rank, &Domain::open(2)?, &[2.5, 0.0])?;
///     let found = rank.query(&search, Targets::Of(&place), Predicate::nearest(2), HostLists)?;
///     assert_eq!((found.index, found.distance), (vec![2, 1], vec![0.5, 1.5]));
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HostLists;

/// The number of neighbors of each target.
#[derive(Clone, Copy, Debug)]
pub struct Counts;

/// The number of pairs of all ranks by their distance, in [`Bins`].
#[derive(Clone, Copy, Debug)]
pub struct Histogram<'a>(pub &'a Bins);

/// The number of pairs of all ranks by their distance, in [`Bins`], and the sums of the products of
/// their weights.
///
/// Each weight is rounded to a multiple of 2^-31 of the least power of two above the largest weight
/// of all ranks, and the products of the rounded weights are added up exactly: the same bits on any
/// number of ranks, and exact for integers below 2^24. Among the points of the search the weights
/// of both points of a pair are [`PairWeights::points`]. Costs 4 bytes per point and up to 6 atomic
/// additions per pair.
///
/// ```
/// use meshloom::points::neighbors::PairWeights;
/// use meshloom::points::{Bins, Domain, Particles, Predicate, Targets, WeightedHistogram};
///
/// meshloom::run(|rank| {
///     let (x, mass) = ([0.0, 0.0, 1.0, 0.0, 3.0, 0.0], [2.0, 3.0, 5.0]);
///     let rows = if rank.comm.rank() == 0 { 3 } else { 0 };
///     let points = Particles::from_host(rank, &Domain::open(2)?, &x[..2 * rows])?;
///     let search = rank.search(&points)?;
///     let weights = PairWeights { points: Some(&mass[..rows]), queries: None };
///     let bins = Bins::new(&[0.5, 1.5, 4.0])?;
///     let all = Predicate::within(4.0).exclude_self();
///     let found = rank.query(&search, Targets::Own, all, WeightedHistogram { bins: &bins, weights })?;
///     assert_eq!(found.counts, [2, 4]);
///     assert_eq!(found.sums, [2.0 * 6.0, 2.0 * (15.0 + 10.0)]);
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WeightedHistogram<'a> {
    /// The bins.
    pub bins: &'a Bins,
    /// Weights of the points, and of other targets.
    pub weights: PairWeights<'a>,
}

impl<'a> From<Option<&'a Particles>> for Targets<'a> {
    /// Returns the points of the search without particles.
    fn from(particles: Option<&'a Particles>) -> Self {
        particles.map_or(Targets::Own, Targets::Of)
    }
}

/// Implements [`Output`] for pairs of a predicate and an output, each with its search.
macro_rules! outputs {
    ($($predicate:ty, $output:ty => $result:ty,
        |$this:ident, $rank:ident, $search:ident, $targets:ident, $query:ident| $run:expr;)*) => {$(
        impl Output<$predicate> for $output {
            type Result = $result;

            fn run(
                self,
                $rank: &mut Rank,
                $search: &Search,
                $targets: Targets<'_>,
                $query: $predicate,
            ) -> Result<$result, NeighborError> {
                let $this = self;
                $run
            }
        }
    )*};
}

outputs! {
    Nearest, Lists => Fixed,
        |_this, rank, search, targets, query| search.nearest_lists(rank, targets.cloud(), &query);
    Nearest, HostLists => Fixed<Vec<u64>, Vec<f32>>,
        |_this, rank, search, targets, query| search.nearest_on_host(rank, targets.cloud(), &query);
    Nearest, Visit => Attributes,
        |this, rank, search, targets, query| search.visit_nearest(rank, targets.particles(), &query, &this);
    Within, Lists => Ragged,
        |_this, rank, search, targets, query| search.within_lists(rank, targets.cloud(), &query);
    Within, HostLists => Ragged<Vec<u64>, Vec<u64>, Vec<f32>>,
        |_this, rank, search, targets, query| {
            Ok(search.within_lists(rank, targets.cloud(), &query)?.download(rank)?)
        };
    Within, Counts => Array<u32>,
        |_this, rank, search, targets, query| search.count_rows(rank, targets.cloud(), &query);
    Within, Histogram<'_> => Vec<u64>,
        |this, rank, search, targets, query| search.histogram(rank, targets.cloud(), this.0, &query);
    Within, WeightedHistogram<'_> => WeightedPairs,
        |this, rank, search, targets, query| {
            search.weighted_pairs(rank, targets.cloud(), (this.bins, &query), this.weights)
        };
    Within, Visit => Attributes,
        |this, rank, search, targets, query| search.visit_within(rank, targets.particles(), &query, &this);
    // As many numbers for each target as there are densities.
    Overdense, Counts => Vec<u64>,
        |_this, rank, search, targets, query| {
            search.overdense(rank, targets.cloud().unwrap_or(search.input.cloud()), &query, ENTRIES)
        };
}

impl Rank {
    /// Finds neighbors of `targets` among the points of a search and makes `output` of them.
    ///
    /// Collective; blocks only if ranks exchange points, for the lengths of lists, and for results
    /// on the host. Rows of results belong to the targets on this rank; indices count the rows of
    /// the points of all ranks, in rank order. The same bits on any number of ranks, except for
    /// visits within a radius whose result depends on the order of neighbors and that are not
    /// [`ordered`](Visit::ordered).
    ///
    /// | predicate | output | result |
    /// |---|---|---|
    /// | [`Predicate::nearest`](crate::points::Predicate::nearest) | [`Lists`] | [`Fixed`] |
    /// | [`Predicate::within`](crate::points::Predicate::within) | [`Lists`] | [`Ragged`] |
    /// | nearest or within | [`HostLists`] | [`Fixed`] or [`Ragged`] on the host |
    /// | [`Predicate::within`](crate::points::Predicate::within) | [`Counts`] | [`Array<u32>`](Array) |
    /// | [`Predicate::within`](crate::points::Predicate::within) | [`Histogram`] | `Vec<u64>`, the same on all ranks |
    /// | [`Predicate::within`](crate::points::Predicate::within) | [`WeightedHistogram`] | [`WeightedPairs`], the same on all ranks |
    /// | [`Predicate::overdensity`](crate::points::Predicate::overdensity) | [`Counts`] | `Vec<u64>`, one number per target and density |
    /// | nearest or within | [`Visit`] | [`Attributes`] of the targets |
    ///
    /// ```
    /// use meshloom::points::{Domain, Particles, Predicate, Targets, Visit};
    ///
    /// meshloom::run(|rank| {
    ///     let x = rank.comm.rank() as f32;
    ///     let p = Particles::from_host(rank, &Domain::open(2)?, &[x, 0.0, x, 0.5])?.with(rank, "mass", &[1.0f32, 3.0], 1)?;
    ///     let search = rank.search(&p)?;
    ///     let sum = Visit::new("
    ///         alias State = vec3<f32>;
    ///         fn begin(query: u32, reach: f32) -> State { return State(0.0); }
    ///         fn each(state: State, near: Neighbor) -> State { return state + mass(near.index) * near.offset; }
    ///         fn end(query: u32, state: State) { set_dipole(query, state.xy); }
    ///     ");
    ///     let sum = sum.read("mass").write("dipole", 2).ordered();
    ///     let found = rank.query(&search, Targets::Own, Predicate::within(0.6).exclude_self(), sum)?.get::<f32>("dipole")?;
    ///     assert_eq!(rank.recorder.download(&found, 0, 4)?, [0.0, 1.5, 0.0, -0.5]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`CommError::Differ`](crate::comm::CommError::Differ) if ranks ask for different things,
    ///   on all ranks.
    /// - [`NeighborError::Domain`] if targets lie in another domain.
    /// - [`NeighborError::Density`], [`NeighborError::Weights`] and [`NeighborError::Weight`] if
    ///   densities or weights are out of range.
    /// - [`NeighborError::Radius`] and [`NeighborError::TooManyNeighbors`] if the predicate is out
    ///   of range.
    /// - [`NeighborError::Particles`] if no attribute has a given name.
    /// - [`NeighborError::TooLong`] for lists of 2^32 entries and more on a rank, on all ranks.
    /// - [`NeighborError::Device`] if a text does not compile or device memory is short.
    pub fn query<P, O: Output<P>>(
        &mut self,
        search: &Search,
        targets: Targets<'_>,
        predicate: P,
        output: O,
    ) -> Result<O::Result, NeighborError> {
        output.run(self, search, targets, predicate)
    }
}
