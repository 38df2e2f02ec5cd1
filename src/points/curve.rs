//! Space-filling curves: keys of points on the device, and their twins on the host.
//!
//! A point lies in a cell, `floor((x - low) * 2^bits / span)` along each axis and clamped, with 21
//! bits per axis in three dimensions and 31 in two; a key is the place of its cell on the curve, of
//! 63 or 62 bits, as two words. Only the difference `x - low` is rounded (to `f32`); the rest is
//! exact, on any device.

use super::{Bounds, Domain, ParticleError};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};

/// A curve through all cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve {
    /// The Z-order curve: the bits of the cell, interleaved, x in the lowest one.
    Morton,
    /// The Hilbert curve, on which consecutive cells are adjacent (J. Skilling, AIP Conf. Proc.
    /// 707, 381, 2004).
    Hilbert,
}

/// Bits of a cell along each of `dims` axes.
pub(crate) const fn bits(dims: usize) -> u32 {
    if dims == 3 { 21 } else { 31 }
}

/// The cells that keys count: where they begin and how far they extend along each axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// Axes.
    pub dims: usize,
    /// Lower corner of the cells.
    pub low: [f32; 3],
    /// Extent of the cells; along an axis without extent every cell is 0.
    pub span: [f32; 3],
}

impl Frame {
    /// Creates the cells of a domain: from 0 to the side along periodic axes, over `bounds` along
    /// open ones. `bounds` are those of all points, on all ranks; `None` without points. An
    /// extent beyond the range of `f32` is cut to it.
    #[must_use]
    pub fn new(domain: &Domain, bounds: Option<Bounds>) -> Self {
        let mut frame = Frame { dims: domain.dims(), low: [0.0; 3], span: [0.0; 3] };
        for axis in 0..domain.dims() {
            (frame.low[axis], frame.span[axis]) = match (domain.side(axis), bounds) {
                (Some(side), _) => (0.0, side),
                (None, Some(Bounds { low, high })) => (low[axis], (high[axis] - low[axis]).min(f32::MAX)),
                (None, None) => (0.0, 0.0),
            };
        }
        frame
    }

    /// Cubes over the box that most points of a domain lie in ([`Cloud::core`](super::Cloud::core);
    /// of all ranks if there are several): they keep near points together however small a part of
    /// the domain these fill, and of whatever shape. Points outside of the box belong to the
    /// outermost cells. `None` without points.
    #[must_use]
    pub fn over(domain: &Domain, core: Option<Bounds>) -> Self {
        let dims = domain.dims();
        let mut frame = Frame { dims, low: [0.0; 3], span: [0.0; 3] };
        if let Some(core) = core {
            frame.low = core.low;
            frame.span[..dims].fill(core.extent().min(f32::MAX));
        }
        frame
    }

    /// Same as [`new`](Self::new), where the cells have to be exact: an extent beyond the range of
    /// `f32` is an error.
    ///
    /// # Errors
    /// [`ParticleError::Extent`].
    pub(crate) fn whole(domain: &Domain, bounds: Option<Bounds>) -> Result<Self, ParticleError> {
        if let Some(Bounds { low, high }) = bounds {
            let open = (0..domain.dims()).filter(|&axis| domain.side(axis).is_none());
            if let Some(axis) = open.into_iter().find(|&axis| !(high[axis] - low[axis]).is_finite()) {
                return Err(ParticleError::Extent { axis, low: low[axis], high: high[axis] });
            }
        }
        Ok(Frame::new(domain, bounds))
    }

    /// Returns the cell of a point with at least [`Frame::dims`] coordinates.
    #[must_use]
    pub fn cell(&self, point: &[f32]) -> [u32; 3] {
        let along =
            |a: usize| if a < self.dims { cell(point[a], self.low[a], self.span[a], bits(self.dims)) } else { 0 };
        [along(0), along(1), along(2)]
    }

