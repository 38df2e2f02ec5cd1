//! Findings of the sanitizer.

use std::fmt;

use super::traffic::Traffic;

/// Problem at a place in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// Two invocations access one place, one of them writes, and nothing orders them.
    Race,
    /// An access lies outside of its array.
    OutOfBounds,
    /// Memory of a workgroup is read before anything writes it.
    Unwritten,
    /// Some invocations of a workgroup do not come to a barrier.
    Barrier,
    /// Some invocations of a subgroup do not come to an operation of all of them, or one asks for
    /// another that is not there.
    Subgroup,
    /// The result of an operation is not the same on all devices.
    Undefined,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Problem::Race => "race",
            Problem::OutOfBounds => "out of bounds",
            Problem::Unwritten => "read before written",
            Problem::Barrier => "barrier that some miss",
            Problem::Subgroup => "subgroup operation that some miss",
            Problem::Undefined => "undefined result",
        })
    }
}

/// A problem, once for every line that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub problem: Problem,
    /// Number of the line in the text that is compiled, and the line.
    pub line: (u32, String),
    /// Who, and where.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { problem, line: (number, line), detail } = self;
        write!(f, "{problem}: {detail}, at line {number}, `{line}`")
    }
}

/// Report of a dispatch.
#[derive(Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    /// The workgroup in which the steps ended that the dispatch was given, if they did.
    pub unfinished: Option<u32>,
    /// The unsupported feature that ended the run, if any.
    pub unknown: Option<String>,
    /// Cost of the accesses, if they are counted.
    pub traffic: Option<Traffic>,
}
