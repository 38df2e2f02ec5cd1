//! The bytes of arrays that a dispatch reaches, and parts of a stage that reach one window of each
//! array.
//!
//! An array larger than a binding has several windows. Every access to it chooses one, with about
//! 25 instructions (`benches/results`). Lines along z and y lie in a plane of x, so a range of
//! planes is a range of the array, which is bound as one window. Lines along x cross the array and
//! need all its windows.

use std::ops::Range;

use super::line::{LineKernel, LineParams, Side};
use super::plan::{Stage, StagePart};
use crate::gpu::{Callback, RawArray};

/// The elements that a pass reads.
#[derive(Clone)]
pub(super) enum PassInput {
    /// All elements from an array.
    Array(RawArray),
    /// All elements from the output, in place.
    InPlace,
    /// Results of `fn on_source(at: vec4<u32>) -> T`, a real or complex number for each cell.
    /// `at` is as in [`TransformCallbacks`](super::TransformCallbacks). Kernels read one source:
    /// its arrays and parameters may change from run to run, its text may not.
    Source(Callback),
}

/// The input and the output of a pass.
#[derive(Clone)]
pub(super) struct PassArrays {
    /// The input.
    pub input: PassInput,
    /// The output.
    pub output: RawArray,
}

/// Returns the bytes of the input and of the output that a dispatch reaches; `None` for an array in
/// blocks, over which lines are spread.
fn reached(kernel: &LineKernel, params: &LineParams) -> [Option<Range<u64>>; 2] {
    let [c0, c1, result, lines] = params.line_sizes.map(u64::from);
    let fields = lines / (c0 * c1 * kernel.count());
    let along = |side: &Side, first: [u32; 4], stride: u32, [fields, results]: [u64; 2]| {
        let ([offset, s0, s1, s2], points) = (first.map(u64::from), side.stored(kernel.n));
        let steps = [(c0, s0), (c1, s1), (fields, s2), (points, u64::from(stride)), (results, result)];
        if side.order.is_blocked() || steps.iter().any(|(count, _)| *count == 0) {
            return None;
        }
        let last = offset + steps.iter().map(|(count, step)| (count - 1) * step).sum::<u64>();
        let bytes = side.number(kernel.precision);
        Some(offset * bytes..(last + 1) * bytes)
    };
    [
        along(&kernel.input, params.line_input, params.line_input_more[0], [fields * kernel.fields(), 1]),
        along(&kernel.output, params.line_output, params.line_output_more[0], [fields, kernel.results()]),
    ]
}

impl PassArrays {
    /// Returns the bytes that a dispatch reaches in the input and in the output; in place, all in
    /// the output. The arrays of a source are not counted.
    fn reached(&self, kernel: &LineKernel, params: &LineParams) -> [Option<Range<u64>>; 2] {
        match (reached(kernel, params), &self.input) {
            (both, PassInput::Array(_)) => both,
            ([_, output], PassInput::Source(_)) => [None, output],
            ([Some(a), Some(b)], PassInput::InPlace) => [None, Some(a.start.min(b.start)..a.end.max(b.end))],
            (_, PassInput::InPlace) => [None, None],
        }
    }

    /// Returns the array of the input and that of the output.
    fn arrays(&self) -> [Option<&RawArray>; 2] {
        let input = if let PassInput::Array(array) = &self.input { Some(array) } else { None };
        [input, Some(&self.output)]
    }

    /// Returns the bytes between the first and the last one that a dispatch reaches, of all its
    /// arrays.
    pub fn span(&self, kernel: &LineKernel, params: &LineParams) -> u64 {
        self.reached(kernel, params).into_iter().flatten().map(|bytes| bytes.end - bytes.start).sum()
    }

    /// Returns parts of `whole` that reach one window of each array in which one plane of one field
    /// does; all of `whole` if no array has windows.
    pub fn parts(
        &self,
        stage: &Stage,
        whole: StagePart,
        kernel: &LineKernel,
        params: &dyn Fn(&StagePart) -> LineParams,
    ) -> Vec<StagePart> {
        let (slow, arrays) = (stage.across()[0], self.arrays());
        if arrays.iter().flatten().all(|array| array.windows() == 1) {
            return vec![whole];
        }
        let reached = |part: &StagePart| self.reached(kernel, &params(part));
        let least = reached(&whole.first(slow));
        let wanted = [0, 1].map(|side| {
            let (Some(array), Some(bytes)) = (arrays[side], &least[side]) else { return None };
            array.may_hold(bytes.end - bytes.start).then_some(array)
        });
        let fits = |part: &StagePart| {
            wanted.iter().zip(reached(part)).all(|sides| match sides {
                (Some(array), Some(bytes)) => array.in_one_window(bytes).is_some(),
                _ => true,
            })
        };
        whole.halved_until(slow, &fits)
    }

    /// Returns the windows that a dispatch reaches, and its parameters for them.
    pub fn narrowed(&self, kernel: &LineKernel, mut params: LineParams) -> (PassArrays, LineParams) {
        let (mut narrow, [input, output]) = (self.clone(), self.reached(kernel, &params));
        let counted = |base: u64, side: &Side| (base / side.number(kernel.precision)) as u32;
        if let Some((window, base)) = self.arrays()[0].zip(input).and_then(|(array, bytes)| array.in_one_window(bytes))
        {
            narrow.input = PassInput::Array(window);
            params.line_input[0] -= counted(base, &kernel.input);
        }
        if let Some((window, base)) = output.and_then(|bytes| self.output.in_one_window(bytes)) {
            narrow.output = window;
            params.line_output[0] -= counted(base, &kernel.output);
            if matches!(self.input, PassInput::InPlace) {
                params.line_input[0] -= counted(base, &kernel.input);
            }
        }
        (narrow, params)
    }
}

