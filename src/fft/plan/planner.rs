//! Derives stages and exchanges from the description of a transform and the process grid.

use super::{Buffer, Layers, Route, Stage, Transpose, Whole, buffers};
use crate::fft::axis::{self, AxisPass};
use crate::fft::line::{LineFormat, Order, Side, Span, Work};
use crate::fft::{Distribution, FftError, Limits, Spec, Values};
use crate::gpu::LONGEST;
use crate::grid::{Box3, Grid, Shares, extent, split};

/// The operation of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageKind {
    Copy,
    Forward,
    Backward,
    /// The transpose of a forward transform: the same sign on the route back.
    Transpose,
    Filter(u32),
    /// Backward, with the results of this number of fields as the numbers of vectors.
    BackwardToVectors(u32),
    /// Backward, with several results of the last field.
    Spread {
        from: u32,
        to: u32,
    },
}

impl StageKind {
    /// Returns the operation on the route from the spectrum to the field.
    pub fn reversed(self) -> Self {
        if self == StageKind::Forward { StageKind::Backward } else { self }
    }

    /// Returns the transpose of the operation.
    pub fn transposed(self) -> Self {
        if self == StageKind::Forward { StageKind::Transpose } else { self }
    }

    /// Returns the number of fields after the operation on `fields` fields.
    fn fields_after(self, fields: u64) -> u64 {
        match self {
            StageKind::Filter(results) => fields.saturating_mul(results.into()),
            StageKind::BackwardToVectors(together) => fields / u64::from(together),
            StageKind::Spread { from, to } => (fields / u64::from(from)).saturating_mul(to.into()),
            _ => fields,
        }
    }
}

/// The array between two stages: elements of the whole array along each axis, the axis of the grid
/// that cuts it, and the number of fields.
pub(super) struct State {
    lengths: [u64; 3],
    cuts: [Option<usize>; 3],
    fields: u64,
}

/// One rank of a grid and the transform that it plans.
pub(super) struct Planner<'a> {
    pub spec: &'a Spec,
    pub grid: Grid,
    pub rank: usize,
    pub limits: Limits,
    pub pieces: u64,
}

