//! Friends-of-friends groups of the points of all ranks, and catalogs of groups: positions,
//! masses, velocities, shapes, members.
//!
//! | item | gives |
//! |---|---|
//! | [`Groups`] | friends-of-friends groups of the points of all ranks: labels, and a catalog |
//! | [`Linking`] | the linking length, absolute or in mean separations |
//! | [`device_memory`] | what finding groups takes of a device |
//! | `catalog` (feature `catalog`, on by default) | count, mass, center, motion, size and shape of groups with given labels, however they were found |
//!
//! The groups of one device's points alone are
//! [`Components`](crate::points::neighbors::Components).

#[cfg(feature = "catalog")]
mod catalog;
#[cfg(feature = "catalog")]
mod device_members;
mod error;
mod groups;
mod links;

#[cfg(feature = "catalog")]
pub use catalog::{Catalog, Members, Order, Selection, catalog};
pub use error::FofError;
pub use groups::{Groups, Linking, device_memory};

use crate::gpu::KernelSource;

/// Returns the kernels of this folder.
pub(super) fn kernels() -> Vec<KernelSource> {
    #[cfg(feature = "catalog")]
    return device_members::kernels().into();
    #[cfg(not(feature = "catalog"))]
    Vec::new()
}
