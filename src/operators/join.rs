//! Short vectors, one after the other, as one.

use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::leaf::{Leaf, Support};
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::{Contents, Vector};
use crate::fft::Values;
use crate::grid::Cost;
use crate::rank::Rank;

/// Vectors one after the other as one vector; its adjoint splits. Leaves are all vectors on the
/// device or all parameters on the host.
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
    /// - [`OperatorError::Fit`] if a leaf is missing, or is not a real vector or parameters like
    ///   the
    ///   first one.
    /// - [`OperatorError::Invalid`] if `order` does not name every leaf once.
    pub fn new(domain: &Space, order: &[&str], result: &str) -> Result<Self, OperatorError> {
        const NAME: &str = "join";
        let mut indices = Vec::new();
        let mut len = 0;
        let on_host = |leaf: &Leaf| matches!(leaf.support, Support::Parameters { .. });
        for name in order {
            let Some(at) = domain.position(name) else { return Err(OperatorError::missing(NAME, name, domain)) };
            if let Some((leaf, first)) = domain.leaf(name).zip(domain.leaf(order[0])) {
                let is_vector = !leaf.is_distributed() && leaf.fields() == 1 && leaf.values == Values::Real;
                if !is_vector || on_host(leaf) != on_host(first) {
                    let why = format!("expected real vectors, or only parameters, got {leaf} beside {first}");
                    return Err(OperatorError::Fit { operator: NAME.into(), leaf: (*name).into(), why });
                }
                len += leaf.len();
            }
            indices.push(at);
        }
        let mut sorted = indices.clone();
        sorted.sort_unstable();
        if domain.is_empty() || sorted != (0..domain.len()).collect::<Vec<_>>() {
            let why = format!("expected every leaf of {domain} once, got {order:?}");
            return Err(OperatorError::invalid(NAME, why));
        }
        let is_host = domain.leaves().any(|(_, leaf)| on_host(leaf));
        let leaf = if is_host { Leaf::parameters(len) } else { Leaf::vector(len) };
        Ok(Join { signature: Signature::new(NAME, domain, &Space::of(result, leaf)?), order: indices })
    }
}

impl Linear for Join {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
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

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        self.order.iter().for_each(|&leaf| out.number(leaf as u64));
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        [Cost::kernels(0, 8 * self.signature.target.own_numbers()); 2]
    }
}
