//! Multiplication of spectra: operators as tables and callbacks, and radial amplitudes.
//!
//! Tables are computed on the host in f64, so shaders evaluate no transcendental function, and
//! every discretization is data. An inverse transform applies them as it loads the spectrum,
//! without a pass.

use crate::gpu::{Array, Callback, DeviceError, Kernel, KernelSource, Recorder, holds};
use crate::grid::{Box3, extent, volume};
use std::fmt;

/// The derivative along an axis, as a function of `w = k h` on a mesh of spacing `h`, exact or by
/// finite differences. Reference: Hockney & Eastwood (1981).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GradientSymbol {
    /// `w`, and 0 at the Nyquist frequency, where the derivative of a real field has no real value.
    #[default]
    Exact,
    /// `sin w`.
    Order2,
    /// `(8 sin w - sin 2w) / 6`.
    Order4,
}

impl GradientSymbol {
    /// Returns the value at `w`; `nyquist` tells whether `w` is the Nyquist frequency.
    #[must_use]
    pub fn at(self, w: f64, nyquist: bool) -> f64 {
        match self {
            _ if nyquist => 0.0,
            GradientSymbol::Exact => w,
            GradientSymbol::Order2 => w.sin(),
            GradientSymbol::Order4 => (8.0 * w.sin() - (2.0 * w).sin()) / 6.0,
        }
    }
}

/// Minus the second derivative along an axis, as a function of `w = k h`; minus the Laplacian is
/// the sum over the axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LaplacianSymbol {
    /// `w^2`.
    #[default]
    Exact,
    /// `2 (1 - cos w)`.
    Order2,
    /// `(cos 2w - 16 cos w + 15) / 6`.
    Order4,
}

impl LaplacianSymbol {
    /// Returns the value at `w`.
    #[must_use]
    pub fn at(self, w: f64) -> f64 {
        match self {
            LaplacianSymbol::Exact => w * w,
            LaplacianSymbol::Order2 => 2.0 * (1.0 - w.cos()),
            LaplacianSymbol::Order4 => ((2.0 * w).cos() - 16.0 * w.cos() + 15.0) / 6.0,
        }
    }
}

/// One wavenumber along an axis of `cells` cells in a length `size`.
#[derive(Clone, Copy, Debug)]
pub struct Wave {
    /// `k`, in the inverse unit of the size.
    pub k: f64,
    /// `k h`, in `(-pi, pi]`.
    pub w: f64,
    /// Spacing `h` of the mesh.
    pub spacing: f64,
    /// Whether this is the Nyquist frequency of an even axis.
    pub nyquist: bool,
}

impl Wave {
    /// Creates the wave number `index` of an axis, in the order of a transform: 0, 1, .., then the
    /// negative ones.
    ///
    /// The Nyquist frequency counts as negative. Callers with half axes may pass it as `cells / 2`:
    /// every operator of this module is even or zero there.
    #[must_use]
    pub fn new(index: u64, cells: u64, size: f64) -> Self {
        let mode = if 2 * index < cells || cells == 1 { index as f64 } else { index as f64 - cells as f64 };
        let (k, spacing) = (2.0 * std::f64::consts::PI * mode / size, size / cells as f64);
        Wave { k, w: k * spacing, spacing, nyquist: 2 * index == cells }
    }
}

/// A linear operator that is diagonal in Fourier space, as functions of the wavenumber of each
/// axis.
///
/// The operator multiplies the mode with the wavenumbers `k0`, `k1`, `k2` by
///
/// ```text
/// c t0(k0) t1(k1) t2(k2) / (l0(k0) + l1(k1) + l2(k2))
/// ```
///
/// and by 0 if the sum of `l` is 0. Without a Laplacian the denominator is 1. Wavenumbers are in
/// radians per unit of the box size.
///
/// With `l = k^2` (a [`LaplacianSymbol`] divided by the squared spacing) the division is the
/// inverse of minus the Laplacian: the potential of a source `-laplacian(phi) = source` has `c =
/// [1, 0]` and `t = 1`. A derivative along axis `a` has `c = [0, 1]` (the imaginary unit), `t` of
/// axis `a` equal to `k` (a [`GradientSymbol`] divided by the spacing) and `t = 1` for the other
/// axes.
pub struct Operator<'a> {
    /// The complex constant `c` (real part, imaginary part).
    pub constant: [f64; 2],
    /// The factor `t` of an axis.
    pub factor: &'a dyn Fn(usize, Wave) -> f64,
    /// The term `l` of an axis; `None` for an operator without an inverse Laplacian.
    pub laplacian: Option<&'a dyn Fn(usize, Wave) -> f64>,
}

