//! Plans of the transform of a line inside one workgroup, and the factors of lengths.
//!
//! - Products of [`RADICES`] use Stockham's stages, each a butterfly of up to [`Limits::points`]
//!   points in registers. The number of stages is small, since points pass through workgroup memory
//!   between stages.
//! - If barriers are slow (software renderers), one invocation does all butterflies of a line, in
//!   loops.
//! - Other lengths use Bluestein's algorithm: a circular convolution of at least `2n - 1` points.
//!
//! Lines of up to [`Limits::alone`] points are one butterfly of one invocation, without workgroup
//! memory or barrier.

use std::iter::successors;

/// The largest number of invocations that share a line. Several lines side by side may take all
/// invocations of a workgroup.
pub(super) const MOST_LANES: u64 = 256;

/// The limits of a device for kernels, and their tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u64,
    /// Invocations per workgroup.
    pub invocations: u64,
    /// Complex points that an invocation holds in registers, approximately.
    pub points: u64,
    /// The longest line that one invocation transforms in registers.
    pub alone: u64,
    /// Whether the invocations of a workgroup share longer lines, with barriers between stages.
    /// Otherwise each invocation transforms its own line, stage by stage.
    pub shared: bool,
    /// Lines that a workgroup transforms together if lines are neighbors in memory.
    pub columns: u64,
    /// Bytes of the device's cache through which two axes may pass; 0 for none. See
    /// [`TransformTuning::cache_bytes`](super::TransformTuning::cache_bytes).
    pub cache_bytes: u64,
}

/// The minimum that WebGPU requires, with the tuning of GPUs.
#[cfg(test)]
pub(super) const FLOOR: Limits = Limits {
    workgroup_bytes: 16384,
    invocations: 256,
    points: 16,
    alone: 16,
    shared: true,
    columns: 16,
    cache_bytes: 0,
};

/// The stages of a transform by the invocations of a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RadixStages {
    /// Invocations per line.
    pub lanes: u64,
    /// Points of the butterflies of each stage.
    pub radices: Vec<u64>,
}

impl RadixStages {
    /// Returns whether every second transform may take the stages in reverse. Butterflies of 15
    /// points write 15 points apart; with a free cell after each 16 points, all fall into one bank.
    pub fn turns(&self) -> bool {
        ![self.radices.first(), self.radices.last()].contains(&Some(&15))
    }

    /// Returns the largest number of points that an invocation holds.
    pub fn held(&self) -> u64 {
        let points: u64 = self.radices.iter().product();
        self.radices.iter().map(|radix| radix * (points / radix).div_ceil(self.lanes)).max().unwrap_or(1)
    }
}

/// The transform of a line of `n` points by one workgroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Core {
    /// In stages.
    Direct(RadixStages),
    /// A circular convolution of `padded` points.
    Bluestein { padded: u64, stages: RadixStages },
}

impl Core {
    /// Plans the transform of `n` points within `limits`, with real numbers of `bytes` bytes;
    /// `None` if the points do not fit.
    pub fn new(n: u64, limits: Limits, bytes: u64) -> Option<Core> {
        if let Some((stages, _)) = stages(n, limits, bytes) {
            return Some(Core::Direct(stages));
        }
        if n < 2 {
            return None;
        }
        let shortest = 2 * n - 1;
        // No longer line fits either, and examining all lengths would take seconds.
        if shortest > limits.alone && shortest * bytes > limits.workgroup_bytes {
            return None;
        }
        let lengths = (shortest..=good_size(shortest).next_power_of_two()).filter(|&m| is_good_size(m));
        let all = lengths.filter_map(|m| stages(m, limits, bytes).map(|(stages, cost)| (m, stages, cost)));
        let (padded, stages, _) = all.min_by_key(|&(m, _, cost)| (cost, m))?;
        Some(Core::Bluestein { padded, stages })
    }

    pub fn stages(&self) -> &RadixStages {
        match self {
            Core::Direct(stages) | Core::Bluestein { stages, .. } => stages,
        }
    }

    /// Returns whether one invocation does all butterflies of a line in loops.
    pub fn loops(&self) -> bool {
        self.stages().lanes == 1 && self.stages().radices.len() > 1
    }

    /// Returns the points of a line in workgroup memory, or in the array of an invocation.
    pub fn exchanged(&self, n: u64) -> u64 {
        match self {
            _ if self.stages().radices.len() == 1 => 0,
            Core::Direct(_) => n,
            Core::Bluestein { padded, .. } => *padded,
        }
    }
}

