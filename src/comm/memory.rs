//! Memory of others that messages are sent from and received into without a copy.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

/// Memory that stays where it is as long as the value lives, such as a buffer that a device has mapped for the host.
///
/// # Safety
/// `bytes` bytes from `place` on are valid for reads where messages are sent from it, and for writes where they are received into
/// it, from any thread, as long as the value lives. What is being sent is not written meanwhile, and what is being received is neither
/// read nor written by anybody else.
pub(crate) unsafe trait Memory: Send + Sync {
    /// Where it begins.
    fn place(&self) -> NonNull<u8>;
    /// How much there is.
    fn bytes(&self) -> usize;
}

/// A part of such memory, which it keeps alive.
#[derive(Clone)]
pub(crate) struct Span {
    memory: Arc<dyn Memory>,
    start: usize,
    bytes: usize,
}

impl Span {
    /// All of it.
    pub fn new(memory: Arc<dyn Memory>) -> Span {
        let bytes = memory.bytes();
        Span { memory, start: 0, bytes }
    }

    /// `bytes` bytes from byte `start` on, which must lie inside.
    pub fn part(&self, start: usize, bytes: usize) -> Span {
        assert!(start <= self.bytes && bytes <= self.bytes - start, "a part of a span lies inside it");
        Span { memory: self.memory.clone(), start: self.start + start, bytes }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it begins.
    pub(super) fn place(&self) -> NonNull<u8> {
        // SAFETY: `part` keeps every span inside its memory.
        unsafe { self.memory.place().add(self.start) }
    }

    /// What is sent.
    pub(super) fn sent(&self) -> &[u8] {
        // SAFETY: promised by `Memory`: it is readable, and not written while it is sent.
        unsafe { slice::from_raw_parts(self.place().as_ptr(), self.bytes) }
    }

    /// Puts what was received at its beginning, as much as it holds.
    pub(super) fn receive(&self, data: &[u8]) {
        // SAFETY: promised by `Memory`: it is writable, nobody else uses it, and it is not what is sent.
        unsafe { self.place().copy_from_nonoverlapping(NonNull::from(data).cast(), data.len().min(self.bytes)) };
    }
}
