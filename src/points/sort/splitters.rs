//! Where the sorted keys of all ranks are cut, so that every rank gets its exact share. Pure: what ranks tell each
//! other goes in and out as slices.
//!
//! Keys of all ranks, in order, equal keys by rank and then by place, form one sequence of N; rank `b` gets its part
//! [`split`]`(N, P, b)`. Each boundary has a target, the number of elements before it, and is found by histograms: all
//! ranks count their keys up to 256 candidates a boundary, the sums narrow the interval that holds the key of the last
//! element before the boundary, and after at most eight rounds that key is known. Its equals are then dealt out by
//! rank. Exact for any input: the cut does not depend on how keys are distributed.

use crate::grid::split;

/// Candidates per boundary and round.
const CANDIDATES: u64 = 256;

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

    /// Candidate `j`: they ascend from `low` in steps that differ by at most one.
    fn candidate(&self, j: u64) -> u64 {
        self.low + (u128::from(self.high - self.low) * u128::from(j) / u128::from(CANDIDATES)) as u64
    }
}

/// The search for the keys at the boundaries between ranks; the same on all ranks.
///
/// Each round, until [`is_done`](Self::is_done): every rank [`counts`](Self::counts), the counts of all ranks are
/// added, and every rank [`narrow`](Self::narrow)s by the sums. Then every rank [`ties`](Self::ties), which are
/// gathered from all ranks, and [`cuts`](Self::cuts) is how much each rank sends to each.
#[derive(Clone, Debug)]
pub struct Splitters {
    intervals: Vec<Interval>,
}

impl Splitters {
    /// The boundaries of `total` elements between `ranks` ranks, with keys of at most `bits` bits (1 to 64).
    pub fn new(total: u64, ranks: usize, bits: u32) -> Self {
        let ranks = ranks as u64;
        let high = u64::MAX >> (64 - bits);
        let interval = |b: u64| {
            let target = split(total, ranks, b).start;
            // No element comes before such a boundary: any key is right.
            Interval { target, low: 0, high: if target == 0 { 0 } else { high } }
        };
        Splitters { intervals: (1..ranks).map(interval).collect() }
    }

    /// Whether all keys are known.
    pub fn is_done(&self) -> bool {
        self.intervals.iter().all(Interval::is_found)
    }

    /// How many of a rank's sorted `keys` are at most each candidate: the boundaries that are still sought, one after
    /// the other.
    pub fn counts(&self, keys: &[u64]) -> Vec<u64> {
        let mut counts = Vec::new();
        for interval in self.intervals.iter().filter(|interval| !interval.is_found()) {
            // Candidates ascend, so each search begins where the one before ended.
            let mut at = 0;
            for j in 0..CANDIDATES {
                let candidate = interval.candidate(j);
                at += keys[at..].partition_point(|&key| key <= candidate);
                counts.push(at as u64);
            }
        }
        counts
    }

    /// Narrows the intervals by the sums of all ranks' counts.
    pub fn narrow(&mut self, sums: &[u64]) {
        let sought = self.intervals.iter_mut().filter(|interval| !interval.is_found());
        for (interval, sums) in sought.zip(sums.chunks_exact(CANDIDATES as usize)) {
            let first = sums.partition_point(|&sum| sum < interval.target) as u64;
            let before = interval.candidate(first.saturating_sub(1));
            if first < CANDIDATES {
                interval.high = interval.candidate(first);
            }
            if first > 0 {
                interval.low = before + 1;
            }
        }
    }

    /// For each boundary, how many of a rank's sorted `keys` are less than its key, and how many equal it.
    pub fn ties(&self, keys: &[u64]) -> Vec<u64> {
        let tie = |interval: &Interval| {
            let less = keys.partition_point(|&key| key < interval.low);
            let equal = keys[less..].partition_point(|&key| key == interval.low);
            [less as u64, equal as u64]
        };
        self.intervals.iter().flat_map(tie).collect()
    }

    /// Where each rank cuts its sorted keys: `ranks + 1` places; rank `b` receives what lies between places `b` and `b + 1`. `ties` are those of all ranks, in rank order, and `counts` the numbers of their keys.
    pub fn cuts(&self, ties: &[u64], counts: &[u64]) -> Vec<Vec<u64>> {
        let boundaries = self.intervals.len();
        let mut cuts: Vec<Vec<u64>> = counts.iter().map(|_| vec![0]).collect();
        for (b, interval) in self.intervals.iter().enumerate() {
            let of = |rank: usize| (ties[2 * (rank * boundaries + b)], ties[2 * (rank * boundaries + b) + 1]);
            let less: u64 = (0..cuts.len()).map(|rank| of(rank).0).sum();
            let mut equals = interval.target.saturating_sub(less);
            for (rank, cuts) in cuts.iter_mut().enumerate() {
                let (less, equal) = of(rank);
                let taken = equals.min(equal);
                equals -= taken;
                // No element comes before a boundary whose target is 0, not even those less than the key.
                cuts.push(if interval.target == 0 { 0 } else { less + taken });
            }
        }
        cuts.iter_mut().zip(counts).for_each(|(cuts, &count)| cuts.push(count));
        cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ranks in step; gives the cuts and the rounds.
    fn search(keys: &[Vec<u64>], bits: u32) -> (Vec<Vec<u64>>, usize) {
        let counts: Vec<u64> = keys.iter().map(|keys| keys.len() as u64).collect();
        let mut splitters = Splitters::new(counts.iter().sum(), keys.len(), bits);
        let mut rounds = 0;
        while !splitters.is_done() {
            let all: Vec<Vec<u64>> = keys.iter().map(|keys| splitters.counts(keys)).collect();
            let sums: Vec<u64> = (0..all[0].len()).map(|i| all.iter().map(|counts| counts[i]).sum()).collect();
            splitters.narrow(&sums);
            rounds += 1;
        }
        let ties: Vec<u64> = keys.iter().flat_map(|keys| splitters.ties(keys)).collect();
        (splitters.cuts(&ties, &counts), rounds)
    }

    fn check(keys: &[Vec<u64>], bits: u32) {
        let (cuts, rounds) = search(keys, bits);
        let most = (bits as usize).div_ceil(8);
        assert!(rounds <= most, "{rounds} rounds for {bits} bits");
        let mut sequence: Vec<(u64, usize, u64)> = Vec::new();
        for (rank, keys) in keys.iter().enumerate() {
            sequence.extend((0..).zip(keys).map(|(place, &key)| (key, rank, place)));
        }
        sequence.sort_unstable();
        for b in 0..keys.len() {
            let part = split(sequence.len() as u64, keys.len() as u64, b as u64);
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