/// An operator as numbers, for the part of a spectrum that one rank holds: `t0, t1, t2, l0, l1,
/// l2`, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorTables {
    /// The complex constant.
    pub constant: [f32; 2],
    /// The starts of the second and third axis in each half, and the length of a half.
    pub starts: [u32; 3],
    /// The tables.
    pub values: Vec<f32>,
}

impl fmt::Debug for Operator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("constant", &self.constant).finish_non_exhaustive()
    }
}

impl Operator<'_> {
    /// Returns the tables over `part` of the spectrum of a mesh of `shape` cells and `size`.
    #[must_use]
    pub fn tables(&self, shape: [u64; 3], size: [f64; 3], part: &Box3) -> OperatorTables {
        let waves = |axis: usize| part[axis].clone().map(move |index| Wave::new(index, shape[axis], size[axis]));
        let mut values = Vec::new();
        let mut starts = [0; 3];
        for axis in 0..3 {
            values.extend(waves(axis).map(|wave| (self.factor)(axis, wave) as f32));
            starts[axis] = values.len() as u32;
        }
        match self.laplacian {
            Some(laplacian) => {
                (0..3).for_each(|axis| values.extend(waves(axis).map(|wave| laplacian(axis, wave) as f32)))
            }
            // 1 + 0 + 0.
            None => (0..3).for_each(|axis| values.extend(waves(axis).map(|_| if axis == 0 { 1.0f32 } else { 0.0 }))),
        }
        OperatorTables { constant: self.constant.map(|c| c as f32), starts, values }
    }
}

/// [`Operator`]s in device memory, for an inverse [`Transform`](super::Transform) or a
/// [`Filter`](super::Filter) with as many results as operators.
#[derive(Debug)]
pub struct Spectral {
    tables: Array<f32>,
    params: OperatorParams,
    part: Box3,
}

crate::gpu::kernel_params! {
    struct OperatorParams {
        /// The starts of the second and third axis, the next result and the Laplacian in the table.
        table_starts: [u32; 4],
        /// The first mode of this rank, and the number of operators.
        table_first: [u32; 4],
        /// The complex constant.
        table_constant: [f32; 4],
    }
}

const OPERATOR: &str = include_str!("../../shaders/fft/operator.wgsl");
const MODE: &str = include_str!("../../shaders/fft/operator_mode.wgsl");
const SUM: &str = include_str!("../../shaders/fft/operator_sum.wgsl");

impl Spectral {
    /// Uploads tables for the part of the spectrum that this rank multiplies:
    /// [`Transform::spectrum_part`](super::Transform::spectrum_part) or
    /// [`Filter::spectrum_part`](super::Filter::spectrum_part). All tables must have the same part,
    /// constant and Laplacian.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] without tables, for tables of another part, or if they differ in
    ///   what they share.
    /// - [`DeviceError::OutOfMemory`] if the device is out of memory.
    pub fn new(recorder: &mut Recorder, tables: &[OperatorTables], part: &Box3) -> Result<Self, DeviceError> {
        const WHAT: &str = "Spectral::new";
        let first = tables.first().ok_or_else(|| DeviceError::misuse(WHAT, "no tables"))?;
        let half = first.starts[2] as usize;
        let [i, j, k] = extent(part);
        let fits = |of: &OperatorTables| {
            of.starts.map(u64::from) == [i, i + j, i + j + k] && of.values.len() as u64 == 2 * (i + j + k)
        };
        let why = || "the tables are for another part of the spectrum".into();
        DeviceError::ensure(tables.iter().all(fits), WHAT, why)?;
        let alike = |other: &OperatorTables| {
            other.starts == first.starts
                && other.constant == first.constant
                && other.values[half..] == first.values[half..]
        };
        let why = || "operators that are applied together share constant and Laplacian".into();
        DeviceError::ensure(tables.iter().all(alike), WHAT, why)?;
        let mut values: Vec<f32> = tables.iter().flat_map(|tables| tables.values[..half].to_vec()).collect();
        let laplacian = values.len() as u32;
        values.extend(&first.values[half..]);
        let array = recorder.uploaded("fft::operator", &values)?;
        let [x, y] = first.constant;
        let params = OperatorParams {
            table_starts: [first.starts[0], first.starts[1], first.starts[2], laplacian],
            table_first: [part[0].start as u32, part[1].start as u32, part[2].start as u32, tables.len() as u32],
            table_constant: [x, y, 0.0, 0.0],
        };
        Ok(Spectral { tables: array, params, part: part.clone() })
    }

