//! Distributed sort of host data by unique 128-bit keys, with exact parts.
//!
//! The sorted elements of all ranks form one sequence of N; rank `b` gets its part by
//! [`Shares::split`](crate::grid::Shares::split). As in `splitters.rs` the boundaries are found by histograms, but keys are wider and unique:
//! a boundary is found as soon as some candidate has exactly as many keys up to it as must come
//! before, which takes about log N / log 256 rounds for keys that are spread out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use bytemuck::Pod;

use super::error::SortError;
use crate::comm::{Communicator, GatheredParts, Op};
use crate::host_memory::{self, HostMemoryError};

/// Candidates per boundary and round.
const CANDIDATES: u64 = 256;

/// This rank's part of the sorted elements of all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balanced<T> {
    /// The elements, in order.
    pub elements: Vec<T>,
    /// Their places among those of all ranks: the rank's [share](crate::grid::Shares) of the total.
    pub part: Range<u64>,
    /// Elements of all ranks.
    pub total: u64,
}

/// The range of the keys of all ranks. Keys are numbered within it, which takes fewer rounds than
/// all 128 bits would.
#[derive(Clone, Copy)]
struct KeyRange {
    low: [u64; 2],
    /// Number of possible second words.
    seconds: u128,
}

impl KeyRange {
    /// Returns the number of a key; numbers are in the order of the keys.
    fn dense(&self, key: [u64; 2]) -> u128 {
        u128::from(key[0] - self.low[0]) * self.seconds + u128::from(key[1] - self.low[1])
    }
}

/// A boundary between two ranks.
#[derive(Clone, Copy)]
struct Boundary {
    /// Elements before it.
    target: u64,
    /// The key of the last element before it lies in `low..=high`.
    low: u128,
    high: u128,
    /// All elements with keys up to this one come before it.
    cut: Option<u128>,
}

impl Boundary {
    /// Candidate `j`: they ascend from `low` in steps that differ by at most one.
    fn candidate(&self, j: u64) -> u128 {
        // Quotient and remainder separately: 128 bits times 256 would overflow.
        let (span, j, parts) = (self.high - self.low, u128::from(j), u128::from(CANDIDATES));
        self.low + span / parts * j + span % parts * j / parts
    }

    /// Narrows the interval by `sums`: how many keys of all ranks are at most each candidate, and
    /// at most `high`.
    fn narrow(&mut self, sums: &[u64]) -> Result<(), SortError> {
        let key = |j: usize| if j as u64 == CANDIDATES { self.high } else { self.candidate(j as u64) };
        // The last sum is never below the target.
        let first = sums.partition_point(|&sum| sum < self.target);
        let at = key(first);
        if sums[first] == self.target {
            self.cut = Some(at);
        } else if self.low == self.high {
            return Err(SortError::Repeated);
        } else {
            let low = if first == 0 { self.low } else { key(first - 1) + 1 };
            (self.low, self.high) = (low, at);
        }
        Ok(())
    }
}

/// Returns where this rank cuts its sorted elements, which are numbered by `dense`: `ranks + 1`
/// places.
fn cuts<T>(
    comm: &Communicator,
    elements: &[T],
    dense: impl Fn(&T) -> u128,
    (total, last): (u64, u128),
) -> Result<Vec<usize>, SortError> {
    let shares = comm.shares();
    let boundary = |b| Boundary { target: shares.split(total, b).start, low: 0, high: last, cut: None };
    let mut boundaries: Vec<Boundary> = (1..comm.size()).map(boundary).collect();
    // A boundary before or after all elements needs no search.
    let sought = |boundary: &Boundary| boundary.cut.is_none() && boundary.target != 0 && boundary.target != total;
    while boundaries.iter().any(sought) {
        let mut sums = Vec::new();
        for boundary in boundaries.iter().filter(|boundary| sought(boundary)) {
            // Candidates ascend, so each search begins where the one before ended.
            let mut at = 0;
            let keys = (0..CANDIDATES).map(|j| boundary.candidate(j)).chain([boundary.high]);
            sums.extend(keys.map(|key| {
                at += elements[at..].partition_point(|element| dense(element) <= key);
                at as u64
            }));
        }
        comm.all_reduce(&mut sums, Op::Sum)?;
        let found = boundaries.iter_mut().filter(|boundary| sought(boundary));
        for (boundary, sums) in found.zip(sums.chunks_exact(CANDIDATES as usize + 1)) {
            boundary.narrow(sums)?;
        }
    }
    let place = |boundary: &Boundary| match boundary.cut {
        Some(cut) => elements.partition_point(|element| dense(element) <= cut),
        None if boundary.target == 0 => 0,
        None => elements.len(),
    };
    Ok([0].into_iter().chain(boundaries.iter().map(place)).chain([elements.len()]).collect())
}

/// Sorts the elements of all ranks by `key` (two words, the first one counts first) and gives each
/// rank its part. No two elements of all ranks may have the same key. Collective; any number of
/// elements on each rank, also none.
///
/// Moves every element at most once; each round of the search for the boundaries takes about `2
/// log2(P)` messages of `2 P` KiB. Needs about three further copies of the elements during the
/// exchange, and 32 bytes per element to sort those that are not in order.
///
/// # Errors
/// [`SortError::Repeated`] on at least one rank if two elements have the same key;
/// [`SortError::Comm`].
pub fn balanced<T: Pod>(
    comm: &Communicator,
    mut elements: Vec<T>,
    key: impl Fn(&T) -> [u64; 2],
) -> Result<Balanced<T>, SortError> {
    if !elements.is_sorted_by_key(&key) {
        // Elements may be long: keys are sorted, elements are moved once.
        host_memory::sort_by_cached_key("keys to sort", &mut elements, &key)?;
    }
    let [total] = comm.reduced([elements.len() as u64], Op::Sum)?;
    if comm.size() > 1 {
        elements = redistribute(comm, elements, &key, total)?;
    }
    if elements.windows(2).any(|pair| key(&pair[0]) == key(&pair[1])) {
        return Err(SortError::Repeated);
    }
    Ok(Balanced { elements, part: comm.shares().split(total, comm.rank()), total })
}

