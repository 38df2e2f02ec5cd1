//! Forecast of the device memory of the search for groups. Pure.

use crate::gpu::pooled;
use crate::points::tree::Levels;

/// Bytes of a point's place and velocity, in three dimensions.
const POINT: u64 = 24;

/// Bytes a point of the tree's own places and of its order.
const TREE: u64 = 16;

/// Bytes a point of what lives for a while beside points and tree: the build sorts keys (16 and up
/// to 3 for tables), and a catalog counts, marks and numbers the members of components, of which
/// it then sorts those that it keeps: half of the points, as is usual for groups today.
const WORK: u64 = 20;

/// Returns the bytes of device memory that finding groups of `points` points with velocities on a
/// rank, in three dimensions, and their catalog take at one time, the cloud included; `total` are
/// those of all ranks. Where there are others, a rank has the cloud that it gave and the points
/// that it got, the way between them, and the indices and labels of what it got; copies of other
/// ranks' points near its own come on top.
#[must_use]
pub fn device_memory(points: u64, total: u64) -> u64 {
    let each = |bytes: u64| pooled(bytes * points);
    let alone = each(POINT) + each(TREE) + each(WORK) + pooled(32 * Levels::new(points).total());
    if points == total {
        return alone;
    }
    let index = if total <= u64::from(u32::MAX) { 4 } else { 8 };
    alone + each(POINT) + each(4) + 2 * each(index)
}
