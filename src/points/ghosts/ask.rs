//! Questions to other ranks, and what they cost.

use bytemuck::Pod;

use crate::comm::{CommError, Communicator, GatheredParts};
use crate::grid::Cost;

/// Sends each request to its rank, of which `ranks` has one for each, ascending; returns the
/// answers in the same order, and what it has cost. `answer` gives those to the requests that came
/// here, of which it gets the rank and the request. Two exchanges of the host. Collective.
pub(crate) fn ask<T: Pod, A: Pod, E: From<CommError>>(
    comm: &Communicator,
    requests: &[T],
    ranks: &[u32],
    answer: impl FnOnce(&[(usize, &T)]) -> Result<Vec<A>, E>,
) -> Result<(Vec<A>, Cost), E> {
    let counts = count(ranks, comm.size());
    let asked = comm.all_to_all_v(requests, &counts)?;
    let answered = comm.all_to_all_v(&answer(&with_ranks(&asked))?, asked.counts())?;
    let cost = cost_of::<T>(&counts, asked.counts(), comm.rank());
    let mut total = cost_of::<A>(asked.counts(), &counts, comm.rank());
    total += cost;
    Ok((answered.into_raw().0, total))
}

/// Returns what came from all ranks, one by one, each with its rank.
pub(crate) fn with_ranks<T: Pod>(parts: &GatheredParts<T>) -> Vec<(usize, &T)> {
    fn of_rank<T>((rank, of_rank): (usize, &[T])) -> impl Iterator<Item = (usize, &T)> {
        of_rank.iter().map(move |one| (rank, one))
    }
    parts.iter().enumerate().flat_map(of_rank).collect()
}

/// Returns how often each rank occurs.
pub(crate) fn count(ranks: &[u32], size: usize) -> Vec<u64> {
    let mut counts = vec![0; size];
    ranks.iter().for_each(|&rank| counts[rank as usize] += 1);
    counts
}

/// Returns what elements sent to and received from each rank cost this one, `me`.
pub(crate) fn cost_of<T>(sent: &[u64], received: &[u64], me: usize) -> Cost {
    let others = |counts: &[u64]| {
        let others = counts.iter().enumerate().filter(|(rank, count)| *rank != me && **count > 0);
        others.map(|(_, count)| count * size_of::<T>() as u64).collect::<Vec<_>>()
    };
    let sent = others(sent);
    Cost {
        sent_bytes: sent.iter().sum(),
        received_bytes: others(received).iter().sum(),
        messages: sent.len() as u64,
        ..Cost::default()
    }
}
