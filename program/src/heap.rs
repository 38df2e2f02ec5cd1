//! The program's memory: an allocation that fails ends the process with exit code 1 and a message,
//! not with an abort.

use std::alloc::{GlobalAlloc, Layout, System};

use meshloom::host_memory::{HostMemoryError, is_handled};
use meshloom_program::interrupt::end_without_memory;

/// The system's allocator; where it has no memory, and no caller that handles it, the process ends.
struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

// SAFETY: every call is passed on to the system's allocator, and its results are returned as they
// are.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is that of the system's allocator.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(old, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Returns `memory`, unless it is null and the failure is not handled.
#[inline]
fn checked(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && !is_handled() {
        end(bytes)
    }
    memory
}

#[cold]
fn end(bytes: usize) -> ! {
    let error = HostMemoryError { what: "an internal buffer", bytes: bytes as u64 };
    end_without_memory(format_args!("meshloom: {error}"))
}
