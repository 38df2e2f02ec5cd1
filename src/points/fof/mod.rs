//! Friends-of-friends groups of the points of all ranks, and catalogs of groups: positions,
//! masses, velocities, shapes, members.
//!
//! | item | gives |
//! |---|---|
//! | [`Groups`] | friends-of-friends groups of the points of all ranks: labels, and a catalog |
//! | [`Linking`] | the linking length, absolute or in mean separations |
//! | [`device_memory`] | what finding groups takes of a device |
//! | `catalogue` (feature `catalogue`, on by default) | count, mass, center, motion, size and shape of groups with given labels, however they were found |
//!
//! The groups of one device's points alone are
//! [`Components`](crate::points::neighbors::Components).

#[cfg(feature = "catalogue")]
mod catalogue;
#[cfg(feature = "catalogue")]
mod device_members;
mod error;
mod footprint;
mod groups;
mod linking;
mod links;
mod resolve;

#[cfg(feature = "catalogue")]
pub use catalogue::{Catalogue, Members, Order, Selection, catalogue};
pub use error::FofError;
pub use footprint::device_memory;
pub use groups::Groups;
pub use linking::Linking;

use crate::gpu::KernelSource;

/// Returns the kernels of this folder.
pub(super) fn kernels() -> Vec<KernelSource> {
    #[cfg(feature = "catalogue")]
    return device_members::kernels().into();
    #[cfg(not(feature = "catalogue"))]
    Vec::new()
}
