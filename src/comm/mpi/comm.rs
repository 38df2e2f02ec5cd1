//! An MPI communicator with its number.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::calls::Handle;
use super::findings::Findings;
use super::status::LastCalls;
use crate::comm::mismatch::Mismatch;
use crate::comm::waits::{LastUser, Waits};

/// An MPI communicator behind a [`Communicator`](crate::comm::Communicator). As long as it exists,
/// messages on it may be under way.
pub(super) struct Comm {
    pub handle: ManuallyDrop<Handle>,
    /// Its number in the family.
    pub context: u64,
    /// Its ranks, counted in the first communicator of its family.
    pub members: Arc<[usize]>,
    pub last_calls: Arc<LastCalls>,
    pub findings: Arc<Findings>,
    pub waits: Arc<Waits>,
    pub last_user: LastUser,
}

impl Comm {
    /// Returns the first mismatch that was found in it, here or by a rank that has told this one.
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.findings.mismatch(self.context)
    }

    /// Returns `true` if something was found from which its ranks are out of step.
    pub fn is_out_of_step(&self) -> bool {
        self.mismatch().is_some() || self.findings.deadlock().is_some()
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.last_calls.remove(self.context);
        self.waits.leave(self.context);
        // What ranks that are out of step have sent may still come. The communicator is kept then,
        // so that no other gets its number, and with it the message.
        if !self.is_out_of_step() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.handle) };
        }
    }
}
