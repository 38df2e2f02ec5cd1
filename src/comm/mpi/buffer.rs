//! The memory of a message.

use std::mem;

use crate::comm::memory::Span;

/// What MPI reads or writes.
pub(super) enum Buffer {
    Bytes(Vec<u8>),
    /// Kept alive only.
    Span(#[expect(dead_code)] Span),
}

impl Buffer {
    /// The vector; an empty one in place of a span.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Buffer::Bytes(bytes) => bytes,
            Buffer::Span(_) => Vec::new(),
        }
    }

    /// Takes it away.
    pub fn take(&mut self) -> Buffer {
        mem::replace(self, Buffer::Bytes(Vec::new()))
    }
}
