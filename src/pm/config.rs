//! Parameters of a simulation, their ranges, and artifacts of the lattice of particles; the rule by
//! which particles move between ranks.

use std::f64::consts::PI;
use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;

use super::{Result, require};
use crate::cluster::Machine;
use crate::comm::{CommError, Communicator};
use crate::cosmology::{
    Cosmology, CosmologyError, Growth, LinearPower, LptOrder, PowerTable, Scheme, StepOp, TransferKind, schedule,
};
use crate::fft::{GradientSymbol, LaplacianSymbol};
use crate::grid::{Box3, Grid, LayoutError, Mesh, MeshOptions, Shares};
use crate::mesh::Window;

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
        let wide = format!("at least the width of the window, {} cells", window.order());
        require(mesh >= u64::from(window.order()), "mesh", mesh, wide)?;
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

    /// Returns the strongest spurious wave that the lattice paints into the force mesh before any
    /// particle has moved, by its wavenumber along an axis in units of the box's fundamental mode;
    /// `None` if the mesh has a whole number of cells per particle.
    ///
    /// The lattice has waves at multiples of `particles`. Waves that are too short for the mesh are
    /// aliased to longer ones, by a multiple of `mesh`. If that is a whole multiple of `particles`,
    /// these are waves of the lattice again, without force on its sites; otherwise they displace
    /// particles as if there were structure, most of all the wave that the window damps least.
    ///
    /// ```
    /// use meshloom::pm::Config;
    ///
    /// let false_wave = |particles, mesh| Config { particles, mesh, ..Config::default() }.false_wave();
    /// assert_eq!((false_wave(96, 128), false_wave(96, 192)), (Some(32), None));
    /// ```
    #[must_use]
    pub fn false_wave(&self) -> Option<u64> {
        let (n, m) = (self.particles, self.mesh);
        if n == 0 || m.is_multiple_of(n) {
            return None;
        }
        let folded = |wave: u64| (wave % m).min(m - wave % m);
        let left = |wave: u64| self.window.transform(2.0 * PI * wave as f64 / m as f64).abs();
        // The window leaves little of waves of more than two to a cell.
        let waves = (1..=2 * m / n + 1).map(|j| j * n).filter(|&wave| !folded(wave).is_multiple_of(n));
        waves.max_by(|&one, &other| left(one).total_cmp(&left(other))).map(folded)
    }

    /// Returns the rms displacement along an axis of linear theory at the start, in cells of the
    /// force mesh; of the waves that the lattice has.
    ///
    /// # Errors
    /// [`CosmologyError`] of a start out of range.
    pub fn start_displacement(&self, power: &LinearPower) -> Result<f64, CosmologyError> {
        let fundamental = 2.0 * PI / self.box_size;
        // The mean alone is missing: its mode takes as much of the space of wave vectors as any
        // other.
        let low = fundamental * (0.75 / PI).cbrt();
        let high = fundamental * 0.5 * self.particles as f64;
        Ok(power.displacement([low, high], self.a_start)? * self.mesh as f64 / self.box_size)
    }

    /// Returns whether displacements at the start are so small a part of a cell that cloud in cell
    /// makes structure grow too fast.
    ///
    /// Particles begin on nodes of the mesh, where that window has a kink: what it paints of a
    /// particle that moves by a small part of a cell, and the force that it reads out there, depend
    /// on which side of the node it is. [`Window::Tsc`] has no kink there.
    ///
    /// # Errors
    /// Same as [`start_displacement`](Self::start_displacement).
    pub fn grows_off_nodes(&self, power: &LinearPower) -> Result<bool, CosmologyError> {
        let on_nodes = self.window == Window::Cic && self.false_wave().is_none();
        Ok(on_nodes && self.start_displacement(power)? < SMALL_DISPLACEMENT)
    }

    /// Returns what the user of a run should know that goes ahead although its numbers spoil its
    /// physics, one sentence each: of a [false wave](Self::false_wave), and of [growth from
    /// displacements beside nodes](Self::grows_off_nodes).
    ///
    /// # Errors
    /// Same as [`start_displacement`](Self::start_displacement).
    pub fn warnings(&self, power: &LinearPower) -> Result<Vec<String>, CosmologyError> {
        let Config { particles, mesh, .. } = self;
        let mut said = Vec::new();
        if let Some(wave) = self.false_wave() {
            said.push(format!(
                "a mesh of {mesh} cells along an axis is not a multiple of {particles} particles: their lattice adds a false wave of {wave} times the fundamental \
                 mode, which grows like structure; take a mesh of {}, or a number of particles that divides {mesh}",
                2 * particles
            ));
        }
        if self.grows_off_nodes(power)? {
            said.push(format!(
                "particles move by {} cells of the mesh before the first step: for displacements this small and the window cic, structure grows about 10 % \
                 too fast; take the window tsc",
                significant(self.start_displacement(power)?)
            ));
        }
        Ok(said)
    }
}

/// First global indices of the rows of `own` sites, of a lattice with `n` sites along each axis.
pub(super) fn rows(own: &Box3, n: u64) -> impl Iterator<Item = u64> + use<> {
    let [i, j, _] = own.clone();
    i.flat_map(move |i| j.clone().map(move |j| (i * n + j) * n))
}

/// Bytes of a particle that moves: its site, displacement and momentum.
pub(super) const MOVED_BYTES: u64 = 8 + 12 + 12;

/// Bytes sent that take about as long as the passes of a move over one particle: 200 bytes in
/// device memory, which is some 100 times as fast as the links between ranks.
pub(super) const PASSED_BYTES: u64 = 2;

