//! Distributed sort of points along a curve, exactly balanced, and of rows by keys; merging of the
//! sorted runs that a rank receives from others.

use std::ops::Range;

use super::plan::{cuts, gathered, keys as keys_of, order_of};
use super::{Route, SortError, SortPlan, Summary};
use crate::comm::Op;
use crate::gpu::primitives::{Permute, Sort};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, MemoryKind, Recorder};
use crate::points::{Cloud, Curve, Frame, U64Array, exchange_rows, iota, upload_u32};
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
        1 => U64Array::of_words(&route.order),
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

/// Plans the moves of the rows of all ranks so that they ascend by key, over ranks too, and each
/// rank has its [share](crate::grid::Shares) of them. Keys are below 2^63, as high and low words;
/// rows with equal keys keep the order of the input (rank by rank). The sequence does not depend on
/// the number of ranks. Collective, with any number of rows, including none.
///
/// Memory: three words a row for the order here, and as many for that of the rows received. Waits
/// for the device and, with several ranks, the others: a sum, up to eight rounds of 256 counts for
/// each boundary, and two words a row.
///
/// ```
/// use meshloom::gpu::Options;
/// use meshloom::points::sort::route_by_key;
/// use meshloom::{Error, Launch, launch};
///
/// let sorted = launch(Launch::Threads(2), &Options::from_env()?, |rank| {
///     let own: &[u32] = if rank.index() == 0 { &[7, 1, 5] } else { &[3] };
///     let array = |rank: &mut meshloom::Rank, words: &[u32]| {
///         let array = rank.gpu.array("words", words.len() as u64)?;
///         rank.recorder.upload(&array, 0, words)?;
///         Ok::<_, Error>(array)
///     };
///     let (high, low) = (array(rank, &vec![0; own.len()])?, array(rank, own)?);
///     let route = route_by_key(rank, [&high, &low])?;
///     let moved = route.forward(rank, &low, 1)?;
///     Ok::<_, Error>(rank.recorder.download(&moved, 0, moved.len())?)
/// })?;
/// assert_eq!(sorted, [[1, 3], [5, 7]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SortError`] of the device or of a rank.
pub fn route_by_key(rank: &mut Rank, keys: [&Array<u32>; 2]) -> Result<Route, SortError> {
    let (comm, count) = (rank.comm.clone(), keys[0].len());
    let order = order_of(&mut rank.recorder, keys)?;
    if comm.size() == 1 {
        return Ok(Route::new(&comm, order, vec![count], vec![count], None)?);
    }
    let [total] = comm.reduced([count], Op::Sum)?;
    let recorder = &mut rank.recorder;
    let [high, low] = keys.map(|words| gathered(recorder, words, &order, 1, MemoryKind::Outgoing));
    let sorted = [high?, low?];
    let (places, _) = cuts(recorder, &comm, sorted.each_ref(), total)?;
    let sends: Vec<u64> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let receives = comm.all_to_all(&sends)?;
    let [high, low] = sorted.map(|words| exchange_rows(rank, "keys of a sort", &words, 1, [&sends, &receives]));
    let (merge, _) = merge(&mut rank.recorder, [&high?, &low?], &receives)?;
    Ok(Route::new(&comm, order, sends, receives, Some(merge))?)
}

crate::gpu::kernel_params! {
    struct MergeParams {
        count: u32,
        runs: u32,
        is_first: u32,
    }
}

/// Returns the kernel that merges runs.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("sort::merge_runs", include_str!("../../../shaders/points/sort/merge_runs.wgsl"))
        .params::<MergeParams>()
}

/// Returns where runs of these lengths begin and end; empty ones are left out.
fn starts_of(lengths: &[u64]) -> Vec<u32> {
    let filled = lengths.iter().filter(|&&length| length > 0);
    let ends = filled.scan(0, |end, &length| {
        *end += length as u32;
        Some(*end)
    });
    [0].into_iter().chain(ends).collect()
}