/// Returns the cheapest stages for `n` points and their cost: points handled by invocations and
/// points moved through workgroup memory.
fn stages(n: u64, limits: Limits, bytes: u64) -> Option<(RadixStages, u64)> {
    if !is_smooth(n) {
        return None;
    }
    if n <= limits.alone.max(1) {
        return Some((RadixStages { lanes: 1, radices: vec![n] }, n));
    }
    if let Some(stages) = (!limits.shared).then(|| looped(n, limits, bytes)).flatten() {
        return Some(stages);
    }
    if n * bytes > limits.workgroup_bytes {
        return None;
    }
    // A prime up to 31 is one butterfly although it takes more registers.
    let most = limits.points.max(31);
    let mut best: Option<(RadixStages, u64)> = None;
    for radices in factorizations(n, most) {
        if radices.iter().any(|&radix| radix > limits.points && !super::core::RADICES.contains(&radix)) {
            continue;
        }
        let counts = radices.iter().flat_map(|radix| (1..=4).map(move |times| (n / radix).div_ceil(times)));
        // A single invocation would take its stages in loops, which is for devices with slow
        // barriers.
        let least = if radices.len() > 1 { 2 } else { 1 };
        for lanes in counts.filter(|lanes| (least..=limits.invocations.min(MOST_LANES)).contains(lanes)) {
            let held = |radix: u64| radix * (n / radix).div_ceil(lanes);
            let (most_held, all_held) =
                (radices.iter().map(|&r| held(r)).max().unwrap_or(1), radices.iter().map(|&r| held(r)).sum::<u64>());
            if most_held > 2 * limits.points.max(16) {
                continue;
            }
            let crowded = if most_held > limits.points { 2 } else { 1 };
            let cost = lanes * all_held * crowded + 2 * n * (radices.len() as u64 - 1);
            if best.as_ref().is_none_or(|(stages, least)| (cost, lanes) < (*least, stages.lanes)) {
                best = Some((RadixStages { lanes, radices: radices.clone() }, cost));
            }
        }
    }
    best
}

/// Loops are slower than shared lines below this number of lines per workgroup.
const LEAST_LINES: u64 = 4;

/// Returns the stages of one invocation: few and short, since their code is straight-line.
fn looped(n: u64, limits: Limits, bytes: u64) -> Option<(RadixStages, u64)> {
    // With fewer lines per workgroup most of a vector unit is idle, which costs more than barriers.
    if LEAST_LINES * 2 * n * bytes > limits.workgroup_bytes {
        return None;
    }
    let fits = |radices: &Vec<u64>| radices.iter().all(|r| *r <= limits.points || super::core::RADICES.contains(r));
    let all = factorizations(n, limits.points.max(31)).into_iter().filter(fits);
    let radices = all.min_by_key(|radices| (radices.len(), radices.iter().sum::<u64>()))?;
    let cost = n * (radices.len() as u64 + 2);
    Some((RadixStages { lanes: 1, radices }, cost))
}

/// Primes with a butterfly of their own. Products of these primes are transformed directly.
pub const RADICES: [u64; 11] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31];

/// Returns whether `n` is a product of 2, 3, 5 and 7. Such lengths are transformed fastest.
pub fn is_good_size(n: u64) -> bool {
    n > 0 && [2, 3, 5, 7].into_iter().fold(n, strip) == 1
}

/// Returns the smallest good size that is at least `n`; `n` itself if no good size of 64 bits is.
///
/// ```
/// use meshloom::fft::good_size;
/// assert_eq!([good_size(0), good_size(11), good_size(101), good_size(128)], [1, 12, 105, 128]);
/// ```
#[must_use]
pub fn good_size(n: u64) -> u64 {
    // Large good sizes are rare, so each product of odd primes is doubled until it is long enough.
    // No result is twice as large as `n`.
    let most = n.saturating_mul(2);
    let powers = move |from: u64, factor: u64| {
        successors(Some(from), move |power| power.checked_mul(factor).filter(|&power| power < most))
    };
    let odd = powers(1, 7).flat_map(move |size| powers(size, 5)).flat_map(move |size| powers(size, 3));
    let doubled = odd.filter_map(|size| size.checked_mul(n.div_ceil(size).checked_next_power_of_two()?));
    doubled.min().unwrap_or(n)
}

/// Returns whether `n` is a product of [`RADICES`].
pub(super) fn is_smooth(n: u64) -> bool {
    n > 0 && RADICES.into_iter().fold(n, strip) == 1
}

fn strip(mut n: u64, factor: u64) -> u64 {
    while n.is_multiple_of(factor) {
        n /= factor;
    }
    n
}

