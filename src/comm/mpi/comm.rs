//! An MPI communicator with its number.

use std::sync::Arc;

use super::calls::Handle;
use super::status::LastCalls;

/// An MPI communicator behind a [`Communicator`](crate::comm::Communicator). As long as it exists, messages on it may be
/// under way.
pub(super) struct Comm {
    pub handle: Handle,
    /// Its number in the family.
    pub context: u64,
    /// Its ranks, counted in the first communicator of its family.
    pub members: Arc<[usize]>,
    pub last_calls: Arc<LastCalls>,
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.last_calls.remove(self.context);
    }
}
