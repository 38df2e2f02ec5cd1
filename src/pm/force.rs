//! The particle-mesh force.
//!
//! ```text
//! paint -> add ghost cells to their owners -> filter: i k 1.5 Omega_m / k^2 for each axis
//!       -> fill ghost cells -> read out at the particles, which are kicked and drift in the same pass
//! ```
//!
//! The filter reads the painted cells and computes the three components in five passes. The last
//! one writes them as a vector of 16 bytes a cell, which a particle reads at once. Paint and
//! readout use the same window, so that a particle exerts no force on itself and momentum is
//! conserved (Hockney & Eastwood 1988, section 5-3). The field of the force is kept until particles
//! drift away from where it was computed; accelerations of particles are stored nowhere.
//!
//! The functions on modes of its filter are at the end.

use std::ops::Range;

use super::{Config, Result, SimulationError};
use crate::comm::{Communicator, Op};
use crate::exchange::GridComms;
use crate::exchange::ghost_cells::GhostCells;
use crate::fft::{
    Filter, FilterOptions, Operator, OperatorTables, Spec, Spectral, Transform, VectorCallbacks, VectorFilter,
    VectorForm, Wave,
};
use crate::gpu::{Array, Callback, DeviceError, Recorder};
use crate::grid::{Box3, GhostWidths, Mesh, volume};
use crate::mesh::{Axpby, KickDrift, MeshParticles, PaintTraffic, PaintedDensity, Painter, Push, Window, painting};

/// The particles on which a force acts, and the recorder and the exchanges that compute it.
pub(super) struct ForceContext<'a> {
    pub recorder: &'a mut Recorder,
    /// The exchanges of the process grid that the solver was made with.
    pub comms: &'a mut GridComms,
    pub particles: MeshParticles<'a>,
}

/// The force solver of one rank: `lap phi = 1.5 Omega_m delta` on a mesh.
pub struct Force {
    painter: Painter,
    kick_drift: KickDrift,
    axpby: Axpby,
    pub(super) transform: Transform<f32>,
    pub(super) filter: VectorFilter,
    pub(super) mesh: Mesh,
    widths: GhostWidths,
    ghosts: GhostCells,
    sites: u64,
    /// Bytes of painting as many particles as the rank has sites.
    pub(super) paint: PaintTraffic,
    reach: Array<u32>,
    /// Particles that could not be painted so far.
    pub(super) faults: Array<u32>,
    /// The three components of the force at the current positions in each cell, ghost cells
    /// included; `None` after a drift. As long as particles stay, so do the widths of ghost
    /// cells.
    pub(super) field: Option<Array<[f32; 4]>>,
    /// Whether ghost cells reach as far as the particles where they are.
    reaches: bool,
}

/// Cells that are added beside the one to spare when the ghost cells have to reach farther, so that
/// they do not grow at every step.
const MARGIN: u64 = 1;

impl Force {
    /// Creates a solver for the mesh of `config` over the process grid of `comms`.
    ///
    /// # Errors
    /// [`SimulationError`] of the transform or the device.
    pub fn new(config: &Config, recorder: &mut Recorder, comms: &GridComms) -> Result<Self> {
        let (shape, gpu) = (config.cells(), recorder.gpu().clone());
        let transform = Transform::new(&gpu, shape, comms.grid(), comms.rank())?;
        let (spec, options) = (Spec::of::<f32>(shape), FilterOptions::default().results(3));
        let part = Filter::<f32>::part_of(&gpu, &spec, comms, &options)?;
        let form = VectorFilter::form(&gpu, shape, comms, &options)?;
        let callbacks = filter_callbacks(config, recorder, form, &part)?;
        let filter = VectorFilter::new(&gpu, shape, comms, callbacks, &options)?;
        let mesh = config.cell_mesh(comms.grid(), comms.rank())?;
        let sites = volume(&comms.grid().part(config.sites(), comms.rank()));
        let capabilities = gpu.capabilities();
        let painting = painting(capabilities.profile, capabilities.painting, sites);
        let paint = PaintTraffic::new(painting, comms.grid().ranks() == 1);
        let faults = gpu.array("pm::faults", 1)?;
        recorder.clear(&faults);
        Ok(Force {
            painter: Painter::new(config.window),
            kick_drift: KickDrift::new(config.window),
            axpby: Axpby::default(),
            transform,
            filter,
            ghosts: GhostCells::new(mesh.ghost_plan()?),
            mesh,
            widths: GhostWidths::new(comms.grid(), comms.rank(), [[0; 2]; 3])?,
            sites: config.particles.pow(3),
            paint,
            reach: gpu.array("pm::reach", 7)?,
            faults,
            field: None,
            reaches: false,
        })
    }

