//! Settings of a transform that change its speed and not its result, and the file that keeps them.

use super::error::{FftError, TransformError};
use super::options::{TransformOptions, TransformTuning};
use super::spec::{Spec, Value};
use super::transform::Transform;
use crate::comm::Communicator;
use crate::exchange::GridComms;
use crate::gpu::Gpu;
use crate::grid::Grid;

/// Settings of a distributed transform that change its speed. A [`Tuner`](super::Tuner) chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransformChoice {
    /// Ranks along each axis of the process grid.
    pub grid: [usize; 2],
    /// Shapes of kernels and pieces of exchanges.
    pub tuning: TransformTuning,
    /// Bytes per message.
    pub chunk_bytes: u64,
    /// Messages in flight each way.
    pub depth: usize,
}

impl TransformChoice {
    /// Returns the settings that are used without a search.
    pub fn usual(gpu: &Gpu, spec: &Spec, ranks: usize) -> Self {
        TransformChoice {
            grid: Grid::auto(spec.cells, ranks).parts(),
            tuning: TransformTuning::of(gpu),
            chunk_bytes: 2 << 20,
            depth: 8,
        }
    }

    /// Returns whether all numbers are in the range of a search: a file may have been edited.
    pub(super) fn is_usable(&self) -> bool {
        let TransformTuning { points, alone, columns, pieces, .. } = self.tuning;
        [points, alone, columns, pieces].iter().all(|number| (1..=1 << 12).contains(number))
            && (1..=1 << 10).contains(&self.depth)
            && (1 << 10..=1 << 30).contains(&self.chunk_bytes)
    }

    /// Creates the communicators of the process grid, with its size and number of messages. Collective.
    ///
    /// # Errors
    /// [`TransformError`] if the grid does not fit the ranks, or another rank fails.
    pub fn comms(&self, comm: &Communicator) -> Result<GridComms, TransformError> {
        Ok(GridComms::new(comm, Grid::new(self.grid, comm.size())?)?.with_chunks(self.chunk_bytes, self.depth))
    }

    /// Creates the transform of `spec` with these settings, for the rank of `comms`.
    ///
    /// # Errors
    /// Same as [`Transform::with`].
    pub fn transform<T: Value>(&self, gpu: &Gpu, spec: &Spec, comms: &GridComms) -> Result<Transform<T>, FftError> {
        let options = TransformOptions::default().tuning(self.tuning);
        Transform::with(gpu, spec, comms.grid(), comms.rank(), &options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Profile;

    #[test]
    fn a_remembered_choice_is_one_that_a_search_may_find() {
        for profile in [Profile::Gpu, Profile::Software] {
            let usual = TransformChoice {
                grid: [1, 1],
                tuning: TransformTuning::profile(profile),
                chunk_bytes: 2 << 20,
                depth: 8,
            };
            assert!(usual.is_usable());
            for number in [0, u64::MAX >> 1] {
                assert!(!TransformChoice { chunk_bytes: number, ..usual }.is_usable());
                assert!(!TransformChoice { depth: number as usize, ..usual }.is_usable());
                for change in [
                    |tuning: &mut TransformTuning, number| tuning.points = number,
                    |tuning: &mut TransformTuning, number| tuning.alone = number,
                    |tuning: &mut TransformTuning, number| tuning.columns = number,
                    |tuning: &mut TransformTuning, number| tuning.pieces = number,
                ] {
                    let mut wrong = usual;
                    change(&mut wrong.tuning, number);
                    assert!(!wrong.is_usable(), "{wrong:?}");
                }
            }
        }
    }
}
