//! Which arrays the stages of a route write, as few as possible. Pure.

use super::route::Route;
use super::stage::Stage;
use crate::fft::axis::AxisPass;

/// Where a stage writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The caller's output.
    Output,
    /// The caller's output as scratch: what a stage writes there is sent before the output itself is written.
    OutputAsScratch,
    /// The working array that it reads.
    InPlace,
    /// A working array of its own.
    Work,
    /// The pieces of an exchange.
    Pieces,
}

/// The buffer of each stage of a route whose output has `output` complex elements that may serve as scratch.
pub fn buffers(route: &Route, output: u64) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::new();
    // From the last stage on: one that can work inside the output lets the stage before it write there.
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
        if reads_work && stage.fields[0] == stage.fields[1] && can_work_in_place(stage) {
            buffers[i] = Buffer::InPlace;
        } else if buffers.get(i + 1) == Some(&Buffer::Pieces) && stage.written() <= output {
            buffers[i] = Buffer::OutputAsScratch;
        }
    }
    buffers
}

/// Whether a stage may read and write the same array.
fn can_work_in_place(stage: &Stage) -> bool {
    let moves = |pass: &AxisPass| pass.kernel.input != pass.kernel.output || pass.kernel.four_step.is_some();
    // Several results of one field would be written over the next field.
    let apart = stage.fields[0] == stage.fields[1] || stage.fields[0] == 1;
    let still = stage.ranks == [1, 1] && stage.before == stage.after && !stage.passes.iter().any(moves);
    stage.passes.len() < 2 && apart && still
}

impl Route {
    /// Bytes of all arrays that it needs at once besides the caller's, and of those that it still holds at its end, where `bytes` says what an array of so
    /// many complex elements takes: what was recorded before an exchange is held until it has run. The output has `output` complex elements that may
    /// serve as scratch.
    pub(crate) fn working(&self, output: u64, bytes: &dyn Fn(u64) -> u64) -> [u64; 2] {
        let (mut held, mut most) = (0, 0);
        for (i, buffer) in buffers(self, output).into_iter().enumerate() {
            let stage = &self.stages[i];
            held += scratch(stage, bytes);
            match (buffer, self.between.get(i).and_then(Option::as_ref)) {
                (Buffer::Work, _) if !stage.passes.is_empty() => held += bytes(stage.written()),
                (Buffer::Pieces, Some(transpose)) => {
                    let pieces = 0..transpose.pieces.len();
                    let [sent, received] = [0, 1]
                        .map(|side: usize| pieces.clone().map(|p| bytes(transpose.elements(p)[side])).sum::<u64>());
                    most = most.max(held + sent + received);
                    held = received;
                }
                _ => {}
            }
            most = most.max(held);
        }
        [most, held]
    }
}

/// Bytes of the scratch between the passes of a stage.
fn scratch(stage: &Stage, bytes: &dyn Fn(u64) -> u64) -> u64 {
    let [_, middle @ .., _] = &stage.passes[..] else { return 0 };
    let moves = |pass: &&AxisPass| pass.kernel.four_step.is_some_and(|step| step.input != step.output);
    let arrays = 1 + middle.iter().filter(moves).count() as u64;
    bytes(stage.scratch().iter().product::<u64>() * stage.fields[0]) * arrays
}
