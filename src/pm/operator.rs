//! A run as an operator, which composes with others.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::gradient::{
    AMPLITUDE, COUNT, Derivatives, Epoch, Numbers, NumbersTangent, RunTangent, States, Sweeps, Tape, by_sigma8,
    cosmology_values, pack, sigma8_of, unpack, with_amplitude,
};
use super::{Config, GradientMemory, Migrate, PlannedFor, Result, SimulationError, Traffic, check_memory, require};
use crate::cosmology::{Amplitude, StepOp};
use crate::gpu::Array;
use crate::grid::{Cost, Mesh};
use crate::operators::{
    Contents, Differentiable, ExcitedModes, Fingerprint, Leaf, Linearized, OperatorCost, OperatorError, Signature,
    Space, Vector,
};
use crate::rank::Rank;

/// Output of a run: a leaf of a [`SimulationOperator`]'s value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observable {
    /// `density`: 1 + contrast at the cells of the force mesh.
    Density,
    /// `displacement`: of the particles from their sites, in Mpc/h; three components at the cells
    /// of the lattice.
    Displacement,
    /// `momentum`: `a^2 dx/dt` of the particles, likewise.
    Momentum,
}

impl Observable {
    fn name(self) -> &'static str {
        match self {
            Observable::Density => "density",
            Observable::Displacement => "displacement",
            Observable::Momentum => "momentum",
        }
    }
}

/// A particle-mesh run as a function of its white noise, and of the cosmological parameters if
/// requested.
///
/// | leaf of the domain | is |
/// |---|---|
/// | `white_noise` | the noise of the initial conditions at the cells of the particles' lattice, of variance 1 |
/// | `cosmology` | after [`with_cosmology`](Self::with_cosmology): Omega_m, Omega_b, h, n_s, A_s, w0 and wa, the order of [`CosmologyGradient`](super::CosmologyGradient), as parameters on the host; after [`with_sigma8`](Self::with_sigma8), sigma_8 instead of A_s |
///
/// The value has the leaves of the [`Observable`]s at the end, and after
/// [`with_snapshots`](Self::with_snapshots) those at other times. Both derivatives belong to the discretized
/// run, and each other's transpose to rounding; values and products have the same bits on any
/// number of ranks, because sums between ranks are exact.
///
/// Cost, in forces of the run (5 passes over the mesh each): a value n, `jvp` 2 n, `vjp` some 3 n,
/// and (c - 1)/c n more if only every c-th state is kept. A linearization keeps `n/c + c - 1`
/// states of 24 bytes per particle, and displacements if the density is observed. Methods wait when
/// the value is made (to check that no particle was lost), and for ghost cells between ranks. The
/// reported costs are those of forces, kicks and drifts, without the start and without messages,
/// which depend on the motion of particles.
///
/// ```no_run
/// use meshloom::operators::{Model, Vector};
/// use meshloom::pm::{Config, Observable, SimulationOperator};
///
/// # fn example(rank: &mut meshloom::Rank) -> Result<(), meshloom::Error> {
/// let config = Config { particles: 32, mesh: 32, ..Config::default() };
/// let run = Model::new(SimulationOperator::new(rank, config, 1, &[Observable::Density])?);
/// let noise = Vector::zeros(&mut rank.recorder, run.domain())?;
/// let at = run.at(rank, &noise)?;                              // at.value is the density of a universe without structure
/// # let (dx, mut dy) = (noise.clone(), at.value.clone());
/// at.jvp(rank, &dx, &mut dy)?;
/// # Ok(())
/// # }
/// ```
pub struct SimulationOperator {
    sweeps: RefCell<Sweeps>,
    config: Config,
    memory: GradientMemory,
    observables: Vec<Observable>,
    signature: Signature,
    /// Kind of the amplitude among the parameters.
    amplitude: fn(f64) -> Amplitude,
    /// Numbers of the configuration's own cosmology, without derivatives.
    numbers: Rc<Numbers>,
    constant: Rc<Derivatives>,
}

impl fmt::Debug for SimulationOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimulationOperator { config, signature, .. } = self;
        let mut text = f.debug_struct("SimulationOperator");
        text.field("config", config).field("signature", signature).finish_non_exhaustive()
    }
}

