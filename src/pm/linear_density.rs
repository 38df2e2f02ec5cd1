//! The linear density contrast as a function of the white noise.

use super::{Config, LatticeFields, Perturbation, Result};
use crate::cosmology::{LptOrder, mode_amplitudes};
use crate::gpu::Array;
use crate::grid::Cost;
use crate::operators::{Direction, Fingerprint, Leaf, Linear, OperatorError, Signature, Space, Vector};
use crate::rank::Rank;

/// The contrast of the density that linear theory gives at a scale factor, at the sites of a run's
/// particles, as a function of the run's white noise.
///
/// It is symmetric: its own adjoint. With it particles get Lagrangian bias as weights, such as `1 +
/// b1 * delta + b2 * (delta * delta - variance)` in WGSL, which [`Paint`](crate::operators::Paint)
/// takes. Cost: two Fourier transforms of the lattice.
///
/// ```no_run
/// use meshloom::operators::{Model, Paint, PointwiseOperator};
/// use meshloom::pm::{Config, LinearDensity, Observable, SimulationOperator};
///
/// # fn example(rank: &mut meshloom::Rank) -> Result<(), meshloom::Error> {
/// let config = Config { particles: 32, mesh: 32, ..Config::default() };
/// let run = Model::new(SimulationOperator::new(rank, config.clone(), 1, &[Observable::Displacement])?);
/// let linear = LinearDensity::new(rank, &config, config.a_end)?;
/// let text = format!(
///     "fn weight(delta: f32) -> f32 {{ return 1.0 + 0.8 * delta + 0.2 * (delta * delta - {:?}); }}",
///     linear.variance(rank)? as f32
/// );
/// let linear = Model::new(linear);
/// let weight = Model::new(PointwiseOperator::wgsl(&text, "weight", linear.target(), "weight")?);
/// let tracers = run.zip(&linear.then(&weight)?)?;
/// let mesh = linear.target().leaf("delta").and_then(|leaf| leaf.mesh()).expect("cells").clone();
/// let paint = Model::new(Paint::new(rank, tracers.target(), &mesh, config.window)?);
/// let density = tracers.then(&paint)?;
/// # let _ = density;
/// # Ok(())
/// # }
/// ```
pub struct LinearDensity {
    lpt: Perturbation,
    amplitudes: Array<f32>,
    /// The configuration and the scale factor.
    description: String,
    signature: Signature,
}

const NAME: &str = "linear density";

impl LinearDensity {
    /// Creates the operator for the lattice, the box and the cosmology of `config`, at scale factor
    /// `a`. Collective; submits.
    ///
    /// # Errors
    /// [`OperatorError::Failed`] with the [`SimulationError`](crate::pm::SimulationError) of a wrong
    /// `config` or scale factor.
    pub fn new(rank: &mut Rank, config: &Config, a: f64) -> Result<Self, OperatorError> {
        let mut made = || -> Result<_> {
            config.agree(&rank.comm, &NAME)?;
            config.validate()?;
            let grid = config.grid(rank.comm.shares())?;
            let power = config.linear_power(config.cosmology)?;
            let growth = power.growth().at(a)?.d1;
            let table = mode_amplitudes(&power, config.particles as usize, config.box_size)?;
            let table: Vec<f32> = table.iter().map(|value| (f64::from(*value) * growth) as f32).collect();
            let amplitudes = rank.recorder.uploaded("pm::amplitudes", &table)?;
            let sites = config.site_mesh(grid, rank.index())?;
            // Of the second order, whose operators take memory, nothing is needed.
            let config = Config { lpt: LptOrder::First, ..config.clone() };
            let parts = rank.parts(grid)?;
            Ok((Perturbation::new(&config, parts.recorder, parts.comms)?, amplitudes, sites))
        };
        let (lpt, amplitudes, sites) = made().map_err(|error| OperatorError::failed(NAME, error))?;
        let config = Config { grid: None, seed: 0, snapshots: Vec::new(), ..config.clone() };
        let spaces = ["white_noise", "delta"].map(|name| Space::of(name, Leaf::cells(&sites)));
        let [domain, target] = spaces;
        let signature = Signature::new(NAME, &domain?, &target?);
        Ok(LinearDensity { lpt, amplitudes, description: format!("{config:?} {a}"), signature })
    }

    /// Returns the variance of the contrast at a site for noise of variance 1. Collective; blocks.
    ///
    /// # Errors
    /// - [`OperatorError::Device`] if the device fails.
    /// - [`OperatorError::Comm`] if another rank fails.
    pub fn variance(&self, rank: &mut Rank) -> Result<f64, OperatorError> {
        // A row of the operator, squared.
        let (impulse, mut row) = (
            Vector::zeros(&mut rank.recorder, &self.signature.domain)?,
            Vector::new(&rank.gpu, &self.signature.target)?,
        );
        let leaf = self.signature.domain.only();
        if leaf.and_then(|(_, leaf)| leaf.mesh()).is_some_and(|mesh| mesh.owns([0; 3])) {
            rank.recorder.upload(impulse.single()?, 0, &[1.0])?;
        }
        self.run(rank, Direction::Forward, &impulse, &mut row)?;
        rank.vector_dot(&row, &row)
    }
}

impl Linear for LinearDensity {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, _direction: Direction, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        let Some(mesh) = self.signature.domain.leaves().find_map(|(_, leaf)| leaf.mesh()) else { return Ok(()) };
        let parts = rank.parts(mesh.grid())?;
        let mut fields = LatticeFields { recorder: parts.recorder, comms: parts.comms, lpt: &self.lpt };
        let found =
            fields.filtered(v.single()?, &self.amplitudes).map_err(|error| OperatorError::failed(NAME, error))?;
        let out = out.single()?;
        Ok(rank.recorder.copy(&found, 0, out, 0, out.len())?)
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        out.text(&self.description);
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        // Passes of a transform over three axes, there and back, the table and the copy.
        [Cost::kernels(8, 8 * 8 * self.signature.domain.own_numbers()); 2]
    }
}
