//! The amplitude of a correlated field as a model of its latent values.

use std::rc::Rc;

use super::CorrelatedField;
use super::amplitude::AmplitudeAt;
use crate::exchange::Terms;
use crate::gpu::Array;
use crate::grid::Cost;
use crate::host_memory;
use crate::operators::{
    Differentiable, Fingerprint, Leaf, Linearized, OperatorCost, OperatorError, Signature, Space, Support, Vector,
};
use crate::rank::Rank;

/// The amplitude at each wavenumber of a group of axes, as a function of the latent values of the
/// field beside the excitations of modes. Every rank computes the same.
pub(super) struct AmplitudeModel {
    signature: Signature,
    field: CorrelatedField,
    group: usize,
    /// The number of each wavenumber.
    index: Array<u32>,
}

impl AmplitudeModel {
    /// Creates the model of a group of axes, with the leaf `amplitude`.
    pub fn new(rank: &mut Rank, field: &CorrelatedField, group: usize) -> Result<Self, OperatorError> {
        let leaves = field.0.signature.domain.leaves().filter(|(name, _)| *name != field.0.xi);
        let domain = Space::new(leaves.map(|(name, leaf)| (name, leaf.clone())))?;
        let bins = field.0.groups[group].amplitude.len();
        let target = Space::of("amplitude", Leaf::vector(bins))?;
        let index = rank.gpu.array("inference::bins", bins)?;
        rank.recorder.upload(&index, 0, &host_memory::collect("wavenumbers", 0..bins as u32)?)?;
        Ok(AmplitudeModel {
            signature: Signature::new("amplitude", &domain, &target),
            field: field.clone(),
            group,
            index,
        })
    }

    /// Computes the amplitude; returns the inputs of its derivatives.
    fn value(&self, rank: &mut Rank, x: &Vector, y: &Vector) -> Result<(Array<f32>, AmplitudeAt), OperatorError> {
        self.fits(x, y)?;
        let inner = &self.field.0;
        let packed = inner.packing.pack(&mut rank.recorder, x)?;
        let at = inner.groups[self.group].amplitude.apply(&mut rank.recorder, x, &packed)?;
        let y = y.array("amplitude")?;
        rank.recorder.copy(&at.amplitude, 0, y, 0, y.len())?;
        Ok((packed, at))
    }
}

impl Differentiable for AmplitudeModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.value(rank, x, y).map(|_| ())
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        let (packed, at) = self.value(rank, x, y)?;
        Ok(Box::new(At { model: self, packed, at }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        out.text(&self.field.0.prior);
        out.number(self.group as u64);
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        let amplitude = &self.field.0.groups[self.group].amplitude;
        let [value, tangent, cotangent] = amplitude.dispatches();
        let bytes = 4 * amplitude.len();
        OperatorCost {
            apply: Cost::kernels(1 + value, 8 * bytes),
            jvp: Cost::kernels(1 + tangent, 10 * bytes),
            vjp: Cost::kernels(3 + cotangent, 12 * bytes),
        }
    }
}

struct At {
    model: Rc<AmplitudeModel>,
    packed: Array<f32>,
    at: AmplitudeAt,
}

impl Linearized for At {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.model.fits(dx, dy)?;
        let inner = &self.model.field.0;
        let d_packed = inner.packing.pack(&mut rank.recorder, dx)?;
        let amplitude = &inner.groups[self.model.group].amplitude;
        let tangent = amplitude.jvp(&mut rank.recorder, (&self.packed, &self.at), (dx, &d_packed))?;
        let dy = dy.array("amplitude")?;
        Ok(rank.recorder.copy(&tangent, 0, dy, 0, dy.len())?)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.model.fits(dx, dy)?;
        let inner = &self.model.field.0;
        // Spectra of other groups have the cotangent 0.
        for (name, leaf) in dx.space().leaves() {
            if matches!(leaf.support, Support::Vector { len } if len > 1) {
                rank.recorder.clear(dx.array(name)?);
            }
        }
        let packed = inner.packing.zeros(&mut rank.recorder, dx)?;
        let amplitude = &inner.groups[self.model.group].amplitude;
        let (x, index) = (dy.array("amplitude")?, Some(&self.model.index));
        // The cotangent as sums of one term each, which the kernel reads.
        let terms = Terms { x, y: None, index, sums: amplitude.len(), batches: 1, total: 1 };
        let sum = rank.exact_sums();
        let (words, bits) = sum.integers(&mut rank.recorder, None, &terms)?;
        amplitude.vjp(&mut rank.recorder, (&self.packed, &self.at), (&words, bits), (dx, &packed))?;
        inner.packing.unpack(&mut rank.recorder, &packed, dx)
    }
}