    /// Returns the modes of the tables.
    #[must_use]
    pub fn part(&self) -> &Box3 {
        &self.part
    }

    /// Returns the callback that multiplies modes. It has run-time checks, since a transform may
    /// have other modes than the tables.
    pub fn callback(&self) -> Callback {
        self.with(Callback::new([OPERATOR, MODE].concat()))
    }

    /// Same as [`callback`](Self::callback), without checks, for transforms of the modes of the
    /// tables.
    pub(crate) fn trusted_callback(&self) -> Callback {
        self.with(Callback::trusted([OPERATOR, MODE].concat()))
    }

    /// Returns the callback of a filter of the last of several fields, whose result is the sum over
    /// all fields times their operators. `others` are the spectra of the fields before, one after
    /// the other, for the modes of the tables.
    pub(crate) fn trusted_sum(&self, others: &Array<[f32; 2]>) -> Callback {
        self.with(Callback::trusted([OPERATOR, SUM].concat())).read("others", others)
    }

    fn with(&self, callback: Callback) -> Callback {
        callback.read("table", &self.tables).params(&self.params)
    }
}

crate::gpu::kernel_params! {
    struct RadialParams {
        shape: [u32; 4],
        first: [u32; 4],
        local: [u32; 4],
    }
}

/// Returns the kernel that multiplies modes by a table over the square of the mode number.
pub(super) fn radial() -> KernelSource {
    KernelSource::new("fft::radial", include_str!("../../shaders/fft/radial.wgsl")).params::<RadialParams>()
}

/// Records the kernel [`radial`]; see
/// [`Transform::scale_radially`](super::Transform::scale_radially).
pub(super) fn scale_radially(
    recorder: &mut Recorder,
    kernel: &Kernel,
    spectrum: &Array<[f32; 2]>,
    (shape, part): ([u64; 3], &Box3),
    amplitudes: &Array<f32>,
) -> Result<(), DeviceError> {
    let needed = shape.iter().map(|n| (n / 2) * (n / 2)).sum::<u64>() + 1;
    const WHAT: &str = "Transform::scale_radially";
    let why = || format!("{} amplitudes for modes up to |m|^2 = {}", amplitudes.len(), needed - 1);
    DeviceError::ensure(amplitudes.len() >= needed, WHAT, why)?;
    holds(WHAT, "elements of a spectrum", spectrum, volume(part))?;
    let word = |v: [u64; 3]| [v[0], v[1], v[2], 0].map(|n| n as u32);
    let params =
        RadialParams { shape: word(shape), first: word([0, 1, 2].map(|a| part[a].start)), local: word(extent(part)) };
    recorder.each(kernel, &[spectrum.raw(), amplitudes.raw()], &params, volume(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finite_differences_have_their_golden_values() {
        let w = [0.1, 0.5, 1.0, 2.0, 3.0];
        let check = |f: &dyn Fn(f64) -> f64, golden: [f64; 5]| {
            for (w, golden) in w.into_iter().zip(golden) {
                assert!((f(w) - golden).abs() < 1e-12, "{} {golden} at {w}", f(w));
            }
        };
        check(
            &|w| GradientSymbol::Order2.at(w, false),
            [0.099833416647, 0.479425538604, 0.841470984808, 0.909297426826, 0.14112000806],
        );
        check(
            &|w| GradientSymbol::Order4.at(w, false),
            [0.099999667063, 0.498988887338, 0.97041174194, 1.338530318319, 0.234729260446],
        );
        check(
            &|w| LaplacianSymbol::Order2.at(w),
            [0.009991669444, 0.244834876219, 0.919395388264, 2.832293673094, 3.979984993201],
        );
        check(
            &|w| LaplacianSymbol::Order4.at(w),
            [0.009999988899, 0.24983021927, 0.989836044927, 3.500784293982, 5.300008372043],
        );
    }

    #[test]
    fn waves_are_in_the_order_of_a_transform() {
        let modes =
            |n: u64| (0..n).map(|i| Wave::new(i, n, 2.0 * std::f64::consts::PI).k.round() as i64).collect::<Vec<_>>();
        assert_eq!(modes(4), [0, 1, -2, -1]);
        assert_eq!(modes(5), [0, 1, 2, -2, -1]);
        assert_eq!(modes(1), [0]);
        assert!(Wave::new(2, 4, 1.0).nyquist && !Wave::new(2, 5, 1.0).nyquist && !Wave::new(0, 1, 1.0).nyquist);
    }
}
