//! Places of the modes of a distributed spectrum.

use std::f64::consts::PI;

use crate::fft::Wave;
use crate::grid::{Box3, extent};

/// A spectrum's geometry: the mesh, the box and the part of the half spectrum that this rank holds.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectrumGeometry {
    /// Cells along each axis of the mesh.
    pub shape: [u64; 3],
    /// Size of the box.
    pub size: [f64; 3],
    /// Modes of this rank, C order; the last axis is the half one.
    pub part: Box3,
}

impl SpectrumGeometry {
    /// Returns the bins of its spectra, one fundamental mode of the longest side wide, from 1 up to
    /// the Nyquist frequency of the coarsest axis; 0 where that is below the fundamental mode.
    #[must_use]
    pub fn bins(&self) -> u64 {
        (self.nyquist() * self.longest() / (2.0 * PI) + 1e-9).floor() as u64
    }

    /// Returns the longest side of the box.
    pub(super) fn longest(&self) -> f64 {
        self.size.iter().fold(0.0, |a: f64, &b| a.max(b))
    }

    /// Returns the Nyquist frequency of the coarsest axis.
    pub(super) fn nyquist(&self) -> f64 {
        (0..3).map(|a| PI * self.shape[a] as f64 / self.size[a]).fold(f64::INFINITY, f64::min)
    }

    /// Returns the waves of the mode with this index in each axis of the part.
    #[must_use]
    pub fn waves(&self, at: [u64; 3]) -> [Wave; 3] {
        [0, 1, 2].map(|a| Wave::new(self.part[a].start + at[a], self.shape[a], self.size[a]))
    }

    /// Returns how many modes of the whole spectrum one with this index along the half axis stands
    /// for.
    pub(super) fn weight(&self, half: u64) -> u64 {
        if half == 0 || 2 * half == self.shape[2] { 1 } else { 2 }
    }

    /// Returns where the mode at an index of the part stands in the whole half spectrum.
    pub(super) fn place(&self, index: u64) -> [u64; 3] {
        let [_, n1, n2] = extent(&self.part).map(|n| n.max(1));
        let at = [index / n2 / n1, index / n2 % n1, index % n2];
        [0, 1, 2].map(|a| self.part[a].start + at[a])
    }

    /// Returns what makes powers per volume of squares of modes: V / N^2.
    pub(super) fn scale(&self) -> f64 {
        self.size.iter().product::<f64>() / self.shape.iter().map(|&n| n as f64).product::<f64>().powi(2)
    }

    /// Calls `body` with the index in the array and in each axis of every mode.
    pub(super) fn modes(&self, mut body: impl FnMut(usize, [u64; 3])) {
        let [n0, n1, n2] = extent(&self.part);
        let mut index = 0;
        for i in 0..n0 {
            for j in 0..n1 {
                for k in 0..n2 {
                    body(index, [i, j, k]);
                    index += 1;
                }
            }
        }
    }
}
