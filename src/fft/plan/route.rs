//! Routes: one direction of a transform, its exchanges and its arrays.

use super::{Layers, Stage, Whole};
use crate::fft::axis::AxisPass;
use crate::fft::line::Work;
use crate::grid::{Box3, Cost, Shares, Transfer, Transfers};
use std::ops::Range;

/// One direction of a transform: stages and the exchanges between them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The stages.
    pub(crate) stages: Vec<Stage>,
    /// The exchange between stage `i` and `i + 1`, if any.
    pub(crate) between: Vec<Option<Transpose>>,
    /// The pairs of stages that run layer by layer, in order.
    pub(crate) layers: Vec<Layers>,
    /// The form of the route in one dispatch, for two arrays of one window each.
    pub(crate) whole: Option<Whole>,
}

impl Route {
    /// Returns the bytes that device memory moves for the passes, reading and writing. Counts whole
    /// sectors of [`SECTOR`](crate::gpu::SECTOR) bytes, of which a narrow tile of lines uses only a
    /// part.
    #[must_use]
    pub fn traffic(&self) -> u64 {
        let computing = || self.stages.iter().filter(|stage| !stage.passes.is_empty());
        match (&self.whole, computing().next(), computing().next_back()) {
            (Some(_), Some(first), Some(last)) => first.read_bytes() + last.written_bytes(),
            _ => (0..self.stages.len()).map(|i| self.stage_traffic(i)).sum(),
        }
    }

    /// Returns the part of [`traffic`](Self::traffic) of stage `i`.
    pub(crate) fn stage_traffic(&self, i: usize) -> u64 {
        (0..self.stages[i].passes.len()).map(|pass| self.pass_traffic(i, pass)).sum()
    }

    /// Returns the part of [`traffic`](Self::traffic) of pass number `pass` of stage `i`. The cache
    /// holds the elements between stages that run layer by layer.
    pub(crate) fn pass_traffic(&self, i: usize, pass: usize) -> u64 {
        let stage = &self.stages[i];
        let written = if self.layers_from(i).is_some() { stage.written_bytes() } else { 0 };
        let read = if self.layers_into(i).is_some() { stage.read_bytes() } else { 0 };
        stage.pass_traffic(pass).saturating_sub(written + read)
    }

    /// Returns the layers in which stage `i` and the next one run.
    pub(crate) fn layers_from(&self, i: usize) -> Option<&Layers> {
        self.layers.iter().find(|layers| layers.first == i)
    }

    /// Returns the layers in which stage `i` runs after the stage before it.
    pub(crate) fn layers_into(&self, i: usize) -> Option<&Layers> {
        self.layers.iter().find(|layers| layers.first + 1 == i)
    }

    /// Returns the number of dispatches.
    pub(crate) fn dispatches(&self) -> u64 {
        if self.whole.is_some() {
            return 1;
        }
        let of_stage = |i: usize| {
            let layers = self.layers_from(i).or_else(|| self.layers_into(i));
            self.stages[i].passes.len() as u64 * layers.map_or(1, |layers| layers.groups * layers.count)
        };
        (0..self.stages.len()).map(of_stage).sum()
    }

    /// Returns the bytes of the sectors that the transforms along an axis move for each of its
    /// lines; the same on all ranks.
    pub(super) fn moved_along(&self, axis: usize) -> u64 {
        let passes = self.passes().filter(|(stage, pass)| stage.axis == axis && pass.kernel.work != Work::Copy);
        passes.map(|(_, pass)| pass.moved(u64::MAX)).sum()
    }

    /// Returns the exchanges, in order.
    pub fn exchanges(&self) -> impl Iterator<Item = &Transpose> {
        self.between.iter().flatten()
    }

    /// Returns the exchange whose pieces stage `i` reads, if it reads any: stages without passes
    /// leave pieces as they are.
    pub(crate) fn pieces_before(&self, i: usize) -> Option<&Transpose> {
        (0..i)
            .rev()
            .take_while(|&j| j + 1 == i || self.stages[j + 1].passes.is_empty())
            .find_map(|j| self.between[j].as_ref())
    }

    /// Returns the parts of the input of stage `i` that arrive one by one: all of it, or the pieces
    /// of the exchange before it.
    pub(crate) fn tiles(&self, i: usize) -> Vec<Box3> {
        pieces_of(&self.stages[i], self.pieces_before(i))
    }

    /// Returns the parts of the output of stage `i` that are sent one by one: all of it, or the
    /// pieces of the exchange after it.
    pub(crate) fn pieces(&self, i: usize) -> Vec<Box3> {
        pieces_of(&self.stages[i], self.between.get(i).and_then(Option::as_ref))
    }

