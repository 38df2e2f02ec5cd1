//! Ghosts: copies of remote points within reach of this rank's points, and the send lists that keep
//! them current.
//!
//! | method | submits, waits | exchanges |
//! |---|---|---|
//! | [`Ghosts::within`] | yes: for boxes, leaves and rows | of the host: one all-gather, two for each level of the tree and one below, points, rows |
//! | [`Ghosts::refresh`], [`Ghosts::accumulate`] | as [`Exchange::run`](crate::exchange::Exchange::run) | one |
//!
//! Ranks find the points that are near others by descending their trees together, from boxes around
//! many points to those of leaves; then a rank asks for what is within reach of such points, of
//! several at once where they are dense, and gets the rows of it. So ghosts are few, and requests,
//! answers and the work for them grow with the surface of a rank's part.

mod descent;
mod region;

use crate::comm::{CommError, Communicator};
use crate::exchange::ExchangeError;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, DeviceElement, DeviceError, Kernel, KernelSource, MemoryKind, Recorder, holds};
use crate::grid::Cost;
use crate::hash::{START, fnv1a};
use crate::host_memory;
use crate::points::tree::Tree;
use crate::points::{exchange_rows, upload_u32};
use crate::rank::Rank;
pub(crate) use descent::{Descent, Pending, ask, count, send, with_ranks};
use descent::{Nearby, Request, near, requests};
pub(crate) use region::{Fetcher, LeafValues, Met, Reach, Region, Span};

/// Copies of remote points within reach, and the send lists that keep them current.
///
/// ```
/// use meshloom::Rank;
/// use meshloom::gpu::{Gpu, Options};
/// use meshloom::points::ghosts::Ghosts;
/// use meshloom::points::{Bounds, Cloud, Domain, Frame};
/// use meshloom::points::tree::Builder;
///
/// // Four points on a ring of side 8, two on each of two ranks.
/// let ghosts = meshloom::comm::run_threads(2, |comm| {
///     let gpu = Gpu::open(&Options::from_env()?, 0)?;
///     let mut rank = Rank::new(comm, gpu)?;
///     let domain = Domain::new(&[8.0, 0.0])?;
///     let x = 4.0 * rank.index() as f32;
///     let cloud = Cloud::from_host(&mut rank.recorder, &domain, &[x, 0.0, x + 2.0, 0.0])?;
///     let frame = Frame::new(&domain, Some(Bounds { low: [0.0; 3], high: [6.0, 0.0, 0.0] })); // of all ranks
///     let tree = Builder::new(&rank.gpu).build(&mut rank.recorder, &cloud, &frame)?;
///     let ghosts = Ghosts::within(&mut rank, &tree, 2.5)?;
///     let copies = ghosts.refresh(&mut rank, cloud.positions(), 2)?;
///     Ok::<_, meshloom::Error>(rank.recorder.download(&copies, 0, copies.len())?)
/// })?;
/// assert_eq!(ghosts, [[4.0, 0.0, 6.0, 0.0], [0.0, 0.0, 2.0, 0.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ghosts {
    /// Rows of this rank that other ranks have copies of, by rank.
    rows: Array<u32>,
    sends: Vec<u64>,
    receives: Vec<u64>,
    owners: Vec<(u32, u32)>,
    /// Points that were sent to some rank, by ascending place along the curve; no other point can
    /// have ghosts.
    pub(crate) asking: Vec<u32>,
    permute: Permute,
    adjoint: Adjoint,
    cost: Cost,
    /// Which of the plans of its communicator it is.
    number: u64,
}

/// Adds contributions to ghosts to the points that the ghosts are copies of.
struct Adjoint {
    kernel: Kernel,
    /// Points that other ranks have copies of, each once.
    points: Array<u32>,
    /// Beginning of each point's places in `places`.
    offsets: Array<u32>,
    /// Places among the rows that were sent, by point, then by rank.
    places: Array<u32>,
    /// Rows that an array of values must have at least: one more than the last of `points`.
    min_rows: u64,
}

impl Ghosts {
    /// Finds ghosts: points of other ranks within `radius` of a point of this rank's tree, and some
    /// up to half as far again. Collective, with one radius, and with trees in the same domain and
    /// frame.
    ///
    /// # Errors
    /// [`ExchangeError`] if the device or another rank fails; on all ranks [`DeviceError::Misuse`]
    /// if a radius is not a finite number >= 0, and [`CommError::Mismatch`] if radii, domains or
    /// frames differ.
    pub fn within(rank: &mut Rank, tree: &Tree, radius: f32) -> Result<Self, ExchangeError> {
        agree(&rank.comm, tree, radius + 0.0)?; // without a sign of 0
        let region = Region::of(&mut rank.recorder, tree)?;
        Self::find(rank, (&region, tree.order()), &region, &Reach::Same(radius))
    }

