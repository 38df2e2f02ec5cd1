//! The ring: memory that the ranks of a host share, and that their devices copy to and from.
//!
//! Each rank has segments of memory, cut into slots of one chunk each. To send a chunk, the device
//! copies it to a slot, and the receiver gets a [`Descriptor`] of each message in the slot. The
//! receiver's device copies from there, and the receiver returns a credit. The slot is free again
//! when all credits have come.
//!
//! Slots lie in pages of the host, which the receiver's device imports and copies from, or in
//! memory of the sender's device ([`Storage::Device`]), which the driver of the receiver's device
//! maps and copies to a slot of the receiver: Vulkan cannot import memory of another device. Each
//! pair of ranks has tested its memory by copies before.

mod establish;
#[cfg_attr(not(all(target_os = "linux", feature = "gpu-direct")), path = "no_memory_files.rs")]
mod memory_files;
mod segments;
mod shared;

pub(crate) use establish::establish;
pub use establish::{RefusedPath, TestedPath, tested_path};
pub(super) use segments::{Descriptor, Slot, Storage};
pub(super) use shared::{PeerMessage, Pull, SharedRing, refused};
