//! Sums over items that ranks hold in blocks, along the tree over the numbers of the items.

use std::ops::AddAssign;

use bytemuck::Pod;

use super::deal::Deal;
use super::tree::{Fold, nodes};
use crate::comm::{CommError, Communicator};
use crate::grid::split;
use crate::host_memory;

/// Returns the sum of arrays of `len` numbers over the items of `deal`, from the sums `own` of the
/// [`nodes`] of this rank's block. Collective; the result is the same on all ranks.
///
/// Each of `p` ranks sends its sums in `p` parts, adds what it receives of its part, and sends that
/// to all.
pub(crate) fn sum_over_ranks<T: Pod + AddAssign>(
    comm: &Communicator,
    deal: Deal,
    len: usize,
    own: &[&[T]],
) -> Result<Vec<T>, CommError> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let ranks = comm.size();
    let part = |rank: usize| {
        let range = split(len as u64, ranks as u64, rank as u64);
        range.start as usize..range.end as usize
    };
    let counts: Vec<u64> = (0..ranks).map(|rank| (part(rank).len() * own.len()) as u64).collect();
    let mut parts = host_memory::reserve("sums of items", len * own.len())?;
    (0..ranks).for_each(|rank| own.iter().for_each(|own| parts.extend_from_slice(&own[part(rank)])));
    let (received, _) = comm.all_to_all_v(&parts, &counts)?.into_raw();
    let width = part(comm.rank()).len();
    let add = |sum: &mut Vec<T>, one: Vec<T>| {
        sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
        Ok::<_, CommError>(())
    };
    let mut sums = Fold::default();
    let all = (0..ranks).flat_map(|rank| nodes(deal.block(rank)));
    for (at, node) in all.enumerate() {
        sums.push(node, received[at * width..(at + 1) * width].to_vec(), add)?;
    }
    let sum = sums.root(add)?.unwrap_or_default();
    Ok(comm.all_gather_v(&sum)?.into_raw().0)
}
