//! The record of a collective call, which each of its messages begins with.

use bytemuck::{Pod, Zeroable};

use super::op::{KINDS, Op};
use super::subject::Subject;

/// Which collective. Zero is none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Split = 1,
    Barrier,
    Broadcast,
    AllReduce,
    ReduceScatter,
    Scan,
    ScanExclusive,
    Gather,
    GatherV,
    AllGather,
    AllGatherV,
    Scatter,
    ScatterV,
    AllToAll,
    AllToAllV,
}

/// Names of the operations, by their numbers.
const NAMES: [&str; 16] = [
    "another collective",
    "split",
    "barrier",
    "broadcast",
    "all_reduce",
    "reduce_scatter",
    "scan",
    "scan_exclusive",
    "gather",
    "gather_v",
    "all_gather",
    "all_gather_v",
    "scatter",
    "scatter_v",
    "all_to_all",
    "all_to_all_v",
];

const NO_ELEMENTS: u64 = u64::MAX;
const NO_WORD: u32 = u32::MAX;
const NO_BYTE: u8 = u8::MAX;

/// A call of a collective: its number and all that the ranks must agree on. Fields that the
/// operation does not have hold the greatest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Call {
    sequence: u64,
    elements: u64,
    element_bytes: u32,
    max_piece: u32,
    root: u32,
    operation: u8,
    op: u8,
    kind: u8,
    reserved: u8,
    /// The operation that the collective is a part of, if it has a name.
    subject: Subject,
}

/// Bytes of the call at the head of a message of a collective.
pub(super) const HEADER_BYTES: usize = size_of::<Call>();

impl Call {
    pub fn new(operation: Operation) -> Call {
        Call {
            elements: NO_ELEMENTS,
            element_bytes: NO_WORD,
            root: NO_WORD,
            operation: operation as u8,
            op: NO_BYTE,
            kind: NO_BYTE,
            ..Call::zeroed()
        }
    }

    /// Elements of this type, any number of them.
    pub fn of<T>(self) -> Call {
        Call { element_bytes: size_of::<T>() as u32, ..self }
    }

    /// Returns the number of elements, where ranks must agree on it.
    pub fn count(self, elements: usize) -> Call {
        Call { elements: elements as u64, ..self }
    }

    pub fn root(self, root: usize) -> Call {
        Call { root: root as u32, ..self }
    }

    /// Returns a reduction of elements of a numbered type.
    pub fn reducing(self, op: Op, kind: u8) -> Call {
        Call { op: op as u8, kind, ..self }
    }

    /// Returns the record of an exchange, which has the number of no operation.
    pub fn of_exchange(subject: Subject) -> Call {
        Call { subject, ..Call::zeroed() }
    }

    /// Returns the call as a part of an operation.
    pub fn within(self, subject: Subject) -> Call {
        Call { subject, ..self }
    }

    /// Returns the call as the `sequence`-th collective of its communicator, whose pieces of
    /// messages have `max_piece` bytes at most.
    pub fn begun(self, sequence: u64, max_piece: usize) -> Call {
        Call { sequence, max_piece: max_piece as u32, ..self }
    }

    /// Returns `true` if a rank in `self` can never get its message from a rank that is in `other`
    /// and has not sent it yet.
    pub fn is_contradicted_by(&self, other: &Call) -> bool {
        self.is_before(other) || self.sequence == other.sequence && self != other
    }

    /// Returns `true` if a rank in `other` has returned from `self` before.
    pub fn is_before(&self, other: &Call) -> bool {
        self.sequence < other.sequence
    }

    /// Returns the name of the operation.
    pub fn name(&self) -> &'static str {
        NAMES.get(usize::from(self.operation)).unwrap_or(&NAMES[0])
    }

    /// Describes the call, such as `all_reduce(Sum of f32, 3 elements, 4 bytes each, largest
    /// message 1024) as collective 7`.
    pub fn describe(&self) -> String {
        let name = self.name();
        if self.operation == 0 {
            return if self.subject.is_none() { name.to_owned() } else { self.subject.to_string() };
        }
        let mut parts = Vec::new();
        if let Some(op) = [Op::Sum, Op::Min, Op::Max].into_iter().find(|&op| op as u8 == self.op) {
            let kind = KINDS.get(usize::from(self.kind)).unwrap_or(&"?");
            parts.push(format!("{op:?} of {kind}"));
        }
        if self.root != NO_WORD {
            parts.push(format!("root {}", self.root));
        }
        if self.elements != NO_ELEMENTS {
            parts.push(format!("{} elements", self.elements));
        }
        if self.element_bytes != NO_WORD {
            parts.push(format!("{} bytes each", self.element_bytes));
        }
        parts.push(format!("largest message {}", self.max_piece));
        let text = format!("{name}({}) as collective {}", parts.join(", "), self.sequence);
        if self.subject.is_none() { text } else { format!("{}, which is {text}", self.subject) }
    }

    /// Returns the descriptions of two calls that differ, so that the difference can be seen.
    pub fn beside(&self, theirs: &Call) -> [String; 2] {
        let [mine, other] = [self, theirs].map(Call::describe);
        if mine != other {
            return [mine, other];
        }
        self.subject.beside(&theirs.subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_is_behind_contradicts_nothing() {
        let barrier = |sequence| Call::new(Operation::Barrier).begun(sequence, 8);
        let split = |sequence| Call::new(Operation::Split).begun(sequence, 8);
        assert!(!barrier(3).is_contradicted_by(&barrier(3)));
        assert!(!barrier(3).is_contradicted_by(&split(2)), "it may yet call the same");
        assert!(barrier(3).is_contradicted_by(&split(3)));
        assert!(barrier(3).is_contradicted_by(&barrier(4)), "it will not come back");
        assert!(barrier(3).is_contradicted_by(&Call::new(Operation::Barrier).begun(3, 9)));
    }

    #[test]
    fn a_call_says_what_must_agree() {
        let call = Call::new(Operation::AllReduce).reducing(Op::Max, 6).of::<f32>().count(3).begun(7, 64);
        assert_eq!(
            call.describe(),
            "all_reduce(Max of f32, 3 elements, 4 bytes each, largest message 64) as collective 7"
        );
        assert_eq!(Call::zeroed().describe(), "another collective");
    }
}
