//! Lists of neighbors: their memory, the order of their rows, and their way back to the ranks that
//! asked.

use super::NeighborError;
use crate::comm::Op;
use crate::gpu::primitives::{Count, Keys, Permute, Reduce, Scan, Sort};
use crate::gpu::{Array, CountParams, DeviceError, Gpu, Kernel, KernelSource, Recorder};
use crate::points::sort::Route;
use crate::points::{U64Array, exchange_rows, offsets, upload_u32};
use crate::rank::Rank;

/// Lists of `k` neighbors per row, nearest first, equal distances by index: on the device, or after
/// [`download`](Self::download) on the host as `Fixed<Vec<u64>, Vec<f32>>`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fixed<I = U64Array, D = Array<f32>> {
    /// Entries per row.
    pub k: u32,
    /// Indices of neighbors, among the points of all ranks; all bits are 1 where a row has fewer
    /// than `k`.
    pub index: I,
    /// Distances of neighbors; infinity where a row has fewer than `k`.
    pub distance: D,
}

/// Lists of neighbors of any length: row `i` is entries `offsets[i]..offsets[i + 1]`, by ascending
/// index. On the device, or after [`download`](Self::download) on the host as `Ragged<Vec<u64>,
/// Vec<u64>, Vec<f32>>`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ragged<O = Array<u32>, I = U64Array, D = Array<f32>> {
    /// Beginning of each row; after the last one the number of all entries.
    pub offsets: O,
    /// Indices of neighbors, among the points of all ranks.
    pub index: I,
    /// Distances of neighbors.
    pub distance: D,
}

impl Fixed {
    /// Downloads the lists. Blocks.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn download(&self, rank: &mut Rank) -> Result<Fixed<Vec<u64>, Vec<f32>>, DeviceError> {
        let (index, distance) = self.index.download_with(&mut rank.recorder, Some(&self.distance))?;
        Ok(Fixed { k: self.k, index, distance })
    }
}

/// Lists of indices in the cloud of one device.
pub(super) type LocalLists = Ragged<Array<u32>, Array<u32>>;

crate::gpu::kernel_params! {
    struct EntriesParams {
        entries: u32,
        rows: u32,
        /// Bits of an index, for keys.
        index_bits: u32,
    }
}

/// The longest row that is sorted in workgroup memory.
const SHORT: u32 = 64;

/// Invocations of a workgroup that sorts rows, and its rows.
const SORT_GROUP: u32 = 64;
const SORT_ROWS: u32 = 4;

/// Returns the kernels: lengths of rows, places of entries, their total, rows in order, and keys.
pub(super) fn kernels() -> [KernelSource; 5] {
    [
        KernelSource::new("neighbors::row_lengths", include_str!("../../../shaders/points/neighbors/row_lengths.wgsl"))
            .params::<CountParams>(),
        KernelSource::new(
            "neighbors::entry_places",
            include_str!("../../../shaders/points/neighbors/entry_places.wgsl"),
        )
        .params::<EntriesParams>(),
        KernelSource::new("neighbors::total", include_str!("../../../shaders/points/neighbors/total.wgsl"))
            .params::<CountParams>(),
        KernelSource::new("neighbors::sort_rows", include_str!("../../../shaders/points/neighbors/sort_rows.wgsl"))
            .params::<CountParams>()
            .constant("SHORT", SHORT)
            .constant("ROWS", SORT_ROWS)
            .group(SORT_GROUP),
        KernelSource::new("neighbors::entry_keys", include_str!("../../../shaders/points/neighbors/entry_keys.wgsl"))
            .params::<EntriesParams>(),
    ]
}

/// Bits of a number below `count`.
fn bits(count: u64) -> u32 {
    u64::BITS - count.saturating_sub(1).leading_zeros()
}

impl Ragged {
    /// Returns the length of each row. Recorded only.
    fn lengths(&self, recorder: &mut Recorder) -> Result<Array<u32>, DeviceError> {
        let count = self.offsets.len() - 1;
        let lengths = recorder.gpu().array("neighbors::lengths", count)?;
        let params = CountParams { count: count as u32 };
        let [kernel, ..] = kernels();
        recorder.each(&Kernel::trusted(kernel), &[self.offsets.raw(), lengths.raw()], &params, count)?;
        Ok(lengths)
    }

