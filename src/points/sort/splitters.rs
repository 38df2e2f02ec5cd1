//! Cuts of the sorted keys of all ranks, so that every rank gets its exact share. Pure: messages
//! between ranks go in and out as slices.
//!
//! Keys of all ranks, in order, equal keys by rank and then by place, form one sequence of N; rank
//! `b` gets its part by [`Shares::split`]. Each boundary has a target, the number of elements
//! before it, and is found by histograms: all ranks count their keys up to 256 candidates a
//! boundary, the sums narrow the interval that holds the key of the last element before the
//! boundary, and after at most eight rounds that key is known. Its equals are then dealt out by
//! rank. Exact for any input: the cut does not depend on how keys are distributed.
//!
//! More than 16 ranks take fewer candidates and more rounds: a round takes 32 KiB, or 64 bytes a
//! rank beyond 512 ranks. With c candidates a boundary takes 64 / log2 c rounds, so that few
//! candidates need the fewest bytes, and many the fewest rounds.

use crate::grid::Shares;

/// Most and fewest candidates of a boundary in a round.
const CANDIDATES: [u64; 2] = [8, 256];
/// Candidates of all boundaries in a round, unless these have the fewest.
const ROUND: u64 = 1 << 12;

/// One boundary: the sought key lies in `low..=high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    /// Elements before the boundary.
    target: u64,
    low: u64,
    high: u64,
}

impl Interval {
    fn is_found(&self) -> bool {
        self.low == self.high
    }

    /// Candidate `j` of 2^`bits`: they ascend from `low` in steps that differ by at most one.
    fn candidate(&self, j: u64, bits: u32) -> u64 {
        self.low + ((u128::from(self.high - self.low) * u128::from(j)) >> bits) as u64
    }
}

/// The search for the keys at the boundaries between ranks; the same on all ranks.
///
/// Each round, until [`is_done`](Self::is_done): every rank counts its keys up to each of the
/// [`candidates`](Self::candidates), the counts of all ranks are added, and every rank
/// [`narrow`](Self::narrow)s by the sums. Then every rank counts its [`Ties`], and
/// [`cuts`](Self::cuts) is how much it sends to each.
#[derive(Clone, Debug)]
pub struct Splitters {
    intervals: Vec<Interval>,
    /// Logarithm to base 2 of the candidates of a boundary in a round.
    each_bits: u32,
}

/// Keys at the boundaries: for each boundary, how many of a rank's keys are less than its key, and
/// how many equal it.
#[derive(Clone, Debug)]
pub struct Ties {
    pub less: Vec<u64>,
    pub equal: Vec<u64>,
}

impl Splitters {
    /// Creates the boundaries of `total` elements between ranks with `shares`, with keys of at most
    /// `bits` bits (1 to 64).
    pub fn new(total: u64, shares: Shares, bits: u32) -> Self {
        let high = u64::MAX >> (64 - bits);
        let interval = |b: usize| {
            let target = shares.split(total, b).start;
            // No element comes before such a boundary: any key is right.
            Interval { target, low: 0, high: if target == 0 { 0 } else { high } }
        };
        let each_bits = (ROUND / shares.ranks() as u64).clamp(CANDIDATES[0], CANDIDATES[1]).ilog2();
        Splitters { intervals: (1..shares.ranks()).map(interval).collect(), each_bits }
    }

    /// Returns `true` if all keys are known.
    pub fn is_done(&self) -> bool {
        self.intervals.iter().all(Interval::is_found)
    }

    /// Returns the candidates of the boundaries that are still sought, one boundary after the
    /// other.
    pub fn candidates(&self) -> Vec<u64> {
        let sought = self.intervals.iter().filter(|interval| !interval.is_found());
        sought.flat_map(|interval| (0..1 << self.each_bits).map(|j| interval.candidate(j, self.each_bits))).collect()
    }

    /// Narrows the intervals by how many keys of all ranks are at most each candidate.
    pub fn narrow(&mut self, sums: &[u64]) {
        let (bits, each) = (self.each_bits, 1 << self.each_bits);
        let sought = self.intervals.iter_mut().filter(|interval| !interval.is_found());
        for (interval, sums) in sought.zip(sums.chunks_exact(each as usize)) {
            let first = sums.partition_point(|&sum| sum < interval.target) as u64;
            let before = interval.candidate(first.saturating_sub(1), bits);
            if first < each {
                interval.high = interval.candidate(first, bits);
            }
            if first > 0 {
                interval.low = before + 1;
            }
        }
    }

    /// Returns the key of each boundary: that of the last element before it, once all are known.
    pub fn keys(&self) -> Vec<u64> {
        self.intervals.iter().map(|interval| interval.low).collect()
    }

