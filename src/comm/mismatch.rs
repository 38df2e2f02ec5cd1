//! What a rank has found where ranks called different collectives.

use super::CommError;
use super::call::Call;
use super::gone::Gone;

/// What a rank did in place of the collective that another one called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Did {
    /// It called this.
    Called(Call),
    /// It will call nothing more.
    Gone(Gone),
}

/// A rank in a collective has found that another one did something else. Ranks count in their communicator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mismatch {
    /// Who has found it.
    pub rank: usize,
    /// What that rank called.
    pub call: Call,
    pub other: usize,
    pub did: Did,
}

impl Mismatch {
    /// The error of the rank that has found it.
    pub fn error(&self) -> CommError {
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
            false => Mismatch { rank, call: *call, other: self.rank, did: Did::Called(self.call) },
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
        let found = Mismatch { rank: 2, call: barrier, other: 5, did: Did::Called(split) };
        let told = |call: &Call| found.as_seen_by(1, call).map(|mismatch| mismatch.error().to_string());
        let named = |call: &Call, other: &str| told(call).is_some_and(|text| text.contains(other));
        assert!(named(&barrier, "but rank 5 called split"));
        assert!(named(&split, "but rank 2 called barrier"));
        assert!(named(&call(Operation::Barrier, 4), "but rank 2 called barrier"));
        assert!(told(&call(Operation::Barrier, 2)).is_none(), "its messages were sent before");
        let found = Mismatch { did: Did::Gone(Gone::Left), ..found };
        assert!(found.as_seen_by(0, &barrier).unwrap().error().to_string().contains("rank 5 has returned"));
    }
}
