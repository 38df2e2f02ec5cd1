//! What a rank has found where ranks called different collectives.

use super::CommError;
use super::call::Call;
use super::gone::Gone;
use super::subject::Subject;

/// What a rank did in place of the collective that another one called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Did {
    /// It called this.
    Called(Call),
    /// It will call nothing more.
    Gone(Gone),
}

/// A rank in a collective or an exchange has found that another one did something else. Ranks count in their communicator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mismatch {
    /// Who has found it.
    pub rank: usize,
    /// What that rank called.
    pub call: Call,
    pub other: usize,
    pub did: Did,
    /// Of exchanges: what both were.
    pub subjects: Option<[Subject; 2]>,
}

impl Mismatch {
    /// Rank `rank` in the collective `call` finds that rank `other` did this.
    pub fn new(rank: usize, call: Call, other: usize, did: Did) -> Mismatch {
        Mismatch { rank, call, other, did, subjects: None }
    }

    /// Of exchanges: rank `rank` in the first has got a message of the second from rank `other`.
    pub fn of_exchanges(rank: usize, other: usize, subjects: [Subject; 2]) -> Mismatch {
        let call = Call::exchange();
        Mismatch { subjects: Some(subjects), ..Mismatch::new(rank, call, other, Did::Called(call)) }
    }

    /// Whether it is one of exchanges, which ends the waits of all exchanges.
    pub fn is_of_exchanges(&self) -> bool {
        self.subjects.is_some()
    }

    /// The error of the rank that has found it; of exchanges that of all.
    pub fn error(&self) -> CommError {
        if let Some([mine, theirs]) = self.subjects {
            let [called, theirs] = mine.beside(&theirs);
            let other_called = format!("called {theirs}");
            return CommError::Mismatch { rank: self.rank, called, other: self.other, other_called };
        }
        let other_called = match self.did {
            Did::Called(call) => format!("called {}", call.describe()),
            Did::Gone(gone) => format!("has {}", gone.action()),
        };
        CommError::Mismatch { rank: self.rank, called: self.call.describe(), other: self.other, other_called }
    }

    /// What it means for rank `rank`, which waits in `call` and was told of it; nothing if that is an earlier collective, whose
    /// messages may still come.
    pub fn as_seen_by(&self, rank: usize, call: &Call) -> Option<Mismatch> {
        let found = match *call == self.call {
            true => Mismatch { rank, ..*self },
            false => Mismatch::new(rank, *call, self.rank, Did::Called(self.call)),
        };
        (!call.is_before(&self.call)).then_some(found)
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
        let found = Mismatch::new(2, barrier, 5, Did::Called(split));
        let told = |call: &Call| found.as_seen_by(1, call).map(|mismatch| mismatch.error().to_string());
        let named = |call: &Call, other: &str| told(call).is_some_and(|text| text.contains(other));
        assert!(named(&barrier, "but rank 5 called split"));
        assert!(named(&split, "but rank 2 called barrier"));
        assert!(named(&call(Operation::Barrier, 4), "but rank 2 called barrier"));
        assert!(told(&call(Operation::Barrier, 2)).is_none(), "its messages were sent before");
        let found = Mismatch { did: Did::Gone(Gone::Left), ..found };
        assert!(found.as_seen_by(0, &barrier).unwrap().error().to_string().contains("rank 5 has returned"));
        let subjects = ["exchange of u32", "exchange of f32"].map(Subject::new);
        let exchanges = Mismatch::of_exchanges(2, 5, subjects);
        assert!(exchanges.as_seen_by(1, &barrier).is_none(), "collectives have messages of their own");
        assert!(exchanges.is_of_exchanges() && !found.is_of_exchanges());
        let text = exchanges.error().to_string();
        assert!(text.contains("rank 2 called exchange of u32, but rank 5 called exchange of f32"), "{text}");
    }
}
