
use std::f64::consts::{FRAC_1_SQRT_2, TAU};

/// The difference between a turn and `TAU`.
const TAU_REST: f64 = 2.449_293_598_294_706_4e-16;

/// Returns `exp(-2 pi i k / n)` rounded to the nearest `f64` or the next, for `n` below 2^50. Equal roots
/// are equal numbers.
///
/// The angle is measured from the nearest axis as a whole number of parts of a turn. It is at most an
/// eighth of a turn and exact. Sines of angles of whole turns would inherit the rounding of the angles, up
/// to four units.
pub(super) fn root(k: u64, n: u64) -> [f64; 2] {
    let k = k % n;
    let quarter = (8 * u128::from(k) / u128::from(n)).div_ceil(2);
    // In units of a quarter of 1/n, quarters of a turn are whole numbers.
    let rest = 4 * i128::from(k) - quarter as i128 * i128::from(n);
    let (s, c) = sin_cos(rest as f64, 4.0 * n as f64);
    match quarter {
        1 => [-s, -c],
        2 => [-c, s],
        3 => [s, c],
        _ => [c, -s],
    }
}

/// Returns sine and cosine of `2 pi part / whole` of whole numbers. The angle is a sum of two numbers, the
/// second of which is the rounding error of the first. At an eighth of a turn both are the same number.
fn sin_cos(part: f64, whole: f64) -> (f64, f64) {
    if 8.0 * part.abs() == whole {
        return (FRAC_1_SQRT_2.copysign(part), FRAC_1_SQRT_2);
    }
    let turns = part / whole;
    let turns_rest = (-turns).mul_add(whole, part) / whole;
    let angle = TAU * turns;
    let angle_rest = TAU.mul_add(turns, -angle) + TAU_REST * turns + TAU * turns_rest;
    let (s, c) = angle.sin_cos();
    (c.mul_add(angle_rest, s), (-s).mul_add(angle_rest, c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns sine and cosine of `2 pi k / n`, at most an eighth of a turn, by their series in whole numbers
    /// of 2^-63.
    fn series(k: u64, n: u64) -> [f64; 2] {
        // 2 pi in 2^-60.
        const TURN: u128 = 0x6487_ED51_10B4_611A;
        let angle = (TURN * 8 * u128::from(k) / u128::from(n)) as i128;
        let (mut sums, mut term) = ([0i128; 2], 1i128 << 63);
        for order in 0..24 {
            let sign = if order % 4 < 2 { 1 } else { -1 };
            sums[(order as usize + 1) % 2] += sign * term;
            term = ((term * angle) >> 63) / (order + 1);
        }
        sums.map(|sum| sum as f64 / 2f64.powi(63))
    }

    #[test]
    fn roots_are_roots() {
        for n in [1u64, 2, 3, 4, 5, 7, 8, 12, 16, 17, 37, 100, 1009, 1 << 20, 9_999_991] {
            for k in (0..n).step_by((n / 1000).max(1) as usize) {
                let [c, s] = root(k, n);
                assert_eq!([c, -s], root(n - k, n), "the conjugate of {k} of {n}");
                assert_eq!([c, s], root(3 * k, 3 * n), "{k} of {n}");
                if n % 4 == 0 {
                    assert_eq!([s, -c], root(k + n / 4, n), "{k} of {n}, a quarter of a turn on");
                }
                let angle = -TAU * k as f64 / n as f64;
                assert!((c - angle.cos()).abs() < 2e-15 && (s - angle.sin()).abs() < 2e-15, "{k} of {n}");
                if 8 * k <= n {
                    let [sine, cosine] = series(k, n);
                    let errors = [c - cosine, s + sine].map(f64::abs);
                    assert!(errors.iter().all(|error| *error <= f64::EPSILON / 2.0), "{k} of {n}: {errors:?}");
                }
            }
        }
    }
}
