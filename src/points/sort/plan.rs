//! Distribution of the points of all ranks along a curve: parts of the sequence of all keys, their
//! order on one rank, and counts of sorted keys on the device.

use super::splitters::{Splitters, Ties};
use super::{Route, SortError};
use crate::comm::{Communicator, Op};
use crate::gpu::primitives::{Count, Keys, Permute, Sort};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, MemoryKind, Recorder};
use crate::points::{Bounds, Cloud, Curve, CurveKeys, Domain, Frame, ParticleError, offsets, upload_u32};
use crate::rank::Rank;

/// Bits of keys along either curve.
const KEY_BITS: u32 = 63;

crate::gpu::kernel_params! {
    struct RecipientsParams {
        count: u32,
        ranks: u32,
    }
}

/// Returns the kernel that tells where rows go.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("sort::recipients", include_str!("../../../shaders/points/sort/recipients.wgsl"))
        .params::<RecipientsParams>()
}

/// Counts and bounds of all ranks' points.
pub(crate) struct Summary {
    counts: Vec<u64>,
    /// Bounds of all points.
    pub bounds: Option<Bounds>,
    /// Bounds of all points except those far away from nearly all others of their rank.
    pub core: Option<Bounds>,
    /// The least of the [smallest magnitudes](Cloud::smallest_magnitude) of all ranks.
    pub smallest_magnitude: f32,
}

impl Summary {
    /// Exchanges the counts and bounds of all ranks, which must sort alike. Collective.
    pub fn gather(comm: &Communicator, cloud: &Cloud, curve: Curve, is_sorted: bool) -> Result<Self, SortError> {
        let attributes: Vec<_> = cloud
            .attributes()
            .map(|(name, attribute)| (name, attribute.values().element(), attribute.width()))
            .collect();
        comm.agree(
            "sort of points",
            &[
                ("domain", &cloud.domain().periods()),
                ("curve", &curve),
                ("sorted before", &is_sorted),
                ("attributes", &attributes),
            ],
        )?;
        let none = Bounds { low: [0.0; 3], high: [0.0; 3] };
        let held = [cloud.bounds(), cloud.core()].map(|held| held.unwrap_or(none));
        let mut mine = vec![cloud.len(), cloud.smallest_magnitude.to_bits().into()];
        mine.extend(held.iter().flat_map(|held| [held.low, held.high]).flatten().map(|x| u64::from(x.to_bits())));
        let all = comm.all_gather(&mine)?;
        let ranks: Vec<&[u64]> = all.chunks_exact(mine.len()).collect();
        let real = |bits: u64| f32::from_bits(bits as u32);
        let of_all = |at: usize| {
            let corner = |rank: &[u64], at: usize| [0, 1, 2].map(|axis| real(rank[at + axis]));
            let filled = ranks.iter().filter(|rank| rank[0] > 0);
            let held = filled.map(|rank| Bounds { low: corner(rank, at), high: corner(rank, at + 3) });
            held.reduce(|a, b| a.union(&b))
        };
        let counts = ranks.iter().map(|rank| rank[0]).collect();
        let smallest_magnitude = ranks.iter().map(|rank| real(rank[1])).fold(f32::INFINITY, f32::min);
        Ok(Summary { counts, bounds: of_all(2), core: of_all(8), smallest_magnitude })
    }

    /// Returns the number of points of all ranks, and the number before each rank.
    pub fn total_and_offsets(&self) -> (u64, Vec<u64>) {
        (self.counts.iter().sum(), offsets(&self.counts))
    }

    /// Returns the cells of a curve that are part of a result: the same for any number of ranks.
    pub fn cells(&self, domain: &Domain, curve: Curve) -> Result<Frame, ParticleError> {
        match curve {
            Curve::Morton => Frame::whole(domain, self.bounds),
            Curve::Hilbert => Ok(Frame::new(domain, self.bounds)),
        }
    }
}

