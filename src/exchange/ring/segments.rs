//! Segments of memory of this rank, and their slots.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytemuck::{Pod, Zeroable};

use super::memory_files::MemoryFiles;
use crate::comm::Memory;
use crate::gpu::{Gpu, HostPages, PeerDriver, PeerMemory};
use crate::parallel::locked;

/// Bytes before the slots of a segment: its words. A multiple of the pages of all systems.
pub(super) const HEADER_BYTES: usize = 1 << 16;
/// Word of a segment that identifies it.
pub(super) const TOKEN: usize = 0;
/// Word of a segment with the bytes of a slot.
pub(super) const SLOT_BYTES: usize = 1;
/// Word of a segment with the bytes of its device memory; 0 for slots in pages.
pub(super) const DEVICE_BYTES: usize = 2;
/// First of the words that count how often each slot was returned.
pub(super) const GENERATIONS: usize = 3;

/// Bytes of the smallest slot.
const LEAST_SLOT_BYTES: usize = 2 << 20;
/// Slots of a segment.
pub(super) const SLOTS: usize = 8;

/// Returns the bytes of a slot for `bytes` bytes: 2, 8, 32, .. MiB, so that exchanges of many sizes
/// share few segments.
pub(super) fn slot_bytes_for(bytes: usize) -> usize {
    let mut sizes = std::iter::successors(Some(LEAST_SLOT_BYTES), |size| size.checked_mul(4));
    sizes.find(|size| *size >= bytes).unwrap_or_else(|| bytes.next_multiple_of(HEADER_BYTES))
}

/// The place of a message in the memory of its sender.
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

/// The kind of memory that slots lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) enum Storage {
    /// Shared pages of the host.
    Pages,
    /// Memory of the device of its rank, which the drivers of peers map.
    Device,
}

/// Slots of one rank, imported into its device, and the words that describe them.
pub(super) struct Segment {
    pages: Arc<HostPages>,
    /// Memory of the device with the slots; `None` if they lie in the pages, after the words.
    device_memory: Option<Arc<PeerMemory>>,
    buffer: wgpu::Buffer,
    pub(super) slot_bytes: usize,
    /// Numbers of slots that are not in use.
    pub(super) free: Mutex<Vec<usize>>,
}

impl Segment {
    /// Creates slots in shared pages.
    pub fn in_pages(gpu: &Gpu, slot_bytes: usize) -> Result<Segment, String> {
        let pages = new_pages(HEADER_BYTES + SLOTS * slot_bytes)?;
        let buffer = gpu.import(&pages)?;
        Ok(Segment::new(pages, None, buffer, slot_bytes))
    }

    /// Creates slots in memory of the device, and offers its file descriptor to peers.
    pub fn on_device(gpu: &Gpu, access: &PeerAccess, slot_bytes: usize) -> Result<Segment, String> {
        let memory = Arc::new(PeerMemory::create(&access.driver, SLOTS * slot_bytes)?);
        let (buffer, file) = (gpu.import_peer_memory(&memory)?, memory.export()?);
        let bytes = memory.bytes();
        let segment = Segment::new(new_pages(HEADER_BYTES)?, Some(memory), buffer, slot_bytes);
        segment.pages.word(DEVICE_BYTES).store(bytes as u64, Ordering::Release);
        access.files.offer(segment.token(), file);
        Ok(segment)
    }

    fn new(pages: Arc<HostPages>, memory: Option<Arc<PeerMemory>>, buffer: wgpu::Buffer, slot_bytes: usize) -> Self {
        pages.word(TOKEN).store(RandomState::new().build_hasher().finish(), Ordering::Relaxed);
        pages.word(SLOT_BYTES).store(slot_bytes as u64, Ordering::Release);
        Segment { pages, device_memory: memory, buffer, slot_bytes, free: Mutex::new((0..SLOTS).collect()) }
    }

    fn token(&self) -> u64 {
        self.pages.word(TOKEN).load(Ordering::Acquire)
    }

    pub fn storage(&self) -> Storage {
        if self.device_memory.is_some() { Storage::Device } else { Storage::Pages }
    }
}

fn new_pages(bytes: usize) -> Result<Arc<HostPages>, String> {
    HostPages::create(bytes).map(Arc::new).map_err(|error| format!("no shared pages: {error}"))
}

/// The access of a rank to memory of devices: the driver, and the service that sends file
/// descriptors of its own.
pub(super) struct PeerAccess {
    pub driver: Arc<PeerDriver>,
    pub files: MemoryFiles,
}

impl PeerAccess {
    /// Opens the driver of the device, and starts the service.
    ///
    /// # Errors
    /// The reason, if the driver library is missing or refuses, or the system refuses the service.
    pub fn open(gpu: &Gpu) -> Result<PeerAccess, String> {
        let driver = PeerDriver::open(gpu.info())?;
        let files = MemoryFiles::start().map_err(|error| format!("cannot send file descriptors: {error}"))?;
        Ok(PeerAccess { driver, files })
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
    /// Returns the first byte in the memory of the segment.
    fn start(&self) -> usize {
        let first = if self.segment.storage() == Storage::Pages { HEADER_BYTES } else { 0 };
        first + self.number * self.segment.slot_bytes
    }

    /// Returns the buffer that the slot lies in, and its first byte there.
    pub fn place_on_device(&self) -> (&wgpu::Buffer, u64) {
        (&self.segment.buffer, self.start() as u64)
    }

    /// Returns the memory of the device that the slot lies in, and its first byte there; `None` for
    /// a slot in pages.
    pub(super) fn device_memory(&self) -> Option<(&PeerMemory, u64)> {
        self.segment.device_memory.as_deref().map(|memory| (memory, self.start() as u64))
    }

    /// Describes a message of `bytes` bytes from byte `at` of the slot on.
    pub fn describe(&self, at: u64, bytes: u64) -> Descriptor {
        let word = |index| self.segment.pages.word(index).load(Ordering::Acquire);
        Descriptor {
            token: self.segment.token(),
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

// SAFETY: a slot keeps its pages mapped, and one chunk has it for itself: its messages are sent
// after the device has written them, or received before the device reads them.
unsafe impl Memory for Slot {
    fn place(&self) -> NonNull<u8> {
        self.segment.pages.at(self.start())
    }

    fn bytes(&self) -> usize {
        self.segment.slot_bytes
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
