//! Distributed sort of points along a curve, exactly balanced.

use std::ops::Range;

use super::error::SortError;
use super::merge::{merge, merge_traffic};
use super::order::keys as keys_of;
use super::plan::{SortPlan, Summary, gathered};
use super::route::Route;
use crate::gpu::primitives::{Permute, Sort};
use crate::gpu::{Array, DeviceError, MemoryKind, Recorder};
use crate::points::rows::exchange_rows;
use crate::points::u64_array::U64Array;
use crate::points::{Cloud, Curve, Frame};
use crate::rank::Rank;

/// This rank's part of all points in the order of a curve.
pub struct Sorted {
    /// The points, with their attributes: those at [`part`](Self::part) of the whole order.
    pub cloud: Cloud,
    /// Their keys, sorted: high and low words.
    pub keys: [Array<u32>; 2],
    /// The cells of the curve, the same on all ranks.
    pub frame: Frame,
    /// Moves rows of the input here, and back.
    pub route: Route,
    /// Places of this rank's points in the whole order: the rank's [share](crate::grid::Shares) of the total.
    pub part: Range<u64>,
    /// Number of points on all ranks.
    pub total: u64,
    /// Bytes that this rank's sort reads and writes in device memory, as computed from sizes: keys,
    /// their order, rows moved.
    pub traffic: u64,
    /// The index of each point among the input of all ranks.
    ids: U64Array,
}

/// Order of the points of all ranks along a curve: the cells, and the cuts between ranks.
#[derive(Clone, Debug)]
pub(crate) struct CurveOrder {
    /// The cells of the curve, the same on all ranks.
    pub frame: Frame,
    /// The key of the last point before each boundary between ranks.
    pub splitters: Vec<u64>,
}

impl Sorted {
    /// Returns the index of each of this rank's points among the input of all ranks, in rank order.
    /// Waits for the device.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn index(&self, recorder: &mut Recorder) -> Result<Vec<u64>, DeviceError> {
        self.ids.download(recorder)
    }
}

/// Returns the bytes that moving the rows of the cloud's arrays and computing keys takes, besides
/// the sort or merge.
fn bytes_moved(cloud: &Cloud, count: u64) -> u64 {
    let dims = cloud.domain().dims() as u64;
    let words = dims + cloud.attributes().map(|(_, attribute)| attribute.width()).sum::<u64>();
    let keys = count * (4 * dims + 8);
    // Every gather also reads one index per row.
    let row = 2 * 12 + 4 + 8 * words;
    keys + count * row
}

/// Sorts the points of all ranks along `curve` and gives each rank its [share](crate::grid::Shares)
/// of them, with all attributes. Collective, each with its own part of the input: any number
/// of points, also none; the input is their parts in rank order. Points with equal keys keep the
/// order of the input: the result is the same for any number of ranks. Cells along open axes cover
/// the bounds of all ranks' points.
///
/// `cloud` is left as it was. Waits for the device and the other ranks.
///
/// ```
/// use meshloom::gpu::Options;
/// use meshloom::points::{Cloud, Curve, Domain};
/// use meshloom::{Error, Launch, launch, points::sort};
///
/// let indices = launch(Launch::Threads(2), &Options::from_env()?, |rank| {
///     let points: &[f32] = if rank.index() == 0 { &[0.9, 0.9, 0.1, 0.9, 0.2, 0.1] } else { &[0.1, 0.1] };
///     let cloud = Cloud::from_host(&mut rank.recorder, &Domain::new(&[1.0, 1.0])?, points)?;
///     let sorted = sort::distribute(rank, &cloud, Curve::Morton)?;
///     Ok::<_, Error>(sorted.index(&mut rank.recorder)?)
/// })?;
/// assert_eq!(indices, [[3, 2], [1, 0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`CommError::Differ`](crate::comm::CommError::Differ) on all ranks; [`SortError`] of the device,
/// of a rank, or [`TooMany`](crate::points::ParticleError::TooMany) points.
pub fn distribute(rank: &mut Rank, cloud: &Cloud, curve: Curve) -> Result<Sorted, SortError> {
    let Distributed { cloud, curve_order, keys, route, part, total, traffic, first_row } =
        distribute_rows(rank, cloud, curve)?;
    let ids = match rank.comm.size() {
        1 => U64Array::of_words(route.order()),
        _ => route.forward_ids(rank, first_row, total)?,
    };
    Ok(Sorted { cloud, keys, frame: curve_order.frame, route, part, total, traffic, ids })
}

/// Points in the order of a curve over all ranks, without their indices in the input.
pub(crate) struct Distributed {
    pub cloud: Cloud,
    pub curve_order: CurveOrder,
    keys: [Array<u32>; 2],
    route: Route,
    part: Range<u64>,
    total: u64,
    traffic: u64,
    /// The index of this rank's first point in the input of all ranks.
    first_row: u64,
}

/// Sorts the points of all ranks as [`distribute`] does.
pub(crate) fn distribute_rows(rank: &mut Rank, cloud: &Cloud, curve: Curve) -> Result<Distributed, SortError> {
    let comm = rank.comm.clone();
    let mut traffic = bytes_moved(cloud, cloud.len()) + Sort::new(&rank.gpu).traffic(true, 63, cloud.len());
    let all = Summary::gather(&comm, cloud, curve, false)?;
    let frame = all.cells(cloud.domain(), curve)?;
    let SortPlan { total, row_offsets, order, keys, sends, receives, splitters } =
        SortPlan::find(rank, cloud, curve, &all, &frame)?;
    let curve_order = CurveOrder { frame, splitters };
    let (part, first_row) = (comm.shares().split(total, comm.rank()), row_offsets[comm.rank()]);
    if comm.size() == 1 {
        let route = Route::new(&comm, order.clone(), sends, receives, None)?;
        let cloud = cloud.gather(&mut rank.recorder, &Permute::new(), &order)?;
        return Ok(Distributed { cloud, curve_order, keys, route, part, total, traffic, first_row });
    }
    // Frees the device memory before anything is exchanged.
    drop(keys);
    // Keys are recomputed from the received positions instead of being sent.
    let dims = cloud.domain().dims() as u64;
    let outgoing = gathered(&mut rank.recorder, &cloud.positions().cast()?, &order, dims, MemoryKind::Outgoing)?;
    let incoming = exchange_rows(rank, "positions of a sort", &outgoing, dims, [&sends, &receives])?;
    drop(outgoing);
    // What arrives from each rank is sorted: it is merged, not sorted again.
    let [high, low] = keys_of(&mut rank.recorder, curve, &incoming.cast()?, &frame)?;
    let (merge, keys) = merge(&mut rank.recorder, [&high, &low], &receives)?;
    traffic += bytes_moved(cloud, merge.len()) + merge_traffic(&receives);
    drop([high, low]);
    let positions = gathered(&mut rank.recorder, &incoming, &merge, dims, MemoryKind::Device)?;
    let mut here = Cloud::new(&mut rank.recorder, cloud.domain(), positions.cast()?)?;

    let route = Route::new(&comm, order, sends, receives, Some(merge))?;
    route.forward_attributes(rank, cloud, &mut here)?;
    Ok(Distributed { cloud: here, curve_order, keys, route, part, total, traffic, first_row })
}
