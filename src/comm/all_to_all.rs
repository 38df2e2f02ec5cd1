//! Messages from every rank to every rank.

use bytemuck::Pod;

use super::call::{Call, Operation};
use super::collective::{Part, ReceivingPart};
use super::communicator::{Communicator, from_bytes};
use super::gather::SHORT_BLOCK;
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
        self.all_to_all_blocks(&call, block, data)
    }

    /// Sends `counts[rank]` elements of `data`, which lie in rank order, to each rank and returns what each has sent.
    /// Collective; any counts, which sum to the length of `data`.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn all_to_all_v<T: Pod>(&self, data: &[T], counts: &[u64]) -> Result<Parts<T>> {
        self.valid_counts("all_to_all_v", data.len(), counts)?;
        let call = self.begin(Call::new(Operation::AllToAllV).of::<T>());
        let incoming = self.all_to_all_blocks(&call, 1, counts)?;
        for &count in &incoming {
            self.bytes::<T>(count)?;
        }
        let lengths = |counts: &[u64]| counts.iter().map(|&count| count as usize).collect::<Vec<_>>();
        let blocks = self.exchange(&call, &lengths(counts), data, &lengths(&incoming))?;
        Ok(Parts::new(join(incoming.iter().sum::<u64>() as usize, &blocks), incoming))
    }

    /// `all_to_all` as part of any collective.
    pub(super) fn all_to_all_blocks<T: Pod>(&self, call: &Call, block: usize, data: &[T]) -> Result<Vec<T>> {
        let bytes = block * size_of::<T>();
        if bytes == 0 {
            return self.meet(call).map(|()| data.to_vec());
        }
        if bytes <= SHORT_BLOCK {
            return self.all_to_all_in_rounds(call, block, data);
        }
        if let Some(native) = self.native(size_of_val(data)) {
            self.meet(call)?;
            let mut all = vec![T::zeroed(); data.len()];
            return native.all_to_all(bytemuck::cast_slice(data), bytemuck::cast_slice_mut(&mut all)).map(|()| all);
        }
        let counts = vec![block; self.size()];
        Ok(join(data.len(), &self.exchange(call, &counts, data, &counts)?))
    }

    /// Short blocks travel in log2(size) rounds (the algorithm of Bruck et al.): a block for the rank at distance `d` travels in the
    /// rounds of the bits of `d`, together with all others that have this bit. Each byte is sent log2(size) / 2 times.
    fn all_to_all_in_rounds<T: Pod>(&self, call: &Call, block: usize, data: &[T]) -> Result<Vec<T>> {
        let (rank, size) = (self.rank(), self.size());
        // Blocks by the distance that they have to go.
        let mut held = data.to_vec();
        held.rotate_left(rank * block);
        let mut distance = 1;
        while distance < size {
            let moved: Vec<usize> = (0..size).filter(|d| d & distance != 0).collect();
            let part: Vec<T> = moved.iter().flat_map(|d| &held[d * block..(d + 1) * block]).copied().collect();
            let receiving = self.receive_part(call, (rank + size - distance) % size, size_of_val(&part[..]))?;
            let sending = self.send_part(call, (rank + distance) % size, &part)?;
            let came: Vec<T> = from_bytes(part.len(), &receiving.wait()?);
            sending.wait()?;
            for (d, came) in moved.iter().zip(came.chunks_exact(block)) {
                held[d * block..(d + 1) * block].copy_from_slice(came);
            }
            distance *= 2;
        }
        // What has come `d` ranks far is from the rank `d` before this one.
        let from = |source: usize| (rank + size - source) % size;
        Ok((0..size).flat_map(|source| &held[from(source) * block..][..block]).copied().collect())
    }

    /// Sends `outgoing[rank]` elements of `data` to each rank; returns the bytes of the `incoming[rank]` elements of each. No message
    /// goes where there are none.
    fn exchange<T: Pod>(&self, call: &Call, outgoing: &[usize], data: &[T], incoming: &[usize]) -> Result<Vec<Part>> {
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
            receivings.push(self.receive_some(call, from, incoming[from] * size_of::<T>())?);
        }
        let mut sendings = Vec::with_capacity(size);
        for to in (1..size).map(|step| (rank + step) % size).filter(|&to| !block(to).is_empty()) {
            sendings.push(self.send_part(call, to, block(to))?);
        }
        // In the order of the ranks counted down from this one, round to the rank after it.
        let mut blocks = vec![Part::own(block(rank))];
        for receiving in receivings {
            blocks.push(receiving.map_or_else(|| Ok(Part::own::<T>(&[])), ReceivingPart::wait)?);
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
