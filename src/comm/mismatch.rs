//! The report of a rank that ranks called different collectives, and ranks that will send and
//! receive nothing more.

use super::{Call, CommError, Subject};

/// Why a rank sends and receives nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It has returned from its body without an error.
    Left,
    /// It has dropped the communicator.
    Dropped,
}

impl Gone {
    pub fn action(self) -> &'static str {
        match self {
            Gone::Left => "returned from its body",
            Gone::Dropped => "dropped the communicator",
        }
    }

    /// Returns the error of a wait for a message of the rank `rank`, counted in the whole run, that
    /// is gone.
    pub fn in_wait_for_message(self, rank: usize) -> CommError {
        self.while_waited_for(rank, "a message of it was waited for")
    }

    /// Returns the error of a wait for a send to the rank `rank`, counted in the whole run, that is
    /// gone.
    pub fn in_wait_to_send(self, rank: usize) -> CommError {
        self.while_waited_for(rank, "a message to it waited to be received")
    }

    fn while_waited_for(self, rank: usize, what: &str) -> CommError {
        CommError::PeerFailed { rank, message: format!("it {} while {what}", self.action()) }
    }
}

/// Action of a rank instead of the collective that another one called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Did {
    /// It called this.
    Called(Call),
    /// It will call nothing more.
    Gone(Gone),
}

/// Actions of two ranks that should have done the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Differing {
    /// The call of one rank, and the action of the other.
    Collectives(Call, Did),
    /// The exchanges of both ranks.
    Exchanges([Subject; 2]),
}

/// A rank in a collective or an exchange has found that another one did something else. Ranks count
/// in their communicator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mismatch {
    /// The rank that found it.
    pub rank: usize,
    pub other: usize,
    /// Their actions, in this order.
    pub differing: Differing,
}

impl Mismatch {
    /// Rank `rank` in the collective `call` finds that rank `other` did this.
    pub fn of_collectives(rank: usize, call: Call, other: usize, did: Did) -> Mismatch {
        Mismatch { rank, other, differing: Differing::Collectives(call, did) }
    }

    /// Returns `true` if it is one of exchanges, which ends the waits of all exchanges.
    pub fn is_of_exchanges(&self) -> bool {
        matches!(self.differing, Differing::Exchanges(_))
    }

    /// Returns the error of the rank that has found it; of exchanges that of all.
    pub fn error(&self) -> CommError {
        let (called, other_called) = match self.differing {
            Differing::Collectives(call, Did::Called(theirs)) => {
                let [mine, theirs] = call.beside(&theirs);
                (mine, format!("called {theirs}"))
            }
            Differing::Collectives(call, Did::Gone(gone)) => (call.describe(), format!("has {}", gone.action())),
            Differing::Exchanges([mine, theirs]) => {
                let [mine, theirs] = mine.beside(&theirs);
                (mine, format!("called {theirs}"))
            }
        };
        CommError::Mismatch { rank: self.rank, called, other: self.other, other_called }
    }

    /// Returns what it means for rank `rank`, which waits in `call` and was told of it; nothing if
    /// that is an earlier collective, whose messages may still come, or it is of exchanges, whose
    /// messages are others.
    pub fn as_seen_by(&self, rank: usize, call: &Call) -> Option<Mismatch> {
        let Differing::Collectives(theirs, _) = self.differing else { return None };
        let found = match *call == theirs {
            true => Mismatch { rank, ..*self },
            false => Mismatch::of_collectives(rank, *call, self.rank, Did::Called(theirs)),
        };
        (!call.is_before(&theirs)).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::Operation;
    use super::*;

    #[test]
    fn those_who_are_told_name_a_rank_that_did_otherwise() {
        let call = |operation, sequence| Call::new(operation).begun(sequence, 8);
        let (barrier, split) = (call(Operation::Barrier, 3), call(Operation::Split, 3));
        let found = Mismatch::of_collectives(2, barrier, 5, Did::Called(split));
        let told = |call: &Call| found.as_seen_by(1, call).map(|mismatch| mismatch.error().to_string());
        let named = |call: &Call, other: &str| told(call).is_some_and(|text| text.contains(other));
        assert!(named(&barrier, "but rank 5 called split"));
        assert!(named(&split, "but rank 2 called barrier"));
        assert!(named(&call(Operation::Barrier, 4), "but rank 2 called barrier"));
        assert!(told(&call(Operation::Barrier, 2)).is_none(), "its messages were sent before");
        let found = Mismatch::of_collectives(2, barrier, 5, Did::Gone(Gone::Left));
        assert!(found.as_seen_by(0, &barrier).unwrap().error().to_string().contains("rank 5 has returned"));
        let subjects = ["exchange of u32", "exchange of f32"].map(Subject::new);
        let exchanges = Mismatch { rank: 2, other: 5, differing: Differing::Exchanges(subjects) };
        assert!(exchanges.as_seen_by(1, &barrier).is_none(), "collectives have messages of their own");
        assert!(exchanges.is_of_exchanges() && !found.is_of_exchanges());
        let text = exchanges.error().to_string();
        assert!(text.contains("rank 2 called exchange of u32, but rank 5 called exchange of f32"), "{text}");
    }
}
