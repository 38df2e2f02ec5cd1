//! Bins of the modes of a mesh by their wavenumber.

use super::{Gather, Leaf, Result, Space, Support, refuse};
use crate::fft::Values;
use crate::gpu::{Array, Kernel, KernelSource};
use crate::grid::{Mesh, extent, volume};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct BinParams {
        /// Modes of this rank by axis, and bins.
        local: [u32; 4],
    }
}

/// Returns the kernel that finds the bins of modes.
pub(super) fn source() -> KernelSource {
    KernelSource::new("operators::wavenumber_bins", include_str!("../../shaders/operators/wavenumber_bins.wgsl"))
        .params::<BinParams>()
}

/// Bins of wavenumbers `k = 2 pi |m / L|` in integers, so that a mode is in the same bin on every
/// device and rank: the squares of the modes of each axis in a common unit, whose sums are compared
/// with limits. The integers are exact if the squares of the sides have a ratio of small integers,
/// as for cubes. Otherwise they are rounded to 2^-31 of the largest one.
#[derive(Clone, Debug, PartialEq)]
pub struct Wavenumbers {
    mesh: Mesh,
    /// The integer of each mode number of an axis, from 0 on.
    squares: [Vec<u32>; 3],
    /// `k^2` of the integer 1.
    unit: f64,
    /// Bin `b` has the integers `limits[b]..limits[b + 1]`.
    limits: Vec<u32>,
    /// The wavenumber of each bin.
    values: Vec<f64>,
}

/// Maximum sum of squares, for [`Wavenumbers::unique`].
const MOST_SUMS: u64 = 1 << 30;
/// Maximum number of different wavenumbers for sides without a common measure. One workgroup of 256
/// invocations computes their amplitudes in each product of a fit, 4096 each, in six passes.
const MOST_COMBINATIONS: usize = 1 << 20;

impl Wavenumbers {
    /// Creates one bin for each wavenumber of the modes of the grid, from 0 on.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for too many wavenumbers (use
    ///   [`edges`](Self::edges)), and for sides outside 1e-100 to 1e100.
    pub fn unique(mesh: &Mesh) -> Result<Self> {
        Self::unique_along(mesh, [true; 3])
    }

    /// Creates one bin for each wavenumber along some axes; the others do not count.
    ///
    /// # Errors
    /// - Same as [`unique`](Self::unique).
    pub fn unique_along(mesh: &Mesh, axes: [bool; 3]) -> Result<Self> {
        let shape = [0, 1, 2].map(|a| if axes[a] { mesh.shape()[a] } else { 1 });
        let mut found = Self::unique_of(mesh, shape)?;
        for axis in (0..3).filter(|&a| !axes[a]) {
            found.squares[axis] = vec![0; modes(mesh.shape()[axis]).count()];
        }
        Ok(found)
    }

    /// Creates one bin for each wavenumber of `shape` modes in the box of `mesh`.
    fn unique_of(mesh: &Mesh, shape: [u64; 3]) -> Result<Self> {
        check_sides(mesh)?;
        let Some((squares, unit)) = exact(shape, mesh.size()) else { return Self::unique_rounded(mesh, shape) };
        let most: u64 = squares.iter().map(|of| u64::from(of.last().copied().unwrap_or(0))).sum();
        if most >= MOST_SUMS {
            return refuse("wavenumbers", format!("{most} different squares of wavenumbers; give edges of bins"));
        }
        let sums = sums_of(&squares, most as usize);
        let values = sums.iter().map(|&sum| (unit * f64::from(sum)).sqrt()).collect();
        let limits = sums.iter().copied().chain([most as u32 + 1]).collect();
        Ok(Wavenumbers { mesh: mesh.without_ghosts(), squares, unit, limits, values })
    }

    /// Creates bins for sides without a common measure, where hardly any wavenumbers are equal: all
    /// combinations of mode numbers, sorted. Wavenumbers with equal integers are one.
    fn unique_rounded(mesh: &Mesh, shape: [u64; 3]) -> Result<Self> {
        let (squares, unit) = rounded(shape, mesh.size());
        let combinations = squares.iter().fold(1_usize, |product, of| product.saturating_mul(of.len()));
        if combinations > MOST_COMBINATIONS {
            let why = format!(
                "expected {MOST_COMBINATIONS} different wavenumbers at most, got {combinations}, since the squares of the sides {:?} have no ratio of small integers; give logarithmic bins (`Wavenumbers::edges`), or sides in such a ratio",
                mesh.size()
            );
            return refuse("wavenumbers", why);
        }
        let of_one = mesh.size().map(|size| (2.0 * std::f64::consts::PI / size).powi(2));
        let mut sums = vec![(0u32, 0.0f64)];
        for (axis, list) in squares.iter().enumerate() {
            let along = |(m, square): (usize, &u32)| (*square, of_one[axis] * (m * m) as f64);
            let along: Vec<(u32, f64)> = list.iter().enumerate().map(along).collect();
            sums = sums.iter().flat_map(|a| along.iter().map(|b| (a.0 + b.0, a.1 + b.1))).collect();
        }
        sums.sort_unstable_by_key(|sum| sum.0);
        sums.dedup_by_key(|sum| sum.0);
        let values = sums.iter().map(|sum| sum.1.sqrt()).collect();
        let limits = sums.iter().map(|sum| sum.0).chain(sums.last().map(|sum| sum.0 + 1)).collect();
        Ok(Wavenumbers { mesh: mesh.without_ghosts(), squares, unit, limits, values })
    }