impl StagePart {
    /// Returns the first plane of the axis `slow`, of the first field.
    fn first(&self, slow: usize) -> StagePart {
        let one = |range: &Range<u64>| range.start..range.end.min(range.start + 1);
        let mut part = StagePart { cells: self.cells.clone(), fields: one(&self.fields) };
        part.cells[slow] = one(&self.cells[slow]);
        part
    }

    /// Halves the part until each piece fits or is one plane of the axis `slow` of one field.
    fn halved_until(self, slow: usize, fits: &dyn Fn(&StagePart) -> bool) -> Vec<StagePart> {
        let len = |range: &Range<u64>| range.end.saturating_sub(range.start);
        let fields = len(&self.fields) > 1;
        if fits(&self) || (!fields && len(&self.cells[slow]) < 2) {
            return vec![self];
        }
        let mut halves = [self.clone(), self];
        let [a, b] = &mut halves;
        let (a, b) = if fields { (&mut a.fields, &mut b.fields) } else { (&mut a.cells[slow], &mut b.cells[slow]) };
        a.end = a.start + len(a) / 2;
        b.start = a.end;
        halves.into_iter().flat_map(|half| half.halved_until(slow, fits)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::core::FLOOR;
    use crate::fft::plan::{Placement, Plan, Route};
    use crate::fft::spec::{Spec, Values};
    use crate::grid::{FieldLayout, Grid};

    fn plan(values: Values) -> Plan {
        let spec = Spec { values, ..Spec::of::<f32>([5, 4, 6]) }.fields(2);
        Plan::new(&spec, Grid::new([1, 1], 1).unwrap(), 0, FLOOR, 1).unwrap()
    }

    /// Returns the bytes that the lines of a dispatch reach, counted one by one.
    fn one_by_one(side: &Side, kernel: &LineKernel, params: &LineParams, first: [u32; 4], stride: u32) -> Range<u64> {
        let [c0, c1, _, lines] = params.line_sizes;
        let line = |line: u32| [line % c0, line / c0 % c1, line / c0 / c1];
        let at = |c: [u32; 3], p: u64| {
            let [offset, s0, s1, s2] = first.map(u64::from);
            offset + s0 * u64::from(c[0]) + s1 * u64::from(c[1]) + s2 * u64::from(c[2]) + p * u64::from(stride)
        };
        let points = side.stored(kernel.n);
        let all = (0..lines).flat_map(|l| (0..points).map(move |p| (l, p))).map(|(l, p)| at(line(l), p));
        let bytes = side.number(kernel.precision);
        all.clone().min().unwrap() * bytes..(all.max().unwrap() + 1) * bytes
    }

    #[test]
    fn what_is_reached_is_what_lines_reach() {
        for plan in [plan(Values::Complex), plan(Values::Real)] {
            let layout = FieldLayout::new(plan.field.clone(), [[1, 0], [0, 2], [1, 1]]);
            let filter = plan.filter(3, FLOOR, 1).unwrap().unwrap();
            for route in [&plan.forward, &plan.inverse, &filter] {
                every_part(route, &layout);
            }
        }
    }

    fn every_part(route: &Route, layout: &FieldLayout) {
        for (stage, pass) in route.passes() {
            let (kernel, extents) = (&pass.kernel, [stage.before, stage.after]);
            let whole = StagePart { cells: stage.before.map(|n| 0..n), fields: 0..stage.fields[0] };
            let slow = stage.across()[0];
            let parts = whole.clone().halved_until(slow, &|_| false);
            assert_eq!(parts.len() as u64, stage.fields[0] * stage.before[slow]);
            let [array, other] = extents.map(|extent| Placement::Array { origin: [0; 3], extent, first: 0 });
            let field = Placement::Field { layout, first: 7, step: layout.len() };
            for part in parts.iter().chain([&whole]) {
                for input in [array, field] {
                    let params = stage.params(kernel, part, input, other);
                    let LineParams { line_input, line_input_more, line_output, line_output_more, .. } = params;
                    let [read, written] = reached(kernel, &params).map(Option::unwrap);
                    let want = one_by_one(&kernel.input, kernel, &params, line_input, line_input_more[0]);
                    assert_eq!(read, want, "{part:?}");
                    let want = one_by_one(&kernel.output, kernel, &params, line_output, line_output_more[0]);
                    let more = (kernel.results() - 1)
                        * u64::from(params.line_sizes[2])
                        * kernel.output.number(kernel.precision);
                    assert_eq!(written, want.start..want.end + more, "{part:?}");
                }
            }
        }
    }

    #[test]
    fn parts_cover_the_whole_in_as_few_pieces_as_halving_gives() {
        let whole = StagePart { cells: [0..13, 0..4, 0..6], fields: 0..3 };
        let planes =
            |part: &StagePart| (part.fields.end - part.fields.start) * (part.cells[0].end - part.cells[0].start);
        let parts = whole.clone().halved_until(0, &|part| planes(part) <= 4);
        assert_eq!(parts.iter().map(planes).collect::<Vec<_>>(), [3, 3, 3, 4, 3, 3, 3, 4, 3, 3, 3, 4]);
        assert!(parts.windows(2).all(|two| two[0].cells[0].end == two[1].cells[0].start || two[1].cells[0].start == 0));
        assert_eq!(whole.clone().halved_until(0, &|_| true), std::slice::from_ref(&whole));
        // An empty part is one piece.
        let empty = StagePart { cells: [0..0, 0..4, 0..6], fields: 0..1 };
        assert_eq!(empty.clone().halved_until(0, &|_| false), std::slice::from_ref(&empty));
        assert_eq!(whole.first(0), StagePart { cells: [0..1, 0..4, 0..6], fields: 0..1 });
    }
}
