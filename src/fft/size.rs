//! Which lengths can be transformed, and how they are factored.

use super::error::FftError;

/// Whether `n` is a product of 2, 3, 5 and 7.
pub fn is_good_size(n: u64) -> bool {
    n > 0 && [2, 3, 5, 7].into_iter().fold(n, strip) == 1
}

/// The smallest good size that is at least `n`.
///
/// ```
/// use meshloom::fft::good_size;
/// assert_eq!([good_size(0), good_size(11), good_size(101), good_size(128)], [1, 12, 105, 128]);
/// ```
pub fn good_size(n: u64) -> u64 {
    (n.max(1)..).find(|&n| is_good_size(n)).unwrap_or(n)
}

/// Checks that lines of `n` points can be transformed at all.
///
/// # Errors
/// [`FftError::Empty`], [`FftError::Factor`].
pub fn check_size(n: u64) -> Result<(), FftError> {
    if n == 0 {
        return Err(FftError::Empty);
    }
    if is_good_size(n) {
        return Ok(());
    }
    let below = (1..n).rev().find(|&n| is_good_size(n)).unwrap_or(1);
    Err(FftError::Factor { n, factor: largest_factor(n), below, above: good_size(n) })
}

fn strip(mut n: u64, factor: u64) -> u64 {
    while n % factor == 0 {
        n /= factor;
    }
    n
}

fn largest_factor(mut n: u64) -> u64 {
    let (mut largest, mut factor) = (1, 2);
    while factor * factor <= n {
        if n % factor == 0 {
            largest = factor;
            n = strip(n, factor);
        }
        factor += 1;
    }
    largest.max(n)
}

/// The radices of the stages of a line of `n` points, `n` a good size: as few as possible of at most 8.
pub(super) fn radices(n: u64) -> Vec<u64> {
    let mut radices = Vec::new();
    let mut rest = n;
    for odd in [7, 5, 3] {
        while rest % odd == 0 {
            radices.push(odd);
            rest /= odd;
        }
    }
    let twos = rest.trailing_zeros();
    let (eights, last): (u32, &[u64]) = match (twos % 3, twos) {
        (0, _) => (twos / 3, &[]),
        (1, 1) => (0, &[2]),
        (1, _) => ((twos - 4) / 3, &[4, 4]),
        _ => (twos / 3, &[4]),
    };
    radices.extend(std::iter::repeat_n(8, eights as usize));
    radices.extend(last);
    if radices.is_empty() {
        radices.push(1);
    }
    radices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radices_multiply_to_the_size() {
        for n in (1..5000).filter(|&n| is_good_size(n)) {
            let radices = radices(n);
            assert_eq!(radices.iter().product::<u64>(), n);
            assert!(radices.iter().all(|r| [1, 2, 3, 4, 5, 7, 8].contains(r)), "{n}: {radices:?}");
        }
    }

    #[test]
    fn bad_sizes_name_their_neighbours() {
        assert_eq!(check_size(0), Err(FftError::Empty));
        assert_eq!(check_size(11), Err(FftError::Factor { n: 11, factor: 11, below: 10, above: 12 }));
        assert_eq!(check_size(2 * 13), Err(FftError::Factor { n: 26, factor: 13, below: 25, above: 27 }));
        assert!((1..=10).all(|n| check_size(n).is_ok()));
    }
}
