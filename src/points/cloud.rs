//! Points with attributes, on one rank's device.

use std::collections::BTreeMap;

use super::{Bounds, Domain, ParticleError, upload_u32};
use crate::comm::{Communicator, Op};
use crate::gpu::primitives::Permute;
use crate::gpu::{Array, Callback, DeviceElement, DeviceError, Element, Kernel, KernelSource, LONGEST, Recorder};

/// An array of one of the types that attributes have; all have elements of 4 bytes.
#[derive(Clone)]
pub enum AnyArray {
    /// Reals.
    F32(Array<f32>),
    /// Integers without sign.
    U32(Array<u32>),
    /// Integers.
    I32(Array<i32>),
}

impl AnyArray {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            AnyArray::F32(array) => array.len(),
            AnyArray::U32(array) => array.len(),
            AnyArray::I32(array) => array.len(),
        }
    }

    /// Returns `true` if it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the type of its elements.
    #[must_use]
    pub fn element(&self) -> Element {
        match self {
            AnyArray::F32(_) => Element::F32,
            AnyArray::U32(_) => Element::U32,
            AnyArray::I32(_) => Element::I32,
        }
    }

    /// Returns the same memory as words, for kernels that only move values.
    ///
    /// # Errors
    /// None: the elements have the same size.
    pub(crate) fn words(&self) -> Result<Array<u32>, DeviceError> {
        match self {
            AnyArray::F32(array) => array.cast(),
            AnyArray::U32(array) => Ok(array.clone()),
            AnyArray::I32(array) => array.cast(),
        }
    }

    /// Other words, as elements of the type of this array.
    ///
    /// # Errors
    /// None: the elements have the same size.
    pub(crate) fn like(&self, words: &Array<u32>) -> Result<AnyArray, DeviceError> {
        AnyArray::of_words(self.element(), words)
    }

    /// Words as elements of the type `element`: `f32`, `i32`, or otherwise `u32`.
    ///
    /// # Errors
    /// None: the elements have the same size.
    pub(crate) fn of_words(element: Element, words: &Array<u32>) -> Result<AnyArray, DeviceError> {
        Ok(match element {
            Element::F32 => AnyArray::F32(words.cast()?),
            Element::I32 => AnyArray::I32(words.cast()?),
            _ => AnyArray::U32(words.clone()),
        })
    }

    /// Gives the array to a callback that reads it.
    pub(crate) fn read_by(&self, callback: Callback, name: &str) -> Callback {
        match self {
            AnyArray::F32(array) => callback.read(name, array),
            AnyArray::U32(array) => callback.read(name, array),
            AnyArray::I32(array) => callback.read(name, array),
        }
    }

    /// Gives the array to a callback that writes it.
    pub(crate) fn written_by(&self, callback: Callback, name: &str) -> Callback {
        match self {
            AnyArray::F32(array) => callback.write(name, array),
            AnyArray::U32(array) => callback.write(name, array),
            AnyArray::I32(array) => callback.write(name, array),
        }
    }
}

/// Types of the values of attributes: `f32`, `u32` and `i32`. The trait is sealed, as
/// [`DeviceElement`] is.
pub trait DeviceValue: DeviceElement {
    #[doc(hidden)]
    fn of(values: &AnyArray) -> Option<&Array<Self>>;
    #[doc(hidden)]
    fn any(values: Array<Self>) -> AnyArray;
}

macro_rules! device_values {
    ($($rust:ty => $element:ident),*) => {$(
        impl DeviceValue for $rust {
            fn of(values: &AnyArray) -> Option<&Array<Self>> {
                if let AnyArray::$element(array) = values { Some(array) } else { None }
            }
            fn any(values: Array<Self>) -> AnyArray {
                AnyArray::$element(values)
            }
        }

        impl From<Array<$rust>> for AnyArray {
            fn from(array: Array<$rust>) -> Self {
                AnyArray::$element(array)
            }
        }
    )*};
}
device_values!(f32 => F32, u32 => U32, i32 => I32);

/// Values that points carry.
#[derive(Clone)]
pub struct Attribute {
    pub(crate) values: AnyArray,
    pub(crate) width: u64,
}

impl Attribute {
    /// Returns the values: first those of point 0, then of point 1, and so on.
    #[must_use]
    pub fn values(&self) -> &AnyArray {
        &self.values
    }

