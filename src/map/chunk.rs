//! Sizes of chunks, and measurements of their memory.

use std::ops::Range;

use super::error::MapError;

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
    pub(super) fn note(&mut self, chunk: u64, taken: u64) -> Result<Option<u64>, MapError> {
        self.measured.push([chunk, taken]);
        self.per_item = taken.div_ceil(chunk);
        let with = |taken: u64| self.outputs.saturating_add(taken);
        if with(taken) > self.budget {
            return Err(MapError::Budget { needed: with(taken), budget: self.budget });
        }
        Ok((with(taken.saturating_mul(2)) <= self.budget).then(|| chunk.saturating_mul(2)))
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
