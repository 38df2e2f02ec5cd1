//! Results of searches on their way to the ranks whose rows the queries are, in the order of those rows.

use super::error::NeighborError;
use crate::gpu::primitives::{Count, Permute, Scan};
use crate::gpu::{Array, DeviceElement, DeviceError, Kernel, KernelSource, Recorder};
use crate::points::rows::{exchange_rows, offsets, upload_u32};
use crate::points::sort::Route;
use crate::points::u64_array::U64Array;
use crate::rank::Rank;

/// All points within a radius of each row: row `i` is entries `offset[i]..offset[i + 1]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RadiusResult {
    /// Where each row begins, from 0; after the last one the number of all entries.
    pub offset: Vec<u64>,
    /// Indices in the input of all ranks, ascending in a row.
    pub index: Vec<u64>,
    /// Distances.
    pub distance: Vec<f32>,
}

/// Lists of neighbors of any length on the device: row `i` is entries `offsets[i]..offsets[i + 1]`, in ascending order of the index.
#[derive(Clone)]
pub struct Ragged {
    /// Where each row begins; after the last one the number of all entries.
    pub offsets: Array<u32>,
    /// Rows of neighbors among those of all ranks.
    pub index: U64Array,
    /// Distances of neighbors.
    pub distance: Array<f32>,
}

/// Lists of `k` neighbors on the device, nearest first, equal distances by index.
#[derive(Clone)]
pub struct Fixed {
    /// Entries per row.
    pub k: u32,
    /// Rows of neighbors among those of all ranks; `u64::MAX` where there are fewer than `k`.
    pub index: U64Array,
    /// Distances of neighbors; infinity where there are fewer than `k`.
    pub distance: Array<f32>,
}

impl Fixed {
    /// Downloads the lists. Blocks.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn download(&self, rank: &mut Rank) -> Result<KnnResult, DeviceError> {
        let recorder = &mut rank.recorder;
        let distance = recorder.download(&self.distance, 0, self.distance.len())?;
        Ok(KnnResult { k: self.k, index: self.index.download(recorder)?, distance })
    }
}

/// The nearest points of each row: `k` entries, nearest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnnResult {
    /// Entries per row.
    pub k: u32,
    /// Indices in the input of all ranks; `u64::MAX` where there are fewer.
    pub index: Vec<u64>,
    /// Distances; infinity where there are fewer.
    pub distance: Vec<f32>,
}

crate::gpu::kernel_params! {
    struct LengthsParams {
        count: u32,
    }
}

crate::gpu::kernel_params! {
    struct PlacesParams {
        entries: u32,
        rows: u32,
    }
}

fn lengths() -> KernelSource {
    KernelSource::new("neighbors::row_lengths", include_str!("../../../shaders/points/neighbors/row_lengths.wgsl"))
        .params::<LengthsParams>()
}

fn places() -> KernelSource {
    KernelSource::new("neighbors::entry_places", include_str!("../../../shaders/points/neighbors/entry_places.wgsl"))
        .params::<PlacesParams>()
}

/// The kernels of this file.
pub(super) fn kernels() -> [KernelSource; 2] {
    [lengths(), places()]
}

impl Ragged {
    /// The length of each row. Recorded only.
    fn lengths(&self, recorder: &mut Recorder) -> Result<Array<u32>, DeviceError> {
        let count = self.offsets.len() - 1;
        let lengths = recorder.gpu().array("neighbors::lengths", count)?;
        let params = LengthsParams { count: count as u32 };
        recorder.each(&Kernel::trusted(self::lengths()), &[self.offsets.raw(), lengths.raw()], &params, count)?;
        Ok(lengths)
    }

    /// The same lists, of which row `i` is now row `rows[i]`. Recorded only: reads and writes each entry once.
    pub(super) fn reordered(&self, recorder: &mut Recorder, rows: &Array<u32>) -> Result<Self, DeviceError> {
        let (gpu, permute, entries) = (recorder.gpu().clone(), Permute::new(), self.distance.len());
        let old = self.lengths(recorder)?;
        let lengths = gpu.array::<u32>("neighbors::lengths", rows.len())?;
        permute.scatter(recorder, &old, rows, &lengths, 1, Count::All)?;
        let offset = offsets_of(recorder, &lengths)?;
        let places = gpu.array::<u32>("neighbors::places", entries)?;
        let params = PlacesParams { entries: entries as u32, rows: rows.len() as u32 };
        let arrays = [&self.offsets, rows, &offset, &places].map(Array::raw);
        recorder.each(&Kernel::trusted(self::places()), &arrays, &params, entries)?;
        let index = self.index.map(|words| scattered(recorder, &permute, words, &places))?;
        let distance = scattered(recorder, &permute, &self.distance, &places)?;
        Ok(Ragged { offsets: offset, index, distance })
    }

    /// Sends the rows, which are those behind `route`, back to where they were before. Submits and waits for the ranks, and for a word per
    /// rank. All ranks call it.
    pub(super) fn back(&self, context: &mut Rank, route: &Route) -> Result<Self, NeighborError> {
        let lengths = self.lengths(&mut context.recorder)?;
        let sent = route.back_as_sent(context, &lengths, 1)?;
        // The rows of each rank lie together, and so do their entries.
        let [_, rows] = route.counts();
        let bounds: Vec<u32> = offsets(rows).into_iter().chain([lengths.len()]).map(|row| row as u32).collect();
        let recorder = &mut context.recorder;
        let bounds = upload_u32(recorder, &bounds)?;
        let ends = recorder.gpu().array::<u32>("neighbors::ends", bounds.len())?;
        Permute::new().gather(recorder, &self.offsets, &bounds, &ends, 1, Count::All)?;
        let ends = recorder.download(&ends, 0, ends.len())?;
        let sends: Vec<u64> = ends.windows(2).map(|pair| u64::from(pair[1] - pair[0])).collect();
        let receives = context.comm.all_to_all(&sends)?;
        let index =
            self.index.map(|words| exchange_rows(context, "indices of neighbours", words, 1, [&sends, &receives]))?;
        let distance = exchange_rows(context, "distances of neighbours", &self.distance, 1, [&sends, &receives])?;
        let offset = offsets_of(&mut context.recorder, &sent)?;
        Ok(Ragged { offsets: offset, index, distance }.reordered(&mut context.recorder, route.order())?)
    }

    /// Downloads the lists. Blocks.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn download(&self, rank: &mut Rank) -> Result<RadiusResult, DeviceError> {
        let recorder = &mut rank.recorder;
        Ok(RadiusResult {
            offset: U64Array::of_words(&self.offsets).download(recorder)?,
            index: self.index.download(recorder)?,
            distance: recorder.download(&self.distance, 0, self.distance.len())?,
        })
    }
}

/// Where each of several rows of these lengths begins, and where the last one ends. Recorded only.
fn offsets_of(recorder: &mut Recorder, lengths: &Array<u32>) -> Result<Array<u32>, DeviceError> {
    let offset = recorder.gpu().array("neighbors::offset", lengths.len() + 1)?;
    Scan::new().exclusive(recorder, lengths, &offset, Count::All)?;
    Ok(offset)
}

/// The elements of `source`, each at its place.
fn scattered<T: DeviceElement>(
    recorder: &mut Recorder,
    permute: &Permute,
    source: &Array<T>,
    places: &Array<u32>,
) -> Result<Array<T>, DeviceError> {
    let target = recorder.gpu().array("neighbors::entries", source.len())?;
    permute.scatter(recorder, source, places, &target, 1, Count::All)?;
    Ok(target)
}