const NAME: &str = "simulation";
const NOISE: &str = "white_noise";
const COSMOLOGY: &str = "cosmology";

impl SimulationOperator {
    /// Creates the run of `config`, observed as `observables` says, with a state kept of every
    /// `checkpoint_every`-th force in each linearization ([`memory`](Self::memory)). All ranks call
    /// it with the same values.
    ///
    /// # Errors
    /// [`OperatorError::Failed`] with the [`SimulationError`] of
    /// [`Simulation::new`](super::Simulation::new); [`SimulationError::OutOfRange`] for
    /// `checkpoint_every` of 0, no observable or one twice; [`SimulationError::Memory`] when one
    /// linearization takes more than the device has.
    pub fn new(
        rank: &mut Rank,
        config: Config,
        checkpoint_every: usize,
        observables: &[Observable],
    ) -> Result<Self, OperatorError> {
        let repeated = (1..observables.len()).any(|at| observables[..at].contains(&observables[at]));
        let (ok, named) = (!observables.is_empty() && !repeated, format!("{observables:?}"));
        require(ok, "observables", named, "one or more, each once").map_err(failed)?;
        let sweeps = Sweeps::new(rank, config.clone()).map_err(failed)?;
        let grid = sweeps.run.grid();
        let config = Config { grid: Some(grid.parts()), ..config };
        let planned = PlannedFor::device(&rank.gpu);
        let part = (grid, grid.rank_to_check(config.cells(), rank.index()));
        let memory = sweeps.memory(&rank.gpu, checkpoint_every);
        let memory = memory.and_then(|memory| memory.of_operator(&config, part, &planned)).map_err(failed)?;
        check_memory(rank, memory.total(), &memory).map_err(failed)?;
        let sites = config.site_mesh(grid, rank.index()).map_err(|error| failed(error.into()))?;
        let cells = config.cell_mesh(grid, rank.index()).map_err(|error| failed(error.into()))?;
        let leaf = |observable: &Observable| match observable {
            Observable::Density => (observable.name(), Leaf::cells(&cells)),
            _ => (observable.name(), Leaf::cells(&sites).components(3)),
        };
        let numbers = Rc::new(Numbers::new(&mut rank.recorder, &config, config.cosmology).map_err(failed)?);
        Ok(SimulationOperator {
            signature: Signature::new(
                NAME,
                &Space::of(NOISE, Leaf::cells(&sites))?,
                &Space::new(observables.iter().map(leaf))?,
            ),
            constant: Rc::new(Derivatives::none(numbers.layout.len())),
            sweeps: RefCell::new(sweeps),
            observables: observables.to_vec(),
            amplitude: Amplitude::Primordial,
            config,
            memory,
            numbers,
        })
    }

    /// Makes the operator a function of the cosmological parameters, too. The values of the
    /// configuration serve as the unit of the force: they may be far away.
    ///
    /// # Errors
    /// None for an operator that [`new`](Self::new) has created.
    pub fn with_cosmology(mut self) -> Result<Self, OperatorError> {
        let parameters = Space::of(COSMOLOGY, Leaf::parameters(COUNT as u64))?;
        self.signature.domain = self.signature.domain.joined(&parameters, NAME)?;
        Ok(self)
    }

    /// Makes the operator a function of the cosmological parameters with sigma_8 instead of A_s
    /// ([`Amplitude::Sigma8`]). Otherwise as [`with_cosmology`](Self::with_cosmology).
    ///
    /// # Errors
    /// Same as [`with_cosmology`](Self::with_cosmology).
    pub fn with_sigma8(self) -> Result<Self, OperatorError> {
        Ok(SimulationOperator { amplitude: Amplitude::Sigma8, ..self.with_cosmology()? })
    }

    /// Adds the leaves `snapshot_0/displacement` and `snapshot_0/momentum` to the value, those of
    /// the particles at the first scale factor of [`Config::snapshots`], and so on for the others.
    /// [`Paint`](crate::operators::Paint) makes densities of them.
    ///
    /// # Errors
    /// None for an operator that [`new`](Self::new) has created.
    pub fn with_snapshots(mut self) -> Result<Self, OperatorError> {
        let Some(sites) = self.signature.domain.leaf(NOISE).cloned() else { return Ok(self) };
        let leaf = sites.components(3);
        let names = (0..self.config.snapshots.len()).flat_map(snapshot_names);
        let leaves = Space::new(names.map(|name| (name, leaf.clone())))?;
        self.signature.target = self.signature.target.joined(&leaves, NAME)?;
        Ok(self)
    }

