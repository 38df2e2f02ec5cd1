//! Whether the kernel lets MPI libraries at memory.
//!
//! A library moves long messages by having the kernel copy from another process, or by having it
//! pin memory for a network card. Memory of a device that a driver has mapped for the host may be
//! closed to both (on Linux mappings with `VM_IO` or `VM_PFNMAP`, as those of `amdgpu` and of PCI
//! windows), and then libraries fail in the middle of a message: `process_vm_readv: Bad address`.
//! Processors read and write such memory as any other.

use crate::comm::memory::Span;

/// Returns `true` if the kernel lets others at the memory of `span`. Asks the kernel once for all
/// spans of one memory, which is of one mapping: a query takes 1.6 microseconds.
pub(super) fn is_reachable(span: &Span) -> bool {
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
    // Where the query is not permitted, as in many containers, no library uses it.
    copied || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

/// Not known.
#[cfg(not(target_os = "linux"))]
fn is_readable(_: &Span) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use super::*;
    use crate::comm::memory::Memory;

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
