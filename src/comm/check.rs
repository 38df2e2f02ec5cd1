//! The check before each collective: do all ranks call the same?
//!
//! Every rank sends a record of fixed form to rank 0, which compares them and answers each with the verdict. The
//! protocol is the same for every operation and runs on a lane of its own, so ranks that call different collectives meet
//! in it. A rank that has returned from its body counts as a record. Builds without debug assertions skip all this.

use bytemuck::{Pod, Zeroable};

use super::communicator::{Communicator, from_bytes, to_bytes};
use super::transport::Lane;
use super::{CommError, Op, Result};

/// What a rank calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Split,
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

/// By the number of the operation.
const NAMES: [&str; 15] = [
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

const NONE: u64 = u64::MAX;
const LEFT: u64 = u64::MAX;

/// A call of a collective, with all that must agree. `NONE` marks what the operation lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Record {
    operation: u64,
    op: u64,
    kind: u64,
    root: u64,
    element: u64,
    elements: u64,
    cut: u64,
    sequence: u64,
    invalid: u64,
}

impl Record {
    pub fn new(operation: Operation) -> Record {
        Record {
            operation: operation as u64,
            op: NONE,
            kind: NONE,
            root: NONE,
            element: NONE,
            elements: NONE,
            cut: 0,
            sequence: 0,
            invalid: 0,
        }
    }

    /// Elements of this type, any number of them.
    pub fn of<T>(self) -> Record {
        Record { element: size_of::<T>() as u64, ..self }
    }

    /// The number of elements, where ranks must agree on it.
    pub fn count(self, elements: usize) -> Record {
        Record { elements: elements as u64, ..self }
    }

    pub fn root(self, root: usize) -> Record {
        Record { root: root as u64, ..self }
    }

    /// A reduction of elements of a numbered type.
    pub fn reducing(self, op: Op, kind: u32) -> Record {
        Record { op: op as u64, kind: u64::from(kind), ..self }
    }

    fn left() -> Record {
        Record { operation: LEFT, ..Record::zeroed() }
    }

    /// Such as `all_reduce(Sum of f32, 3 elements of 4 bytes), its collective 7`.
    fn describe(&self) -> String {
        let mut parts = Vec::new();
        if let Some(op) = [Op::Sum, Op::Min, Op::Max].into_iter().find(|&op| op as u64 == self.op) {
            let kind = super::reduce::KINDS.get(self.kind as usize).unwrap_or(&"?");
            parts.push(format!("{op:?} of {kind}"));
        }
        if self.root != NONE {
            parts.push(format!("root {}", self.root));
        }
        if self.elements != NONE {
            parts.push(format!("{} elements", self.elements));
        }
        if self.element != NONE {
            parts.push(format!("{} bytes each", self.element));
        }
        parts.push(format!("largest message {}", self.cut));
        let name = NAMES.get(self.operation as usize).unwrap_or(&"?");
        let invalid = if self.invalid == 0 { "" } else { " with arguments that do not fit" };
        format!("{name}({}){invalid} as collective {}", parts.join(", "), self.sequence)
    }

    fn describe_other(&self) -> String {
        if self.operation == LEFT {
            "has returned from its body".to_owned()
        } else {
            format!("called {}", self.describe())
        }
    }
}

/// What rank 0 answers.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Verdict {
    differs: u64,
    /// The first rank whose record is not that of rank 0 or is invalid.
    rank: u64,
    record: Record,
    of_root: Record,
}

impl Communicator {
    /// Compares this call with those of the other ranks. `valid` is what this rank thinks of its own arguments: an error
    /// is shared, so that no rank waits for one that has given up.
    pub(super) fn check(&self, record: Record, valid: Result<()>) -> Result<()> {
        let sequence = self.next_sequence();
        if !cfg!(debug_assertions) || self.size() == 1 {
            return valid;
        }
        let mine = Record { cut: self.max_message(), sequence, invalid: u64::from(valid.is_err()), ..record };
        let verdict = if self.rank() == 0 { self.judge(mine)? } else { self.ask(mine)? };
        valid?;
        if verdict.differs == 0 {
            return Ok(());
        }
        let (other, theirs) =
            if mine == verdict.of_root { (verdict.rank as usize, verdict.record) } else { (0, verdict.of_root) };
        let (called, other_called) = (mine.describe(), theirs.describe_other());
        Err(CommError::Mismatch { rank: self.rank(), called, other, other_called })
    }

    fn judge(&self, mine: Record) -> Result<Verdict> {
        let mut verdict = Verdict { differs: mine.invalid, rank: 0, record: mine, of_root: mine };
        let asked: Vec<_> = (1..self.size())
            .map(|rank| self.post_receive(rank, Lane::Check, size_of::<Record>()))
            .collect::<Result<_>>()?;
        for (rank, record) in (1..).zip(asked) {
            let record = match record.wait() {
                Ok(bytes) => from_bytes(1, &bytes)[0],
                Err(_) if self.core.transport.has_left(rank) => Record::left(),
                Err(error) => return Err(error),
            };
            if verdict.differs == 0 && (record != mine || record.invalid != 0) {
                verdict = Verdict { differs: 1, rank: rank as u64, record, of_root: mine };
            }
        }
        for rank in 1..self.size() {
            drop(self.post_send(rank, Lane::Check, to_bytes(&[verdict]))?);
        }
        Ok(verdict)
    }

    fn ask(&self, mine: Record) -> Result<Verdict> {
        drop(self.post_send(0, Lane::Check, to_bytes(&[mine]))?);
        match self.post_receive(0, Lane::Check, size_of::<Verdict>())?.wait() {
            Ok(bytes) => Ok(from_bytes(1, &bytes)[0]),
            Err(_) if self.core.transport.has_left(0) => {
                Ok(Verdict { differs: 1, rank: 0, record: mine, of_root: Record::left() })
            }
            Err(error) => Err(error),
        }
    }
}
