//! Fourier and Hartley transforms as operators.

use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::leaf::{Leaf, RegularGrid, Support};
use super::linear::Linear;
use super::signature::{CallCost, Signature};
use super::space::Space;
use super::vector::Vector;
use crate::fft::{Norm, Route, Spec, Transform, TransformOptions, Value, Values};
use crate::gpu::{Array, Gpu};
use crate::grid::Cost;
use crate::rank::Rank;

/// Bytes of a message, for reports.
const CHUNK: u64 = 2 << 20;

/// The Fourier transform from cells to modes, `exp(-2 pi i j k / n)`: of real fields to half spectra, of complex ones to all modes.
///
/// Its [`Adjoint`](super::Adjoint) goes from modes to cells, and is not the inverse of real fields: the inner product of half
/// spectra is the sum over the modes that are stored, so the adjoint weighs modes that stand for two by a half, and lacks the
/// factor `1/N` unless `norm` puts it there. [`inverse`](Self::inverse) goes back. A product of modes with factors in between is a
/// [`FourierFilter`](super::FourierFilter), in fewer passes. Cost: that of [`Transform`].
pub struct Fourier {
    transform: AnyTransform,
    norm: Norm,
    signature: Signature,
}

/// A transform of real or of complex fields.
enum AnyTransform {
    Real(Transform<f32>),
    Complex(Transform<[f32; 2]>),
}

/// The grid and the only leaf of a space of cells without ghosts.
pub(super) fn cells_of<'a>(
    space: &'a Space,
    operator: &str,
) -> Result<(&'a str, &'a Leaf, &'a RegularGrid), OperatorError> {
    match space.only() {
        Some((name, leaf @ Leaf { support: Support::Cells { regular, ghosts }, .. })) if *ghosts == [[0; 2]; 3] => {
            Ok((name, leaf, regular))
        }
        _ => Err(OperatorError::invalid(operator, format!("{space} is not one field of cells without ghosts"))),
    }
}

/// Refuses a grid that is not cut for this rank. [Collective](Rank) when the grid is new.
pub(super) fn cut_alike(regular: &RegularGrid, rank: &mut Rank, operator: &str) -> Result<(), OperatorError> {
    if (regular.grid.ranks(), regular.rank) == (rank.size(), rank.index()) {
        rank.parts(regular.grid)?;
        return Ok(());
    }
    let (grid, index, ranks) = (regular.grid, rank.index(), rank.size());
    let why = format!(
        "the fields are cut for rank {} of {grid} ranks, this is rank {index} of {ranks}; make spaces for this rank and a grid of all ranks",
        regular.rank
    );
    Err(OperatorError::invalid(operator, why))
}

/// What the passes and exchanges of a route cost this rank, with modes of 8 bytes.
pub(super) fn route_cost(route: &Route) -> CallCost {
    let mut exchanges = Cost::default();
    route.exchanges().for_each(|transpose| exchanges += transpose.cost(8, CHUNK));
    CallCost::passes(route.passes().count() as u64, route.traffic()).with(exchanges)
}

pub(super) fn transform<T: Value>(
    gpu: &Gpu,
    leaf: &Leaf,
    regular: &RegularGrid,
    norm: Norm,
) -> Result<Transform<T>, OperatorError> {
    let spec = Spec::of::<T>(regular.shape).fields(leaf.fields()).norm(norm);
    Ok(Transform::with(gpu, &spec, regular.grid, regular.rank, &TransformOptions::default())?)
}

impl Fourier {
    /// The transform of the only leaf of `domain`, cells without ghosts, to a leaf of the same name.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces; [`OperatorError::Fft`] for what cannot be transformed on this device.
    pub fn new(rank: &mut Rank, domain: &Space, norm: Norm) -> Result<Self, OperatorError> {
        const NAME: &str = "Fourier transform";
        let (name, leaf, regular) = cells_of(domain, NAME)?;
        cut_alike(regular, rank, NAME)?;
        let half = leaf.values == Values::Real;
        let modes = Support::Modes { regular: regular.clone(), half };
        let target = Space::of(name, Leaf { support: modes, ..leaf.clone() }.complex())?;
        let gpu = &rank.gpu;
        let transform = match leaf.values {
            Values::Real => AnyTransform::Real(transform(gpu, leaf, regular, norm)?),
            Values::Complex => AnyTransform::Complex(transform(gpu, leaf, regular, norm)?),
        };
        Ok(Fourier { transform, norm, signature: Signature::new(NAME, domain, &target) })
    }

    /// Returns the inverse, from modes to cells: `inverse(forward(x))` is `x` for [`Norm::Backward`] and [`Norm::Ortho`].
    ///
    /// Imaginary parts of modes that are real for every real field count for nothing.
    pub fn inverse(self) -> InverseFourier {
        let signature = Signature::new("inverse Fourier transform", &self.signature.target, &self.signature.domain);
        InverseFourier { forward: self, signature }
    }

