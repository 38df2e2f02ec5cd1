//! The memory of a message, and whether the kernel lets MPI libraries at it.
//!
//! A library moves long messages by having the kernel copy from another process, or by having it
//! pin memory for a network card. Memory of a device that a driver has mapped for the host may be
//! closed to both (on Linux mappings with `VM_IO` or `VM_PFNMAP`, as those of `amdgpu` and of PCI
//! windows), and then libraries fail in the middle of a message: `process_vm_readv: Bad address`.
//! Processors read and write such memory as any other.

use std::mem;

use crate::comm::{Result, Span};

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

/// Returns `true` if the kernel lets others at the memory of `span`. Asks the kernel once for all
/// spans of one memory, which is of one mapping: a query takes 1.6 microseconds.
fn is_reachable(span: &Span) -> bool {
    span.bytes() == 0 || span.is_reachable(|| is_readable(span))
}

/// Asks the kernel to copy the first byte of `span`.
#[cfg(target_os = "linux")]
fn is_readable(span: &Span) -> bool {
    let mut byte = 0u8;
    let of = |place: *mut u8| libc::iovec { iov_base: place.cast(), iov_len: 1 };
    let (local, remote) = (of(&raw mut byte), of(span.place().as_ptr()));
    // SAFETY: the kernel writes one byte to `byte`, and finds out by itself whether it may read the
    // other.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) } == 1;
    // If this call is not permitted, as in many containers, MPI libraries do not use it either.
    copied || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

/// Not known.
#[cfg(not(target_os = "linux"))]
fn is_readable(_: &Span) -> bool {
    true
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

    struct At(NonNull<u8>, usize);

    // SAFETY: only the kernel accesses it, which checks the address first.
    unsafe impl Memory for At {
        fn place(&self) -> NonNull<u8> {
            self.0
        }
        fn bytes(&self) -> usize {
            self.1
        }
    }

    // SAFETY: as above.
    unsafe impl Send for At {}
    // SAFETY: as above.
    unsafe impl Sync for At {}

    fn span(place: usize, bytes: usize) -> Span {
        let place = NonNull::new(std::ptr::without_provenance_mut(place)).unwrap_or(NonNull::dangling());
        Span::new(Arc::new(At(place, bytes)))
    }

    #[test]
    fn memory_of_the_process_is_reachable_and_mapped_pages_of_the_kernel_are_not() {
        let own = [7u8; 16];
        assert!(is_reachable(&span(own.as_ptr().addr(), 16)) && is_reachable(&span(1, 0)));
        // Its clock, which every process can read: mapped as memory of devices is.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let Some(line) = maps.lines().find(|line| line.ends_with("[vvar]")) else { return };
        let clock = line.split('-').next().and_then(|start| usize::from_str_radix(start, 16).ok());
        assert!(!is_reachable(&span(clock.unwrap_or_default(), 64)), "{line}");
    }
}