    /// Values per point.
    #[must_use]
    pub fn width(&self) -> u64 {
        self.width
    }
}

/// The points of one rank with their attributes, in a [`Domain`].
///
/// - Positions are one array, point by point, as in a file of shape `(N, dims)`. All are finite;
///   along periodic axes they lie in `[0, side)`.
/// - No more coordinates per rank than [`LONGEST`](crate::gpu::LONGEST): 2^31 - 2^16 points in two
///   dimensions, a third of 2^32 - 2^17 in three. No points are legal.
/// - A clone is another handle on the same arrays.
///
/// ```
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::points::{Cloud, Domain, ParticleError};
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let domain = Domain::new(&[10.0, 10.0])?;
/// let cloud = Cloud::from_host(&mut recorder, &domain, &[1.0, 2.0, -0.5, 10.0])?;
/// assert_eq!(recorder.download(cloud.positions(), 0, 4)?, [1.0, 2.0, 9.5, 0.0]);
/// assert_eq!(cloud.bounds().map(|bounds| bounds.high), Some([9.5, 2.0, 0.0]));
/// let bad = Cloud::from_host(&mut recorder, &domain, &[1.0, 2.0, 3.0, f32::NAN]);
/// assert_eq!(bad.err(), Some(ParticleError::NonFinite { index: 1, axis: 1 }));
/// # Ok::<(), meshloom::Error>(())
/// ```
#[derive(Clone)]
pub struct Cloud {
    domain: Domain,
    positions: Array<f32>,
    bounds: Option<Bounds>,
    core: Option<Bounds>,
    /// Lower bound of the magnitudes of coordinates that are normal numbers; infinity if there are
    /// none. The units of searches depend on it.
    pub(crate) smallest_magnitude: f32,
    attributes: BTreeMap<String, Attribute>,
}

crate::gpu::kernel_params! {
    #[derive(Default)]
    struct PrepareParams {
        count: u32,
        dims: u32,
        pad: [u32; 2],
        sides: [f32; 4],
        /// Periods minus sides.
        rests: [f32; 4],
        /// Mantissas of the periods, integers of 53 bits.
        periods_low: [u32; 4],
        periods_high: [u32; 4],
        /// Powers of two that the mantissas are multiplied by.
        exponents: [i32; 4],
    }
}

impl PrepareParams {
    /// Creates the parameters of `count` rows of `dims` coordinates, which are wrapped into a
    /// domain if there is one.
    fn new(count: u64, dims: usize, domain: Option<&Domain>) -> Self {
        let mut params = PrepareParams { count: count as u32, dims: dims as u32, ..Default::default() };
        let side_and_period = |axis| domain.and_then(|domain| domain.side(axis).zip(domain.period(axis)));
        for axis in 0..dims {
            let Some((side, period)) = side_and_period(axis) else { continue };
            // Periods are normal numbers of f64.
            let mantissa = period.to_bits() & ((1 << 52) - 1) | 1 << 52;
            params.sides[axis] = side;
            params.rests[axis] = (period - f64::from(side)) as f32;
            (params.periods_low[axis], params.periods_high[axis]) = (mantissa as u32, (mantissa >> 32) as u32);
            params.exponents[axis] = (period.to_bits() >> 52) as i32 - 1075;
        }
        params
    }
}

/// Returns the kernel that wraps points and finds their bounds.
pub(super) fn prepare() -> KernelSource {
    KernelSource::new("points::prepare", include_str!("../../shaders/points/prepare.wgsl")).params::<PrepareParams>()
}

/// Records the wrapping of rows of `dims` coordinates into a domain if there is one. Returns the 8
/// words that the kernel finds.
fn wrapped(
    recorder: &mut Recorder,
    positions: &Array<f32>,
    dims: usize,
    domain: Option<&Domain>,
) -> Result<Array<u32>, DeviceError> {
    let count = positions.len() / dims as u64;
    let words = recorder.uploaded("points::found", &[u32::MAX, u32::MAX, u32::MAX, u32::MAX, 0, 0, 0, u32::MAX])?;
    let params = PrepareParams::new(count, dims, domain);
    recorder.each(&Kernel::trusted(prepare()), &[positions.raw(), words.raw()], &params, count)?;
    Ok(words)
}

