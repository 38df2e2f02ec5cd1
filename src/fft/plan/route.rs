//! Routes: one direction of a transform, its exchanges and its arrays.

use super::stage::Stage;
use super::transpose::Transpose;
use crate::fft::axis::AxisPass;
use crate::fft::line::Work;

/// One direction of a transform: stages and the exchanges between them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The stages.
    pub(crate) stages: Vec<Stage>,
    /// The exchange between stage `i` and `i + 1`, if any.
    pub(crate) between: Vec<Option<Transpose>>,
}

impl Route {
    /// Returns the bytes that device memory moves for the passes, reading and writing. Counts whole sectors of
    /// [`SECTOR`](crate::gpu::SECTOR) bytes, of which a narrow tile of lines uses only a part.
    pub fn traffic(&self) -> u64 {
        self.stages.iter().map(Stage::traffic).sum()
    }

    /// Returns the bytes of the sectors that the transforms along an axis move for each of its lines; the same
    /// on all ranks.
    pub(super) fn moved_along(&self, axis: usize) -> u64 {
        let passes = self.passes().filter(|(stage, pass)| stage.axis == axis && pass.kernel.work != Work::Copy);
        passes.map(|(_, pass)| pass.moved(u64::MAX)).sum()
    }

    /// Returns the exchanges, in order.
    pub fn exchanges(&self) -> impl Iterator<Item = &Transpose> {
        self.between.iter().flatten()
    }

    /// Returns the passes, in order.
    pub(crate) fn passes(&self) -> impl Iterator<Item = (&Stage, &AxisPass)> {
        self.stages.iter().flat_map(|stage| stage.passes.iter().map(move |pass| (stage, pass)))
    }
}