    /// Returns the steps of stage `i`: each tile of the input is transformed when it arrives, and
    /// each piece of the output is sent as soon as it is written. Stages that run layer by layer
    /// need all of their input first, and write all of their output before they send.
    pub(crate) fn steps(&self, i: usize) -> Vec<StageStep> {
        let (before, after) = (self.pieces_before(i), self.between.get(i).and_then(Option::as_ref));
        let whole = whole_of(&self.stages[i]);
        let (tiles, pieces) = (self.tiles(i), self.pieces(i));
        let last_pass = self.stages[i].passes.len().saturating_sub(1);
        let mut steps = Vec::new();
        for (number, tile) in tiles.iter().enumerate() {
            steps.extend(before.map(|_| StageStep::Arrive));
            if last_pass > 0 {
                steps.push(StageStep::Pass { pass: 0, cells: tile.clone(), piece: 0 });
                continue;
            }
            for (piece, part) in pieces.iter().enumerate() {
                steps.push(StageStep::Pass { pass: 0, cells: intersection(tile, part), piece });
                steps.extend(after.filter(|_| number + 1 == tiles.len()).map(|_| StageStep::Send { piece }));
            }
        }
        if last_pass > 0 {
            steps.extend((1..last_pass).map(|pass| StageStep::Pass { pass, cells: whole.clone(), piece: 0 }));
            for (piece, part) in pieces.into_iter().enumerate() {
                steps.push(StageStep::Pass { pass: last_pass, cells: part, piece });
                steps.extend(after.map(|_| StageStep::Send { piece }));
            }
        }
        if self.layers_from(i).is_some() {
            steps.sort_by_key(|step| *step != StageStep::Arrive);
        }
        if self.layers_into(i).is_some() {
            steps.sort_by_key(|step| matches!(step, StageStep::Send { .. }));
        }
        steps
    }

    /// Returns the elements of the working array that stage `i` writes: those that it writes, or
    /// more if the next stage makes more of them in place.
    pub(crate) fn work_len(&self, i: usize) -> u64 {
        let is_apart = self.layers_from(i + 1).is_some_and(|layers| !layers.in_place);
        let next = self.stages.get(i + 1).filter(|next| !is_apart && spreads(next) && can_work_in_place(next));
        next.map_or(0, Stage::written).max(self.stages[i].written())
    }

    /// Returns `true` if one field becomes several after its first stage backwards.
    pub(crate) fn spreads(&self) -> bool {
        self.stages.iter().any(spreads)
    }

    /// Returns the passes, in order.
    pub(crate) fn passes(&self) -> impl Iterator<Item = (&Stage, &AxisPass)> {
        self.stages.iter().flat_map(|stage| stage.passes.iter().map(move |pass| (stage, pass)))
    }
}

/// An exchange among the ranks of one axis of the process grid, which cuts `from_axis` and makes
/// `to_axis` whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transpose {
    /// The axis of the process grid along which ranks exchange.
    pub grid_axis: usize,
    /// The axis of the mesh that is whole before and cut after.
    pub from_axis: usize,
    /// The axis of the mesh that is cut before and whole after.
    pub to_axis: usize,
    /// The axis that the exchange does not change and that is cut into pieces.
    pub third: usize,
    /// The pieces, as ranges of this rank's extent of the third axis.
    pub pieces: Vec<Range<u64>>,
    /// Shares of the ranks along the axis of the grid.
    pub(super) shares: Shares,
    /// This rank's position among them.
    pub(super) position: usize,
    /// Elements of the whole array along `from_axis` and `to_axis`.
    pub(super) lengths: [u64; 2],
    /// Number of fields.
    pub(super) fields: u64,
}

impl Transpose {
    /// Returns this rank's elements along `from_axis` when it is cut.
    #[must_use]
    pub fn share(&self) -> u64 {
        self.shares.len_of(self.lengths[0], self.position)
    }

