//! Transforms of several axes in one dispatch: a workgroup holds the whole array of a field.
//!
//! ```text
//! load -> lines along z -> workgroup memory -> lines along y -> .. -> store
//! ```
//!
//! Each line takes the arithmetic of its pass, so both forms have the same bits. Between the
//! stages of a line its points are exchanged in its own cells. A convolution, whose line is longer,
//! has cells of its own behind the array.
//!
//! Cost on a GPU, predicted for 64 x 64 complex points in f32 (two axes of two stages each): 32 KiB
//! are read and written once, and three exchanges move 64 KiB each at 128 bytes per clock, with
//! seven barriers. One core needs some 6000 clocks or 3.5 us, of which 2000 are arithmetic. Two
//! dispatches that depend on each other take 3 to 10 us each. More points than fit a workgroup need
//! more cores, so the size of its memory is the limit.

use super::stage::Stage;
use crate::fft::core::{Core, Limits};
use crate::fft::line::{Exchange, LineCells, LineFormat, LineWorkgroup, Order, Work};
use crate::gpu::REGISTERS;

/// Workgroup memory that is used at most. One core takes longer for more points than the dispatches
/// that they would save.
const MOST_BYTES: u64 = 48 << 10;

/// The transform of all axes of a field by one workgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The stages that compute, in order.
    pub parts: Vec<WholePart>,
    /// Cells from a point to the next along each axis of the array in workgroup memory; 0 along
    /// axes that workgroups share.
    pub strides: [u64; 3],
    /// Number of cells, complex numbers.
    pub cells: u64,
    /// Invocations of a workgroup.
    pub group: u64,
}

/// One stage of a whole transform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholePart {
    /// Number of the stage in its route.
    pub stage: usize,
    /// The layout of its lines over the workgroup, which takes them in rounds.
    pub shape: LineWorkgroup,
    /// Number of lines.
    pub lines: u64,
    /// The first cell in which lines exchange points, if it is not in the array.
    pub apart: Option<u64>,
}

/// Returns the points of the workgroup memory that a line needs between its stages.
fn exchanged(stage: &Stage) -> u64 {
    let pass = &stage.passes[0];
    pass.shape.core.exchanged(pass.kernel.core_points())
}

/// Returns `true` if a workgroup can take the pass of a stage: it is the only one, it computes, and
/// several invocations share a line that is longer than a butterfly.
fn is_whole(stage: &Stage) -> bool {
    let [pass] = &stage.passes[..] else { return false };
    let (kernel, plain) = (&pass.kernel, Order::Strided);
    stage.shares.iter().all(|shares| shares.ranks() == 1)
        && [kernel.input.order, kernel.output.order] == [plain; 2]
        && matches!(kernel.work, Work::Forward | Work::Backward | Work::Filter(1))
        && !matches!(kernel.output.format, LineFormat::Vectors(_))
        && kernel.four_step.is_none()
        && !pass.shape.core.loops()
}

impl Whole {
    /// Returns the form of a route in one dispatch; `None` if it is one pass, or if a pass or the
    /// array does not fit a workgroup. Software renderers run a workgroup on one core.
    pub fn new(stages: &[Stage], limits: Limits) -> Option<Self> {
        let computing: Vec<(usize, &Stage)> =
            stages.iter().enumerate().filter(|(_, stage)| !stage.passes.is_empty()).collect();
        let is_empty = |stage: &Stage| stage.before.contains(&0) || stage.fields[0] == 0;
        if !limits.shared || computing.len() < 2 || !computing.iter().all(|(_, s)| is_whole(s) && !is_empty(s)) {
            return None;
        }
        let cell = 2 * computing[0].1.passes[0].kernel.precision.bytes();
        let (strides, array) = layout(&computing);
        let free = (MOST_BYTES.min(limits.workgroup_bytes) / cell).checked_sub(array)?;
        let places = |stage: &Stage| {
            let pass = &stage.passes[0];
            let held = pass.shape.core.stages().held();
            let held = if matches!(pass.kernel.work, Work::Filter(_)) { 2 * held } else { held };
            limits.invocations.min(REGISTERS / (held * cell / 4 + 32))
        };
        let most = computing.iter().map(|(_, stage)| places(stage)).min()?;
        let mut cells = array;
        let mut parts = Vec::new();
        for &(number, stage) in &computing {
            let core = &stage.passes[0].shape.core;
            let across: u64 = (0..3).filter(|&a| a != stage.axis && strides[a] > 0).map(|a| stage.before[a]).product();
            let is_apart = matches!(core, Core::Bluestein { .. }) && exchanged(stage) > 0;
            let room = if is_apart { free / exchanged(stage) } else { across };
            let together = (most / core.stages().lanes).min(room);
            if together == 0 {
                return None;
            }
            // As many rounds as are needed, of equally many lines.
            let lines = across.div_ceil(across.div_ceil(together));
            if is_apart {
                cells = cells.max(array + lines * exchanged(stage));
            }
            let (core, lanes, cells) = (core.clone(), core.stages().lanes, LineCells::default());
            let shape = LineWorkgroup { core, lanes, lines, exchange: Exchange::Together, cells };
            parts.push(WholePart { stage: number, shape, lines: across, apart: is_apart.then_some(array) });
        }
        let group = parts.iter().map(|part| part.shape.lanes * part.shape.lines).max()?;
        Some(Whole { parts, strides, cells, group })
    }
}

