//! Lengths and their factors.

use std::iter::successors;

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
pub fn good_size(n: u64) -> u64 {
    // Large good sizes are rare, so each product of odd primes is doubled until it is long enough. No
    // result is twice as large as `n`.
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
