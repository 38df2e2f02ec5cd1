//! Items, chunks and outputs of a map, and sources of items: numbers on the host or on the device,
//! sent to the ranks that process them.

use std::ops::Range;

use super::chunk::ChunkSize;
use super::error::MapError;
use crate::exchange::collectives::{Collectives, DeviceParts};
use crate::gpu::{Array, DeviceElement, Recorder};
use crate::grid::Shares;
use crate::rank::Rank;

/// Reduction of rows of numbers, one of each item, to one row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowReduction {
    /// Their sum; 0 of no items.
    Sum,
    /// The least of each number; infinity of no items. A NaN stays.
    Min,
    /// The greatest of each number; minus infinity of no items. A NaN stays.
    Max,
    /// A function of two numbers, of lower and of higher items, in WGSL.
    Custom {
        /// A text with `fn combine(a: f32, b: f32) -> f32`, which must be associative only if the
        /// result should not depend on the tree.
        function: String,
        /// Result without items.
        neutral: f32,
    },
}

impl RowReduction {
    /// Returns what comes of no items.
    #[must_use]
    pub fn neutral(&self) -> f32 {
        match self {
            RowReduction::Sum => 0.0,
            RowReduction::Min => f32::INFINITY,
            RowReduction::Max => f32::NEG_INFINITY,
            RowReduction::Custom { neutral, .. } => *neutral,
        }
    }
}

/// Use of the rows that a function writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// Each rank keeps those of its items, in their order.
    Sharded,
    /// Every rank gets those of all items, in their order.
    Gathered,
    /// Every rank gets one row.
    Reduced(RowReduction),
}

/// An output of the function: `width` values of `f32` for each item.
#[derive(Clone, Debug, PartialEq)]
pub struct MapOutput {
    /// Its name.
    pub name: String,
    /// Numbers of an item.
    pub width: u64,
    /// Use of the rows.
    pub placement: Placement,
}

/// Number of items, chunks and outputs of a map.
///
/// ```
/// use meshloom::map::{ChunkSize, Mapping, Placement, RowReduction};
/// let mapping = Mapping::new(1000)
///     .chunk(ChunkSize::Items(64))
///     .output("energy", 1, Placement::Gathered)
///     .output("histogram", 30, Placement::Reduced(RowReduction::Sum));
/// assert_eq!(mapping.outputs().len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    pub(super) items: u64,
    pub(super) chunk: ChunkSize,
    outputs: Vec<MapOutput>,
}

impl Mapping {
    /// Creates a map of `items` items, in chunks of 64, without outputs.
    #[must_use]
    pub fn new(items: u64) -> Self {
        Mapping { items, chunk: ChunkSize::Items(64), outputs: Vec::new() }
    }

    /// Sets the chunks.
    #[must_use]
    pub fn chunk(self, chunk: ChunkSize) -> Self {
        Mapping { chunk, ..self }
    }

    /// Adds an output of `width` numbers for each item.
    #[must_use]
    pub fn output(mut self, name: &str, width: u64, placement: Placement) -> Self {
        self.outputs.push(MapOutput { name: name.into(), width, placement });
        self
    }

    /// Returns the results, in the order in which they were named.
    #[must_use]
    pub fn outputs(&self) -> &[MapOutput] {
        &self.outputs
    }

    /// Checks the map.
    pub(super) fn check(&self) -> Result<(), MapError> {
        let wrong = |why: String| Err(MapError::Invalid(why));
        if self.chunk == ChunkSize::Items(0) {
            return wrong("chunks of 0 items; give at least one".into());
        }
        for (number, output) in self.outputs.iter().enumerate() {
            let MapOutput { name, width, .. } = output;
            if *width == 0 {
                return wrong(format!("the output `{name}` has no numbers; give it a width of one at least"));
            }
            if self.outputs[..number].iter().any(|other| other.name == *name) {
                return wrong(format!("two outputs are called `{name}`; give each its own name"));
            }
        }
        Ok(())
    }
}

/// A distribution of items in contiguous blocks, one for each rank, by their shares.
///
/// ```
/// use meshloom::map::Deal;
/// let deal = Deal { items: 13, shares: 5.into() };
/// assert_eq!((0..5).map(|rank| deal.block(rank)).collect::<Vec<_>>(), [0..3, 3..6, 6..9, 9..11, 11..13]);
/// assert_eq!(deal.most(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Items of all ranks.
    pub items: u64,
    /// Shares of the ranks, at least one.
    pub shares: Shares,
}

impl Deal {
    /// Returns the items of a rank.
    #[must_use]
    pub fn block(&self, rank: usize) -> Range<u64> {
        self.shares.split(self.items, rank)
    }

    /// Items of the rank that has the most.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.shares.most(self.items)
    }
}

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
