//! Sweeps over the operations of a run: forwards with its states kept, backwards with cotangents,
//! forwards again with tangents.

use std::ops::Range;
use std::rc::Rc;

use super::force::{ForceDerivative, Placed};
use super::memory::check_particles;
use super::start::{self, Dots, StartCotangents, StartTangent};
use super::{Cotangents, Derivatives, GradientMemory, Numbers, States, pack, unpack};
use crate::cosmology::{LptFactors, StepOp};
use crate::gpu::{Array, Gpu};
use crate::mesh::Axpby;
use crate::pm::{Config, LatticeFields, Migrate, Perturbation, PlannedFor, Result, Simulation, Source, particles_at};
use crate::rank::Rank;

/// Positions and momenta at an operation of a run, between its start and its end: vectors in one
/// array each, all along x, then y, then z.
pub struct Epoch {
    /// The operation.
    pub at: usize,
    pub positions: Array<f32>,
    pub momenta: Array<f32>,
}

/// A run as it was, for its derivatives there.
pub struct Tape {
    /// The white noise it began with.
    pub noise: Array<f32>,
    pub numbers: Rc<Numbers>,
    pub derivatives: Rc<Derivatives>,
    pub states: States,
}

fn source<'a>(noise: &'a Array<f32>, numbers: &'a Numbers) -> Source<'a> {
    Source { noise, amplitudes: &numbers.amplitudes, factors: numbers.start }
}

/// Tangent of a run's inputs.
pub struct RunTangent<'a> {
    /// The change of the white noise.
    pub noise: &'a Array<f32>,
    /// Tangent of the numbers, if parameters change.
    pub numbers: Option<NumbersTangent>,
}

/// Tangent of [`Numbers`].
pub struct NumbersTangent {
    pub numbers: Vec<f64>,
    pub amplitudes: Array<f32>,
}

/// A run, its derivatives, and the memory that sweeps over it need beside its states; made once.
pub struct Sweeps {
    pub run: Simulation,
    lpt: Perturbation,
    force: ForceDerivative,
    /// Cotangents of the particles, or their tangents.
    pub bars: Cotangents,
    /// Cotangents or tangents of accelerations, accelerations, momenta: vectors in one array each.
    accelerations: [Array<f32>; 2],
    momenta: Array<f32>,
    pub dots: Dots,
    axpby: Axpby,
}

impl Sweeps {
    /// For a run with the parameters of `config`, over its process grid. Particles stay on the
    /// ranks of their sites, in whose order states and cotangents are. Collective.
    pub fn new(rank: &mut Rank, config: Config) -> Result<Self> {
        config.agree(&rank.comm, &"derivatives")?;
        check_particles(&config)?;
        let grid = Some(config.grid(rank.comm.shares())?.parts());
        let config = Config { grid, migrate: Migrate::Never, ..config };
        let run = Simulation::plan(rank, config, 0)?;
        let (config, particles, recorder) = (&run.config, run.lattice.len(), &mut rank.recorder);
        let count = super::parameters::Layout::new(&run.ops).len();
        let gpu = recorder.gpu().clone();
        let vectors = |what: &str| gpu.array::<f32>(what, 3 * particles);
        Ok(Sweeps {
            lpt: Perturbation::new(config, recorder, &run.comms)?,
            force: ForceDerivative::new(config, recorder, &run.comms)?,
            bars: Cotangents::new(&gpu, particles)?,
            accelerations: [vectors("pm::acceleration_cotangents")?, vectors("pm::accelerations")?],
            momenta: vectors("pm::momenta")?,
            dots: Dots::new(rank, count, config.particles.pow(3))?,
            axpby: Axpby::default(),
            run,
        })
    }

    /// Forecasts the device memory of a gradient with a state kept of every `checkpoint_every`-th
    /// force.
    pub fn memory(&self, gpu: &Gpu, checkpoint_every: usize) -> Result<GradientMemory> {
        let (run, planned) = (&self.run, PlannedFor::device(gpu));
        let (grid, config) = (run.grid(), &run.config);
        let part = (grid, grid.rank_to_check(config.cells(), run.comms.rank()));
        GradientMemory::new(config, part, &run.ops, checkpoint_every, &planned)
    }

