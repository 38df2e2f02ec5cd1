//! Which passes and exchanges make a distributed transform: pure data.
//!
//! ```text
//! field              x over p0, y over p1          z pass: real lines to half spectra, complex ones to whole
//!                    exchange along axis 1: y comes together, z is cut
//!                    x over p0, z over p1          y pass
//!                    exchange along axis 0: x comes together, y is cut
//! spectrum           y over p0, z over p1          x pass
//! ```
//!
//! - A transform *visits* axes, each when it is whole. Between two visits the axis that comes is exchanged against the axis
//!   that goes, among the ranks of one line of the process grid. An exchange among one rank is left out, so slabs
//!   (`p1 == 1`) exchange once and a single rank never. Axes that are not transformed are not visited.
//! - The inverse is the mirror image. A natural distribution goes the same way back.
//! - Arrays stay in C order (x, y, z) throughout. There is no pass for packing: the pass before an exchange writes the
//!   blocks that go to each peer, the pass after reads the blocks as they arrive.
//! - An exchange may be cut into *pieces* along the axis that takes no part in it: one piece travels while the next
//!   is transformed.

use std::ops::Range;

use super::axis::{self, AxisPass};
use super::core::Limits;
use super::error::FftError;
use super::line::{LineKernel, LineParams, Order, Side, Span, View, Work};
use super::spec::{Distribution, Spec, SpectrumLayout, Values};
use crate::layout::{Box3, Cost, FieldLayout, Grid, LayoutError, Part, Transfers, extent, split};

/// The passes along one axis, all while it is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The axis.
    pub axis: usize,
    /// Its passes; none where nothing is to be done or moved.
    pub passes: Vec<AxisPass>,
    /// Fields before and after.
    pub fields: [u64; 2],
    /// Extent of this rank's array before, along each axis, in elements of its kind.
    pub before: [u64; 3],
    /// The same after.
    pub after: [u64; 3],
    /// Index of its first element in the whole array.
    pub first: [u64; 3],
    /// Ranks among which its input and its output are exchanged.
    pub ranks: [u64; 2],
}

/// An exchange between two visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transpose {
    /// Axis of the process grid along which ranks exchange.
    pub line: usize,
    /// The axis that goes: whole before, cut after.
    pub goes: usize,
    /// The axis that comes: cut before, whole after.
    pub comes: usize,
    /// The axis that takes no part and is cut into pieces.
    pub third: usize,
    /// The pieces, as ranges of this rank's extent of the third axis.
    pub pieces: Vec<Range<u64>>,
    /// Ranks in the line, and this rank's place.
    ranks: [u64; 2],
    /// Elements of the whole array along the axes that go and come.
    lengths: [u64; 2],
    /// Fields.
    fields: u64,
}

impl Transpose {
    /// This rank's elements along the axis that goes, when it is cut.
    pub fn share(&self) -> u64 {
        let part = split(self.lengths[0], self.ranks[0], self.ranks[1]);
        part.end - part.start
    }

    /// Elements along the axis that comes, when it is whole.
    pub fn whole(&self) -> u64 {
        self.lengths[1]
    }

    /// Elements of one piece's arrays, before and after.
    pub fn elements(&self, piece: usize) -> [u64; 2] {
        let transfers = self.transfers(piece);
        let end = |parts: &[Part]| parts.iter().map(|part| part.start + part.len).max().unwrap_or(0);
        [end(&transfers.send), end(&transfers.receive)]
    }

    /// What goes where in one piece, in elements.
    pub fn transfers(&self, piece: usize) -> Transfers {
        let [ranks, me] = self.ranks;
        let [goes, comes] = self.lengths;
        let thick = self.fields * (self.pieces[piece].end - self.pieces[piece].start);
        let len = |n: u64, i: u64| {
            let part = split(n, ranks, i);
            part.end - part.start
        };
        let parts = |size: &dyn Fn(u64) -> u64| {
            let mut start = 0;
            (0..ranks)
                .map(|peer| {
                    let part = Part { peer: peer as usize, start, len: size(peer) };
                    start += part.len;
                    part
                })
                .collect()
        };
        Transfers {
            send: parts(&|peer| thick * len(comes, me) * len(goes, peer)),
            receive: parts(&|peer| thick * len(comes, peer) * len(goes, me)),
        }
    }

