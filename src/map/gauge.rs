//! Memory of a device that chunks take, measured.

use super::error::MapError;
use crate::comm::Op;
use crate::hash::fnv1a;
use crate::rank::Rank;

/// Counts the bytes of a device that chunks take on which all ranks work together, summed over the
/// ranks of the device. Collective.
pub(super) struct Gauge {
    /// This rank's turn among those of its device.
    turn: usize,
    /// Turns of the device that has the most.
    turns: usize,
    /// Bytes before this rank's turn.
    before: u64,
}

impl Gauge {
    /// Creates a gauge. Collective.
    pub fn new(rank: &Rank) -> Result<Self, MapError> {
        let process = fnv1a(crate::host::id(), &std::process::id().to_le_bytes());
        let device = fnv1a(process, &rank.gpu.number().to_le_bytes());
        let all = rank.comm.all_gather(&[device])?;
        let turn = all[..rank.index()].iter().filter(|&&other| other == device).count();
        let [turns] = rank.comm.reduced([turn as u64 + 1], Op::Max)?;
        Ok(Gauge { turn, turns: turns as usize, before: 0 })
    }

    /// Waits for this rank's turn.
    pub fn begin(&mut self, rank: &mut Rank) -> Result<(), MapError> {
        for _ in 0..self.turn {
            rank.comm.barrier()?;
        }
        settle(rank)?;
        self.before = rank.gpu.allocated();
        Ok(())
    }

    /// Ends it, and waits for the others; the bytes that all ranks of a device may take at once, of
    /// the rank that takes the most.
    pub fn end(&self, rank: &mut Rank) -> Result<u64, MapError> {
        rank.recorder.wait()?;
        let taken = rank.gpu.allocated().saturating_sub(self.before);
        settle(rank)?;
        for _ in self.turn..self.turns {
            rank.comm.barrier()?;
        }
        let [most] = rank.comm.reduced([taken], Op::Max)?;
        Ok(most.saturating_mul(self.turns as u64))
    }
}

/// Counts the bytes of a device that chunks take on which all ranks work together: those of all
/// ranks that have the device. Collective.
pub(super) struct JointGauge {
    before: u64,
}

impl JointGauge {
    /// Samples device memory after all ranks have become idle.
    pub fn begin(rank: &mut Rank) -> Result<Self, MapError> {
        settle(rank)?;
        rank.comm.barrier()?;
        let before = rank.gpu.allocated();
        rank.comm.barrier()?;
        Ok(JointGauge { before })
    }

    /// Looks again when all ranks have done a chunk and still have what it made; the bytes that
    /// were taken on the device where they are most.
    pub fn look(&self, rank: &mut Rank) -> Result<u64, MapError> {
        rank.recorder.wait()?;
        rank.comm.barrier()?;
        let [most] = rank.comm.reduced([rank.gpu.allocated().saturating_sub(self.before)], Op::Max)?;
        Ok(most)
    }
}

/// Returns unused buffers to the driver, after the device has finished.
pub(super) fn settle(rank: &mut Rank) -> Result<(), MapError> {
    rank.recorder.wait()?;
    rank.gpu.trim();
    Ok(())
}
