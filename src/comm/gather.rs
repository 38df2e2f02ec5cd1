//! Gathering blocks of all ranks on one or on all.

use bytemuck::Pod;

use super::Result;
use super::check::{Operation, Record};
use super::communicator::{Communicator, from_bytes, to_bytes};

/// One part per rank, of any lengths, one after another in rank order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<T> {
    data: Vec<T>,
    counts: Vec<u64>,
}

impl<T> Parts<T> {
    /// `counts` must sum to the length of `data`.
    pub(super) fn new(data: Vec<T>, counts: Vec<u64>) -> Parts<T> {
        Parts { data, counts }
    }

    /// All elements, in rank order.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// The number of elements of each rank.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The part of a rank; `None` past the last.
    pub fn get(&self, rank: usize) -> Option<&[T]> {
        self.iter().nth(rank)
    }

    /// The parts, in rank order.
    pub fn iter(&self) -> impl Iterator<Item = &[T]> {
        self.counts.iter().scan(&self.data[..], |rest, &count| {
            let (part, tail) = rest.split_at(count as usize);
            *rest = tail;
            Some(part)
        })
    }

    /// The elements and the counts.
    pub fn into_raw(self) -> (Vec<T>, Vec<u64>) {
        (self.data, self.counts)
    }
}

impl Communicator {
    /// Gives every rank the slices of all ranks, in rank order. Collective; the length is the same on all ranks.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn all_gather<T: Pod>(&self, mine: &[T]) -> Result<Vec<T>> {
        self.check(Record::new(Operation::AllGather).of::<T>().count(mine.len()), Ok(()))?;
        self.all_gather_blocks(mine)
    }

    /// Gives every rank the slices of all ranks, of any lengths. Collective.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn all_gather_v<T: Pod>(&self, mine: &[T]) -> Result<Parts<T>> {
        self.check(Record::new(Operation::AllGatherV).of::<T>(), Ok(()))?;
        let counts = self.all_gather_blocks(&[mine.len() as u64])?;
        let sizes = counts.iter().map(|&count| self.bytes::<T>(count)).collect::<Result<Vec<_>>>()?;
        let bytes = self.all_gather_bytes(to_bytes(mine), &sizes)?;
        Ok(Parts::new(from_bytes(counts.iter().sum::<u64>() as usize, &bytes), counts))
    }

    /// Gives `root` the slices of all ranks, in rank order, and the others `None`. Collective; the length is the same on
    /// all ranks.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn gather<T: Pod>(&self, root: usize, mine: &[T]) -> Result<Option<Vec<T>>> {
        let record = Record::new(Operation::Gather).root(root).of::<T>().count(mine.len());
        self.check(record, self.valid_rank("the root of gather", root))?;
        if self.rank() != root {
            self.give(root, to_bytes(mine))?.wait()?;
            return Ok(None);
        }
        let takes = self.take_from_all(&vec![size_of_val(mine); self.size()])?;
        let mut data = Vec::with_capacity(mine.len() * self.size());
        for receiving in takes {
            match receiving {
                Some(receiving) => data.extend(from_bytes::<T>(mine.len(), &receiving.wait()?)),
                None => data.extend_from_slice(mine),
            }
        }
        Ok(Some(data))
    }

    /// Gives `root` the slices of all ranks, of any lengths, and the others `None`. Collective.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn gather_v<T: Pod>(&self, root: usize, mine: &[T]) -> Result<Option<Parts<T>>> {
        let record = Record::new(Operation::GatherV).root(root).of::<T>();
        self.check(record, self.valid_rank("the root of gather_v", root))?;
        if self.rank() != root {
            let count = self.give(root, to_bytes(&[mine.len() as u64]))?;
            self.give(root, to_bytes(mine))?.wait()?;
            count.wait()?;
            return Ok(None);
        }
        let mut counts = Vec::with_capacity(self.size());
        for receiving in self.take_from_all(&vec![size_of::<u64>(); self.size()])? {
            counts.push(match receiving {
                Some(receiving) => from_bytes::<u64>(1, &receiving.wait()?)[0],
                None => mine.len() as u64,
            });
        }
        let sizes = counts.iter().map(|&count| self.bytes::<T>(count)).collect::<Result<Vec<_>>>()?;
        let mut data = Vec::new();
        for (receiving, &count) in self.take_from_all(&sizes)?.into_iter().zip(&counts) {
            match receiving {
                Some(receiving) => data.extend(from_bytes::<T>(count as usize, &receiving.wait()?)),
                None => data.extend_from_slice(mine),
            }
        }
        Ok(Some(Parts::new(data, counts)))
    }

    /// Starts a receive from every other rank.
    fn take_from_all(&self, sizes: &[usize]) -> Result<Vec<Option<super::Receiving>>> {
        let take = |(from, &bytes)| if from == self.rank() { Ok(None) } else { self.take(from, bytes).map(Some) };
        sizes.iter().enumerate().map(take).collect()
    }

    /// `all_gather` without the check.
    pub(super) fn all_gather_blocks<T: Pod>(&self, mine: &[T]) -> Result<Vec<T>> {
        let bytes = self.all_gather_bytes(to_bytes(mine), &vec![size_of_val(mine); self.size()])?;
        Ok(from_bytes(mine.len() * self.size(), &bytes))
    }

    /// Each round doubles the blocks held, so there are log2(size) rounds and no byte comes twice. `sizes` are the bytes
    /// of the block of each rank.
    fn all_gather_bytes(&self, mine: Vec<u8>, sizes: &[usize]) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank(), self.size());
        let bytes_of =
            |first: usize, blocks: usize| (first..first + blocks).map(|block| sizes[block % size]).sum::<usize>();
        let mut held = mine; // the blocks of the ranks from `rank` on, round the end
        let mut blocks = 1;
        while blocks < size {
            let moved = blocks.min(size - blocks);
            let (to, from) = ((rank + size - blocks) % size, (rank + blocks) % size);
            let receiving = self.take(from, bytes_of(from, moved))?;
            let sending = self.give(to, held[..bytes_of(rank, moved)].to_vec())?;
            held.extend(receiving.wait()?);
            sending.wait()?;
            blocks += moved;
        }
        held.rotate_left(bytes_of(rank, size - rank));
        Ok(held)
    }
}
