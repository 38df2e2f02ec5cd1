//! Messages from every rank to every rank.

use bytemuck::Pod;

use super::call::{Call, Operation};
use super::collective::Part;
use super::communicator::{Communicator, from_bytes};
use super::{Parts, Result};

impl Communicator {
    /// Cuts `data` into one equal block per rank, sends each to its rank and returns the blocks received, in rank order.
    /// Collective; the length is the same on all ranks and a multiple of their number.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn all_to_all<T: Pod>(&self, data: &[T]) -> Result<Vec<T>> {
        let block = self.valid_blocks("the length of the slice of all_to_all (a multiple of the ranks)", data.len())?;
        let call = self.begin(Call::new(Operation::AllToAll).of::<T>().count(data.len()));
        let counts = vec![block; self.size()];
        let blocks = self.exchange(&call, &counts, data, &counts)?;
        Ok(join(data.len(), &blocks))
    }

    /// Sends `counts[rank]` elements of `data`, which lie in rank order, to each rank and returns what each has sent.
    /// Collective; any counts, which sum to the length of `data`.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn all_to_all_v<T: Pod>(&self, data: &[T], counts: &[u64]) -> Result<Parts<T>> {
        self.valid_counts("all_to_all_v", data.len(), counts)?;
        let call = self.begin(Call::new(Operation::AllToAllV).of::<T>());
        let ones = vec![1; self.size()];
        let incoming = self.exchange(&call, &ones, counts, &ones)?;
        let incoming: Vec<u64> = join(self.size(), &incoming);
        for &count in &incoming {
            self.bytes::<T>(count)?;
        }
        let lengths = |counts: &[u64]| counts.iter().map(|&count| count as usize).collect::<Vec<_>>();
        let blocks = self.exchange(&call, &lengths(counts), data, &lengths(&incoming))?;
        Ok(Parts::new(join(incoming.iter().sum::<u64>() as usize, &blocks), incoming))
    }

    /// Sends `outgoing[rank]` elements of `data` to each rank; returns the bytes of the `incoming[rank]` elements of each.
    pub(super) fn exchange<T: Pod>(
        &self,
        call: &Call,
        outgoing: &[usize],
        data: &[T],
        incoming: &[usize],
    ) -> Result<Vec<Part>> {
        let (rank, size) = (self.rank(), self.size());
        let starts: Vec<usize> = outgoing
            .iter()
            .scan(0, |next, &count| {
                let start = *next;
                *next += count;
                Some(start)
            })
            .collect();
        let block = |to: usize| &data[starts[to]..starts[to] + outgoing[to]];

        // Ring order: in each step every rank sends to another one. All receives are posted before the first send.
        let mut receivings = Vec::with_capacity(size);
        for step in 1..size {
            let from = (rank + size - step) % size;
            receivings.push(self.receive_part(call, from, incoming[from] * size_of::<T>())?);
        }
        let mut sendings = Vec::with_capacity(size);
        for step in 1..size {
            let to = (rank + step) % size;
            sendings.push(self.send_part(call, to, block(to))?);
        }
        // In the order of the ranks counted down from this one, round to the rank after it.
        let mut blocks = vec![Part::own(block(rank))];
        for receiving in receivings {
            blocks.push(receiving.wait()?);
        }
        blocks.reverse();
        blocks.rotate_right(rank + 1);
        sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))?;
        Ok(blocks)
    }

    /// Checks that there is one count per rank and that they sum to `length`.
    pub(super) fn valid_counts(&self, call: &str, length: usize, counts: &[u64]) -> Result<()> {
        self.valid_length(&format!("the number of counts of {call}"), self.size() as u64, counts.len() as u64)?;
        let sum = counts.iter().try_fold(0u64, |sum, &count| sum.checked_add(count)).unwrap_or(u64::MAX);
        self.valid_length(&format!("the sum of the counts of {call}"), length as u64, sum)
    }
}

/// The elements of all blocks, in order.
fn join<T: Pod>(count: usize, blocks: &[Part]) -> Vec<T> {
    let bytes: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
    from_bytes(count, &bytes.concat())
}
