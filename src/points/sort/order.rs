//! The order of one rank's points along a curve.

use crate::gpu::primitives::{Keys, Sort};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::points::{Cloud, Curve, CurveKeys, Frame};

/// Returns the keys of points, as high and low words.
pub(crate) fn keys(
    recorder: &mut Recorder,
    curve: Curve,
    positions: &Array<f32>,
    frame: &Frame,
) -> Result<[Array<u32>; 2], DeviceError> {
    let (gpu, count) = (recorder.gpu().clone(), positions.len() / frame.dims as u64);
    let [high, low] = [gpu.array("sort::high", count)?, gpu.array("sort::low", count)?];
    CurveKeys::default().record(recorder, curve, positions, frame, &high, &low)?;
    Ok([high, low])
}

/// Returns the stable order of keys given as high and low words.
pub(super) fn order_of(recorder: &mut Recorder, [high, low]: [&Array<u32>; 2]) -> Result<Array<u32>, DeviceError> {
    Sort::new(recorder.gpu()).ordered(recorder, "sort::order", Keys::U64 { high, low }.bits(63))
}

/// Returns the points of one rank along `curve`: element `i` of the result is the index of the
/// point that comes `i`-th. Equal keys keep their order. Cells along open axes cover the cloud's
/// own [bounds](Cloud::bounds). Neither submits nor waits.
///
/// ```
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::points::sort::order;
/// use meshloom::points::{Cloud, Curve, Domain};
///
/// let mut recorder = Recorder::new(&Gpu::open(&Options::from_env()?, 0)?)?;
/// let points = [0.9, 0.1, 0.1, 0.9, 0.1, 0.1, 0.9, 0.9];
/// let cloud = Cloud::from_host(&mut recorder, &Domain::new(&[1.0, 1.0])?, &points)?;
/// let order = order(&mut recorder, &cloud, Curve::Morton)?;
/// assert_eq!(recorder.download(&order, 0, 4)?, [2, 0, 1, 3]);
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// [`DeviceError`] when an array or kernel does not fit the device.
pub fn order(recorder: &mut Recorder, cloud: &Cloud, curve: Curve) -> Result<Array<u32>, DeviceError> {
    let frame = Frame::new(cloud.domain(), cloud.bounds());
    let [high, low] = keys(recorder, curve, cloud.positions(), &frame)?;
    order_of(recorder, [&high, &low])
}
