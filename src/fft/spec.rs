//! Descriptions of transforms: elements, shapes, axes, normalization, distribution. Pure data.

use super::error::FftError;
use crate::gpu::{Capabilities, DeviceElement, Element, LONGEST};
use crate::grid::{Box3, extent, volume};

/// The kind of numbers in the cells of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Values {
    /// Real numbers, with half a spectrum.
    Real,
    /// Complex numbers.
    Complex,
}

impl Values {
    /// Returns the number of modes along the last transformed axis of `n` cells.
    #[must_use]
    pub fn modes(self, n: u64) -> u64 {
        match self {
            Values::Real => n / 2 + 1,
            Values::Complex => n,
        }
    }
}

/// An element of fields that can be transformed: `f32`, `f64`, and complex numbers `[f32; 2]`,
/// `[f64; 2]`. The trait is sealed, as [`DeviceElement`] is.
pub trait Value: DeviceElement {
    /// Whether elements are real or complex.
    const VALUES: Values;
    /// The precision of elements.
    const PRECISION: Precision;
    /// The type of a mode.
    type Mode: DeviceElement;
}

macro_rules! values {
    ($($type:ty: $values:ident $precision:ident $mode:ty;)*) => {$(
        impl Value for $type {
            const VALUES: Values = Values::$values;
            const PRECISION: Precision = Precision::$precision;
            type Mode = $mode;
        }
    )*};
}

values! {
    f32: Real Single [f32; 2];
    f64: Real Double [f64; 2];
    [f32; 2]: Complex Single [f32; 2];
    [f64; 2]: Complex Double [f64; 2];
}

/// The direction that carries the factor `1 / N`, with the names of NumPy. `N` is the number of
/// points of the transformed axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Norm {
    /// The inverse divides by `N`.
    #[default]
    Backward,
    /// Both divide by the square root of `N`.
    Ortho,
    /// The forward transform divides by `N`.
    Forward,
}

impl Norm {
    /// Returns the factors of the forward and of the inverse transform of `n` points.
    #[must_use]
    pub fn factors(self, n: f64) -> [f64; 2] {
        match self {
            Norm::Backward => [1.0, 1.0 / n],
            Norm::Ortho => [1.0 / n.sqrt(); 2],
            Norm::Forward => [1.0 / n, 1.0],
        }
    }
}

/// The distribution of a spectrum over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// The distribution after the last pass, without further exchanges.
    #[default]
    Transposed,
    /// Cuts the same axes as the field. Doubles the number of exchanges.
    Natural,
}

/// A transform of fields on a mesh of up to three axes.
///
/// - Arrays of one and two axes are meshes of `[1, 1, n]` and `[1, n0, n1]`.
/// - Real transforms halve the last axis, which must be transformed.
/// - The field has `cells`, the transform has `points` (zeros follow the cells), and the spectrum
///   has the lowest modes of a mesh of `modes` cells. All three are equal by default.
///
/// ```
/// use meshloom::fft::{Norm, Spec};
/// // The velocity of a flow, dealiased by the 3/2 rule: 48^3 cells, with the modes of 32^3 cells.
/// let spec = Spec::of::<f32>([48; 3]).fields(3).modes([32; 3]).norm(Norm::Forward);
/// assert_eq!(spec.spectrum(), [32, 32, 17]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The kind of numbers in cells.
    pub values: Values,
    /// The precision of elements.
    pub precision: Precision,
    /// Cells of the field along each axis.
    pub cells: [u64; 3],
    /// Points of the transform along each axis.
    pub points: [u64; 3],
    /// Cells along each axis of the mesh whose modes the spectrum has.
    pub modes: [u64; 3],
    /// The axes that are transformed.
    pub axes: [bool; 3],
    /// Number of fields that are transformed together, one after the other in memory.
    pub fields: u64,
    /// The direction that carries the factor.
    pub norm: Norm,
    /// The distribution of the spectrum.
    pub distribution: Distribution,
}

impl Spec {
    /// Describes the transform of one field of `cells` elements of type `T` along all axes.
    #[must_use]
    pub fn of<T: Value>(cells: [u64; 3]) -> Self {
        Spec {
            values: T::VALUES,
            precision: T::PRECISION,
            cells,
            points: cells,
            modes: cells,
            axes: [true; 3],
            fields: 1,
            norm: Norm::Backward,
            distribution: Distribution::Transposed,
        }
    }

