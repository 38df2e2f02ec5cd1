//! The time that a wait has taken, and whether its message can still come.
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
//!   too, this one follows the chain of waits ([`chain_search`](super::chain_search)).

use std::time::{Duration, Instant};

use crate::comm::CommError;
use crate::comm::mismatch::Mismatch;

/// Length of a wait before the other rank is queried.
const QUERY_AFTER: Duration = Duration::from_secs(1);
/// Time for a message that was sent before its sender answered the query.
const GRACE: Duration = Duration::from_secs(2);
/// Minimum number of polls in that time.
pub(super) const GRACE_POLLS: u32 = 100;
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
struct Suspicion {
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
    suspicion: Option<Suspicion>,
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
                let suspicion = Suspicion { reason, since: Instant::now(), polls: self.polls };
                self.suspicion.get_or_insert(suspicion);
            }
        }
        Ok(())
    }

    /// Fails where a suspicion has lasted for the grace period.
    pub fn still_possible(&self) -> Result<(), Reason> {
        match &self.suspicion {
            Some(Suspicion { reason, since, polls })
                if since.elapsed() > GRACE && self.polls.saturating_sub(*polls) > GRACE_POLLS =>
            {
                Err(reason.clone())
            }
            _ => Ok(()),
        }
    }
}
