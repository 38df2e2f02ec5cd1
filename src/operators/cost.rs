//! Costs of operators for one rank.

use std::fmt;
use std::ops::Add;

use crate::grid::Cost;

/// The cost of one call for one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCost {
    /// Passes over device memory: dispatches over whole fields.
    pub passes: u64,
    /// Bytes that passes read and write.
    pub bytes: u64,
    /// Messages sent to other ranks.
    pub messages: u64,
    /// Bytes sent to other ranks.
    pub sent: u64,
}

impl CallCost {
    /// Creates the cost of passes without messages.
    pub fn passes(passes: u64, bytes: u64) -> Self {
        CallCost { passes, bytes, ..CallCost::default() }
    }

    /// Adds the cost of exchanges.
    #[must_use]
    pub fn with(mut self, exchanges: Cost) -> Self {
        self.messages += exchanges.messages;
        self.sent += exchanges.sent;
        self
    }
}

impl Add for CallCost {
    type Output = CallCost;

    fn add(self, other: CallCost) -> CallCost {
        CallCost {
            passes: self.passes + other.passes,
            bytes: self.bytes + other.bytes,
            messages: self.messages + other.messages,
            sent: self.sent + other.sent,
        }
    }
}

impl fmt::Display for CallCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallCost { passes, bytes, messages, sent } = self;
        write!(f, "{passes} passes, {bytes} bytes; {messages} messages, {sent} bytes")
    }
}

/// The costs of an operator for one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorCost {
    /// The value.
    pub apply: CallCost,
    /// The derivative times a tangent.
    pub jvp: CallCost,
    /// A cotangent times the derivative.
    pub vjp: CallCost,
}

impl Add for OperatorCost {
    type Output = OperatorCost;

    fn add(self, other: OperatorCost) -> OperatorCost {
        OperatorCost { apply: self.apply + other.apply, jvp: self.jvp + other.jvp, vjp: self.vjp + other.vjp }
    }
}

impl fmt::Display for OperatorCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "apply: {}\njvp:   {}\nvjp:   {}", self.apply, self.jvp, self.vjp)
    }
}