    /// Returns the lists in another order: row `i` becomes row `rows[i]`. Recorded only: reads and
    /// writes each entry once.
    pub(super) fn reordered(&self, recorder: &mut Recorder, rows: &Array<u32>) -> Result<Self, DeviceError> {
        let (permute, entries) = (Permute::new(), self.distance.len());
        let lengths = self.lengths(recorder)?;
        let lengths = permute.scattered(recorder, "neighbors::lengths", &lengths, rows, 1)?;
        let offset = offsets_of(recorder, &Scan::new(), &lengths)?;
        let places = recorder.gpu().array::<u32>("neighbors::places", entries)?;
        let params = EntriesParams { entries: entries as u32, rows: rows.len() as u32, index_bits: 0 };
        let arrays = [&self.offsets, rows, &offset, &places].map(Array::raw);
        let [_, kernel, ..] = kernels();
        recorder.each(&Kernel::trusted(kernel), &arrays, &params, entries)?;
        let index = self.index.map(|words| permute.scattered(recorder, "neighbors::entries", words, &places, 1))?;
        let distance = permute.scattered(recorder, "neighbors::entries", &self.distance, &places, 1)?;
        Ok(Ragged { offsets: offset, index, distance })
    }

    /// Sends the rows, which are those behind `route`, back to where they were before. Submits and
    /// waits for the ranks, and for a word per rank. Collective.
    pub(super) fn back(&self, rank: &mut Rank, route: &Route) -> Result<Self, NeighborError> {
        let lengths = self.lengths(&mut rank.recorder)?;
        let sent = route.back_as_sent(rank, &lengths, 1)?;
        // The rows of each rank lie together, and so do their entries.
        let [_, rows] = route.counts();
        let bounds: Vec<u32> = offsets(rows).into_iter().chain([lengths.len()]).map(|row| row as u32).collect();
        let recorder = &mut rank.recorder;
        let bounds = upload_u32(recorder, &bounds)?;
        let ends = Permute::new().gathered(recorder, "neighbors::ends", &self.offsets, &bounds, 1)?;
        let ends = recorder.download(&ends, 0, ends.len())?;
        let sends: Vec<u64> = ends.windows(2).map(|pair| u64::from(pair[1] - pair[0])).collect();
        let receives = rank.comm.all_to_all(&sends)?;
        let index =
            self.index.map(|words| exchange_rows(rank, "indices of neighbors", words, 1, [&sends, &receives]))?;
        let distance = exchange_rows(rank, "distances of neighbors", &self.distance, 1, [&sends, &receives])?;
        let offset = offsets_of(&mut rank.recorder, &Scan::new(), &sent)?;
        Ok(Ragged { offsets: offset, index, distance }.reordered(&mut rank.recorder, &route.order)?)
    }

    /// Downloads the lists. Blocks.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn download(&self, rank: &mut Rank) -> Result<Ragged<Vec<u64>, Vec<u64>, Vec<f32>>, DeviceError> {
        let recorder = &mut rank.recorder;
        let offsets = U64Array::of_words(&self.offsets).download(recorder)?;
        let (index, distance) = self.index.download_with(recorder, Some(&self.distance))?;
        Ok(Ragged { offsets, index, distance })
    }
}

/// Returns where each of several rows of these lengths begins, and where the last one ends.
/// Recorded only.
fn offsets_of(recorder: &mut Recorder, scan: &Scan, lengths: &Array<u32>) -> Result<Array<u32>, DeviceError> {
    let offset = recorder.gpu().array("neighbors::offset", lengths.len() + 1)?;
    scan.exclusive(recorder, lengths, &offset, Count::All)?;
    Ok(offset)
}

/// Allocates lists of counted neighbors, and sorts their rows.
pub(super) struct ListOrder {
    scan: Scan,
    reduce: Reduce,
    sort: Sort,
    permute: Permute,
    total: Kernel,
    sort_rows: Kernel,
    entry_keys: Kernel,
}

impl ListOrder {
    /// For a device.
    pub fn new(gpu: &Gpu) -> Self {
        let [.., total, sort_rows, entry_keys] = kernels();
        ListOrder {
            scan: Scan::new(),
            reduce: Reduce::new(),
            sort: Sort::new(gpu),
            permute: Permute::new(),
            total: Kernel::trusted(total),
            sort_rows: Kernel::trusted(sort_rows),
            entry_keys: Kernel::trusted(entry_keys),
        }
    }