    /// Returns where a rank cuts its `count` sorted keys: `ranks + 1` places; rank `b` receives
    /// what lies between places `b` and `b + 1`. `ties` are its own, `less` is the sum of all
    /// ranks' and `equal_before` that of the ranks before it.
    pub fn cuts(&self, ties: &Ties, less: &[u64], equal_before: &[u64], count: u64) -> Vec<u64> {
        let cut = |(b, interval): (usize, &Interval)| {
            let equals = interval.target.saturating_sub(less[b]).saturating_sub(equal_before[b]);
            // No element comes before a boundary whose target is 0, not even those less than the
            // key.
            if interval.target == 0 { 0 } else { ties.less[b] + equals.min(ties.equal[b]) }
        };
        [0].into_iter().chain(self.intervals.iter().enumerate().map(cut)).chain([count]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search of all ranks in step; returns the cuts and the number of rounds.
    fn search(keys: &[Vec<u64>], shares: Shares, bits: u32) -> (Vec<Vec<u64>>, usize) {
        let at_most = |keys: &[u64], key: u64| keys.partition_point(|&other| other <= key) as u64;
        let total = keys.iter().map(|keys| keys.len() as u64).sum();
        let mut splitters = Splitters::new(total, shares, bits);
        let mut rounds = 0;
        while !splitters.is_done() {
            let sum = |key: u64| keys.iter().map(|keys| at_most(keys, key)).sum();
            let sums: Vec<u64> = splitters.candidates().into_iter().map(sum).collect();
            splitters.narrow(&sums);
            rounds += 1;
        }
        let ties = |keys: &Vec<u64>| {
            let less = |&key: &u64| keys.partition_point(|&other| other < key) as u64;
            let less: Vec<u64> = splitters.keys().iter().map(less).collect();
            let equal = splitters.keys().iter().zip(&less).map(|(&key, less)| at_most(keys, key) - less).collect();
            Ties { less, equal }
        };
        let all: Vec<Ties> = keys.iter().map(ties).collect();
        let sum = |of: fn(&Ties) -> &Vec<u64>, ranks: usize| -> Vec<u64> {
            (0..keys.len() - 1).map(|b| all[..ranks].iter().map(|ties| of(ties)[b]).sum()).collect()
        };
        let less = sum(|ties| &ties.less, keys.len());
        let cuts = all
            .iter()
            .enumerate()
            .map(|(rank, ties)| splitters.cuts(ties, &less, &sum(|ties| &ties.equal, rank), keys[rank].len() as u64));
        (cuts.collect(), rounds)
    }

    /// Compares with a sort of all keys, for equal and unequal shares.
    fn check(keys: &[Vec<u64>], bits: u32) {
        let unequal: Vec<f64> = (0..keys.len()).map(|rank| (1 + rank * 7 % 4) as f64).collect();
        check_shares(keys, Shares::from(keys.len()), bits);
        check_shares(keys, Shares::new(&unequal).unwrap(), bits);
    }

    fn check_shares(keys: &[Vec<u64>], shares: Shares, bits: u32) {
        let (cuts, rounds) = search(keys, shares, bits);
        let most = (bits as usize).div_ceil(8);
        assert!(rounds <= most, "{rounds} rounds for {bits} bits");
        let mut sequence: Vec<(u64, usize, u64)> = Vec::new();
        for (rank, keys) in keys.iter().enumerate() {
            sequence.extend((0..).zip(keys).map(|(place, &key)| (key, rank, place)));
        }
        sequence.sort_unstable();
        for b in 0..keys.len() {
            let part = shares.split(sequence.len() as u64, b);
            let want = &sequence[part.start as usize..part.end as usize];
            let mut got: Vec<(u64, usize, u64)> = Vec::new();
            for (rank, cuts) in cuts.iter().enumerate() {
                got.extend((cuts[b]..cuts[b + 1]).map(|place| (keys[rank][place as usize], rank, place)));
            }
            got.sort_unstable();
            assert_eq!(got, want, "rank {b} of {keys:?}");
        }
    }

    #[test]
    fn every_rank_gets_its_part_of_the_sequence() {
        check(&[vec![]], 64);
        check(&[vec![], vec![], vec![]], 64);
        check(&[vec![7], vec![], vec![]], 64);
        check(&[vec![], vec![], vec![3, 9]], 64);
        check(&[vec![0, 0, 0, 0, 0], vec![0, 0], vec![], vec![0]], 64);
        check(&[vec![u64::MAX; 3], vec![0, u64::MAX], vec![u64::MAX; 4]], 64);
        check(&[vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5], vec![3; 7]], 64);
        check(&[vec![(1 << 63) - 1; 2], vec![0, 1, 1 << 62]], 63);
        check(&[vec![0, 1], vec![0, 1]], 1);
    }

    #[test]
    fn any_keys_are_cut_exactly() {
        let mut state = 5u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        for case in 0..200u32 {
            let ranks = 1 + random() as usize % 9;
            // From all different to nearly all equal, at either end.
            let shift = case % 44;
            let keys: Vec<Vec<u64>> = (0..ranks)
                .map(|_| {
                    let count = if random() % 4 == 0 { 0 } else { random() % 40 };
                    let key = |n: u64| if case % 2 == 0 { n >> shift } else { u64::MAX - (n >> shift) };
                    let mut keys: Vec<u64> = (0..count).map(|_| key(random())).collect();
                    keys.sort_unstable();
                    keys
                })
                .collect();
            check(&keys, 64);
        }
    }
}
