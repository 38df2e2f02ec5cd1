//! Which passes and exchanges make a distributed three-dimensional transform: pure data.
//!
//! ```text
//! field              x over p0, y over p1          z pass: real lines to half spectra, complex ones to whole
//!                    exchange along axis 1: y comes together, z is cut
//!                    x over p0, z over p1          y pass
//!                    exchange along axis 0: x comes together, y is cut
//! spectrum           y over p0, z over p1          x pass
//! ```
//!
//! The backward transform is the mirror image. An exchange among one rank is left out, so slabs (`p1 == 1`) exchange
//! once and a single rank never. Arrays stay in C order (x, y, z) throughout. There is no pass for packing: the pass
//! before an exchange writes the blocks that go to each peer, the pass after reads the blocks as they arrive.

use super::error::FftError;
use super::kernel::{Kind, LineKernel, Order};
use super::size::check_size;
use crate::layout::{Box3, Grid, Part, Transfers, extent, split, volume};

/// One pass over an array: all lines along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The kernel.
    pub kernel: LineKernel,
    /// Lines that are not neighbours in memory.
    pub outer: u64,
    /// Lines that are.
    pub inner: u64,
    /// Pieces of a blocked input.
    pub parts_in: u64,
    /// Pieces of a blocked output.
    pub parts_out: u64,
    /// Whether it reads the field, whose layout may have ghosts.
    pub reads_field: bool,
    /// Whether it writes the field.
    pub writes_field: bool,
}

impl Pass {
    /// Bytes that it reads and writes in device memory.
    pub fn traffic(&self) -> [u64; 2] {
        self.kernel.line_bytes().map(|bytes| bytes * self.outer * self.inner)
    }
}

/// A step of a transform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Transforms along an axis.
    Pass(Pass),
    /// Moves blocks between the ranks along an axis of the process grid.
    Exchange {
        /// The axis of the grid.
        axis: usize,
        /// What goes where, in complex elements.
        transfers: Transfers,
    },
}

/// What the cells of a field hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Values {
    /// Real numbers: the spectrum is the half one.
    Real,
    /// Complex numbers.
    Complex,
}

impl Values {
    /// Modes along the last axis of `n` cells.
    pub fn modes(self, n: u64) -> u64 {
        match self {
            Values::Real => n / 2 + 1,
            Values::Complex => n,
        }
    }
}

/// Where the modes of one rank lie, and which they are.
///
/// ```
/// use meshloom::fft::{SpectrumLayout, Values};
/// // The second half of the rows of a real field of 4 x 6 x 8 cells.
/// let layout = SpectrumLayout { values: Values::Real, shape: [4, 6, 8], part: [0..4, 3..6, 0..5] };
/// assert_eq!(layout.len(), 4 * 3 * 5);
/// assert_eq!([0, 1, 2, 3].map(|i| layout.mode(0, i)), [0, 1, -2, -1]);
/// assert_eq!([0, 1, 2].map(|j| layout.mode(1, j)), [-3, -2, -1]);
/// assert_eq!([0, 4].map(|k| layout.mode(2, k)), [0, 4]); // the half axis ends with +n/2
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpectrumLayout {
    /// Real fields have half a spectrum: the last axis holds modes `0..=n/2`.
    pub values: Values,
    /// Cells along each axis of the mesh.
    pub shape: [u64; 3],
    /// The modes of this rank, as ranges of indices of the whole spectrum; the array is C order over them.
    pub part: Box3,
}

impl SpectrumLayout {
    /// Number of modes of this rank.
    pub fn len(&self) -> u64 {
        volume(&self.part)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Mode number of the `i`-th mode of this rank along `axis`, in `-n/2..n/2` (the half axis ends with `+n/2`):
    /// the wavenumber is `2 pi / L` times that.
    pub fn mode(&self, axis: usize, i: u64) -> i64 {
        let (n, index) = (self.shape[axis], self.part[axis].start + i);
        let half = axis == 2 && self.values == Values::Real;
        if half || 2 * index < n { index as i64 } else { index as i64 - n as i64 }
    }
}

/// The transform of a field of `shape` for one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Cells along each axis.
    pub shape: [u64; 3],
    /// This rank's part of the field.
    pub field: Box3,
    /// This rank's part of the spectrum, C order.
    pub spectrum: Box3,
    /// From field to spectrum.
    pub forward: Vec<Step>,
    /// From spectrum to field.
    pub backward: Vec<Step>,
    /// Complex elements that each working array needs.
    pub working: u64,
}

