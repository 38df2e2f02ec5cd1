//! Distributed sort of points along a curve, exactly balanced.

use std::ops::Range;

use super::error::SortError;
use super::route::Route;
use super::splitters::Splitters;
use super::{keys, order_of};
use crate::comm::{Communicator, Op};
use crate::exchange::Context;
use crate::gpu::primitives::{Count, Permute, Sort};
use crate::gpu::{Array, DeviceError, Gpu, MemoryKind, Recorder};
use crate::grid::split;
use crate::hash::{START, fnv1a};
use crate::points::rows::{exchange_rows, offsets};
use crate::points::{Bounds, Cloud, Curve, Frame};

/// This rank's part of all points in the order of a curve.
pub struct Sorted {
    /// The points, with their attributes: those at [`part`](Self::part) of the whole order.
    pub cloud: Cloud,
    /// Their keys, sorted: high and low words.
    pub keys: [Array<u32>; 2],
    /// The cells of the curve, the same on all ranks.
    pub frame: Frame,
    /// Where the points were in the input: each one's row on the rank it came from; see [`index`](Self::index).
    pub rows: Array<u32>,
    /// Moves rows of the input here, and back.
    pub route: Route,
    /// Places of this rank's points in the whole order: [`split`] of the total.
    pub part: Range<u64>,
    /// Number of points on all ranks.
    pub total: u64,
    /// Bytes that this rank's sort reads and writes in device memory, as computed from sizes: keys, their order, rows moved.
    pub traffic: u64,
    /// The index of each rank's first point among the input of all ranks.
    row_offsets: Vec<u64>,
}

impl Sorted {
    /// The index of each of this rank's points among the input of all ranks, in rank order. Waits for the device.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn index(&self, recorder: &mut Recorder) -> Result<Vec<u64>, DeviceError> {
        let rows = recorder.download(&self.rows, 0, self.rows.len())?;
        let Some(merge) = self.route.merge() else {
            return Ok(rows.into_iter().map(u64::from).collect());
        };
        let places = recorder.download(merge, 0, merge.len())?;
        // Where the rows of each rank begin among those received.
        let starts = offsets(self.route.receives());
        let from = |place: u32| starts.partition_point(|&start| start <= u64::from(place)) - 1;
        Ok(rows.into_iter().zip(places).map(|(row, place)| self.row_offsets[from(place)] + u64::from(row)).collect())
    }
}

/// Bytes that sorting `count` points locally reads and writes, moving their keys and the rows of the cloud's arrays included.
fn bytes_moved(gpu: &Gpu, cloud: &Cloud, count: u64) -> u64 {
    let dims = cloud.domain().dims() as u64;
    let words = dims + cloud.attributes().map(|(_, attribute)| attribute.width()).sum::<u64>();
    let keys = count * (4 * dims + 8);
    // Every gather also reads one index per row.
    let row = 2 * 12 + 4 + 8 * words;
    keys + Sort::new(gpu).traffic(true, 63, count) + count * row
}

/// Counts and bounds of all ranks' points.
struct Summary {
    counts: Vec<u64>,
    bounds: Option<Bounds>,
}

impl Summary {
    /// Exchanges them; fails on all ranks if they differ in what they sort.
    fn gather(comm: &Communicator, cloud: &Cloud, curve: Curve) -> Result<Self, SortError> {
        let bounds = cloud.bounds().unwrap_or(Bounds { low: [0.0; 3], high: [0.0; 3] });
        let mut mine = vec![cloud.len(), kind(cloud, curve)];
        mine.extend(bounds.low.iter().chain(&bounds.high).map(|x| u64::from(x.to_bits())));
        let all = comm.all_gather(&mine)?;
        let ranks: Vec<&[u64]> = all.chunks_exact(mine.len()).collect();
        if let Some(rank) = ranks.iter().position(|rank| rank[1] != ranks[0][1]) {
            return Err(SortError::Differ { rank });
        }
        let real = |bits: u64| f32::from_bits(bits as u32);
        let bounds =
            |rank: &&&[u64]| Bounds { low: [2, 3, 4].map(|a| real(rank[a])), high: [5, 6, 7].map(|a| real(rank[a])) };
        let filled = ranks.iter().filter(|rank| rank[0] > 0);
        Ok(Summary {
            counts: ranks.iter().map(|rank| rank[0]).collect(),
            bounds: filled.map(|rank| bounds(&rank)).reduce(|a, b| a.union(&b)),
        })
    }
}

