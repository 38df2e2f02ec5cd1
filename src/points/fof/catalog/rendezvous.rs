//! Combining what several ranks know of a label at one rank, which a hash of the label decides
//! (rendezvous hashing).

use bytemuck::Pod;

use crate::comm::{CommError, Communicator};
use crate::hash::{START, fnv1a};
use crate::host_memory;
use crate::points::offsets;

/// Returns the rank at which records of `label` are combined.
fn meeting(label: u64, ranks: usize) -> usize {
    // The high bits of the product depend on all bits of the label.
    ((u128::from(fnv1a(START, &label.to_le_bytes())) * ranks as u128) >> 64) as usize
}

/// Which labels are sent to which rank, so that records follow without their labels and replies
/// return in order.
pub(super) struct Rendezvous<'a> {
    comm: &'a Communicator,
    /// Own labels, by their place in the caller's list, in the order in which they are sent.
    order: Vec<u32>,
    sends: Vec<u64>,
    /// For each record received, the place of its label among those combined here.
    slots: Vec<usize>,
    receives: Vec<u64>,
    pub labels: Vec<u64>,
}

impl<'a> Rendezvous<'a> {
    /// Sends every rank's labels, fewer than 2^32 and all different, to the ranks that combine
    /// them. Collective; one round.
    pub fn new(comm: &'a Communicator, labels: &[u64]) -> Result<Self, CommError> {
        let (ranks, mut sends) = (comm.size(), vec![0; comm.size()]);
        let to = host_memory::collect("labels of groups", labels.iter().map(|&label| meeting(label, ranks)))?;
        to.iter().for_each(|&to| sends[to] += 1);
        let mut next = offsets(&sends);
        let mut order: Vec<u32> = host_memory::zeros("labels of groups", labels.len())?;
        for (place, to) in (0..).zip(to) {
            order[next[to] as usize] = place;
            next[to] += 1;
        }
        let outgoing = host_memory::collect("labels of groups", order.iter().map(|&place| labels[place as usize]))?;
        let (received, receives) = comm.all_to_all_v(&outgoing, &sends)?.into_raw();
        let mut labels = host_memory::copy("labels of groups", &received)?;
        labels.sort_unstable();
        labels.dedup();
        let slot = |label| labels.partition_point(|met| met < label);
        let slots = host_memory::collect("labels of groups", received.iter().map(slot))?;
        Ok(Rendezvous { comm, order, sends, slots, receives, labels })
    }

    /// Sends a record for each own label, in the caller's order; the records received for each
    /// label combined here are folded, from `initial` and in rank order. Collective; one round.
    pub fn send<T: Pod, U: Clone>(
        &self,
        records: &[T],
        initial: U,
        fold: impl Fn(U, T) -> U,
    ) -> Result<Vec<U>, CommError> {
        let outgoing = self.order.iter().map(|&place| records[place as usize]);
        let outgoing = host_memory::collect("records of groups", outgoing)?;
        let received = self.comm.all_to_all_v(&outgoing, &self.sends)?;
        let mut combined = host_memory::fill("records of groups", initial, self.labels.len())?;
        for (&slot, &record) in self.slots.iter().zip(received.data()) {
            combined[slot] = fold(combined[slot].clone(), record);
        }
        Ok(combined)
    }

    /// Replies to all ranks that sent a label with the record for it, `combined` being in the order
    /// of [`labels`](Self::labels); returns the replies to the own labels, in the caller's order.
    /// Collective; one round.
    pub fn reply<T: Pod>(&self, combined: &[T]) -> Result<Vec<T>, CommError> {
        let outgoing = host_memory::collect("records of groups", self.slots.iter().map(|&slot| combined[slot]))?;
        let received = self.comm.all_to_all_v(&outgoing, &self.receives)?;
        let mut replies: Vec<T> = host_memory::zeros("records of groups", self.order.len())?;
        for (&place, &reply) in self.order.iter().zip(received.data()) {
            replies[place as usize] = reply;
        }
        Ok(replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    #[test]
    fn replies_return_in_order() {
        // Rank r knows the multiples of r + 1, in falling order.
        let known = |rank: u64| (0..60).rev().filter(move |label| label % (rank + 1) == 0);
        for ranks in [1, 2, 5] {
            let met: Vec<Vec<u64>> = run_threads(ranks, |comm| {
                let labels: Vec<u64> = known(comm.rank() as u64).collect();
                let meetings = Rendezvous::new(&comm, &labels)?;
                let sums = meetings.send(&labels, 0, |sum, label: u64| sum + label)?;
                for (label, answer) in labels.iter().zip(meetings.reply(&sums)?) {
                    let knowing = (0..ranks as u64).filter(|rank| label % (rank + 1) == 0).count() as u64;
                    assert_eq!(answer, label * knowing);
                }
                Ok::<_, CommError>(meetings.labels.to_vec())
            })
            .unwrap();
            let mut all = met.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..60), "each label meets at one rank");
        }
    }

    #[test]
    fn labels_of_any_stride_are_spread() {
        for stride in [1, 2, 64, 1 << 20, 1 << 40] {
            for ranks in [2, 7, 16] {
                let mut met = vec![0u64; ranks];
                (0..16_000).for_each(|i| met[meeting(i * stride, ranks)] += 1);
                let mean = 16_000 / ranks as u64;
                // Eight deviations of a fair deal.
                let most = mean + 8 * (mean as f64).sqrt() as u64;
                assert!(met.iter().all(|&n| n < most), "{met:?} of labels {stride} apart");
            }
        }
    }
}
