//! Errors of several ranks that this rank or another one has found.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::comm::CommError;
use crate::comm::mismatch::Mismatch;
use crate::parallel::locked;

#[derive(Default)]
struct State {
    /// The first mismatch in each communicator that has one, by their numbers.
    mismatches: HashMap<u64, Mismatch>,
    /// The error of the first cycle of ranks that wait for each other, in whatever communicators.
    deadlock: Option<CommError>,
}

/// Errors of several ranks of a family of communicators.
#[derive(Default)]
pub(super) struct Findings(Mutex<State>);

impl Findings {
    /// Notes a mismatch unless one is noted already; returns `true` if it does. A mismatch of
    /// collectives replaces one of exchanges, which does not end waits in collectives.
    pub fn note_mismatch(&self, context: u64, found: Mismatch) -> bool {
        let all = &mut locked(&self.0).mismatches;
        let is_news = all.get(&context).is_none_or(|before| before.is_of_exchanges() && !found.is_of_exchanges());
        if is_news {
            all.insert(context, found);
        }
        is_news
    }

    /// Returns the first mismatch in a communicator.
    pub fn mismatch(&self, context: u64) -> Option<Mismatch> {
        locked(&self.0).mismatches.get(&context).copied()
    }

    /// Notes the error of ranks that wait for each other, unless there was one before; returns
    /// whether it does.
    pub fn note_deadlock(&self, error: CommError) -> bool {
        let deadlock = &mut locked(&self.0).deadlock;
        let is_news = deadlock.is_none();
        deadlock.get_or_insert(error);
        is_news
    }

    /// Returns the error of ranks that wait for each other.
    pub fn deadlock(&self) -> Option<CommError> {
        locked(&self.0).deadlock.clone()
    }

    /// Returns `true` if nothing was found.
    pub fn is_empty(&self) -> bool {
        let state = locked(&self.0);
        state.mismatches.is_empty() && state.deadlock.is_none()
    }
}
