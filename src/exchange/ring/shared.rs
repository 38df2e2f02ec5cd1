//! The segments of one rank, and those of its peers.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::peers::{Peer, PeerMessage, Pull, pull};
use super::segments::{Descriptor, HEADER_BYTES, LEAST_SLOT_BYTES, PeerAccess, Segment, Slot, Storage, locked};
use crate::comm::Communicator;
use crate::gpu::{DeviceError, Gpu, PeerCopies};

/// The segments of one rank, and the ranks with which it shares a host.
pub(super) struct Ring {
    pub gpu: Gpu,
    /// The driver of the device, if slots can lie in its memory.
    pub access: Option<PeerAccess>,
    pub segments: Mutex<Vec<Arc<Segment>>>,
    /// By rank; `None` for this rank and for ranks of other hosts.
    pub peers: Vec<Option<Peer>>,
}

impl Ring {
    pub fn new(gpu: &Gpu) -> Ring {
        Ring { gpu: gpu.clone(), access: None, segments: Mutex::default(), peers: Vec::new() }
    }

    pub fn take(&self, storage: Storage, bytes: usize) -> Result<Slot, String> {
        let mut segments = locked(&self.segments);
        let of_kind = segments.iter().filter(|segment| segment.storage() == storage);
        let free = of_kind.filter(|segment| segment.slot_bytes >= bytes && !locked(&segment.free).is_empty());
        let segment = match free.min_by_key(|segment| segment.slot_bytes) {
            Some(segment) => segment.clone(),
            None => {
                let slot_bytes = bytes.max(LEAST_SLOT_BYTES).next_multiple_of(HEADER_BYTES);
                let segment = Arc::new(match (storage, &self.access) {
                    (Storage::Pages, _) => Segment::in_pages(&self.gpu, slot_bytes)?,
                    (Storage::Device, Some(access)) => Segment::on_device(&self.gpu, access, slot_bytes)?,
                    (Storage::Device, None) => return Err("the device has no driver library".into()),
                });
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

    /// Returns the memory through which this rank and `rank` exchange; `None` for a rank of another
    /// host, and for this rank.
    pub fn storage(&self, rank: usize) -> Option<Storage> {
        self.peer(rank).map(|peer| peer.storage)
    }

    /// Returns `true` if this rank copies from device memory of a rank of the communicator.
    pub fn has_peer_memory(&self) -> bool {
        (0..self.ranks.len()).any(|rank| self.storage(rank) == Some(Storage::Device))
    }

    /// Takes a free slot of at least `bytes` bytes, or adds a segment.
    ///
    /// # Errors
    /// [`DeviceError::SharedPages`] or [`DeviceError::PeerMemory`] if the system or a driver
    /// refuses a segment.
    pub fn take(&self, comm: &Communicator, storage: Storage, bytes: u64) -> Result<Slot, DeviceError> {
        self.ring.take(storage, bytes as usize).map_err(|why| refused(storage, comm.rank(), why))
    }

    /// Finds the message of `bytes` bytes that `rank` has described.
    ///
    /// # Errors
    /// [`DeviceError::SharedPages`] or [`DeviceError::PeerMemory`] if its memory cannot be used.
    pub fn find(&self, rank: usize, descriptor: &Descriptor, bytes: u64) -> Result<PeerMessage, DeviceError> {
        let no_peer = || refused(Storage::Pages, rank, "the rank is on another host".into());
        let (peer, access) = (self.peer(rank).ok_or_else(no_peer)?, self.ring.access.as_ref());
        let found = peer.find(&self.ring.gpu, access, descriptor, bytes);
        found.map_err(|why| refused(peer.storage, rank, why))
    }

    /// Begins copies of messages in device memory of other ranks.
    ///
    /// # Errors
    /// [`DeviceError::PeerMemory`] if the driver refuses.
    pub fn pull(&self, comm: &Communicator, pulls: &[Pull<'_>]) -> Result<PeerCopies, DeviceError> {
        let access = self.ring.access.as_ref().ok_or_else(|| String::from("the device has no driver library"));
        let begun = access.and_then(|access| pull(access, pulls));
        begun.map_err(|why| refused(Storage::Device, comm.rank(), why))
    }
}

/// Returns the error of slots of `rank` that cannot be used.
pub(in crate::exchange) fn refused(storage: Storage, rank: usize, why: String) -> DeviceError {
    match storage {
        Storage::Pages => DeviceError::SharedPages { rank, why },
        Storage::Device => DeviceError::PeerMemory { rank, why },
    }
}
