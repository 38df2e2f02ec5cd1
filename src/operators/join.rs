//! Short vectors, one after the other, as one; fields at the same places as a batch; a field as
//! each field of a batch, and the sum of a batch.

use super::{
    Contents, Direction, Fingerprint, Leaf, Linear, OperatorError, Result, Signature, Space, Support, Vector, refuse,
};
use crate::gpu::{Kernel, KernelSource};
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
            return refuse(NAME, format!("expected every leaf of {domain} once, got {order:?}"));
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
            let (from, to, [read, write]) = match direction {
                Direction::Forward => (leaf, 0, [0, start]),
                Direction::Adjoint => (0, leaf, [start, 0]),
            };
            // The part is never longer than the whole.
            start += match (&v.contents()[from], &mut out.contents_mut()[to]) {
                (Contents::Device(source), Contents::Device(target)) => {
                    let len = source.len().min(target.len());
                    rank.recorder.copy(source, read, target, write, len)?;
                    len
                }
                (Contents::Host(source), Contents::Host(target)) => {
                    let len = source.len().min(target.len());
                    target[write as usize..][..len].copy_from_slice(&source[read as usize..][..len]);
                    len as u64
                }
                _ => 0,
            };
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

crate::gpu::kernel_params! {
    struct RepeatParams {
        count: u32,
        copies: u32,
    }
}

/// Returns the kernel that adds the fields of a batch.
pub(super) fn source() -> KernelSource {
    KernelSource::new("operators::repeat", include_str!("../../shaders/operators/repeat.wgsl")).params::<RepeatParams>()
}

/// Loops of some devices end after 65,535 rounds.
const MAX_COPIES: u64 = 65_535;

/// One field as each field of a batch, such as an image that counts for all frequencies. Its
/// adjoint adds the fields of a batch in order: the same bits on any number of ranks.
///
/// Cost: 4 bytes per number of the batch, and 4 per number of the field.
pub struct Repeat {
    signature: Signature,
    params: RepeatParams,
    kernel: Kernel,
}

impl Repeat {
    /// Creates the operator from the only leaf of `domain`, one field on the device, to `copies`
    /// fields as the leaf `result`.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces, and unless there are 1 to 65,535 copies.
    pub fn new(domain: &Space, copies: u64, result: &str) -> Result<Self> {
        const NAME: &str = "repeat";
        let Some((_, leaf)) = domain.only().filter(|(_, leaf)| leaf.batch == 1 && leaf.is_distributed()) else {
            return refuse(NAME, format!("{domain}: expected one field at cells, modes or points"));
        };
        if !(1..=MAX_COPIES).contains(&copies) {
            return refuse(NAME, format!("copies: expected 1 to {MAX_COPIES}, got {copies}"));
        }
        let target = Space::of(result, leaf.clone().batch(copies))?;
        let params = RepeatParams { count: leaf.len() as u32, copies: copies as u32 };
        Ok(Repeat { signature: Signature::new(NAME, domain, &target), params, kernel: Kernel::trusted(source()) })
    }
}

impl Linear for Repeat {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (v, out, recorder) = (v.single()?, out.single()?, &mut rank.recorder);
        let count = u64::from(self.params.count);
        match direction {
            Direction::Forward => {
                (0..u64::from(self.params.copies))
                    .try_for_each(|copy| recorder.copy(v, 0, out, copy * count, count))?;
            }
            Direction::Adjoint => recorder.each(&self.kernel, &[v.raw(), out.raw()], &self.params, count)?,
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.number(u64::from(self.params.copies));
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let bytes = 4 * (self.signature.domain.own_numbers() + self.signature.target.own_numbers());
        [Cost::kernels(0, bytes), Cost::kernels(1, bytes)]
    }
}
