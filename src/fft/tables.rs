//! Tables for kernels: roots of unity (twiddles) and chirps, computed on the host in f64.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;
use std::f64::consts::{FRAC_1_SQRT_2, TAU};

/// A part of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// The roots of unity `exp(-2 pi i k / n)`.
    Roots(u64),
    /// The chirp of Bluestein's algorithm for `n` points.
    Chirp(u64),
    /// The spectrum of the conjugate chirp of `n` points, wrapped periodically into `padded` points
    /// and divided by `padded`.
    ChirpSpectrum {
        /// Points of the chirp.
        n: u64,
        /// Points of the circular convolution.
        padded: u64,
    },
    /// `count` roots of order `n`, every `step`-th.
    Every {
        /// Order.
        n: u64,
        /// Step.
        step: u64,
        /// The number of roots.
        count: u64,
    },
}

impl Section {
    fn len(self) -> u64 {
        match self {
            Section::Roots(n) | Section::Chirp(n) => n,
            Section::ChirpSpectrum { padded, .. } => padded,
            Section::Every { count, .. } => count,
        }
    }

    fn values(self) -> Vec<[f64; 2]> {
        match self {
            Section::Roots(n) => (0..n).map(|k| root(k, n)).collect(),
            Section::Chirp(n) => chirp(n),
            Section::ChirpSpectrum { n, padded } => chirp_spectrum(n, padded),
            Section::Every { n, step, count } => (0..count).map(|k| root(k * step, n)).collect(),
        }
    }
}

/// The table of a kernel: sections, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    sections: Vec<Section>,
}

impl Table {
    /// Creates a table of one section.
    pub fn of(section: Section) -> Self {
        Table { sections: vec![section] }
    }

    /// Returns the start of a section; adds the section if it is new.
    pub(super) fn at(&mut self, section: Section) -> u64 {
        let mut start = 0;
        for &have in &self.sections {
            if have == section {
                return start;
            }
            start += have.len();
        }
        self.sections.push(section);
        start
    }

    /// Returns the number of complex entries.
    pub fn len(&self) -> u64 {
        self.sections.iter().map(|section| section.len()).sum()
    }

    /// Returns whether the table has no sections.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Returns the entries.
    pub fn values(&self) -> Vec<[f64; 2]> {
        self.sections.iter().flat_map(|section| section.values()).collect()
    }
}

/// Returns the chirp `exp(-i pi k^2 / n)` of Bluestein's algorithm.
pub(super) fn chirp(n: u64) -> Vec<[f64; 2]> {
    (0..n).map(|k| root((u128::from(k) * u128::from(k) % u128::from(2 * n)) as u64, 2 * n)).collect()
}

/// Returns the spectrum of the conjugate chirp, wrapped periodically into `padded` points and
/// divided by `padded`.
pub(super) fn chirp_spectrum(n: u64, padded: u64) -> Vec<[f64; 2]> {
    let mut data = vec![Complex::new(0.0, 0.0); padded as usize];
    for (k, [c, s]) in chirp(n).into_iter().enumerate() {
        let value = Complex::new(c, -s) / padded as f64;
        data[k] = value;
        data[(padded as usize - k) % padded as usize] = value;
    }
    FftPlanner::new().plan_fft_forward(padded as usize).process(&mut data);
    data.into_iter().map(|v| [v.re, v.im]).collect()
}

/// The difference between a turn and `TAU`.
const TAU_REST: f64 = 2.449_293_598_294_706_4e-16;

/// Returns `exp(-2 pi i k / n)` rounded to the nearest `f64` or the next, for `n` below 2^50. Equal
/// roots are equal numbers.
///
/// The angle is measured from the nearest axis as a whole number of parts of a turn. It is at most
/// an eighth of a turn and exact. Sines of angles of whole turns would inherit the rounding of the
/// angles, up to four units.
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

/// Returns sine and cosine of `2 pi part / whole` of whole numbers. The angle is a sum of two
/// numbers, the second of which is the rounding error of the first. At an eighth of a turn both are
/// the same number.
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

    #[test]
    fn a_convolution_with_the_chirp_is_a_transform() {
        let (n, padded) = (7u64, 15u64);
        let (chirp, spectrum) = (chirp(n), chirp_spectrum(n, padded));
        let x: Vec<Complex<f64>> = (0..n).map(|k| Complex::new((k * k % 5) as f64, k as f64)).collect();
        let of = |[re, im]: [f64; 2]| Complex::new(re, im);
        let mut work = vec![Complex::new(0.0, 0.0); padded as usize];
        (0..n as usize).for_each(|k| work[k] = x[k] * of(chirp[k]));
        let mut planner = FftPlanner::new();
        planner.plan_fft_forward(padded as usize).process(&mut work);
        work.iter_mut().zip(&spectrum).for_each(|(w, &s)| *w *= of(s));
        planner.plan_fft_inverse(padded as usize).process(&mut work);
        for k in 0..n {
            let want: Complex<f64> = (0..n).map(|j| x[j as usize] * of(root(j * k, n))).sum();
            assert!((work[k as usize] * of(chirp[k as usize]) - want).norm() < 1e-12, "{k}");
        }
    }

    /// Returns sine and cosine of `2 pi k / n`, at most an eighth of a turn, by their series in
    /// whole numbers of 2^-63.
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