    /// Creates bins from their edges: bin `b` has the wavenumbers `edges[b]..edges[b + 1]`, and
    /// their mean as its own wavenumber. Other modes are in no bin.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for fewer than two edges, edges
    ///   that do not grow, and sides outside 1e-100 to 1e100.
    pub fn edges(mesh: &Mesh, edges: &[f64]) -> Result<Self> {
        check_sides(mesh)?;
        let grow = edges.windows(2).all(|pair| pair[0] < pair[1]) && edges.len() > 1;
        if !grow || !edges.iter().all(|edge| edge.is_finite() && *edge >= 0.0) {
            return refuse("wavenumbers", format!("edges {edges:?}; they must grow from 0 or more"));
        }
        let (squares, unit) = exact(mesh.shape(), mesh.size()).unwrap_or_else(|| rounded(mesh.shape(), mesh.size()));
        // Slightly below the edge, since rounding may have put it above a wavenumber on the edge.
        let limit = |edge: &f64| (edge * edge / unit * (1.0 - 1e-12)).ceil().min(f64::from(u32::MAX)) as u32;
        let values = edges.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        Ok(Wavenumbers {
            mesh: mesh.without_ghosts(),
            squares,
            unit,
            limits: edges.iter().map(limit).collect(),
            values,
        })
    }

    /// Returns the number of bins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns `true` if it has no bins.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the wavenumber of each bin.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns the bin of a mode, given by its index along each axis; `None` if it is in no bin.
    #[must_use]
    pub fn bin(&self, mode: [u64; 3]) -> Option<usize> {
        let square: u32 = (0..3).map(|a| self.square(a, mode[a])).sum();
        let above = self.limits.partition_point(|&limit| limit <= square);
        above.checked_sub(1).filter(|&bin| bin < self.len())
    }

    /// Returns the integer of a mode index of an axis.
    fn square(&self, axis: usize, index: u64) -> u32 {
        self.squares[axis][index.min(self.mesh.shape()[axis] - index) as usize]
    }

    /// Creates the operator from one amplitude per bin to the only leaf of `target`, real modes of
    /// the grid. Modes in no bin are 0. The domain has the name `amplitudes`. Submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces.
    pub fn amplitudes(&self, rank: &mut Rank, target: &Space) -> Result<Gather> {
        let index = self.index(rank, target)?;
        let batch = target.only().map_or(1, |(_, leaf)| leaf.batch);
        let domain = Space::of("amplitudes", Leaf::vector(self.len() as u64).batch(batch))?;
        Gather::new(&domain, target, index)
    }

    /// Returns the bin of each mode of the only leaf of `target`, real modes of the grid; for modes
    /// in no bin the number of bins. Submits.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces.
    pub fn index(&self, rank: &mut Rank, target: &Space) -> Result<Array<u32>> {
        let Some((_, Leaf { support: Support::Modes { mesh, half }, values: Values::Real, .. })) = target.only() else {
            return refuse("wavenumbers", format!("{target} is not one real field of modes"));
        };
        if *mesh != self.mesh {
            return refuse("wavenumbers", format!("bins of {:?}, modes of {mesh:?}", self.mesh));
        }
        let part = mesh.modes(*half);
        let squares: Vec<u32> = (0..3)
            .flat_map(|a| part[a].clone().map(move |index| (a, index)))
            .map(|(a, index)| self.square(a, index))
            .collect();
        let mut upload = |words: &[u32]| rank.recorder.uploaded("operators::wavenumbers", words);
        let (squares, limits) = (upload(&squares)?, upload(&self.limits)?);
        let index = rank.gpu.array::<u32>("operators::bins", volume(&part))?;
        let [i, j, k] = extent(&part).map(|n| n as u32);
        let params = BinParams { local: [i, j, k, self.len() as u32] };
        let kernel = Kernel::trusted(source());
        rank.recorder.each(&kernel, &[squares.raw(), limits.raw(), index.raw()], &params, volume(&part))?;
        Ok(index)
    }
}

/// Refuses sides whose squared wavenumbers overflow or underflow.
fn check_sides(mesh: &Mesh) -> Result<()> {
    match mesh.size().iter().find(|side| !(1e-100..=1e100).contains(*side)) {
        Some(side) => refuse("wavenumbers", format!("a side of {side:e}; they are from 1e-100 to 1e100")),
        None => Ok(()),
    }
}

