//! Sizes of chunks, and measurements of their memory.

use std::ops::Range;

use super::error::MapError;
use crate::comm::Op;
use crate::hash::fnv1a;
use crate::rank::Rank;

/// Number of items per chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkSize {
    /// This number, at least one.
    Items(u64),
    /// The largest number that a budget of device memory in bytes allows. The budget bounds the
    /// growth of [`Gpu::allocated`](crate::gpu::Gpu::allocated) while the function runs, for
    /// outputs and for the chunk itself. Ranks that are threads with one device share it.
    ///
    /// For a Jacobian, items are columns or rows, the output is the unit vector, and all ranks work
    /// on a chunk together: those with one device are measured as one.
    ///
    /// The first chunk has one item; as long as twice as many items fit according to the
    /// measurement, the next chunk has twice as many. So at least half of what would fit is used,
    /// and no item is processed twice. During these measurements ranks keep in step and wait for
    /// the device after each chunk; those that share a device take turns.
    Memory(u64),
}

/// Measurements that a chunk size was chosen by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Bytes that may be taken.
    pub budget: u64,
    /// Bytes of what comes out.
    pub outputs: u64,
    /// Bytes per item, from the largest chunk that was measured.
    pub per_item: u64,
    /// Items of each measured chunk, and its bytes without outputs, summed over all ranks that
    /// share a device.
    pub measured: Vec<[u64; 2]>,
}

impl MemoryEstimate {
    /// Records the bytes that chunks of `chunk` items take; returns the next chunk to measure, if
    /// one of twice the size fits.
    ///
    /// # Errors
    /// [`MapError::Budget`] where they are more than may be taken.
    fn note(&mut self, chunk: u64, taken: u64) -> Result<Option<u64>, MapError> {
        self.measured.push([chunk, taken]);
        self.per_item = taken.div_ceil(chunk);
        let with = |taken: u64| self.outputs.saturating_add(taken);
        if with(taken) > self.budget {
            return Err(MapError::Budget { needed: with(taken), budget: self.budget });
        }
        Ok((with(taken.saturating_mul(2)) <= self.budget).then(|| chunk.saturating_mul(2)))
    }
}

/// The number of items per chunk, as measurements choose it.
pub(super) struct Sizes {
    pub chunk: u64,
    pub measuring: bool,
    pub estimate: Option<MemoryEstimate>,
}

impl Sizes {
    /// Creates the sizes for a chunk, and what is held throughout. Collective.
    pub fn new<T, E: From<MapError>>(
        rank: &mut Rank,
        chunk: ChunkSize,
        held: impl FnOnce(&mut Rank) -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        let budget = match chunk {
            ChunkSize::Items(chunk) => return Ok((Sizes { chunk, measuring: false, estimate: None }, held(rank)?)),
            ChunkSize::Memory(budget) => budget,
        };
        let gauge = JointGauge::begin(rank)?;
        let held = held(rank)?;
        let outputs = gauge.look(rank)?;
        let estimate = MemoryEstimate { budget, outputs, ..MemoryEstimate::default() };
        Ok((Sizes { chunk: 1, measuring: true, estimate: Some(estimate) }, held))
    }

    /// Records the memory of a chunk. The next one is larger if that fits and this one had fewer
    /// than `most` items.
    pub fn note(&mut self, taken: u64, most: u64) -> Result<(), MapError> {
        let Some(estimate) = &mut self.estimate else { return Ok(()) };
        match estimate.note(self.chunk, taken)? {
            Some(next) if self.chunk < most => self.chunk = next,
            _ => self.measuring = false,
        }
        Ok(())
    }
}

/// Report of a map, or of the products of a Jacobian, on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapReport {
    /// The items of this rank; the columns or rows.
    pub items: Range<u64>,
    /// Items of a chunk at the end.
    pub chunk: u64,
    /// Chunks that the function was given.
    pub chunks: u64,
    /// Measurements, if the chunk size was chosen by memory.
    pub estimate: Option<MemoryEstimate>,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_double_while_twice_as_much_fits() {
        let mut estimate = MemoryEstimate { budget: 1000, outputs: 100, ..MemoryEstimate::default() };
        assert_eq!(estimate.note(1, 100).unwrap(), Some(2));
        assert_eq!(estimate.note(2, 200).unwrap(), Some(4));
        assert_eq!(estimate.note(4, 400).unwrap(), Some(8));
        assert_eq!(estimate.note(8, 800).unwrap(), None, "1700 would not fit");
        assert_eq!((estimate.per_item, estimate.measured.len()), (100, 4));
        assert!(matches!(estimate.note(9, 901), Err(MapError::Budget { needed: 1001, budget: 1000 })));
    }
}