    /// Returns the key of a point with at least [`Frame::dims`] coordinates: what [`CurveKeys`]
    /// gives on the device.
    #[must_use]
    pub fn key(&self, curve: Curve, point: &[f32]) -> u64 {
        match curve {
            Curve::Morton => morton(self.cell(point), self.dims),
            Curve::Hilbert => hilbert(self.cell(point), self.dims),
        }
    }
}

/// `floor((x - low) * 2^bits / span)` from 0 to `2^bits - 1`, where only `x - low` is rounded; 0
/// without extent. `bits` is at most 31, `x` no NaN.
pub(crate) fn cell(x: f32, low: f32, span: f32, bits: u32) -> u32 {
    let offset = x - low;
    if offset <= 0.0 || span <= 0.0 {
        return 0;
    }
    if offset >= span {
        return (1 << bits) - 1;
    }
    let parts = |x: f32| match (x.to_bits() & 0x7f_ffff, x.to_bits() >> 23 & 0xff) {
        (fraction, 0) => (u64::from(fraction), 1),
        (fraction, exponent) => (u64::from(fraction | 0x80_0000), exponent),
    };
    let ((a, from), (b, to)) = (parts(offset), parts(span));
    if to - from > bits { 0 } else { ((a << (bits - (to - from))) / b) as u32 }
}

/// Every bit of `n` below `count` at every `step`-th place.
fn spread(n: u32, count: u32, step: u32) -> u64 {
    (0..count).map(|bit| u64::from(n >> bit & 1) << (bit * step)).sum()
}

/// Returns the place of a cell on the Z-order curve: bit `b` of axis `a` at place `b * dims + a`. A
/// cell has 21 bits per axis in three dimensions and 31 in two; with two axes the third is ignored.
///
/// ```
/// use meshloom::points::curve::morton;
/// assert_eq!([[1, 0, 0], [0, 1, 0], [0, 0, 1], [3, 0, 0]].map(|cell| morton(cell, 3)), [1, 2, 4, 9]);
/// ```
#[must_use]
pub fn morton(cell: [u32; 3], dims: usize) -> u64 {
    (0..dims).map(|axis| spread(cell[axis], bits(dims), dims as u32) << axis).sum()
}

/// Returns the place of a cell on the Hilbert curve. A cell has 21 bits per axis in three
/// dimensions and 31 in two; with two axes the third is ignored. The `8^n` (or `4^n`) cells nearest
/// the origin are the first on the curve.
///
/// ```
/// use meshloom::points::curve::hilbert;
/// let mut cells: Vec<[u32; 3]> = (0..4).map(|n| [n & 1, n >> 1, 0]).collect();
/// cells.sort_by_key(|&cell| hilbert(cell, 2));
/// assert!(cells.windows(2).all(|pair| pair[0][0].abs_diff(pair[1][0]) + pair[0][1].abs_diff(pair[1][1]) == 1));
/// ```
#[must_use]
pub fn hilbert(mut cell: [u32; 3], dims: usize) -> u64 {
    let x = &mut cell[..dims];
    let top = 1 << (bits(dims) - 1);
    let mut bit = top;
    while bit > 1 {
        let below = bit - 1;
        for axis in 0..dims {
            if x[axis] & bit != 0 {
                x[0] ^= below;
            } else {
                let exchange = (x[0] ^ x[axis]) & below;
                x[0] ^= exchange;
                x[axis] ^= exchange;
            }
        }
        bit >>= 1;
    }
    for axis in 1..dims {
        x[axis] ^= x[axis - 1];
    }
    let (mut flip, mut bit) = (0, top);
    while bit > 1 {
        if x[dims - 1] & bit != 0 {
            flip ^= bit - 1;
        }
        bit >>= 1;
    }
    x.iter_mut().for_each(|x| *x ^= flip);
    x.reverse();
    morton(cell, dims)
}

crate::gpu::kernel_params! {
    struct KeysParams {
        count: u32,
        dims: u32,
        pad: [u32; 2],
        origin: [f32; 4],
        span: [f32; 4],
    }
}

