//! GhostCells exchange and halo reduction of distributed fields.
//!
//! ```text
//!            rank 0          rank 1               exchange: ghosts take the values of the cells they stand for
//!        . [ a b c ] d    c [ d e f ] .           reduce:   cells add the values of the ghosts that stand for them
//! ```
//!
//! The two are adjoint: `<exchange(x), y>` over whole arrays equals `<x, reduce(y)>` over own cells. Widths are any,
//! per side and axis, also wider than a neighbour's part; edges and corners are included; an axis may close on itself.
//! [`GhostPlan`] says which cells go where, this module moves them.

use crate::exchange::block_copy::{Action, BlockCopy, Place};
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, DeviceElement, DeviceError, Element, MemoryKind, Recorder};
use crate::grid::{Block, FieldLayout, GhostPlan, Link, Transfer, Transfers};

/// What a field's cells hold, and so how ghosts are added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// One `f32` a cell.
    Float,
    /// One 64-bit integer a cell, as two `u32`, low word first: sums are exact in any order.
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

/// The halo of a field on one rank.
pub struct GhostCells {
    plan: GhostPlan,
    copy: BlockCopy,
    add_float: BlockCopy,
    add_wide: BlockCopy,
}

fn mover(action: Action) -> BlockCopy {
    BlockCopy::new(Element::U32, action)
}

/// Which way cells move through a sweep.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Exchange,
    Reduce,
}

impl GhostCells {
    /// A halo as planned.
    pub fn new(plan: GhostPlan) -> Self {
        let [copy, add_float, add_wide] = [Action::Replace, Action::AddFloat, Action::AddWide].map(mover);
        GhostCells { plan, copy, add_float, add_wide }
    }

    /// Takes another geometry; kernels stay compiled.
    pub fn replace(&mut self, plan: GhostPlan) {
        self.plan = plan;
    }

    /// Its geometry.
    pub fn plan(&self) -> &GhostPlan {
        &self.plan
    }

    /// Where the cells of its fields lie.
    pub fn layout(&self) -> &FieldLayout {
        &self.plan.layout
    }

    /// Fills the ghosts of `field` with the cells they stand for; of all fields, where the array holds several, one after
    /// the other. All ranks call it; see [`Exchange::run`] on what is submitted.
    ///
    /// # Errors
    /// [`ExchangeError`]; [`DeviceError::Misuse`] when `field` is no whole number of fields.
    ///
    /// [`Exchange::run`]: crate::exchange::Exchange::run
    pub fn exchange<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        field: &Array<T>,
        cells: Cells,
    ) -> Result<(), ExchangeError> {
        self.sweep(recorder, lines, field, cells, Way::Exchange)
    }

    /// Adds the ghosts of all ranks to the cells they stand for; the ghosts themselves keep what they held. All ranks
    /// call it.
    ///
    /// # Errors
    /// As [`GhostCells::exchange`].
    pub fn reduce<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        field: &Array<T>,
        cells: Cells,
    ) -> Result<(), ExchangeError> {
        self.sweep(recorder, lines, field, cells, Way::Reduce)
    }

    fn sweep<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        field: &Array<T>,
        cells: Cells,
        way: Way,
    ) -> Result<(), ExchangeError> {
        let (words, field) = (cells.words(), field.cast::<u32>()?);
        let cells_all = self.plan.layout.len();
        let field_words = cells_all.saturating_mul(words);
        let fields = if cells_all == 0 { 1 } else { field.len() / field_words };
        if field.len() != fields.saturating_mul(field_words) {
            let why = format!("fields of {} words, the layout has {cells_all} cells of {words}", field.len());
            return Err(DeviceError::Misuse { what: "GhostCells".into(), why }.into());
        }
        let order: Vec<usize> = match way {
            Way::Exchange => (0..self.plan.sweeps.len()).collect(),
            Way::Reduce => (0..self.plan.sweeps.len()).rev().collect(),
        };
        for sweep in order.into_iter().map(|i| &self.plan.sweeps[i]) {
            let (give, take) = match way {
                Way::Exchange => (&sweep.owned, &sweep.ghosts),
                Way::Reduce => (&sweep.ghosts, &sweep.owned),
            };
            let gpu = recorder.gpu().clone();
            let cells_of = |links: &[Link]| fields * links.iter().map(|link| link.block.len()).sum::<u64>();
            let outgoing = gpu.array_in::<u32>("halo::outgoing", cells_of(give) * words, MemoryKind::Outgoing)?;
            let incoming = gpu.array_in::<u32>("halo::incoming", cells_of(take) * words, MemoryKind::Incoming)?;
            let (stride, mut at) = (cells_all, 0);
            for Link { block, .. } in give {
                let (here, there) =
                    (Spot { array: &field, block: *block, stride }, Spot::message(&outgoing, *block, at));
                moved(recorder, &self.copy, here, there, fields, words)?;
                at += fields * block.len();
            }
            let transfers = Transfers { send: parts(give, fields * words), receive: parts(take, fields * words) };
            lines.along(sweep.axis).run(recorder, &transfers, &outgoing, &incoming)?;
            let (unpack, words) = match (way, cells) {
                (Way::Exchange, _) => (&self.copy, words),
                (Way::Reduce, Cells::Float) => (&self.add_float, 1),
                // The kernel knows of the two words itself.
                (Way::Reduce, Cells::Wide) => (&self.add_wide, 1),
            };
            let mut at = 0;
            for Link { block, .. } in take {
                let (here, there) =
                    (Spot { array: &field, block: *block, stride }, Spot::message(&incoming, *block, at));
                moved(recorder, unpack, there, here, fields, words)?;
                at += fields * block.len();
            }
        }
        Ok(())
    }
}

/// A block of each field in an array, and the cells from one field to the next.
struct Spot<'a> {
    array: &'a Array<u32>,
    block: Block,
    stride: u64,
}

impl<'a> Spot<'a> {
    /// Blocks of the same extent, C order, one a field, from cell `at` of a message.
    fn message(array: &'a Array<u32>, block: Block, at: u64) -> Self {
        let [_, j, k] = block.extent;
        Spot { array, block: Block { offset: at, extent: block.extent, strides: [j * k, k, 1] }, stride: block.len() }
    }
}

/// Moves the block of each field onto another of the same extent; a cell has so many `words`.
fn moved(
    recorder: &mut Recorder,
    mover: &BlockCopy,
    origin: Spot<'_>,
    target: Spot<'_>,
    fields: u64,
    words: u64,
) -> Result<(), DeviceError> {
    let place = |spot: &Spot<'_>| {
        let [i, j, k] = spot.block.strides;
        let strides = [spot.stride * words, i * words, j * words, if words > 1 { 1 } else { k }];
        Place { start: spot.block.offset * words, strides }
    };
    let [i, j, k] = target.block.extent;
    let (from, to) = ((origin.array.raw(), place(&origin)), (target.array.raw(), place(&target)));
    mover.record(recorder, [fields, i, j, k * words], from, to)
}

/// The message of each peer: its links, one after the other.
fn parts(links: &[Link], words: u64) -> Vec<Transfer> {
    let mut parts: Vec<Transfer> = Vec::new();
    let mut at = 0;
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