/// Returns all sums of one number of each list, at most `most`. Shifts a bit set by each number in
/// turn.
fn sums_of(lists: &[Vec<u32>; 3], most: usize) -> Vec<u32> {
    let words = most / 64 + 1;
    let mut reached = vec![0u64; words];
    reached[0] = 1;
    for list in lists {
        let before = std::mem::replace(&mut reached, vec![0; words]);
        // Of a long axis few words are in use.
        let used: Vec<(usize, u64)> = before.into_iter().enumerate().filter(|(_, word)| *word != 0).collect();
        for &number in list {
            let (whole, bits) = (number as usize / 64, number % 64);
            for &(at, word) in used.iter().take_while(|(at, _)| at + whole < words) {
                reached[at + whole] |= word << bits;
                if bits > 0 && at + whole + 1 < words {
                    reached[at + whole + 1] |= word >> (64 - bits);
                }
            }
        }
    }
    let numbers = |(at, &word): (usize, &u64)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * at as u32 + bit)
    };
    reached.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(numbers).collect()
}

/// Returns the mode numbers of an axis of `cells` with different squares.
fn modes(cells: u64) -> std::ops::RangeInclusive<u64> {
    0..=cells / 2
}

/// Returns integers in the exact ratio of the squares, and the squared wavenumber of 1, if they
/// exist.
fn exact(shape: [u64; 3], size: [f64; 3]) -> Option<([Vec<u32>; 3], f64)> {
    let of_one = size.map(|size| (2.0 * std::f64::consts::PI / size).powi(2));
    let longer = (0..3).filter(|&a| shape[a] > 1);
    let least = longer.map(|a| of_one[a]).fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least } else { of_one[0] };
    for parts in 1..=4096u32 {
        let counts = [0, 1, 2].map(|a| of_one[a] / least * f64::from(parts));
        let near = |a: usize| shape[a] == 1 || (counts[a] - counts[a].round()).abs() < 1e-9 * counts[a];
        let fits = |a: usize| counts[a].round() * (shape[a] as f64 / 2.0).powi(2) < f64::from(u32::MAX / 4);
        if (0..3).all(near) && (0..3).all(|a| shape[a] == 1 || fits(a)) {
            let of = |a: usize| modes(shape[a]).map(|m| (m * m) as u32 * counts[a].round() as u32).collect();
            return Some(([of(0), of(1), of(2)], least / f64::from(parts)));
        }
    }
    None
}

/// Returns integers close to the squares, scaled so that the largest sum is 2^31.
fn rounded(shape: [u64; 3], size: [f64; 3]) -> ([Vec<u32>; 3], f64) {
    let of_one = size.map(|size| (2.0 * std::f64::consts::PI / size).powi(2));
    let most: f64 = (0..3).map(|a| of_one[a] * (shape[a] / 2).pow(2) as f64).sum();
    let unit = most.max(f64::MIN_POSITIVE) / f64::from(1u32 << 31);
    let of = |a: usize| modes(shape[a]).map(|m| ((m * m) as f64 * of_one[a] / unit).round() as u32).collect();
    ([of(0), of(1), of(2)], unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::MeshOptions;

    fn mesh(shape: [u64; 3], size: [f64; 3]) -> Mesh {
        Mesh::new(&MeshOptions { size, ..MeshOptions::new(shape) }, 1, 0).unwrap()
    }

    #[test]
    fn sides_whose_squares_are_no_numbers_are_refused() {
        let grid = |side: f64| mesh([1, 6, 5], [1.0, 6.0, side]);
        for side in [1e-155, 1e160] {
            assert!(Wavenumbers::unique(&grid(side)).is_err() && Wavenumbers::edges(&grid(side), &[0.0, 1.0]).is_err());
        }
        assert!(Wavenumbers::unique(&grid(1e30)).is_ok());
    }

    #[test]
    fn sums_of_squares_are_all_there() {
        let lists = [vec![0, 1, 4, 9, 100], vec![0, 3, 12, 700], vec![0, 64, 65]];
        let mut wanted: Vec<u32> = vec![0];
        for list in &lists {
            wanted = wanted.iter().flat_map(|sum| list.iter().map(move |number| sum + number)).collect();
        }
        wanted.sort_unstable();
        wanted.dedup();
        assert_eq!(sums_of(&lists, 865), wanted);
    }

    #[test]
    fn wavenumbers_of_any_commensurate_box_are_found() {
        let mesh = mesh([6, 5, 8], [3.0, 2.5, 4.0]);
        let found = Wavenumbers::unique(&mesh).unwrap();
        let k = |mode: [u64; 3]| {
            let of = |a: usize| {
                let m = mode[a].min(mesh.shape()[a] - mode[a]) as f64;
                (2.0 * std::f64::consts::PI * m / mesh.size()[a]).powi(2)
            };
            (of(0) + of(1) + of(2)).sqrt()
        };
        for mode in (0..240).map(|n| [n / 40, n / 8 % 5, n % 8]) {
            assert!((found.values()[found.bin(mode).unwrap()] - k(mode)).abs() < 1e-9, "{mode:?}");
        }
    }
}