    /// Allocates lists for `counts` entries per row, not filled yet, and returns the length of the
    /// longest row. Waits once.
    ///
    /// # Errors
    /// [`NeighborError::TooLong`] for 2^32 entries and more; errors of the device.
    pub fn allocate(&self, recorder: &mut Recorder, counts: &Array<u32>) -> Result<(LocalLists, u32), NeighborError> {
        let (gpu, rows) = (recorder.gpu().clone(), counts.len());
        let total = gpu.array::<u32>("neighbors::total", 2)?;
        recorder.clear(&total);
        recorder.each(&self.total, &[counts.raw(), total.raw()], &CountParams { count: rows as u32 }, rows)?;
        let offset = offsets_of(recorder, &self.scan, counts)?;
        let longest = gpu.array::<u32>("neighbors::longest", 1)?;
        self.reduce.record(recorder, Op::Max, counts, &longest, Count::All)?;
        let longest = recorder.download(&longest, 0, 1)?[0];
        let words = recorder.download(&total, 0, 2)?;
        if words[1] > 0 {
            let entries = u64::from(words[0]) | u64::from(words[1]) << 32;
            return Err(NeighborError::TooLong { rows, each: entries / rows.max(1) });
        }
        let entries = u64::from(words[0]);
        let index = gpu.array("neighbors::index", entries)?;
        let distance = gpu.array("neighbors::distance", entries)?;
        Ok((Ragged { offsets: offset, index, distance }, longest))
    }

    /// Sorts each of `rows` rows, the longest of which has `longest` entries, by index, which is
    /// below `sources`: within workgroups if all are short, otherwise by one sort of all entries by
    /// (row, index). Recorded only.
    pub fn by_index(
        &self,
        recorder: &mut Recorder,
        lists: LocalLists,
        (rows, longest): (u64, u32),
        sources: u64,
    ) -> Result<LocalLists, NeighborError> {
        if longest > SHORT {
            let order = self.order_by(recorder, &lists.offsets, rows, (&lists.index, bits(sources)))?;
            let index = self.permute.gathered(recorder, "neighbors::index", &lists.index, &order, 1)?;
            let distance = self.permute.gathered(recorder, "neighbors::distance", &lists.distance, &order, 1)?;
            return Ok(Ragged { offsets: lists.offsets, index, distance });
        }
        let arrays = [lists.offsets.raw(), lists.index.raw(), lists.distance.raw()];
        let groups = rows.div_ceil(u64::from(SORT_ROWS));
        recorder.dispatch(&self.sort_rows, &arrays, &CountParams { count: rows as u32 }, groups)?;
        Ok(lists)
    }

    /// Returns only the distances of lists with `rows` rows, ascending in each row. Submits, so
    /// that the memory of the sort is free afterwards: 37 bytes per entry meanwhile, including the
    /// distances given and returned.
    pub fn distances(
        &self,
        recorder: &mut Recorder,
        lists: LocalLists,
        rows: u64,
    ) -> Result<(Array<u32>, Array<f32>), NeighborError> {
        let Ragged { offsets: offset, index, distance } = lists;
        drop(index);
        recorder.submit()?;
        // The bits of reals from 0 on ascend as they do.
        let order = self.order_by(recorder, &offset, rows, (&distance.cast()?, u32::BITS))?;
        let sorted = self.permute.gathered(recorder, "neighbors::distance", &distance, &order, 1)?;
        recorder.submit()?;
        Ok((offset, sorted))
    }

    /// Returns the order of all entries by (row, word), for words of `word_bits` bits: one sort.
    /// Recorded only.
    fn order_by(
        &self,
        recorder: &mut Recorder,
        offset: &Array<u32>,
        rows: u64,
        (word, word_bits): (&Array<u32>, u32),
    ) -> Result<Array<u32>, NeighborError> {
        let (gpu, entries) = (recorder.gpu(), word.len());
        let [high, low] = [gpu.array("neighbors::high", entries)?, gpu.array("neighbors::low", entries)?];
        let params = EntriesParams { entries: entries as u32, rows: rows as u32, index_bits: word_bits };
        let arrays = [offset.raw(), word.raw(), high.raw(), low.raw()];
        recorder.each(&self.entry_keys, &arrays, &params, entries)?;
        let keys = Keys::U64 { high: &high, low: &low }.bits(bits(rows) + word_bits);
        Ok(self.sort.ordered(recorder, "neighbors::order", keys)?)
    }
}
