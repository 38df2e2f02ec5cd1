//! Input and output of a loss of a run.

use super::cotangents::Cotangents;
use super::sweeps::Sweeps;
use crate::field::{Field, on_mesh};
use crate::grid::volume;
use crate::mesh::Bin;
use crate::pm::error::require;
use crate::pm::lattice_fields::uploaded;
use crate::pm::{Result, Simulation};
use crate::rank::Rank;

/// Access to the final state for a loss.
pub struct Observer<'a> {
    pub(super) sweeps: &'a mut Sweeps,
}

impl Observer<'_> {
    /// Returns the run at its end.
    pub fn run(&mut self) -> &mut Simulation {
        &mut self.sweeps.run
    }

    /// Returns the cotangents, all 0 at first.
    #[must_use]
    pub fn cotangents(&self) -> &Cotangents {
        &self.sweeps.bars
    }

    /// Records the density on [`Simulation::cell_mesh`], whose mean is 1, as
    /// [`Simulation::density`] computes it. [Collective](Rank); blocks only for exchanges between
    /// ranks. Lost particles are reported by
    /// [`Gradient::evaluate`](crate::pm::Gradient::evaluate).
    ///
    /// # Errors
    /// [`Lost`](crate::pm::SimulationError::Lost), and errors of the device and the ranks.
    pub fn density(&mut self, rank: &mut Rank) -> Result<Field> {
        let run = &mut self.sweeps.run;
        let density = rank.new_field(&run.cell_mesh, 1)?;
        run.record_density(rank, density.array())?;
        Ok(density)
    }

    /// Adds the derivative of a loss of the [density](Self::density): `by` is the derivative by
    /// each cell. [Collective](Rank); blocks only for exchanges between ranks.
    ///
    /// # Errors
    /// Same as [`density`](Self::density); [`Layout`](crate::pm::SimulationError::Layout) if `by`
    /// is on another mesh than [`Simulation::cell_mesh`].
    pub fn add_density(&mut self, rank: &mut Rank, by: &Field) -> Result<()> {
        on_mesh("derivatives by the density", &self.sweeps.run.cell_mesh, by.mesh())?;
        self.sweeps.density_adjoint(rank, by.array())
    }

    /// Adds the derivative of a loss of the power spectrum: `by[b]` is its derivative with respect
    /// to the power of bin `b` of `spectrum`, which [`Simulation::power`] has returned. Collective,
    /// with the same values. Waits for exchanges only.
    ///
    /// # Errors
    /// Same as [`density`](Self::density);
    /// [`OutOfRange`](crate::pm::SimulationError::OutOfRange) for another number of values than
    /// bins.
    pub fn add_power(&mut self, rank: &mut Rank, spectrum: &[Bin], by: &[f64]) -> Result<()> {
        let allowed = format!("as many as the spectrum has bins, {}", spectrum.len());
        require(spectrum.len() == by.len(), "derivatives by power", by.len(), allowed)?;
        let run = &mut self.sweeps.run;
        run.settle(rank)?;
        let (force, mut at) = run.force_at(rank);
        let modes = force.contrast(&mut at)?;
        let (recorder, comms) = (&mut rank.recorder, &mut run.comms);
        let table = uploaded(recorder, &power_table(run.config.mesh, run.config.box_size, spectrum, by))?;
        let transform = run.force.transform();
        transform.scale_radially(recorder, &modes, &table)?;
        let layout = transform.field_layout();
        let cotangent = recorder.gpu().array::<f32>("pm::density_cotangent", volume(&layout.own))?;
        transform.inverse(recorder, comms, &modes, &cotangent, &layout)?;
        self.sweeps.density_adjoint(rank, &cotangent)
    }
}

/// Returns the factors of modes of the contrast by mode number squared, whose inverse transform is
/// the derivative by the contrast: the power of a bin is the mean of `|delta_k|^2 V / N^2` over its
/// modes.
fn power_table(n: u64, box_size: f64, spectrum: &[Bin], by: &[f64]) -> Vec<f32> {
    // The inverse transform divides by N, and a mode counts for itself and its conjugate.
    let unit = 2.0 * (box_size / n as f64).powi(3);
    let of_bin: Vec<f32> = spectrum
        .iter()
        .zip(by)
        .map(|(bin, by)| if bin.modes == 0 { 0.0 } else { (unit * by / bin.modes as f64) as f32 })
        .collect();
    let last = 3 * (n / 2) * (n / 2);
    // Bins are around whole mode numbers, from 1 on.
    let bin = |m2: u64| ((m2 as f64).sqrt() + 0.5).floor() as usize;
    (0..=last).map(|m2| bin(m2).checked_sub(1).and_then(|bin| of_bin.get(bin)).copied().unwrap_or(0.0)).collect()
}
