//! One sort over all ranks, after which each has its exact share of the curve.

use std::ops::Range;

use super::error::SortError;
use super::route::{Route, moved};
use super::splitters::Splitters;
use super::{keys, order_of};
use crate::comm::{Communicator, Op};
use crate::exchange::Exchange;
use crate::gpu::primitives::{Count, Permute, Sort};
use crate::gpu::{Array, DeviceError, Gpu, MemoryKind, Recorder};
use crate::grid::split;
use crate::hash::{START, fnv1a};
use crate::points::{Bounds, Cloud, Curve, Frame};

/// This rank's part of all points in the order of a curve.
pub struct Sorted {
    /// The points, with their attributes: those at [`part`](Self::part) of the whole order.
    pub cloud: Cloud,
    /// Their keys, sorted: high and low words.
    pub keys: [Array<u32>; 2],
    /// The cells that the keys count, the same on all ranks.
    pub frame: Frame,
    /// Where the points were in the input: each one's row on the rank it came from; see [`index`](Self::index).
    pub rows: Array<u32>,
    /// How rows of the input get here, and back.
    pub route: Route,
    /// Places of this rank's points in the whole order: [`split`] of the total.
    pub part: Range<u64>,
    /// Number of points on all ranks.
    pub total: u64,
    /// Bytes that this rank's sort reads and writes in device memory, by design: keys, their order, rows moved.
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
        // Where the rows of each rank begin among those that came.
        let starts: Vec<u64> = starts(self.route.receives());
        let from = |place: u32| starts.partition_point(|&start| start <= u64::from(place)) - 1;
        Ok(rows.into_iter().zip(places).map(|(row, place)| self.row_offsets[from(place)] + u64::from(row)).collect())
    }
}

/// Bytes of a local sort of so many points, and of one move of their keys and of rows of `words` words.
fn traffic(gpu: &Gpu, count: u64, dims: u64, words: u64) -> u64 {
    let keys = count * (4 * dims + 8);
    // Every gather reads an index a row as well.
    let row = 2 * 12 + 4 + 8 * words;
    keys + Sort::new(gpu).traffic(true, 63, count) + count * row
}

/// Where each of some runs begins that lie one after the other.
fn starts(counts: &[u64]) -> Vec<u64> {
    counts.iter().scan(0, |next, &count| Some(std::mem::replace(next, *next + count))).collect()
}

/// What ranks know of each other's points.
struct Everywhere {
    counts: Vec<u64>,
    bounds: Option<Bounds>,
}

impl Everywhere {
    /// Tells all ranks; fails on all of them if they differ in what they sort.
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
        Ok(Everywhere {
            counts: ranks.iter().map(|rank| rank[0]).collect(),
            bounds: filled.map(|rank| bounds(&rank)).reduce(|a, b| a.union(&b)),
        })
    }
}