/// Returns all ways to write `n` as a product of factors from 2 to `most`, largest first.
pub(super) fn factorizations(n: u64, most: u64) -> Vec<Vec<u64>> {
    fn extend(rest: u64, most: u64, head: &mut Vec<u64>, all: &mut Vec<Vec<u64>>) {
        if rest == 1 {
            all.push(head.clone());
            return;
        }
        for factor in (2..=most.min(rest)).rev().filter(|f| rest.is_multiple_of(*f)) {
            head.push(factor);
            extend(rest / factor, factor, head, all);
            head.pop();
        }
    }
    let mut all = Vec::new();
    extend(n, most, &mut Vec::new(), &mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_of_the_floor_has_a_core() {
        for n in 1..=2048 {
            let core = Core::new(n, FLOOR, 4).unwrap_or_else(|| panic!("{n}"));
            let points = if let Core::Bluestein { padded, .. } = core { padded } else { n };
            let RadixStages { lanes, radices } = core.stages();
            assert_eq!(radices.iter().product::<u64>(), points);
            assert!(*lanes <= 256 && core.exchanged(n) * 4 <= 16384, "{n}: {core:?}");
            assert!(points >= 2 * n - 1 || points == n, "{n}: {core:?}");
            assert!(radices.iter().all(|r| r * (points / r).div_ceil(*lanes) <= 32), "{n}: {core:?}");
        }
        for n in (2049..=4096).filter(|&n| is_smooth(n)) {
            assert!(Core::new(n, FLOOR, 4).is_some(), "{n}");
        }
        assert!(Core::new(4096, FLOOR, 8).is_none() && Core::new(2048, FLOOR, 8).is_some());
    }

    #[test]
    fn lengths_beyond_a_workgroup_are_refused_at_once() {
        // Examining all lengths of convolutions of this prime would take hours.
        assert_eq!(Core::new((1 << 61) - 1, FLOOR, 4), None);
        // The longest convolution that fits has 4096 points.
        assert!(Core::new(2039, FLOOR, 4).is_some() && Core::new(2053, FLOOR, 4).is_none());
        // One invocation needs no workgroup memory.
        let none = Limits { workgroup_bytes: 0, ..FLOOR };
        assert!(Core::new(8, none, 4).is_some() && Core::new(17, none, 4).is_none());
    }

    #[test]
    fn one_invocation_takes_its_stages_in_loops() {
        let software = Limits { shared: false, alone: 32, workgroup_bytes: 32768, ..FLOOR };
        let core = |n: u64| Core::new(n, software, 4).unwrap_or_else(|| panic!("{n}"));
        assert!(!core(32).loops() && core(64).loops() && core(1024).loops() && !core(2048).loops());
        assert_eq!(core(1024).stages().radices.len(), 3);
        for n in 1..=512 {
            let core = core(n);
            let points = if let Core::Bluestein { padded, .. } = core { padded } else { n };
            assert_eq!(core.stages().radices.iter().product::<u64>(), points);
            assert!(core.exchanged(n) * 8 <= 32768, "{n}: {core:?}");
        }
    }

    #[test]
    fn powers_of_two_take_few_stages() {
        let radices = |n: u64| Core::new(n, FLOOR, 4).unwrap().stages().clone();
        assert_eq!(radices(16), RadixStages { lanes: 1, radices: vec![16] });
        assert_eq!(radices(256), RadixStages { lanes: 16, radices: vec![16, 16] });
        assert_eq!(radices(4096), RadixStages { lanes: 256, radices: vec![16, 16, 16] });
        assert_eq!(radices(512).radices.len(), 3);
    }

    #[test]
    fn factorizations_multiply_to_the_number() {
        assert_eq!(factorizations(12, 12), [vec![12], vec![6, 2], vec![4, 3], vec![3, 2, 2]]);
        assert_eq!(factorizations(1, 16), [Vec::<u64>::new()]);
        assert!(factorizations(34, 16).is_empty(), "17 is too large");
        assert!(factorizations(8192, 64).iter().all(|f| f.iter().product::<u64>() == 8192));
    }

    #[test]
    fn good_sizes_are_found_however_far_they_are() {
        for n in 0..3000 {
            assert_eq!(good_size(n), (n.max(1)..).find(|&n| is_good_size(n)).unwrap(), "{n}");
        }
        assert_eq!(good_size((1 << 63) + 1), 9_223_681_600_000_000_000, "no other is nearer");
        assert_eq!(good_size(u64::MAX), u64::MAX);
    }

    #[test]
    fn smooth_lengths_have_only_known_primes() {
        assert!([1, 2, 31, 1001, 4096, 17 * 19 * 23].into_iter().all(is_smooth));
        assert!(![0, 37, 74, 4093].into_iter().any(is_smooth));
    }
}
