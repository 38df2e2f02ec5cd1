//! Stages: the passes along one axis while it is whole, and the addresses of their arrays.

use std::ops::Range;

use crate::fft::axis::AxisPass;
use crate::fft::line::{LineFormat, LineKernel, LineParams, Order};
use crate::grid::{Box3, FieldLayout, Shares, extent};

/// The passes along one axis, which is whole on this rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The axis.
    pub axis: usize,
    /// The passes; none if there is nothing to compute or to move.
    pub passes: Vec<AxisPass>,
    /// Number of fields before and after.
    pub fields: [u64; 2],
    /// Extent of this rank's array before, along each axis, in elements of its type.
    pub before: [u64; 3],
    /// Extent of this rank's array after.
    pub after: [u64; 3],
    /// Index of the first element before in the whole array.
    pub first: [u64; 3],
    /// Shares of the ranks that exchange the input, and of those that exchange the output.
    pub shares: [Shares; 2],
}

/// The placement of an array that a pass reads or writes.
#[derive(Clone, Copy, Debug)]
pub enum Placement<'a> {
    /// An array of all fields in C order, over a box of this rank's part.
    Array {
        /// Index of the first element in this rank's part.
        origin: [u64; 3],
        /// Extent of the box.
        extent: [u64; 3],
        /// Number of its first field.
        first: u64,
    },
    /// The caller's fields.
    Field {
        /// The layout of each field.
        layout: &'a FieldLayout,
        /// The start of the first field.
        first: u64,
        /// Elements from one field to the next.
        step: u64,
    },
}

impl Placement<'_> {
    /// Returns the placement of an array of all fields over this rank's part, of this extent.
    pub fn whole(extent: [u64; 3]) -> Self {
        Placement::Array { origin: [0; 3], extent, first: 0 }
    }
}

/// A part of a stage: cells of this rank's part (the whole axis of the stage) and fields of the
/// batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePart {
    /// The cells.
    pub cells: Box3,
    /// The fields; with lines that are transformed together, those of as many fields count once.
    pub fields: Range<u64>,
}

impl Stage {
    /// Returns the bytes that memory moves for pass number `pass`, reading and writing: whole
    /// sectors of [`SECTOR`](crate::gpu::SECTOR) bytes.
    pub fn pass_traffic(&self, pass: usize) -> u64 {
        let lines: u64 = (0..3).filter(|&a| a != self.axis).map(|a| self.before[a]).product();
        let across = self.before[if self.axis == 2 { 1 } else { 2 }];
        self.fields[0] / self.passes[pass].kernel.fields() * lines * self.passes[pass].moved(across)
    }

    /// Returns the bytes of the elements that the stage reads.
    pub(super) fn read_bytes(&self) -> u64 {
        let elements = self.before.iter().product::<u64>() * self.fields[0];
        elements * self.passes.first().map_or(0, |pass| pass.kernel.input.number(pass.kernel.precision))
    }

