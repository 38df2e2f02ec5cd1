//! Parameters of a simulation, and their ranges.

use std::fmt::Debug;
use std::sync::Arc;

use crate::cluster::Machine;
use crate::comm::{CommError, Communicator};
use crate::cosmology::{
    Cosmology, CosmologyError, Growth, LinearPower, LptOrder, PowerTable, Scheme, StepOp, TransferKind, schedule,
};
use crate::fft::{GradientSymbol, LaplacianSymbol};
use crate::grid::{Box3, Grid, LayoutError, Mesh, MeshOptions, Shares};
use crate::mesh::Window;

use super::error::require;
use super::{Migrate, NoiseBy, Result};

/// A cosmological particle-mesh run. Lengths in Mpc/h.
#[derive(Clone, Debug)]
pub struct Config {
    /// Particles along each axis.
    pub particles: u64,
    /// Cells of the force mesh along each axis: a whole multiple of the particles, twice as many
    /// where memory allows. On another mesh the lattice itself makes a [false
    /// wave](Self::false_wave).
    pub mesh: u64,
    /// Side of the periodic box.
    pub box_size: f64,
    /// The background and the linear power spectrum.
    pub cosmology: Cosmology,
    /// The linear power spectrum today from a table, in place of the transfer function and A_s of
    /// the cosmology.
    pub power_table: Option<Arc<PowerTable>>,
    /// Seed of the white noise.
    pub seed: u64,
    /// Index that the seed's white noise is a function of.
    pub noise_by: NoiseBy,
    /// Order of the Lagrangian perturbation theory that the run starts from.
    pub lpt: LptOrder,
    /// Scale factor of the start.
    pub a_start: f64,
    /// Scale factor of the end.
    pub a_end: f64,
    /// Steps, linear in the scale factor.
    pub steps: usize,
    /// Integrator.
    pub scheme: Scheme,
    /// Mass assignment window, of painting and readout. [`Window::Cic`] makes structure grow too
    /// fast where displacements are [small beside a cell](Self::grows_off_nodes) at the start.
    pub window: Window,
    /// Transfer function of the derivative of the potential.
    pub gradient: GradientSymbol,
    /// Transfer function of the Laplacian of the potential.
    pub laplacian: LaplacianSymbol,
    /// Scale factors at which snapshots are taken.
    pub snapshots: Vec<f64>,
    /// The process grid; the one with the least forecast otherwise.
    pub grid: Option<[usize; 2]>,
    /// When particles move to the ranks that own their cells; runs with derivatives never move
    /// them.
    pub migrate: Migrate,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            particles: 64,
            mesh: 128,
            box_size: 128.0,
            cosmology: Cosmology::planck18(),
            power_table: None,
            seed: 1,
            noise_by: NoiseBy::Mode,
            lpt: LptOrder::Second,
            a_start: 0.0625,
            a_end: 1.0,
            steps: 10,
            scheme: Scheme::BullFrog,
            window: Window::Cic,
            gradient: GradientSymbol::Exact,
            laplacian: LaplacianSymbol::Exact,
            snapshots: Vec::new(),
            grid: None,
            migrate: Migrate::default(),
        }
    }
}

/// Reach of displacements along an axis today, typically, in Mpc/h.
pub(super) const TYPICAL_REACH: f64 = 10.0;

/// Longest side of the lattice and of the mesh: products of two sides stay within 32 bits, which
/// kernels count in.
const MAX_SIDE: u64 = 1 << 14;

impl Config {
    /// Checks that all ranks run the same simulation, and begin it alike. Collective; see
    /// [`Communicator::agree`].
    pub(super) fn agree(&self, comm: &Communicator, start: &dyn Debug) -> Result<(), CommError> {
        // By name, so that none is forgotten.
        let Config { particles, mesh, box_size, cosmology, power_table, seed, noise_by, lpt, a_start, .. } = self;
        let Config { a_end, steps, scheme, window, gradient, laplacian, snapshots, grid, migrate, .. } = self;
        let arguments: [(&str, &dyn Debug); 19] = [
            ("particles", particles),
            ("mesh", mesh),
            ("box_size", box_size),
            ("cosmology", cosmology),
            ("power_table", power_table),
            ("seed", seed),
            ("noise_by", noise_by),
            ("lpt", lpt),
            ("a_start", a_start),
            ("a_end", a_end),
            ("steps", steps),
            ("scheme", scheme),
            ("window", window),
            ("gradient", gradient),
            ("laplacian", laplacian),
            ("snapshots", snapshots),
            ("grid", grid),
            ("migrate", migrate),
            ("start", start),
        ];
        comm.agree("simulation", &arguments)
    }