    /// Runs from the noise of `tape`, keeps its states there and writes those of `epochs`. Whether
    /// particles were lost is still to be asked of the run's force.
    pub fn forward(&mut self, rank: &mut Rank, tape: &mut Tape, epochs: &[Epoch]) -> Result<()> {
        let Tape { noise, numbers, states, .. } = tape;
        let mut number = 0;
        self.run_from(rank, source(noise, numbers), &numbers.ops, epochs, |rank, run| {
            run.settle(rank)?;
            states.passed(rank, run, number)?;
            number += 1;
            Ok(())
        })
    }

    /// Runs from `noise`, and keeps nothing. Otherwise as [`forward`](Self::forward).
    pub fn value(&mut self, rank: &mut Rank, noise: &Array<f32>, numbers: &Numbers, epochs: &[Epoch]) -> Result<()> {
        self.run_from(rank, source(noise, numbers), &numbers.ops, epochs, |_, _| Ok(()))
    }

    /// Waits for the device and checks that the run which was made last has lost no particle.
    pub fn check(&self, rank: &mut Rank) -> Result<()> {
        self.run.force.check(&mut rank.recorder, &self.run.comms)
    }

    fn run_from(
        &mut self,
        rank: &mut Rank,
        source: Source<'_>,
        ops: &[StepOp],
        epochs: &[Epoch],
        mut force: impl FnMut(&mut Rank, &mut Simulation) -> Result<()>,
    ) -> Result<()> {
        let run = &mut self.run;
        run.begin(rank, &self.lpt, source)?;
        for (at, &op) in ops.iter().enumerate() {
            if op == StepOp::Force {
                force(rank, run)?;
            }
            run.execute(rank, op)?;
            for epoch in epochs.iter().filter(|epoch| epoch.at == at) {
                run.settle(rank)?;
                pack(&mut rank.recorder, &run.displacement, &epoch.positions, 0)?;
                pack(&mut rank.recorder, &run.momentum, &epoch.momenta, 0)?;
            }
        }
        run.settle(rank)?;
        run.done = ops.len();
        // A loss has its memory.
        run.force.field = None;
        rank.recorder.submit()?;
        Ok(())
    }

    /// Adds what a loss of the density of the particles where they are, whose derivative by this
    /// rank's own cells is `by`, says of positions.
    pub fn density_adjoint(&mut self, rank: &mut Rank, by: &Array<f32>) -> Result<()> {
        let Sweeps { run, force, bars, .. } = self;
        run.widen(rank)?;
        force.density(Placed::of(rank, run), [by, &bars.positions])
    }

    /// Records how the density of the particles where they are changes on this rank's own cells, by
    /// the tangents of positions.
    pub fn density_tangent(&mut self, rank: &mut Rank, out: &Array<f32>) -> Result<()> {
        let Sweeps { run, force, bars, .. } = self;
        run.widen(rank)?;
        force.density_tangent(Placed::of(rank, run), [&bars.positions, out])
    }

    /// Brings cotangents of the end to the start, and those of `epochs`. Gives that of the white
    /// noise, and leaves in the dots what the parameters are worth.
    pub fn backward(&mut self, rank: &mut Rank, tape: &mut Tape, epochs: &[Epoch]) -> Result<Array<f32>> {
        self.dots.begin(&tape.derivatives);
        rank.recorder.clear(&self.accelerations[0]);
        let forces = tape.states.forces.clone();
        let mut end = tape.numbers.ops.len();
        for (number, &at) in forces.iter().enumerate().rev() {
            tape.states.restore(rank, &mut self.run, &tape.numbers.ops, number)?;
            self.run.repeat(rank, StepOp::Force)?;
            // What was for the force is free again for its adjoint.
            rank.recorder.submit()?;
            if self.moves_with_parameters(tape, at..end) {
                self.read_accelerations(rank)?;
            }
            self.reverse(rank, tape, epochs, (at + 1..end, number))?;
            let Sweeps { run, force, bars, .. } = self;
            force.accelerations(Placed::of(rank, run), [&self.accelerations[0], &bars.positions])?;
            rank.recorder.clear(&self.accelerations[0]);
            rank.recorder.submit()?;
            end = at;
        }
        self.run.force.forget();
        // Drifts before the first force: momenta have not changed since the start.
        self.reverse(rank, tape, epochs, (0..end, 0))?;
        self.start_adjoint(rank, tape)
    }