impl Plan {
    /// Plans the transform of a field of `values` for `rank` of `grid`.
    ///
    /// # Errors
    /// [`FftError`] for lengths that cannot be transformed.
    pub fn new(values: Values, shape: [u64; 3], grid: Grid, rank: usize) -> Result<Self, FftError> {
        shape.iter().try_for_each(|&n| check_size(n))?;
        let ([p0, p1], [r0, r1]) = (grid.parts().map(|p| p as u64), grid.at(rank).map(|r| r as u64));
        let [n0, n1, n2] = shape;
        let modes = values.modes(n2);
        let (field, len) = (grid.part(shape, rank), |range: std::ops::Range<u64>| range.end - range.start);
        let (x, y) = (len(split(n0, p0, r0)), len(split(n1, p1, r1)));
        let (y_cut, z_cut) = (split(n1, p0, r0), split(modes, p1, r1));
        let z = len(z_cut.clone());
        let spectrum = [0..n0, y_cut.clone(), z_cut];
        let order = |parts: u64| if parts > 1 { Order::Blocked } else { Order::Plain };
        let pass = |n: u64, kind: Kind, [outer, inner]: [u64; 2], [parts_in, parts_out]: [u64; 2], strided: bool| {
            let kernel =
                LineKernel { n, kind, input: order(parts_in), output: order(parts_out), strided, spectral: false };
            Pass { kernel, outer, inner, parts_in, parts_out, reads_field: false, writes_field: false }
        };
        let (to_modes, from_modes) = match values {
            Values::Real => (Kind::RealToComplex, Kind::ComplexToReal),
            Values::Complex => (Kind::Forward, Kind::Backward),
        };
        // Blocks of a transpose: a line of ranks shares `whole` positions of one axis, `size(peer)` for each of them.
        let blocks = |parts: u64, size: &dyn Fn(u64) -> u64| {
            let mut start = 0;
            let block = |peer: u64| {
                let part = Part { peer: peer as usize, start, len: size(peer) };
                start += part.len;
                part
            };
            (0..parts).map(block).collect::<Vec<_>>()
        };
        let part = |n: u64, parts: u64, i: u64| len(split(n, parts, i));
        // Before and after each exchange, as seen in the forward direction.
        let z_blocks = blocks(p1, &|q| x * y * part(modes, p1, q));
        let y_arrived = blocks(p1, &|q| x * part(n1, p1, q) * z);
        let y_blocks = blocks(p0, &|q| x * part(n1, p0, q) * z);
        let x_arrived = blocks(p0, &|q| part(n0, p0, q) * len(y_cut.clone()) * z);
        let exchange = |axis: usize, send: &[Part], receive: &[Part]| {
            (send.len() > 1).then(|| Step::Exchange {
                axis,
                transfers: Transfers { send: send.to_vec(), receive: receive.to_vec() },
            })
        };
        let (lines_z, lines_y, lines_x) = ([x * y, 1], [x, z], [1, len(y_cut.clone()) * z]);
        let forward = [
            Some(Step::Pass(Pass { reads_field: true, ..pass(n2, to_modes, lines_z, [1, p1], false) })),
            exchange(1, &z_blocks, &y_arrived),
            Some(Step::Pass(pass(n1, Kind::Forward, lines_y, [p1, p0], true))),
            exchange(0, &y_blocks, &x_arrived),
            Some(Step::Pass(pass(n0, Kind::Forward, lines_x, [1, 1], true))),
        ];
        let backward = [
            Some(Step::Pass(pass(n0, Kind::Backward, lines_x, [1, 1], true))),
            exchange(0, &x_arrived, &y_blocks),
            Some(Step::Pass(pass(n1, Kind::Backward, lines_y, [p0, p1], true))),
            exchange(1, &y_arrived, &z_blocks),
            Some(Step::Pass(Pass { writes_field: true, ..pass(n2, from_modes, lines_z, [p1, 1], false) })),
        ];
        let working = (x * y * modes).max(x * n1 * z).max(volume(&spectrum));
        let elements = working.max(extent(&field).iter().product());
        if elements > 1 << 31 {
            return Err(FftError::TooLarge { elements });
        }
        let steps = |steps: [Option<Step>; 5]| steps.into_iter().flatten().collect();
        Ok(Plan { shape, field, spectrum, forward: steps(forward), backward: steps(backward), working })
    }

