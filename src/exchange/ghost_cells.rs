//! Exchange of ghost cells, and its adjoint, of distributed fields.
//!
//! ```text
//!            rank 0          rank 1               exchange: ghosts take the values of the cells they stand for
//!        . [ a b c ] d    c [ d e f ] .           reduce:   cells add the values of the ghosts that stand for them
//! ```
//!
//! The two are adjoint: `<exchange(x), y>` over whole arrays equals `<x, reduce(y)>` over own
//! cells. Widths are arbitrary, per side and axis, and may exceed a neighbor's part; edges and
//! corners are included; an axis may close on itself. [`GhostPlan`] describes the copies: in a
//! sweep along each axis, blocks for each peer. This module packs the blocks, exchanges the
//! messages and unpacks them.
//!
//! A cell is one element of the array, of any type: cells are moved as words, exactly, and added in
//! their type. Integers of 64 bits, which devices may lack, are two `u32`
//! ([`GhostCells::reduce_wide`]).

use crate::comm::Subject;
use crate::exchange::block_copy::{BlockCopy, CopyAction, FieldBlocks};
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, DeviceElement, DeviceError, Element, MemoryKind, Recorder};
use crate::grid::{FieldLayout, GhostPlan, Link, Sweep, Transfer};

/// Elements that are added.
pub(super) const ADDED: [Element; 7] =
    [Element::F32, Element::U32, Element::I32, Element::Complex32, Element::Vec4, Element::F64, Element::Complex64];

/// Moves the ghost cells of fields between ranks.
pub struct GhostCells {
    plan: GhostPlan,
    copy: BlockCopy,
    /// By element.
    add: [BlockCopy; ADDED.len()],
    add_wide: BlockCopy,
    pack: BlockCopy,
    unpack: BlockCopy,
}

/// Direction of cells in a sweep, and the effect on their targets.
#[derive(Clone, Copy)]
enum Move<'a> {
    /// From own cells to ghosts, which take their values.
    Exchange,
    /// Same as `Exchange`, of vectors, whose first three numbers are sent.
    ExchangeVectors,
    /// From ghosts to own cells, to which they are added.
    Reduce(&'a BlockCopy),
}

impl GhostCells {
    /// Ghost cells as planned.
    #[must_use]
    pub fn new(plan: GhostPlan) -> Self {
        let [copy, add_wide] =
            [CopyAction::Replace, CopyAction::AddWide].map(|action| BlockCopy::new(Element::U32, action));
        let [pack, unpack] = [CopyAction::Pack, CopyAction::Unpack].map(|action| BlockCopy::new(Element::Vec4, action));
        let add = ADDED.map(|element| BlockCopy::new(element, CopyAction::Add));
        GhostCells { plan, copy, add, add_wide, pack, unpack }
    }

    /// Takes another plan; kernels stay compiled.
    pub fn replace(&mut self, plan: GhostPlan) {
        self.plan = plan;
    }

    /// Which cells go where.
    pub fn plan(&self) -> &GhostPlan {
        &self.plan
    }

    /// Returns where the cells of its fields lie.
    pub fn layout(&self) -> &FieldLayout {
        &self.plan.layout
    }

    /// Fills the ghost cells of `field`, or of all fields that the array holds one after the other,
    /// with the cells that they are copies of. Collective over `comms`, which belong to the
    /// plan's grid; [`Exchange::run`] documents what is submitted.
    ///
    /// # Errors
    /// [`ExchangeError`]; [`DeviceError::Misuse`] if `field` is not a whole number of fields, or
    /// `comms` belong to another grid.
    ///
    /// [`Exchange::run`]: crate::exchange::Exchange::run
    pub fn exchange<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
    ) -> Result<(), ExchangeError> {
        let subject = self.subject("exchange", T::ELEMENT.wgsl());
        let fields = self.fields("GhostCells::exchange", comms, field, 1, subject)?;
        self.plan.sweeps.iter().try_for_each(|sweep| fields.sweep(recorder, comms, sweep, Move::Exchange))
    }

    /// Same as [`exchange`](Self::exchange), of vectors of three numbers: messages have 12 bytes a
    /// cell, and the fourth number of ghost cells becomes 0.
    ///
    /// # Errors
    /// Same as [`GhostCells::exchange`].
    pub fn exchange_vectors(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<[f32; 4]>,
    ) -> Result<(), ExchangeError> {
        let subject = self.subject("exchange", "vectors of three f32");
        let fields = self.fields("GhostCells::exchange_vectors", comms, field, 1, subject)?;
        let fields = Fields { words: 3, ..fields };
        self.plan.sweeps.iter().try_for_each(|sweep| fields.sweep(recorder, comms, sweep, Move::ExchangeVectors))
    }

    /// Adds the ghost cells of all ranks to the cells that they are copies of; ghost cells keep
    /// their values. Integers wrap around. Collective.
    ///
    /// # Errors
    /// Same as [`GhostCells::exchange`]; [`DeviceError::Misuse`] for double precision on a device
    /// without it.
    pub fn reduce<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "GhostCells::reduce";
        let gpu = recorder.gpu();
        if T::ELEMENT.is_double() && !gpu.capabilities().f64 {
            return Err(misuse(WHAT, format!("`{}` has no double precision", gpu.info().name)).into());
        }
        let Some(kind) = ADDED.iter().position(|added| *added == T::ELEMENT) else {
            return Err(misuse(WHAT, format!("no kernel adds {:?}", T::ELEMENT)).into());
        };
        let fields = self.fields(WHAT, comms, field, 1, self.subject("sum", T::ELEMENT.wgsl()))?;
        self.reduce_with(recorder, comms, &fields, &self.add[kind])
    }

    /// Same as [`reduce`](Self::reduce), of integers of 64 bits: a cell is two elements, the low
    /// word first. Sums are exact in any order.
    ///
    /// # Errors
    /// Same as [`GhostCells::exchange`].
    pub fn reduce_wide(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<u32>,
    ) -> Result<(), ExchangeError> {
        let fields = self.fields("GhostCells::reduce_wide", comms, field, 2, self.subject("sum", "64-bit integers"))?;
        self.reduce_with(recorder, comms, &fields, &self.add_wide)
    }

    fn reduce_with<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        fields: &Fields<'_, T>,
        add: &BlockCopy,
    ) -> Result<(), ExchangeError> {
        self.plan.sweeps.iter().rev().try_for_each(|sweep| fields.sweep(recorder, comms, sweep, Move::Reduce(add)))
    }

    /// Returns the subject on which ranks must agree, without the parts that each sweep adds.
    fn subject(&self, operation: &str, cells: &str) -> Subject {
        let [i, j, k] = self.plan.shape;
        Subject::new(&format!("ghost cells' {operation} of {i}x{j}x{k} {cells}"))
    }

    /// Returns the fields of an array whose cells have several elements each.
    fn fields<T: DeviceElement>(
        &self,
        what: &str,
        comms: &GridComms,
        field: &Array<T>,
        elements: u64,
        subject: Subject,
    ) -> Result<Fields<'_, T>, DeviceError> {
        let GhostPlan { layout, grid, rank, .. } = &self.plan;
        if (comms.grid(), comms.rank()) != (*grid, *rank) {
            let why = format!("rank {} of {} in the comms, {rank} of {grid} in the plan", comms.rank(), comms.grid());
            return Err(misuse(what, why));
        }
        let (stride, each) = (layout.len(), layout.len().saturating_mul(elements));
        let number = field.len().checked_div(each).unwrap_or(0);
        if field.len() != number.saturating_mul(each) {
            let why = format!("fields of {} elements, the layout has {stride} cells of {elements}", field.len());
            return Err(misuse(what, why));
        }
        let words = elements * T::ELEMENT.bytes() / 4;
        let subject = subject.with(&[number, words]);
        Ok(Fields { ghosts: self, array: field.clone(), number, words, stride, subject })
    }
}

