//! The memory of a message.

use std::mem;

use super::reachable::is_reachable;
use crate::comm::Result;
use crate::comm::memory::Span;

/// Memory that MPI reads or writes.
pub(super) enum Buffer {
    Bytes(Vec<u8>),
    /// Kept alive only.
    Span(#[expect(dead_code)] Span),
    /// A buffer for a span that MPI cannot write, copied there after the receive.
    Copied(Vec<u8>, Span),
}

impl Buffer {
    /// Returns what is sent of `span`, and where: a copy, where MPI cannot read it.
    pub fn sent(span: Span) -> (Buffer, *const u8) {
        if is_reachable(&span) {
            let place = span.place().as_ptr().cast_const();
            return (Buffer::Span(span), place);
        }
        let bytes = span.sent().to_vec();
        let place = bytes.as_ptr();
        (Buffer::Bytes(bytes), place)
    }

    /// Returns where `span` is received: in a vector that `room` makes, where MPI cannot write it.
    pub fn received(span: Span, room: impl FnOnce() -> Result<Vec<u8>>) -> Result<(Buffer, *mut u8)> {
        if is_reachable(&span) {
            let place = span.place().as_ptr();
            return Ok((Buffer::Span(span), place));
        }
        let mut bytes = room()?;
        let place = bytes.as_mut_ptr();
        Ok((Buffer::Copied(bytes, span), place))
    }

    /// Records a receipt of `came` bytes by MPI.
    ///
    /// # Safety
    /// MPI has written `came` bytes, and they fit.
    pub unsafe fn arrived(&mut self, came: usize) {
        if let Buffer::Bytes(bytes) | Buffer::Copied(bytes, _) = self {
            // SAFETY: promised by the caller.
            unsafe { bytes.set_len(came) };
        }
        if let Buffer::Copied(bytes, span) = self {
            span.receive(bytes);
        }
    }

    /// Returns the vector; an empty one in place of a span.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Buffer::Bytes(bytes) => bytes,
            Buffer::Span(_) | Buffer::Copied(..) => Vec::new(),
        }
    }

    /// Removes the buffer.
    pub fn take(&mut self) -> Buffer {
        mem::replace(self, Buffer::Bytes(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::ptr::NonNull;
    use std::sync::Arc;

    use super::*;
    use crate::comm::memory::Memory;

    struct Cells([UnsafeCell<u8>; 4]);

    // SAFETY: the cells keep their place, and one thread uses them.
    unsafe impl Memory for Cells {
        fn place(&self) -> NonNull<u8> {
            NonNull::from(&self.0).cast()
        }
        fn bytes(&self) -> usize {
            self.0.len()
        }
    }

    // SAFETY: as above.
    unsafe impl Sync for Cells {}

    #[test]
    fn what_came_elsewhere_is_copied_to_where_it_belongs() {
        let span = Span::new(Arc::new(Cells([1, 2, 3, 4].map(UnsafeCell::new))));
        let mut buffer = Buffer::Copied(vec![7, 8, 9], span.clone());
        // SAFETY: the vector has three bytes.
        unsafe { buffer.arrived(3) };
        assert_eq!((span.sent(), buffer.into_bytes()), (&[7, 8, 9, 4][..], Vec::new()));
    }
}
