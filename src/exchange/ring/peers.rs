//! Segments of other ranks of this host, and messages in them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::segments::{Descriptor, GENERATIONS, HEADER_BYTES, SLOT_BYTES, TOKEN, locked};
use crate::gpu::{Gpu, HostPages};

/// A segment of another rank.
#[derive(Clone)]
struct PeerSegment {
    token: u64,
    slot_bytes: usize,
    pages: Arc<HostPages>,
    buffer: wgpu::Buffer,
}

/// Another rank of this host.
pub(super) struct Peer {
    process: u32,
    /// Segments that a descriptor has named.
    segments: Mutex<Vec<PeerSegment>>,
}

/// A message in the pages of another rank.
pub(in crate::exchange) struct PeerMessage {
    segment: PeerSegment,
    slot: usize,
    generation: u64,
    at_bytes: u64,
}

impl PeerMessage {
    /// Returns the buffer that the message lies in, and its first byte there.
    pub fn place_on_device(&self) -> (&wgpu::Buffer, u64) {
        (&self.segment.buffer, self.at_bytes)
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
        Peer { process, segments: Mutex::default() }
    }

    /// Returns the segment of a descriptor, which it opens and imports the first time.
    fn segment(&self, gpu: &Gpu, descriptor: &Descriptor) -> Result<PeerSegment, String> {
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
        let buffer = gpu.import(&pages)?;
        let segment = PeerSegment { token, slot_bytes, pages, buffer };
        segments.push(segment.clone());
        Ok(segment)
    }

    /// Finds a message of `bytes` bytes.
    pub fn find(&self, gpu: &Gpu, descriptor: &Descriptor, bytes: u64) -> Result<PeerMessage, String> {
        if descriptor.bytes != bytes {
            return Err(format!("expected a message of {bytes} bytes, got {}", descriptor.bytes));
        }
        let segment = self.segment(gpu, descriptor)?;
        let (slot, slot_bytes) = (descriptor.slot as usize, segment.slot_bytes as u64);
        let slots = (segment.pages.bytes() - HEADER_BYTES) / segment.slot_bytes;
        let fits = descriptor.at.checked_add(bytes).is_some_and(|end| end <= slot_bytes);
        if slot >= slots.min(HEADER_BYTES / 8 - GENERATIONS) || !fits {
            return Err(format!("{bytes} bytes from {} of slot {slot} lie outside the pages", descriptor.at));
        }
        let at_bytes = HEADER_BYTES as u64 + slot as u64 * slot_bytes + descriptor.at;
        let message = PeerMessage { segment, slot, generation: descriptor.generation, at_bytes };
        message.check().map(|()| message)
    }
}
