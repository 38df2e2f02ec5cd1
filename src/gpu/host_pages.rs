//! Pages of host memory that processes share.
//!
//! The unsafe code of this file relies on two facts:
//! - A mapping stays valid until it is dropped: the file is sealed, so that it cannot shrink.
//! - Bytes are reached through raw pointers and atomic words only, as other processes may change
//!   them at any time.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

/// The mapping of a memory file of this process or of another process of the host.
pub(crate) struct HostPages {
    file: File,
    place: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value, and its bytes may be reached from any thread.
unsafe impl Send for HostPages {}
// SAFETY: the value hands out raw pointers and atomic words only.
unsafe impl Sync for HostPages {}

/// Returns the last error of the system if a call returned a negative number.
fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl HostPages {
    /// Creates `bytes` zeroed bytes, which the system reserves at once.
    pub fn create(bytes: usize) -> io::Result<HostPages> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero byte.
        let descriptor = checked(unsafe { libc::memfd_create(c"meshloom".as_ptr(), flags) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let file = unsafe { File::from_raw_fd(descriptor) };
        // Memory that is missing must be an error here, not a signal at the first access.
        // SAFETY: the descriptor is open.
        checked(unsafe { libc::fallocate(descriptor, 0, 0, bytes as libc::off_t) })?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: as above.
        checked(unsafe { libc::fcntl(descriptor, libc::F_ADD_SEALS, seals) })?;
        HostPages::map(file)
    }

    /// Opens the pages behind file descriptor `descriptor` of process `process` of this host.
    pub fn open(process: u32, descriptor: u32) -> io::Result<HostPages> {
        HostPages::of(File::options().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}"))?)
    }

    /// Maps the pages of a memory file, which must be sealed.
    pub fn of(file: File) -> io::Result<HostPages> {
        // SAFETY: the descriptor is open.
        let seals = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::Error::other("the file is not sealed"));
        }
        HostPages::map(file)
    }

    fn map(file: File) -> io::Result<HostPages> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the system chooses a place that is free.
        let place = unsafe { libc::mmap(null_mut(), bytes, access, shared, file.as_raw_fd(), 0) };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let place = NonNull::new(place.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(HostPages { file, place, bytes })
    }

    /// Returns the number by which other processes [open](Self::open) the pages.
    pub fn descriptor(&self) -> u32 {
        self.file.as_raw_fd().cast_unsigned()
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of byte `offset`, which must lie inside.
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes, "byte {offset} of {}", self.bytes);
        // SAFETY: the byte lies in the mapping.
        unsafe { self.place.add(offset) }
    }

    /// Returns word `index` of 8 bytes.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / 8, "word {index} of {} bytes", self.bytes);
        // SAFETY: the word lies in the mapping, is aligned since the mapping begins at a page, and
        // all processes access it as an atomic word.
        unsafe { self.place.cast::<AtomicU64>().add(index).as_ref() }
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own. Failure would only keep the pages.
        unsafe { libc::munmap(self.place.as_ptr().cast(), self.bytes) };
    }
}