    /// Elements of one piece that this rank keeps.
    pub fn kept(&self, piece: usize) -> u64 {
        self.transfers(piece).send.iter().filter(|part| part.peer as u64 == self.ranks[1]).map(|part| part.len).sum()
    }

    /// What all pieces cost this rank, with elements of `element` bytes in messages of at most `chunk` bytes.
    pub fn cost(&self, element: u64, chunk: u64) -> Cost {
        let mut cost = Cost::default();
        let chunk = (chunk / element).max(1) * element;
        (0..self.pieces.len())
            .for_each(|piece| cost += self.transfers(piece).cost(self.ranks[1] as usize, element, chunk));
        cost
    }
}

/// One direction of a transform: visits, and what lies between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The visits.
    pub visits: Vec<Visit>,
    /// Between visit `i` and `i + 1`: an exchange, or none.
    pub between: Vec<Option<Transpose>>,
}

impl Route {
    /// Bytes that the passes move through device memory, reading and writing.
    pub fn traffic(&self) -> u64 {
        self.visits.iter().map(Visit::traffic).sum()
    }

    /// The exchanges, in order.
    pub fn exchanges(&self) -> impl Iterator<Item = &Transpose> {
        self.between.iter().flatten()
    }

    /// The passes, in order.
    pub fn passes(&self) -> impl Iterator<Item = (&Visit, &AxisPass)> {
        self.visits.iter().flat_map(|visit| visit.passes.iter().map(move |pass| (visit, pass)))
    }
}

/// Where an array lies that a pass reads or writes.
#[derive(Clone, Copy, Debug)]
pub enum Placement<'a> {
    /// A C order array of all fields, which covers a box of this rank's part: its first index and extent.
    Array {
        /// Index of its first element in this rank's part.
        origin: [u64; 3],
        /// Its extent.
        extent: [u64; 3],
    },
    /// The user's fields.
    Field {
        /// How each lies.
        layout: &'a FieldLayout,
        /// Where the first begins.
        first: u64,
        /// Elements from one to the next.
        step: u64,
    },
}

impl Visit {
    /// Bytes that its passes read and write.
    pub fn traffic(&self) -> u64 {
        let lines: u64 = (0..3).filter(|&a| a != self.axis).map(|a| self.before[a]).product();
        let bytes = |pass: &AxisPass| {
            let count = pass.kernel.digit.map_or(1, |digit| digit.count);
            pass.kernel.line_bytes().iter().sum::<u64>() * count
        };
        self.fields[0] * lines * self.passes.iter().map(bytes).sum::<u64>()
    }

    /// Positions of the axis in scratch between passes.
    pub fn positions(&self) -> u64 {
        self.passes.iter().filter_map(|pass| pass.kernel.digit).map(|digit| digit.positions).max().unwrap_or(0)
    }

    /// The parameters of a pass over a tile of this rank's part (all of the axis itself).
    pub fn params(&self, kernel: &LineKernel, tile: &Box3, input: Placement<'_>, output: Placement<'_>) -> LineParams {
        let axis = self.axis;
        let [slow, fast] = [[1, 2], [0, 2], [0, 1]][axis];
        let len = |a: usize| tile[a].end - tile[a].start;
        let results = if let Work::Filter(results) = kernel.work { u64::from(results) } else { 1 };
        let count = kernel.digit.map_or(1, |digit| digit.count);
        let fields = self.fields[0];
        let (read, read_more, read_blocks) = self.address(kernel.input.order, 0, 1, tile, input);
        let (written, written_more, written_blocks) = self.address(kernel.output.order, 1, results, tile, output);
        let result = match (kernel.output.order, output) {
            // Of blocked arrays it counts outer lines.
            (Order::Blocked, Placement::Array { extent, .. }) => extent[..axis].iter().product(),
            (_, Placement::Array { extent, .. }) => extent.iter().product(),
            (_, Placement::Field { step, .. }) => step,
        };
        let word = |v: [u64; 4]| v.map(|n| n as u32);
        LineParams {
            sizes: word([len(fast).max(1), len(slow).max(1), result, fields * len(slow) * len(fast) * count]),
            input: word(read),
            input_more: word(read_more),
            output: word(written),
            output_more: word(written_more),
            blocks: word([read_blocks.0[0], read_blocks.0[1], written_blocks.0[0], written_blocks.0[1]]),
            starts: word([read_blocks.1[0], read_blocks.1[1], written_blocks.1[0], written_blocks.1[1]]),
            inverse: [read_blocks.0, written_blocks.0]
                .map(|[_, small]| [1.0 / (small + 1) as f32, 1.0 / small.max(1) as f32])
                .concat()
                .try_into()
                .unwrap_or_default(),
            first: word([0, 1, 2, 3].map(|a| match a {
                3 => 0,
                a if a == axis => 0,
                a => self.first[a] + tile[a].start,
            })),
            ..LineParams::default()
        }
        .scaled(1.0, 1.0)
    }

