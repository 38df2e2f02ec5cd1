//! Tables for kernels: roots of unity (twiddles) and chirps, computed on the host in f64.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

use super::roots::root;

/// A part of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// The roots of unity `exp(-2 pi i k / n)`.
    Roots(u64),
    /// The chirp of Bluestein's algorithm for `n` points.
    Chirp(u64),
    /// The spectrum of the conjugate chirp of `n` points, wrapped periodically into `padded` points and divided by `padded`.
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

/// Returns the spectrum of the conjugate chirp, wrapped periodically into `padded` points and divided by `padded`.
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
}