/// A hash of what must be the same on all ranks.
fn kind(cloud: &Cloud, curve: Curve) -> u64 {
    let domain = cloud.domain();
    let mut hash = fnv1a(START, &[domain.dims() as u8, u8::from(curve == Curve::Hilbert)]);
    hash = domain.sides().iter().fold(hash, |hash, side| fnv1a(hash, &side.to_le_bytes()));
    for (name, attribute) in cloud.attributes() {
        let what = format!("{name}\0{:?}\0{}\0", attribute.values().element(), attribute.width());
        hash = fnv1a(hash, what.as_bytes());
    }
    hash
}

/// The cuts of all ranks' sorted keys; `keys` are this rank's.
fn cuts(comm: &Communicator, counts: &[u64], keys: &[u64], bits: u32) -> Result<Vec<Vec<u64>>, SortError> {
    let mut splitters = Splitters::new(counts.iter().sum(), comm.size(), bits);
    while !splitters.is_done() {
        let mut sums = splitters.counts(keys);
        comm.all_reduce(&mut sums, Op::Sum)?;
        splitters.narrow(&sums);
    }
    let ties = comm.all_gather(&splitters.ties(keys))?;
    Ok(splitters.cuts(&ties, counts))
}

/// Sorts the points of all ranks along `curve` and gives each rank its part, [`split`] of their number, with all
/// attributes. All ranks call it, each with its own part of the input: any number of points, also none;
/// the input is their parts in rank order. Points with equal keys keep the order of the input: the result is the
/// same for any number of ranks. Cells along open axes cover the bounds of all ranks' points.
///
/// `cloud` is left as it was. Waits for the device and the other ranks.
///
/// ```
/// use meshloom::gpu::Options;
/// use meshloom::points::{Cloud, Curve, Domain};
/// use meshloom::{Error, Launch, launch, points::sort};
///
/// let indices = launch(Launch::Threads(2), &Options::from_env()?, |mut context| {
///     let points: &[f32] = if context.comm.rank() == 0 { &[0.9, 0.9, 0.1, 0.9, 0.2, 0.1] } else { &[0.1, 0.1] };
///     let cloud = Cloud::from_host(&mut context.recorder, &Domain::new(&[1.0, 1.0])?, points)?;
///     let sorted = sort::distribute(&mut context, &cloud, Curve::Morton)?;
///     Ok::<_, Error>(sorted.index(&mut context.recorder)?)
/// })?;
/// assert_eq!(indices, [[3, 2], [1, 0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SortError::Differ`] on all ranks; [`SortError`] of the device, of a rank, or
/// [`TooMany`](crate::points::ParticleError::TooMany) points.
pub fn distribute(context: &mut Context, cloud: &Cloud, curve: Curve) -> Result<Sorted, SortError> {
    let comm = context.comm.clone();
    let Summary { counts, bounds } = Summary::gather(&comm, cloud, curve)?;
    // The cells of a Morton curve are part of the result; a Hilbert curve only has to keep near points together.
    let frame = match curve {
        Curve::Morton => Frame::whole(cloud.domain(), bounds)?,
        Curve::Hilbert => Frame::new(cloud.domain(), bounds),
    };
    let (total, row_offsets) = (counts.iter().sum(), offsets(&counts));
    let part = split(total, comm.size() as u64, comm.rank() as u64);
    let mut traffic = bytes_moved(&context.gpu, cloud, cloud.len());
    let local = Ordered::new(&mut context.recorder, curve, cloud.positions(), &frame)?;
    if comm.size() == 1 {
        let Ordered { order: rows, keys } = local;
        let route = Route::new(&comm, rows.clone(), counts.clone(), counts, None)?;
        let cloud = cloud.gather(&mut context.recorder, &Permute::new(), &rows)?;
        return Ok(Sorted { cloud, keys, frame, rows, route, part, total, traffic, row_offsets });
    }
    let Ordered { order, keys } = local;
    let [sends, receives] = shares(&mut context.recorder, &comm, &counts, keys)?;
    // Keys are computed anew from the positions received, rather than sent along.
    let dims = cloud.domain().dims() as u64;
    let outgoing = gathered(&mut context.recorder, &cloud.positions().cast()?, &order, dims, MemoryKind::Outgoing)?;
    let incoming = exchange_rows(context, &outgoing, dims, [&sends, &receives])?;
    drop(outgoing);
    let Ordered { order: merge, keys } = Ordered::new(&mut context.recorder, curve, &incoming.cast()?, &frame)?;
    let positions = gathered(&mut context.recorder, &incoming, &merge, dims, MemoryKind::Device)?;
    let mut here = Cloud::new(&mut context.recorder, cloud.domain(), positions.cast()?)?;

    let route = Route::new(&comm, order, sends, receives, Some(merge))?;
    for (name, attribute) in cloud.attributes() {
        let (values, width) = (attribute.values(), attribute.width());
        let words = route.forward(context, &values.words()?, width)?;
        here.set(name, values.like(&words)?, width)?;
    }
    let outgoing = context.gpu.array_in::<u32>("sort::rows", route.rows_before(), MemoryKind::Outgoing)?;
    context.recorder.copy(route.order(), 0, &outgoing, 0, route.rows_before())?;
    let rows = route.exchange(context, outgoing, 1)?;
    traffic += bytes_moved(&context.gpu, cloud, here.len());
    Ok(Sorted { cloud: here, keys, frame, rows, route, part, total, traffic, row_offsets })
}