    /// Returns the mesh of this rank, and its ghost cells as wide as they are now.
    pub(super) fn mesh(&self) -> (&Mesh, &GhostCells) {
        (&self.mesh, &self.ghosts)
    }

    /// Returns the force at the present positions: its three components in each cell, ghost cells
    /// included.
    ///
    /// # Errors
    /// [`SimulationError::NoForce`] if there is none.
    pub(super) fn field(&self) -> Result<&Array<[f32; 4]>> {
        self.field.as_ref().ok_or(SimulationError::NoForce)
    }

    /// Widens the ghost cells to what the particles need: those of this rank, and of those with the
    /// same planes, to what theirs do. Waits for the device, unless no axis is cut and there are
    /// none, or the cells are known to be wide enough.
    pub fn widen(&mut self, at: &mut ForceContext<'_>) -> Result<()> {
        if self.reaches || at.comms.grid().ranks() == 1 {
            return Ok(());
        }
        let widths = self.widths_for(at)?;
        self.take_widths(widths)
    }

    /// Returns the widths of the ghost cells that the particles need, none less than now. Waits for
    /// the device and the ranks of the lines.
    pub(super) fn widths_for(&self, at: &mut ForceContext<'_>) -> Result<GhostWidths> {
        let ForceContext { recorder, comms, particles } = at;
        self.painter.reach(recorder, *particles, &self.mesh, &self.reach)?;
        let reach = recorder.download(&self.reach, 0, 7)?;
        let (needed, lost) = needed_widths(comms, [0, 1, 2, 3, 4, 5, 6].map(|n| u64::from(reach[n])))?;
        if lost > 0 {
            return Err(SimulationError::Lost { particles: lost });
        }
        let mut widths = self.widths.clone();
        for (axis, needed) in needed.into_iter().enumerate().filter(|(axis, _)| comms.grid().along(*axis) > 1) {
            let needed: Vec<_> = needed.into_iter().map(|widths| widths.map(spared)).collect();
            widths.widen(axis, &needed, MARGIN);
        }
        Ok(widths)
    }

    /// Takes ghost cells of these widths, which reach as far as the particles.
    pub(super) fn take_widths(&mut self, widths: GhostWidths) -> Result<()> {
        self.set_widths(widths)?;
        self.reaches = true;
        Ok(())
    }

    fn set_widths(&mut self, widths: GhostWidths) -> Result<()> {
        if widths != self.widths {
            tracing::debug!(own = ?widths.own(), "ghost cells of other widths");
            self.mesh = self.mesh.with_ghost_widths(&widths)?;
            self.ghosts.plan = self.mesh.ghost_plan()?;
            self.widths = widths;
        }
        Ok(())
    }

