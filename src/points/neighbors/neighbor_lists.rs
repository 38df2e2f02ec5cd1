//! Lists of neighbours of any length: their memory, and the order of their rows.

use super::error::NeighborError;
use crate::gpu::primitives::{Count, Keys, Permute, Reduce, Scan, Sort};
use crate::gpu::{Array, Gpu, Kernel, KernelSource, Recorder};

/// Lists of neighbours of any length: row `i` is entries `offset[i]..offset[i + 1]`, in ascending order of the index.
#[derive(Clone)]
pub struct NeighborLists {
    /// Where each row begins; after the last one the number of all entries.
    pub offset: Array<u32>,
    /// Indices of sources in their cloud.
    pub index: Array<u32>,
    /// Their distances.
    pub distance: Array<f32>,
}

crate::gpu::kernel_params! {
    struct RowsParams {
        count: u32,
    }
}

crate::gpu::kernel_params! {
    struct EntriesParams {
        entries: u32,
        rows: u32,
        /// Bits of an index.
        index_bits: u32,
    }
}

/// The longest row that is sorted in workgroup memory.
const SHORT: u32 = 64;

/// Invocations of a workgroup that sorts rows, and its rows.
const SORT_GROUP: u32 = 64;
const SORT_ROWS: u32 = 4;

/// What makes lists of neighbours that have been counted, and puts their rows in order.
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
        ListOrder {
            scan: Scan::new(),
            reduce: Reduce::new(),
            sort: Sort::new(gpu),
            permute: Permute::new(),
            total: Kernel::trusted(total()),
            sort_rows: Kernel::trusted(sort_rows()),
            entry_keys: Kernel::trusted(entry_keys()),
        }
    }

    /// Lists with room for so many entries a row, which are not filled yet, and the length of the longest. Waits once.
    ///
    /// # Errors
    /// [`NeighborError::TooLong`] for 2^32 entries and more; those of the device.
    pub fn allocate(
        &self,
        recorder: &mut Recorder,
        counts: &Array<u32>,
    ) -> Result<(NeighborLists, u32), NeighborError> {
        let (gpu, rows) = (recorder.gpu().clone(), counts.len());
        let total = gpu.array::<u32>("neighbors::total", 2)?;
        recorder.clear(&total);
        recorder.each(&self.total, &[counts.raw(), total.raw()], &RowsParams { count: rows as u32 }, rows)?;
        let offset = gpu.array("neighbors::offset", rows + 1)?;
        self.scan.exclusive(recorder, counts, &offset, Count::All)?;
        let longest = gpu.array::<u32>("neighbors::longest", 1)?;
        self.reduce.max(recorder, counts, &longest, Count::All)?;
        let longest = recorder.download(&longest, 0, 1)?[0];
        let words = recorder.download(&total, 0, 2)?;
        if words[1] > 0 {
            let entries = u64::from(words[0]) | u64::from(words[1]) << 32;
            return Err(NeighborError::TooLong { rows, each: entries / rows.max(1) });
        }
        let entries = u64::from(words[0]);
        let index = gpu.array("neighbors::index", entries)?;
        let distance = gpu.array("neighbors::distance", entries)?;
        Ok((NeighborLists { offset, index, distance }, longest))
    }

    /// Lists with their `rows`, of which the longest has so many entries, in ascending order of the index, which is below `sources`: within workgroups
    /// where all are short, otherwise by one sort of all entries by (row, index). Recorded only.
    pub fn by_index(
        &self,
        recorder: &mut Recorder,
        lists: NeighborLists,
        (rows, longest): (u64, u32),
        sources: u64,
    ) -> Result<NeighborLists, NeighborError> {
        if longest > SHORT {
            let (gpu, entries) = (recorder.gpu().clone(), lists.index.len());
            let order = self.order_by(recorder, &lists.offset, rows, (&lists.index, bits(sources)))?;
            let index = gpu.array("neighbors::index", entries)?;
            let distance = gpu.array("neighbors::distance", entries)?;
            self.permute.gather(recorder, &lists.index, &order, &index, 1, Count::All)?;
            self.permute.gather(recorder, &lists.distance, &order, &distance, 1, Count::All)?;
            return Ok(NeighborLists { offset: lists.offset, index, distance });
        }
        let arrays = [lists.offset.raw(), lists.index.raw(), lists.distance.raw()];
        let groups = rows.div_ceil(u64::from(SORT_ROWS));
        recorder.dispatch(&self.sort_rows, &arrays, &RowsParams { count: rows as u32 }, groups)?;
        Ok(lists)
    }

    /// The distances alone of lists with so many `rows`, ascending in each row. Submits, so that memory of the sort is free after it: 37 bytes an
    /// entry while it lasts, the distances given and those returned among them.
    pub fn distances(
        &self,
        recorder: &mut Recorder,
        lists: NeighborLists,
        rows: u64,
    ) -> Result<(Array<u32>, Array<f32>), NeighborError> {
        let NeighborLists { offset, index, distance } = lists;
        drop(index);
        recorder.submit()?;
        // The bits of reals from 0 on ascend as they do.
        let order = self.order_by(recorder, &offset, rows, (&distance.cast()?, u32::BITS))?;
        let sorted = recorder.gpu().array("neighbors::distance", distance.len())?;
        self.permute.gather(recorder, &distance, &order, &sorted, 1, Count::All)?;
        recorder.submit()?;
        Ok((offset, sorted))
    }

    /// The order of all entries by (row, word), for a word of so many bits an entry: one sort. Recorded only.
    fn order_by(
        &self,
        recorder: &mut Recorder,
        offset: &Array<u32>,
        rows: u64,
        (word, word_bits): (&Array<u32>, u32),
    ) -> Result<Array<u32>, NeighborError> {
        let (gpu, entries) = (recorder.gpu().clone(), word.len());
        let array = |label: &str| gpu.array::<u32>(label, entries);
        let (high, low, order) = (array("neighbors::high")?, array("neighbors::low")?, array("neighbors::order")?);
        let params = EntriesParams { entries: entries as u32, rows: rows as u32, index_bits: word_bits };
        let arrays = [offset.raw(), word.raw(), high.raw(), low.raw()];
        recorder.each(&self.entry_keys, &arrays, &params, entries)?;
        let keys = Keys::U64 { high: &high, low: &low }.bits(bits(rows) + word_bits);
        self.sort.order(recorder, keys, &order, Count::All)?;
        Ok(order)
    }
}

fn total() -> KernelSource {
    KernelSource::new("neighbors::total", include_str!("../../../shaders/points/neighbors/total.wgsl"))
        .params::<RowsParams>()
}

fn sort_rows() -> KernelSource {
    KernelSource::new("neighbors::sort_rows", include_str!("../../../shaders/points/neighbors/sort_rows.wgsl"))
        .params::<RowsParams>()
        .constant("SHORT", SHORT)
        .constant("ROWS", SORT_ROWS)
        .group(SORT_GROUP)
}

/// Bits of a number below `count`.
fn bits(count: u64) -> u32 {
    u64::BITS - count.saturating_sub(1).leading_zeros()
}

fn entry_keys() -> KernelSource {
    KernelSource::new("neighbors::entry_keys", include_str!("../../../shaders/points/neighbors/entry_keys.wgsl"))
        .params::<EntriesParams>()
}

/// The kernels of this file.
pub(super) fn kernels() -> [KernelSource; 3] {
    [total(), sort_rows(), entry_keys()]
}