/// All curves, in the order of their numbers.
const CURVES: [Curve; 2] = [Curve::Morton, Curve::Hilbert];

/// Returns the kernel that computes keys along `curve`.
fn keys(curve: Curve) -> KernelSource {
    let label = if curve == Curve::Hilbert { "points::hilbert" } else { "points::morton" };
    KernelSource::new(label, include_str!("../../shaders/points/keys.wgsl"))
        .params::<KeysParams>()
        .module("points::interleave", include_str!("../../shaders/points/interleave.wgsl"))
        .module("points::morton", include_str!("../../shaders/points/morton.wgsl"))
        .module("points::hilbert", include_str!("../../shaders/points/hilbert.wgsl"))
        .flag("hilbert", curve == Curve::Hilbert)
}

/// Returns the kernels of both curves.
pub(super) fn kernels() -> Vec<KernelSource> {
    CURVES.map(keys).into()
}

/// Computes keys on the device. Keeps its kernels once they are compiled.
pub struct CurveKeys([Kernel; 2]);

impl Default for CurveKeys {
    /// Kernels for any device. Nothing is compiled before it is used.
    fn default() -> Self {
        CurveKeys(CURVES.map(|curve| Kernel::trusted(keys(curve))))
    }
}

impl CurveKeys {
    /// Records `high[i]`, `low[i]` = the words of the key of point `i`, for as many points as
    /// `high` has elements. `positions` holds `frame.dims` finite coordinates per point. Reads 4
    /// bytes per coordinate, writes 8 per point; neither submits nor waits.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the lengths do not fit together; [`DeviceError`] when the
    /// kernel does not fit the device.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        curve: Curve,
        positions: &Array<f32>,
        frame: &Frame,
        high: &Array<u32>,
        low: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let (count, dims) = (high.len(), frame.dims);
        if !(2..=3).contains(&dims) || low.len() != count || positions.len() != count * dims as u64 {
            let why = format!(
                "{} coordinates, {count} high and {} low words of keys in {dims} dimensions",
                positions.len(),
                low.len()
            );
            return Err(DeviceError::misuse("CurveKeys::record", why));
        }
        let four = |[x, y, z]: [f32; 3]| [x, y, z, 0.0];
        let params = KeysParams {
            count: count as u32,
            dims: dims as u32,
            pad: [0; 2],
            origin: four(frame.low),
            span: four(frame.span),
        };
        recorder.each(&self.0[curve as usize], &[positions.raw(), high.raw(), low.raw()], &params, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cell at a place of the Z-order curve: the inverse of [`morton`].
    fn demorton(key: u64, dims: usize) -> [u32; 3] {
        let mut cell = [0; 3];
        for (axis, cell) in cell.iter_mut().enumerate().take(dims) {
            *cell = (0..bits(dims)).map(|bit| ((key >> (bit as usize * dims + axis) & 1) as u32) << bit).sum();
        }
        cell
    }

    /// Returns a splitmix64 stream.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn bits_are_interleaved_with_x_lowest() {
        let last = (1 << 21) - 1;
        assert_eq!(morton([last; 3], 3), (1 << 63) - 1);
        assert_eq!(morton([(1 << 31) - 1; 3], 2), (1 << 62) - 1);
        assert_eq!([morton([1, 0, 9], 2), morton([0, 1, 9], 2), morton([2, 0, 0], 2)], [1, 2, 4]);
        let mut state = 1;
        for dims in [2, 3] {
            for _ in 0..1000 {
                let key = random(&mut state) & ((1 << (bits(dims) as usize * dims)) - 1);
                assert_eq!(morton(demorton(key, dims), dims), key);
            }
        }
    }