    /// Returns `true` if a number of these operations changes with a parameter.
    fn moves_with_parameters(&self, tape: &Tape, range: Range<usize>) -> bool {
        let operations = &tape.numbers.layout.operations;
        let end = operations.get(range.end).copied().unwrap_or(tape.numbers.layout.start);
        (operations[range.start]..end).any(|number| self.dots.wants(number))
    }

    /// Reads the accelerations of the force that was solved last.
    fn read_accelerations(&mut self, rank: &mut Rank) -> Result<()> {
        let Sweeps { run, accelerations, .. } = self;
        let particles = particles_at(&run.lattice, None, &run.displacement);
        run.force.readout(&mut rank.recorder, particles, 0..3, &accelerations[1])
    }

    /// Goes back over kicks and drifts, all by the accelerations at force `number`.
    fn reverse(
        &mut self,
        rank: &mut Rank,
        tape: &Tape,
        epochs: &[Epoch],
        (range, number): (Range<usize>, usize),
    ) -> Result<()> {
        for at in range.clone().rev() {
            let first = tape.numbers.layout.operations[at];
            match tape.numbers.ops[at] {
                StepOp::Kick { keep, factor } => {
                    if self.moves_with_parameters(tape, at..at + 1) {
                        self.momenta_before(rank, tape, range.start..at, number)?;
                        let (pi, recorder) = (&self.bars.momenta, &mut rank.recorder);
                        self.dots.vectors(recorder, first, [pi, &self.momenta])?;
                        self.dots.vectors(recorder, first + 1, [pi, &self.accelerations[1]])?;
                    }
                    let (pi, recorder) = (&self.bars.momenta, &mut rank.recorder);
                    self.axpby.record(recorder, factor, pi, 1.0, &self.accelerations[0])?;
                    if keep != 1.0 {
                        // The update adds something: nothing of what is at hand.
                        self.axpby.record(recorder, 0.0, &self.accelerations[0], keep, pi)?;
                    }
                }
                StepOp::Drift { factor } => {
                    if self.moves_with_parameters(tape, at..at + 1) {
                        self.momenta_before(rank, tape, range.start..at, number)?;
                        let xi = [&self.bars.positions, &self.momenta];
                        self.dots.vectors(&mut rank.recorder, first, xi)?;
                    }
                    let Cotangents { positions, momenta } = &self.bars;
                    self.axpby.record(&mut rank.recorder, factor, positions, 1.0, momenta)?;
                }
                StepOp::Force => {}
                StepOp::Reached { .. } => {
                    for Epoch { positions, momenta, .. } in epochs.iter().filter(|epoch| epoch.at == at) {
                        self.axpby.record(&mut rank.recorder, 1.0, positions, 1.0, &self.bars.positions)?;
                        self.axpby.record(&mut rank.recorder, 1.0, momenta, 1.0, &self.bars.momenta)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Records the momenta after the kicks of `range`, from those at force `number` on.
    fn momenta_before(&mut self, rank: &mut Rank, tape: &Tape, range: Range<usize>, number: usize) -> Result<()> {
        tape.states.momenta(&mut rank.recorder, number, &self.momenta)?;
        for op in &tape.numbers.ops[range] {
            if let StepOp::Kick { keep, factor } = *op {
                self.axpby.record(&mut rank.recorder, factor, &self.accelerations[1], keep, &self.momenta)?;
            }
        }
        Ok(())
    }

    /// Returns the adjoint of the start.
    fn start_adjoint(&mut self, rank: &mut Rank, tape: &Tape) -> Result<Array<f32>> {
        let Simulation { displacement, momentum, comms, .. } = &mut self.run;
        let mut fields = LatticeFields { recorder: &mut rank.recorder, comms, lpt: &self.lpt };
        // The particles are no longer needed, so their arrays take the cotangents by axis.
        unpack(fields.recorder, &self.bars.positions, 0, displacement)?;
        unpack(fields.recorder, &self.bars.momenta, 0, momentum)?;
        fields.recorder.submit()?;
        let amplitudes = &tape.derivatives.amplitudes;
        let bars = StartCotangents { positions: displacement, momenta: momentum, amplitudes };
        start::adjoint(&mut fields, source(&tape.noise, &tape.numbers), &bars, (&mut self.dots, &tape.numbers.layout))
    }

    /// Runs again from the first force of `tape` on, beside it with tangents from `by` at the
    /// start: those of positions and momenta at the end are in the bars, and the particles are
    /// where they were at the end. Writes the tangents of `epochs`.
    pub fn tangent(&mut self, rank: &mut Rank, tape: &Tape, by: &RunTangent<'_>, epochs: &[Epoch]) -> Result<()> {
        self.start_tangent(rank, tape, by)?;
        tape.states.first(rank, &mut self.run)?;
        let changes = by.numbers.as_ref().map(|change| change.numbers.as_slice());
        let first = tape.states.forces.first().copied().unwrap_or(0);
        for (at, &op) in tape.numbers.ops.iter().enumerate() {
            let change = changes.map(|changes| &changes[tape.numbers.layout.operations[at]..]);
            self.push_tangent(rank, op, change)?;
            // Particles are already at the first force, with the momenta of the start.
            if at >= first {
                self.run.repeat(rank, op)?;
            }
            if op == StepOp::Force {
                self.force_tangent(rank)?;
                if changes.is_some() {
                    self.read_accelerations(rank)?;
                }
            }
            for Epoch { positions, momenta, .. } in epochs.iter().filter(|epoch| epoch.at == at) {
                rank.recorder.copy(&self.bars.positions, 0, positions, 0, positions.len())?;
                rank.recorder.copy(&self.bars.momenta, 0, momenta, 0, momenta.len())?;
            }
        }
        self.run.settle(rank)
    }

    /// Records the tangents of accelerations, for the force that was solved last.
    fn force_tangent(&mut self, rank: &mut Rank) -> Result<()> {
        let Sweeps { run, force, bars, accelerations, .. } = self;
        // What was for the force is free again for its tangent.
        rank.recorder.submit()?;
        force.accelerations_tangent(Placed::of(rank, run), [&bars.positions, &accelerations[0]])
    }

    /// Records what a kick or drift, which is still to be done, makes of the tangents; `change` is
    /// that of its numbers.
    fn push_tangent(&mut self, rank: &mut Rank, op: StepOp, change: Option<&[f64]>) -> Result<()> {
        if change.is_some() && matches!(op, StepOp::Kick { .. } | StepOp::Drift { .. }) {
            self.run.settle(rank)?;
            pack(&mut rank.recorder, &self.run.momentum, &self.momenta, 0)?;
        }
        let Sweeps { bars: Cotangents { positions, momenta }, accelerations, momenta: own, axpby, .. } = self;
        let recorder = &mut rank.recorder;
        match (op, change) {
            (StepOp::Kick { keep, factor }, change) => {
                axpby.record(recorder, factor, &accelerations[0], keep, momenta)?;
                if let Some(&[keep, factor, ..]) = change {
                    axpby.record(recorder, keep, own, 1.0, momenta)?;
                    axpby.record(recorder, factor, &accelerations[1], 1.0, momenta)?;
                }
            }
            (StepOp::Drift { factor }, change) => {
                axpby.record(recorder, factor, momenta, 1.0, positions)?;
                if let Some(&[factor, ..]) = change {
                    axpby.record(recorder, factor, own, 1.0, positions)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Computes the tangents of the start.
    fn start_tangent(&mut self, rank: &mut Rank, tape: &Tape, by: &RunTangent<'_>) -> Result<()> {
        let Simulation { displacement, momentum, comms, .. } = &mut self.run;
        let mut fields = LatticeFields { recorder: &mut rank.recorder, comms, lpt: &self.lpt };
        let mut factors = LptFactors::ZERO;
        if let Some(NumbersTangent { numbers, .. }) = &by.numbers {
            let (position, momentum) = numbers[tape.numbers.layout.start..].split_at(LptFactors::COUNT);
            factors.position.copy_from_slice(position);
            factors.momentum.copy_from_slice(momentum);
        }
        let amplitudes = by.numbers.as_ref().map(|change| &change.amplitudes);
        let by = StartTangent { noise: by.noise, amplitudes, factors };
        // The particles are still to be placed, so their arrays take the tangents by axis.
        start::tangent(&mut fields, source(&tape.noise, &tape.numbers), &by, [displacement, momentum])?;
        pack(fields.recorder, displacement, &self.bars.positions, 0)?;
        Ok(pack(fields.recorder, momentum, &self.bars.momenta, 0)?)
    }
}
