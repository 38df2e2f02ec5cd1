//! Values of a vector at places of a field, and sums of a field over those places: amplitudes by
//! wavenumber, broadcasts, sums.

use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::leaf::{Leaf, Support};
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::exchange::Terms;
use crate::fft::Values;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::Cost;
use crate::rank::Rank;

crate::gpu::kernel_params! {
    pub(super) struct GatherParams {
        pub count: u32,
        pub entries: u32,
        pub table_start: u32,
        pub out_start: u32,
    }
}

pub(super) fn source(indexed: bool, scatter: bool) -> KernelSource {
    KernelSource::new("operators::gather", include_str!("../../shaders/operators/gather.wgsl"))
        .params::<GatherParams>()
        .flag("indexed", indexed)
        .flag("scatter", scatter)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [[false, false], [true, false], [true, true]].map(|[indexed, scatter]| source(indexed, scatter)).into()
}

/// The map `y[i] = x[index[i]]` from a vector to a field. Its [`Adjoint`](super::Adjoint) adds the
/// places of each entry exactly ([`ExactSum`](crate::exchange::ExactSum)): the same bits on any
/// number of ranks.
///
/// | domain | index | operator | adjoint |
/// |---|---|---|---|
/// | one number | none | a broadcast | a sum |
/// | an amplitude for each bin | of modes, from [`Wavenumbers`](super::Wavenumbers) | amplitudes by wavenumber | a binned sum |
/// | a number for each line | of samples | - | sums along lines |
///
/// Cost: 8 bytes per place; the adjoint 16 bytes in two passes, and three words per entry between
/// ranks.
pub struct Gather {
    signature: Signature,
    index: Option<Array<u32>>,
    kernel: Kernel,
}

impl Gather {
    /// Creates the operator between real leaves of one component and the same batch. Places whose
    /// index is out of range are 0.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces, or if the numbers of indices and places
    ///   differ.
    pub fn new(domain: &Space, target: &Space, index: Array<u32>) -> Result<Self, OperatorError> {
        let (_, leaf) = Self::check(domain, target)?;
        if index.len() != leaf.places() {
            let why = format!("{} indices for {} places", index.len(), leaf.places());
            return Err(OperatorError::invalid("gather", why));
        }
        Ok(Gather {
            signature: Signature::new("gather", domain, target),
            index: Some(index),
            kernel: Kernel::trusted(source(true, false)),
        })
    }

    /// Creates the broadcast of the only number of `domain` to all places of `target`.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    pub fn broadcast(domain: &Space, target: &Space) -> Result<Self, OperatorError> {
        let (entries, _) = Self::check(domain, target)?;
        if entries != 1 {
            return Err(OperatorError::invalid(
                "gather",
                format!("a vector of {entries}, from which places take no entry"),
            ));
        }
        Ok(Gather {
            signature: Signature::new("broadcast", domain, target),
            index: None,
            kernel: Kernel::trusted(source(false, false)),
        })
    }

    /// Returns the number of entries of the domain and the leaf of the target.
    fn check<'a>(domain: &Space, target: &'a Space) -> Result<(u64, &'a Leaf), OperatorError> {
        let simple = |leaf: &Leaf| leaf.components == 1 && leaf.values == Values::Real;
        match (domain.only(), target.only()) {
            (Some((_, from)), Some((_, to)))
                if simple(from)
                    && simple(to)
                    && from.batch == to.batch
                    && matches!(from.support, Support::Vector { .. })
                    && !matches!(to.support, Support::Parameters { .. }) =>
            {
                Ok((from.places(), to))
            }
            _ => {
                let why =
                    format!("from {domain} to {target}; it takes one real vector to one real field of the same batch");
                Err(OperatorError::invalid("gather", why))
            }
        }
    }

    fn leaves(&self) -> Result<[&Leaf; 2], OperatorError> {
        match (self.signature.domain.only(), self.signature.target.only()) {
            (Some((_, from)), Some((_, to))) => Ok([from, to]),
            _ => Err(OperatorError::invalid("gather", "spaces of more than one leaf")),
        }
    }
}

/// Records a gather or a scatter of each field of a batch: `strides` are the elements between them
/// in `from` and `to`.
pub(super) fn record(
    recorder: &mut Recorder,
    kernel: &Kernel,
    arrays: (&Array<f32>, Option<&Array<u32>>, &Array<f32>),
    [count, entries]: [u64; 2],
    batch: u64,
    strides: [u64; 2],
) -> Result<(), DeviceError> {
    let (from, index, to) = arrays;
    for number in 0..batch {
        let params = GatherParams {
            count: count as u32,
            entries: entries as u32,
            table_start: (number * strides[0]) as u32,
            out_start: (number * strides[1]) as u32,
        };
        let arrays: Vec<_> = std::iter::once(from.raw()).chain(index.map(Array::raw)).chain([to.raw()]).collect();
        recorder.each(kernel, &arrays, &params, count)?;
    }
    Ok(())
}

impl Linear for Gather {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        let [from, to] = self.leaves()?;
        let (v, out) = (v.single()?, out.single()?);
        if direction == Direction::Forward {
            let (entries, places) = (from.places(), to.places());
            let arrays = (v, self.index.as_ref(), out);
            return Ok(record(
                &mut rank.recorder,
                &self.kernel,
                arrays,
                [places, entries],
                to.batch,
                [entries, places],
            )?);
        }
        let terms = Terms {
            x: v,
            y: None,
            index: self.index.as_ref(),
            sums: from.places(),
            batches: to.batch,
            total: to.total() / to.batch,
        };
        let sum = rank.exact_sums();
        let (recorder, comm) = (&mut rank.recorder, &rank.comm);
        Ok(sum.record(recorder, to.is_distributed().then_some(comm), &terms, out)?)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        let [_, to] = self.leaves()?;
        self.index.as_ref().map_or(Ok(()), |index| out.array(rank, to, index))
    }

    fn costs(&self) -> [Cost; 2] {
        let Ok([from, to]) = self.leaves() else { return [Cost::default(); 2] };
        let index = if self.index.is_some() { 4 * to.places() * to.batch } else { 0 };
        let there = Cost::kernels(to.batch, 4 * to.len() + index);
        let back = Cost::kernels(3 * to.batch, 8 * to.len() + index + 12 * from.len());
        let ranks = to.mesh().map_or(1, |mesh| mesh.grid().ranks() as u64);
        // Two reductions and what they spread again, by trees: messages of one rank at most.
        let steps = u64::from(ranks.next_power_of_two().ilog2());
        [there, Cost { messages: 4 * steps, sent_bytes: 2 * steps * (4 * to.batch + 8 * from.len()), ..back }]
    }
}
