//! The ring: pages of host memory that the ranks of a host share, and that their devices copy to
//! and from.
//!
//! Each rank has segments of pages, cut into slots of one chunk each. To send a chunk, the device
//! copies it to a slot, and the receiver gets a [`Descriptor`] of each message in the slot. The
//! receiver's device copies from there, and the receiver returns a credit. The slot is free again
//! when all credits have come.

mod establish;
mod peers;
mod segments;
mod shared;
#[cfg(test)]
mod tests;

pub(crate) use establish::establish;
pub use establish::tested_path;
pub(super) use peers::PeerMessage;
pub(super) use segments::{Descriptor, Slot};
pub(super) use shared::SharedRing;