    fn plan(&self) -> &crate::fft::Plan {
        match &self.transform {
            AnyTransform::Real(transform) => transform.plan(),
            AnyTransform::Complex(transform) => transform.plan(),
        }
    }
}

impl Linear for Fourier {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let modes: Array<[f32; 2]> = y.single()?.cast()?;
        match &self.transform {
            AnyTransform::Real(transform) => {
                transform.forward(recorder, comms, x.single()?, &transform.field_layout(), &modes)?;
            }
            AnyTransform::Complex(transform) => {
                transform.forward(recorder, comms, &x.single()?.cast()?, &transform.field_layout(), &modes)?;
            }
        }
        Ok(())
    }

    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let modes: Array<[f32; 2]> = y.single()?.cast()?;
        match &self.transform {
            AnyTransform::Real(transform) => {
                transform.forward_adjoint(recorder, comms, &modes, x.single()?, &transform.field_layout())?;
            }
            AnyTransform::Complex(transform) => {
                transform.forward_adjoint(recorder, comms, &modes, &x.single()?.cast()?, &transform.field_layout())?;
            }
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        out.text(&format!("{:?}", self.norm));
        Ok(())
    }

    fn costs(&self) -> [CallCost; 2] {
        let plan = self.plan();
        [&plan.forward, &plan.inverse].map(route_cost)
    }
}

/// The inverse of a [`Fourier`] transform, from modes to cells ([`Fourier::inverse`]).
pub struct InverseFourier {
    forward: Fourier,
    signature: Signature,
}

impl Linear for InverseFourier {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn forward(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comms) = self.signature.target.parts(rank)?;
        let modes: Array<[f32; 2]> = y.single()?.cast()?;
        match &self.forward.transform {
            AnyTransform::Real(transform) => {
                transform.inverse(recorder, comms, &modes, x.single()?, &transform.field_layout())?;
            }
            AnyTransform::Complex(transform) => {
                transform.inverse(recorder, comms, &modes, &x.single()?.cast()?, &transform.field_layout())?;
            }
        }
        Ok(())
    }

    fn adjoint(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comms) = self.signature.target.parts(rank)?;
        let modes: Array<[f32; 2]> = y.single()?.cast()?;
        match &self.forward.transform {
            AnyTransform::Real(transform) => {
                transform.inverse_adjoint(recorder, comms, x.single()?, &transform.field_layout(), &modes)?;
            }
            AnyTransform::Complex(transform) => {
                transform.inverse_adjoint(recorder, comms, &x.single()?.cast()?, &transform.field_layout(), &modes)?;
            }
        }
        Ok(())
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        Linear::constants(&self.forward, rank, out)
    }

    fn costs(&self) -> [CallCost; 2] {
        let [forward, inverse] = self.forward.costs();
        [inverse, forward]
    }
}

/// The Hartley transform from cells to modes, `Re F x + Im F x` with the unnormalised Fourier transform `F`: a real symmetric matrix, whose
/// square is the number of cells. Modes are all those of the grid, one number each, so that a latent field has as many numbers as the real one
/// and each counts once.
///
/// It is a complex transform that reads and writes real numbers: 40 bytes per cell of three axes, 24 of two.
pub struct Hartley {
    transform: Transform<f32, f32>,
    signature: Signature,
}

impl Hartley {
    /// The transform of the only leaf of `domain`, real cells without ghosts, to a leaf of the same name.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] for other spaces; [`OperatorError::Fft`] for what cannot be transformed on this device.
    pub fn new(rank: &mut Rank, domain: &Space) -> Result<Self, OperatorError> {
        const NAME: &str = "Hartley transform";
        let (name, leaf, regular) = cells_of(domain, NAME)?;
        cut_alike(regular, rank, NAME)?;
        if leaf.values == Values::Complex {
            return Err(OperatorError::invalid(
                NAME,
                "complex fields; transform real and imaginary parts as two components",
            ));
        }
        let modes = Support::Modes { regular: regular.clone(), half: false };
        let target = Space::of(name, Leaf { support: modes, ..leaf.clone() })?;
        let spec = Spec::new(Values::Complex, regular.shape).fields(leaf.fields());
        let transform = Transform::hartley(&rank.gpu, &spec, regular.grid, regular.rank)?;
        Ok(Hartley { transform, signature: Signature::new(NAME, domain, &target) })
    }
}

impl Linear for Hartley {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let layout = self.transform.field_layout();
        Ok(self.transform.forward(recorder, comms, x.single()?, &layout, y.single()?)?)
    }

    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let layout = self.transform.field_layout();
        Ok(self.transform.forward_adjoint(recorder, comms, y.single()?, x.single()?, &layout)?)
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<(), OperatorError> {
        Ok(())
    }

    fn costs(&self) -> [CallCost; 2] {
        let plan = self.transform.plan();
        [&plan.forward, &plan.inverse].map(route_cost)
    }
}