impl Planner<'_> {
    /// Returns this rank's part of the field, and the state before the first stage.
    pub fn start(&self) -> (Box3, State) {
        let state = State { lengths: self.spec.cells, cuts: [Some(0), Some(1), None], fields: self.spec.fields };
        (self.part(&state), state)
    }

    /// Returns this rank's part of an array.
    pub fn part(&self, state: &State) -> Box3 {
        let at = self.grid.at(self.rank);
        [0, 1, 2].map(|axis| match state.cuts[axis] {
            Some(line) => self.grid.shares_along(line).split(state.lengths[axis], at[line]),
            None => 0..state.lengths[axis],
        })
    }

    /// Returns the axis and operation of each stage from the field to the spectrum.
    pub fn path(&self, kind: StageKind) -> Vec<(usize, StageKind)> {
        let mut path: Vec<_> =
            [2, 1, 0].into_iter().filter(|&axis| self.spec.axes[axis]).map(|axis| (axis, kind)).collect();
        if !self.spec.axes[2] {
            // The last axis is whole at the beginning, so it comes first.
            path.insert(0, (2, StageKind::Copy));
        }
        if self.spec.distribution == Distribution::Natural {
            let back: Vec<_> = path.iter().rev().skip(1).map(|&(axis, _)| (axis, StageKind::Copy)).collect();
            path.extend(back);
        }
        path
    }

    /// Returns whether a stage computes anything. The transform of one point is that point.
    pub fn computes(&self, axis: usize, kind: StageKind) -> bool {
        match kind {
            StageKind::Copy => false,
            StageKind::BackwardToVectors(_) | StageKind::Spread { .. } | StageKind::Filter(_) => true,
            StageKind::Forward | StageKind::Backward | StageKind::Transpose => {
                self.spec.points[axis] > 1 || axis == 2 && self.spec.values == Values::Real
            }
        }
    }

    /// Returns the stages of a path and the exchanges between them. `state` becomes the state after
    /// the last stage.
    pub fn route(&self, state: &mut State, path: &[(usize, StageKind)]) -> Result<Route, FftError> {
        let mut route = Route { stages: Vec::new(), between: Vec::new(), layers: Vec::new(), whole: None };
        let mut shares = [Shares::from(1); 2];
        let none_computes = !path.iter().any(|&(axis, kind)| self.computes(axis, kind));
        for (i, &(axis, kind)) in path.iter().enumerate() {
            let next = path.get(i + 1).map(|&(next, _)| next);
            let cut = next.and_then(|next| state.cuts[next]);
            shares = [shares[1], cut.map_or(Shares::from(1), |grid_axis| self.grid.shares_along(grid_axis))];
            // A stage that neither computes nor packs is left out, unless it is the only one.
            let packs = shares.iter().any(|side| side.ranks() > 1);
            let idle = !(self.computes(axis, kind) || packs || none_computes && i == 0);
            let (length, sides) = self.sides(state, axis, kind, shares);
            let passes = if idle { Vec::new() } else { self.passes(axis, kind, length, sides)? };
            route.stages.push(self.stage(state, (axis, passes), kind, shares, sides[1].stored(length))?);
            let Some(next) = next else { break };
            let transpose =
                cut.filter(|_| shares[1].ranks() > 1).map(|grid_axis| self.transpose(state, grid_axis, axis, next));
            route.between.push(transpose);
            (state.cuts[axis], state.cuts[next]) = (cut, None);
        }
        route.whole = Whole::new(&route.stages, self.limits);
        route.layers = layers_of(&route, self.limits);
        Ok(route)
    }

    fn transpose(&self, state: &State, grid_axis: usize, from_axis: usize, to_axis: usize) -> Transpose {
        let third = 3 - from_axis - to_axis;
        let part = &self.part(state)[third];
        let thickness = part.end - part.start;
        let count = self.pieces.min(thickness).max(1);
        Transpose {
            grid_axis,
            from_axis,
            to_axis,
            third,
            pieces: (0..count).map(|i| split(thickness, count, i)).collect(),
            shares: self.grid.shares_along(grid_axis),
            position: self.grid.at(self.rank)[grid_axis],
            lengths: [state.lengths[from_axis], state.lengths[to_axis]],
            fields: state.fields,
        }
    }

    /// Returns the points of a stage's transform, and the form of its lines as they are read and
    /// written. Arrays that are exchanged among several ranks are in blocks.
    fn sides(&self, state: &State, axis: usize, kind: StageKind, shares: [Shares; 2]) -> (u64, [Side; 2]) {
        let spec = self.spec;
        let n = spec.points[axis];
        let real = axis == 2 && spec.values == Values::Real;
        let side = |format: LineFormat, span: Span| Side { format, order: Order::Strided, span };
        let part = |of: u64, span: Span| if of < n { span } else { Span::Whole };
        let [cell, mode] = if real { [LineFormat::Real, LineFormat::Half] } else { [LineFormat::Complex; 2] };
        let cells = side(cell, part(spec.cells[axis], Span::Head(spec.cells[axis])));
        let modes = side(mode, part(spec.modes[axis], Span::Modes(spec.modes[axis])));
        let (length, sides) = match kind {
            StageKind::Copy => (state.lengths[axis], [side(LineFormat::Complex, Span::Whole); 2]),
            StageKind::Forward => (n, [cells, modes]),
            StageKind::Backward | StageKind::Transpose | StageKind::Spread { .. } => (n, [modes, cells]),
            StageKind::BackwardToVectors(together) => {
                (n, [modes, Side { format: LineFormat::Vectors(together), ..cells }])
            }
            StageKind::Filter(_) => (n, [cells; 2]),
        };
        let order = |shares: Shares| match shares.ranks() {
            1 => Order::Strided,
            _ if shares.are_equal() => Order::Blocked,
            _ => Order::Listed,
        };
        (length, [0, 1].map(|i| Side { order: order(shares[i]), ..sides[i] }))
    }

    fn passes(&self, axis: usize, kind: StageKind, n: u64, sides: [Side; 2]) -> Result<Vec<AxisPass>, FftError> {
        let work = match kind {
            StageKind::Copy => Work::Copy,
            StageKind::Forward | StageKind::Transpose => Work::Forward,
            StageKind::Backward | StageKind::BackwardToVectors(_) => Work::Backward,
            StageKind::Filter(results) => Work::Filter(results),
            StageKind::Spread { from, to } => Work::Spread { from, to },
        };
        let precision = self.spec.precision;
        axis::passes(precision, axis, n, work, sides, self.limits)
            .ok_or(FftError::TooLong { n, limit: self.limits.workgroup_bytes / precision.bytes() })
    }

    /// Returns a stage that leaves `stored` elements along its axis, within the range of kernels.
    /// `state` becomes the state after it.
    fn stage(
        &self,
        state: &mut State,
        (axis, passes): (usize, Vec<AxisPass>),
        kind: StageKind,
        shares: [Shares; 2],
        stored: u64,
    ) -> Result<Stage, FftError> {
        let (before, fields) = (self.part(state), [state.fields, kind.fields_after(state.fields)]);
        (state.lengths[axis], state.fields) = (stored, fields[1]);
        let stage = Stage {
            axis,
            passes,
            fields,
            before: extent(&before),
            after: extent(&self.part(state)),
            first: [0, 1, 2].map(|a| before[a].start),
            shares,
        };
        // Indices are u32, and so are twice the indices of complex numbers used as pairs.
        for (extent, fields) in [(stage.before, fields[0]), (stage.after, fields[1]), (stage.scratch(), fields[0])] {
            let elements = extent.into_iter().chain([fields]).map(u128::from).fold(1, u128::saturating_mul);
            if elements > u128::from(LONGEST) {
                return Err(FftError::TooLarge { elements });
            }
        }
        Ok(stage)
    }
}

/// Returns the pairs of stages of a route that run layer by layer.
fn layers_of(route: &Route, limits: Limits) -> Vec<Layers> {
    let buffers = buffers(route, 0);
    let mut all: Vec<Layers> = Vec::new();
    for (first, between) in route.between.iter().enumerate() {
        let is_free = between.is_none() && all.last().is_none_or(|last| last.first + 1 < first);
        let in_place = matches!(
            buffers[first..first + 2],
            [Buffer::Output, Buffer::Output] | [Buffer::Work | Buffer::InPlace, Buffer::InPlace]
        );
        let stages = [&route.stages[first], &route.stages[first + 1]];
        all.extend(Layers::new(first, stages, in_place, limits).filter(|_| is_free));
    }
    all
}