    /// Ghosts of the points of other ranks that the points of `asking` reach; `region` is of this
    /// rank's own points, whose rows `order` has. Collective.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails.
    pub(crate) fn find(
        rank: &mut Rank,
        (region, order): (&Region, &Array<u32>),
        asking: &Region,
        reach: &Reach,
    ) -> Result<Self, ExchangeError> {
        let comm = rank.comm.clone();
        let descent = Descent::new(&comm, asking, reach, region, |_| true)?;
        let request = |span, bounds| Request { bounds, reach: reach.of(asking, span) };
        let stores = [region.on_demand(), asking.on_demand()].into_iter().chain(reach.on_demand()).collect();
        let mut fetcher = Fetcher::new(&mut rank.recorder, stores);
        let near = |_, request: &Request| near(region, request);
        let (pending, mut cost) = descent.run::<_, ExchangeError>(&mut fetcher, request, near)?;
        let (requests, ranks) = fetcher.complete(|| requests(asking, reach, &pending))?;
        let received = send(&comm, &requests, &count(&ranks, comm.size()), &mut cost)?;
        // The rows of this rank that each other rank gets.
        let mut nearby = Nearby::new(region).map_err(DeviceError::from)?;
        let received: Vec<&[Request]> = received.iter().collect();
        let reached = fetcher.each(&received, |requests| nearby.places(requests))?;
        let sends: Vec<u64> = reached.iter().map(|places| places.len() as u64).collect();
        let rows = rows_at(&mut rank.recorder, order, &reached)?;
        let arrived = send(&comm, &rows, &sends, &mut cost)?;
        let receives = arrived.counts().to_vec();
        let mut owners = host_memory::reserve("owners of ghosts", arrived.data().len())?;
        for (rank, rows) in (0..).zip(arrived.iter()) {
            owners.extend(rows.iter().map(|&row| (rank, row)));
        }
        let asking = pending.iter().map(|pending| pending.at as u32);
        let mut asking = host_memory::collect("points with ghosts", asking)?;
        asking.sort_unstable();
        asking.dedup();
        let adjoint = Adjoint::new(&mut rank.recorder, &rows)?;
        let rows = upload_u32(&mut rank.recorder, &rows)?;
        Ok(Ghosts {
            rows,
            sends,
            receives,
            owners,
            asking,
            permute: Permute::new(),
            adjoint,
            cost,
            number: comm.next_plan(),
        })
    }

