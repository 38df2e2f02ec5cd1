//! Modes of a distributed spectrum: their places, which bin of wavenumber each falls into, how many
//! modes a bin has and their mean wavenumber. Geometry alone; sums are integers of 128 bits at a
//! point that all ranks share, so that they do not depend on their order. Pure.

use std::f64::consts::PI;

use super::MeshError;
use crate::fft::Wave;
use crate::grid::{Box3, extent};

/// Squares beyond all bins; the sum of three stays within 64 bits.
const FAR: f64 = (1u64 << 60) as f64;
/// Bins at most: the last whose edges are below [`FAR`].
const MOST_BINS: u64 = (1 << 14) - 1;

/// The bins of a spectrum: one fundamental mode of the longest side wide, around its multiples,
/// from 1 up to the Nyquist frequency of the coarsest axis.
pub(super) struct ModeBins {
    /// Bins are 1 to this.
    pub count: usize,
    /// The Nyquist frequency of the coarsest axis.
    nyquist: f64,
    /// Squares of the wavenumbers of this rank's part by axis, in fundamental modes, times 2^32:
    /// sums of three are compared with edges in integers, so that hosts and devices agree.
    pub squares: [Vec<u64>; 3],
}

/// Modes of a bin and their wavenumbers, summed over a rank's part; wavenumbers in units of
/// [`ModeBins::unit`].
pub(super) type ModeSums = Vec<[i128; 2]>;

impl ModeBins {
    /// Creates the bins of a spectrum, or [`MeshError::Bins`] where there would be too many.
    pub fn new(geometry: &SpectrumGeometry) -> Result<Self, MeshError> {
        let (shape, size) = (geometry.shape, geometry.size);
        let (longest, nyquist) = (geometry.longest(), geometry.nyquist());
        let count = geometry.bins();
        if count > MOST_BINS {
            return Err(MeshError::Bins { bins: count, most: MOST_BINS });
        }
        let squares = [0, 1, 2].map(|axis| {
            let square = |index: u64| {
                // Whole numbers along the longest side.
                let mode = Wave::new(index, shape[axis], 2.0 * PI).k.round() * (longest / size[axis]);
                (mode * mode * 2f64.powi(32)).min(FAR).round() as u64
            };
            geometry.part[axis].clone().map(square).collect()
        });
        Ok(ModeBins { count: count as usize, nyquist, squares })
    }

    /// Returns the [`squares`](Self::squares) as real numbers, in fundamental modes: those of modes
    /// in bins, whatever the unit of length is; beyond all bins they end at some number.
    pub fn real_squares(&self) -> Vec<f32> {
        self.squares.iter().flatten().map(|&square| square as f32 / 2f32.powi(32)).collect()
    }

    /// Returns the bin of the sum of three squares; any number above [`count`](Self::count) beyond
    /// the last.
    pub fn of(&self, square: u64) -> usize {
        // The lower edge of a bin from 1 on, (bin - 1/2)^2.
        let edge = |bin: u64| ((bin * bin - bin) << 32) + (1 << 30);
        if square >= 1 << 60 {
            return usize::MAX;
        }
        let near = ((square as f64 / 2f64.powi(32)).sqrt() + 0.5) as u64;
        let low = if near > 0 && square < edge(near) { near - 1 } else { near };
        if square < edge(low + 1) { low as usize } else { low as usize + 1 }
    }

    /// Returns the fixed point in which wavenumbers are summed.
    pub fn unit(&self) -> Unit {
        Unit::holding(2.0 * self.nyquist, 84)
    }

    /// Returns the modes and wavenumbers of each bin, 0 included, over this rank's part. Modes
    /// whose waves differ only in sign are counted at once.
    pub fn sums(&self, geometry: &SpectrumGeometry) -> ModeSums {
        let axes = [0, 1, 2].map(|axis| self.distinct(geometry, axis));
        let (mut sums, unit) = (vec![[0; 2]; self.count + 1], self.unit());
        for x in &axes[0] {
            for y in &axes[1] {
                for z in &axes[2] {
                    // Waves along an axis are in order: those that follow are beyond the last bin,
                    // too.
                    let Some(sum) = sums.get_mut(self.of(x.square + y.square + z.square)) else { break };
                    let modes = x.modes * y.modes * z.modes;
                    let k = (x.k * x.k + y.k * y.k + z.k * z.k).sqrt();
                    *sum = [sum[0] + modes, sum[1] + modes * unit.integer(k)];
                }
            }
        }
        sums
    }

    /// Returns the absolute wavenumbers of this rank's part along an axis, and the number of modes
    /// that have each. On the half axis they stand for their mirror images, too.
    fn distinct(&self, geometry: &SpectrumGeometry, axis: usize) -> Vec<Along> {
        let mut found: Vec<Along> = geometry.part[axis]
            .clone()
            .zip(&self.squares[axis])
            .map(|(index, &square)| {
                let k = Wave::new(index, geometry.shape[axis], geometry.size[axis]).k.abs();
                Along { k, square, modes: if axis == 2 { geometry.weight(index).into() } else { 1 } }
            })
            .collect();
        found.sort_by(|a, b| a.k.total_cmp(&b.k));
        found.dedup_by(|next, kept| {
            let same = next.k == kept.k;
            kept.modes += if same { next.modes } else { 0 };
            same
        });
        found
    }
}

/// A wavenumber along an axis.
struct Along {
    k: f64,
    square: u64,
    modes: i128,
}

