//! The particle-mesh force.
//!
//! ```text
//! paint -> add halos -> density -> filter: i k 1.5 Omega_m / k^2 for each axis -> fill halos -> read at the particles
//! ```
//!
//! The filter gives the three components in the memory traffic of ten passes. Paint and readout use the same window,
//! so that a particle exerts no force on itself and momentum is conserved.

use crate::comm::Op;
use crate::exchange::GridComms;
use crate::exchange::ghost_cells::{Cells, GhostCells};
use crate::fft::{Filter, Operator, Spec, Spectral, Transform, Tuning, Values};
use crate::gpu::{Array, Recorder};
use crate::grid::{FieldLayout, GhostPlan};
use crate::mesh::{Lattice, Mesh, Painter, Particles};

use super::{Config, SimulationError};

/// Solves for the acceleration of particles on one rank.
pub struct Force {
    painter: Painter,
    transform: Transform<f32>,
    filter: Filter<f32>,
    mesh: Mesh,
    halo: GhostCells,
    shape: [u64; 3],
    size: [f64; 3],
    sites: u64,
    reach: Array<u32>,
    faults: Array<u32>,
}

/// Ghost cells that are added when a halo has to grow, so that it does not grow every step.
const MARGIN: u64 = 2;

impl Force {
    /// A solver for the mesh of `config` over the grid of `lines`.
    ///
    /// # Errors
    /// [`SimulationError`] of the transform or the device.
    pub fn new(config: &Config, recorder: &mut Recorder, lines: &GridComms) -> Result<Self, SimulationError> {
        let (shape, size, gpu) = (config.cells(), config.size(), recorder.gpu().clone());
        let transform = Transform::new(&gpu, shape, lines.grid(), lines.rank())?;
        let (gradient, laplacian) = (config.gradient, config.laplacian);
        let (spec, tuning) = (Spec::new(Values::Real, shape), Tuning::of(&gpu));
        let part = Filter::<f32>::part_of(&gpu, &spec, lines, &tuning)?;
        let gradients = [0, 1, 2].map(|axis| {
            let operator = Operator {
                // F = -grad phi and phi = -1.5 Omega_m delta / k^2: F(k) = i k 1.5 Omega_m delta / k^2.
                constant: [0.0, 1.5 * config.cosmology.omega_m()],
                factor: &|a, wave| if a == axis { gradient.at(wave.w, wave.nyquist) / wave.spacing } else { 1.0 },
                laplacian: Some(&|_, wave| laplacian.at(wave.w) / (wave.spacing * wave.spacing)),
            };
            operator.tables(shape, size, &part)
        });
        let callback = Spectral::new(recorder, &gradients, &part)?.trusted_callback();
        let filter = Filter::new(&gpu, &spec, lines, &tuning, &callback, 3)?;
        let halo = [[0; 2]; 3];
        let mesh = Mesh::new(shape, size, lines.grid(), lines.rank(), halo);
        let faults = gpu.array("pm::faults", 1)?;
        recorder.clear(&faults);
        Ok(Force {
            painter: Painter::new(config.window),
            transform,
            filter,
            halo: GhostCells::new(GhostPlan::new(shape, lines.grid(), lines.rank(), mesh.layout.halo, [true; 3])),
            mesh,
            shape,
            size,
            sites: config.particles.pow(3),
            reach: gpu.array("pm::reach", 7)?,
            faults,
        })
    }

    /// The mesh transform.
    pub fn transform(&self) -> &Transform<f32> {
        &self.transform
    }

    /// The filter that makes a density into a force.
    pub fn filter(&self) -> &Filter<f32> {
        &self.filter
    }

    /// The halo as it is now.
    pub fn layout(&self) -> &FieldLayout {
        &self.mesh.layout
    }

