//! The segments of one rank, and those of its peers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::memory_files;
use super::segments::{
    DEVICE_BYTES, Descriptor, GENERATIONS, HEADER_BYTES, PeerAccess, SLOT_BYTES, SLOTS, Segment, Slot, Storage, TOKEN,
    slot_bytes_for,
};
use crate::comm::Communicator;
use crate::gpu::{DeviceError, Gpu, HostPages, PeerCopies, PeerCopy, PeerMemory};
use crate::parallel::locked;

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
                let slot_bytes = slot_bytes_for(bytes);
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

/// The memory of the slots of another rank, as this rank reaches it.
#[derive(Clone)]
enum PeerSlots {
    /// Imported pages.
    Pages(wgpu::Buffer),
    /// Memory of the other rank's device, mapped for the device of this rank.
    Device(Arc<PeerMemory>),
}

/// A segment of another rank.
#[derive(Clone)]
struct PeerSegment {
    token: u64,
    slot_bytes: usize,
    pages: Arc<HostPages>,
    slots: PeerSlots,
}

/// Another rank of this host.
pub(super) struct Peer {
    process: u32,
    /// Number of its service of file descriptors.
    pub service: u64,
    /// The memory through which the two ranks exchange.
    pub storage: Storage,
    /// Segments that a descriptor has named.
    segments: Mutex<Vec<PeerSegment>>,
}

/// A message in the memory of another rank.
pub(in crate::exchange) struct PeerMessage {
    segment: PeerSegment,
    slot: usize,
    generation: u64,
    /// First byte in the memory of the slots.
    at_bytes: u64,
    bytes: u64,
}

impl PeerMessage {
    /// Returns the buffer that the message lies in, and its first byte there; `None` for a message
    /// in device memory.
    pub fn place_on_device(&self) -> Option<(&wgpu::Buffer, u64)> {
        match &self.segment.slots {
            PeerSlots::Pages(buffer) => Some((buffer, self.at_bytes)),
            PeerSlots::Device(_) => None,
        }
    }

    /// Checks that the sender has not used the slot for something else.
    pub fn check(&self) -> Result<(), String> {
        let current = self.segment.pages.word(GENERATIONS + self.slot).load(Ordering::Acquire);
        if current == self.generation {
            return Ok(());
        }
        Err(format!("slot {} is stale: expected generation {}, got {current}", self.slot, self.generation))
    }
}

impl Peer {
    pub fn new(process: u32) -> Peer {
        Peer { process, service: 0, storage: Storage::Pages, segments: Mutex::default() }
    }

    /// Returns the segment of a descriptor, which it opens and imports the first time.
    fn segment(&self, gpu: &Gpu, access: Option<&PeerAccess>, descriptor: &Descriptor) -> Result<PeerSegment, String> {
        let mut segments = locked(&self.segments);
        if let Some(known) = segments.iter().find(|segment| segment.token == descriptor.token) {
            return Ok(known.clone());
        }
        let failed = |error| format!("cannot open pages of process {}: {error}", self.process);
        let pages = Arc::new(HostPages::open(self.process, descriptor.file).map_err(failed)?);
        if pages.bytes() < HEADER_BYTES {
            return Err(format!("expected at least {HEADER_BYTES} bytes of pages, got {}", pages.bytes()));
        }
        let word = |index| pages.word(index).load(Ordering::Acquire);
        let (token, slot_bytes) = (word(TOKEN), word(SLOT_BYTES) as usize);
        if token != descriptor.token || slot_bytes == 0 {
            return Err(format!("pages are stale: expected token {:016x}, got {token:016x}", descriptor.token));
        }
        let slots = match word(DEVICE_BYTES) as usize {
            0 => PeerSlots::Pages(gpu.import(&pages)?),
            bytes => {
                let access = access.ok_or("the device of this rank has no driver library")?;
                let failed = |error| format!("process {} sends no file descriptor: {error}", self.process);
                let file = memory_files::fetch(self.service, token).map_err(failed)?;
                PeerSlots::Device(Arc::new(PeerMemory::open(&access.driver, &file, bytes)?))
            }
        };
        let segment = PeerSegment { token, slot_bytes, pages, slots };
        segments.push(segment.clone());
        Ok(segment)
    }