    /// Returns the arrays of a vector of the target at scale factors between the start and the end,
    /// of a run with these operations.
    fn epochs(&self, y: &Vector, ops: &[StepOp]) -> Result<Vec<Epoch>, OperatorError> {
        self.signature.target.admits(y.space(), NAME)?;
        let mut epochs = Vec::new();
        for (number, &wanted) in self.config.snapshots.iter().enumerate() {
            let [positions, momenta] = snapshot_names(number).map(|name| self.array(y, &name).cloned());
            let at = ops.iter().position(|op| op.epoch() == Some(wanted));
            if let (Some(positions), Some(momenta), Some(at)) = (positions, momenta, at) {
                epochs.push(Epoch { at, positions, momenta });
            }
        }
        Ok(epochs)
    }

    /// Returns the array of a leaf of the target.
    fn array<'a>(&self, y: &'a Vector, name: &str) -> Option<&'a Array<f32>> {
        match &y.contents()[self.signature.target.position(name)?] {
            Contents::Device(array) => Some(array),
            Contents::Host(_) => None,
        }
    }

    /// Returns the parameters of the configuration's cosmology, as the leaf `cosmology` takes them.
    ///
    /// # Errors
    /// [`OperatorError::Failed`] if sigma_8 cannot be computed.
    pub fn own_cosmology(&self) -> Result<[f64; COUNT], OperatorError> {
        let mut values = cosmology_values(&self.config.cosmology);
        if self.is_by_sigma8() {
            values[AMPLITUDE] = sigma8_of(&self.config.cosmology).map_err(|error| failed(error.into()))?;
        }
        Ok(values)
    }

    fn is_by_sigma8(&self) -> bool {
        (self.amplitude)(1.0) == Amplitude::Sigma8(1.0)
    }

    /// Device memory of the operator with one linearization; [`GradientMemory::states`] are those
    /// of each.
    pub fn memory(&self) -> GradientMemory {
        self.memory.clone()
    }

    /// Returns the noise and the parameters of a field of the domain, or of a tangent.
    fn parts(&self, x: &Vector) -> Result<(Array<f32>, Option<[f64; COUNT]>), OperatorError> {
        self.signature.domain.admits(x.space(), NAME)?;
        let (mut noise, mut parameters) = (None, None);
        for contents in x.contents() {
            match contents {
                Contents::Device(array) => noise = Some(array.clone()),
                Contents::Host(values) => parameters = values[..].first_chunk().copied(),
            }
        }
        match noise {
            Some(noise) => Ok((noise, parameters)),
            None => Err(failed(SimulationError::WrongLength { what: "white noise", have: 0, want: 1 })),
        }
    }

    /// Computes the numbers at these parameters.
    fn numbers(&self, rank: &mut Rank, parameters: Option<[f64; COUNT]>) -> Result<Rc<Numbers>> {
        match parameters {
            None => Ok(self.numbers.clone()),
            Some(values) => {
                let cosmology = with_amplitude(&self.config.cosmology, values, self.amplitude)?;
                Ok(Rc::new(Numbers::new(&mut rank.recorder, &self.config, cosmology)?))
            }
        }
    }

    /// Returns the array of each observable in a field of the target.
    fn observed<'a>(&self, y: &'a Vector) -> Result<Vec<(Observable, &'a Array<f32>)>, OperatorError> {
        self.signature.target.admits(y.space(), NAME)?;
        let array = |&observable: &Observable| Some((observable, self.array(y, observable.name())?));
        Ok(self.observables.iter().filter_map(array).collect())
    }

    /// Records what is observed at the end of the run.
    fn observe(&self, sweeps: &mut Sweeps, rank: &mut Rank, y: &Vector) -> Result<(), OperatorError> {
        for (observable, out) in self.observed(y)? {
            let run = &mut sweeps.run;
            match observable {
                Observable::Density => run.record_density(rank, out).map_err(failed)?,
                Observable::Displacement => pack(&mut rank.recorder, &run.displacement, out, 0)?,
                Observable::Momentum => pack(&mut rank.recorder, &run.momentum, out, 0)?,
            }
        }
        Ok(())
    }
}

