//! The search of a wait for ranks that wait for each other, one query after the other.

use std::mem;

use super::watchdog::GRACE_POLLS;
use crate::comm::cycle::{Chain, Cycle, Step, Suspicion};
use crate::comm::waits::Wait;

/// A query of the rank that a wait is for.
struct Query {
    number: u64,
    wait: Wait,
}

/// A search along chains of waits, each of which begins with a query of the other rank of a
/// message.
#[derive(Default)]
pub(super) struct ChainSearch {
    /// The wait of this rank, when it last queried the other rank.
    own: Option<Wait>,
    /// The chain that is followed.
    chain: Option<Chain>,
    /// The query of the rank that the last wait of the chain is for.
    next: Option<Query>,
    /// The query that an earlier chain has waited for. If this chain comes to the same wait, it
    /// waits for the same answer, so that a rank that computes for long gets one query.
    earlier: Option<Query>,
    /// Queries whose answers are not wanted any more.
    unwanted: Vec<u64>,
    suspicion: Suspicion,
}

impl ChainSearch {
    /// Notes the wait of this rank, for which it queries the other rank.
    pub fn set_own(&mut self, own: Wait) {
        self.own = Some(own);
    }

    /// Begins a chain with the wait that keeps the other rank, in place of the chain before;
    /// returns the wait that is to be asked about next.
    ///
    /// # Errors
    /// Ranks that wait for each other, and did for long enough.
    pub fn begin(&mut self, wait: Wait) -> Result<Option<Wait>, Cycle> {
        if let Some(query) = self.next.take() {
            let before = self.earlier.replace(query);
            self.unwanted.extend(before.map(|query| query.number));
        }
        self.chain = self.own.take().filter(Wait::is_blocking).map(Chain::new);
        self.step(wait)
    }

    /// Returns the number of the query of the next rank.
    pub fn query(&self) -> Option<u64> {
        self.next.as_ref().map(|query| query.number)
    }

    /// Notes that the next rank is queried for the wait that is for it.
    pub fn set_query(&mut self, number: u64, wait: Wait) {
        self.next = Some(Query { number, wait });
    }

    /// Continues with the wait that keeps the next rank.
    ///
    /// # Errors
    /// Same as [`begin`](Self::begin).
    pub fn follow(&mut self, wait: Wait) -> Result<Option<Wait>, Cycle> {
        self.next = None;
        self.step(wait)
    }

    fn step(&mut self, wait: Wait) -> Result<Option<Wait>, Cycle> {
        let step = self.chain.as_mut().map_or(Step::Ends, |chain| chain.step(Some(wait)));
        let cycle = match step {
            Step::Continues(next) => {
                self.next = self.earlier.take_if(|query| query.wait.is_same(&next));
                return Ok(self.next.is_none().then_some(next));
            }
            Step::Ends => None,
            Step::Closes(cycle) => Some(cycle),
        };
        self.chain = None;
        // The next chain, which may confirm this cycle, takes answers that come later only.
        self.unwanted.extend(self.earlier.take().map(|query| query.number));
        self.suspicion.add(cycle, u64::from(GRACE_POLLS)).map_or(Ok(None), Err)
    }

    /// Returns the queries whose answers are not wanted any more.
    pub fn unwanted(&mut self) -> Vec<u64> {
        mem::take(&mut self.unwanted)
    }

    /// Ends the search; returns the queries whose answers are not wanted any more.
    pub fn end(mut self) -> Vec<u64> {
        let queries = [self.next, self.earlier].into_iter().flatten().map(|query| query.number);
        self.unwanted.extend(queries);
        self.unwanted
    }
}