    /// Bytes that the passes of one direction move through device memory, reading and writing.
    pub fn traffic(steps: &[Step]) -> u64 {
        steps.iter().map(|step| if let Step::Pass(pass) = step { pass.traffic().iter().sum() } else { 0 }).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_reads_and_writes_each_axis_once() {
        let n = 128u64;
        let plan = Plan::new(Values::Real, [n; 3], Grid::new([1, 1], 1).unwrap(), 0).unwrap();
        let half = (n / 2 + 1) as f64 / (n as f64 / 2.0);
        // z: 4 read, 4 h written; y and x: 4 h read and written each, a real point; h = (n/2 + 1) / (n/2).
        let expected = 4.0 + 5.0 * 4.0 * half;
        for steps in [&plan.forward, &plan.backward] {
            assert_eq!(steps.len(), 3);
            let bytes = Plan::traffic(steps) as f64 / (n * n * n) as f64;
            assert!((bytes - expected).abs() < 1e-12 && (bytes - 24.0).abs() < 1.0, "{bytes} bytes a point");
        }
        let plan = Plan::new(Values::Complex, [n; 3], Grid::new([1, 1], 1).unwrap(), 0).unwrap();
        assert_eq!(Plan::traffic(&plan.forward), 48 * n * n * n);
    }

    #[test]
    fn what_is_sent_is_received() {
        for (shape, parts) in [
            ([8, 8, 8], [2, 2]),
            ([9, 10, 12], [3, 1]),
            ([9, 10, 12], [1, 4]),
            ([3, 5, 7], [5, 1]),
            ([4, 2, 6], [2, 4]),
            ([1, 1, 1], [2, 3]),
            ([16, 12, 6], [4, 3]),
        ] {
            let ranks = parts[0] * parts[1];
            let grid = Grid::new(parts, ranks).unwrap();
            let plans: Vec<_> = (0..ranks).map(|rank| Plan::new(Values::Real, shape, grid, rank).unwrap()).collect();
            let modes: u64 = plans.iter().map(|plan| volume(&plan.spectrum)).sum();
            assert_eq!(modes, shape[0] * shape[1] * (shape[2] / 2 + 1), "every mode is somewhere");
            for steps in [|plan: &Plan| plan.forward.clone(), |plan: &Plan| plan.backward.clone()] {
                for (rank, plan) in plans.iter().enumerate() {
                    for (i, step) in steps(plan).iter().enumerate() {
                        let Step::Exchange { axis, transfers } = step else { continue };
                        let line = grid.neighbours(rank, *axis);
                        let me = line.iter().position(|&r| r == rank).unwrap();
                        for part in &transfers.send {
                            let Step::Exchange { transfers: theirs, .. } = &steps(&plans[line[part.peer]])[i] else {
                                panic!("out of step")
                            };
                            let received = theirs.receive.iter().find(|received| received.peer == me).unwrap();
                            assert_eq!(received.len, part.len, "{shape:?} {parts:?} {rank} -> {}", part.peer);
                        }
                        let end = |parts: &[Part]| parts.iter().map(|part| part.start + part.len).max().unwrap();
                        assert!(end(&transfers.send) <= plan.working && end(&transfers.receive) <= plan.working);
                    }
                }
            }
        }
    }
}
