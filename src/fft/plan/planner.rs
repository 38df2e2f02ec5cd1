//! How visits and exchanges follow from what is transformed and how it is cut.

use super::{Route, Stage, Transpose};
use crate::fft::axis;
use crate::fft::core::Limits;
use crate::fft::error::FftError;
use crate::fft::line::{Order, Side, Span, View, Work};
use crate::fft::spec::{Distribution, Spec, Values};
use crate::gpu::LONGEST;
use crate::grid::{Box3, Grid, extent, split};

/// What is done on a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageKind {
    Copy,
    Forward,
    Backward,
    Filter(u32),
}

/// The array on its way: elements of the whole along each axis, which line of the grid cuts it, and how many fields.
pub(super) struct State {
    lengths: [u64; 3],
    cuts: [Option<usize>; 3],
    fields: u64,
}

/// One rank of a grid, and what it plans.
pub(super) struct Planner<'a> {
    pub spec: &'a Spec,
    pub grid: Grid,
    pub rank: usize,
    pub limits: Limits,
    pub pieces: u64,
}

impl Planner<'_> {
    /// This rank's part of the field, and the field as it sets out.
    pub fn start(&self) -> (Box3, State) {
        let state = State { lengths: self.spec.cells, cuts: [Some(0), Some(1), None], fields: self.spec.fields };
        (self.part(&state), state)
    }

    /// This rank's part of an array.
    pub fn part(&self, state: &State) -> Box3 {
        let at = self.grid.at(self.rank);
        [0, 1, 2].map(|axis| match state.cuts[axis] {
            Some(line) => split(state.lengths[axis], self.grid.along(line) as u64, at[line] as u64),
            None => 0..state.lengths[axis],
        })
    }

    /// Visits from the field to the spectrum.
    pub fn path(&self, act: StageKind) -> Vec<(usize, StageKind)> {
        let mut path: Vec<_> =
            [2, 1, 0].into_iter().filter(|&axis| self.spec.axes[axis]).map(|axis| (axis, act)).collect();
        if !self.spec.axes[2] {
            // Whole from the beginning, it goes first.
            path.insert(0, (2, StageKind::Copy));
        }
        if self.spec.distribution == Distribution::Natural {
            let back: Vec<_> = path.iter().rev().skip(1).map(|&(axis, _)| (axis, StageKind::Copy)).collect();
            path.extend(back);
        }
        path
    }

    /// The visits of a path and what lies between them; `state` arrives at their end.
    pub fn route(&self, state: &mut State, path: &[(usize, StageKind)]) -> Result<Route, FftError> {
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

    fn visit(
        &self,
        state: &mut State,
        axis: usize,
        act: StageKind,
        ranks: [u64; 2],
        only: bool,
    ) -> Result<Stage, FftError> {
        let spec = self.spec;
        let before = self.part(state);
        let n = spec.points[axis];
        let real = axis == 2 && spec.values == Values::Real;
        let order = |ranks: u64| if ranks > 1 { Order::Blocked } else { Order::DeviceElement };
        let part = |of: u64, span: Span| if of < n { span } else { Span::Whole };
        let cells = Side {
            view: if real { View::Real } else { View::Complex },
            order: Order::DeviceElement,
            span: part(spec.cells[axis], Span::Head(spec.cells[axis])),
        };
        let modes = Side {
            view: if real { View::Half } else { View::Complex },
            order: Order::DeviceElement,
            span: part(spec.modes[axis], Span::Modes(spec.modes[axis])),
        };
        let moved = Side { view: View::Complex, order: Order::DeviceElement, span: Span::Whole };
        let (work, n, [input, output]) = match act {
            StageKind::Copy => (Work::Copy, state.lengths[axis], [moved, moved]),
            StageKind::Forward => (Work::Forward, n, [cells, modes]),
            StageKind::Backward => (Work::Backward, n, [modes, cells]),
            StageKind::Filter(results) => (Work::Filter(results), n, [cells, cells]),
        };
        let [input, output] = [Side { order: order(ranks[0]), ..input }, Side { order: order(ranks[1]), ..output }];
        let idle = act == StageKind::Copy && ranks == [1, 1] && !only;
        let passes = if idle {
            Vec::new()
        } else {
            let too_long = || FftError::TooLong { n, limit: self.limits.workgroup_bytes / spec.precision.bytes() };
            axis::passes(spec.precision, axis, n, work, [input, output], self.limits).ok_or_else(too_long)?
        };
        let fields = [
            state.fields,
            if let StageKind::Filter(results) = act { state.fields * u64::from(results) } else { state.fields },
        ];
        state.lengths[axis] = output.stored(n);
        state.fields = fields[1];
        let after = self.part(state);
        let visit = Stage {
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
            if elements > u128::from(LONGEST) {
                return Err(FftError::TooLarge { elements });
            }
        }
        Ok(visit)
    }
}
