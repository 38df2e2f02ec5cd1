//! The time that a wait has taken, whether its message can still come, and the search for ranks
//! that wait for each other.
//!
//! - A short wait only counts polls and looks at the clock. After [`QUERY_AFTER`] the other rank is
//!   asked for its status.
//! - If it is in another collective of the same number, the ranks have called different things: an
//!   error at once.
//! - If it is past the collective or gone, a message that it sent before may still be on its way.
//!   It is an error if the message has not come within [`GRACE`] and [`GRACE_POLLS`] more polls. By
//!   then MPI has moved what there was to move; polls are counted, since a process that was stopped
//!   meanwhile has not polled.
//! - A rank that finds that ranks called different things tells all ranks of the communicator, for
//!   it may answer none from then on.
//! - Any other status means that the other rank is slow: the wait goes on. If that rank blocks,
//!   too, this one follows the chain of waits ([`ChainSearch`]).

use std::mem;
use std::time::{Duration, Instant};

use crate::comm::cycle::{Chain, Cycle, Step, Suspicion};
use crate::comm::{CommError, Mismatch, Wait};

/// Length of a wait before the other rank is queried.
const QUERY_AFTER: Duration = Duration::from_secs(1);
/// Time for a message that was sent before its sender answered the query.
const GRACE: Duration = Duration::from_secs(2);
/// Minimum number of polls in that time.
const GRACE_POLLS: u32 = 100;
/// A wait of fewer polls, or of less time after them, is short.
const SHORT_POLLS: u32 = 64;
const SHORT: Duration = Duration::from_millis(2);

/// Why a message does not come.
#[derive(Clone)]
pub(super) enum Reason {
    /// Ranks called different collectives.
    Mismatch(Mismatch),
    /// The other rank is gone.
    Gone(CommError),
}

/// A reason that is an error if the message does not come for a while.
struct SuspectedReason {
    reason: Reason,
    since: Instant,
    polls: u32,
}

/// The state of a wait.
#[derive(Default)]
pub(super) struct Watchdog {
    polls: u32,
    /// When the wait had lasted for some polls.
    begun: Option<Instant>,
    /// When the wait became long, or the last status came.
    since: Option<Instant>,
    /// The query that is under way.
    pub query: Option<u64>,
    suspicion: Option<SuspectedReason>,
}

/// Consequence of a status for a wait.
pub(super) enum Verdict {
    /// The message may come.
    Possible,
    /// It cannot come, unless it is on its way already.
    Suspect(Reason),
    /// It cannot come.
    Impossible(Reason),
}

impl Watchdog {
    /// Counts a poll that found nothing; returns whether the wait is a long one.
    pub fn is_long(&mut self) -> bool {
        self.polls = self.polls.saturating_add(1);
        if self.since.is_none()
            && self.polls > SHORT_POLLS
            && self.begun.get_or_insert_with(Instant::now).elapsed() > SHORT
        {
            self.since = self.begun;
        }
        self.since.is_some()
    }

    /// Returns `true` if the wait was found to be a long one.
    pub fn has_become_long(&self) -> bool {
        self.since.is_some()
    }

    /// Returns `true` if a query is due.
    pub fn query_is_due(&self) -> bool {
        self.query.is_none() && self.since.is_some_and(|since| since.elapsed() > QUERY_AFTER)
    }

    /// Ends the query with what its answer means.
    ///
    /// # Errors
    /// The reason of [`Verdict::Impossible`].
    pub fn take_verdict(&mut self, verdict: Verdict) -> Result<(), Reason> {
        (self.query, self.since) = (None, Some(Instant::now()));
        match verdict {
            Verdict::Impossible(reason) => return Err(reason),
            Verdict::Possible => self.suspicion = None,
            Verdict::Suspect(reason) => {
                let suspicion = SuspectedReason { reason, since: Instant::now(), polls: self.polls };
                self.suspicion.get_or_insert(suspicion);
            }
        }
        Ok(())
    }

    /// Fails where a suspicion has lasted for the grace period.
    pub fn still_possible(&self) -> Result<(), Reason> {
        match &self.suspicion {
            Some(SuspectedReason { reason, since, polls })
                if since.elapsed() > GRACE && self.polls.saturating_sub(*polls) > GRACE_POLLS =>
            {
                Err(reason.clone())
            }
            _ => Ok(()),
        }
    }
}

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