/// What must be the same on all ranks, as a number.
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
/// attributes. All ranks of `exchange` call it, each with its own part of the input: any number of points, none too;
/// the input is what they have in rank order. Points with equal keys keep the order of the input: the outcome is the
/// same for any number of ranks. Open axes reach over the bounds of all ranks' points.
///
/// `cloud` is left as it was. Waits for the device and the other ranks.
///
/// ```
/// use meshloom::gpu::{Options, Recorder};
/// use meshloom::exchange::Exchange;
/// use meshloom::points::{Cloud, Curve, Domain};
/// use meshloom::{Error, Launch, launch, points::sort};
///
/// let indices = launch(Launch::Threads(2), &Options::from_env()?, |rank| {
///     let (mut recorder, mut exchange) = (Recorder::new(&rank.gpu)?, Exchange::new(rank.comm.clone()));
///     let points: &[f32] = if rank.comm.rank() == 0 { &[0.9, 0.9, 0.1, 0.9, 0.2, 0.1] } else { &[0.1, 0.1] };
///     let cloud = Cloud::from_host(&mut recorder, &Domain::new(&[1.0, 1.0])?, points)?;
///     let sorted = sort::distribute(&mut recorder, &mut exchange, &cloud, Curve::Morton)?;
///     Ok::<_, Error>(sorted.index(&mut recorder)?)
/// })?;
/// assert_eq!(indices, [[3, 2], [1, 0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SortError::Differ`] on all ranks; [`SortError`] of the device, of a rank, or
/// [`TooMany`](crate::points::ParticleError::TooMany) points.
pub fn distribute(
    recorder: &mut Recorder,
    exchange: &mut Exchange,
    cloud: &Cloud,
    curve: Curve,
) -> Result<Sorted, SortError> {
    let (gpu, comm) = (recorder.gpu().clone(), exchange.comm().clone());
    let (rank, dims) = (comm.rank(), cloud.domain().dims() as u64);
    let Everywhere { counts, bounds } = Everywhere::gather(&comm, cloud, curve)?;
    let total: u64 = counts.iter().sum();
    // The cells of a Morton curve are promised; a Hilbert curve only has to keep near points together.
    let frame = match curve {
        Curve::Morton => Frame::whole(cloud.domain(), bounds)?,
        Curve::Hilbert => Frame::new(cloud.domain(), bounds),
    };
    let (row_offsets, part) = (starts(&counts), split(total, comm.size() as u64, rank as u64));
    let permute = Permute::new();
    let gathered =
        |recorder: &mut Recorder, source: &Array<u32>, index: &Array<u32>, width: u64, memory: MemoryKind| {
            let target = recorder.gpu().array_in::<u32>("sort::rows", index.len() * width, memory)?;
            permute.gather(recorder, source, index, &target, width, Count::All)?;
            Ok::<_, DeviceError>(target)
        };

    let words = dims + cloud.attributes().map(|(_, attribute)| attribute.width()).sum::<u64>();
    let mut bytes = traffic(&gpu, cloud.len(), dims, words);

    let own = keys(recorder, curve, cloud.positions(), &frame)?;
    let order = order_of(recorder, &own)?;
    let sorted = |recorder: &mut Recorder, words: &[Array<u32>; 2], order: &Array<u32>| {
        let [high, low] = words;
        let high = gathered(recorder, high, order, 1, MemoryKind::Device)?;
        Ok::<_, DeviceError>([high, gathered(recorder, low, order, 1, MemoryKind::Device)?])
    };
    let own = sorted(recorder, &own, &order)?;
    if comm.size() == 1 {
        let route = Route::new(&comm, order.clone(), counts.clone(), counts, None)?;
        let cloud = cloud.gather(recorder, &permute, &order)?;
        return Ok(Sorted { cloud, keys: own, frame, rows: order, route, part, total, traffic: bytes, row_offsets });
    }

    let [high, low] = &own;
    let (high, low) = (recorder.download(high, 0, high.len())?, recorder.download(low, 0, low.len())?);
    let both = high.into_iter().zip(low);
    let host: Vec<u64> = both.map(|(high, low)| u64::from(high) << 32 | u64::from(low)).collect();
    drop(own);
    let cuts = cuts(&comm, &counts, &host, 63)?;
    drop(host);
    let sends: Vec<u64> = cuts[rank].windows(2).map(|pair| pair[1] - pair[0]).collect();
    let receives: Vec<u64> = cuts.iter().map(|cuts| cuts[rank + 1] - cuts[rank]).collect();

    // Positions first: what came is sorted by keys that are made of them once more, rather than sent along.
    let outgoing = gathered(recorder, &cloud.positions().cast()?, &order, dims, MemoryKind::Outgoing)?;
    let incoming = moved(recorder, exchange, &outgoing, dims, &sends, &receives)?;
    drop(outgoing);
    let came = keys(recorder, curve, &incoming.cast()?, &frame)?;
    let merge = order_of(recorder, &came)?;
    let positions = gathered(recorder, &incoming, &merge, dims, MemoryKind::Device)?;
    let keys = sorted(recorder, &came, &merge)?;
    let mut here = Cloud::new(recorder, cloud.domain(), positions.cast()?)?;

    let route = Route::new(&comm, order, sends, receives, Some(merge))?;
    for (name, attribute) in cloud.attributes() {
        let (values, width) = (attribute.values(), attribute.width());
        let words = route.forward(recorder, exchange, &values.words()?, width)?;
        here.set(name, values.like(&words)?, width)?;
    }
    let outgoing = gpu.array_in::<u32>("sort::rows", route.rows_before(), MemoryKind::Outgoing)?;
    recorder.copy(route.order(), 0, &outgoing, 0, route.rows_before())?;
    let rows = route.arrive(recorder, exchange, outgoing, 1)?;
    bytes += traffic(&gpu, here.len(), dims, words);
    Ok(Sorted { cloud: here, keys, frame, rows, route, part, total, traffic: bytes, row_offsets })
}
