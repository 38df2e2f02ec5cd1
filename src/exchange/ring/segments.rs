//! Segments of pages of this rank, and their slots.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};

use crate::gpu::{Gpu, HostPages};

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes before the slots of a segment: its words. A multiple of the pages of all systems.
pub(super) const HEADER_BYTES: usize = 1 << 16;
/// Word of a segment that identifies it.
pub(super) const TOKEN: usize = 0;
/// Word of a segment with the bytes of a slot.
pub(super) const SLOT_BYTES: usize = 1;
/// First of the words that count how often each slot was returned.
pub(super) const GENERATIONS: usize = 2;

/// Bytes of the smallest slot, enough for a chunk of the default size.
const LEAST_SLOT_BYTES: usize = 2 << 20;
/// Slots of a segment.
pub(super) const SLOTS: usize = 8;

/// The place of a message in the pages of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(in crate::exchange) struct Descriptor {
    /// Identity of the segment.
    pub(super) token: u64,
    /// Returns of the slot before the message.
    pub(super) generation: u64,
    /// First byte in the slot.
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// File descriptor of the segment in its process.
    pub(super) file: u32,
    pub(super) slot: u32,
}

/// Pages of one rank, imported into its device.
pub(super) struct Segment {
    pages: Arc<HostPages>,
    buffer: wgpu::Buffer,
    pub(super) slot_bytes: usize,
    /// Numbers of slots that are not in use.
    pub(super) free: Mutex<Vec<usize>>,
}

impl Segment {
    pub fn new(gpu: &Gpu, slot_bytes: usize) -> Result<Arc<Segment>, String> {
        let failed = |error: std::io::Error| format!("no shared pages: {error}");
        let pages = Arc::new(HostPages::create(HEADER_BYTES + SLOTS * slot_bytes).map_err(failed)?);
        let buffer = gpu.import(&pages)?;
        pages.word(TOKEN).store(RandomState::new().build_hasher().finish(), Ordering::Relaxed);
        pages.word(SLOT_BYTES).store(slot_bytes as u64, Ordering::Release);
        Ok(Arc::new(Segment { pages, buffer, slot_bytes, free: Mutex::new((0..SLOTS).collect()) }))
    }
}

/// A slot of this rank, for one chunk. It is free again when the value is dropped.
pub(in crate::exchange) struct Slot {
    pub(super) segment: Arc<Segment>,
    pub(super) number: usize,
    /// Whether a receiver may still read the slot though nothing waits for its credit.
    pub(super) abandoned: AtomicBool,
}

impl Slot {
    fn start(&self) -> usize {
        HEADER_BYTES + self.number * self.segment.slot_bytes
    }

    /// Returns the buffer that the slot lies in, and its first byte there.
    pub fn place_on_device(&self) -> (&wgpu::Buffer, u64) {
        (&self.segment.buffer, self.start() as u64)
    }

    /// Returns the address of the slot.
    pub fn place(&self) -> NonNull<u8> {
        self.segment.pages.at(self.start())
    }

    pub fn bytes(&self) -> usize {
        self.segment.slot_bytes
    }

    /// Describes a message of `bytes` bytes from byte `at` of the slot on.
    pub fn describe(&self, at: u64, bytes: u64) -> Descriptor {
        let word = |index| self.segment.pages.word(index).load(Ordering::Acquire);
        Descriptor {
            token: word(TOKEN),
            generation: word(GENERATIONS + self.number),
            at,
            bytes,
            file: self.segment.pages.descriptor(),
            slot: self.number as u32,
        }
    }

    /// Keeps the slot out of use: its messages were given up, but a receiver may still copy them.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.segment.pages.word(GENERATIONS + self.number).fetch_add(1, Ordering::AcqRel);
        if !*self.abandoned.get_mut() {
            locked(&self.segment.free).push(self.number);
        }
    }
}
