//! Sources of items: numbers on the host or on the device, sent to the ranks that process them.

use std::ops::Range;

use super::deal::Deal;
use super::error::MapError;
use crate::exchange::collectives::{Collectives, DeviceParts};
use crate::gpu::{Array, DeviceElement, Recorder};
use crate::rank::Rank;

/// Numbers of the items of a map: a row of `f32` values for each, in the order of the items.
#[derive(Clone, Copy, Debug)]
pub enum Items<'a> {
    /// On the host, those of all items, the same on every rank: each rank uploads what it works on,
    /// chunk by chunk.
    Host(&'a [f32]),
    /// On the device, for the items that this rank holds at present, any number of them, rank by
    /// rank. They are redistributed at once.
    Device(&'a Array<f32>),
}

/// The rows of this rank's items.
pub(super) enum Rows<'a> {
    Host(&'a [f32]),
    Device(Array<f32>),
}

/// Input rows of this rank.
pub(super) struct Input<'a> {
    rows: Rows<'a>,
    /// The item of the first row.
    first: u64,
    pub width: u64,
}

impl<'a> Input<'a> {
    /// Distributes the rows of `items` over ranks. Collective.
    pub fn deal(
        rank: &mut Rank,
        collectives: &mut Collectives,
        deal: Deal,
        items: Items<'a>,
    ) -> Result<Self, MapError> {
        let (me, own) = (rank.index(), deal.block(rank.index()));
        let lens = rank.comm.all_gather(&[match items {
            Items::Host(values) => [0, values.len() as u64],
            Items::Device(array) => [1, array.len()],
        }])?;
        let on_device = lens[0][0] == 1;
        let wrong = |why: String| Err(MapError::Invalid(why));
        if let Some(rank) = lens.iter().position(|&[kind, len]| kind != lens[0][0] || !on_device && len != lens[0][1]) {
            return wrong(format!(
                "rank {rank} gives other items than rank 0; give the same values, or arrays, on all ranks"
            ));
        }
        let total: u64 = if on_device { lens.iter().map(|[_, len]| len).sum() } else { lens[0][1] };
        let width = total.checked_div(deal.items).unwrap_or(0);
        if width * deal.items != total {
            return wrong(format!("{total} numbers are no rows of {} items", deal.items));
        }
        let rows = match items {
            Items::Host(values) => Rows::Host(values),
            Items::Device(array) => {
                if let Some(rank) = lens.iter().position(|[_, len]| width > 0 && !len.is_multiple_of(width)) {
                    return wrong(format!("the {} numbers of rank {rank} are no rows of {width}", lens[rank][1]));
                }
                // What this rank has at present, and who is to have it.
                let start: u64 = lens[..me].iter().map(|[_, len]| len).sum();
                let held = start..start + array.len();
                let to = |rank: usize| {
                    let block = deal.block(rank);
                    let (from, to) = ((block.start * width).max(held.start), (block.end * width).min(held.end));
                    to.saturating_sub(from)
                };
                let counts: Vec<u64> = (0..deal.shares.ranks()).map(to).collect();
                let recorder = &mut rank.recorder;
                let DeviceParts { array, .. } =
                    collectives.all_to_all_v(recorder, array, &counts, 1)?.finish(recorder)?;
                Rows::Device(array)
            }
        };
        let first = if on_device { own.start } else { 0 };
        Ok(Input { rows, first, width })
    }

    /// Brings the rows of a chunk to the beginning of `array`. Of rows on the host, submits what
    /// was recorded.
    pub fn load(&self, recorder: &mut Recorder, chunk: &Range<u64>, array: &Array<f32>) -> Result<(), MapError> {
        let [start, end] = [chunk.start, chunk.end].map(|item| (item - self.first) * self.width);
        match &self.rows {
            Rows::Host(values) => recorder.upload(array, 0, &values[start as usize..end as usize])?,
            Rows::Device(rows) => recorder.copy(rows, start, array, 0, end - start)?,
        }
        Ok(())
    }
}

/// Sends the `values` of `root`, constants of a function, to an array on every rank. Collective;
/// other ranks pass `None`; submits and waits for other ranks.
///
/// # Errors
/// [`MapError::Device`] where the root gives none or another rank some; [`MapError::Comm`].
pub fn replicate<T: DeviceElement>(rank: &mut Rank, root: usize, values: Option<&[T]>) -> Result<Array<T>, MapError> {
    let array = values.map(|values| rank.recorder.uploaded("map::constants", values)).transpose()?;
    let mut collectives = Collectives::new(rank.exchange.clone());
    let recorder = &mut rank.recorder;
    Ok(collectives.broadcast(recorder, root, array.as_ref())?.finish(recorder)?)
}