/// Merges runs of `lengths` keys each, given as high and low words and ascending within each run.
/// Returns the stable order of all keys, and the sorted keys.
///
/// Records one dispatch for each doubling of the number of runs that have keys, after an upload of
/// a word per run; each reads and writes 12 bytes per key and halves the partner of its run. A sort
/// of as many keys takes about 60 dispatches.
///
/// # Errors
/// [`DeviceError`] if device memory is short.
fn merge(
    recorder: &mut Recorder,
    [high, low]: [&Array<u32>; 2],
    lengths: &[u64],
) -> Result<(Array<u32>, [Array<u32>; 2]), DeviceError> {
    let (gpu, count) = (recorder.gpu().clone(), high.len());
    let mut starts = starts_of(lengths);
    if starts.len() <= 2 {
        return Ok((iota(recorder, 0, count)?, [high.clone(), low.clone()]));
    }
    let kernel = Kernel::trusted(kernel());
    let array = || gpu.array::<u32>("sort::merged", count);
    let mut words = [high.clone(), low.clone(), high.clone()];
    let mut spare: Option<[Array<u32>; 3]> = None;
    let mut is_first = true;
    while starts.len() > 2 {
        let to = match spare.take() {
            Some(spare) => spare,
            None => [array()?, array()?, array()?],
        };
        let runs = starts.len() as u32 - 1;
        let bounds = upload_u32(recorder, &starts)?;
        let arrays: Vec<_> = [&bounds].into_iter().chain(&words).chain(&to).map(Array::raw).collect();
        let params = MergeParams { count: count as u32, runs, is_first: is_first.into() };
        recorder.each(&kernel, &arrays, &params, count)?;
        // The caller's keys are not overwritten.
        let done = std::mem::replace(&mut words, to);
        spare = (!is_first).then_some(done);
        is_first = false;
        let end = starts.pop();
        starts = starts.into_iter().step_by(2).chain(end).collect();
    }
    let [high, low, order] = words;
    Ok((order, [high, low]))
}

/// Returns the bytes that [`merge`] reads and writes: 24 per key and pass, besides the probes of
/// partners.
fn merge_traffic(lengths: &[u64]) -> u64 {
    let runs = lengths.iter().filter(|&&length| length > 0).count().max(1);
    24 * lengths.iter().sum::<u64>() * u64::from(runs.next_power_of_two().ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Gpu, Options};

    /// Merges runs and compares with a stable sort of the host.
    fn check(recorder: &mut Recorder, runs: &[Vec<u64>]) {
        let mut runs = runs.to_vec();
        runs.iter_mut().for_each(|run| run.sort_unstable());
        let keys = runs.concat();
        let lengths: Vec<u64> = runs.iter().map(|run| run.len() as u64).collect();
        let words = |shift: u32| keys.iter().map(|key| (key >> shift) as u32).collect::<Vec<u32>>();
        let [high, low] = [32, 0].map(|shift| upload_u32(recorder, &words(shift)).unwrap());
        let (order, sorted) = merge(recorder, [&high, &low], &lengths).unwrap();
        let mut want: Vec<u32> = (0..keys.len() as u32).collect();
        want.sort_by_key(|&at| keys[at as usize]);
        let count = keys.len() as u64;
        assert_eq!(recorder.download(&order, 0, count).unwrap(), want);
        for (words, shift) in sorted.iter().zip([32, 0]) {
            let want: Vec<u32> = want.iter().map(|&at| (keys[at as usize] >> shift) as u32).collect();
            assert_eq!(recorder.download(words, 0, count).unwrap(), want);
        }
        assert_eq!(recorder.download(&high, 0, count).unwrap(), words(32), "the input stays");
    }

    #[test]
    fn runs_are_merged_as_by_a_stable_sort() {
        let mut recorder = Recorder::new(&Gpu::open(&Options::from_env().unwrap(), 0).unwrap()).unwrap();
        check(&mut recorder, &[vec![]]);
        check(&mut recorder, &[vec![], vec![3, 1], vec![]]);
        check(&mut recorder, &[vec![5; 4], vec![5; 3], vec![], vec![5; 2]]);
        check(&mut recorder, &[vec![u64::MAX >> 1, 0], vec![1 << 32, 1 << 31], vec![7]]);
        let mut state = 3u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 8
        };
        for count in 1..20 {
            // From few different keys, with many ties, to keys that differ in both words.
            let shift = 8 + count * 2;
            let run = |random: &mut dyn FnMut() -> u64| (0..random() % 90).map(|_| random() >> shift).collect();
            let runs: Vec<Vec<u64>> = (0..count).map(|_| run(&mut random)).collect();
            check(&mut recorder, &runs);
        }
    }

    #[test]
    fn a_thousand_runs_take_ten_passes() {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        let mut recorder = Recorder::new(&gpu).unwrap();
        let runs: Vec<Vec<u64>> = (0..1000).map(|run| vec![run * 7919 % 1000, 1_000_000 - run]).collect();
        check(&mut recorder, &runs);
        assert_eq!(recorder.counts().dispatches, 10);
    }
}