/// The order of one rank's points along a curve.
struct Ordered {
    /// The index of each point along the curve.
    order: Array<u32>,
    /// High and low words of the keys, sorted.
    keys: [Array<u32>; 2],
}

impl Ordered {
    fn new(recorder: &mut Recorder, curve: Curve, positions: &Array<f32>, frame: &Frame) -> Result<Self, DeviceError> {
        let [high, low] = keys(recorder, curve, positions, frame)?;
        let order = order_of(recorder, [&high, &low])?;
        let high = gathered(recorder, &high, &order, 1, MemoryKind::Device)?;
        let low = gathered(recorder, &low, &order, 1, MemoryKind::Device)?;
        Ok(Ordered { order, keys: [high, low] })
    }
}

/// The rows `index` of `source`, of `width` words each.
fn gathered(
    recorder: &mut Recorder,
    source: &Array<u32>,
    index: &Array<u32>,
    width: u64,
    memory: MemoryKind,
) -> Result<Array<u32>, DeviceError> {
    let target = recorder.gpu().array_in::<u32>("sort::rows", index.len() * width, memory)?;
    Permute::new().gather(recorder, source, index, &target, width, Count::All)?;
    Ok(target)
}

/// How many of its sorted points this rank sends to each rank, and how many it receives from each; `keys` are its sorted keys.
fn shares(
    recorder: &mut Recorder,
    comm: &Communicator,
    counts: &[u64],
    keys: [Array<u32>; 2],
) -> Result<[Vec<u64>; 2], SortError> {
    let [high, low] = &keys;
    let (high, low) = (recorder.download(high, 0, high.len())?, recorder.download(low, 0, low.len())?);
    // Frees the device memory before anything is exchanged.
    drop(keys);
    let keys: Vec<u64> = high.into_iter().zip(low).map(|(high, low)| u64::from(high) << 32 | u64::from(low)).collect();
    let (cuts, rank) = (cuts(comm, counts, &keys, 63)?, comm.rank());
    let sends = cuts[rank].windows(2).map(|pair| pair[1] - pair[0]).collect();
    let receives = cuts.iter().map(|cuts| cuts[rank + 1] - cuts[rank]).collect();
    Ok([sends, receives])
}
