//! Messages from every rank to every rank.

use std::iter;

use bytemuck::Pod;

use super::{Call, Communicator, GatheredParts, Operation, Result, SHORT_BLOCK, from_bytes, received};

impl Communicator {
    /// Cuts `data` into one equal block per rank, sends each to its rank and returns the blocks
    /// received, in rank order. Collective; the length is equal on all ranks and a multiple of
    /// their number.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or errors of the backend.
    pub fn all_to_all<T: Pod>(&self, data: &[T]) -> Result<Vec<T>> {
        let block = self.valid_blocks("the length of the slice of all_to_all (a multiple of the ranks)", data.len())?;
        let call = self.begin(Call::new(Operation::AllToAll).of::<T>().count(data.len()));
        let mut all = received(data.len())?;
        self.all_to_all_blocks(&call, block, data, &mut all).map(|()| all)
    }

    /// [`all_to_all`](Communicator::all_to_all) into `all`, which has the length of `data`: in a
    /// loop it spares new memory, whose pages cost more than long messages. Ranks may mix the two.
    /// After an error it holds anything.
    ///
    /// # Errors
    /// Same as [`all_to_all`](Communicator::all_to_all).
    pub fn all_to_all_into<T: Pod>(&self, data: &[T], all: &mut [T]) -> Result<()> {
        let block =
            self.valid_blocks("the length of the slice of all_to_all_into (a multiple of the ranks)", data.len())?;
        self.valid_length("the result of all_to_all_into", data.len() as u64, all.len() as u64)?;
        let call = self.begin(Call::new(Operation::AllToAll).of::<T>().count(data.len()));
        self.all_to_all_blocks(&call, block, data, all)
    }

    /// Sends `counts[rank]` elements of `data`, which lie in rank order, to each rank and returns
    /// what each has sent. Collective; any counts, which sum to the length of `data`.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or errors of the backend.
    pub fn all_to_all_v<T: Pod>(&self, data: &[T], counts: &[u64]) -> Result<GatheredParts<T>> {
        self.valid_counts("all_to_all_v", data.len(), counts)?;
        let call = self.begin(Call::new(Operation::AllToAllV).of::<T>());
        let mut incoming = vec![0; self.size()];
        self.all_to_all_blocks(&call, 1, counts, &mut incoming)?;
        let count = incoming.iter().fold(0, |sum: u64, &count| sum.saturating_add(count));
        self.bytes::<T>(count)?;
        let lengths = |counts: &[u64]| counts.iter().map(|&count| count as usize).collect::<Vec<_>>();
        let mut all = received(count as usize)?;
        self.exchange(&call, &lengths(counts), data, &lengths(&incoming), &mut all)?;
        Ok(GatheredParts::new(all, incoming))
    }

    /// `all_to_all` as part of any collective, into `all`, which has the length of `data`.
    pub(super) fn all_to_all_blocks<T: Pod>(&self, call: &Call, block: usize, data: &[T], all: &mut [T]) -> Result<()> {
        let bytes = block * size_of::<T>();
        if bytes == 0 {
            return self.meet(call);
        }
        if bytes <= SHORT_BLOCK {
            return self.all_to_all_in_rounds(call, block, data, all);
        }
        if let Some(native) = self.native(size_of_val(data)) {
            self.meet(call)?;
            return native.all_to_all(bytemuck::cast_slice(data), bytemuck::cast_slice_mut(all));
        }
        let counts = vec![block; self.size()];
        self.exchange(call, &counts, data, &counts, all)
    }

    /// Short blocks travel in log2(size) rounds (the algorithm of Bruck et al.): a block for the
    /// rank at distance `d` travels in the rounds of the bits of `d`, together with all others that
    /// have this bit. Each byte is sent log2(size) / 2 times.
    fn all_to_all_in_rounds<T: Pod>(&self, call: &Call, block: usize, data: &[T], all: &mut [T]) -> Result<()> {
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
            let came: Vec<T> = from_bytes(part.len(), &receiving.wait()?)?;
            sending.wait()?;
            for (d, came) in moved.iter().zip(came.chunks_exact(block)) {
                held[d * block..(d + 1) * block].copy_from_slice(came);
            }
            distance *= 2;
        }
        // What has come `d` ranks far is from the rank `d` before this one.
        for (source, all) in all.chunks_exact_mut(block).enumerate() {
            let distance = (rank + size - source) % size;
            all.copy_from_slice(&held[distance * block..][..block]);
        }
        Ok(())
    }

    /// Sends `outgoing[rank]` elements of `data` to each rank and writes the `incoming[rank]`
    /// elements of each to `all`. No message goes where there are none.
    fn exchange<T: Pod>(
        &self,
        call: &Call,
        outgoing: &[usize],
        data: &[T],
        incoming: &[usize],
        all: &mut [T],
    ) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let (starts, places) = (starts(outgoing), starts(incoming));
        let block = |to: usize| &data[starts[to]..starts[to] + outgoing[to]];

        // Ring order: in each step every rank sends to another one. All receives are posted before
        // the first send.
        let mut receivings = Vec::with_capacity(size);
        for step in 1..size {
            let from = (rank + size - step) % size;
            receivings.push(self.receive_some(call, from, incoming[from] * size_of::<T>())?);
        }
        let mut sendings = Vec::with_capacity(size);
        for to in (1..size).map(|step| (rank + step) % size).filter(|&to| !block(to).is_empty()) {
            sendings.push(self.send_part(call, to, block(to))?);
        }
        let place = |from: usize| places[from]..places[from] + incoming[from];
        all[place(rank)].copy_from_slice(block(rank));
        for (step, receiving) in (1..).zip(receivings) {
            if let Some(receiving) = receiving {
                let all = &mut all[place((rank + size - step) % size)];
                bytemuck::cast_slice_mut(all).copy_from_slice(&receiving.wait()?);
            }
        }
        sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))
    }

    /// Checks that there is one count per rank and that they sum to `length`.
    pub(super) fn valid_counts(&self, call: &str, length: usize, counts: &[u64]) -> Result<()> {
        self.valid_length(&format!("the number of counts of {call}"), self.size() as u64, counts.len() as u64)?;
        let sum = counts.iter().try_fold(0u64, |sum, &count| sum.checked_add(count)).unwrap_or(u64::MAX);
        self.valid_length(&format!("the sum of the counts of {call}"), length as u64, sum)
    }
}

/// Returns where each block begins if they lie one after another.
fn starts(counts: &[usize]) -> Vec<usize> {
    let sums = counts.iter().scan(0, |sum, &count| {
        *sum += count;
        Some(*sum)
    });
    iter::once(0).chain(sums).take(counts.len()).collect()
}