    /// Returns the bytes of the elements that the stage writes.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written() * self.passes.last().map_or(0, |pass| pass.kernel.output.number(pass.kernel.precision))
    }

    /// Returns the elements that the stage writes.
    pub fn written(&self) -> u64 {
        self.after.iter().product::<u64>() * self.fields[1]
    }

    /// Returns the extent of the scratch between passes.
    pub fn scratch(&self) -> [u64; 3] {
        let mut extent = self.before;
        extent[self.axis] = self.positions();
        extent
    }

    /// Returns the elements of the scratch between passes.
    pub fn scratch_len(&self) -> u64 {
        self.scratch().iter().product::<u64>() * self.fields[0]
    }

    /// Returns the number of scratch arrays between passes: a middle pass that moves points needs a
    /// second one.
    pub fn scratch_arrays(&self) -> usize {
        match &self.passes[..] {
            [_, middle @ .., _] => 1 + usize::from(middle.iter().any(|pass| pass.kernel.moves())),
            _ => 0,
        }
    }

    /// Returns the positions of the axis in scratch between passes.
    pub fn positions(&self) -> u64 {
        self.passes.iter().filter_map(|pass| pass.kernel.four_step).map(|step| step.positions).max().unwrap_or(0)
    }

    /// Returns the axes across the lines of this stage, the slower one first.
    pub fn across(&self) -> [usize; 2] {
        [[1, 2], [0, 2], [0, 1]][self.axis]
    }

    /// Returns the elements along the axis of the stage in the input (side 0) or the output (1).
    fn length(&self, side: usize) -> u64 {
        if side == 0 { self.before[self.axis] } else { self.after[self.axis] }
    }

    /// Returns the elements of a side that the table of listed blocks has before those of `side`.
    fn listed_before(&self, side: usize) -> u64 {
        if side == 1 && !self.shares[0].are_equal() { self.length(0) } else { 0 }
    }

    /// Returns the table by which kernels find the blocks of lines in [`Order::Listed`]: the first
    /// element and the number of elements of the block of each element, of the input and then of
    /// the output. Empty if no side is listed.
    pub fn listed_blocks(&self) -> Vec<[u32; 2]> {
        let of_side = |side: usize| {
            let (shares, n) = (self.shares[side], self.length(side));
            (0..shares.ranks()).flat_map(move |part| {
                let block = shares.split(n, part);
                let entry = [block.start, block.end - block.start].map(|number| number as u32);
                block.map(move |_| entry)
            })
        };
        [0, 1].into_iter().filter(|&side| !self.shares[side].are_equal()).flat_map(of_side).collect()
    }

    /// Returns the parameters of a pass over a part.
    pub fn params(
        &self,
        kernel: &LineKernel,
        part: &StagePart,
        input: Placement<'_>,
        output: Placement<'_>,
    ) -> LineParams {
        let (axis, [slow, fast], tile) = (self.axis, self.across(), &part.cells);
        let len = |a: usize| tile[a].end - tile[a].start;
        let results = kernel.results();
        let count = kernel.count();
        let fields = part.fields.end - part.fields.start;
        let whole = StagePart {
            cells: part.cells.clone(),
            fields: part.fields.start * kernel.fields()..part.fields.end * kernel.fields(),
        };
        let (read, read_more, read_blocks) = self.address(kernel.input.order, 0, 1, &whole, input);
        let (written, mut written_more, written_blocks) = self.address(kernel.output.order, 1, results, part, output);
        if let LineFormat::Vectors(fields) = kernel.output.format {
            written_more[2] = fields.into();
        }
        let result = match (kernel.output.order, output) {
            // In blocked arrays it counts outer lines.
            (Order::Blocked | Order::Listed, Placement::Array { extent, .. }) => extent[..axis].iter().product(),
            (_, Placement::Array { extent, .. }) => extent.iter().product(),
            (_, Placement::Field { step, .. }) => step,
        };
        let word = |v: [u64; 4]| v.map(|n| n as u32);
        LineParams {
            line_sizes: word([len(fast).max(1), len(slow).max(1), result, fields * len(slow) * len(fast) * count]),
            line_input: word(read),
            line_input_more: word(read_more),
            line_output: word(written),
            line_output_more: word(written_more),
            line_blocks: word([read_blocks.0[0], read_blocks.0[1], written_blocks.0[0], written_blocks.0[1]]),
            line_starts: word([read_blocks.1[0], read_blocks.1[1], written_blocks.1[0], written_blocks.1[1]]),
            line_inverse: [read_blocks.0, written_blocks.0]
                .map(|[_, small]| [1.0 / (small + 1) as f32, 1.0 / small.max(1) as f32])
                .concat()
                .try_into()
                .unwrap_or_default(),
            line_first: word([0, 1, 2, 3].map(|a| match a {
                3 => part.fields.start,
                a if a == axis => 0,
                a => self.first[a] + tile[a].start,
            })),
            line_scale: [1.0, 0.0, 0.0, 1.0],
        }
    }

    /// Returns the vectors of [`LineParams`] for one side, with (larger, small) and the first outer
    /// and inner line.
    fn address(
        &self,
        order: Order,
        side: usize,
        results: u64,
        part: &StagePart,
        place: Placement<'_>,
    ) -> ([u64; 4], [u64; 4], ([u64; 2], [u64; 2])) {
        let (axis, [slow, fast], tile, before) = (self.axis, self.across(), &part.cells, part.fields.start * results);
        let no_blocks = ([0; 2], [0; 2]);
        match (order, place) {
            (Order::Strided, Placement::Field { layout, first, step }) => {
                let strides = layout.strides();
                let offset = first
                    + layout.offset()
                    + tile[slow].start * strides[slow]
                    + tile[fast].start * strides[fast]
                    + before * step;
                ([offset, strides[fast], strides[slow], step * results], [strides[axis], 0, results, 0], no_blocks)
            }
            (Order::Strided, Placement::Array { origin, extent, first }) => {
                let strides = [extent[1] * extent[2], extent[2], 1];
                let offset: u64 = [slow, fast].iter().map(|&a| (tile[a].start - origin[a]) * strides[a]).sum();
                let field = extent.iter().product::<u64>();
                let offset = offset + (before - first) * field;
                ([offset, strides[fast], strides[slow], field * results], [strides[axis], 0, results, 0], no_blocks)
            }
            (Order::Blocked | Order::Listed, place) => {
                let (origin, extent) = match place {
                    Placement::Array { origin, extent, .. } => (origin, extent),
                    Placement::Field { layout, .. } => ([0; 3], extent(&layout.own)),
                };
                // Steps from one line to the next, along the axes before and after the axis of the
                // stage.
                let outer = |a: usize| if a < axis { (a + 1..axis).map(|b| extent[b]).product() } else { 0 };
                let inner = |a: usize| if a > axis { (a + 1..3).map(|b| extent[b]).product() } else { 0 };
                let outer_lines: u64 = extent[..axis].iter().product();
                let width: u64 = extent[axis + 1..].iter().product();
                let lines = self.fields[side] * outer_lines * width;
                let first = |step: &dyn Fn(usize) -> u64| {
                    [slow, fast].iter().map(|&a| (tile[a].start - origin[a]) * step(a)).sum::<u64>()
                };
                let blocks = match order {
                    Order::Listed => [self.listed_before(side), 0],
                    _ => {
                        let (n, ranks) = (self.length(side), self.shares[side].ranks() as u64);
                        [n % ranks * (n / ranks + 1), n / ranks]
                    }
                };
                (
                    [lines, outer(fast), outer(slow), outer_lines * results],
                    [width, inner(fast), inner(slow), 0],
                    (blocks, [first(&outer) + before * outer_lines, first(&inner)]),
                )
            }
        }
    }
}