/// The fields that an array holds.
struct Fields<'a, T: DeviceElement> {
    ghosts: &'a GhostCells,
    array: Array<T>,
    number: u64,
    /// Words of a cell in messages.
    words: u64,
    /// Cells from one field to the next.
    stride: u64,
    subject: Subject,
}

impl<T: DeviceElement> Fields<'_, T> {
    fn sweep(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        sweep: &Sweep,
        how: Move<'_>,
    ) -> Result<(), ExchangeError> {
        let (send, receive) = match how {
            Move::Exchange | Move::ExchangeVectors => (&sweep.owned, &sweep.ghosts),
            Move::Reduce(_) => (&sweep.ghosts, &sweep.owned),
        };
        let (gpu, GhostCells { copy, pack, unpack, .. }) = (recorder.gpu().clone(), self.ghosts);
        let transfers = sweep.transfers(self.number * self.words, matches!(how, Move::Reduce(_)));
        let len = |parts: &[Transfer]| parts.last().map_or(0, |last| last.start + last.len);
        let outgoing = gpu.array_in::<u32>("ghost_cells::outgoing", len(&transfers.send), MemoryKind::Outgoing)?;
        let incoming = gpu.array_in::<u32>("ghost_cells::incoming", len(&transfers.receive), MemoryKind::Incoming)?;
        match how {
            Move::ExchangeVectors => {
                for (block, message) in self.messages(send, &self.array, &outgoing) {
                    pack.record(recorder, [self.number, 1], &block, &message)?;
                }
            }
            Move::Exchange | Move::Reduce(_) => {
                for (block, message) in self.messages(send, &self.array.cast::<u32>()?, &outgoing) {
                    copy.record(recorder, [self.number, self.words], &block, &message)?;
                }
            }
        }
        let subject = self.subject.with(&[sweep.alike]);
        comms.along(sweep.axis).run_for(subject, recorder, &transfers, &outgoing, &incoming)?;
        match how {
            Move::Exchange => {
                for (block, message) in self.messages(receive, &self.array.cast::<u32>()?, &incoming) {
                    copy.record(recorder, [self.number, self.words], &message, &block)?;
                }
            }
            Move::ExchangeVectors => {
                for (block, message) in self.messages(receive, &self.array, &incoming) {
                    unpack.record(recorder, [self.number, 1], &message, &block)?;
                }
            }
            // The kernel counts cells, also of two elements.
            Move::Reduce(add) => {
                let incoming = incoming.cast::<T>()?;
                for (block, message) in self.messages(receive, &self.array, &incoming) {
                    add.record(recorder, [self.number, 1], &message, &block)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the block of each link in the fields of `array`, and in the messages that `packed`
    /// holds one behind the other.
    fn messages<'a, E: DeviceElement, M: DeviceElement>(
        &'a self,
        links: &'a [Link],
        array: &'a Array<E>,
        packed: &'a Array<M>,
    ) -> impl Iterator<Item = (FieldBlocks<'a, E>, FieldBlocks<'a, M>)> {
        let mut start = 0;
        links.iter().map(move |Link { block, .. }| {
            let message = FieldBlocks::packed(packed, start, *block);
            start += self.number * block.len();
            (FieldBlocks { array, block: *block, stride: self.stride }, message)
        })
    }
}

fn misuse(what: &str, why: String) -> DeviceError {
    DeviceError::Misuse { what: what.into(), why }
}
