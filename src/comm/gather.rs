//! Gathering blocks of all ranks on one or on all.

use bytemuck::Pod;

use super::Result;
use super::call::{Call, Operation};
use super::collective::ReceivingPart;
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

    /// The part of a rank; `None` beyond the last rank.
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
        let call = self.begin(Call::new(Operation::AllGather).of::<T>().count(mine.len()));
        self.all_gather_blocks(&call, mine)
    }

    /// Gives every rank the slices of all ranks, of any lengths. Collective.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn all_gather_v<T: Pod>(&self, mine: &[T]) -> Result<Parts<T>> {
        let call = self.begin(Call::new(Operation::AllGatherV).of::<T>());
        let counts = self.all_gather_blocks(&call, &[mine.len() as u64])?;
        let sizes = counts.iter().map(|&count| self.bytes::<T>(count)).collect::<Result<Vec<_>>>()?;
        let bytes = self.all_gather_bytes(&call, mine, &sizes)?;
        Ok(Parts::new(from_bytes(counts.iter().sum::<u64>() as usize, &bytes), counts))
    }

    /// Gives `root` the slices of all ranks, in rank order, and the others `None`. Collective; the length is the same on
    /// all ranks.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn gather<T: Pod>(&self, root: usize, mine: &[T]) -> Result<Option<Vec<T>>> {
        self.valid_rank("the root of gather", root)?;
        let call = self.begin(Call::new(Operation::Gather).root(root).of::<T>().count(mine.len()));
        if self.rank() != root {
            self.send_part(&call, root, mine)?.wait()?;
            return Ok(None);
        }
        let receivings = self.receive_from_all(&call, &vec![size_of_val(mine); self.size()])?;
        let mut data = Vec::with_capacity(mine.len() * self.size());
        for receiving in receivings {
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
        self.valid_rank("the root of gather_v", root)?;
        let call = self.begin(Call::new(Operation::GatherV).root(root).of::<T>());
        if self.rank() != root {
            let count = self.send_part(&call, root, &[mine.len() as u64])?;
            self.send_part(&call, root, mine)?.wait()?;
            count.wait()?;
            return Ok(None);
        }
        let mut counts = Vec::with_capacity(self.size());
        for receiving in self.receive_from_all(&call, &vec![size_of::<u64>(); self.size()])? {
            counts.push(match receiving {
                Some(receiving) => from_bytes::<u64>(1, &receiving.wait()?)[0],
                None => mine.len() as u64,
            });
        }
        let sizes = counts.iter().map(|&count| self.bytes::<T>(count)).collect::<Result<Vec<_>>>()?;
        let mut data = Vec::new();
        for (receiving, &count) in self.receive_from_all(&call, &sizes)?.into_iter().zip(&counts) {
            match receiving {
                Some(receiving) => data.extend(from_bytes::<T>(count as usize, &receiving.wait()?)),
                None => data.extend_from_slice(mine),
            }
        }
        Ok(Some(Parts::new(data, counts)))
    }

    /// Starts a receive from every other rank.
    fn receive_from_all(&self, call: &Call, sizes: &[usize]) -> Result<Vec<Option<ReceivingPart>>> {
        let receive = |(from, &bytes)| {
            if from == self.rank() { Ok(None) } else { self.receive_part(call, from, bytes).map(Some) }
        };
        sizes.iter().enumerate().map(receive).collect()
    }

    /// `all_gather` as part of any collective.
    pub(super) fn all_gather_blocks<T: Pod>(&self, call: &Call, mine: &[T]) -> Result<Vec<T>> {
        let bytes = self.all_gather_bytes(call, mine, &vec![size_of_val(mine); self.size()])?;
        Ok(from_bytes(mine.len() * self.size(), &bytes))
    }

    /// Each round doubles the blocks held (the algorithm of Bruck et al.): log2(size) rounds, and no byte is received twice.
    /// `sizes` are the bytes of the block of each rank.
    fn all_gather_bytes<T: Pod>(&self, call: &Call, mine: &[T], sizes: &[usize]) -> Result<Vec<u8>> {
        let (rank, size) = (self.rank(), self.size());
        let bytes_of =
            |first: usize, blocks: usize| (first..first + blocks).map(|block| sizes[block % size]).sum::<usize>();
        let mut held = to_bytes(mine); // the blocks of the ranks from `rank` on, cyclically
        let mut blocks = 1;
        while blocks < size {
            let moved = blocks.min(size - blocks);
            let (to, from) = ((rank + size - blocks) % size, (rank + blocks) % size);
            let receiving = self.receive_part(call, from, bytes_of(from, moved))?;
            let sending = self.send_part(call, to, &held[..bytes_of(rank, moved)])?;
            held.extend_from_slice(&receiving.wait()?);
            sending.wait()?;
            blocks += moved;
        }
        held.rotate_left(bytes_of(rank, size - rank));
        Ok(held)
    }
}