/// When the particles of a run on several ranks move to the ranks that own their cells. The results
/// of the run do not depend on it.
///
/// ```
/// use meshloom::pm::Migrate;
///
/// assert_eq!("auto".parse(), Ok(Migrate::Auto));
/// assert_eq!("3".parse::<Migrate>()?.to_string(), "3");
/// assert!("0".parse::<Migrate>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Migrate {
    /// Before a force if ghost cells have sent, since the last move, as many bytes more than just
    /// after a move as a move sends.
    Auto,
    /// Never: each particle stays with the rank that owns its site. The default.
    #[default]
    Never,
    /// Before the first force, and then before every n-th: there is one force in each step.
    Every(NonZeroUsize),
}

impl FromStr for Migrate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Migrate::Auto),
            ("never", _) => Ok(Migrate::Never),
            (_, Ok(forces)) => Ok(Migrate::Every(forces)),
            _ => Err(format!("expected `auto`, `never` or a number of steps from 1 on, got `{text}`")),
        }
    }
}

impl fmt::Display for Migrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Migrate::Auto => f.write_str("auto"),
            Migrate::Never => f.write_str("never"),
            Migrate::Every(forces) => fmt::Display::fmt(forces, f),
        }
    }
}

/// Displacements of the start, in cells of the force mesh, below which a lattice on the nodes of a
/// mesh grows wrongly with cloud in cell: measured with `scripts/growth.py`, the longest waves of a
/// box grow by 2 % more than with [`Window::Tsc`] from 0.17 cells, by 7 % from 0.08 and by 13 %
/// from 0.04.
const SMALL_DISPLACEMENT: f64 = 0.15;

/// Returns a positive number with two significant digits.
fn significant(x: f64) -> String {
    let decimals = (1.0 - x.log10().floor()).clamp(0.0, 12.0) as usize;
    format!("{x:.decimals$}")
}

/// Index that the white noise of a lattice is a function of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoiseBy {
    /// From a mode's wave vector: more sites refine the same field. The default.
    #[default]
    Mode,
    /// From a site's place among all: another field for each number of sites.
    Site,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;
    use crate::cosmology::{Cosmology, TransferKind};

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

    #[test]
    fn lattices_alias_to_what_a_painted_one_shows() {
        let config = |particles, mesh| Config { particles, mesh, ..Config::default() };
        for (n, m) in
            [(4u64, 4u64), (4, 8), (4, 12), (4, 5), (4, 6), (4, 7), (4, 9), (4, 10), (5, 16), (6, 16), (12, 16)]
        {
            // The lattice by cloud in cell along an axis, and its waves by definition.
            let mut density = vec![0.0; m as usize];
            for site in 0..n {
                let (first, weights) = Window::Cic.nodes(site as f64 * m as f64 / n as f64);
                for (node, weight) in weights.iter().enumerate() {
                    density[(first as usize + node) % m as usize] += weight;
                }
            }
            let strength = |wave: u64| {
                let turn = |cell: usize| 2.0 * PI * (wave * cell as u64) as f64 / m as f64;
                let [re, im] = [f64::cos, f64::sin]
                    .map(|part| density.iter().enumerate().map(|(cell, mass)| mass * part(turn(cell))).sum::<f64>());
                re.hypot(im)
            };
            // Waves of the lattice itself are genuine.
            let mut strongest = (1e-9 * n as f64, None);
            for wave in (1..=m / 2).filter(|wave| !wave.is_multiple_of(n)) {
                if strength(wave) > strongest.0 * (1.0 + 1e-9) {
                    strongest = (strength(wave), Some(wave));
                }
            }
            assert_eq!(config(n, m).false_wave(), strongest.1, "{n} on {m}");
        }
    }

    #[test]
    fn large_boxes_and_early_starts_are_the_ones() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        let usual = Config::default();
        // Measured by `scripts/growth.py` with 32^3 particles on a mesh of 64, seed 1: the few
        // longest waves scatter, most in the smallest box.
        let small = Config { particles: 32, mesh: 64, ..Config::default() };
        for (box_size, measured) in [(64.0, 0.275), (128.0, 0.171), (320.0, 0.079), (640.0, 0.039)] {
            let found = Config { box_size, ..small.clone() }.start_displacement(&power).unwrap();
            assert!((found / measured - 1.0).abs() < 0.25, "{box_size}: {found} {measured}");
        }
        assert!(!usual.grows_off_nodes(&power).unwrap());
        for other in [Config { box_size: 640.0, ..usual.clone() }, Config { a_start: 0.02, ..usual.clone() }] {
            assert!(other.grows_off_nodes(&power).unwrap());
            assert!(!Config { window: Window::Tsc, ..other }.grows_off_nodes(&power).unwrap());
        }
    }

    #[test]
    fn sound_runs_have_no_warnings_and_others_say_what_to_take() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        let of = |config: Config| config.warnings(&power).unwrap();
        assert_eq!(of(Config::default()), [""; 0]);
        let [aliased] = &of(Config { particles: 96, box_size: 960.0, ..Config::default() })[..] else { panic!("one") };
        assert!(aliased.contains("false wave of 32 times") && aliased.contains("take a mesh of 192"), "{aliased}");
        let large = Config { box_size: 640.0, ..Config::default() };
        let [early] = &of(large.clone())[..] else { panic!("one") };
        assert!(early.contains("0.086 cells") && early.contains("take the window tsc"), "{early}");
        assert_eq!(of(Config { window: Window::Tsc, ..large }), [""; 0]);
    }
}
