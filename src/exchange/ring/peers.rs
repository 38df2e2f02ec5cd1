//! Segments of other ranks of this host, and messages in them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::memory_files;
use super::segments::{
    DEVICE_BYTES, Descriptor, GENERATIONS, HEADER_BYTES, PeerAccess, SLOT_BYTES, SLOTS, Slot, Storage, TOKEN,
};
use crate::gpu::{Gpu, HostPages, PeerCopies, PeerCopy, PeerMemory};
use crate::parallel::locked;

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
