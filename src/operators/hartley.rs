//! The Hartley transform: real fields and as many real modes.

use super::cost::CallCost;
use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::fourier::{cells_of, cut_alike, route_cost};
use super::leaf::{Leaf, Support};
use super::linear::Linear;
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::fft::{self, Spec, TransformTuning, Values};
use crate::rank::Rank;

/// The Hartley transform from cells to modes, `Re F x + Im F x` with the unnormalised Fourier transform `F`: a real symmetric matrix, whose
/// square is the number of cells. Modes are all those of the grid, one number each, so that a latent field has as many numbers as the real one
/// and each counts once.
///
/// It is a complex transform that reads and writes real numbers: 40 bytes per cell of three axes, 24 of two.
pub struct Hartley {
    transform: fft::Hartley,
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
        let (gpu, tuning) = (&rank.gpu, TransformTuning::of(&rank.gpu));
        let transform = fft::Hartley::new(gpu, &spec, regular.grid, regular.rank, &tuning)?;
        Ok(Hartley { transform, signature: Signature::new(NAME, domain, &target) })
    }
}

impl Linear for Hartley {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        Ok(self.transform.to_modes(recorder, comms, x.single()?, y.single()?)?)
    }

    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        let (recorder, comms) = self.signature.domain.parts(rank)?;
        Ok(self.transform.to_cells(recorder, comms, y.single()?, x.single()?)?)
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<(), OperatorError> {
        Ok(())
    }

    fn costs(&self) -> [CallCost; 2] {
        self.transform.routes().map(route_cost)
    }
}
