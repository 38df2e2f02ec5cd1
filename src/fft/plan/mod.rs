//! The passes and exchanges of a distributed transform: pure data.
//!
//! ```text
//! field              x over p0, y over p1          z pass: real lines to half spectra, complex ones to whole
//!                    exchange along grid axis 1: y becomes whole, z is cut
//!                    x over p0, z over p1          y pass
//!                    exchange along grid axis 0: x becomes whole, y is cut
//! spectrum           y over p0, z over p1          x pass
//! ```
//!
//! - A transform has one *stage* for each axis; its axis is whole on every rank. Between two stages
//!   a *transpose* among the ranks of one axis of the process grid cuts one axis and makes the
//!   other whole. An exchange among one rank is left out: slabs (`p1 == 1`) exchange once, a single
//!   rank never. Axes that are not transformed have no stage.
//! - The inverse has the stages in reverse order. A natural distribution appends stages that only
//!   move data.
//! - Arrays stay in C order (x, y, z). No pass is needed for packing: the pass before an exchange
//!   writes the blocks of each peer, the pass after it reads the blocks as they arrive.
//! - An exchange may be cut into *pieces* along the axis that it does not change: one piece is sent
//!   while the next is transformed.

mod layers;
mod planner;
mod route;
mod stage;
mod whole;

use super::{FftError, Limits, Spec, SpectrumLayout, Values};
use crate::comm::Subject;
use crate::exchange::GridComms;
use crate::gpu::DeviceError;
use crate::grid::{Box3, Grid, LayoutError, volume};
use crate::hash::{START, fnv1a};
pub use layers::{Layer, Layers};
use planner::{Planner, StageKind};
pub(super) use route::restricted;
pub use route::{Buffer, Route, StageStep, Transpose, buffers};
pub use stage::{Placement, Stage, StagePart};
pub use whole::{Whole, WholePart};

/// The transform of fields for one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The description of the transform.
    pub spec: Spec,
    /// The process grid.
    pub grid: Grid,
    /// This rank.
    pub rank: usize,
    /// This rank's part of the field.
    pub field: Box3,
    /// This rank's part of the spectrum, C order.
    pub spectrum: Box3,
    /// The route from field to spectrum.
    pub forward: Route,
    /// The route from spectrum to field.
    pub inverse: Route,
}

impl Plan {
    /// Plans the transform of `spec` for `rank` of `grid` on devices with `limits`, with at most
    /// `pieces` pieces per exchange.
    ///
    /// # Errors
    /// [`FftError`] if the fields cannot be transformed.
    pub fn new(spec: &Spec, grid: Grid, rank: usize, limits: Limits, pieces: u64) -> Result<Self, FftError> {
        Self::forward_and_inverse(Planner { spec, grid, rank, limits, pieces: pieces.max(1) }, StageKind::reversed)
    }