    /// The vectors of [`LineParams`] for one side, with (larger, small) and the first outer and inner line.
    #[expect(clippy::type_complexity, reason = "three vectors of a shader's parameters")]
    fn address(
        &self,
        order: Order,
        side: usize,
        results: u64,
        tile: &Box3,
        place: Placement<'_>,
    ) -> ([u64; 4], [u64; 4], ([u64; 2], [u64; 2])) {
        let axis = self.axis;
        let [slow, fast] = [[1, 2], [0, 2], [0, 1]][axis];
        match (order, place) {
            (Order::Plain, Placement::Field { layout, first, step }) => {
                let strides = layout.strides();
                let offset =
                    first + layout.offset() + tile[slow].start * strides[slow] + tile[fast].start * strides[fast];
                ([offset, strides[fast], strides[slow], step * results], [strides[axis], 0, 0, 0], ([0; 2], [0; 2]))
            }
            (Order::Plain, Placement::Array { origin, extent }) => {
                let strides = [extent[1] * extent[2], extent[2], 1];
                let offset: u64 = [slow, fast].iter().map(|&a| (tile[a].start - origin[a]) * strides[a]).sum();
                let field = extent.iter().product::<u64>() * results;
                ([offset, strides[fast], strides[slow], field], [strides[axis], 0, 0, 0], ([0; 2], [0; 2]))
            }
            (Order::Blocked, place) => {
                let (origin, extent) = match place {
                    Placement::Array { origin, extent } => (origin, extent),
                    Placement::Field { layout, .. } => ([0; 3], extent_of(layout)),
                };
                // From one line to the next, among those before the axis and those after it.
                let outer = |a: usize| if a < axis { (a + 1..axis).map(|b| extent[b]).product() } else { 0 };
                let inner = |a: usize| if a > axis { (a + 1..3).map(|b| extent[b]).product() } else { 0 };
                let before: u64 = extent[..axis].iter().product();
                let width: u64 = extent[axis + 1..].iter().product();
                let lines = self.fields[side] * before * width;
                let first = |step: &dyn Fn(usize) -> u64| {
                    [slow, fast].iter().map(|&a| (tile[a].start - origin[a]) * step(a)).sum::<u64>()
                };
                let (n, ranks) = (if side == 0 { self.before } else { self.after }[axis], self.ranks[side]);
                let small = n / ranks;
                (
                    [lines, outer(fast), outer(slow), before * results],
                    [width, inner(fast), inner(slow), 0],
                    ([n % ranks * (small + 1), small], [first(&outer), first(&inner)]),
                )
            }
        }
    }
}

fn extent_of(layout: &FieldLayout) -> [u64; 3] {
    extent(&layout.own)
}

/// The transform of fields for one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is transformed.
    pub spec: Spec,
    /// The process grid.
    pub grid: Grid,
    /// This rank.
    pub rank: usize,
    /// This rank's part of the field.
    pub field: Box3,
    /// This rank's part of the spectrum, C order.
    pub spectrum: Box3,
    /// From field to spectrum.
    pub forward: Route,
    /// From spectrum to field.
    pub inverse: Route,
}

/// What is done on a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Copy,
    Forward,
    Backward,
    Filter(u32),
}

impl Plan {
    /// Plans the transform of `spec` for `rank` of `grid` on devices with `limits`, with exchanges in `pieces` pieces at
    /// most.
    ///
    /// # Errors
    /// [`FftError`] for what cannot be transformed.
    pub fn new(spec: &Spec, grid: Grid, rank: usize, limits: Limits, pieces: u64) -> Result<Self, FftError> {
        spec.check()?;
        if rank >= grid.ranks() {
            return Err(LayoutError::Grid { parts: grid.parts(), ranks: rank + 1 }.into());
        }
        let planner = Planner { spec, grid, rank, limits, pieces: pieces.max(1) };
        let there = planner.path(Act::Forward);
        let back: Vec<_> = there
            .iter()
            .rev()
            .map(|&(axis, act)| (axis, if act == Act::Forward { Act::Backward } else { act }))
            .collect();
        let (field, mut state) = planner.start();
        let forward = planner.route(&mut state, &there)?;
        let spectrum = planner.part(&state);
        let inverse = planner.route(&mut state, &back)?;
        Ok(Plan { spec: spec.clone(), grid, rank, field, spectrum, forward, inverse })
    }