impl Differentiable for SimulationOperator {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let (noise, parameters) = self.parts(x)?;
        let numbers = self.numbers(rank, parameters).map_err(failed)?;
        let mut sweeps = self.sweeps.borrow_mut();
        let epochs = self.epochs(y, &numbers.ops)?;
        sweeps.value(rank, &noise, &numbers, &epochs).map_err(failed)?;
        sweeps.check(rank).map_err(failed)?;
        self.observe(&mut sweeps, rank, y)
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        let (noise, parameters) = self.parts(x)?;
        // Other parameters change factors only.
        let epochs = self.epochs(y, &self.numbers.ops)?;
        let mut at = || {
            let numbers = self.numbers(rank, parameters)?;
            let by_sigma8 = self.is_by_sigma8().then(|| by_sigma8(numbers.cosmology())).transpose()?;
            let derivatives = match parameters {
                None => self.constant.clone(),
                Some(_) => Rc::new(Derivatives::new(&mut rank.recorder, &self.config, &numbers)?),
            };
            let mut sweeps = self.sweeps.borrow_mut();
            let states = States::new(&rank.gpu, sweeps.run.lattice.len(), &numbers.ops, self.memory.clone())?;
            let mut tape = Tape { noise: noise.clone(), numbers, derivatives, states };
            sweeps.forward(rank, &mut tape, &epochs)?;
            sweeps.check(rank)?;
            Ok((tape, by_sigma8))
        };
        let (tape, by_sigma8) = at().map_err(failed)?;
        let mut sweeps = self.sweeps.borrow_mut();
        self.observe(&mut sweeps, rank, y)?;
        let run = &sweeps.run;
        let has_density = self.observables.contains(&Observable::Density);
        let end = has_density.then(|| rank.gpu.array("pm::end", 3 * run.displacement[0].len())).transpose()?;
        if let Some(end) = &end {
            pack(&mut rank.recorder, &run.displacement, end, 0)?;
        }
        drop(sweeps);
        Ok(Box::new(SimulationAt { operator: self, tape: RefCell::new(tape), by_sigma8, end }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        // The noise is the argument; the process grid and moves of particles change no bits.
        let config = Config { grid: None, migrate: Migrate::default(), seed: 0, ..self.config.clone() };
        out.text(&format!("{config:?} {:?} {:?}", self.observables, (self.amplitude)(1.0)));
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        let (sweeps, ops) = (self.sweeps.borrow(), &self.numbers.ops);
        let (traffic, forces) = (sweeps.run.force_traffic(), self.memory.forces as u64);
        let run = Cost::kernels(forces * Traffic::FORCE_PASSES, traffic.schedule(ops));
        let [tangent, adjoint] = [traffic.tangent(), traffic.adjoint()]
            .map(|(passes, bytes)| Cost::kernels(forces * passes, forces * bytes));
        OperatorCost { apply: run, jvp: run + tangent, vjp: run + adjoint }
    }
}

/// The operator where it was evaluated.
struct SimulationAt {
    operator: Rc<SimulationOperator>,
    tape: RefCell<Tape>,
    /// The derivatives of A_s by the parameters, where sigma_8 is one of them.
    by_sigma8: Option<[f64; COUNT]>,
    /// The displacements at the end, as vectors, where the density is observed.
    end: Option<Array<f32>>,
}

impl Linearized for SimulationAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        let operator = &*self.operator;
        let (noise, mut parameters) = operator.parts(dx)?;
        if let (Some(by), Some(row)) = (&mut parameters, &self.by_sigma8) {
            by[AMPLITUDE] = by.iter().zip(row).map(|(by, row)| by * row).sum();
        }
        let tape = self.tape.borrow();
        let numbers = match parameters {
            Some(by) if by != [0.0; COUNT] => Some(NumbersTangent {
                numbers: tape.derivatives.along(&by),
                amplitudes: rank.recorder.uploaded("pm::amplitudes", &tape.derivatives.amplitudes_along(&by))?,
            }),
            _ => None,
        };
        let mut sweeps = operator.sweeps.borrow_mut();
        let epochs = operator.epochs(dy, &tape.numbers.ops)?;
        sweeps.tangent(rank, &tape, &RunTangent { noise: &noise, numbers }, &epochs).map_err(failed)?;
        if self.end.is_some() {
            // The density has been painted there.
            sweeps.run.force.seen();
        }
        for (observable, out) in operator.observed(dy)? {
            let recorder = &mut rank.recorder;
            match observable {
                Observable::Density => sweeps.density_tangent(rank, out).map_err(failed)?,
                Observable::Displacement => recorder.copy(sweeps.bars.positions(), 0, out, 0, out.len())?,
                Observable::Momentum => recorder.copy(sweeps.bars.momenta(), 0, out, 0, out.len())?,
            }
        }
        Ok(())
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        let operator = &*self.operator;
        let (out, _) = operator.parts(dx)?;
        let mut sweeps = operator.sweeps.borrow_mut();
        sweeps.bars.clear(&mut rank.recorder);
        let mut density = None;
        for (observable, by) in operator.observed(dy)? {
            match observable {
                Observable::Density => density = Some(by),
                Observable::Displacement => rank.recorder.copy(by, 0, sweeps.bars.positions(), 0, by.len())?,
                Observable::Momentum => rank.recorder.copy(by, 0, sweeps.bars.momenta(), 0, by.len())?,
            }
        }
        if let (Some(by), Some(end)) = (density, &self.end) {
            let run = &mut sweeps.run;
            run.forget();
            unpack(&mut rank.recorder, end, 0, &run.displacement)?;
            // The density has been painted there.
            run.force.seen();
            sweeps.density_adjoint(rank, by).map_err(failed)?;
        }
        let mut tape = self.tape.borrow_mut();
        let epochs = operator.epochs(dy, &tape.numbers.ops)?;
        let noise = sweeps.backward(rank, &mut tape, &epochs).map_err(failed)?;
        rank.recorder.copy(&noise, 0, &out, 0, out.len())?;
        if operator.signature.domain.len() > 1 {
            let (mut found, _) = sweeps.dots.fetch(&mut rank.recorder, &[]).map_err(failed)?;
            if let Some(&value) = found.iter().find(|value| !value.is_finite()) {
                let what = "the cotangent of the cosmological parameters".into();
                return Err(OperatorError::NotFinite { operator: NAME.into(), what, value });
            }
            if let Some(row) = &self.by_sigma8 {
                let by_amplitude = std::mem::take(&mut found[AMPLITUDE]);
                found.iter_mut().zip(row).for_each(|(found, row)| *found += by_amplitude * row);
            }
            dx.set(&mut rank.recorder, COSMOLOGY, &found)?;
        }
        Ok(())
    }

    fn excited(&self, _rank: &mut Rank) -> Result<Vec<ExcitedModes>, OperatorError> {
        let noise = self.operator.domain().leaves().find_map(|(name, leaf)| Some((name, leaf.mesh()?)));
        let modes =
            |(name, mesh): (&str, &Mesh)| ExcitedModes { leaf: name.into(), mesh: mesh.clone(), amplitude: None };
        Ok(noise.map(modes).into_iter().collect())
    }
}

/// Returns the names of the leaves of a snapshot.
pub(super) fn snapshot_names(number: usize) -> [String; 2] {
    ["displacement", "momentum"].map(|name| format!("snapshot_{number}/{name}"))
}

/// Returns a leaf of what a run observes; `expected` says in words what that should be.
pub(super) fn observed_leaf(
    observed: &Space,
    operator: &str,
    name: &str,
    expected: &str,
) -> Result<Leaf, OperatorError> {
    let why = || format!("expected {expected}, got {observed}");
    let missing = || OperatorError::Fit { operator: operator.into(), leaf: name.into(), why: why() };
    observed.leaf(name).cloned().ok_or_else(missing)
}

/// Returns an error of the run as one of the operator.
fn failed(error: SimulationError) -> OperatorError {
    match error {
        SimulationError::Device(error) => OperatorError::Device(error),
        SimulationError::Comm(error) => OperatorError::Comm(error),
        error => OperatorError::failed(NAME, error),
    }
}