    /// Same as [`new`](Self::new), with the transpose of the forward transform instead of the
    /// inverse.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub(crate) fn with_transpose(
        spec: &Spec,
        grid: Grid,
        rank: usize,
        limits: Limits,
        pieces: u64,
    ) -> Result<Self, FftError> {
        Self::forward_and_inverse(Planner { spec, grid, rank, limits, pieces: pieces.max(1) }, StageKind::transposed)
    }

    fn forward_and_inverse(planner: Planner<'_>, back: impl Fn(StageKind) -> StageKind) -> Result<Self, FftError> {
        let &Planner { spec, grid, rank, .. } = &planner;
        spec.check()?;
        if rank >= grid.ranks() {
            return Err(LayoutError::Rank { rank, parts: grid.parts() }.into());
        }
        let forward = planner.path(StageKind::Forward);
        let inverse: Vec<_> = forward.iter().rev().map(|&(axis, kind)| (axis, back(kind))).collect();
        let (field, mut state) = planner.start();
        let forward = planner.route(&mut state, &forward)?;
        let spectrum = planner.part(&state);
        let inverse = planner.route(&mut state, &inverse)?;
        Ok(Plan { spec: spec.clone(), grid, rank, field, spectrum, forward, inverse })
    }

    /// Returns the properties of a call that must be equal on all ranks, except for callbacks.
    pub(super) fn subject(&self, what: &str) -> Subject {
        let Spec { cells: [i, j, k], values, precision, .. } = self.spec;
        let text = format!("{what} of {i}x{j}x{k} {values:?} {precision:?}");
        let alike = format!("{:?}", (&self.spec, self.grid.parts()));
        Subject::new(&text).with(&[fnv1a(START, alike.as_bytes()), self.grid.shares().mark()])
    }

    /// Checks that `comms` have the process grid and the rank of the plan.
    pub(super) fn check_rank(&self, call: &str, comms: &GridComms) -> Result<(), DeviceError> {
        let (planned, given) = ((self.grid, self.rank), (comms.grid(), comms.rank()));
        let text = |(grid, rank): (Grid, usize)| format!("rank {rank} of {grid:?}");
        let why = || format!("it was planned for {} of the process grid and is run on {}", text(planned), text(given));
        DeviceError::ensure(planned == given, call, why)
    }

    /// Returns the modes of this rank, and their order in its array.
    #[must_use]
    pub fn spectrum_layout(&self) -> SpectrumLayout {
        SpectrumLayout { values: self.spec.values, shape: self.spec.modes, part: self.spectrum.clone() }
    }

    /// Returns the route from field to field that multiplies the spectrum and gives `results`
    /// fields for each.
    ///
    /// Returns `None` if the last axis needs more than one pass, if one pass moves more sectors of
    /// memory than two transforms, or if the axis is a real line. The number of results has no
    /// influence on that.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn filter(&self, results: u32, limits: Limits, pieces: u64) -> Result<Option<Route>, FftError> {
        self.filter_with(results, limits, pieces, |_, kind| kind.reversed())
    }

    /// Same as [`filter`](Self::filter), of a real field, with the results as the numbers of
    /// vectors: at most four. If the last axis is x, three results are spread from two fields by
    /// the pass along y, unless that would take several passes: the fused pass makes the first
    /// result and one field for the other two.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub(crate) fn vector_filter(&self, results: u32, limits: Limits, pieces: u64) -> Result<Option<Route>, FftError> {
        let back = |axis, kind: StageKind| match axis {
            2 => StageKind::BackwardToVectors(results),
            _ => kind.reversed(),
        };
        let spread = |axis, kind| if axis == 1 { StageKind::Spread { from: 2, to: results } } else { back(axis, kind) };
        if results == 3 && (0..3).all(|axis| self.spec.points[axis] > 1) {
            match self.filter_with(2, limits, pieces, spread) {
                Err(FftError::TooLong { .. }) => {}
                spread => return spread,
            }
        }
        self.filter_with(results, limits, pieces, back)
    }

    /// Returns the route from the spectrum to a number of the vectors of a field.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub(crate) fn inverse_to_vectors(&self, limits: Limits, pieces: u64) -> Result<Route, FftError> {
        let planner = self.planner(limits, pieces);
        let forward = planner.path(StageKind::Forward);
        let mut state = planner.start().1;
        planner.route(&mut state, &forward)?;
        let back = |&(axis, kind): &(usize, StageKind)| match axis {
            2 => (axis, StageKind::BackwardToVectors(1)),
            _ => (axis, kind.reversed()),
        };
        planner.route(&mut state, &forward.iter().rev().map(back).collect::<Vec<_>>())
    }

    fn planner(&self, limits: Limits, pieces: u64) -> Planner<'_> {
        Planner { spec: &self.spec, grid: self.grid, rank: self.rank, limits, pieces: pieces.max(1) }
    }

    /// Returns the route of a filter whose stages back to the field are `back`.
    fn filter_with(
        &self,
        results: u32,
        limits: Limits,
        pieces: u64,
        back: impl Fn(usize, StageKind) -> StageKind,
    ) -> Result<Option<Route>, FftError> {
        let planner = self.planner(limits, pieces);
        let mut path: Vec<_> = planner
            .path(StageKind::Forward)
            .into_iter()
            .filter(|&(_, kind)| kind == StageKind::Forward || kind == StageKind::Copy)
            .collect();
        // Copies that bring back a natural distribution are not needed, and axes of one point need
        // no stage.
        while path.len() > 1 && path.last().is_some_and(|&(axis, kind)| !planner.computes(axis, kind)) {
            path.pop();
        }
        let Some((axis, StageKind::Forward)) = path.pop() else { return Ok(None) };
        if axis == 2 && self.spec.values == Values::Real {
            return Ok(None);
        }
        let route = |results: u32, back: &dyn Fn(usize, StageKind) -> StageKind| {
            let back = path.iter().rev().map(|&(axis, kind)| (axis, back(axis, kind)));
            let whole: Vec<_> = path.iter().copied().chain([(axis, StageKind::Filter(results))]).chain(back).collect();
            planner.route(&mut planner.start().1, &whole)
        };
        let one = match route(1, &|_, kind| kind.reversed()) {
            Err(FftError::TooLong { .. }) => return Ok(None),
            one => one?,
        };
        // Each further result costs as much in either form as the first.
        let apart = self.forward.moved_along(axis) + self.inverse.moved_along(axis);
        let is_expensive = limits.shared && one.moved_along(axis) > apart;
        Ok(if is_expensive { None } else { Some(route(results, &back)?) })
    }

    /// Returns [`Route::working`] of a [`filter`](Self::filter) or
    /// [`vector_filter`](Self::vector_filter) with `results` results: of its own route, or of the
    /// transforms that replace it and the modes between them.
    pub(crate) fn filter_working(&self, fused: Option<Route>, results: u32, bytes: &dyn Fn(u64) -> u64) -> u64 {
        let modes = volume(&self.spectrum) * self.spec.fields;
        if let Some(route) = fused {
            return route.working(0, bytes)[0];
        }
        let inverses = (0..results).map(|_| (&self.inverse, 0));
        let (mut held, mut most) = (0, 0);
        for (route, output) in std::iter::once((&self.forward, modes)).chain(inverses) {
            let [needed, kept] = route.working(output, bytes);
            most = most.max(held + needed);
            // An exchange submits what was recorded before it.
            held = if route.exchanges().next().is_some() { kept } else { held + kept };
        }
        bytes(modes) + most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::core::FLOOR;
    use crate::fft::spec::Distribution;
    use crate::grid::Shares;

    fn plan(spec: &Spec, parts: [usize; 2], rank: usize) -> Plan {
        let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
        Plan::new(spec, grid, rank, FLOOR, 3).unwrap()
    }

    #[test]
    fn a_transform_reads_and_writes_each_axis_once() {
        let n = 128u64;
        let real = plan(&Spec::of::<f32>([n; 3]), [1, 1], 0);
        let half = (n / 2 + 1) as f64 / (n as f64 / 2.0);
        // z: 4 read, 4 h written; y and x: 4 h read and written each, a real point; h = (n/2 + 1) /
        // (n/2).
        let expected = 4.0 + 5.0 * 4.0 * half;
        for route in [&real.forward, &real.inverse] {
            assert_eq!((route.passes().count(), route.exchanges().count()), (3, 0));
            let bytes = route.traffic() as f64 / (n * n * n) as f64;
            assert!((bytes - expected).abs() < 1e-12 && (bytes - 24.0).abs() < 1.0, "{bytes} bytes per point");
        }
        let complex = plan(&Spec::of::<[f32; 2]>([n; 3]), [1, 1], 0);
        assert_eq!(complex.forward.traffic(), 48 * n * n * n);
        // Forward, multiply, inverse in five passes, and a force of three components in ten.
        let filter = |results: u32| real.filter(results, FLOOR, 1).unwrap().unwrap();
        assert_eq!(filter(1).passes().count(), 5);
        let bytes = |results: u32| filter(results).traffic() as f64 / (n * n * n) as f64;
        assert!((bytes(1) - 2.0 * (4.0 + 4.0 * half) - 6.0 * 4.0 * half).abs() < 1e-12, "{}", bytes(1));
        let three = (4.0 + 4.0 * half) + 8.0 * half + 4.0 * 4.0 * half + 3.0 * 8.0 * half + 3.0 * (4.0 + 4.0 * half);
        assert!((bytes(3) - three).abs() < 1e-12, "{} {three}", bytes(3));
        // Vectors take 16 bytes a cell in place of 12; the sectors of numbers alone are read and
        // written.
        let vectors = real.vector_filter(3, FLOOR, 1).unwrap().unwrap();
        // Two half fields less: one that the fused pass writes and one that the next reads.
        let half = 4.0 * half * (n * n * n) as f64;
        let expected = filter(3).traffic() as f64 + 4.0 * (n * n * n) as f64 - 2.0 * half;
        assert!((vectors.traffic() as f64 - expected).abs() < 1.0, "{} {expected}", vectors.traffic());
        assert_eq!((vectors.passes().count(), vectors.spreads()), (5, true));
        let apart = real.inverse_to_vectors(FLOOR, 1).unwrap();
        assert_eq!(apart.traffic() - real.inverse.traffic(), (32 - 4) * n * n * n);
    }

    #[test]
    fn axes_that_are_not_transformed_cost_nothing() {
        let spec = |axes: [bool; 3]| Spec::of::<[f32; 2]>([8, 12, 10]).axes(axes);
        let count = |axes: [bool; 3], parts: [usize; 2]| {
            let plan = plan(&spec(axes), parts, 0);
            (plan.forward.passes().count(), plan.forward.exchanges().count())
        };
        assert_eq!(count([false, false, true], [2, 2]), (1, 0));
        assert_eq!(count([false, true, true], [2, 2]), (2, 1));
        assert_eq!(count([true, false, true], [2, 2]), (2, 1));
        assert_eq!(count([true, true, false], [1, 1]), (2, 0));
        assert_eq!(count([true, true, false], [2, 1]), (2, 1));
        // An axis between two transformed ones only packs.
        assert_eq!(count([true, false, false], [2, 2]), (2, 1));
        assert_eq!(count([true, true, true], [2, 2]), (3, 2));
    }

    #[test]
    fn axes_of_one_point_cost_nothing() {
        let count = |spec: &Spec, parts: [usize; 2]| {
            let plan = plan(spec, parts, 0);
            assert_eq!(plan.forward.passes().count(), plan.inverse.passes().count());
            let filter = plan.filter(1, FLOOR, 1).unwrap().map(|route| route.passes().count());
            (plan.forward.passes().count(), plan.forward.exchanges().count(), filter)
        };
        for (values, line) in [(Values::Complex, Some(1)), (Values::Real, None)] {
            let spec = |shape: [u64; 3]| Spec { values, ..Spec::of::<f32>(shape) };
            assert_eq!(count(&spec([1, 12, 10]), [1, 1]), (2, 0, Some(3)));
            // A real line has no filter in one pass.
            assert_eq!(count(&spec([1, 1, 10]), [1, 1]), (1, 0, line));
            assert_eq!(count(&spec([1, 1, 1]), [1, 1]), (1, 0, line));
            assert_eq!(count(&spec([1, 12, 10]), [1, 3]), (2, 1, Some(3)));
            // If the axis is cut among ranks, its one point still moves to its owner.
            assert_eq!(count(&spec([1, 12, 10]), [2, 1]), (3, 1, Some(3)));
        }
        // A workgroup holds the array of the field, so that it is read and written once.
        let small = plan(&Spec::of::<[f32; 2]>([1, 12, 10]), [1, 1], 0).forward;
        assert_eq!((small.dispatches(), small.traffic()), (1, 16 * 120));
        assert_eq!(count(&Spec::of::<[f32; 2]>([12, 1, 1]), [1, 1]), (1, 0, Some(1)));
    }

    /// With equal shares and with unequal ones, of which the last gives the first rank nearly all.
    #[test]
    fn what_is_sent_is_received() {
        let all = [
            ([8, 8, 8], [2, 2]),
            ([9, 10, 12], [3, 1]),
            ([9, 10, 12], [1, 4]),
            ([3, 5, 7], [5, 1]),
            ([4, 2, 6], [2, 4]),
            ([1, 1, 1], [2, 3]),
            ([16, 12, 6], [4, 3]),
        ];
        let share =
            [|_: usize| 1.0, |rank: usize| (1 + rank * 5 % 7) as f64, |rank: usize| 1e4 / (1 + 99 * rank) as f64];
        for (share, (shape, parts)) in share.into_iter().flat_map(|share| all.map(|case| (share, case))) {
            let shares = Shares::new(&(0..parts[0] * parts[1]).map(share).collect::<Vec<f64>>()).unwrap();
            let whole = Grid::new(parts, shares).unwrap();
            let plan = |spec: &Spec, rank: usize| Plan::new(spec, whole, rank, FLOOR, 3).unwrap();
            for spec in [
                Spec::of::<f32>(shape),
                Spec::of::<f32>(shape).natural(),
                Spec::of::<[f32; 2]>(shape).axes([true, false, true]).fields(2),
                Spec::of::<[f32; 2]>(shape).axes([true, true, false]).natural(),
            ] {
                let plans: Vec<_> = (0..whole.ranks()).map(|rank| plan(&spec, rank)).collect();
                let modes: u64 = plans.iter().map(|plan| volume(&plan.spectrum)).sum();
                assert_eq!(modes, spec.spectrum().iter().product::<u64>(), "every mode is somewhere");
                if spec.distribution == Distribution::Natural {
                    assert!(plans.iter().all(|plan| plan.field[..2] == plan.spectrum[..2]));
                }
                let grid = plans[0].grid;
                for route in [|plan: &Plan| plan.forward.clone(), |plan: &Plan| plan.inverse.clone()] {
                    for (rank, plan) in plans.iter().enumerate() {
                        for (i, exchange) in route(plan).exchanges().enumerate() {
                            let line = grid.neighbors(rank, exchange.grid_axis);
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