    /// Forgets the force and the ghost cells: other particles came to this rank.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.forget();
        self.set_widths(GhostWidths::new(self.mesh.grid(), self.mesh.rank(), [[0; 2]; 3])?)
    }

    /// Notes that the particles are at earlier positions, on the ranks where they were. Ghost
    /// cells do not shrink meanwhile, so they are wide enough, and no rank is asked.
    pub fn seen(&mut self) {
        self.reaches = true;
    }

    /// Submits `out = density + shift` on this rank's own cells (C order): the mean density is 1.
    ///
    /// # Errors
    /// [`SimulationError`]; [`SimulationError::Lost`] when particles have no finite position.
    pub fn density(&mut self, at: &mut ForceContext<'_>, shift: f32, out: &Array<f32>) -> Result<()> {
        self.widen(at)?;
        let painted =
            PaintedDensity { mesh: &self.mesh, ghosts: &self.ghosts, faults: &self.faults, scale: self.scale(), shift };
        self.painter.density_of(at.recorder, at.comms, at.particles, &painted, out)?;
        // What painting took beside the density is free again for what follows.
        Ok(at.recorder.submit()?)
    }

    /// Returns the density contrast as the source of a transform: painted cells, or, where one rank
    /// paints by tiles, densities. It is the same in all calls, as transforms need it: one rank
    /// always has the same number of particles.
    fn contrast_source(&mut self, at: &mut ForceContext<'_>) -> Result<Callback> {
        if Painter::paints_densities(at.recorder.gpu(), &at.particles, &self.mesh) {
            let density = at.recorder.gpu().array::<f32>("pm::density", self.mesh.own_cells())?;
            self.density(at, -1.0, &density)?;
            return Ok(Painter::density_values(&self.mesh, &density));
        }
        self.widen(at)?;
        let cells = self.painter.cells(at.recorder, at.particles, &self.mesh, &self.faults)?;
        self.ghosts.reduce_wide(at.recorder, at.comms, &cells)?;
        Ok(Painter::density_source(&self.mesh, &cells, self.scale(), -1.0)?)
    }

    /// Returns the density of a cell with one particle.
    fn scale(&self) -> f64 {
        self.mesh.total_cells() as f64 / self.sites as f64
    }

    /// Records the spectrum of the density contrast: this rank's modes.
    ///
    /// # Errors
    /// Same as [`density`](Self::density).
    pub fn contrast(&mut self, at: &mut ForceContext<'_>) -> Result<Array<[f32; 2]>> {
        let source = self.contrast_source(at)?;
        let spectrum = self.transform.spectrum(at.recorder.gpu())?;
        self.transform.forward_from(at.recorder, at.comms, source, &spectrum)?;
        Ok(spectrum)
    }

    /// Records the force of the particles: `-grad phi` on the mesh with `lap phi = 1.5 Omega_m
    /// delta`.
    ///
    /// # Errors
    /// Same as [`density`](Self::density).
    pub fn solve(&mut self, at: &mut ForceContext<'_>) -> Result<()> {
        // Its memory is for painting.
        self.field = None;
        let source = self.contrast_source(at)?;
        let field = at.recorder.gpu().array::<[f32; 4]>("pm::force", self.mesh.array_len())?;
        self.filter.apply_from(at.recorder, at.comms, source, &field, self.mesh.layout())?;
        self.ghosts.exchange_vectors(at.recorder, at.comms, &field)?;
        self.field = Some(field);
        Ok(())
    }

    /// Records the force field of a density contrast on this rank's own cells, as
    /// [`field`](Self::field) returns it.
    ///
    /// # Errors
    /// [`SimulationError`] of the device or the ranks.
    pub(super) fn field_of(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        density: &Array<f32>,
    ) -> Result<Array<[f32; 4]>> {
        let field = recorder.gpu().array::<[f32; 4]>("pm::force", self.mesh.array_len())?;
        self.filter.apply(recorder, comms, density, &self.transform.field_layout(), &field, self.mesh.layout())?;
        self.ghosts.exchange_vectors(recorder, comms, &field)?;
        Ok(field)
    }

    /// Records kicks by the force that was last [solved](Self::solve), and drifts, of `particles`,
    /// which have these displacements and momenta. A drift invalidates that force.
    ///
    /// # Errors
    /// [`SimulationError::NoForce`] for kicks without a force; [`DeviceError`].
    pub fn push(
        &mut self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        [displacement, momentum]: [&[Array<f32>; 3]; 2],
        push: &Push,
    ) -> Result<()> {
        let mut drifts = push.drifts();
        if !push.kicks().is_empty() {
            let field = self.field()?;
            match self.kick_drift.record(recorder, particles, momentum, (&self.mesh, field), push) {
                Ok(()) => drifts = &[],
                // A device with few bindings and a field in many windows.
                Err(DeviceError::TooManyWindows { .. }) => self.kick_by_axis(recorder, particles, momentum, push)?,
                Err(error) => return Err(error.into()),
            }
        }
        for factor in drifts {
            for (displacement, momentum) in displacement.iter().zip(momentum) {
                self.axpby.record(recorder, *factor, momentum, 1.0, displacement)?;
            }
        }
        if !push.drifts().is_empty() {
            self.forget();
        }
        Ok(())
    }

    /// Forgets the force and where the particles are: they are elsewhere, or nothing needs it any
    /// more.
    pub fn forget(&mut self) {
        self.field = None;
        self.reaches = false;
    }

    /// Forgets particles that could not be painted: those to come are of another run.
    pub fn begin(&mut self, recorder: &mut Recorder) {
        self.forget();
        recorder.clear(&self.faults);
    }

    /// Records the kicks of `push`, one axis after the other.
    fn kick_by_axis(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        momentum: &[Array<f32>; 3],
        push: &Push,
    ) -> Result<()> {
        let acceleration = recorder.gpu().array::<f32>("pm::acceleration", particles.len())?;
        for (axis, momentum) in (0..).zip(momentum) {
            self.readout(recorder, particles, axis..axis + 1, &acceleration)?;
            for &[keep, factor] in push.kicks() {
                self.axpby.record(recorder, factor, &acceleration, keep, momentum)?;
            }
        }
        Ok(())
    }

    /// Records components of the last force at the particles: in one array, all of the first
    /// component, then of the next.
    ///
    /// # Errors
    /// Same as [`push`](Self::push).
    pub fn readout(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        components: Range<u32>,
        out: &Array<f32>,
    ) -> Result<()> {
        Ok(self.painter.readout_vectors(recorder, particles, &self.mesh, self.field()?, components, out)?)
    }

    /// Waits for the device and checks that every particle was painted since the solver was made,
    /// or [begun](Self::begin) again.
    ///
    /// # Errors
    /// [`SimulationError::Lost`], the same on all ranks.
    pub fn check(&self, recorder: &mut Recorder, comms: &GridComms) -> Result<()> {
        check_lost(comms.world(), recorder.download(&self.faults, 0, 1)?[0].into())
    }
}