/// A fixed point: the power of two that makes integers of values.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    /// The power as two factors: f64's own range of powers is too small for the inverse of some
    /// values.
    up: [f64; 2],
    /// Their inverses.
    down: [f64; 2],
}

impl Unit {
    /// Creates the point at which finite values up to `largest` take `bits` bits.
    pub fn holding(largest: f64, bits: i32) -> Self {
        // The power of two above the largest value.
        let power = bits - ((largest.to_bits() >> 52) as i32 - 1022);
        let halves = [power / 2, power - power / 2];
        Unit { up: halves.map(|half| 2f64.powi(half)), down: halves.map(|half| 2f64.powi(-half)) }
    }

    pub fn integer(self, value: f64) -> i128 {
        (value * self.up[0] * self.up[1]) as i128
    }

    pub fn real(self, value: i128) -> f64 {
        self.divided(value as f64)
    }

    /// Returns a sum of integers, or a mean of them, as a value.
    pub fn divided(self, value: f64) -> f64 {
        value * self.down[0] * self.down[1]
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_those_of_the_rounded_wavenumber() {
        let cube = SpectrumGeometry { shape: [64; 3], size: [10.0; 3], part: [0..64, 0..64, 0..33] };
        let bins = ModeBins::new(&cube).unwrap();
        assert_eq!(bins.count, 32);
        // Squares are whole numbers, and no edge is one.
        for square in 0..(3 * 32 * 32u64) {
            let want =
                (0..).take_while(|&bin: &i64| (2 * bin - 1) * (2 * bin - 1) <= 4 * square as i64 || bin == 0).last();
            assert_eq!(bins.of(square << 32) as i64, want.unwrap(), "{square}");
        }
        assert_eq!(bins.of(1 << 61), usize::MAX);
        // A mode on an edge belongs to the bin above: 1.5 of the fundamental mode.
        let flat = SpectrumGeometry { shape: [8, 12, 8], size: [3.0, 2.0, 3.0], part: [0..8, 0..12, 0..5] };
        let bins = ModeBins::new(&flat).unwrap();
        assert_eq!((bins.of(bins.squares[1][1]), bins.of(bins.squares[1][1] - 1)), (2, 1));
    }

    #[test]
    fn there_are_as_many_bins_as_squares_hold() {
        let line = |cells: u64| SpectrumGeometry {
            shape: [cells, 1, 1],
            size: [cells as f64, 1.0, 1.0],
            part: [0..1, 0..1, 0..1],
        };
        let longest = SpectrumGeometry { part: [16383..16384, 0..1, 0..1], ..line(2 * MOST_BINS) };
        let bins = ModeBins::new(&longest).unwrap();
        assert_eq!((bins.count as u64, bins.of(bins.squares[0][0]) as u64), (MOST_BINS, MOST_BINS));
        let more = ModeBins::new(&line(2 * MOST_BINS + 2)).map(|bins| bins.count);
        assert_eq!(more, Err(MeshError::Bins { bins: MOST_BINS + 1, most: MOST_BINS }));
    }

    #[test]
    fn squares_as_real_numbers_know_no_unit_of_length() {
        let of = |unit: f64, flat: f64| {
            let size = [3.0 * unit, 1.5 * unit, flat * unit];
            let geometry = SpectrumGeometry { shape: [4, 2, 4], size, part: [0..4, 0..2, 0..3] };
            ModeBins::new(&geometry).unwrap().real_squares()
        };
        assert_eq!(of(1.0, 1.0), [0.0, 1.0, 4.0, 1.0, 0.0, 4.0, 0.0, 9.0, 36.0]);
        for unit in [1e-50, 1e50] {
            assert_eq!(of(unit, 1.0), of(1.0, 1.0));
        }
        assert!(of(1.0, 1e-50).iter().all(|square| (0.0..=268_435_456.0).contains(square)));
    }

    #[test]
    fn sums_of_parts_are_those_of_the_whole() {
        let whole = SpectrumGeometry { shape: [7, 6, 8], size: [3.0, 1.1, 2.3], part: [0..7, 0..6, 0..5] };
        let bins = ModeBins::new(&whole).unwrap();
        let want = bins.sums(&whole);
        let mut plain = vec![0i128; bins.count + 1];
        for (i, j, k) in (0..7).flat_map(|i| (0..6).flat_map(move |j| (0..5).map(move |k| (i, j, k)))) {
            let waves = whole.waves([i, j, k]);
            let k_all = waves.iter().map(|wave| wave.k * wave.k).sum::<f64>().sqrt();
            if let Some(sum) = plain.get_mut((k_all / (2.0 * PI / 3.0) + 0.5).floor() as usize) {
                *sum += if k == 0 || k == 4 { 1 } else { 2 };
            }
        }
        assert_eq!(want.iter().map(|sum| sum[0]).collect::<Vec<_>>(), plain);
        let mut sums = vec![[0; 2]; want.len()];
        for part in [[0..3, 0..6, 0..5], [3..7, 0..2, 0..5], [3..7, 2..6, 0..1], [3..7, 2..6, 1..5]] {
            let geometry = SpectrumGeometry { part, ..whole.clone() };
            for (sum, more) in sums.iter_mut().zip(ModeBins::new(&geometry).unwrap().sums(&geometry)) {
                *sum = [sum[0] + more[0], sum[1] + more[1]];
            }
        }
        assert_eq!(sums, want);
    }
}
