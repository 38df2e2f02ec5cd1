//! Counter-based random numbers and white noise: the same for any number of ranks.
//!
//! Element i of a stream is a function of (seed, i) alone, where i counts over the whole grid. Any
//! rank computes any part of a field, in any order, and the field is the same. Noise of modes is
//! also the same for any number of sites: doubling them refines the same field.

use std::f64::consts::PI;

/// Philox4x32-10 of Salmon et al. (2011): 128 random bits for a counter under a key.
///
/// ```
/// // The published answer for zeros.
/// let zeros = meshloom::random::philox4x32([0; 4], [0; 2]);
/// assert_eq!(zeros, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
/// ```
#[must_use]
pub const fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const ROUNDS: usize = 10;
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    // The golden ratio and sqrt(3) - 1 in 32 bits, which are added to the key in each round.
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    let mut round = 0;
    while round < ROUNDS {
        let even = MULTIPLIERS[0] as u64 * c0 as u64;
        let odd = MULTIPLIERS[1] as u64 * c2 as u64;
        (c0, c1, c2, c3) = ((odd >> 32) as u32 ^ c1 ^ k0, odd as u32, (even >> 32) as u32 ^ c3 ^ k1, even as u32);
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
        round += 1;
    }
    [c0, c1, c2, c3]
}

/// Element `index` of the white noise of `seed`: standard normal, at most 8.66 in size.
///
/// The counter is (index low, index high, 0, 0) and the key (seed low, seed high); the four words
/// make two uniform numbers of 53 bits, and Box and Muller's transform (its cosine) one normal
/// number of them. The bits of the result are those of the platform's `ln` and `cos`, which may
/// differ in the last place between operating systems.
///
/// ```
/// use meshloom::random::white_noise;
///
/// assert_eq!(white_noise(1, 7), white_noise(1, 7));
/// assert_ne!(white_noise(1, 7), white_noise(2, 7));
/// ```
#[must_use]
pub fn white_noise(seed: u64, index: u64) -> f64 {
    normal(seed, [index as u32, (index >> 32) as u32, 0, 0])
}

/// Returns the real and imaginary part of the mode of wave vector `m` in the white noise of `seed`,
/// each standard normal: a function of `m` alone, so that lattices of any number of sites share the
/// modes that they have in common.
///
/// Of a mode and its conjugate twin one gives the numbers of both: that whose last component which
/// is not 0 is positive. A component at the Nyquist frequency of an even lattice counts as 0 for
/// that, and is positive. A mode that is its own twin has no imaginary part, and sqrt(2) times the
/// real one.
///
/// The counters are (m0, m1, m2, 1) and (m0, m1, m2, 2), in two's complement: no element of
/// [`white_noise`] has them.
///
/// ```
/// use meshloom::random::mode_noise;
///
/// assert_eq!(mode_noise(1, [3, -2, 5]), mode_noise(1, [3, -2, 5]));
/// assert_ne!(mode_noise(1, [3, -2, 5]), mode_noise(1, [3, 2, 5]));
/// ```
#[must_use]
pub fn mode_noise(seed: u64, m: [i32; 3]) -> [f64; 2] {
    [1, 2].map(|part| normal(seed, [m[0] as u32, m[1] as u32, m[2] as u32, part]))
}

/// Returns the normal number of a counter.
fn normal(seed: u64, counter: [u32; 4]) -> f64 {
    let words = philox4x32(counter, [seed as u32, (seed >> 32) as u32]);
    let radius = uniform(words[0], words[1]);
    let angle = uniform(words[2], words[3]);
    (-2.0 * radius.ln()).sqrt() * (2.0 * PI * angle).cos()
}

/// Fills a run of neighboring elements: `out[i] = white_noise(seed, first + i)`, rounded to `f32`.
///
/// A rank fills its box of the grid row by row, where `first` is the global index of the row's
/// first element: row (i, j) of an n^3 grid in C order begins at `(i * n + j) * n`.
pub fn fill_white_noise(seed: u64, first: u64, out: &mut [f32]) {
    for (i, value) in out.iter_mut().enumerate() {
        *value = white_noise(seed, first.wrapping_add(i as u64)) as f32;
    }
}

/// Returns a number in (0, 1]: the middle of one of 2^53 equal parts (so that its logarithm is
/// finite).
fn uniform(high: u32, low: u32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    (bits as f64 + 0.5) * (-53.0_f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox4x32([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        // Digits of pi, as in the authors' file of known answers.
        assert_eq!(
            philox4x32([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn uniform_stays_where_the_logarithm_is_finite() {
        assert_eq!(uniform(0, 0), (-54.0_f64).exp2());
        assert_eq!(uniform(u32::MAX, u32::MAX), 1.0);
        assert!((-2.0 * uniform(0, 0).ln()).sqrt() < 8.66);
    }

    #[test]
    fn moments_are_those_of_a_normal_distribution() {
        let count = 1 << 18;
        let n = f64::from(count);
        let moment = |p: i32| (0..count).map(|i| white_noise(5, i as u64).powi(p)).sum::<f64>() / n;
        // Five standard errors: the variances of x, x^2, x^3, x^4 are 1, 2, 15, 96.
        for (p, mean, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0_f64)] {
            let found = moment(p);
            assert!((found - mean).abs() < 5.0 * (variance / n).sqrt(), "moment {p}: {found}");
        }
        // Neighbors, and the same element under neighboring seeds, are uncorrelated.
        let lag = (0..count as u64).map(|i| white_noise(5, i) * white_noise(5, i + 1)).sum::<f64>() / n;
        let seeds = (0..count as u64).map(|i| white_noise(5, i) * white_noise(6, i)).sum::<f64>() / n;
        assert!(lag.abs() < 5.0 / n.sqrt() && seeds.abs() < 5.0 / n.sqrt());
    }

    #[test]
    fn a_run_is_its_elements() {
        // Across the boundary of the counter's low word.
        let first = u64::from(u32::MAX) - 2;
        let mut run = [0.0; 6];
        fill_white_noise(9, first, &mut run);
        for (i, &value) in run.iter().enumerate() {
            assert_eq!(value, white_noise(9, first + i as u64) as f32);
        }
        assert_ne!(run[3], white_noise(9, 0) as f32);
        fill_white_noise(9, u64::MAX, &mut run);
        assert_eq!(run[1], white_noise(9, 0) as f32);
    }
}