    /// Where the modes of this rank lie, and which they are.
    pub fn spectrum_layout(&self) -> SpectrumLayout {
        SpectrumLayout { values: self.spec.values, shape: self.spec.modes, part: self.spectrum.clone() }
    }

    /// The route from field to field that multiplies the spectrum on the way and gives `results` fields for each; none
    /// where the last axis needs more than one pass or is a real line.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn filter(&self, results: u32, limits: Limits, pieces: u64) -> Result<Option<Route>, FftError> {
        let planner = Planner { spec: &self.spec, grid: self.grid, rank: self.rank, limits, pieces: pieces.max(1) };
        let mut there: Vec<_> = planner
            .path(Act::Forward)
            .into_iter()
            .filter(|&(_, act)| act == Act::Forward || act == Act::Copy)
            .collect();
        // The way back of a natural distribution is not gone.
        while there.len() > 1 && there.last().is_some_and(|&(_, act)| act == Act::Copy) {
            there.pop();
        }
        let Some((axis, Act::Forward)) = there.pop() else { return Ok(None) };
        if axis == 2 && self.spec.values == Values::Real {
            return Ok(None);
        }
        let back = there.iter().rev().map(|&(axis, act)| (axis, if act == Act::Forward { Act::Backward } else { act }));
        let path: Vec<_> = there.iter().copied().chain([(axis, Act::Filter(results))]).chain(back).collect();
        let (_, mut state) = planner.start();
        match planner.route(&mut state, &path) {
            Err(FftError::TooLong { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(route) => Ok(Some(route)),
        }
    }
}

/// The array on its way: elements of the whole along each axis, which line of the grid cuts it, and how many fields.
struct State {
    lengths: [u64; 3],
    cuts: [Option<usize>; 3],
    fields: u64,
}

struct Planner<'a> {
    spec: &'a Spec,
    grid: Grid,
    rank: usize,
    limits: Limits,
    pieces: u64,
}

