//! Fields of which each rank has, gives or gets a part, several of them in one array.
//!
//! ```text
//! in arrays    [field 0: part 0, part 1, ..] [field 1: part 0, part 1, ..]
//! in messages  [part 0: field 0, field 1, ..] [part 1: field 0, field 1, ..]
//! ```

use crate::exchange::block_copy::{BlockCopies, FieldBlocks};
use crate::gpu::{Array, DeviceElement, DeviceError, MemoryKind, Recorder};
use crate::grid::{Block, Transfer};

/// Fields, in parts by rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub fields: u64,
    /// Elements of a field before each part, and of all.
    starts: Vec<u64>,
}

impl Batch {
    pub fn new(fields: u64, counts: impl IntoIterator<Item = u64>) -> Self {
        let ends = counts.into_iter().scan(0u64, |end, count| {
            *end = end.saturating_add(count);
            Some(*end)
        });
        Batch { fields, starts: std::iter::once(0).chain(ends).collect() }
    }

    /// Elements of a field.
    pub fn total(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Elements of all fields.
    pub fn len(&self) -> u64 {
        self.fields.saturating_mul(self.total())
    }

    /// Elements of a field in a part.
    pub fn count(&self, part: usize) -> u64 {
        self.starts[part + 1] - self.starts[part]
    }

    /// Returns where a part of all fields lies in messages.
    pub fn transfer(&self, part: usize) -> Transfer {
        Transfer { peer: part, start: self.fields * self.starts[part], len: self.fields * self.count(part) }
    }

    /// Returns the transfers of all parts.
    pub fn transfers(&self) -> Vec<Transfer> {
        self.parts().map(|part| self.transfer(part)).collect()
    }

    fn parts(&self) -> std::ops::Range<usize> {
        0..self.starts.len() - 1
    }

    /// Returns `true` if both forms are one.
    fn is_plain(&self) -> bool {
        self.fields <= 1 || self.parts().filter(|&part| self.count(part) > 0).count() <= 1
    }

    /// Returns a part of all fields, in their array and in messages.
    fn blocks<'a, T: DeviceElement>(
        &self,
        part: usize,
        array: &'a Array<T>,
        message: &'a Array<T>,
    ) -> [FieldBlocks<'a, T>; 2] {
        let (count, total) = (self.count(part), self.total());
        let block = Block { offset: self.starts[part], extent: [1, 1, count], strides: [total, total, 1] };
        let packed = FieldBlocks::packed(message, self.fields * self.starts[part], block);
        [FieldBlocks { array, block, stride: total }, packed]
    }

    /// Returns the fields as they lie in messages: the array itself where that is the same. Records
    /// only.
    pub fn packed<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        copies: &BlockCopies,
        array: &Array<T>,
    ) -> Result<Array<T>, DeviceError> {
        if self.is_plain() {
            return Ok(array.clone());
        }
        let message = recorder.gpu().array_in("collectives::outgoing", array.len(), MemoryKind::Outgoing)?;
        for part in self.parts() {
            let [field, packed] = self.blocks(part, array, &message);
            copies.record(recorder, self.fields, field, packed)?;
        }
        Ok(message)
    }

    /// Returns the fields of a message, as they lie in arrays: the message itself where that is the
    /// same. Records only.
    pub fn unpacked<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        copies: &BlockCopies,
        message: Array<T>,
    ) -> Result<Array<T>, DeviceError> {
        if self.is_plain() {
            return Ok(message);
        }
        let array = recorder.gpu().array("collectives::fields", message.len())?;
        for part in self.parts() {
            let [field, packed] = self.blocks(part, &array, &message);
            copies.record(recorder, self.fields, packed, field)?;
        }
        Ok(array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Transfers;

    /// More than 2^32 bytes from a rank and in all: what travels, counted.
    #[test]
    fn counts_do_not_end_at_two_or_four_gigabytes() {
        let counts = [3 << 29, 0, (1 << 30) + 1];
        let batch = Batch::new(2, counts);
        assert_eq!((batch.total(), batch.len()), ((5 << 29) + 1, (5 << 30) + 2));
        let transfers = batch.transfers();
        assert_eq!(transfers[2], Transfer { peer: 2, start: 3 << 30, len: (1 << 31) + 2 });
        // Rank 1 has nothing of its own and gets the others' parts of f64, in chunks of 2 MiB.
        let cost = Transfers { send: Vec::new(), receive: transfers.clone() }.cost(1, 8, 1 << 21);
        assert_eq!((cost.received_bytes, cost.sent_bytes), (8 * batch.len(), 0));
        let cost = Transfers { send: transfers, receive: Vec::new() }.cost(1, 8, 1 << 21);
        assert_eq!((cost.sent_bytes, cost.messages), (8 * batch.len(), (3 << 30 >> 18) + (1 << 31 >> 18) + 1));
        // Sums that no number holds are too long, and not short.
        assert_eq!(Batch::new(2, [u64::MAX, 5]).len(), u64::MAX);
    }
}
