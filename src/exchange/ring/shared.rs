//! The pages of one rank, and those of its peers.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::peers::{Peer, PeerMessage};
use super::segments::{Descriptor, Segment, Slot, locked};
use crate::comm::Communicator;
use crate::gpu::{DeviceError, Gpu};

/// The pages of one rank, and of the ranks with which it shares a host.
pub(super) struct Ring {
    pub gpu: Gpu,
    pub segments: Mutex<Vec<Arc<Segment>>>,
    /// By rank; `None` for this rank and for ranks of other hosts.
    pub peers: Vec<Option<Peer>>,
}

impl Ring {
    pub fn new(gpu: &Gpu) -> Ring {
        Ring { gpu: gpu.clone(), segments: Mutex::default(), peers: Vec::new() }
    }

    pub fn take(&self, bytes: usize) -> Result<Slot, String> {
        let mut segments = locked(&self.segments);
        let free = segments.iter().filter(|segment| segment.slot_bytes >= bytes && !locked(&segment.free).is_empty());
        let segment = match free.min_by_key(|segment| segment.slot_bytes) {
            Some(segment) => segment.clone(),
            None => {
                let slot_bytes = bytes.max(LEAST_SLOT_BYTES).next_multiple_of(HEADER_BYTES);
                let segment = Segment::new(&self.gpu, slot_bytes)?;
                segments.push(segment.clone());
                segment
            }
        };
        let number = locked(&segment.free).pop().ok_or("no slot is free")?;
        Ok(Slot { segment, number, abandoned: AtomicBool::new(false) })
    }
}

/// The ring of a communicator, with the ranks numbered as there.
#[derive(Clone)]
pub(in crate::exchange) struct SharedRing {
    ring: Arc<Ring>,
    ranks: Arc<[usize]>,
}

impl SharedRing {
    /// Returns the ring for exchanges over `comm` on `gpu`, if its ranks have one.
    pub fn of(comm: &Communicator, gpu: &Gpu) -> Option<SharedRing> {
        let attachment = comm.attachment()?;
        let ring = attachment.value.downcast::<Ring>().ok()?;
        (ring.gpu.number() == gpu.number()).then_some(SharedRing { ring, ranks: attachment.ranks })
    }

    fn peer(&self, rank: usize) -> Option<&Peer> {
        self.ring.peers[self.ranks[rank]].as_ref()
    }

    /// Returns `true` if this rank shares pages with `rank`.
    pub fn reaches(&self, rank: usize) -> bool {
        self.peer(rank).is_some()
    }

    /// Takes a free slot of at least `bytes` bytes, or adds a segment.
    ///
    /// # Errors
    /// [`DeviceError::SharedPages`] if the system or the driver refuses a segment.
    pub fn take(&self, comm: &Communicator, bytes: u64) -> Result<Slot, DeviceError> {
        self.ring.take(bytes as usize).map_err(|why| DeviceError::SharedPages { rank: comm.rank(), why })
    }

    /// Finds the message of `bytes` bytes that `rank` has described.
    ///
    /// # Errors
    /// [`DeviceError::SharedPages`] if its pages cannot be used.
    pub fn find(&self, rank: usize, descriptor: &Descriptor, bytes: u64) -> Result<PeerMessage, DeviceError> {
        let found = match self.peer(rank) {
            Some(peer) => peer.find(&self.ring.gpu, descriptor, bytes),
            None => Err("the rank is on another host".into()),
        };
        found.map_err(|why| DeviceError::SharedPages { rank, why })
    }
}