/// This rank's part of the `total` elements of several ranks, each of which has sorted its own.
fn redistribute<T: Pod>(
    comm: &Communicator,
    elements: Vec<T>,
    key: &impl Fn(&T) -> [u64; 2],
    total: u64,
) -> Result<Vec<T>, SortError> {
    // The least words, and the complements of the greatest, in one reduction.
    let mut extremes = [u64::MAX; 4];
    for element in &elements {
        let [first, second] = key(element);
        let own = [first, second, !first, !second];
        extremes = std::array::from_fn(|i| extremes[i].min(own[i]));
    }
    let [low0, low1, high0, high1] = comm.reduced(extremes, Op::Min)?;
    let range = KeyRange { low: [low0, low1], seconds: u128::from((!high1).saturating_sub(low1)) + 1 };
    let last = if total == 0 { 0 } else { range.dense([!high0, !high1]) };

    let cuts = cuts(comm, &elements, |element| range.dense(key(element)), (total, last))?;
    let counts: Vec<u64> = cuts.windows(2).map(|pair| (pair[1] - pair[0]) as u64).collect();
    let received = comm.all_to_all_v(&elements, &counts)?;
    drop(elements);
    Ok(merged(&received, key)?)
}

/// Merges the elements of all ranks, each of which has sent its own sorted.
fn merged<T: Pod>(received: &GatheredParts<T>, key: impl Fn(&T) -> [u64; 2]) -> Result<Vec<T>, HostMemoryError> {
    let mut merged = host_memory::reserve("sorted elements", received.data().len())?;
    let rests = received.iter().enumerate().filter_map(|(rank, rest)| Some(Reverse((key(rest.first()?), rank, 0))));
    let mut firsts: BinaryHeap<_> = rests.collect();
    let runs: Vec<&[T]> = received.iter().collect();
    while let Some(mut first) = firsts.peek_mut() {
        let Reverse((_, rank, at)) = *first;
        merged.push(runs[rank][at]);
        match runs[rank].get(at + 1) {
            Some(next) => *first = Reverse((key(next), rank, at + 1)),
            None => drop(PeekMut::pop(first)),
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;
    use crate::grid::Shares;

    /// Deals the keys out and compares with a sort of all of them, for equal and unequal shares.
    fn check(dealt: &[Vec<[u64; 2]>]) {
        let unequal: Vec<f64> = (0..dealt.len()).map(|rank| (1 + rank * 7 % 4) as f64).collect();
        check_shares(dealt, Shares::from(dealt.len()));
        check_shares(dealt, Shares::new(&unequal).unwrap());
    }

    fn check_shares(dealt: &[Vec<[u64; 2]>], shares: Shares) {
        let mut want: Vec<[u64; 2]> = dealt.concat();
        want.sort_unstable();
        let parts = run_threads(dealt.len(), |comm| {
            balanced(&comm.with_shares(shares)?, dealt[comm.rank()].clone(), |&key| key)
        });
        for (rank, part) in parts.unwrap().iter().enumerate() {
            let range = shares.split(want.len() as u64, rank);
            assert_eq!((&part.part, part.total), (&range, want.len() as u64));
            assert_eq!(part.elements, want[range.start as usize..range.end as usize], "rank {rank}");
        }
    }

    #[test]
    fn every_rank_gets_its_part() {
        check(&[vec![]]);
        check(&[vec![[2, 1], [1, 9], [1, 3]]]);
        check(&[vec![], vec![], vec![]]);
        check(&[vec![], vec![[7, 7]], vec![]]);
        check(&[vec![[u64::MAX; 2]], vec![], vec![[0, 0], [0, u64::MAX]], vec![[u64::MAX, 0]]]);
        check(&[(0..7).map(|i| [i, 5]).collect(), vec![], (0..6).map(|i| [3, 6 + i]).collect()]);
    }

    #[test]
    fn any_keys_are_cut_exactly() {
        let mut state = 11u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 31
        };
        for case in 0..60u32 {
            let ranks = 1 + random() as usize % 9;
            let mut dealt: Vec<Vec<[u64; 2]>> = vec![Vec::new(); ranks];
            let mut keys = std::collections::BTreeSet::new();
            for _ in 0..random() % 300 {
                // From all over the range to a few values.
                keys.insert([random() >> (case % 64), random() >> (case * 7 % 64)]);
            }
            // Some ranks get most of it.
            keys.into_iter().for_each(|key| dealt[(random() % ranks as u64 * (random() % 3) / 2) as usize].push(key));
            dealt.iter_mut().filter(|_| case % 2 == 0).for_each(|keys| keys.reverse());
            check(&dealt);
        }
    }

    #[test]
    fn a_key_that_two_elements_have_is_an_error() {
        let all: [&[&[u64]]; 4] = [&[&[3, 3]], &[&[3], &[3]], &[&[1, 2, 3], &[], &[9, 3]], &[&[5, 5, 5, 5], &[], &[5]]];
        for dealt in all {
            let error =
                run_threads(dealt.len(), |comm| balanced(&comm, dealt[comm.rank()].to_vec(), |&second| [1, second]))
                    .unwrap_err();
            assert_eq!(error.downcast_ref(), Some(&SortError::Repeated), "{error}");
        }
    }
}
