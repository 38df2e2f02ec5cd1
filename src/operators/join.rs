//! Short vectors, one after the other, as one; fields at the same places as a batch.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::leaf::{Leaf, Support};
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::{Contents, Vector};
use crate::grid::Cost;
use crate::rank::Rank;

/// Leaves one after the other as one leaf; its adjoint splits.
///
/// | leaves | result |
/// |---|---|
/// | vectors on the device | one real vector of all their numbers |
/// | parameters on the host | one leaf of parameters |
/// | fields at the same places, of the same components | a batch of all their fields |
pub struct Join {
    signature: Signature,
    /// Indices of the leaves in their order.
    order: Vec<usize>,
}

impl Join {
    /// Creates the operator of the leaves of `domain` in the given order. The target has the leaf
    /// `result`.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if a leaf is missing, or has other places, values or components
    ///   than the first one.
    /// - [`OperatorError::Invalid`] if `order` does not name every leaf once.
    pub fn new(domain: &Space, order: &[&str], result: &str) -> Result<Self> {
        const NAME: &str = "join";
        let mut indices = Vec::new();
        let (mut len, mut batch) = (0, 0);
        let first = order.first().and_then(|name| domain.leaf(name));
        for name in order {
            let (Some(at), Some(leaf)) = (domain.position(name), domain.leaf(name)) else {
                return Err(OperatorError::missing(NAME, name, domain));
            };
            if let Some(first) = first
                && !first.joins(leaf)
            {
                let why =
                    format!("expected vectors, parameters or fields at the same places, got {leaf} beside {first}");
                return Err(OperatorError::Fit { operator: NAME.into(), leaf: (*name).into(), why });
            }
            len += leaf.len();
            batch += leaf.batch;
            indices.push(at);
        }
        let mut sorted = indices.clone();
        sorted.sort_unstable();
        if domain.is_empty() || sorted != (0..domain.len()).collect::<Vec<_>>() {
            let why = format!("expected every leaf of {domain} once, got {order:?}");
            return Err(OperatorError::invalid(NAME, why));
        }
        let leaf = match first {
            Some(Leaf { support: Support::Parameters { .. }, .. }) => Leaf::parameters(len),
            Some(leaf) if leaf.is_distributed() => leaf.clone().batch(batch),
            _ => Leaf::vector(len),
        };
        Ok(Join { signature: Signature::new(NAME, domain, &Space::of(result, leaf)?), order: indices })
    }
}

impl Leaf {
    /// Returns `true` if `other` can stand after this leaf in one.
    fn joins(&self, other: &Leaf) -> bool {
        if self.is_distributed() || other.is_distributed() {
            return Leaf { batch: 1, ..self.clone() } == Leaf { batch: 1, ..other.clone() };
        }
        self.is_on_host() == other.is_on_host()
    }
}

impl Linear for Join {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let mut start = 0;
        for &leaf in &self.order {
            let (from, to) = match direction {
                Direction::Forward => (leaf, 0),
                Direction::Adjoint => (0, leaf),
            };
            let len = match (&v.contents()[from], &mut out.contents_mut()[to], direction) {
                (Contents::Device(part), Contents::Device(all), Direction::Forward) => {
                    rank.recorder.copy(part, 0, all, start, part.len())?;
                    part.len()
                }
                (Contents::Device(all), Contents::Device(part), Direction::Adjoint) => {
                    rank.recorder.copy(all, start, part, 0, part.len())?;
                    part.len()
                }
                (Contents::Host(part), Contents::Host(all), Direction::Forward) => {
                    all[start as usize..][..part.len()].copy_from_slice(part);
                    part.len() as u64
                }
                (Contents::Host(all), Contents::Host(part), Direction::Adjoint) => {
                    let len = part.len();
                    part.copy_from_slice(&all[start as usize..][..len]);
                    len as u64
                }
                _ => 0,
            };
            start += len;
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        self.order.iter().for_each(|&leaf| out.number(leaf as u64));
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        [Cost::kernels(0, 8 * self.signature.target.own_numbers()); 2]
    }
}