/// Returns the rows `index` of `source`, of `width` words each.
pub(super) fn gathered(
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

/// Which of this rank's points go to which rank, so that each gets its
/// [share](crate::grid::Shares) of all points in the order of the curve.
pub(crate) struct SortPlan {
    /// Points of all ranks.
    pub total: u64,
    /// The index of each rank's first point among the input of all ranks.
    pub row_offsets: Vec<u64>,
    /// This rank's points along the curve.
    pub order: Array<u32>,
    /// High and low words of their keys, sorted.
    pub keys: [Array<u32>; 2],
    /// Points that go to each rank: the first of `order` to rank 0, and so on.
    pub sends: Vec<u64>,
    /// Points that come from each rank.
    pub receives: Vec<u64>,
    /// The key of the last point before each boundary between ranks.
    pub splitters: Vec<u64>,
}

impl SortPlan {
    /// Finds them along a curve through the cells of `frame`: sorts this rank's keys, and cuts
    /// those of all ranks by counting. Waits for the device and the other ranks, up to eight rounds
    /// of 256 counts for each boundary. Collective.
    pub fn find(rank: &mut Rank, cloud: &Cloud, curve: Curve, all: &Summary, frame: &Frame) -> Result<Self, SortError> {
        let comm = rank.comm.clone();
        let recorder = &mut rank.recorder;
        let [high, low] = keys(recorder, curve, cloud.positions(), frame)?;
        let order = order_of(recorder, [&high, &low])?;
        let [high, low] = [high, low].map(|words| gathered(recorder, &words, &order, 1, MemoryKind::Device));
        let keys = [high?, low?];
        let (total, row_offsets) = all.total_and_offsets();
        let (cuts, splitters) = cuts(&mut rank.recorder, &comm, keys.each_ref(), total)?;
        let sends: Vec<u64> = cuts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let receives = comm.all_to_all(&sends)?;
        Ok(SortPlan { total, row_offsets, order, keys, sends, receives, splitters })
    }

    /// Returns this rank's points by the rank that they go to, those of one rank in the order of
    /// the input. Recorded, after an upload of a word per rank.
    pub fn by_recipient(&self, recorder: &mut Recorder) -> Result<Array<u32>, DeviceError> {
        let (gpu, count, ranks) = (recorder.gpu().clone(), self.order.len(), self.sends.len() as u32);
        let cuts: Vec<u32> = offsets(&self.sends).into_iter().map(|cut| cut as u32).collect();
        let (cuts, recipients) = (upload_u32(recorder, &cuts)?, gpu.array("sort::recipients", count)?);
        let arrays = [self.order.raw(), cuts.raw(), recipients.raw()];
        recorder.each(&Kernel::trusted(kernel()), &arrays, &RecipientsParams { count: count as u32, ranks }, count)?;
        by_rank(recorder, &recipients, ranks)
    }
}

/// Returns the rows in the order of their ranks, those of one rank ascending. Recorded only.
fn by_rank(recorder: &mut Recorder, rank_of: &Array<u32>, ranks: u32) -> Result<Array<u32>, DeviceError> {
    let bits = u32::BITS - (ranks - 1).leading_zeros();
    Sort::new(recorder.gpu()).ordered(recorder, "sort::order", Keys::U32(rank_of).bits(bits))
}

/// Plans the route of rows to the ranks in `owners`, one per row; rows arrive in rank order, those
/// of one rank in its order. Blocks for a word per rank. Collective.
pub(crate) fn route_to(rank: &mut Rank, owners: &Array<u32>) -> Result<Route, SortError> {
    let (comm, ranks, recorder) = (rank.comm.clone(), rank.comm.size() as u32, &mut rank.recorder);
    let order = by_rank(recorder, owners, ranks)?;
    let sorted = gathered(recorder, owners, &order, 1, MemoryKind::Device)?;
    let ends = count_at_most(recorder, [&sorted, &sorted], &(0..ranks).map(last_key).collect::<Vec<u64>>())?;
    let starts = [0].into_iter().chain(ends.iter().copied());
    let sends: Vec<u64> = ends.iter().zip(starts).map(|(end, start)| end - start).collect();
    let receives = comm.all_to_all(&sends)?;
    Ok(Route::new(&comm, order, sends, receives, None)?)
}

/// Returns the largest key whose high word is `owner`.
fn last_key(owner: u32) -> u64 {
    u64::from(owner) << 32 | u64::from(u32::MAX)
}

/// Returns the places at which this rank cuts its sorted `keys` (`ranks + 1`), and the key of the
/// last point of all ranks before each boundary.
pub(super) fn cuts(
    recorder: &mut Recorder,
    comm: &Communicator,
    keys: [&Array<u32>; 2],
    total: u64,
) -> Result<(Vec<u64>, Vec<u64>), SortError> {
    let mut splitters = Splitters::new(total, comm.shares(), KEY_BITS);
    while !splitters.is_done() {
        let mut sums = count_at_most(recorder, keys, &splitters.candidates())?;
        comm.all_reduce(&mut sums, Op::Sum)?;
        splitters.narrow(&sums);
    }
    let found = splitters.keys();
    let before = found.iter().map(|key| key.saturating_sub(1));
    let at_most = count_at_most(recorder, keys, &before.chain(found.iter().copied()).collect::<Vec<u64>>())?;
    let (before, up_to) = at_most.split_at(found.len());
    let less: Vec<u64> = before.iter().zip(&found).map(|(&less, &key)| if key == 0 { 0 } else { less }).collect();
    let equal = up_to.iter().zip(&less).map(|(up_to, less)| up_to - less).collect();
    let ties = Ties { less, equal };
    let (mut less, mut equal_before) = (ties.less.clone(), ties.equal.clone());
    comm.all_reduce(&mut less, Op::Sum)?;
    comm.scan_exclusive(&mut equal_before, Op::Sum)?;
    let cuts = splitters.cuts(&ties, &less, &equal_before, keys[0].len());
    Ok((cuts, found))
}

crate::gpu::kernel_params! {
    struct ProbeParams {
        keys: u32,
        probes: u32,
    }
}

/// Returns the kernel that counts.
pub(super) fn probe_kernel() -> KernelSource {
    KernelSource::new("sort::probe", include_str!("../../../shaders/points/sort/probe.wgsl")).params::<ProbeParams>()
}

/// Returns, for each of `probes`, the number of sorted `keys` that are at most as large; both are
/// high and low words. Recorded only: up to 32 halvings of 8 bytes per probe, for any number of
/// keys.
pub(crate) fn at_most(
    recorder: &mut Recorder,
    [high, low]: [&Array<u32>; 2],
    [probe_high, probe_low]: [&Array<u32>; 2],
) -> Result<Array<u32>, DeviceError> {
    let places = recorder.gpu().array("sort::places", probe_high.len())?;
    let params = ProbeParams { keys: high.len() as u32, probes: places.len() as u32 };
    let arrays = [high, low, probe_high, probe_low, &places].map(Array::raw);
    recorder.each(&Kernel::trusted(probe_kernel()), &arrays, &params, places.len())?;
    Ok(places)
}

/// Returns the words of keys of the host, high and low. Submits.
pub(crate) fn upload_probes(recorder: &mut Recorder, keys: &[u64]) -> Result<[Array<u32>; 2], DeviceError> {
    let mut words = |shift: u32| {
        let words: Vec<u32> = keys.iter().map(|key| (key >> shift) as u32).collect();
        recorder.uploaded("sort::probes", &words)
    };
    Ok([words(32)?, words(0)?])
}

/// Same as [`at_most`], for probes and counts on the host. Submits and waits.
fn count_at_most(recorder: &mut Recorder, keys: [&Array<u32>; 2], probes: &[u64]) -> Result<Vec<u64>, DeviceError> {
    let [high, low] = upload_probes(recorder, probes)?;
    let places = at_most(recorder, keys, [&high, &low])?;
    Ok(recorder.download(&places, 0, places.len())?.into_iter().map(u64::from).collect())
}

/// Returns the keys of points, as high and low words.
pub(crate) fn keys(
    recorder: &mut Recorder,
    curve: Curve,
    positions: &Array<f32>,
    frame: &Frame,
) -> Result<[Array<u32>; 2], DeviceError> {
    let (gpu, count) = (recorder.gpu().clone(), positions.len() / frame.dims as u64);
    let [high, low] = [gpu.array("sort::high", count)?, gpu.array("sort::low", count)?];
    CurveKeys::default().record(recorder, curve, positions, frame, &high, &low)?;
    Ok([high, low])
}

/// Returns the stable order of keys given as high and low words.
pub(super) fn order_of(recorder: &mut Recorder, [high, low]: [&Array<u32>; 2]) -> Result<Array<u32>, DeviceError> {
    Sort::new(recorder.gpu()).ordered(recorder, "sort::order", Keys::U64 { high, low }.bits(63))
}

/// Returns the points of one rank along `curve`: element `i` of the result is the index of the
/// point that comes `i`-th. Equal keys keep their order. Cells along open axes cover the cloud's
/// own [bounds](Cloud::bounds). Neither submits nor waits.
///
/// ```
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::points::sort::order;
/// use meshloom::points::{Cloud, Curve, Domain};
///
/// let mut recorder = Recorder::new(&Gpu::open(&Options::from_env()?, 0)?)?;
/// let points = [0.9, 0.1, 0.1, 0.9, 0.1, 0.1, 0.9, 0.9];
/// let cloud = Cloud::from_host(&mut recorder, &Domain::new(&[1.0, 1.0])?, &points)?;
/// let order = order(&mut recorder, &cloud, Curve::Morton)?;
/// assert_eq!(recorder.download(&order, 0, 4)?, [2, 0, 1, 3]);
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// [`DeviceError`] when an array or kernel does not fit the device.
pub fn order(recorder: &mut Recorder, cloud: &Cloud, curve: Curve) -> Result<Array<u32>, DeviceError> {
    let frame = Frame::new(cloud.domain(), cloud.bounds());
    let [high, low] = keys(recorder, curve, cloud.positions(), &frame)?;
    order_of(recorder, [&high, &low])
}
