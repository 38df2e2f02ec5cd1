//! Halo exchange and halo reduction of distributed fields.
//!
//! ```text
//!            rank 0          rank 1               exchange: ghosts take the values of the cells they stand for
//!        . [ a b c ] d    c [ d e f ] .           reduce:   cells add the values of the ghosts that stand for them
//! ```
//!
//! The two are adjoint: `<exchange(x), y>` over whole arrays equals `<x, reduce(y)>` over own cells. Widths are any,
//! per side and axis, also wider than a neighbour's part; edges and corners are included; an axis may close on itself.
//! [`HaloPlan`] says which cells go where, this module moves them.

use crate::device::{Access, Array, DeviceError, Element, Kernel, KernelSource, Memory, Plain, Recorder};
use crate::exchange::{ExchangeError, Lines};
use crate::layout::{Block, FieldLayout, HaloPlan, Link, Part, Transfers};

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
pub struct Halo {
    plan: HaloPlan,
    copy: Kernel,
    add_float: Kernel,
    add_wide: Kernel,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    extent: [u32; 4],
    origin: [u32; 4],
    target: [u32; 4],
}

fn kernel(add_float: bool, add_wide: bool) -> Kernel {
    Kernel::new(
        KernelSource::new("halo::block", include_str!("../../shaders/halo/block.wgsl"))
            .params("extent: vec4<u32>, origin: vec4<u32>, target_: vec4<u32>")
            .array("from", Element::U32, Access::Read)
            .array("to", Element::U32, Access::ReadWrite)
            .feature("add_float", add_float)
            .feature("add_wide", add_wide),
    )
}

/// The kernels of this module, for tests that go over all of the library's kernels.
pub fn sources() -> Vec<KernelSource> {
    [(false, false), (true, false), (false, true)].map(|(f, w)| kernel(f, w).source().clone()).into()
}

/// Which way cells move through a sweep.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Exchange,
    Reduce,
}

impl Halo {
    /// A halo as planned.
    pub fn new(plan: HaloPlan) -> Self {
        Halo { plan, copy: kernel(false, false), add_float: kernel(true, false), add_wide: kernel(false, true) }
    }

    /// Takes another geometry; kernels stay compiled.
    pub fn replace(&mut self, plan: HaloPlan) {
        self.plan = plan;
    }

    /// Its geometry.
    pub fn plan(&self) -> &HaloPlan {
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
    pub fn exchange<T: Plain>(
        &self,
        recorder: &mut Recorder,
        lines: &mut Lines,
        field: &Array<T>,
        cells: Cells,
    ) -> Result<(), ExchangeError> {
        self.sweep(recorder, lines, field, cells, Way::Exchange)
    }

    /// Adds the ghosts of all ranks to the cells they stand for; the ghosts themselves keep what they held. All ranks
    /// call it.
    ///
    /// # Errors
    /// As [`Halo::exchange`].
    pub fn reduce<T: Plain>(
        &self,
        recorder: &mut Recorder,
        lines: &mut Lines,
        field: &Array<T>,
        cells: Cells,
    ) -> Result<(), ExchangeError> {
        self.sweep(recorder, lines, field, cells, Way::Reduce)
    }

    fn sweep<T: Plain>(
        &self,
        recorder: &mut Recorder,
        lines: &mut Lines,
        field: &Array<T>,
        cells: Cells,
        way: Way,
    ) -> Result<(), ExchangeError> {
        let (words, field) = (cells.words(), field.cast::<u32>()?);
        let cells_all = self.plan.layout.len();
        let fields = if cells_all == 0 { 1 } else { field.len() / (cells_all * words) };
        if field.len() != fields * cells_all * words {
            let why = format!("fields of {} words, the layout has {cells_all} cells of {words}", field.len());
            return Err(DeviceError::Misuse { what: "Halo".into(), why }.into());
        }
        let order: Vec<usize> = match way {
            Way::Exchange => (0..self.plan.sweeps.len()).collect(),
            Way::Reduce => (0..self.plan.sweeps.len()).rev().collect(),
        };
        for sweep in order.into_iter().map(|i| &self.plan.sweeps[i]) {
            let (give, take) = match way {
                Way::Exchange => (&sweep.lend, &sweep.borrow),
                Way::Reduce => (&sweep.borrow, &sweep.lend),
            };
            let gpu = recorder.gpu().clone();
            let cells_of = |links: &[Link]| fields * links.iter().map(|link| link.block.len()).sum::<u64>();
            let outgoing = gpu.array_in::<u32>("halo::outgoing", cells_of(give) * words, Memory::Outgoing)?;
            let incoming = gpu.array_in::<u32>("halo::incoming", cells_of(take) * words, Memory::Incoming)?;
            let mut at = 0;
            for (link, f) in each(give, fields) {
                let block = of_field(link.block, f * cells_all);
                self.block(recorder, &self.copy, &field, block, &outgoing, message(block, at), words)?;
                at += block.len();
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
            for (link, f) in each(take, fields) {
                let block = of_field(link.block, f * cells_all);
                self.block(recorder, unpack, &incoming, message(block, at), &field, block, words)?;
                at += block.len();
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "two blocks, each in its array")]
    fn block(
        &self,
        recorder: &mut Recorder,
        kernel: &Kernel,
        from: &Array<u32>,
        origin: Block,
        to: &Array<u32>,
        target: Block,
        words: u64,
    ) -> Result<(), DeviceError> {
        let place = |block: Block| {
            let [i, j, k] = block.strides;
            [block.offset * words, i * words, j * words, if words > 1 { 1 } else { k }].map(|n| n as u32)
        };
        let [i, j, k] = target.extent;
        let params =
            Params { extent: [i, j, k * words, 0].map(|n| n as u32), origin: place(origin), target: place(target) };
        recorder.each(kernel, &[from.raw(), to.raw()], &params, target.len() * words)
    }
}

/// Every link for every field.
fn each(links: &[Link], fields: u64) -> impl Iterator<Item = (&Link, u64)> {
    links.iter().flat_map(move |link| (0..fields).map(move |f| (link, f)))
}

/// The block in the field that begins at cell `start`.
fn of_field(block: Block, start: u64) -> Block {
    Block { offset: block.offset + start, ..block }
}

/// A block of the same extent, C order, at cell `at` of a message.
fn message(block: Block, at: u64) -> Block {
    let [_, j, k] = block.extent;
    Block { offset: at, extent: block.extent, strides: [j * k, k, 1] }
}

/// The message of each peer: its links, one after the other.
fn parts(links: &[Link], words: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut at = 0;
    for link in links {
        let len = link.block.len() * words;
        match parts.last_mut() {
            Some(part) if part.peer == link.peer => part.len += len,
            _ => parts.push(Part { peer: link.peer, start: at, len }),
        }
        at += len;
    }
    parts
}
