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
use crate::grid::{GhostPlan, Link, Sweep, Transfer};

/// Elements that are added.
pub(super) const ADDED: [Element; 7] =
    [Element::F32, Element::U32, Element::I32, Element::Complex32, Element::Vec4, Element::F64, Element::Complex64];

/// Moves the ghost cells of fields between ranks.
pub struct GhostCells {
    /// Which cells go where. With another plan, kernels stay compiled.
    pub plan: GhostPlan,
    copy: BlockCopy,
    /// By element.
    add: [BlockCopy; ADDED.len()],
    add_wide: BlockCopy,
    pack: BlockCopy,
    unpack: BlockCopy,
}

/// The two copies of each cell in a sweep: into messages, and out of them.
struct Move<'a> {
    pack: &'a BlockCopy,
    unpack: &'a BlockCopy,
    /// Elements of a cell, as each of the two counts them.
    words: [u64; 2],
    /// Whether cells go from ghosts to own cells, to which they are added.
    is_reduction: bool,
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
        let to_ghosts = Move { pack: &self.copy, unpack: &self.copy, words: [fields.words; 2], is_reduction: false };
        self.plan.sweeps.iter().try_for_each(|sweep| fields.sweep(recorder, comms, sweep, &to_ghosts))
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
        let to_ghosts = Move { pack: &self.pack, unpack: &self.unpack, words: [1; 2], is_reduction: false };
        self.plan.sweeps.iter().try_for_each(|sweep| fields.sweep(recorder, comms, sweep, &to_ghosts))
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
        recorder.gpu().supports(T::ELEMENT, WHAT)?;
        let Some(kind) = ADDED.iter().position(|added| *added == T::ELEMENT) else {
            return Err(DeviceError::misuse(WHAT, format!("no kernel adds {:?}", T::ELEMENT)).into());
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
        fields: &Fields<T>,
        add: &BlockCopy,
    ) -> Result<(), ExchangeError> {
        // The kernel that adds counts cells, also of two elements.
        let to_owners = Move { pack: &self.copy, unpack: add, words: [fields.words, 1], is_reduction: true };
        self.plan.sweeps.iter().rev().try_for_each(|sweep| fields.sweep(recorder, comms, sweep, &to_owners))
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
    ) -> Result<Fields<T>, DeviceError> {
        let GhostPlan { layout, grid, rank, .. } = &self.plan;
        let why = || format!("rank {} of {} in the comms, {rank} of {grid} in the plan", comms.rank(), comms.grid());
        DeviceError::ensure((comms.grid(), comms.rank()) == (*grid, *rank), what, why)?;
        let (stride, each) = (layout.len(), layout.len().saturating_mul(elements));
        let number = field.len().checked_div(each).unwrap_or(0);
        let why = || format!("fields of {} elements, the layout has {stride} cells of {elements}", field.len());
        DeviceError::ensure(field.len() == number.saturating_mul(each), what, why)?;
        let words = elements * T::ELEMENT.bytes() / 4;
        let subject = subject.with(&[number, words]);
        Ok(Fields { array: field.clone(), number, words, stride, subject })
    }
}

/// The fields that an array holds.
struct Fields<T: DeviceElement> {
    array: Array<T>,
    number: u64,
    /// Words of a cell in messages.
    words: u64,
    /// Cells from one field to the next.
    stride: u64,
    subject: Subject,
}

impl<T: DeviceElement> Fields<T> {
    fn sweep(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        sweep: &Sweep,
        way: &Move<'_>,
    ) -> Result<(), ExchangeError> {
        let [send, receive] = match way.is_reduction {
            true => [&sweep.ghosts, &sweep.owned],
            false => [&sweep.owned, &sweep.ghosts],
        };
        let gpu = recorder.gpu().clone();
        let transfers = sweep.transfers(self.number * self.words, way.is_reduction);
        let len = |parts: &[Transfer]| parts.last().map_or(0, |last| last.start + last.len);
        let outgoing = gpu.array_in::<u32>("ghost_cells::outgoing", len(&transfers.send), MemoryKind::Outgoing)?;
        let incoming = gpu.array_in::<u32>("ghost_cells::incoming", len(&transfers.receive), MemoryKind::Incoming)?;
        for (block, message) in self.messages(send, &outgoing) {
            way.pack.record(recorder, [self.number, way.words[0]], &block, &message)?;
        }
        let subject = self.subject.with(&[sweep.alike]);
        comms.along(sweep.axis).start_for(subject, recorder, &transfers, &outgoing, &incoming)?.finish(recorder)?;
        for (block, message) in self.messages(receive, &incoming) {
            way.unpack.record(recorder, [self.number, way.words[1]], &message, &block)?;
        }
        Ok(())
    }

    /// Returns the block of each link in the fields, and in the messages that `packed` holds one
    /// behind the other.
    fn messages<'a>(
        &'a self,
        links: &'a [Link],
        packed: &'a Array<u32>,
    ) -> impl Iterator<Item = (FieldBlocks<'a, T>, FieldBlocks<'a, u32>)> {
        let mut start = 0;
        links.iter().map(move |Link { block, .. }| {
            let message = FieldBlocks::packed(packed, start, *block);
            start += self.number * block.len();
            (FieldBlocks { array: &self.array, block: *block, stride: self.stride }, message)
        })
    }
}
