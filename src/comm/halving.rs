//! Reduction of blocks by recursive halving (Thakur, Rabenseifner and Gropp 2005, section 4.3).
//!
//! In each round a rank gives one half of the blocks that it holds to a partner, and combines the
//! other half with what the partner gives. Of P ranks the Q that are a power of two take part; the
//! others, each the second rank of a pair, give all to the first rank of the pair before and get
//! their block afterwards. A rank sends log2 Q + 1 messages at most, and less than its own data
//! twice: once where P is a power of two.

use std::ops::Range;

use super::Result;
use super::call::Call;
use super::communicator::{Communicator, from_bytes};
use super::op::{Op, Reducible, combine};

/// The place of a rank among those that halve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halving {
    rank: usize,
    size: usize,
    /// The greatest power of two that is at most the number of ranks.
    active: usize,
}

impl Halving {
    pub fn new(rank: usize, size: usize) -> Halving {
        Halving { rank, size, active: 1 << size.ilog2() }
    }

    /// Returns the number of pairs, which are the first ranks.
    fn pairs(&self) -> usize {
        self.size - self.active
    }

    /// Returns the rank of number `active` of those that take part: the first rank of its blocks.
    fn rank_of(&self, active: usize) -> usize {
        active + active.min(self.pairs())
    }

    /// Reduces `data`, which consists of one equal block for each rank, over all ranks; returns
    /// where this rank's block is. The values of the other blocks are undefined afterwards.
    pub fn reduce<T: Reducible>(
        &self,
        comm: &Communicator,
        call: &Call,
        data: &mut [T],
        op: Op,
    ) -> Result<Range<usize>> {
        let block = data.len() / self.size;
        let of_ranks = |ranks: Range<usize>| ranks.start * block..ranks.end * block;
        let (rank, is_paired) = (self.rank, self.rank < 2 * self.pairs());
        let own = of_ranks(rank..rank + 1);
        let receive = |from: usize, length: usize| -> Result<Vec<T>> {
            from_bytes(length, &comm.receive_part(call, from, length * size_of::<T>())?.wait()?)
        };
        if is_paired && rank % 2 == 1 {
            comm.send_part(call, rank - 1, data)?.wait()?;
            data[own.clone()].copy_from_slice(&receive(rank - 1, block)?);
            return Ok(own);
        }
        if is_paired {
            combine(data, &receive(rank + 1, data.len())?, op);
        }
        let number = if is_paired { rank / 2 } else { rank - self.pairs() };
        let mut held = 0..self.active;
        while held.len() > 1 {
            let half = held.len() / 2;
            let (lower, upper) = (held.start..held.start + half, held.start + half..held.end);
            let (kept, given) = if lower.contains(&number) { (lower, upper) } else { (upper, lower) };
            let of_active = |active: &Range<usize>| of_ranks(self.rank_of(active.start)..self.rank_of(active.end));
            let partner = self.rank_of(number ^ half);
            let sending = comm.send_part(call, partner, &data[of_active(&given)])?;
            let kept_data = &mut data[of_active(&kept)];
            combine(kept_data, &receive(partner, kept_data.len())?, op);
            sending.wait()?;
            held = kept;
        }
        if is_paired {
            comm.send_part(call, rank + 1, &data[of_ranks(rank + 1..rank + 2)])?.wait()?;
        }
        Ok(own)
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
