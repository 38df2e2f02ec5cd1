//! Exchange of ghost cells, and its adjoint, of distributed fields.
//!
//! ```text
//!            rank 0          rank 1               exchange: ghosts take the values of the cells they stand for
//!        . [ a b c ] d    c [ d e f ] .           reduce:   cells add the values of the ghosts that stand for them
//! ```
//!
//! The two are adjoint: `<exchange(x), y>` over whole arrays equals `<x, reduce(y)>` over own cells. Widths are any,
//! per side and axis, also wider than a neighbour's part; edges and corners are included; an axis may close on itself.
//! [`GhostPlan`] says which cells go where: in a sweep along each axis, blocks for each peer. This module packs the blocks, exchanges
//! the messages and unpacks them.

use crate::exchange::block_copy::{BlockCopy, CopyAction, FieldBlocks};
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, DeviceElement, DeviceError, Element, MemoryKind, Recorder};
use crate::grid::{FieldLayout, GhostPlan, Link, Sweep, Transfer, Transfers};

/// What a field's cells hold, and so how ghosts are added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// One `f32` per cell.
    Float,
    /// One 64-bit integer per cell, as two `u32`, low word first: sums are exact in any order.
    Wide,
}

impl Cells {
    fn words(self) -> u64 {
        match self {
            Cells::Float => 1,
            Cells::Wide => 2,
        }
    }
}

/// Moves the ghost cells of fields between ranks.
pub struct GhostCells {
    plan: GhostPlan,
    copy: BlockCopy,
    add_float: BlockCopy,
    add_wide: BlockCopy,
}

/// Where cells move in a sweep.
#[derive(Clone, Copy, PartialEq)]
enum GhostDirection {
    /// From own cells to ghosts.
    Exchange,
    /// From ghosts to own cells, to which they are added.
    Reduce,
}

impl GhostCells {
    /// Ghost cells as planned.
    pub fn new(plan: GhostPlan) -> Self {
        let copy = |action| BlockCopy::new(Element::U32, action);
        let (add_float, add_wide) = (copy(CopyAction::AddFloat), copy(CopyAction::AddWide));
        GhostCells { plan, copy: copy(CopyAction::Replace), add_float, add_wide }
    }

    /// Takes another plan; kernels stay compiled.
    pub fn replace(&mut self, plan: GhostPlan) {
        self.plan = plan;
    }

    /// Which cells go where.
    pub fn plan(&self) -> &GhostPlan {
        &self.plan
    }

    /// Where the cells of its fields lie.
    pub fn layout(&self) -> &FieldLayout {
        &self.plan.layout
    }

    /// Fills the ghosts of `field` with the cells they stand for; of all fields, where the array holds several, one after
    /// the other. All ranks of `comms` call it; see [`Exchange::run`] on what is submitted.
    ///
    /// # Errors
    /// [`ExchangeError`]; [`DeviceError::Misuse`] when `field` is no whole number of fields.
    ///
    /// [`Exchange::run`]: crate::exchange::Exchange::run
    pub fn exchange<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        cells: Cells,
    ) -> Result<(), ExchangeError> {
        let fields = self.fields(field.cast()?, cells)?;
        self.plan.sweeps.iter().try_for_each(|sweep| fields.sweep(recorder, comms, sweep, GhostDirection::Exchange))
    }

    /// Adds the ghosts of all ranks to the cells they stand for; the ghosts themselves keep what they held. All ranks
    /// call it.
    ///
    /// # Errors
    /// As [`GhostCells::exchange`].
    pub fn reduce<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        cells: Cells,
    ) -> Result<(), ExchangeError> {
        let fields = self.fields(field.cast()?, cells)?;
        self.plan.sweeps.iter().rev().try_for_each(|sweep| fields.sweep(recorder, comms, sweep, GhostDirection::Reduce))
    }

    fn fields(&self, array: Array<u32>, cells: Cells) -> Result<Fields<'_>, DeviceError> {
        let (stride, words) = (self.plan.layout.len(), cells.words());
        let field_words = stride.saturating_mul(words);
        let number = if stride == 0 { 1 } else { array.len() / field_words };
        if array.len() != number.saturating_mul(field_words) {
            let why = format!("fields of {} words, the layout has {stride} cells of {words}", array.len());
            return Err(DeviceError::Misuse { what: "GhostCells".into(), why });
        }
        Ok(Fields { ghosts: self, array, cells, number, stride })
    }
}

/// The fields that an array holds.
struct Fields<'a> {
    ghosts: &'a GhostCells,
    array: Array<u32>,
    cells: Cells,
    number: u64,
    /// Cells from one field to the next.
    stride: u64,
}

impl Fields<'_> {
    fn sweep(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        sweep: &Sweep,
        direction: GhostDirection,
    ) -> Result<(), ExchangeError> {
        let (send, receive) = match direction {
            GhostDirection::Exchange => (&sweep.owned, &sweep.ghosts),
            GhostDirection::Reduce => (&sweep.ghosts, &sweep.owned),
        };
        let (gpu, words) = (recorder.gpu().clone(), self.number * self.cells.words());
        let len = |links: &[Link]| words * links.iter().map(|link| link.block.len()).sum::<u64>();
        let outgoing = gpu.array_in::<u32>("ghost_cells::outgoing", len(send), MemoryKind::Outgoing)?;
        let incoming = gpu.array_in::<u32>("ghost_cells::incoming", len(receive), MemoryKind::Incoming)?;
        let copy = &self.ghosts.copy;
        for (block, message) in self.messages(send, &outgoing) {
            copy.record(recorder, [self.number, self.cells.words()], &block, &message)?;
        }
        let transfers = Transfers { send: parts(send, words), receive: parts(receive, words) };
        comms.along(sweep.axis).run(recorder, &transfers, &outgoing, &incoming)?;
        let (unpack, words) = match (direction, self.cells) {
            (GhostDirection::Exchange, _) => (copy, self.cells.words()),
            (GhostDirection::Reduce, Cells::Float) => (&self.ghosts.add_float, 1),
            // The kernel counts pairs of words.
            (GhostDirection::Reduce, Cells::Wide) => (&self.ghosts.add_wide, 1),
        };
        for (block, message) in self.messages(receive, &incoming) {
            unpack.record(recorder, [self.number, words], &message, &block)?;
        }
        Ok(())
    }

    /// The block of each link in the fields, and in the messages that `packed` holds one behind the other.
    fn messages<'a>(
        &'a self,
        links: &'a [Link],
        packed: &'a Array<u32>,
    ) -> impl Iterator<Item = (FieldBlocks<'a, u32>, FieldBlocks<'a, u32>)> {
        let mut start = 0;
        links.iter().map(move |Link { block, .. }| {
            let message = FieldBlocks::packed(packed, start, *block);
            start += self.number * block.len();
            (FieldBlocks { array: &self.array, block: *block, stride: self.stride }, message)
        })
    }
}

/// The message of each peer: its links, one after the other.
fn parts(links: &[Link], words: u64) -> Vec<Transfer> {
    let (mut parts, mut at): (Vec<Transfer>, u64) = (Vec::new(), 0);
    for link in links {
        let len = link.block.len() * words;
        match parts.last_mut() {
            Some(part) if part.peer == link.peer => part.len += len,
            _ => parts.push(Transfer { peer: link.peer, start: at, len }),
        }
        at += len;
    }
    parts
}
