//! How long a message has been waited for, and whether it can still come.
//!
//! - A wait that is short costs a counter. After [`PATIENCE`] the other rank is asked where it stands.
//! - If it is in another collective of the same number, the ranks do not do the same: that is certain.
//! - If it is past the collective or gone, what was sent before may still be on its way: only when it has not come for
//!   [`GRACE`] and [`GRACE_POLLS`] more is it certain that it never will. MPI has moved what there was to move by then,
//!   and a process that was stopped meanwhile has not polled.
//! - Anything else says nothing: whoever is slow is waited for.

use std::time::{Duration, Instant};

use crate::comm::CommError;

/// How long a wait lasts before a question is asked.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a message may take that was sent before its sender answered.
const GRACE: Duration = Duration::from_secs(2);
/// How often it must have been looked for in that time.
const GRACE_POLLS: u32 = 1000;
/// A wait of fewer polls is short.
const SHORT: u32 = 2048;

/// A suspicion that must stand for a while.
struct Doubt {
    error: CommError,
    since: Instant,
    polls: u32,
}

/// The history of a wait.
#[derive(Default)]
pub(super) struct Watch {
    polls: u32,
    since: Option<Instant>,
    /// The question that was asked.
    pub question: Option<u64>,
    doubt: Option<Doubt>,
}

/// What an answer means for a wait.
pub(super) enum Verdict {
    /// The message may come.
    Possible,
    /// It cannot, unless it is on its way.
    Late(CommError),
    /// It cannot.
    Certain(CommError),
}

impl Watch {
    /// Counts a look in vain; says whether the wait is a long one.
    pub fn is_long(&mut self) -> bool {
        self.polls = self.polls.saturating_add(1);
        if self.polls > SHORT {
            self.since.get_or_insert_with(Instant::now);
        }
        self.since.is_some()
    }

    /// Whether it is time for a question.
    pub fn asks(&self) -> bool {
        self.question.is_none() && self.since.is_some_and(|since| since.elapsed() > PATIENCE)
    }

    /// Takes in what an answer means.
    ///
    /// # Errors
    /// What is certain.
    pub fn weigh(&mut self, verdict: Verdict) -> Result<(), CommError> {
        (self.question, self.since) = (None, Some(Instant::now()));
        match verdict {
            Verdict::Certain(error) => return Err(error),
            Verdict::Possible => self.doubt = None,
            Verdict::Late(error) => {
                let doubt = Doubt { error, since: Instant::now(), polls: self.polls };
                self.doubt.get_or_insert(doubt);
            }
        }
        Ok(())
    }

    /// Fails where a doubt has stood for long enough.
    pub fn still_possible(&self) -> Result<(), CommError> {
        match &self.doubt {
            Some(Doubt { error, since, polls })
                if since.elapsed() > GRACE && self.polls.saturating_sub(*polls) > GRACE_POLLS =>
            {
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}
