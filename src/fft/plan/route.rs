//! One direction of a transform.

use super::stage::Stage;
use super::transpose::Transpose;
use crate::fft::axis::AxisPass;

/// One direction of a transform: stages, and the exchanges between them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The stages.
    pub(crate) stages: Vec<Stage>,
    /// Between stage `i` and `i + 1`: an exchange, or none.
    pub(crate) between: Vec<Option<Transpose>>,
}

impl Route {
    /// Bytes that the passes move through device memory, reading and writing.
    pub fn traffic(&self) -> u64 {
        self.stages.iter().map(Stage::traffic).sum()
    }

    /// The exchanges, in order.
    pub fn exchanges(&self) -> impl Iterator<Item = &Transpose> {
        self.between.iter().flatten()
    }

    /// The passes, in order.
    pub(crate) fn passes(&self) -> impl Iterator<Item = (&Stage, &AxisPass)> {
        self.stages.iter().flat_map(|stage| stage.passes.iter().map(move |pass| (stage, pass)))
    }
}
