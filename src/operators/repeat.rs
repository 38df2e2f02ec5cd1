//! A field as each field of a batch, and the sum of a batch.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::gpu::{Kernel, KernelSource};
use crate::grid::Cost;
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct RepeatParams {
        count: u32,
        copies: u32,
    }
}

fn source() -> KernelSource {
    KernelSource::new("operators::repeat", include_str!("../../shaders/operators/repeat.wgsl")).params::<RepeatParams>()
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    vec![source()]
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
            return Err(OperatorError::invalid(
                NAME,
                format!("{domain}: expected one field at cells, modes or points"),
            ));
        };
        if !(1..=MAX_COPIES).contains(&copies) {
            return Err(OperatorError::invalid(NAME, format!("copies: expected 1 to {MAX_COPIES}, got {copies}")));
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
