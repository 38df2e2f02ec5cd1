//! Names, spaces and costs of operators.

use std::borrow::Cow;
use std::fmt;
use std::ops::Add;

use super::{Result, Space, Vector};
use crate::grid::Cost;

/// The name of an operator, its domain and its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The name in errors and reports.
    pub name: Cow<'static, str>,
    /// The space of the arguments.
    pub domain: Space,
    /// The space of the values.
    pub target: Space,
}

impl Signature {
    /// Creates the signature of an operator from `domain` to `target`.
    pub fn new(name: impl Into<Cow<'static, str>>, domain: &Space, target: &Space) -> Self {
        Signature { name: name.into(), domain: domain.clone(), target: target.clone() }
    }

    /// Checks that `x` is a vector of the domain and `y` one of the target.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`](super::OperatorError::Fit) otherwise.
    pub fn check(&self, x: &Vector, y: &Vector) -> Result<()> {
        self.domain.admits(x.space(), &self.name)?;
        self.target.admits(y.space(), &self.name)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.name, self.domain, self.target)
    }
}

/// The costs of an operator for one rank. Bytes received and memory are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorCost {
    /// The value.
    pub apply: Cost,
    /// The derivative times a tangent.
    pub jvp: Cost,
    /// A cotangent times the derivative.
    pub vjp: Cost,
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
