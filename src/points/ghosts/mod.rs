//! Ghosts: copies of other ranks' points, where this rank's points need them.
//!
//! | who | submits, waits | exchanges |
//! |---|---|---|
//! | [`Ghosts::find`] | yes: for points and boxes | three of the host: boxes of all, requests, numbers |
//! | [`Ghosts::refresh`], [`Ghosts::accumulate`] | as [`Exchange::run`](crate::exchange::Exchange::run) | one |
//!
//! A rank says where its points are and how far they see ([`Request`]), others answer with those of their points that lie
//! within. Both sides are exact to rounding, so ghosts are few: a shell as thick as the reach.

mod region;

use crate::comm::{CommError, Communicator, Op};
use crate::exchange::{Context, ExchangeError};
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, DeviceElement, DeviceError, Kernel, KernelSource, MemoryKind, Recorder};
use crate::grid::Cost;
use crate::points::rows::{exchange_rows, upload_u32};
use crate::points::tree::Tree;
pub use region::{Region, Request};

/// Boxes of a rank that all others know, at least, where it has as many.
const TOPS: u64 = 64;

/// Points that this rank's points see among those of other ranks, and who sees this rank's.
///
/// ```
/// use meshloom::Context;
/// use meshloom::gpu::{Gpu, Options};
/// use meshloom::points::ghosts::Ghosts;
/// use meshloom::points::{Bounds, Cloud, Domain, Frame};
/// use meshloom::points::tree::Builder;
///
/// // Four points on a ring of side 8, two on each of two ranks.
/// let ghosts = meshloom::comm::run_threads(2, |comm| {
///     let gpu = Gpu::open(&Options::from_env()?, 0)?;
///     let mut context = Context::new(comm, gpu)?;
///     let domain = Domain::new(&[8.0, 0.0])?;
///     let x = 4.0 * context.comm.rank() as f32;
///     let cloud = Cloud::from_host(&mut context.recorder, &domain, &[x, 0.0, x + 2.0, 0.0])?;
///     let frame = Frame::new(&domain, Some(Bounds { low: [0.0; 3], high: [6.0, 0.0, 0.0] })); // of all ranks
///     let tree = Builder::new(&context.gpu).build(&mut context.recorder, &cloud, &frame)?;
///     let ghosts = Ghosts::within(&mut context, &tree, 2.5)?;
///     let copies = ghosts.refresh(&mut context, cloud.positions(), 2)?;
///     Ok::<_, meshloom::Error>(context.recorder.download(&copies, 0, copies.len())?)
/// })?;
/// assert_eq!(ghosts, [[4.0, 0.0, 6.0, 0.0], [0.0, 0.0, 2.0, 0.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ghosts {
    /// Rows of this rank that others see, by rank.
    rows: Array<u32>,
    sends: Vec<u64>,
    receives: Vec<u64>,
    owners: Vec<(u32, u32)>,
    /// Requests that were sent to anybody.
    asked: Vec<usize>,
    permute: Permute,
    adjoint: Adjoint,
    cost: Cost,
}

/// How contributions to ghosts come back to their points.
struct Adjoint {
    kernel: Kernel,
    /// Points that others see, each once.
    points: Array<u32>,
    /// Where the places of each point begin in `places`.
    offsets: Array<u32>,
    /// Places among the rows that were sent, by point, then by rank.
    places: Array<u32>,
    /// Points that values must have at least: one more than the last of `points`.
    least: u64,
}

/// An error of ghosts: of the device or of the ranks.
pub type GhostError = ExchangeError;

impl Region {
    /// The region of a tree. Waits for boxes and points.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn of(recorder: &mut Recorder, tree: &Tree) -> Result<Self, DeviceError> {
        let words = recorder.download(tree.boxes(), 0, tree.boxes().len())?;
        let bounds = words.chunks_exact(8).flat_map(|node| node[..6].iter().map(|&word| f32::from_bits(word)));
        Ok(Region {
            dims: tree.domain().dims(),
            side: tree.domain().sides(),
            levels: tree.levels().clone(),
            boxes: bounds.collect(),
            points: recorder.download(tree.positions(), 0, tree.positions().len())?,
            order: recorder.download(tree.order(), 0, tree.len())?,
        })
    }

    /// Requests of the points along the curve, a leaf each, with the same reach.
    pub fn requests(&self, reach: f32) -> Vec<Request> {
        let leaf = crate::points::tree::LEAF as usize * self.dims;
        self.points.chunks(leaf).filter_map(|points| Request::around(points, self.dims, reach)).collect()
    }
}

