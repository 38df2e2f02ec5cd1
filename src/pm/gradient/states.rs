//! States of particles where forces are computed, kept for the way back, and cotangents. Vectors of
//! particles are in one array: all along x, then y, then z.

use super::GradientMemory;
use crate::cosmology::StepOp;
use crate::gpu::{Array, DeviceError, Gpu, Recorder};
use crate::pm::{Result, Simulation};
use crate::rank::Rank;

/// The states at forces: checkpoints, and those after the last checkpoint that was asked for.
pub struct States {
    pub memory: GradientMemory,
    checkpoints: Vec<Array<f32>>,
    /// States between two checkpoints, from the force after the first one on.
    between: Vec<Array<f32>>,
    /// The checkpoint that `between` follows.
    follows: Option<usize>,
    /// The operation of each force.
    pub forces: Vec<usize>,
}

impl States {
    /// Room for those of a run of these operations.
    pub fn new(gpu: &Gpu, particles: u64, ops: &[StepOp], memory: GradientMemory) -> Result<Self, DeviceError> {
        let arrays = |count: usize| (0..count).map(|_| gpu.array("pm::state", 6 * particles)).collect::<Result<_, _>>();
        let (every, forces) = (memory.checkpoint_every, memory.forces);
        let checkpoints = forces.div_ceil(every);
        Ok(States {
            checkpoints: arrays(checkpoints)?,
            between: arrays((every - 1).min(forces))?,
            memory,
            follows: None,
            forces: (0..ops.len()).filter(|&at| ops[at] == StepOp::Force).collect(),
        })
    }

    /// Records the state of `run`, which comes to force `number`, where it is a checkpoint. States
    /// between checkpoints are forgotten.
    pub fn passed(&mut self, rank: &mut Rank, run: &Simulation, number: usize) -> Result<(), DeviceError> {
        self.follows = None;
        match number % self.memory.checkpoint_every {
            0 => keep(&mut rank.recorder, run, &self.checkpoints[number / self.memory.checkpoint_every]),
            _ => Ok(()),
        }
    }

    /// Brings `run` to the first force.
    pub fn first(&self, rank: &mut Rank, run: &mut Simulation) -> Result<(), DeviceError> {
        place(&mut rank.recorder, run, &self.checkpoints[0])
    }

    /// Returns the state at force `number`, which has been restored before.
    fn state(&self, number: usize) -> &Array<f32> {
        let every = self.memory.checkpoint_every;
        match number % every {
            0 => &self.checkpoints[number / every],
            n => &self.between[n - 1],
        }
    }

    /// Records the momenta at force `number`, which has been restored before.
    pub fn momenta(&self, recorder: &mut Recorder, number: usize, out: &Array<f32>) -> Result<(), DeviceError> {
        recorder.copy(self.state(number), out.len(), out, 0, out.len())
    }

    /// Brings `run`, of the operations `ops`, to force `number`. Collective.
    pub fn restore(&mut self, rank: &mut Rank, run: &mut Simulation, ops: &[StepOp], number: usize) -> Result<()> {
        let every = self.memory.checkpoint_every;
        let group = number / every;
        if every > 1 && self.follows != Some(group) {
            self.replay(rank, run, ops, group)?;
            self.follows = Some(group);
        }
        Ok(place(&mut rank.recorder, run, self.state(number))?)
    }

    /// Runs again from checkpoint `group` on, and keeps the states at the forces before the next.
    fn replay(&mut self, rank: &mut Rank, run: &mut Simulation, ops: &[StepOp], group: usize) -> Result<()> {
        let first = group * self.memory.checkpoint_every;
        let last = (first + self.memory.checkpoint_every).min(self.forces.len());
        place(&mut rank.recorder, run, &self.checkpoints[group])?;
        for number in first..last - 1 {
            for &op in &ops[self.forces[number]..self.forces[number + 1]] {
                run.repeat(rank, op)?;
            }
            run.settle(rank)?;
            keep(&mut rank.recorder, run, &self.between[number - first])?;
        }
        Ok(())
    }
}

/// Records the state of a run.
fn keep(recorder: &mut Recorder, run: &Simulation, state: &Array<f32>) -> Result<(), DeviceError> {
    pack(recorder, &run.displacement, state, 0)?;
    pack(recorder, &run.momentum, state, state.len() / 2)
}

/// Records the return of a run to a state.
fn place(recorder: &mut Recorder, run: &mut Simulation, state: &Array<f32>) -> Result<(), DeviceError> {
    run.forget();
    unpack(recorder, state, 0, &run.displacement)?;
    unpack(recorder, state, state.len() / 2, &run.momentum)
}

/// Records `to` = the vectors `from`, one array for each axis.
pub fn pack(recorder: &mut Recorder, from: &[Array<f32>; 3], to: &Array<f32>, start: u64) -> Result<(), DeviceError> {
    let count = from[0].len();
    (0..3).try_for_each(|axis| recorder.copy(&from[axis], 0, to, start + axis as u64 * count, count))
}

/// Records `to`, one array for each axis, = the vectors `from`.
pub fn unpack(recorder: &mut Recorder, from: &Array<f32>, start: u64, to: &[Array<f32>; 3]) -> Result<(), DeviceError> {
    let count = to[0].len();
    (0..3).try_for_each(|axis| recorder.copy(from, start + axis as u64 * count, &to[axis], 0, count))
}

/// The derivatives of a loss by positions and momenta of this rank's particles: vectors in one
/// array, all along x in the order of the sites, then y, then z.
pub struct Cotangents {
    pub(super) positions: Array<f32>,
    pub(super) momenta: Array<f32>,
}

impl Cotangents {
    /// Creates uninitialized cotangents of `particles` particles.
    pub(super) fn new(gpu: &Gpu, particles: u64) -> Result<Self, DeviceError> {
        Ok(Cotangents {
            positions: gpu.array("pm::position_cotangents", 3 * particles)?,
            momenta: gpu.array("pm::momentum_cotangents", 3 * particles)?,
        })
    }

    pub(in crate::pm) fn clear(&self, recorder: &mut Recorder) {
        recorder.clear(&self.positions);
        recorder.clear(&self.momenta);
    }

    /// Returns the cotangents of the displacements, in Mpc/h: `3 n` values, to which a loss adds.
    #[must_use]
    pub fn positions(&self) -> &Array<f32> {
        &self.positions
    }

    /// Returns the cotangents of the momenta `a^2 dx/dt`.
    #[must_use]
    pub fn momenta(&self) -> &Array<f32> {
        &self.momenta
    }
}