/// Returns the bounds among the words that the kernel finds.
fn bounds_found(words: &[u32], dims: usize) -> Bounds {
    let mut bounds = Bounds { low: [0.0; 3], high: [0.0; 3] };
    for axis in 0..dims {
        (bounds.low[axis], bounds.high[axis]) = (real(words[1 + axis]), real(words[4 + axis]));
    }
    bounds
}

impl Bounds {
    /// Returns the least box that holds rows of 1 to 3 finite coordinates, which are not wrapped;
    /// `None` without rows.
    ///
    /// Blocks. Reads 4 bytes per coordinate on the device.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn of_rows(recorder: &mut Recorder, rows: &Array<f32>, dims: usize) -> Result<Option<Bounds>, DeviceError> {
        if rows.is_empty() {
            return Ok(None);
        }
        let words = wrapped(recorder, rows, dims, None)?;
        Ok(Some(bounds_found(&recorder.download(&words, 0, 8)?, dims)))
    }
}

/// Returns the real that an integer in the order of the reals stands for.
fn real(image: u32) -> f32 {
    f32::from_bits(if image >> 31 == 1 { image & 0x7fff_ffff } else { !image })
}

/// Points of a sample. Clouds of fewer than four times as many have none: any order serves them.
const SAMPLE: u64 = 512;
/// Points of a sample that are left out on either side of an axis.
const OUTSIDE: usize = SAMPLE as usize / 32;
/// Reach of a core beyond the middle of a sample, in extents of the sample.
const MARGIN: f32 = 64.0;

/// Returns the rows of a sample of `count` points.
fn sample_rows(count: u64) -> Vec<u32> {
    if count < 4 * SAMPLE { Vec::new() } else { (0..SAMPLE).map(|at| (at * count / SAMPLE) as u32).collect() }
}

/// Points whose extremes the host finds while it uploads them: in less time than the device takes
/// to answer.
const FEW: u64 = 1024;

/// Extremes of points that the device need not wrap.
struct Extremes {
    bounds: Bounds,
    /// Smallest magnitude that is a normal number; infinity if all are 0 or subnormal.
    smallest_magnitude: f32,
}

impl Extremes {
    /// Returns the extremes of 1 to [`FEW`] rows of coordinates; `None` for other numbers of rows,
    /// and where a coordinate is not finite or lies outside its side.
    fn of(domain: &Domain, positions: &[f32]) -> Option<Extremes> {
        let dims = domain.dims();
        let rows = positions.chunks_exact(dims);
        if !(1..=FEW).contains(&(rows.len() as u64)) || !rows.remainder().is_empty() {
            return None;
        }
        let mut found =
            Extremes { bounds: Bounds { low: [0.0; 3], high: [0.0; 3] }, smallest_magnitude: f32::INFINITY };
        let Bounds { low, high } = &mut found.bounds;
        for axis in 0..dims {
            (low[axis], high[axis]) = (positions[axis], positions[axis]);
        }
        for row in rows {
            for (axis, &x) in row.iter().enumerate() {
                let inside = domain.side(axis).is_none_or(|side| (0.0..side).contains(&x));
                if !(x.is_finite() && inside) {
                    return None;
                }
                // -0 is below 0, as on the device.
                low[axis] = std::cmp::min_by(low[axis], x, f32::total_cmp);
                high[axis] = std::cmp::max_by(high[axis], x, f32::total_cmp);
                if x.is_normal() {
                    found.smallest_magnitude = found.smallest_magnitude.min(x.abs());
                }
            }
        }
        Some(found)
    }
}

/// Returns `bounds` cut to the points of a sample without the outermost ones, with a wide margin.
/// Nothing is cut without a sample, or if nearly all of it coincides.
fn core(sample: &[f32], dims: usize, bounds: &Bounds) -> Bounds {
    if sample.is_empty() {
        return *bounds;
    }
    let mut middle = *bounds;
    for axis in 0..dims {
        let mut along: Vec<f32> = sample.iter().skip(axis).step_by(dims).copied().collect();
        along.sort_unstable_by(f32::total_cmp);
        (middle.low[axis], middle.high[axis]) = (along[OUTSIDE], along[along.len() - 1 - OUTSIDE]);
    }
    let margin = MARGIN * middle.extent();
    if margin == 0.0 {
        return *bounds;
    }
    let [low, high] = [middle.low.map(|low| low - margin), middle.high.map(|high| high + margin)];
    Bounds { low: [0, 1, 2].map(|a| low[a].max(bounds.low[a])), high: [0, 1, 2].map(|a| high[a].min(bounds.high[a])) }
}

