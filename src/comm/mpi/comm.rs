//! An MPI communicator with its number.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::calls::Handle;
use super::status::{LastCalls, Mismatches};
use crate::comm::mismatch::Mismatch;

/// An MPI communicator behind a [`Communicator`](crate::comm::Communicator). As long as it exists,
/// messages on it may be under way.
pub(super) struct Comm {
    pub handle: ManuallyDrop<Handle>,
    /// Its number in the family.
    pub context: u64,
    /// Its ranks, counted in the first communicator of its family.
    pub members: Arc<[usize]>,
    pub last_calls: Arc<LastCalls>,
    pub mismatches: Arc<Mismatches>,
}

impl Comm {
    /// Returns the first mismatch that was found in it, here or by a rank that has told this one.
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.mismatches.get(self.context)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.last_calls.remove(self.context);
        // What ranks that are out of step have sent may still come. The communicator is kept then,
        // so that no other gets its number, and with it the message.
        if self.mismatch().is_none() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.handle) };
        }
    }
}