/// Checks that no rank has `lost` particles. Collective.
pub(super) fn check_lost(world: &Communicator, lost: u64) -> Result<()> {
    let [particles] = world.reduced([lost], Op::Sum)?;
    if particles > 0 { Err(SimulationError::Lost { particles }) } else { Ok(()) }
}

/// Returns the least width of ghost cells on each side along an axis for particles within `drift`
/// cells of those that their rank owns.
pub(super) fn widths_of_drift(window: Window, drift: u64) -> [u64; 2] {
    let order = u64::from(window.order());
    [(order - 1) / 2, order / 2].map(|reach| match reach + drift {
        0 => 0,
        width => spared(width) + MARGIN,
    })
}

/// Adds a cell to spare to a width that is not 0: kernels may round a position to either side of a
/// cell's face.
fn spared(width: u64) -> u64 {
    width.saturating_add(u64::from(width > 0))
}

/// Ghost cells below and above that each part of this rank's lines along the first two axes needs,
/// and the particles of all ranks that are lost, from the [reach](Painter::reach) of this rank's
/// own. Two messages of a few words to the ranks of each line.
fn needed_widths(
    comms: &mut GridComms,
    [x_below, x_above, y_below, y_above, _, _, lost]: [u64; 7],
) -> Result<([Vec<[u64; 2]>; 2], u64)> {
    // Ranks with the same planes have the same widths along x.
    let planes = comms.along(1).comm().all_gather(&[x_below, x_above, y_below, y_above, lost])?;
    let (planes, _) = planes.as_chunks::<5>();
    let most = planes.iter().fold([0; 2], |most, rank| [most[0].max(rank[0]), most[1].max(rank[1])]);
    let lost: u64 = planes.iter().map(|rank| rank[4]).sum();
    let rows = comms.along(0).comm().all_gather(&[most[0], most[1], lost])?;
    let (rows, _) = rows.as_chunks::<3>();
    let lost = rows.iter().map(|row| row[2]).sum();
    Ok((
        [rows.iter().map(|row| [row[0], row[1]]).collect(), planes.iter().map(|rank| [rank[2], rank[3]]).collect()],
        lost,
    ))
}