    /// Sites along each axis.
    #[must_use]
    pub fn sites(&self) -> [u64; 3] {
        [self.particles; 3]
    }

    /// Cells along each axis.
    #[must_use]
    pub fn cells(&self) -> [u64; 3] {
        [self.mesh; 3]
    }

    /// Sides of the box.
    #[must_use]
    pub fn size(&self) -> [f64; 3] {
        [self.box_size; 3]
    }

    /// Returns the mesh of the sites of particles, as `rank` of `grid` holds it.
    ///
    /// # Errors
    /// - [`LayoutError`] if the box has no size, or the mesh no cells; see [`Mesh::new`].
    pub fn site_mesh(&self, grid: Grid, rank: usize) -> Result<Mesh, LayoutError> {
        self.mesh_of(self.sites(), grid, rank)
    }

    /// Returns the mesh of the cells of forces and densities, as `rank` of `grid` holds it.
    ///
    /// # Errors
    /// Same as [`site_mesh`](Self::site_mesh).
    pub fn cell_mesh(&self, grid: Grid, rank: usize) -> Result<Mesh, LayoutError> {
        self.mesh_of(self.cells(), grid, rank)
    }

    fn mesh_of(&self, shape: [u64; 3], grid: Grid, rank: usize) -> Result<Mesh, LayoutError> {
        let options = MeshOptions { size: self.size(), grid: Some(grid.parts()), ..MeshOptions::new(shape) };
        Mesh::new(&options, grid.shares(), rank)
    }

    /// Checks the parameters as far as neither device nor ranks are needed.
    ///
    /// # Errors
    /// [`OutOfRange`](super::SimulationError::OutOfRange), [`FftError`](crate::fft::FftError) for
    /// sizes that cannot be transformed, [`CosmologyError`](crate::cosmology::CosmologyError) for
    /// scale factors and steps that make no schedule.
    pub fn validate(&self) -> Result<()> {
        let Config { particles, mesh, box_size, window, .. } = *self;
        for (what, side) in [("particles", particles), ("mesh", mesh)] {
            require((1..=MAX_SIDE).contains(&side), what, side, format!("a whole number from 1 to {MAX_SIDE}"))?;
        }
        let fine =
            format!("at least the number of particles along an axis ({particles}): a coarser mesh loses their forces");
        require(mesh >= particles, "mesh", mesh, fine)?;
        require(mesh >= u64::from(window.order()), "mesh", mesh, "as wide as the window at least")?;
        require((1e-6..=1e9).contains(&box_size), "box", box_size, "from 1e-6 to 1e9 Mpc/h")?;
        self.schedule()?;
        Ok(())
    }

    /// Returns the linear power of `cosmology`, or that of the table as it grows there.
    pub(super) fn linear_power(&self, cosmology: Cosmology) -> Result<LinearPower, CosmologyError> {
        match &self.power_table {
            Some(table) => LinearPower::tabulated(cosmology, PowerTable::clone(table)),
            None => LinearPower::new(cosmology, TransferKind::Full),
        }
    }

    /// Returns the operations of the run.
    pub(super) fn schedule(&self) -> Result<Vec<StepOp>, CosmologyError> {
        self.schedule_by(&Growth::new(self.cosmology))
    }

    /// Returns the operations of the run with the factors of `growth`.
    pub(super) fn schedule_by(&self, growth: &Growth) -> Result<Vec<StepOp>, CosmologyError> {
        schedule(growth, self.scheme, self.a_start, self.a_end, self.steps, &self.snapshots)
    }

