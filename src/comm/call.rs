//! Identity of messages: the record of a collective call, which each of its messages begins with;
//! the operation that a message belongs to; and its lane. The sender and the receiver must agree on
//! all three.
//!
//! Lanes are streams of messages between two ranks: one per tag of the caller, one for collectives,
//! and some for the layers above.

use std::fmt;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::Op;
use super::op::KINDS;
use crate::hash::{START, fnv1a};

/// The largest tag of a caller's messages. Every MPI library carries 4097 more: one for
/// collectives, and the others for exchanges of device data.
pub const MAX_TAG: u32 = 28_670;

/// Tags that are reserved for the layers above; messages of callers cannot have them.
pub(crate) const RESERVED_TAGS: Range<u32> = MAX_TAG + 1..32_767;

/// Tags of the messages of exchanges, from the first of [`RESERVED_TAGS`] on. Credits, which a
/// receiver returns for messages that it has copied itself, have the tags as far above.
pub(crate) const EXCHANGE_TAGS: u32 = (RESERVED_TAGS.end - RESERVED_TAGS.start) / 2;

/// A stream. Messages of different lanes never match each other's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Messages of the caller, by tag (at most [`MAX_TAG`]), and of the layers above
    /// ([`RESERVED_TAGS`]).
    User(u32),
    /// Messages of collectives, each with its call at the head.
    Collective,
}

impl Lane {
    /// Returns `true` if it is of a layer above, which exchanges.
    pub fn is_reserved(self) -> bool {
        matches!(self, Lane::User(tag) if RESERVED_TAGS.contains(&tag))
    }

    /// Returns its tag: that of its messages, or the one above all others for collectives.
    pub fn tag(self) -> u32 {
        match self {
            Lane::User(tag) => tag,
            Lane::Collective => RESERVED_TAGS.end,
        }
    }
}

/// Bytes of text.
const TEXT: usize = 56;

/// The operation that a message belongs to, such as an exchange of a forward transform: its first
/// piece begins with the subject, and a message with another one is refused. Equal if text and
/// settings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Subject {
    /// Hash of the whole text and of the settings.
    hash: u64,
    /// The beginning of the text.
    text: [u8; TEXT],
}

/// Bytes of the subject at the head of a message.
pub(super) const SUBJECT_BYTES: usize = size_of::<Subject>();

impl Subject {
    /// Returns what `text` says in a few words, for errors.
    pub fn new(text: &str) -> Subject {
        let mut subject = Subject { hash: fnv1a(START, text.as_bytes()), text: [0; TEXT] };
        let end = text.len().min(TEXT);
        subject.text[..end].copy_from_slice(&text.as_bytes()[..end]);
        subject
    }

    /// Returns `true` if it is of no operation.
    pub(super) fn is_none(&self) -> bool {
        *self == Subject::zeroed()
    }

    /// Adds settings on which both ranks must agree.
    pub fn with(self, settings: &[u64]) -> Subject {
        Subject { hash: fnv1a(self.hash, bytemuck::cast_slice(settings)), ..self }
    }

    /// Returns the subject that a message begins with; none that anybody has, where it is shorter.
    pub(super) fn of_message(data: &[u8]) -> Subject {
        data.get(..SUBJECT_BYTES).map_or(Subject::zeroed(), bytemuck::pod_read_unaligned)
    }

    /// Both in words, by which they differ.
    pub(super) fn beside(&self, theirs: &Subject) -> [String; 2] {
        [self, theirs].map(|subject| match self.text == theirs.text {
            true => format!("{subject} with settings {:016x}", subject.hash),
            false => subject.to_string(),
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.text.iter().position(|&byte| byte == 0).unwrap_or(TEXT);
        match end {
            // The text has not arrived: a message that is longer than expected is cut off.
            0 => f.write_str("another exchange"),
            end => f.write_str(&String::from_utf8_lossy(&self.text[..end])),
        }
    }
}

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

    #[test]
    fn both_sides_are_named_and_settings_told_apart() {
        let [forward, inverse] = ["forward transform", "inverse transform"].map(Subject::new);
        assert_eq!(forward.beside(&inverse), ["forward transform", "inverse transform"]);
        let [one, two] = [1, 2].map(|setting| forward.with(&[setting]));
        let told = one.beside(&two);
        assert!(told.iter().all(|text| text.starts_with("forward transform with settings ")) && told[0] != told[1]);
        assert!(Subject::of_message(bytemuck::bytes_of(&one)) == one);
        assert_eq!(forward.beside(&Subject::of_message(&[]))[1], "another exchange");
        // Texts that only differ where they are cut off do differ.
        let long = |end: &str| Subject::new(&("x".repeat(60) + end));
        assert!(long("a").to_string() == "x".repeat(TEXT) && long("a") != long("b"));
    }
}
