//! Fourier and Hartley transforms as operators.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::leaf::{Leaf, Support};
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::exchange::{ExchangeError, GridComms};
use crate::fft::{Norm, Route, Spec, Transform, TransformOptions, Value, Values};
use crate::gpu::{Array, Gpu, Recorder};
use crate::grid::{Cost, Mesh};
use crate::rank::Rank;

/// Bytes of a message in cost reports.
const CHUNK: u64 = 2 << 20;

/// The Fourier transform from cells to modes with `exp(-2 pi i j k / n)`: of real fields to half
/// spectra, of complex fields to all modes.
///
/// The [`Adjoint`](super::Adjoint) is not the inverse. It has the factor of the forward transform.
/// The inner product of half spectra adds the stored modes, so modes that stand for two have the
/// weight 1/2. [`inverse`](Self::inverse) inverts the transform.
/// [`FourierFilter`](super::FourierFilter) multiplies modes in fewer passes. Cost: that of
/// [`Transform`].
pub struct Fourier {
    transform: AnyTransform,
    norm: Norm,
    is_inverse: bool,
    signature: Signature,
}

/// Names of the transform and its inverse.
const NAMES: [&str; 2] = ["Fourier transform", "inverse Fourier transform"];

/// A transform of real or of complex fields.
enum AnyTransform {
    Real(Transform<f32>),
    Complex(Transform<[f32; 2]>),
}

/// Returns the only leaf of a space, cells without ghost cells that are cut for this rank, with its
/// name and grid. [Collective](Rank) for a new grid.
pub(super) fn cells_of<'a>(rank: &mut Rank, space: &'a Space, operator: &str) -> Result<(&'a str, &'a Leaf, &'a Mesh)> {
    match space.only() {
        Some((name, leaf @ Leaf { support: Support::Cells { mesh }, .. })) if !mesh.has_ghosts() => {
            cut_alike(mesh, rank, operator)?;
            Ok((name, leaf, mesh))
        }
        _ => Err(OperatorError::invalid(operator, format!("{space} is not one field of cells without ghosts"))),
    }
}

/// Checks that a grid is cut for this rank. [Collective](Rank) for a new grid.
pub(super) fn cut_alike(mesh: &Mesh, rank: &mut Rank, operator: &str) -> Result<()> {
    if (mesh.grid().ranks(), mesh.rank()) == (rank.size(), rank.index()) {
        rank.parts(mesh.grid())?;
        return Ok(());
    }
    let (grid, index, ranks) = (mesh.grid(), rank.index(), rank.size());
    let why = format!(
        "the fields are cut for rank {} of {grid} ranks, this is rank {index} of {ranks}; create their mesh with `Rank::mesh` of this rank",
        mesh.rank()
    );
    Err(OperatorError::invalid(operator, why))
}

/// Returns the cost of a route for this rank, with modes of 8 bytes.
pub(super) fn route_cost(route: &Route) -> Cost {
    let mut exchanges = Cost::default();
    route.exchanges().for_each(|transpose| exchanges += transpose.cost(8, CHUNK));
    Cost::kernels(route.dispatches(), route.traffic()) + exchanges
}

pub(super) fn transform<T: Value>(gpu: &Gpu, leaf: &Leaf, mesh: &Mesh, norm: Norm) -> Result<Transform<T>> {
    let spec = Spec::of::<T>(mesh.shape()).fields(leaf.fields()).norm(norm);
    Ok(Transform::with(gpu, &spec, mesh.grid(), mesh.rank(), &TransformOptions::default())?)
}

impl Fourier {
    /// Creates the transform of the only leaf of `domain`, cells without ghost cells, to a leaf of
    /// the same name.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    /// - [`OperatorError::Fft`] for shapes that this device cannot transform.
    pub fn new(rank: &mut Rank, domain: &Space, norm: Norm) -> Result<Self> {
        let [name_of_transform, _] = NAMES;
        let (name, leaf, mesh) = cells_of(rank, domain, name_of_transform)?;
        let half = leaf.values == Values::Real;
        let modes = Support::Modes { mesh: mesh.clone(), half };
        let target = Space::of(name, Leaf { support: modes, ..leaf.clone() }.complex())?;
        let gpu = &rank.gpu;
        let transform = match leaf.values {
            Values::Real => AnyTransform::Real(transform(gpu, leaf, mesh, norm)?),
            Values::Complex => AnyTransform::Complex(transform(gpu, leaf, mesh, norm)?),
        };
        let signature = Signature::new(name_of_transform, domain, &target);
        Ok(Fourier { transform, norm, is_inverse: false, signature })
    }

