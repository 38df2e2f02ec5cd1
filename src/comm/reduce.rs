//! Reductions and scans.
//!
//! Elements are combined along a fixed tree over the rank order (0 with 1, 2 with 3, then pairs of
//! pairs), never in the order in which they arrive: for a given number of ranks the result is the
//! same to the last bit. Integers have the same bits in any order: their short blocks are combined
//! on the way ([`Halving`]).

use super::Result;
use super::call::{Call, Operation};
use super::communicator::{Communicator, from_bytes, received};
use super::gather::SHORT_BLOCK;
use super::halving::Halving;
use super::meet::LONG;
use super::op::{Op, Reducible, combine};
use crate::host_memory;

/// Bytes of the longest block that a rank reduces at a time: longer ones are not faster, and leave
/// the caches.
const MOST_BLOCK: usize = 1 << 19;

impl Communicator {
    /// Returns the reductions of a few numbers over all ranks; otherwise same as
    /// [`all_reduce`](Self::all_reduce).
    pub(crate) fn reduced<T: Reducible, const N: usize>(&self, mut numbers: [T; N], op: Op) -> Result<[T; N]> {
        self.all_reduce(&mut numbers, op)?;
        Ok(numbers)
    }

    /// Replaces each element by its reduction over all ranks. Collective; the length is equal on
    /// all ranks.
    ///
    /// A short slice moves as a whole, about 2 log2(size) times on the busiest rank; of a long one
    /// each rank reduces a part, and everything is moved twice, with memory for at most 512 KiB of
    /// each rank. The result has the same bits everywhere, and those of
    /// [`reduce_scatter`](Communicator::reduce_scatter).
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn all_reduce<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let call = self.begin(Call::new(Operation::AllReduce).reducing(op, T::KIND).of::<T>().count(data.len()));
        let (rank, size) = (self.rank(), self.size());
        if size_of_val(data) >= LONG && size > 1 {
            return self.all_reduce_in_parts(&call, data, op);
        }
        let mut distance = 1;
        while distance < size {
            if rank & distance != 0 {
                self.send_part(&call, rank - distance, data)?.wait()?;
                break;
            }
            if rank + distance < size {
                let bytes = self.receive_part(&call, rank + distance, size_of_val(data))?.wait()?;
                combine(data, &from_bytes(data.len(), &bytes)?, op);
            }
            distance *= 2;
        }
        self.broadcast_tree(&call, 0, data)
    }

    /// Cuts `data` into one equal block per rank and returns this rank's block, reduced over all
    /// ranks. Collective; the length is equal on all ranks and a multiple of their number.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or errors of the backend.
    pub fn reduce_scatter<T: Reducible>(&self, data: &[T], op: Op) -> Result<Vec<T>> {
        let block =
            self.valid_blocks("the length of the slice of reduce_scatter (a multiple of the ranks)", data.len())?;
        let call = self.begin(Call::new(Operation::ReduceScatter).reducing(op, T::KIND).of::<T>().count(data.len()));
        if block == 0 {
            return self.meet(&call).map(|()| Vec::new());
        }
        let mut blocks = received(data.len())?;
        let reduced = self.reduce_blocks(&call, data, &mut blocks, op)?;
        Ok(host_memory::copy("data from other ranks", reduced)?)
    }

    /// Each rank reduces a block and gives it to all. Long data go part by part: blocks that wait
    /// to be combined stay in caches.
    fn all_reduce_in_parts<T: Reducible>(&self, call: &Call, data: &mut [T], op: Op) -> Result<()> {
        let part = MOST_BLOCK / size_of::<T>() * self.size();
        let mut blocks = received(data.len().min(part).next_multiple_of(self.size()))?;
        for data in data.chunks_mut(part) {
            let length = data.len().next_multiple_of(self.size());
            let blocks = &mut blocks[..length];
            if data.len() == length {
                let mine = self.reduce_blocks(call, data, blocks, op)?;
                self.all_gather_blocks(call, mine, data)?;
            } else {
                let mut padded = data.to_vec();
                padded.resize(length, T::identity(op));
                let mine = self.reduce_blocks(call, &padded, blocks, op)?;
                self.all_gather_blocks(call, mine, &mut padded)?;
                data.copy_from_slice(&padded[..data.len()]);
            }
        }
        Ok(())
    }

    /// Returns this rank's block of `data`, reduced over all ranks, in `blocks`, which has its
    /// length: a multiple of the ranks.
    fn reduce_blocks<'a, T: Reducible>(&self, call: &Call, data: &[T], blocks: &'a mut [T], op: Op) -> Result<&'a [T]> {
        let block = data.len() / self.size();
        if T::HAS_ANY_ORDER && block * size_of::<T>() <= SHORT_BLOCK {
            blocks.copy_from_slice(data);
            let own = Halving::new(self.rank(), self.size()).reduce(self, call, blocks, op)?;
            return Ok(&blocks[own]);
        }
        self.all_to_all_blocks(call, block, data, blocks)?;
        // The tree of `all_reduce`, on one rank.
        let mut distance = block;
        while distance < blocks.len() {
            for lower in (0..blocks.len() - distance).step_by(2 * distance) {
                let (head, tail) = blocks.split_at_mut(lower + distance);
                combine(&mut head[lower..lower + block], &tail[..block], op);
            }
            distance *= 2;
        }
        Ok(&blocks[..block])
    }

    /// Replaces each element by its reduction over the ranks up to and including this one.
    /// Collective; the length is equal on all ranks. Sums of floats combine in another order than
    /// [`all_reduce`](Communicator::all_reduce).
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn scan<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let call = self.begin(Call::new(Operation::Scan).reducing(op, T::KIND).of::<T>().count(data.len()));
        self.scan_tree(&call, data, op).map(drop)
    }

    /// Replaces each element by its reduction over the ranks before this one; on rank 0 by the
    /// identity of the operation: zero, or the largest or smallest number of the type (an infinity
    /// for floats). Collective; the length is equal on all ranks.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn scan_exclusive<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let call = self.begin(Call::new(Operation::ScanExclusive).reducing(op, T::KIND).of::<T>().count(data.len()));
        let before = self.scan_tree(&call, data, op)?;
        match before {
            Some(before) => data.copy_from_slice(&before),
            None => data.fill(T::identity(op)),
        }
        Ok(())
    }

    /// Computes an inclusive scan in rounds of doubled distance (Hillis and Steele); returns the
    /// reduction over the ranks before this one, if there are any.
    fn scan_tree<T: Reducible>(&self, call: &Call, data: &mut [T], op: Op) -> Result<Option<Vec<T>>> {
        let (rank, size) = (self.rank(), self.size());
        let mut before: Option<Vec<T>> = None;
        let mut distance = 1;
        while distance < size {
            let sending = match rank + distance {
                to if to < size => Some(self.send_part(call, to, data)?),
                _ => None,
            };
            if rank >= distance {
                let bytes = self.receive_part(call, rank - distance, size_of_val(data))?.wait()?;
                let mut lower: Vec<T> = from_bytes(data.len(), &bytes)?;
                let mut all = host_memory::copy("data from other ranks", &lower)?;
                combine(&mut all, data, op);
                data.copy_from_slice(&all);
                if let Some(before) = before {
                    combine(&mut lower, &before, op);
                }
                before = Some(lower);
            }
            if let Some(sending) = sending {
                sending.wait()?;
            }
            distance *= 2;
        }
        Ok(before)
    }
}