    /// Returns the number of ghosts.
    pub fn len(&self) -> u64 {
        self.owners.len() as u64
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Returns the owner of each ghost: the rank, and the row in that rank's cloud. By rank, then
    /// by row.
    pub fn owners(&self) -> &[(u32, u32)] {
        &self.owners
    }

    /// Returns what finding them has cost this rank between ranks; the exchange counts what moving
    /// values costs.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the values of the ghosts, `width` elements each, from their owners. `values` has
    /// `width` elements for each point of the rank's own cloud. Submits and waits as
    /// [`Exchange::run`](crate::exchange::Exchange::run). Collective.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] for an
    /// array that is too short.
    pub fn refresh<T: DeviceElement>(
        &self,
        rank: &mut Rank,
        values: &Array<T>,
        width: u64,
    ) -> Result<Array<T>, ExchangeError> {
        self.check("Ghosts::refresh", values, width)?;
        let outgoing =
            rank.gpu.array_in("ghosts::outgoing", self.rows.len().saturating_mul(width), MemoryKind::Outgoing)?;
        self.permute.gather(&mut rank.recorder, values, &self.rows, &outgoing, width, Count::All)?;
        let what = format!("Ghosts::refresh of plan {}", self.number);
        exchange_rows(rank, &what, &outgoing, width, [&self.sends, &self.receives])
    }

    /// Adds the values at ghosts to the points that the ghosts are copies of: the adjoint of
    /// [`refresh`](Self::refresh). `values` has `width` elements for each own point, `ghosts` for
    /// each ghost. Contributions to a point are summed in the order of the ranks, then added to its
    /// value: the same bits for the same ranks. Submits and waits as
    /// [`Exchange::run`](crate::exchange::Exchange::run). Collective.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] for an
    /// array of another length.
    pub fn accumulate(
        &self,
        rank: &mut Rank,
        ghosts: &Array<f32>,
        values: &Array<f32>,
        width: u64,
    ) -> Result<(), ExchangeError> {
        if Some(ghosts.len()) != self.len().checked_mul(width) {
            let why = format!("{} values for {} ghosts of {width}", ghosts.len(), self.len());
            return Err(DeviceError::misuse("Ghosts::accumulate", why).into());
        }
        self.check("Ghosts::accumulate", values, width)?;
        let outgoing = rank.gpu.array_in("ghosts::outgoing", ghosts.len(), MemoryKind::Outgoing)?;
        rank.recorder.copy(ghosts, 0, &outgoing, 0, ghosts.len())?;
        let what = format!("Ghosts::accumulate of plan {}", self.number);
        let incoming = exchange_rows(rank, &what, &outgoing, width, [&self.receives, &self.sends])?;
        let Adjoint { kernel, points, offsets, places, .. } = &self.adjoint;
        let params = AccumulateParams { count: points.len() as u32, width: width as u32 };
        let arrays = [points.raw(), offsets.raw(), places.raw(), incoming.raw(), values.raw()];
        Ok(rank.recorder.each(kernel, &arrays, &params, points.len())?)
    }

    /// Refuses values that lack points which other ranks have copies of.
    fn check<T: DeviceElement>(&self, what: &str, values: &Array<T>, width: u64) -> Result<(), DeviceError> {
        holds(what, "values of points that other ranks see", values, self.adjoint.min_rows.saturating_mul(width))
    }
}

/// Fails on all ranks where radii are none or differ, or trees are of other domains or frames.
fn agree(comm: &Communicator, tree: &Tree, radius: f32) -> Result<(), ExchangeError> {
    let frame = tree.frame();
    let numbers = tree.domain().sides().into_iter().chain(frame.low).chain(frame.span);
    let numbers: Vec<u32> = [frame.dims as u32].into_iter().chain(numbers.map(f32::to_bits)).collect();
    let all = comm.all_gather(&[[radius.to_bits().into(), fnv1a(START, bytemuck::cast_slice(&numbers))]])?;
    let radius_of = |[radius, _]: [u64; 2]| f32::from_bits(radius as u32);
    if let Some(rank) = all.iter().position(|&own| !(radius_of(own).is_finite() && radius_of(own) >= 0.0)) {
        let why = format!("the radius {} of rank {rank}; give a finite one from 0 on", radius_of(all[rank]));
        return Err(DeviceError::misuse("Ghosts::within", why).into());
    }
    let rank = comm.rank();
    let Some(other) = all.iter().position(|own| *own != all[rank]) else { return Ok(()) };
    let called =
        |own: [u64; 2]| format!("Ghosts::within {} in a domain and frame of number {:x}", radius_of(own), own[1]);
    let (called, other_called) = (called(all[rank]), format!("called {}", called(all[other])));
    Err(CommError::Mismatch { rank, called, other, other_called }.into())
}

/// Returns the rows of points at these places along the curve, ascending for each rank. Waits for
/// them.
fn rows_at(recorder: &mut Recorder, order: &Array<u32>, places: &[Vec<u32>]) -> Result<Vec<u32>, DeviceError> {
    let mut index = host_memory::reserve("places of ghosts", places.iter().map(Vec::len).sum())?;
    places.iter().for_each(|places| index.extend_from_slice(places));
    let index = upload_u32(recorder, &index)?;
    let rows = Permute::new().gathered(recorder, "ghosts::rows", order, &index, 1)?;
    let mut rows = recorder.download(&rows, 0, rows.len())?;
    let mut rest = &mut rows[..];
    for places in places {
        let (of_rank, others) = std::mem::take(&mut rest).split_at_mut(places.len());
        of_rank.sort_unstable();
        rest = others;
    }
    Ok(rows)
}

crate::gpu::kernel_params! {
    struct AccumulateParams {
        count: u32,
        width: u32,
    }
}

/// Returns the kernel of [`Ghosts::accumulate`].
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("ghosts::accumulate", include_str!("../../../shaders/points/ghosts/accumulate.wgsl"))
        .params::<AccumulateParams>()
}

impl Adjoint {
    /// For the rows that are sent, by rank.
    fn new(recorder: &mut Recorder, rows: &[u32]) -> Result<Self, DeviceError> {
        let mut places = host_memory::collect("places of ghosts", 0..rows.len() as u32)?;
        places.sort_unstable_by_key(|&place| (rows[place as usize], place)); // in the order of the ranks
        let mut points: Vec<u32> = host_memory::reserve("places of ghosts", rows.len())?;
        let mut offsets = host_memory::reserve("places of ghosts", rows.len() + 1)?;
        for (at, &place) in places.iter().enumerate() {
            if points.last() != Some(&rows[place as usize]) {
                points.push(rows[place as usize]);
                offsets.push(at as u32);
            }
        }
        offsets.push(rows.len() as u32);
        Ok(Adjoint {
            kernel: Kernel::trusted(kernel()),
            points: upload_u32(recorder, &points)?,
            offsets: upload_u32(recorder, &offsets)?,
            places: upload_u32(recorder, &places)?,
            min_rows: points.last().map_or(0, |&last| u64::from(last) + 1),
        })
    }
}