    /// Widens the halo to what the particles need. Along axes that are not cut nothing is needed, so a run on one rank
    /// waits for nothing here.
    fn fit(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        particles: Particles<'_>,
    ) -> Result<(), SimulationError> {
        if self.mesh.whole == [true; 3] {
            return Ok(());
        }
        self.painter.reach(recorder, particles, &self.mesh, &self.reach)?;
        let mut reach = recorder.download(&self.reach, 0, 7)?;
        let mut lost = [u64::from(reach[6])];
        lines.world().all_reduce(&mut reach, Op::Max)?;
        lines.world().all_reduce(&mut lost, Op::Sum)?;
        if lost[0] > 0 {
            return Err(SimulationError::Lost { particles: lost[0] });
        }
        let mut halo = self.mesh.layout.halo;
        for axis in (0..3).filter(|&axis| !self.mesh.whole[axis]) {
            for side in 0..2 {
                let needed = u64::from(reach[2 * axis + side]);
                if needed > halo[axis][side] {
                    halo[axis][side] = needed + MARGIN;
                }
            }
        }
        if halo != self.mesh.layout.halo {
            tracing::debug!(?halo, "the halo grows");
            self.mesh = Mesh::new(self.shape, self.size, lines.grid(), lines.rank(), halo);
            let plan = GhostPlan::new(self.shape, lines.grid(), lines.rank(), halo, [true; 3]);
            self.halo.replace(plan);
        }
        Ok(())
    }

    /// Records `out = density + shift` on this rank's own cells (C order): the mean density is 1.
    ///
    /// # Errors
    /// [`SimulationError`]; [`SimulationError::Lost`] when particles have no finite position.
    pub fn density(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        particles: Particles<'_>,
        shift: f32,
        out: &Array<f32>,
    ) -> Result<(), SimulationError> {
        self.fit(recorder, lines, particles)?;
        let cells = recorder.gpu().array::<u32>("pm::cells", 2 * self.mesh.layout.len())?;
        recorder.clear(&cells);
        self.painter.paint(recorder, particles, &self.mesh, &cells, &self.faults)?;
        self.halo.reduce(recorder, lines, &cells, Cells::Wide)?;
        let scale = self.shape.iter().product::<u64>() as f64 / self.sites as f64;
        self.painter.density(recorder, &self.mesh, &cells, out, scale, shift)?;
        Ok(())
    }

    /// Records the spectrum of the density contrast.
    ///
    /// # Errors
    /// As [`density`](Self::density).
    pub fn contrast(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        particles: Particles<'_>,
    ) -> Result<Array<[f32; 2]>, SimulationError> {
        let own = self.transform.field_layout();
        let density = recorder.gpu().array::<f32>("pm::density", own.len())?;
        self.density(recorder, lines, particles, -1.0, &density)?;
        let spectrum = self.transform.spectrum(recorder.gpu())?;
        self.transform.forward(recorder, lines, &density, &own, &spectrum)?;
        Ok(spectrum)
    }

    /// Records the acceleration of the particles: `-grad phi` with `lap phi = 1.5 Omega_m delta`, by axis.
    ///
    /// # Errors
    /// As [`density`](Self::density).
    pub fn accelerate(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        lattice: &Lattice,
        displacement: &[Array<f32>; 3],
        acceleration: &[Array<f32>; 3],
    ) -> Result<(), SimulationError> {
        let particles =
            Particles::Sites { lattice, displacement: [&displacement[0], &displacement[1], &displacement[2]] };
        let (gpu, own) = (recorder.gpu().clone(), self.transform.field_layout());
        let density = gpu.array::<f32>("pm::density", own.len())?;
        self.density(recorder, lines, particles, -1.0, &density)?;
        let fields = gpu.array::<f32>("pm::force", 3 * self.mesh.layout.len())?;
        self.filter.apply(recorder, lines, &density, &own, &fields, &self.mesh.layout)?;
        self.halo.exchange(recorder, lines, &fields, Cells::Float)?;
        for (number, component) in (0..).zip(acceleration) {
            self.painter.readout(recorder, particles, &self.mesh, &fields, number, component)?;
        }
        Ok(())
    }

    /// Waits and checks that every particle was painted since the start.
    ///
    /// # Errors
    /// [`SimulationError::Lost`], the same on all ranks.
    pub fn check(&self, recorder: &mut Recorder, lines: &GridComms) -> Result<(), SimulationError> {
        let mut lost = [u64::from(recorder.download(&self.faults, 0, 1)?[0])];
        lines.world().all_reduce(&mut lost, Op::Sum)?;
        if lost[0] > 0 { Err(SimulationError::Lost { particles: lost[0] }) } else { Ok(()) }
    }
}