    /// Returns the elements along `to_axis` when it is whole.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.lengths[1]
    }

    /// Returns the elements of the arrays of one piece, before and after.
    #[must_use]
    pub fn elements(&self, piece: usize) -> [u64; 2] {
        let transfers = self.transfers(piece);
        let end = |parts: &[Transfer]| parts.iter().map(|part| part.start + part.len).max().unwrap_or(0);
        [end(&transfers.send), end(&transfers.receive)]
    }

    /// Returns the elements that this rank sends and receives in one piece.
    #[must_use]
    pub fn transfers(&self, piece: usize) -> Transfers {
        let (shares, me) = (self.shares, self.position);
        let [from_axis, to_axis] = self.lengths;
        let planes = self.fields * (self.pieces[piece].end - self.pieces[piece].start);
        let parts = |size: &dyn Fn(usize) -> u64| {
            let mut start = 0;
            (0..shares.ranks())
                .map(|peer| {
                    let part = Transfer { peer, start, len: size(peer) };
                    start += part.len;
                    part
                })
                .collect()
        };
        Transfers {
            send: parts(&|peer| planes * shares.len_of(to_axis, me) * shares.len_of(from_axis, peer)),
            receive: parts(&|peer| planes * shares.len_of(to_axis, peer) * shares.len_of(from_axis, me)),
        }
    }

    /// Returns the elements of one piece that this rank keeps.
    #[must_use]
    pub fn kept(&self, piece: usize) -> u64 {
        self.transfers(piece).send.iter().filter(|part| part.peer == self.position).map(|part| part.len).sum()
    }

    /// Returns the cost of all pieces for this rank, with elements of `element` bytes in messages
    /// of at most `chunk` bytes.
    #[must_use]
    pub fn cost(&self, element: u64, chunk: u64) -> Cost {
        let mut cost = Cost::default();
        let chunk = (chunk / element).max(1) * element;
        (0..self.pieces.len()).for_each(|piece| cost += self.transfers(piece).cost(self.position, element, chunk));
        cost
    }
}

/// One step of a stage, in the order in which a run takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageStep {
    /// Waits until the next piece of the exchange before the stage has arrived.
    Arrive,
    /// Runs pass number `pass` over `cells`, to a piece of the output.
    Pass {
        /// Index of the pass in the stage.
        pass: usize,
        /// Cells of this rank's part.
        cells: Box3,
        /// The piece of the output; 0 without an exchange after the stage, and between passes.
        piece: usize,
    },
    /// Starts the exchange of a piece of the output.
    Send {
        /// The piece.
        piece: usize,
    },
}

/// The array that a stage writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The caller's output.
    Output,
    /// The caller's output as scratch: an exchange sends its contents before the output itself is
    /// written.
    OutputAsScratch,
    /// The working array that the stage reads.
    InPlace,
    /// A new working array.
    Work,
    /// The pieces of an exchange.
    Pieces,
    /// Two new arrays of a layer each, in turn.
    Layers,
}

/// Returns the buffer of each stage of a route, with as few arrays as possible. The output has
/// `output` complex elements that may serve as scratch.
pub fn buffers(route: &Route, output: u64) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::new();
    // Starts at the last stage: if it can work inside the output, the stage before it writes there.
    for i in (0..route.stages.len()).rev() {
        let next = buffers.last().copied();
        buffers.push(match (route.between.get(i), next) {
            (None, _) | (_, None) => Buffer::Output,
            (Some(Some(_)), _) => Buffer::Pieces,
            (Some(None), Some(Buffer::Output)) if can_work_in_place(&route.stages[i + 1]) => Buffer::Output,
            _ => Buffer::Work,
        });
    }
    buffers.reverse();
    for i in (0..buffers.len()).filter(|&i| buffers[i] == Buffer::Work).collect::<Vec<_>>() {
        let stage = &route.stages[i];
        let reads_work = i > 0
            && !matches!(buffers[i - 1], Buffer::Output | Buffer::Pieces)
            && !route.stages[i - 1].passes.is_empty();
        let fits = stage.fields[0] == stage.fields[1] || spreads(stage);
        if reads_work && fits && can_work_in_place(stage) {
            buffers[i] = Buffer::InPlace;
        } else if buffers.get(i + 1) == Some(&Buffer::Pieces) && stage.written() <= output {
            buffers[i] = Buffer::OutputAsScratch;
        }
    }
    for layers in route.layers.iter().filter(|layers| !layers.in_place) {
        buffers[layers.first] = Buffer::Layers;
    }
    buffers
}

/// Returns whether a stage may read and write the same array: each of its lines stays in place. The
/// first of several passes reads everything into scratch before the last one writes.
fn can_work_in_place(stage: &Stage) -> bool {
    // Several results of one field would overwrite the next field, unless they are made in an order
    // that leaves it to the last.
    let apart = stage.fields[0] == stage.fields[1] || stage.fields[0] == 1 || spreads(stage);
    let read = stage.passes.first().map(|pass| pass.kernel.input);
    let written = stage.passes.last().map(|pass| pass.kernel.output);
    stage.shares == [Shares::from(1); 2] && stage.before == stage.after && read == written && apart
}

/// Returns whether a stage makes several results of its last field.
fn spreads(stage: &Stage) -> bool {
    stage
        .passes
        .iter()
        .any(|pass| matches!(pass.kernel.work, Work::Spread { from, .. } if stage.fields[0] == u64::from(from)))
}

/// Returns all cells of a stage.
fn whole_of(stage: &Stage) -> Box3 {
    stage.before.map(|n| 0..n)
}

