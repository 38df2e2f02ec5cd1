//! Questions to other ranks, and what they cost.

use bytemuck::Pod;

use crate::comm::{CommError, Communicator};
use crate::grid::Cost;

/// Sends each request to its rank, of which `ranks` has one for each, ascending; returns the answers in the same order, and what it has
/// cost. Two exchanges of the host. All ranks call it.
pub(crate) fn ask<T: Pod, A: Pod>(
    comm: &Communicator,
    requests: &[T],
    ranks: &[u32],
    mut answer: impl FnMut(usize, &T) -> A,
) -> Result<(Vec<A>, Cost), CommError> {
    let counts = count(ranks, comm.size());
    let asked = comm.all_to_all_v(requests, &counts)?;
    let mut answers = Vec::with_capacity(asked.data().len());
    for (rank, requests) in asked.iter().enumerate() {
        answers.extend(requests.iter().map(|request| answer(rank, request)));
    }
    let answered = comm.all_to_all_v(&answers, asked.counts())?;
    let cost = cost_of::<T>(&counts, asked.counts(), comm.rank());
    let mut total = cost_of::<A>(asked.counts(), &counts, comm.rank());
    total += cost;
    Ok((answered.into_raw().0, total))
}

/// How often each rank occurs.
pub(crate) fn count(ranks: &[u32], size: usize) -> Vec<u64> {
    let mut counts = vec![0; size];
    ranks.iter().for_each(|&rank| counts[rank as usize] += 1);
    counts
}

/// What elements sent to and received from each rank cost this one, `me`.
pub(crate) fn cost_of<T>(sent: &[u64], received: &[u64], me: usize) -> Cost {
    let others = |counts: &[u64]| {
        let others = counts.iter().enumerate().filter(|(rank, count)| *rank != me && **count > 0);
        others.map(|(_, count)| count * size_of::<T>() as u64).collect::<Vec<_>>()
    };
    let sent = others(sent);
    Cost { sent: sent.iter().sum(), received: others(received).iter().sum(), messages: sent.len() as u64 }
}