impl Cloud {
    /// Creates a cloud of `positions`, `dims` coordinates per point, and wraps them in place along
    /// periodic axes. One dispatch, which reads 4 bytes per coordinate and writes those that it
    /// wraps, and one for a sample of many points; then waits for 32 bytes and the sample, at most
    /// 6 KiB.
    ///
    /// A wrapped coordinate is the exact remainder by the given side, in `f64`, rounded to `f32` as
    /// by [`Domain::wrap`]; coordinates in `[0, side)` are unchanged, and what rounds to the side
    /// becomes 0.
    ///
    /// # Errors
    /// [`ParticleError::NonFinite`] for the first point with a coordinate that is NaN or infinite,
    /// [`ParticleError::Coordinates`] if the coordinates are not a whole number of points,
    /// [`ParticleError::TooMany`], and errors of the device.
    pub fn new(recorder: &mut Recorder, domain: &Domain, positions: Array<f32>) -> Result<Cloud, ParticleError> {
        let dims = domain.dims() as u64;
        let count = positions.len() / dims;
        if positions.len() != count * dims {
            return Err(ParticleError::Coordinates { dims, found: positions.len() });
        }
        Self::check_count(count, domain)?;
        let mut cloud = Cloud {
            domain: *domain,
            positions,
            bounds: None,
            core: None,
            smallest_magnitude: f32::INFINITY,
            attributes: BTreeMap::new(),
        };
        if count == 0 {
            return Ok(cloud);
        }
        let rows = sample_rows(count);
        let words = wrapped(recorder, &cloud.positions, domain.dims(), Some(domain))?;
        let found = recorder.gpu().array::<u32>("points::found", 8 + rows.len() as u64 * dims)?;
        recorder.copy(&words, 0, &found, 0, 8)?;
        if !rows.is_empty() {
            let rows = upload_u32(recorder, &rows)?;
            let sample = Permute::new().gathered(recorder, "points::sample", &cloud.positions.cast()?, &rows, dims)?;
            recorder.copy(&sample, 0, &found, 8, sample.len())?;
        }
        let found = recorder.download(&found, 0, found.len())?;
        if found[0] != u32::MAX {
            let at = u64::from(found[0]);
            return Err(ParticleError::NonFinite { index: at / dims, axis: (at % dims) as usize });
        }
        let bounds = bounds_found(&found, domain.dims());
        cloud.bounds = Some(bounds);
        let sample: Vec<f32> = found[8..].iter().map(|&bits| f32::from_bits(bits)).collect();
        cloud.core = Some(core(&sample, domain.dims(), &bounds));
        if found[7] != u32::MAX {
            cloud.smallest_magnitude = f32::from_bits(found[7]);
        }
        Ok(cloud)
    }

    /// A cloud of points that are wrapped and finite already, within `bounds`, whose magnitudes
    /// have this lower bound. Neither submits nor waits.
    pub(crate) fn of_wrapped(
        domain: &Domain,
        positions: Array<f32>,
        bounds: Option<Bounds>,
        smallest_magnitude: f32,
    ) -> Result<Cloud, ParticleError> {
        let dims = domain.dims() as u64;
        Self::check_count(positions.len() / dims, domain)?;
        let bounds = bounds.filter(|_| !positions.is_empty());
        let (core, attributes) = (bounds, BTreeMap::new());
        Ok(Cloud { domain: *domain, positions, bounds, core, smallest_magnitude, attributes })
    }