/// Returns the cells of a stage in the pieces of an exchange, or all of them without one.
fn pieces_of(stage: &Stage, transpose: Option<&Transpose>) -> Vec<Box3> {
    let whole = whole_of(stage);
    match transpose {
        None => vec![whole],
        Some(transpose) => transpose.pieces.iter().map(|range| restricted(&whole, transpose.third, range)).collect(),
    }
}

/// Returns a part without the cells outside of `range` along an axis.
pub(crate) fn restricted(part: &Box3, axis: usize, range: &Range<u64>) -> Box3 {
    let mut part = part.clone();
    part[axis] = range.clone();
    part
}

fn intersection(a: &Box3, b: &Box3) -> Box3 {
    [0, 1, 2].map(|axis| {
        let start = a[axis].start.max(b[axis].start);
        start..a[axis].end.min(b[axis].end).max(start)
    })
}

impl Route {
    /// Returns the bytes of all arrays that the route needs at one time besides the caller's, and
    /// of those that it still holds at its end. `bytes` returns the bytes of an array of a number
    /// of complex elements. Arrays of work recorded before an exchange are held until the exchange
    /// has run. The output has `output` complex elements that may serve as scratch.
    pub(crate) fn working(&self, output: u64, bytes: &dyn Fn(u64) -> u64) -> [u64; 2] {
        let (mut held, mut most) = (0, 0);
        // Pieces of the exchange before that are still being sent while the first is transformed.
        let mut sending = 0;
        // Lengths of the scratch arrays since the last exchange; stages share them.
        let mut scratch: Vec<u64> = Vec::new();
        for (i, buffer) in buffers(self, output).into_iter().enumerate() {
            let stage = &self.stages[i];
            let (len, needed) = (stage.scratch_len(), stage.scratch_arrays());
            let there = scratch.iter().filter(|other| **other == len).count();
            for _ in there..needed {
                held += bytes(len);
                scratch.push(len);
            }
            match (buffer, self.between.get(i).and_then(Option::as_ref)) {
                (Buffer::Work, _) if !stage.passes.is_empty() => held += bytes(self.work_len(i)),
                (Buffer::Layers, _) => {
                    let len = self.layers_from(i).map_or(0, |layers| layers.array_len(stage));
                    held += 2 * bytes(len);
                }
                (Buffer::Pieces, Some(transpose)) => {
                    let pieces = |side: usize| {
                        (0..transpose.pieces.len()).map(move |piece| bytes(transpose.elements(piece)[side]))
                    };
                    let received = pieces(1).sum::<u64>();
                    most = most.max(held + sending + pieces(0).sum::<u64>() + received);
                    (held, sending) = (received, pieces(0).skip(1).sum());
                    scratch.clear();
                    continue;
                }
                _ => {}
            }
            most = most.max(held + sending);
            if !stage.passes.is_empty() {
                sending = 0;
            }
        }
        [most, held]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::core::FLOOR;
    use crate::fft::plan::Plan;
    use crate::fft::spec::{Spec, Values};
    use crate::grid::Grid;

    fn plan(values: Values, parts: [usize; 2]) -> Plan {
        let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
        // Two passes along x and y, one along z.
        let plan = Plan::new(&Spec { values, ..Spec::of::<f32>([4096, 2048, 8]) }, grid, 0, FLOOR, 1).unwrap();
        let passes: Vec<_> = plan.forward.stages.iter().map(|stage| stage.passes.len()).collect();
        assert_eq!(passes, [1, 2, 2]);
        plan
    }

    #[test]
    fn stages_of_several_passes_work_in_place_and_share_scratch() {
        let elements = |route: &Route, output: u64| route.working(output, &|len| len);
        let whole = 4096 * 2048 * 8;
        let complex = plan(Values::Complex, [1, 1]);
        for route in [&complex.forward, &complex.inverse] {
            assert_eq!(buffers(route, 0), [Buffer::Output; 3]);
            assert_eq!(elements(route, 0), [whole; 2]);
        }
        // A field of real numbers is too small for its modes.
        let half = 4096 * 2048 * 5;
        let real = plan(Values::Real, [1, 1]);
        assert_eq!((buffers(&real.forward, half), elements(&real.forward, half)), (vec![Buffer::Output; 3], [half; 2]));
        assert_eq!(buffers(&real.inverse, 0), [Buffer::Work, Buffer::InPlace, Buffer::Output]);
        assert_eq!(elements(&real.inverse, 0), [2 * half; 2]);
        // An exchange releases the arrays of work recorded before it: first scratch of y and its
        // output, then scratch of x and the received pieces.
        let slabs = plan(Values::Complex, [2, 1]);
        let part = whole / 2;
        assert_eq!(buffers(&slabs.forward, 0), [Buffer::Work, Buffer::Pieces, Buffer::Output]);
        assert_eq!(elements(&slabs.forward, 0), [4 * part, 2 * part]);
    }
}