    /// Finds a message of `bytes` bytes.
    pub fn find(
        &self,
        gpu: &Gpu,
        access: Option<&PeerAccess>,
        descriptor: &Descriptor,
        bytes: u64,
    ) -> Result<PeerMessage, String> {
        if descriptor.bytes != bytes {
            return Err(format!("expected a message of {bytes} bytes, got {}", descriptor.bytes));
        }
        let segment = self.segment(gpu, access, descriptor)?;
        let (first, end) = match &segment.slots {
            PeerSlots::Pages(_) => (HEADER_BYTES, segment.pages.bytes()),
            PeerSlots::Device(memory) => (0, memory.bytes()),
        };
        let (slot, slot_bytes) = (descriptor.slot as usize, segment.slot_bytes as u64);
        let slots = (end - first) / segment.slot_bytes;
        let fits = descriptor.at.checked_add(bytes).is_some_and(|end| end <= slot_bytes);
        if slot >= slots.min(SLOTS) || !fits {
            return Err(format!("{bytes} bytes from {} of slot {slot} lie outside the segment", descriptor.at));
        }
        let at_bytes = first as u64 + slot as u64 * slot_bytes + descriptor.at;
        let message = PeerMessage { segment, slot, generation: descriptor.generation, at_bytes, bytes };
        message.check().map(|()| message)
    }
}

/// A copy of a message in device memory of another rank to byte `at` of a slot of this rank.
pub(in crate::exchange) struct Pull<'a> {
    pub message: &'a PeerMessage,
    pub slot: &'a Slot,
    pub at: u64,
}

impl<'a> Pull<'a> {
    /// Returns the copy for the driver; `None` if the message or the slot is not in device memory.
    fn copy(&self) -> Option<PeerCopy<'a>> {
        let PeerSlots::Device(from) = &self.message.segment.slots else { return None };
        let (to, first) = self.slot.device_memory()?;
        let (from_byte, to_byte) = (self.message.at_bytes, first + self.at);
        Some(PeerCopy { from, from_byte, to, to_byte, bytes: self.message.bytes })
    }
}