    /// Uploads coordinates, point by point, and makes a cloud of them as [`new`](Self::new) does.
    /// Blocks, except for at most 1024 points inside their domain.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn from_host(recorder: &mut Recorder, domain: &Domain, positions: &[f32]) -> Result<Cloud, ParticleError> {
        Self::check_count(positions.len() as u64 / domain.dims() as u64, domain)?;
        let array = recorder.uploaded("points::positions", positions)?;
        match Extremes::of(domain, positions) {
            Some(Extremes { bounds, smallest_magnitude }) => {
                Self::of_wrapped(domain, array, Some(bounds), smallest_magnitude)
            }
            None => Self::new(recorder, domain, array),
        }
    }

    /// Same as [`from_host`](Self::from_host) for `f64` coordinates, which are wrapped in `f64` and
    /// rounded once, see [`Domain::wrap`]. Blocks, except for at most 1024 points.
    ///
    /// # Errors
    /// Same as [`new`](Self::new), and [`ParticleError::OutOfRange`] for a coordinate along an open
    /// axis that `f32` cannot hold.
    pub fn from_host_f64(recorder: &mut Recorder, domain: &Domain, positions: &[f64]) -> Result<Cloud, ParticleError> {
        Self::from_host(recorder, domain, &domain.narrow(positions, 0)?)
    }

    /// Checks that a rank can hold `count` points: that it can number them, and that an array can
    /// hold their coordinates.
    ///
    /// # Errors
    /// [`ParticleError::TooMany`].
    pub fn check_count(count: u64, domain: &Domain) -> Result<(), ParticleError> {
        let dims = domain.dims();
        let most = ((1 << 31) - 1).min(LONGEST / dims as u64);
        if count <= most { Ok(()) } else { Err(ParticleError::TooMany { count, most, dims }) }
    }

    /// Makes an error of one rank's points an error of all ranks: each passes the result of
    /// [`new`](Self::new) for its own part of the points, `rows` of them, and gets it back, or the
    /// error of the first bad coordinate of all ranks, with the index of the point in the input of
    /// all ranks (in rank order). Collective.
    ///
    /// # Errors
    /// [`ParticleError::NonFinite`] and [`ParticleError::OutOfRange`], the same on all ranks;
    /// others only on the rank that found them, which must end and thereby ends the wait of the
    /// others.
    pub fn agreed(comm: &Communicator, rows: u64, found: Result<Cloud, ParticleError>) -> Result<Cloud, ParticleError> {
        let bad = match &found {
            Ok(_) => None,
            Err(ParticleError::NonFinite { index, axis }) => Some((*index, *axis, f64::NAN)),
            Err(ParticleError::OutOfRange { index, axis, value }) => Some((*index, *axis, *value)),
            Err(_) => return found,
        };
        let mut before = [rows];
        comm.scan_exclusive(&mut before, Op::Sum)?;
        let mine = bad.map_or([u64::MAX; 3], |(index, axis, value)| [before[0] + index, axis as u64, value.to_bits()]);
        let all = comm.all_gather(&mine)?;
        match all.chunks_exact(3).min() {
            Some(&[index, axis, value]) if index != u64::MAX => {
                let (axis, value) = (axis as usize, f64::from_bits(value));
                Err(match value.is_nan() {
                    true => ParticleError::NonFinite { index, axis },
                    false => ParticleError::OutOfRange { index, axis, value },
                })
            }
            _ => found,
        }
    }

    /// Returns where the points lie.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Returns the number of points.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.positions.len() / self.domain.dims() as u64
    }

    /// Returns `true` if it has no points.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Returns the coordinates, point by point.
    #[must_use]
    pub fn positions(&self) -> &Array<f32> {
        &self.positions
    }

    /// Returns a box that holds all points: the bounding box, or that of the cloud from which
    /// [`gather`](Self::gather) has made this one. `None` without points.
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        self.bounds
    }

    /// Returns a box that holds all points but those that lie far away from nearly all others: the
    /// [bounds](Self::bounds) cut to 64 times the extent of most of the points around these. A
    /// single point far out would take the cells of a curve from all the rest.
    #[must_use]
    pub fn core(&self) -> Option<Bounds> {
        self.core
    }

    /// Gives the points an attribute of `width` values each, in place of one of this name.
    ///
    /// # Errors
    /// [`ParticleError::Shape`] unless there are as many values, and at least one per point.
    pub fn set(&mut self, name: &str, values: impl Into<AnyArray>, width: u64) -> Result<(), ParticleError> {
        let (values, want) = (values.into(), self.len().saturating_mul(width));
        if values.len() != want || width == 0 {
            return Err(ParticleError::Shape { name: name.into(), have: values.len(), want });
        }
        self.attributes.insert(name.into(), Attribute { values, width });
        Ok(())
    }

    /// Removes the attribute of this name if there is one.
    pub(crate) fn remove(&mut self, name: &str) {
        self.attributes.remove(name);
    }

    /// Returns the points without their attributes.
    pub(crate) fn without_attributes(&self) -> Cloud {
        Cloud { attributes: BTreeMap::new(), ..self.clone() }
    }

    /// Returns the attribute of this name.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.get(name)
    }

    /// Returns all attributes, by name in alphabetic order.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.attributes.iter().map(|(name, attribute)| (name.as_str(), attribute))
    }

    /// Returns a new cloud of the points `index[0]`, `index[1]`, ... with their attributes: all of
    /// them in another order, or a selection. Each index is less than [`len`](Self::len). One
    /// dispatch for the positions and one per attribute; neither submits nor waits.
    ///
    /// # Errors
    /// [`ParticleError::TooMany`], and [`DeviceError`] when an array does not fit the device.
    pub fn gather(
        &self,
        recorder: &mut Recorder,
        permute: &Permute,
        index: &Array<u32>,
    ) -> Result<Cloud, ParticleError> {
        Self::check_count(index.len(), &self.domain)?;
        let dims = self.domain.dims() as u64;
        let positions = permute.gathered(recorder, "points::positions", &self.positions, index, dims)?;
        let mut attributes = BTreeMap::new();
        for (name, Attribute { values, width }) in &self.attributes {
            let values = values.like(&permute.gathered(recorder, name, &values.words()?, index, *width)?)?;
            attributes.insert(name.clone(), Attribute { values, width: *width });
        }
        let [bounds, core] = [self.bounds, self.core].map(|held| held.filter(|_| !index.is_empty()));
        let (domain, smallest_magnitude) = (self.domain, self.smallest_magnitude);
        Ok(Cloud { domain, positions, bounds, core, smallest_magnitude, attributes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_holds_points_whose_coordinates_an_array_holds() {
        let [plane, space] = [2, 3].map(|dims| Domain::open(dims).unwrap());
        for (domain, most) in [(plane, (1 << 31) - (1 << 16)), (space, 1_431_612_074)] {
            assert_eq!(Cloud::check_count(most, &domain), Ok(()));
            let error = Cloud::check_count(most + 1, &domain).unwrap_err();
            assert!(error.to_string().contains(&format!("{most} of {} axes", domain.dims())), "{error}");
        }
    }

    #[test]
    fn a_core_leaves_out_what_lies_far_away() {
        let at = |i: u32| [i, i * 7 % 101, i * 31 % 97].map(|x| x as f32 / 512.0);
        let sample: Vec<f32> = (0..512).flat_map(at).collect();
        let near = Bounds { low: [0.0; 3], high: [1.0; 3] };
        assert_eq!(core(&sample, 3, &near), near);
        assert_eq!(core(&[], 3, &near), near);
        let outlier = Bounds { low: [-1e30, 0.0, 0.0], high: [1.0, 1.0, 1e30] };
        let found = core(&sample, 3, &outlier);
        assert!(
            found.low[0] > -100.0 && found.low[0] < -10.0 && found.high[0] == 1.0 && found.low[2] == 0.0,
            "{found:?}"
        );
        assert!(found.high[2] > 10.0 && found.high[2] < 100.0, "{found:?}");
        // Some of the sample lie far away, too.
        let mut few = sample.clone();
        few[..45].fill(1e9);
        let wide = Bounds { low: [0.0; 3], high: [1e9; 3] };
        assert!(core(&few, 3, &wide).high.iter().all(|&high| high < 100.0));
        // Half of them do.
        let half: Vec<f32> = sample.iter().enumerate().map(|(i, &x)| if i % 2 == 0 { x } else { x + 1e9 }).collect();
        assert_eq!(core(&half, 3, &wide), wide);
        // All but a few coincide.
        assert_eq!(core(&vec![0.5; 1536], 3, &outlier), outlier);
        // Extents beyond the range of f32.
        let halves: Vec<f32> = (0..512).flat_map(|i| [if i % 2 == 0 { -3e38 } else { 3e38 }; 2]).collect();
        let widest = Bounds { low: [-3e38, -3e38, 0.0], high: [3e38, 3e38, 0.0] };
        assert_eq!(core(&halves, 2, &widest), widest);
    }

    #[test]
    fn images_keep_the_order_of_reals() {
        // As in the kernel.
        let image = |x: f32| if x.is_sign_negative() { !x.to_bits() } else { x.to_bits() | 0x8000_0000 };
        let reals = [f32::MIN, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, f32::MAX];
        assert!(reals.windows(2).all(|pair| image(pair[0]) < image(pair[1])));
        assert!(reals.iter().all(|&x| real(image(x)).to_bits() == x.to_bits()));
    }
}
