//! Which arrays the stages of a route write, as few as possible. Pure.

use super::route::Route;
use super::stage::Stage;

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
    let moves =
        |pass: &crate::fft::axis::AxisPass| pass.kernel.input != pass.kernel.output || pass.kernel.four_step.is_some();
    // Several results of one field would be written over the next field.
    let apart = stage.fields[0] == stage.fields[1] || stage.fields[0] == 1;
    let still = stage.ranks == [1, 1] && stage.before == stage.after && !stage.passes.iter().any(moves);
    stage.passes.len() < 2 && apart && still
}
