//! Reductions and scans.
//!
//! Elements are combined along a fixed tree over the rank order (0 with 1, 2 with 3, then pairs of
//! pairs), never in the order in which they arrive: for a given number of ranks the result is the
//! same to the last bit. Integers have the same bits in any order: their short blocks are combined
//! on the way ([`reduce_by_halving`](Communicator::reduce_by_halving)).
//!
//! The method is recursive halving (Thakur, Rabenseifner and Gropp 2005, section 4.3). In each
//! round a rank gives one half of the blocks that it holds to a partner, and combines the other
//! half with what the partner gives. Of P ranks the Q that are a power of two take part; the
//! others, each the second rank of a pair, give all to the first rank of the pair before and get
//! their block afterwards. A rank sends log2 Q + 1 messages at most, and less than its own data
//! twice: once where P is a power of two.

use std::ops::Range;

use super::collective::LONG;
use super::op::combine;
use super::{Call, Communicator, Op, Operation, Reducible, Result, SHORT_BLOCK, from_bytes, received};
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
            let own = self.reduce_by_halving(call, blocks, op)?;
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

    /// Reduces `data`, which consists of one equal block for each rank, over all ranks by recursive
    /// halving; returns where this rank's block is. The values of the other blocks are undefined
    /// afterwards.
    fn reduce_by_halving<T: Reducible>(&self, call: &Call, data: &mut [T], op: Op) -> Result<Range<usize>> {
        let (rank, size) = (self.rank(), self.size());
        let active = 1 << size.ilog2(); // ranks that take part
        let pairs = size - active; // pairs of ranks, which are the first ranks
        let rank_of = |number: usize| number + number.min(pairs);
        let block = data.len() / size;
        let of_ranks = |ranks: Range<usize>| ranks.start * block..ranks.end * block;
        let is_paired = rank < 2 * pairs;
        let own = of_ranks(rank..rank + 1);
        let receive = |from: usize, length: usize| -> Result<Vec<T>> {
            from_bytes(length, &self.receive_part(call, from, length * size_of::<T>())?.wait()?)
        };
        if is_paired && rank % 2 == 1 {
            self.send_part(call, rank - 1, data)?.wait()?;
            data[own.clone()].copy_from_slice(&receive(rank - 1, block)?);
            return Ok(own);
        }
        if is_paired {
            combine(data, &receive(rank + 1, data.len())?, op);
        }
        let number = if is_paired { rank / 2 } else { rank - pairs };
        let mut held = 0..active;
        while held.len() > 1 {
            let half = held.len() / 2;
            let (lower, upper) = (held.start..held.start + half, held.start + half..held.end);
            let (kept, given) = if lower.contains(&number) { (lower, upper) } else { (upper, lower) };
            let of_active = |active: &Range<usize>| of_ranks(rank_of(active.start)..rank_of(active.end));
            let partner = rank_of(number ^ half);
            let sending = self.send_part(call, partner, &data[of_active(&given)])?;
            let kept_data = &mut data[of_active(&kept)];
            combine(kept_data, &receive(partner, kept_data.len())?, op);
            sending.wait()?;
            held = kept;
        }
        if is_paired {
            self.send_part(call, rank + 1, &data[of_ranks(rank + 1..rank + 2)])?.wait()?;
        }
        Ok(own)
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

#[cfg(test)]
mod tests {
    use super::super::call::HEADER_BYTES;
    use crate::comm::{CommError, Op, run_threads, sent};

    #[test]
    fn integers_of_any_number_of_ranks_are_reduced_with_few_messages() {
        for ranks in [1, 2, 3, 5, 6, 7, 8, 13, 64, 67] {
            // The rank's own data, and the result by a loop over all ranks.
            let value = |rank: usize, i: usize| crate::hash::fnv1a(rank as u64, &[i as u8, (i >> 8) as u8]);
            let block = 3;
            let found = run_threads(ranks, |comm| {
                let data: Vec<u64> = (0..block * ranks).map(|i| value(comm.rank(), i)).collect();
                let signed: Vec<i64> = data.iter().map(|&n| n.cast_signed()).collect();
                comm.barrier()?;
                let before = sent();
                let sums = comm.reduce_scatter(&data, Op::Sum)?;
                let after = sent();
                let least = comm.reduce_scatter(&signed, Op::Min)?;
                Ok::<_, CommError>((sums, least, [after[0] - before[0], after[1] - before[1]]))
            });
            let rounds = u64::from(ranks.ilog2());
            for (rank, (sums, least, [messages, bytes])) in found.unwrap().into_iter().enumerate() {
                for i in 0..block {
                    let of_ranks = || (0..ranks).map(|from| value(from, rank * block + i));
                    assert_eq!(sums[i], of_ranks().fold(0, u64::wrapping_add), "{ranks} ranks");
                    assert_eq!(Some(least[i]), of_ranks().map(u64::cast_signed).min(), "{ranks} ranks");
                }
                let headers = messages * HEADER_BYTES as u64;
                assert!(messages <= rounds + 1, "{messages} messages of {ranks} ranks");
                assert!(bytes - headers <= 2 * (8 * block * ranks) as u64, "{bytes} bytes of {ranks} ranks");
            }
        }
    }
}