/// Returns the cells from a point to the next along each axis that is transformed, and the number
/// of all cells. Along an axis lie as many points as are stored between stages or exchanged within
/// one.
fn layout(computing: &[(usize, &Stage)]) -> ([u64; 3], u64) {
    let last = computing.len() - 1;
    let (mut strides, mut cells) = ([0; 3], 1);
    for axis in (0..3).rev().filter(|axis| computing.iter().any(|(_, stage)| stage.axis == *axis)) {
        let mut points = 1;
        for (i, (_, stage)) in computing.iter().enumerate() {
            let is_own = stage.axis == axis && matches!(stage.passes[0].shape.core, Core::Direct(_));
            let within = if is_own { exchanged(stage) } else { 0 };
            let before = if i > 0 { stage.before[axis] } else { 0 };
            let after = if i < last { stage.after[axis] } else { 0 };
            points = points.max(within).max(before).max(after);
        }
        strides[axis] = cells;
        cells *= points;
    }
    (strides, cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::core::FLOOR;
    use crate::fft::plan::{Plan, Route};
    use crate::fft::spec::{Spec, Values};
    use crate::grid::Grid;

    fn plan(spec: &Spec, parts: [usize; 2], limits: Limits) -> Plan {
        Plan::new(spec, Grid::new(parts, parts[0] * parts[1]).unwrap(), 0, limits, 1).unwrap()
    }

    /// Lines of a round have cells of their own in the memory of the workgroup, and rounds take all
    /// lines.
    fn check(route: &Route, limits: Limits) {
        let whole = route.whole.as_ref().unwrap();
        assert!(8 * whole.cells <= limits.workgroup_bytes && whole.group <= limits.invocations, "{whole:?}");
        for part in &whole.parts {
            let stage = &route.stages[part.stage];
            let across = (0..3).filter(|&a| a != stage.axis && whole.strides[a] > 0);
            assert_eq!(part.lines, across.map(|a| stage.before[a]).product::<u64>());
            let LineWorkgroup { lanes, lines, .. } = part.shape;
            assert!(lanes * lines <= whole.group && (1..=part.lines).contains(&lines), "{part:?}");
            let points = exchanged(stage);
            match part.apart {
                Some(first) => assert!(first + lines * points <= whole.cells, "{part:?}"),
                // The next axis begins behind the points of a line.
                None => assert!(
                    whole
                        .strides
                        .iter()
                        .all(|&s| { s <= whole.strides[stage.axis] || s >= points * whole.strides[stage.axis] })
                ),
            }
        }
    }

    #[test]
    fn arrays_fit_a_workgroup_or_take_passes() {
        let gpu = Limits { workgroup_bytes: 48 << 10, invocations: 1024, ..FLOOR };
        for values in [Values::Real, Values::Complex] {
            let spec = |cells: [u64; 3]| Spec { values, ..Spec::of::<f32>(cells) };
            for (spec, limits) in [
                (spec([1, 64, 64]), gpu),
                (spec([1, 40, 48]), FLOOR),
                (spec([16, 12, 10]), FLOOR),
                (spec([1, 37, 41]), gpu),
                (spec([100, 20, 18]).axes([false, true, true]).fields(3), FLOOR),
                (spec([5, 6, 7]).points([10, 12, 14]).modes([6, 12, 9]), FLOOR),
            ] {
                let plan = plan(&spec, [1, 1], limits);
                check(&plan.forward, limits);
                check(&plan.inverse, limits);
                if let Some(filter) = plan.filter(1, limits, 1).unwrap() {
                    check(&filter, limits);
                }
                // Several results would need as many arrays.
                assert!(plan.filter(2, limits, 1).unwrap().is_none_or(|filter| filter.whole.is_none()));
            }
        }
        let whole = |cells: [u64; 3], parts: [usize; 2], limits: Limits| {
            plan(&Spec::of::<[f32; 2]>(cells), parts, limits).forward.whole.is_some()
        };
        assert!(whole([1, 64, 64], [1, 1], gpu) && !whole([1, 64, 64], [1, 1], FLOOR));
        assert!(!whole([1, 96, 96], [1, 1], gpu) && !whole([1, 1, 64], [1, 1], gpu));
        assert!(!whole([8, 8, 8], [2, 1], gpu) && !whole([1, 8, 8], [1, 1], Limits { shared: false, ..gpu }));
    }
}
