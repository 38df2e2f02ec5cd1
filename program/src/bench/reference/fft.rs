//! Three-dimensional transforms on the CPU, with rustfft and rayon.
//!
//! Both axes of a plane are transformed while the plane is in the cache; lines along the first axis
//! are gathered a few neighboring columns at a time. Real rows are transformed in pairs, as real
//! and imaginary parts of complex ones.

use std::sync::{Arc, Mutex, PoisonError};

use meshloom::fft::Values;
use rayon::prelude::*;
use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};

/// Name of the reference in reports.
pub const NAME: &str = "rustfft, rayon";

/// Columns that are gathered together: two cache lines of each row.
const TILE: usize = 16;

/// Working memory of a thread: lines, and the scratch of rustfft.
#[derive(Default)]
struct Scratch {
    lines: Vec<Complex32>,
    fft: Vec<Complex32>,
}

/// The transforms along each axis in one direction.
struct AxisPlans {
    axes: [Arc<dyn Fft<f32>>; 3],
}

/// A field and its spectrum in host memory, with the plans between them.
///
/// A complex field is transformed in place; a real one has its spectrum beside it, which the
/// inverse overwrites.
pub struct Reference {
    shape: [usize; 3],
    values: Values,
    forward: AxisPlans,
    inverse: AxisPlans,
    field: Vec<f32>,
    spectrum: Vec<Complex32>,
    /// One per thread.
    scratch: Vec<Mutex<Scratch>>,
}

impl Reference {
    /// Plans transforms of `field`: cells in C order, complex ones as pairs. `None` if this build
    /// does not include the library.
    pub fn new(values: Values, shape: [u64; 3], field: Vec<f32>) -> Option<Self> {
        let shape = shape.map(|n| n as usize);
        let mut planner = FftPlanner::new();
        let forward = AxisPlans { axes: shape.map(|n| planner.plan_fft_forward(n)) };
        let inverse = AxisPlans { axes: shape.map(|n| planner.plan_fft_inverse(n)) };
        let longest = shape.into_iter().max().unwrap_or(1);
        let fits = |lines: &AxisPlans| lines.axes.iter().map(|fft| fft.get_inplace_scratch_len()).max().unwrap_or(0);
        let more = fits(&forward).max(fits(&inverse));
        let scratch = || {
            let zeros = |len: usize| vec![Complex32::default(); len];
            Mutex::new(Scratch { lines: zeros(TILE * longest), fft: zeros(more) })
        };
        let (field, spectrum) = match values {
            Values::Complex => (Vec::new(), field.chunks_exact(2).map(|c| Complex32::new(c[0], c[1])).collect()),
            Values::Real => (field, vec![Complex32::default(); shape[0] * shape[1] * (shape[2] / 2 + 1)]),
        };
        let scratch = (0..rayon::current_num_threads()).map(|_| scratch()).collect();
        Some(Reference { shape, values, forward, inverse, field, spectrum, scratch })
    }

    /// Computes the spectrum of the field.
    pub fn forward(&mut self) {
        let [_, n1, n2] = self.shape;
        let modes = self.spectrum_row();
        let (axes, scratch) = (&self.forward.axes, &self.scratch);
        match self.values {
            Values::Complex => self.spectrum.par_chunks_mut(n1 * n2).for_each(|plane| {
                with(scratch, |scratch| {
                    axes[2].process_with_scratch(plane, &mut scratch.fft);
                    let mut rows: Vec<_> = plane.chunks_exact_mut(n2).collect();
                    columns(&*axes[1], &mut rows, scratch);
                });
            }),
            Values::Real => {
                let planes = self.spectrum.par_chunks_mut(n1 * modes).zip(self.field.par_chunks(n1 * n2));
                planes.for_each(|(plane, field)| {
                    with(scratch, |scratch| {
                        let pairs = plane.chunks_mut(2 * modes).zip(field.chunks(2 * n2));
                        pairs.for_each(|(to, from)| real_to_modes(&*axes[2], from, to, n2, scratch));
                        let mut rows: Vec<_> = plane.chunks_exact_mut(modes).collect();
                        columns(&*axes[1], &mut rows, scratch);
                    });
                });
            }
        }
        self.along_first(Direction::Forward);
    }