impl Ghosts {
    /// The points of other ranks within `radius` of any leaf of this rank's tree. All ranks call it, with trees in the same
    /// frame.
    ///
    /// # Errors
    /// [`GhostError`] when the device or another rank fails.
    pub fn within(context: &mut Context, tree: &Tree, radius: f32) -> Result<Self, GhostError> {
        let region = Region::of(&mut context.recorder, tree)?;
        let requests = region.requests(radius);
        Self::find(context, &region, &requests)
    }

    /// The points of other ranks that `requests` of this rank reach; `region` is what this rank has itself. All ranks call it.
    ///
    /// # Errors
    /// [`GhostError`] when the device or another rank fails.
    pub fn find(context: &mut Context, region: &Region, requests: &[Request]) -> Result<Self, GhostError> {
        let comm = context.comm.clone();
        let (me, ranks) = (comm.rank(), comm.size());
        // Where the others' points are, roughly: whom to ask what.
        let tops = comm.all_gather_v(&region.tops(TOPS))?;
        let mut asked = Vec::new();
        let mut counts = Vec::with_capacity(ranks);
        for (rank, tops) in tops.iter().enumerate() {
            let before = asked.len();
            if rank != me {
                let reaches =
                    |request: &Request| tops.chunks_exact(6).any(|b| request.reaches(&b[..3], &b[3..], &region.side));
                asked.extend((0..requests.len()).filter(|&number| reaches(&requests[number])));
            }
            counts.push((asked.len() - before) as u64);
        }
        let requests: Vec<Request> = asked.iter().map(|&number| requests[number]).collect();
        asked.sort_unstable();
        asked.dedup();
        let came = comm.all_to_all_v(&requests, &counts)?;
        let mut cost = Cost { sent: 28 * counts.iter().sum::<u64>(), ..Cost::default() };
        cost.received = 28 * came.counts().iter().sum::<u64>();
        cost.messages = counts.iter().filter(|&&count| count > 0).count() as u64;
        // What the others see of this rank.
        let seen: Vec<Vec<u32>> = came.iter().map(|requests| region.reached(requests)).collect();
        let sends: Vec<u64> = seen.iter().map(|rows| rows.len() as u64).collect();
        let rows = seen.concat();
        let arrived = comm.all_to_all_v(&rows, &sends)?;
        let receives = arrived.counts().to_vec();
        let owner = |(rank, rows): (usize, &[u32])| rows.iter().map(move |&row| (rank as u32, row)).collect::<Vec<_>>();
        let owners = arrived.iter().enumerate().flat_map(owner).collect();
        cost += Cost {
            sent: 4 * rows.len() as u64,
            received: 4 * receives.iter().sum::<u64>(),
            messages: sends.iter().filter(|&&count| count > 0).count() as u64,
        };
        let adjoint = Adjoint::new(&mut context.recorder, &rows)?;
        let rows = upload_u32(&mut context.recorder, &rows)?;
        Ok(Ghosts { rows, sends, receives, owners, asked, permute: Permute::new(), adjoint, cost })
    }