    /// Returns the step that ends at scale factor `a`, if one does.
    ///
    /// # Errors
    /// [`CosmologyError`] for scale factors and steps that make no schedule.
    pub fn step_at(&self, a: f64) -> Result<Option<usize>, CosmologyError> {
        Ok(self.schedule()?.iter().filter_map(StepOp::epoch).position(|reached| reached == a))
    }

    /// Returns the process grid of a run on a number of ranks, or on ranks with [`Shares`], of the
    /// default [`Machine`]; see [`grid_on`](Self::grid_on).
    ///
    /// # Errors
    /// Same as [`grid_on`](Self::grid_on).
    pub fn grid(&self, ranks: impl Into<Shares>) -> Result<Grid, LayoutError> {
        self.grid_on(ranks, &Machine::default())
    }

    /// Returns the process grid of a run on a number of ranks of `machine`, or on ranks with
    /// [`Shares`]: the given one, or the one with the shortest [`forecast`](Self::forecast).
    /// Transforms favor slabs, and ghost cells favor pencils where slabs are thin. Of grids whose
    /// seconds differ by less than 2 %, it is the first of [`Grid::candidates`]. It depends only on
    /// the configuration, the shares and the machine, so that all ranks choose the same grid.
    ///
    /// # Errors
    /// [`LayoutError::Grid`] if [`Config::grid`](Self) has another number of ranks.
    pub fn grid_on(&self, ranks: impl Into<Shares>, machine: &Machine) -> Result<Grid, LayoutError> {
        let shares = ranks.into();
        match self.grid {
            Some(parts) => Grid::new(parts, shares),
            None => Ok(self.fastest_grid(shares, machine)),
        }
    }

    /// First global index `(i n + j) n` of each row of sites (all those along the last axis) that
    /// `rank` of a number of ranks, or of ranks with [`Shares`], has, in C order.
    ///
    /// # Errors
    /// Same as [`grid`](Self::grid).
    pub fn rows<R: Into<Shares>>(
        &self,
        ranks: R,
        rank: usize,
    ) -> Result<impl Iterator<Item = u64> + use<R>, LayoutError> {
        Ok(rows(&self.grid(ranks)?.part(self.sites(), rank), self.particles))
    }

    /// Ghost cells below and above along a cut axis that reach as far as displacements typically
    /// are today, and not beyond the box.
    pub(super) fn typical_widths(&self) -> [u64; 2] {
        [(TYPICAL_REACH / self.box_size * self.mesh as f64).ceil().min(self.mesh as f64) as u64; 2]
    }
}

/// First global indices of the rows of `own` sites, of a lattice with `n` sites along each axis.
pub(super) fn rows(own: &Box3, n: u64) -> impl Iterator<Item = u64> + use<> {
    let [i, j, _] = own.clone();
    i.flat_map(move |i| j.clone().map(move |j| (i * n + j) * n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    #[test]
    fn a_parameter_that_differs_is_named_on_all_ranks() {
        let usual = Config::default;
        let others: [(&str, Config); 5] = [
            ("seed", Config { seed: 2, ..usual() }),
            ("box_size", Config { box_size: 128.0f64.next_up(), ..usual() }),
            ("snapshots", Config { snapshots: vec![0.5], ..usual() }),
            ("cosmology", Config { cosmology: Cosmology::planck18_primordial(), ..usual() }),
            ("grid", Config { grid: Some([3, 1]), ..usual() }),
        ];
        let differs = |found: Result<(), CommError>, which: usize, name: &str| match found {
            Err(CommError::Differ { rank, argument, .. }) => assert_eq!((rank, argument.as_str()), (which, name)),
            other => panic!("{other:?}"),
        };
        for (name, other) in &others {
            run_threads(3, |comm| {
                let config = if comm.rank() == 2 { other.clone() } else { usual() };
                differs(config.agree(&comm, &"noise"), 2, name);
                usual().agree(&comm, &0)?;
                differs(usual().agree(&comm, &comm.rank()), 1, "start");
                Ok::<_, CommError>(())
            })
            .unwrap();
        }
    }
}