    /// Refuses a specification of other elements than `T`.
    pub(super) fn check_elements<T: Value>(&self) -> Result<(), FftError> {
        let name = |values, precision| match (values, precision) {
            (Values::Real, Precision::Single) => "f32",
            (Values::Real, Precision::Double) => "f64",
            (Values::Complex, Precision::Single) => "[f32; 2]",
            (Values::Complex, Precision::Double) => "[f64; 2]",
        };
        let (expected, found) = (name(T::VALUES, T::PRECISION), name(self.values, self.precision));
        if found == expected { Ok(()) } else { Err(FftError::Elements { expected, found }) }
    }

    /// Sets the axes that are transformed.
    #[must_use]
    pub fn axes(mut self, axes: [bool; 3]) -> Self {
        self.axes = axes;
        self
    }

    /// Sets the number of fields that are transformed together.
    #[must_use]
    pub fn fields(mut self, fields: u64) -> Self {
        self.fields = fields;
        self
    }

    /// Sets the normalization.
    #[must_use]
    pub fn norm(mut self, norm: Norm) -> Self {
        self.norm = norm;
        self
    }

    /// Sets the points of the transform: zeros follow the field. A spectrum that
    /// [`modes`](Self::modes) has not cut gets as many modes.
    #[must_use]
    pub fn points(mut self, points: [u64; 3]) -> Self {
        for axis in 0..3 {
            if self.modes[axis] == self.points[axis] {
                self.modes[axis] = points[axis];
            }
        }
        self.points = points;
        self
    }

    /// Keeps the modes of a mesh of `modes` cells, the lowest ones, in the order of a transform of
    /// that mesh. The unpaired mode of an even number is zero.
    #[must_use]
    pub fn modes(mut self, modes: [u64; 3]) -> Self {
        self.modes = modes;
        self
    }

    /// Distributes the spectrum like the field.
    #[must_use]
    pub fn natural(mut self) -> Self {
        self.distribution = Distribution::Natural;
        self
    }

    /// Returns the elements of the whole spectrum along each axis.
    #[must_use]
    pub fn spectrum(&self) -> [u64; 3] {
        let mut modes = self.modes;
        if self.values == Values::Real {
            modes[2] = modes[2] / 2 + 1;
        }
        modes
    }

    /// Returns the factors of the forward and the inverse transform.
    #[must_use]
    pub fn factors(&self) -> [f64; 2] {
        self.norm.factors((0..3).filter(|&a| self.axes[a]).map(|a| self.points[a] as f64).product())
    }

    /// Checks that cells, points, modes and axes fit each other.
    ///
    /// # Errors
    /// [`FftError::Empty`], [`FftError::Order`], [`FftError::Line`], [`FftError::RealAxis`].
    pub fn check(&self) -> Result<(), FftError> {
        if self.cells.contains(&0) || self.modes.contains(&0) || self.fields == 0 {
            return Err(FftError::Empty);
        }
        for axis in 0..3 {
            let (cells, points, modes) = (self.cells[axis], self.points[axis], self.modes[axis]);
            let fits =
                if self.axes[axis] { cells <= points && modes <= points } else { cells == points && modes == points };
            if !fits {
                return Err(FftError::Order { axis, cells, points, modes });
            }
            // Each rank has whole lines.
            if self.axes[axis] && points > LONGEST {
                return Err(FftError::Line { axis, points });
            }
        }
        if self.values == Values::Real && !self.axes[2] { Err(FftError::RealAxis) } else { Ok(()) }
    }
}

/// The modes of one rank, and their order in its array.
///
/// ```
/// use meshloom::fft::{SpectrumLayout, Values};
/// // The second half of the rows of a real field of 4 x 6 x 8 cells.
/// let layout = SpectrumLayout { values: Values::Real, shape: [4, 6, 8], part: [0..4, 3..6, 0..5] };
/// assert_eq!(layout.len(), 4 * 3 * 5);
/// assert_eq!([0, 1, 2, 3].map(|i| layout.mode(0, i)), [0, 1, -2, -1]);
/// assert_eq!([0, 1, 2].map(|j| layout.mode(1, j)), [-3, -2, -1]);
/// assert_eq!([0, 4].map(|k| layout.mode(2, k)), [0, 4]); // the half axis ends with +n/2
/// assert_eq!(layout.modes().nth(5), Some([0, -2, 0]));
/// assert_eq!(layout.frequencies(1, 12.0), [-0.25, -1.0 / 6.0, -1.0 / 12.0]); // cycles per unit of length
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpectrumLayout {
    /// Real or complex. The last axis of the spectrum of a real field holds modes `0..=n/2`.
    pub values: Values,
    /// Cells along each axis of the mesh whose modes these are.
    pub shape: [u64; 3],
    /// The modes of this rank, as ranges of indices of the whole spectrum. The array is in C order
    /// over them.
    pub part: Box3,
}