    /// Computes the field of the spectrum, divided by the number of cells.
    pub fn inverse(&mut self) {
        self.along_first(Direction::Inverse);
        let [n0, n1, n2] = self.shape;
        let modes = self.spectrum_row();
        let scale = (1.0 / (n0 as f64 * n1 as f64 * n2 as f64)) as f32;
        let (axes, scratch) = (&self.inverse.axes, &self.scratch);
        match self.values {
            Values::Complex => self.spectrum.par_chunks_mut(n1 * n2).for_each(|plane| {
                with(scratch, |scratch| {
                    let mut rows: Vec<_> = plane.chunks_exact_mut(n2).collect();
                    columns(&*axes[1], &mut rows, scratch);
                    axes[2].process_with_scratch(plane, &mut scratch.fft);
                    plane.iter_mut().for_each(|value| *value *= scale);
                });
            }),
            Values::Real => {
                let planes = self.spectrum.par_chunks_mut(n1 * modes).zip(self.field.par_chunks_mut(n1 * n2));
                planes.for_each(|(plane, field)| {
                    with(scratch, |scratch| {
                        let mut rows: Vec<_> = plane.chunks_exact_mut(modes).collect();
                        columns(&*axes[1], &mut rows, scratch);
                        let pairs = plane.chunks(2 * modes).zip(field.chunks_mut(2 * n2));
                        pairs.for_each(|(from, to)| modes_to_real(&*axes[2], from, to, n2, scale, scratch));
                    });
                });
            }
        }
    }

    /// Elements of a row of the spectrum.
    fn spectrum_row(&self) -> usize {
        self.values.modes(self.shape[2] as u64) as usize
    }