    /// Returns the inverse, from modes to cells: `inverse(forward(x))` is `x` for
    /// [`Norm::Backward`] and [`Norm::Ortho`].
    ///
    /// Imaginary parts of modes that are real for every real field have no effect.
    #[must_use]
    pub fn inverse(self) -> Fourier {
        let Signature { domain, target, .. } = &self.signature;
        let is_inverse = !self.is_inverse;
        Fourier { signature: Signature::new(NAMES[usize::from(is_inverse)], target, domain), is_inverse, ..self }
    }
}

impl<T: Value<Mode = [f32; 2]>> Transform<T> {
    /// Runs the transform or its inverse between cells and modes, or the adjoint of one of them.
    fn call(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        is_inverse: bool,
        direction: Direction,
        cells: &Array<T>,
        modes: &Array<[f32; 2]>,
    ) -> Result<(), ExchangeError> {
        let layout = &self.field_layout();
        match (is_inverse, direction) {
            (false, Direction::Forward) => self.forward(recorder, comms, cells, layout, modes),
            (false, Direction::Adjoint) => self.forward_adjoint(recorder, comms, modes, cells, layout),
            (true, Direction::Forward) => self.inverse(recorder, comms, modes, cells, layout),
            (true, Direction::Adjoint) => self.inverse_adjoint(recorder, comms, cells, layout, modes),
        }
    }
}

impl Linear for Fourier {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let (v, out) = (v.single()?, out.single()?);
        let (cells, modes) = if self.is_inverse == (direction == Direction::Forward) { (out, v) } else { (v, out) };
        match &self.transform {
            AnyTransform::Real(transform) => {
                transform.call(recorder, comms, self.is_inverse, direction, cells, &modes.cast()?)?
            }
            AnyTransform::Complex(transform) => {
                transform.call(recorder, comms, self.is_inverse, direction, &cells.cast()?, &modes.cast()?)?;
            }
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.text(&format!("{:?}", self.norm));
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let plan = match &self.transform {
            AnyTransform::Real(transform) => transform.plan(),
            AnyTransform::Complex(transform) => transform.plan(),
        };
        let [forward, inverse] = [&plan.forward, &plan.inverse].map(route_cost);
        if self.is_inverse { [inverse, forward] } else { [forward, inverse] }
    }
}

/// The Hartley transform from cells to modes, `Re F x + Im F x` with the unnormalized Fourier
/// transform `F`. It is a real symmetric matrix whose square is the number of cells. Its modes are
/// all modes of the grid with one real number each, as many as cells.
///
/// It is a complex transform that reads and writes real numbers: 40 bytes per cell in three
/// dimensions, 24 in two.
pub struct Hartley {
    transform: Transform<f32, f32>,
    signature: Signature,
}

impl Hartley {
    /// Creates the transform of the only leaf of `domain`, real cells without ghost cells, to a
    /// leaf of the same name.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] for other spaces.
    /// - [`OperatorError::Fft`] for shapes that this device cannot transform.
    pub fn new(rank: &mut Rank, domain: &Space) -> Result<Self> {
        const NAME: &str = "Hartley transform";
        let (name, leaf, mesh) = cells_of(rank, domain, NAME)?;
        if leaf.values == Values::Complex {
            return Err(OperatorError::invalid(
                NAME,
                "complex fields; transform real and imaginary parts as two components",
            ));
        }
        let modes = Support::Modes { mesh: mesh.clone(), half: false };
        let target = Space::of(name, Leaf { support: modes, ..leaf.clone() })?;
        let spec = Spec::of::<[f32; 2]>(mesh.shape()).fields(leaf.fields());
        let transform = Transform::hartley(&rank.gpu, &spec, mesh.grid(), mesh.rank())?;
        Ok(Hartley { transform, signature: Signature::new(NAME, domain, &target) })
    }
}

impl Linear for Hartley {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        let (v, out, layout) = (v.single()?, out.single()?, &self.transform.field_layout());
        match direction {
            Direction::Forward => self.transform.forward(recorder, comms, v, layout, out)?,
            Direction::Adjoint => self.transform.forward_adjoint(recorder, comms, v, out, layout)?,
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<()> {
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        let plan = self.transform.plan();
        [&plan.forward, &plan.inverse].map(route_cost)
    }
}