    #[test]
    fn neighbors_on_the_hilbert_curve_are_neighboring_cells() {
        for (dims, side) in [(3, 8u32), (2, 16)] {
            let depth = if dims == 3 { side } else { 1 };
            let mut cells: Vec<[u32; 3]> =
                (0..side * side * depth).map(|n| [n % side, n / side % side, n / side / side]).collect();
            cells.sort_by_key(|&cell| hilbert(cell, dims));
            for (place, pair) in cells.windows(2).enumerate() {
                assert_eq!(hilbert(pair[0], dims), place as u64, "the cells at the origin come first, without gaps");
                let steps: u32 = (0..3).map(|a| pair[0][a].abs_diff(pair[1][a])).sum();
                assert_eq!(steps, 1, "{pair:?}");
            }
        }
    }

    #[test]
    fn the_hilbert_curve_passes_each_cell_once_at_any_depth() {
        // At the far corner too: 64 cells of one block of 4^3 take 64 places.
        let base = (1 << 21) - 4;
        let mut keys: Vec<u64> = (0..64).map(|n| hilbert([base + n % 4, base + n / 4 % 4, base + n / 16], 3)).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[1] == pair[0] + 1));
    }

    #[test]
    fn cells_are_exact_quotients() {
        assert_eq!(cell(-1.0, 0.0, 1.0, 21), 0);
        assert_eq!(cell(-0.0, 0.0, 1.0, 21), 0);
        assert_eq!(cell(1.0, 0.0, 1.0, 21), (1 << 21) - 1);
        assert_eq!(cell(9.0, 0.0, 1.0, 31), (1 << 31) - 1);
        assert_eq!(cell(5.0, 5.0, 0.0, 21), 0, "no extent");
        assert_eq!(cell(0.5, 0.0, 1.0, 21), 1 << 20);
        assert_eq!(cell(1e-30, 0.0, 1.0, 31), 0);
        assert!(cell(2e38, -1e38, 3.2e38, 21).abs_diff((3.0 / 3.2 * 2_097_152.0) as u32) <= 1, "no overflow");
        let mut state = 2;
        for _ in 0..20_000 {
            let span = f32::from_bits((random(&mut state) % (200 << 23)) as u32 + (20 << 23));
            let x = (span as f64 * (random(&mut state) >> 11) as f64 / (1u64 << 53) as f64) as f32;
            for bits in [21, 31] {
                let got = u128::from(cell(x, 0.0, span, bits));
                // Cross-multiplied in integers: got * span <= x * 2^bits < (got + 1) * span.
                let whole = |x: f32| (x.to_bits() & 0x7f_ffff | 0x80_0000, x.to_bits() >> 23);
                let ((a, from), (b, to)) = (whole(x), whole(span));
                if x == 0.0 || x >= span || from == 0 || to - from > 60 {
                    continue;
                }
                let (left, right) = (u128::from(a) << bits, u128::from(b) << (to - from));
                assert!(got * right <= left && left < (got + 1) * right, "{x} {span} {bits}: {got}");
            }
        }
    }

    #[test]
    fn frames_are_sides_or_bounds() {
        let bounds = Bounds { low: [-1.0, 2.0, 0.0], high: [3.0, 2.0, 0.0] };
        let domain = Domain::new(&[0.0, 0.0, 8.0]).unwrap();
        let frame = Frame::new(&domain, Some(bounds));
        assert_eq!((frame.low, frame.span), ([-1.0, 2.0, 0.0], [4.0, 0.0, 8.0]));
        assert_eq!(Frame::new(&domain, None).span, [0.0, 0.0, 8.0]);
        let (over, plane) = (Frame::over(&domain, Some(bounds)), Domain::open(2).unwrap());
        assert_eq!((over.low, over.span), ([-1.0, 2.0, 0.0], [4.0; 3]));
        assert_eq!(Frame::over(&plane, None).span, [0.0; 3]);
        let wide = Bounds { low: [-3e38; 3], high: [3e38; 3] };
        assert_eq!(Frame::over(&plane, Some(wide)).span, [f32::MAX, f32::MAX, 0.0]);
        assert_eq!(Frame::new(&plane, Some(wide)).span, [f32::MAX, f32::MAX, 0.0]);
    }
}