crate::gpu::kernel_params! {
    struct SpreadParams {
        /// The first slope along z.
        slopes_start: [u32; 4],
    }
}

/// Returns the kernel of the force along `axis` on the density contrast, times `sign`, for the
/// modes of `part`; with the sign -1 its conjugate.
pub(super) fn force_tables(config: &Config, axis: usize, sign: f64, part: &Box3) -> OperatorTables {
    // F = -grad phi and phi = -1.5 Omega_m delta / k^2: F(k) = i k 1.5 Omega_m delta / k^2.
    potential(config, [0.0, sign], &|a, wave| if a == axis { slope(config, wave) } else { 1.0 }, part)
}

/// Returns the kernel of minus the potential times `constant` and a factor of each axis.
fn potential(config: &Config, constant: [f64; 2], factor: &dyn Fn(usize, Wave) -> f64, part: &Box3) -> OperatorTables {
    let laplacian = config.laplacian;
    let operator = Operator {
        constant: constant.map(|part| part * 1.5 * config.cosmology.omega_m()),
        factor,
        laplacian: Some(&|_, wave| laplacian.at(wave.w) / (wave.spacing * wave.spacing)),
    };
    operator.tables(config.cells(), config.size(), part)
}

/// Returns the derivative of a mode along its axis, without the imaginary unit.
fn slope(config: &Config, wave: Wave) -> f64 {
    config.gradient.at(wave.w, wave.nyquist) / wave.spacing
}

/// Returns the functions on modes for a filter of this form, whose fused pass has the modes of
/// `part`.
fn filter_callbacks(
    config: &Config,
    recorder: &mut Recorder,
    form: VectorForm,
    part: &Box3,
) -> Result<VectorCallbacks> {
    if form == VectorForm::Apart {
        let gradients = [0, 1, 2].map(|axis| force_tables(config, axis, 1.0, part));
        let filter = Spectral::new(recorder, &gradients, part)?.trusted_callback();
        return Ok(VectorCallbacks { filter, spread: None });
    }
    let first = potential(config, [1.0, 0.0], &|a, wave| if a == 0 { slope(config, wave) } else { 1.0 }, part);
    let second = potential(config, [1.0, 0.0], &|_, _| 1.0, part);
    let filter = Spectral::new(recorder, &[first, second], part)?.trusted_callback();
    let (cells, size) = (config.cells(), config.size());
    let slopes = [1, 2].map(|axis| {
        let waves = (0..cells[axis]).map(move |index| Wave::new(index, cells[axis], size[axis]));
        waves.map(|wave| slope(config, wave) as f32).collect::<Vec<f32>>()
    });
    let array = recorder.uploaded("pm::slopes", &slopes.concat())?;
    let params = SpreadParams { slopes_start: [cells[1] as u32, 0, 0, 0] };
    let text = include_str!("../../shaders/pm/force_spread.wgsl");
    Ok(VectorCallbacks { filter, spread: Some(Callback::trusted(text).read("slopes", &array).params(&params)) })
}
