//! Neighbours of points of the host, on one device, in one call.

use super::error::NeighborError;
use super::output::{Lists, Targets};
use super::query::{KnnQuery, RadiusQuery};
use super::result_routing::{KnnResult, RadiusResult};
use super::search::Search;
use crate::comm::Communicator;
use crate::gpu::Gpu;
use crate::points::{Cloud, Domain};
use crate::rank::Rank;

/// The `k` nearest points of each point (0 to 1024), itself among them: indices and distances, nearest first. `positions` has the
/// coordinates of one point after the other, one per axis of `domain`. Waits for the device.
///
/// For many searches among the same points, or for results that stay on the device, use [`Nearest`](super::Nearest) on a
/// [`Tree`](crate::points::tree::Tree).
///
/// ```
/// use meshloom::gpu::{Gpu, Options};
/// use meshloom::points::{Domain, neighbors::nearest};
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let found = nearest(&gpu, &Domain::new(&[10.0, 0.0])?, &[0.5, 0.0, 9.0, 0.0, 3.0, 0.0], 2)?;
/// assert_eq!(found.index, [0, 1, 1, 0, 2, 0]);
/// assert_eq!(found.distance, [0.0, 1.5, 0.0, 1.5, 0.0, 2.5]);
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// [`NeighborError`] of the points, of `k` and of the device.
pub fn nearest(gpu: &Gpu, domain: &Domain, positions: &[f32], k: u32) -> Result<KnnResult, NeighborError> {
    let (search, mut context) = on_one_rank(gpu, domain, positions)?;
    Ok(context.query(&search, Targets::Own, KnnQuery::nearest(k), Lists)?.download(&mut context)?)
}

/// All points within `radius` of each point, itself among them: the row of point `i` is entries `offset[i]..offset[i + 1]` of indices
/// (ascending) and distances. Otherwise as [`nearest()`].
///
/// ```
/// use meshloom::gpu::{Gpu, Options};
/// use meshloom::points::{Domain, neighbors::within};
///
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let found = within(&gpu, &Domain::new(&[10.0, 0.0])?, &[0.5, 0.0, 9.0, 0.0, 3.0, 0.0], 2.0)?;
/// assert_eq!(found.offset, [0, 2, 4, 5]);
/// assert_eq!(found.index, [0, 1, 0, 1, 2]);
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// [`NeighborError`] of the points, the radius and the device.
pub fn within(gpu: &Gpu, domain: &Domain, positions: &[f32], radius: f32) -> Result<RadiusResult, NeighborError> {
    let (search, mut context) = on_one_rank(gpu, domain, positions)?;
    Ok(context.query(&search, Targets::Own, RadiusQuery::radius(radius), Lists)?.download(&mut context)?)
}

/// A search among `positions` on one rank.
fn on_one_rank(gpu: &Gpu, domain: &Domain, positions: &[f32]) -> Result<(Search, Rank), NeighborError> {
    let mut context = Rank::new(Communicator::solo(), gpu.clone())?;
    let cloud = Cloud::from_host(&mut context.recorder, domain, positions)?;
    Ok((context.search(&cloud.into())?, context))
}