    /// Number of ghosts.
    pub fn len(&self) -> u64 {
        self.owners.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Number of ghosts of all ranks. All ranks call it.
    ///
    /// # Errors
    /// [`CommError`] when another rank fails.
    pub fn total(&self, comm: &Communicator) -> Result<u64, CommError> {
        let mut total = [self.len()];
        comm.all_reduce(&mut total, Op::Sum)?;
        Ok(total[0])
    }

    /// Whose each ghost is: the rank, and the row in that rank's cloud. By rank, then by row.
    pub fn owners(&self) -> &[(u32, u32)] {
        &self.owners
    }

    /// Numbers, ascending, of the requests that reach boxes of other ranks: all others see nothing there.
    pub fn asked(&self) -> &[usize] {
        &self.asked
    }

    /// What finding them has cost this rank between ranks; what moving values costs stands in the exchange.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The ghosts' values: `width` elements for each, of `values`, which has as many for each point of the rank's own
    /// cloud. All ranks call it.
    ///
    /// # Errors
    /// [`GhostError`] when the device or another rank fails; [`DeviceError::Misuse`] for an array that is too short.
    pub fn refresh<T: DeviceElement>(
        &self,
        context: &mut Context,
        values: &Array<T>,
        width: u64,
    ) -> Result<Array<T>, GhostError> {
        self.holds("Ghosts::refresh", values.len(), width)?;
        let outgoing = context.gpu.array_in("ghosts::outgoing", self.rows.len() * width, MemoryKind::Outgoing)?;
        self.permute.gather(&mut context.recorder, values, &self.rows, &outgoing, width, Count::All)?;
        exchange_rows(context, &outgoing, width, [&self.sends, &self.receives])
    }

    /// Adds what came together at ghosts to the points that they are copies of: the adjoint of [`refresh`](Self::refresh).
    /// `values` has `width` elements for each own point, `ghosts` for each ghost. Contributions to a point are added up in
    /// the order of the ranks, then to its value: the same bits for the same ranks. All ranks call it.
    ///
    /// # Errors
    /// [`GhostError`] when the device or another rank fails; [`DeviceError::Misuse`] for an array of another length.
    pub fn accumulate(
        &self,
        context: &mut Context,
        ghosts: &Array<f32>,
        values: &Array<f32>,
        width: u64,
    ) -> Result<(), GhostError> {
        if ghosts.len() != self.len() * width {
            let why = format!("{} values for {} ghosts of {width}", ghosts.len(), self.len());
            return Err(DeviceError::Misuse { what: "Ghosts::accumulate".into(), why }.into());
        }
        self.holds("Ghosts::accumulate", values.len(), width)?;
        let outgoing = context.gpu.array_in("ghosts::outgoing", ghosts.len(), MemoryKind::Outgoing)?;
        context.recorder.copy(ghosts, 0, &outgoing, 0, ghosts.len())?;
        let incoming = exchange_rows(context, &outgoing, width, [&self.receives, &self.sends])?;
        let Adjoint { kernel, points, offsets, places, .. } = &self.adjoint;
        let params = AccumulateParams { count: points.len() as u32, width: width as u32 };
        let arrays = [points.raw(), offsets.raw(), places.raw(), incoming.raw(), values.raw()];
        Ok(context.recorder.each(kernel, &arrays, &params, points.len())?)
    }

    /// Refuses values that lack points which others see.
    fn holds(&self, what: &str, have: u64, width: u64) -> Result<(), DeviceError> {
        let needed = self.adjoint.least.saturating_mul(width);
        if have >= needed {
            return Ok(());
        }
        let why = format!("{have} values, the points that other ranks see take {needed}");
        Err(DeviceError::Misuse { what: what.into(), why })
    }
}

crate::kernel_params! {
    struct AccumulateParams {
        count: u32,
        width: u32,
    }
}

/// The kernel of [`Ghosts::accumulate`].
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("ghosts::accumulate", include_str!("../../../shaders/points/ghosts/accumulate.wgsl"))
        .params::<AccumulateParams>()
}

impl Adjoint {
    /// For rows as they are sent, by rank.
    fn new(recorder: &mut Recorder, rows: &[u32]) -> Result<Self, DeviceError> {
        let mut places: Vec<u32> = (0..rows.len() as u32).collect();
        places.sort_by_key(|&place| rows[place as usize]); // stable: in the order of the ranks
        let (mut points, mut offsets) = (Vec::new(), Vec::new());
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
            least: points.last().map_or(0, |&last| u64::from(last) + 1),
        })
    }
}