impl SpectrumLayout {
    /// Returns the number of modes of this rank.
    #[must_use]
    pub fn len(&self) -> u64 {
        volume(&self.part)
    }

    /// Returns whether this rank has no modes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the mode number of the `i`-th mode of this rank along `axis`, in `-n/2..n/2` (the
    /// half axis ends with `+n/2`). The wavenumber is `2 pi / L` times the mode number.
    #[must_use]
    pub fn mode(&self, axis: usize, i: u64) -> i64 {
        let (n, index) = (self.shape[axis], self.part[axis].start + i);
        let half = axis == 2 && self.values == Values::Real;
        if half || 2 * index < n { index as i64 } else { index as i64 - n as i64 }
    }

    /// Returns the mode numbers along each axis of this rank's modes, in the order of their array;
    /// see [`mode`](Self::mode).
    pub fn modes(&self) -> impl Iterator<Item = [i64; 3]> {
        let [_, rows, columns] = extent(&self.part);
        (0..self.len()).map(move |n| {
            let at = [n / (rows * columns), n / columns % rows, n % columns];
            [0, 1, 2].map(|axis| self.mode(axis, at[axis]))
        })
    }

    /// Returns the frequencies of this rank's modes along `axis`, in cycles per unit of length, for
    /// a mesh of this `length`. NumPy's `fftfreq` and `rfftfreq` return the same for a spacing of
    /// `length / n`.
    #[must_use]
    pub fn frequencies(&self, axis: usize, length: f64) -> Vec<f64> {
        let count = self.part[axis].end - self.part[axis].start;
        (0..count).map(|i| self.mode(axis, i) as f64 / length).collect()
    }
}

/// The precision of a transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// `f32`, on every device.
    #[default]
    Single,
    /// `f64`, on devices with double precision (natively, in Vulkan).
    Double,
}

impl Precision {
    /// Returns the bytes of a real number.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Precision::Single => 4,
            Precision::Double => 8,
        }
    }

    /// Returns the real element of arrays.
    #[must_use]
    pub const fn real(self) -> Element {
        match self {
            Precision::Single => Element::F32,
            Precision::Double => Element::F64,
        }
    }

    /// Returns the complex element of arrays.
    #[must_use]
    pub const fn complex(self) -> Element {
        match self {
            Precision::Single => Element::Complex32,
            Precision::Double => Element::Complex64,
        }
    }

    /// Checks that a device supports the precision.
    ///
    /// # Errors
    /// [`FftError::NoDouble`] if it does not.
    pub fn check(self, device: &str, capabilities: &Capabilities) -> Result<(), FftError> {
        match self {
            Precision::Double if !capabilities.f64 => Err(FftError::NoDouble { device: device.into() }),
            _ => Ok(()),
        }
    }

    /// Returns an exact WGSL literal.
    pub(super) fn literal(self, value: f64) -> String {
        let text = match self {
            Precision::Single => format!("{:?}f", value as f32),
            Precision::Double => format!("{value:?}lf"),
        };
        if text.starts_with('-') { format!("({text})") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::Plan;
    use crate::fft::core::FLOOR;
    use crate::grid::Grid;

    /// Each must be refused at once.
    #[test]
    fn lengths_and_numbers_beyond_all_devices_are_refused() {
        let plan = |spec: &Spec| Plan::new(spec, Grid::new([1, 1], 1).unwrap(), 0, FLOOR, 4).map(drop);
        for points in [LONGEST + 1, (1 << 32) + 1, (1 << 61) - 1, 1 << 63, u64::MAX] {
            let spec = Spec::of::<[f32; 2]>([1, 1, points]);
            assert_eq!(plan(&spec), Err(FftError::Line { axis: 2, points }));
        }
        // A prime, and a product of two primes that have no pass.
        for points in [4_294_836_197, 65_521 * 65_521] {
            let found = plan(&Spec::of::<[f32; 2]>([1, 1, points]));
            assert!(matches!(found, Err(FftError::TooLarge { .. } | FftError::TooLong { .. })), "{found:?}");
        }
        let spec = Spec::of::<[f32; 2]>([u64::MAX, u64::MAX, 8]).axes([false, false, true]);
        for spec in [spec.clone(), spec.fields(u64::MAX), Spec::of::<f32>([8; 3]).fields(u64::MAX)] {
            assert!(matches!(plan(&spec), Err(FftError::TooLarge { .. })));
        }
    }
}