impl Planner<'_> {
    fn start(&self) -> (Box3, State) {
        let state = State { lengths: self.spec.cells, cuts: [Some(0), Some(1), None], fields: self.spec.fields };
        (self.part(&state), state)
    }

    /// This rank's part of an array.
    fn part(&self, state: &State) -> Box3 {
        let at = self.grid.at(self.rank);
        [0, 1, 2].map(|axis| match state.cuts[axis] {
            Some(line) => split(state.lengths[axis], self.grid.along(line) as u64, at[line] as u64),
            None => 0..state.lengths[axis],
        })
    }

    /// Visits from the field to the spectrum.
    fn path(&self, act: Act) -> Vec<(usize, Act)> {
        let mut path: Vec<_> =
            [2, 1, 0].into_iter().filter(|&axis| self.spec.axes[axis]).map(|axis| (axis, act)).collect();
        if !self.spec.axes[2] {
            // Whole from the beginning, it goes first.
            path.insert(0, (2, Act::Copy));
        }
        if self.spec.distribution == Distribution::Natural {
            let back: Vec<_> = path.iter().rev().skip(1).map(|&(axis, _)| (axis, Act::Copy)).collect();
            path.extend(back);
        }
        path
    }

    fn route(&self, state: &mut State, path: &[(usize, Act)]) -> Result<Route, FftError> {
        let mut route = Route { visits: Vec::new(), between: Vec::new() };
        let ranks = |axis: usize, cuts: &[Option<usize>; 3]| cuts[axis].map_or(1, |line| self.grid.along(line) as u64);
        let mut arrived = 1;
        for (i, &(axis, act)) in path.iter().enumerate() {
            let next = path.get(i + 1).map(|&(next, _)| next);
            let leaves = next.map_or(1, |next| ranks(next, &state.cuts));
            let visit = self.visit(state, axis, act, [arrived, leaves], path.len() == 1)?;
            route.visits.push(visit);
            let Some(next) = next else { break };
            let line = state.cuts[next].unwrap_or(2);
            let third = 3 - axis - next;
            let pieces = (leaves > 1).then(|| self.transpose(state, line, axis, next, third));
            route.between.push(pieces);
            (state.cuts[axis], state.cuts[next]) = (state.cuts[next], None);
            arrived = leaves;
        }
        Ok(route)
    }

    fn transpose(&self, state: &State, line: usize, goes: usize, comes: usize, third: usize) -> Transpose {
        let part = self.part(state);
        let thickness = part[third].end - part[third].start;
        let count = self.pieces.min(thickness).max(1);
        Transpose {
            line,
            goes,
            comes,
            third,
            pieces: (0..count).map(|i| split(thickness, count, i)).collect(),
            ranks: [self.grid.along(line) as u64, self.grid.at(self.rank)[line] as u64],
            lengths: [state.lengths[goes], state.lengths[comes]],
            fields: state.fields,
        }
    }

    fn visit(&self, state: &mut State, axis: usize, act: Act, ranks: [u64; 2], only: bool) -> Result<Visit, FftError> {
        let spec = self.spec;
        let before = self.part(state);
        let n = spec.points[axis];
        let real = axis == 2 && spec.values == Values::Real;
        let order = |ranks: u64| if ranks > 1 { Order::Blocked } else { Order::Plain };
        let part = |of: u64, span: Span| if of < n { span } else { Span::Whole };
        let cells = Side {
            view: if real { View::Real } else { View::Complex },
            order: Order::Plain,
            span: part(spec.cells[axis], Span::Head(spec.cells[axis])),
        };
        let modes = Side {
            view: if real { View::Half } else { View::Complex },
            order: Order::Plain,
            span: part(spec.modes[axis], Span::Modes(spec.modes[axis])),
        };
        let moved = Side { view: View::Complex, order: Order::Plain, span: Span::Whole };
        let (work, n, [input, output]) = match act {
            Act::Copy => (Work::Copy, state.lengths[axis], [moved, moved]),
            Act::Forward => (Work::Forward, n, [cells, modes]),
            Act::Backward => (Work::Backward, n, [modes, cells]),
            Act::Filter(results) => (Work::Filter(results), n, [cells, cells]),
        };
        let [input, output] = [Side { order: order(ranks[0]), ..input }, Side { order: order(ranks[1]), ..output }];
        let idle = act == Act::Copy && ranks == [1, 1] && !only;
        let passes = if idle {
            Vec::new()
        } else {
            let too_long = || FftError::TooLong { n, limit: self.limits.workgroup_bytes / spec.precision.bytes() };
            axis::passes(spec.precision, axis, n, work, [input, output], self.limits).ok_or_else(too_long)?
        };
        let fields = [
            state.fields,
            if let Act::Filter(results) = act { state.fields * u64::from(results) } else { state.fields },
        ];
        state.lengths[axis] = output.stored(n);
        state.fields = fields[1];
        let after = self.part(state);
        let visit = Visit {
            axis,
            passes,
            fields,
            before: extent(&before),
            after: extent(&after),
            first: [0, 1, 2].map(|a| before[a].start),
            ranks,
        };
        // Indices are u32, and so are twice those of complex numbers seen as pairs.
        let mut arrays = [(visit.before, fields[0]), (visit.after, fields[1]), (visit.before, fields[0])];
        arrays[2].0[axis] = visit.positions();
        for (extent, fields) in arrays {
            let elements = extent.iter().map(|&n| u128::from(n)).product::<u128>() * u128::from(fields);
            if elements > 1 << 32 {
                return Err(FftError::TooLarge { elements });
            }
        }
        Ok(visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::volume;

    const LIMITS: Limits =
        Limits { workgroup_bytes: 16384, invocations: 256, points: 16, alone: 16, shared: true, columns: 16 };

    fn plan(spec: &Spec, parts: [usize; 2], rank: usize) -> Plan {
        let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
        Plan::new(spec, grid, rank, LIMITS, 3).unwrap()
    }

    #[test]
    fn a_transform_reads_and_writes_each_axis_once() {
        let n = 128u64;
        let real = plan(&Spec::new(Values::Real, [n; 3]), [1, 1], 0);
        let half = (n / 2 + 1) as f64 / (n as f64 / 2.0);
        // z: 4 read, 4 h written; y and x: 4 h read and written each, a real point; h = (n/2 + 1) / (n/2).
        let expected = 4.0 + 5.0 * 4.0 * half;
        for route in [&real.forward, &real.inverse] {
            assert_eq!((route.passes().count(), route.exchanges().count()), (3, 0));
            let bytes = route.traffic() as f64 / (n * n * n) as f64;
            assert!((bytes - expected).abs() < 1e-12 && (bytes - 24.0).abs() < 1.0, "{bytes} bytes a point");
        }
        let complex = plan(&Spec::new(Values::Complex, [n; 3]), [1, 1], 0);
        assert_eq!(complex.forward.traffic(), 48 * n * n * n);
        // Forward, multiply, inverse in five passes, and a force of three components in ten.
        let filter = |results: u32| real.filter(results, LIMITS, 1).unwrap().unwrap();
        assert_eq!(filter(1).passes().count(), 5);
        let bytes = |results: u32| filter(results).traffic() as f64 / (n * n * n) as f64;
        assert!((bytes(1) - 2.0 * (4.0 + 4.0 * half) - 6.0 * 4.0 * half).abs() < 1e-12, "{}", bytes(1));
        let three = (4.0 + 4.0 * half) + 8.0 * half + 4.0 * 4.0 * half + 3.0 * 8.0 * half + 3.0 * (4.0 + 4.0 * half);
        assert!((bytes(3) - three).abs() < 1e-12, "{} {three}", bytes(3));
    }

    #[test]
    fn axes_that_are_not_transformed_cost_nothing() {
        let spec = |axes: [bool; 3]| Spec::new(Values::Complex, [8, 12, 10]).axes(axes);
        let count = |axes: [bool; 3], parts: [usize; 2]| {
            let plan = plan(&spec(axes), parts, 0);
            (plan.forward.passes().count(), plan.forward.exchanges().count())
        };
        assert_eq!(count([false, false, true], [2, 2]), (1, 0));
        assert_eq!(count([false, true, true], [2, 2]), (2, 1));
        assert_eq!(count([true, false, true], [2, 2]), (2, 1));
        assert_eq!(count([true, true, false], [1, 1]), (2, 0));
        assert_eq!(count([true, true, false], [2, 1]), (2, 1));
        // Only packing remains of an axis that is in the way.
        assert_eq!(count([true, false, false], [2, 2]), (2, 1));
        assert_eq!(count([true, true, true], [2, 2]), (3, 2));
    }

    #[test]
    fn what_is_sent_is_received() {
        for (shape, parts) in [
            ([8, 8, 8], [2, 2]),
            ([9, 10, 12], [3, 1]),
            ([9, 10, 12], [1, 4]),
            ([3, 5, 7], [5, 1]),
            ([4, 2, 6], [2, 4]),
            ([1, 1, 1], [2, 3]),
            ([16, 12, 6], [4, 3]),
        ] {
            for spec in [
                Spec::new(Values::Real, shape),
                Spec::new(Values::Real, shape).natural(),
                Spec::new(Values::Complex, shape).axes([true, false, true]).fields(2),
                Spec::new(Values::Complex, shape).axes([true, true, false]).natural(),
            ] {
                let ranks = parts[0] * parts[1];
                let plans: Vec<_> = (0..ranks).map(|rank| plan(&spec, parts, rank)).collect();
                let modes: u64 = plans.iter().map(|plan| volume(&plan.spectrum)).sum();
                assert_eq!(modes, spec.spectrum().iter().product::<u64>(), "every mode is somewhere");
                if spec.distribution == Distribution::Natural {
                    assert!(plans.iter().all(|plan| plan.field[..2] == plan.spectrum[..2]));
                }
                let grid = plans[0].grid;
                for route in [|plan: &Plan| plan.forward.clone(), |plan: &Plan| plan.inverse.clone()] {
                    for (rank, plan) in plans.iter().enumerate() {
                        for (i, exchange) in route(plan).exchanges().enumerate() {
                            let line = grid.neighbours(rank, exchange.line);
                            let me = line.iter().position(|&r| r == rank).unwrap();
                            for piece in 0..exchange.pieces.len() {
                                for part in exchange.transfers(piece).send {
                                    let theirs = route(&plans[line[part.peer]]);
                                    let theirs = theirs.exchanges().nth(i).unwrap();
                                    assert_eq!(theirs.pieces.len(), exchange.pieces.len());
                                    let received = theirs.transfers(piece).receive;
                                    let received = received.iter().find(|received| received.peer == me).unwrap();
                                    assert_eq!(received.len, part.len, "{shape:?} {parts:?} {rank} -> {}", part.peer);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
