//! Points with attributes in a box that is periodic or open along each axis; sorting, trees,
//! ghosts, neighbor searches and groups.
//!
//! | item | does |
//! |---|---|
//! | [`Particles`] | points of all ranks with attributes: moved, distributed, searched, written |
//! | [`Domain`] | axes and sides; wrapping on the host |
//! | [`BoxCheck`] | warnings about points and a box in different units |
//! | [`Cloud`] | one rank's points on its device, wrapped and checked; their attributes |
//! | [`Curve`], [`CurveKeys`], [`Frame`] | keys along the Z-order or the Hilbert curve |
//! | [`sort`] | points in the order of a curve, on one rank or over all |
//! | [`tree`] | a hierarchy of bounding boxes over points |
//! | [`ghosts`] | copies of other ranks' points |
//! | [`neighbors`] | nearest neighbors, all within a radius, pair counts, connected components |
//! | [`fof`] | friends-of-friends groups of all ranks, and their catalog |
//!
//! Making a [`Cloud`] waits for the device once; keys are recorded only.

mod box_check;
mod cloud;
pub mod curve;
mod domain;
mod each;
mod error;
mod extent;
mod files;
pub mod fof;
pub mod ghosts;
pub mod neighbors;
mod particles;
mod partition;
mod rows;
pub mod sort;
pub mod tree;
mod u64_array;
pub use u64_array::U64Array;

pub use box_check::{BoxCheck, BoxUse, BoxWarning};
pub use cloud::{AnyArray, Attribute, Cloud, DeviceValue};
pub use curve::{Curve, CurveKeys, Frame};
pub use domain::{Bounds, Domain};
pub use error::{ParticleError, ParticleFileError};
pub(crate) use extent::Extent;
pub use neighbors::output::{Counts, Histogram, HostLists, Lists, Output, Targets, WeightedHistogram};
pub use neighbors::visitor::Visit;
pub use neighbors::{Bins, Fixed, Nearest, Overdense, Predicate, Ragged, Search, Within};
pub use particles::{Attributes, Particles};
pub(crate) use partition::{Decomposition, JointPoints, LocalPoints, WithGhosts};
pub(crate) use rows::{chained, every, exchange_rows, iota, offsets, upload_u32};

use crate::gpu::KernelSource;

/// Returns the kernels of this room in all forms that any device compiles.
pub(crate) fn kernels() -> Vec<KernelSource> {
    let own =
        [cloud::prepare(), rows::kernel(), ghosts::kernel(), partition::kernel()].into_iter().chain(curve::kernels());
    own.chain(u64_array::kernels())
        .chain(sort::kernels())
        .chain(tree::kernels())
        .chain(neighbors::kernels())
        .chain(fof::kernels())
        .collect()
}