/// Begins copies of messages, all of them in device memory, as are the slots.
pub(super) fn pull(access: &PeerAccess, pulls: &[Pull<'_>]) -> Result<PeerCopies, String> {
    let copies: Option<Vec<PeerCopy<'_>>> = pulls.iter().map(Pull::copy).collect();
    access.driver.copy(&copies.ok_or("a message or its slot is not in device memory")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Memory as _;
    use crate::comm::run_threads;
    use crate::exchange::{Exchange, ExchangeError};
    use crate::gpu::{ExchangePath, Options, Recorder};
    use crate::grid::{Transfer, Transfers};

    /// Returns a ring of the default device, if the device can import pages.
    fn ring() -> Option<Ring> {
        let options = Options { exchange: Some(ExchangePath::Ring), ..Options::from_env().unwrap() };
        let gpu = Gpu::open(&options, 0).unwrap();
        gpu.capabilities().host_import.then(|| Ring::new(&gpu))
    }

    #[test]
    fn slots_are_used_again_and_segments_are_added() {
        let Some(ring) = ring() else { return };
        let taken: Vec<Slot> = (0..=SLOTS).map(|_| ring.take(Storage::Pages, 1).unwrap()).collect();
        assert_eq!(locked(&ring.segments).len(), 2);
        let large = ring.take(Storage::Pages, 3 << 20).unwrap();
        assert_eq!(large.bytes(), 8 << 20);
        // A slot of another size serves if it is large enough.
        assert_eq!(ring.take(Storage::Pages, 5 << 20).unwrap().bytes(), 8 << 20);
        assert_eq!(locked(&ring.segments).len(), 3);
        drop((taken, large));
        let taken: Vec<Slot> = (0..2 * SLOTS).map(|_| ring.take(Storage::Pages, 100).unwrap()).collect();
        assert_eq!(locked(&ring.segments).len(), 3);
        // Slots that a receiver may still read are lost.
        taken.iter().for_each(Slot::abandon);
        drop(taken);
        let _taken: Vec<Slot> = (0..=SLOTS).map(|_| ring.take(Storage::Pages, 100).unwrap()).collect();
        assert_eq!(locked(&ring.segments).len(), 4);
    }

    /// Ranks 0 and 1 share pages; rank 2 is as on another host. Chunks hold messages of both kinds.
    #[test]
    fn messages_to_other_hosts_use_the_slots_of_their_rank() {
        if ring().is_none() {
            return;
        }
        let len = 5000;
        let outcome = run_threads(3, |comm| {
            let (mut ring, me) = (ring().expect("a ring"), comm.rank());
            let shares = |rank: usize| rank != me && rank < 2 && me < 2;
            ring.peers = (0..3).map(|rank| shares(rank).then(|| Peer::new(std::process::id()))).collect();
            let gpu = ring.gpu.clone();
            comm.attach(Some(Arc::new(ring)));
            let mut recorder = Recorder::new(&gpu)?;
            let value = |from: usize, to: usize, i: u64| ((from * 3 + to) as u32) << 16 | i as u32;
            for (chunk_bytes, depth) in [(4096, 2), (1 << 16, 1)] {
                let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk_bytes, depth);
                let [outgoing, incoming] = [gpu.array::<u32>("out", 3 * len)?, gpu.array::<u32>("in", 3 * len)?];
                let of_peer = |f: &dyn Fn(usize, u64) -> u32| -> Vec<u32> {
                    (0..3).flat_map(|peer| (0..len).map(move |i| (peer, i))).map(|(peer, i)| f(peer, i)).collect()
                };
                recorder.upload(&outgoing, 0, &of_peer(&|peer, i| value(me, peer, i)))?;
                let parts: Vec<_> = (0..3).map(|peer| Transfer { peer, start: peer as u64 * len, len }).collect();
                let transfers = Transfers { send: parts.clone(), receive: parts };
                exchange.run(&mut recorder, &transfers, &outgoing, &incoming)?;
                let received = recorder.download(&incoming, 0, 3 * len)?;
                assert!(received == of_peer(&|peer, i| value(peer, me, i)));
                let remote = (0..3).filter(|&rank| rank != me && !shares(rank)).count() as u64;
                assert_eq!(exchange.carried_bytes(), 2 * remote * len * 4);
            }
            Ok::<_, ExchangeError>(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn stale_and_foreign_pages_are_refused() {
        let Some(ring) = ring() else { return };
        let peer = Peer::new(std::process::id());
        let find = |descriptor: &Descriptor, bytes| peer.find(&ring.gpu, None, descriptor, bytes);
        let refused = |descriptor: Descriptor, bytes| find(&descriptor, bytes).err().expect("pages are refused");
        let slot = ring.take(Storage::Pages, 64).unwrap();
        let descriptor = slot.describe(8, 16);
        let message = find(&descriptor, 16).unwrap();
        assert_eq!(message.place_on_device().unwrap().1, slot.place_on_device().1 + 8);

        assert!(refused(descriptor, 20).contains("expected a message of 20 bytes, got 16"));
        assert!(refused(Descriptor { slot: 900, ..descriptor }, 16).contains("outside the segment"));
        assert!(refused(Descriptor { at: u64::MAX, ..descriptor }, 16).contains("outside the segment"));
        assert!(refused(Descriptor { token: 1, ..descriptor }, 16).contains("pages are stale"));
        // No file, and a file that is not sealed.
        assert!(refused(Descriptor { token: 1, file: 1 << 20, ..descriptor }, 16).contains("cannot open pages"));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let file = std::os::fd::AsRawFd::as_raw_fd(&file) as u32;
        assert!(refused(Descriptor { token: 1, file, ..descriptor }, 16).contains("cannot open pages"));

        assert_eq!(message.check(), Ok(()));
        drop(slot);
        assert!(message.check().is_err_and(|why| why.contains("is stale")));
        assert!(refused(descriptor, 16).contains("is stale"));
    }
}