    fn along_first(&mut self, direction: Direction) {
        let ([_, n1, _], modes) = (self.shape, self.spectrum_row());
        let lines = match direction {
            Direction::Forward => &self.forward,
            Direction::Inverse => &self.inverse,
        };
        // Each job has the rows of all planes at one index of the second axis.
        let mut jobs: Vec<Vec<&mut [Complex32]>> = (0..n1).map(|_| Vec::with_capacity(self.shape[0])).collect();
        for (row, cells) in self.spectrum.chunks_exact_mut(modes).enumerate() {
            jobs[row % n1].push(cells);
        }
        let (fft, scratch) = (&*lines.axes[0], &self.scratch);
        jobs.par_iter_mut().for_each(|rows| with(scratch, |scratch| columns(fft, rows, scratch)));
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Inverse,
}

/// Calls `work` with this thread's working memory.
fn with(scratch: &[Mutex<Scratch>], work: impl FnOnce(&mut Scratch)) {
    let thread = rayon::current_thread_index().unwrap_or(0);
    // No other thread has this index: the lock is free.
    work(&mut scratch[thread].lock().unwrap_or_else(PoisonError::into_inner));
}

/// Transforms the columns of `rows`, as many as the transform is long, a tile of columns at a time.
fn columns(fft: &dyn Fft<f32>, rows: &mut [&mut [Complex32]], scratch: &mut Scratch) {
    let n = fft.len();
    let width = rows.first().map_or(0, |row| row.len());
    for start in (0..width).step_by(TILE) {
        let count = TILE.min(width - start);
        let lines = &mut scratch.lines[..count * n];
        for (i, row) in rows.iter().enumerate() {
            for (column, value) in row[start..start + count].iter().enumerate() {
                lines[column * n + i] = *value;
            }
        }
        fft.process_with_scratch(lines, &mut scratch.fft);
        for (i, row) in rows.iter_mut().enumerate() {
            for (column, value) in row[start..start + count].iter_mut().enumerate() {
                *value = lines[column * n + i];
            }
        }
    }
}

/// Half spectra of one or two real rows of `n`: with `z = a + i b`, `A = (Z(k) + Z*(-k)) / 2` and
/// `B = (Z(k) - Z*(-k)) / 2i`.
fn real_to_modes(fft: &dyn Fft<f32>, from: &[f32], to: &mut [Complex32], n: usize, scratch: &mut Scratch) {
    let (a, b) = from.split_at(n);
    let (to_a, to_b) = to.split_at_mut(n / 2 + 1);
    let line = &mut scratch.lines[..n];
    match b {
        [] => line.iter_mut().zip(a).for_each(|(z, &a)| *z = Complex32::new(a, 0.0)),
        b => line.iter_mut().zip(a.iter().zip(b)).for_each(|(z, (&a, &b))| *z = Complex32::new(a, b)),
    }
    fft.process_with_scratch(line, &mut scratch.fft);
    let mode = |k: usize| {
        let (z, mirror) = (line[k], line[if k == 0 { 0 } else { n - k }].conj());
        let (sum, difference) = ((z + mirror) * 0.5, (z - mirror) * 0.5);
        (sum, Complex32::new(difference.im, -difference.re))
    };
    if to_b.is_empty() {
        to_a.iter_mut().enumerate().for_each(|(k, a)| *a = mode(k).0);
    } else {
        to_a.iter_mut().zip(to_b).enumerate().for_each(|(k, (a, b))| (*a, *b) = mode(k));
    }
}

/// One or two real rows of `n` from their half spectra, times `scale`.
fn modes_to_real(fft: &dyn Fft<f32>, from: &[Complex32], to: &mut [f32], n: usize, scale: f32, scratch: &mut Scratch) {
    let half = n / 2 + 1;
    let (from_a, from_b) = from.split_at(half);
    let (a, b) = to.split_at_mut(n);
    let line = &mut scratch.lines[..n];
    let zero = Complex32::default();
    for k in 0..half {
        let (a, b) = (from_a[k], from_b.get(k).copied().unwrap_or(zero));
        if k == 0 || 2 * k == n {
            // The modes of real rows have no imaginary parts there.
            line[k] = Complex32::new(a.re, b.re);
        } else {
            line[k] = Complex32::new(a.re - b.im, a.im + b.re);
            line[n - k] = Complex32::new(a.re + b.im, b.re - a.im);
        }
    }
    fft.process_with_scratch(line, &mut scratch.fft);
    a.iter_mut().zip(&*line).for_each(|(a, z)| *a = z.re * scale);
    b.iter_mut().zip(&*line).for_each(|(b, z)| *b = z.im * scale);
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    /// Computes a spectrum by its definition, in f64.
    fn naive(shape: [u64; 3], value: impl Fn(usize) -> [f64; 2], modes: u64) -> Vec<[f64; 2]> {
        let [n0, n1, n2] = shape;
        let mut spectrum = Vec::new();
        for (k0, k1, k2) in (0..n0).flat_map(|i| (0..n1).flat_map(move |j| (0..modes).map(move |k| (i, j, k)))) {
            let mut sum = [0.0; 2];
            for cell in 0..n0 * n1 * n2 {
                let [i, j, k] = [cell / (n1 * n2), cell / n2 % n1, cell % n2];
                let turns = (k0 * i) as f64 / n0 as f64 + (k1 * j) as f64 / n1 as f64 + (k2 * k) as f64 / n2 as f64;
                let ([re, im], (sin, cos)) = (value(cell as usize), (-TAU * turns).sin_cos());
                sum = [sum[0] + re * cos - im * sin, sum[1] + re * sin + im * cos];
            }
            spectrum.push(sum);
        }
        spectrum
    }

    fn close(name: &str, got: impl Iterator<Item = f64>, wanted: impl Iterator<Item = f64>, limit: f64) {
        let worst = got.zip(wanted).map(|(got, wanted)| (got - wanted).abs()).fold(0.0, f64::max);
        assert!(worst < limit, "{name}: {worst}");
    }

    #[test]
    fn it_gives_the_spectrum_and_the_field_again() {
        // Odd lengths, a row without a pair, more columns than a tile, axes of one cell.
        for shape in [[4, 3, 6], [3, 5, 7], [2, 2, 40], [1, 1, 1], [5, 1, 2]] {
            for values in [Values::Real, Values::Complex] {
                let cells = shape.iter().product::<u64>();
                let numbers = if values == Values::Real { cells } else { 2 * cells };
                let field = super::super::super::input::values(numbers, 3);
                let value = |cell: usize| match values {
                    Values::Real => [f64::from(field[cell]), 0.0],
                    Values::Complex => [0, 1].map(|part| f64::from(field[2 * cell + part])),
                };
                let (name, wanted) = (format!("{values:?} {shape:?}"), naive(shape, value, values.modes(shape[2])));
                let mut reference = Reference::new(values, shape, field.clone()).unwrap();
                reference.forward();
                assert_eq!(reference.spectrum.len(), wanted.len(), "{name}");
                let got = reference.spectrum.iter().flat_map(|z| [z.re, z.im]).map(f64::from);
                close(&name, got, wanted.into_iter().flatten(), 1e-4);
                reference.inverse();
                let again: Vec<f32> = match values {
                    Values::Real => reference.field,
                    Values::Complex => reference.spectrum.iter().flat_map(|z| [z.re, z.im]).collect(),
                };
                assert_eq!(again.len(), field.len(), "{name}");
                close(&name, again.into_iter().map(f64::from), field.iter().map(|&v| f64::from(v)), 1e-5);
            }
        }
    }
}
