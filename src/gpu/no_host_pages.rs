//! Shared pages of host memory on systems that have none.

use std::convert::Infallible;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Pages that do not exist on this system.
pub(crate) struct HostPages(Infallible);

impl HostPages {
    pub fn create(_bytes: usize) -> io::Result<HostPages> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn open(_process: u32, _descriptor: u32) -> io::Result<HostPages> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn descriptor(&self) -> u32 {
        match self.0 {}
    }

    pub fn bytes(&self) -> usize {
        match self.0 {}
    }

    pub fn at(&self, _offset: usize) -> NonNull<u8> {
        match self.0 {}
    }

    pub fn word(&self, _index: usize) -> &AtomicU64 {
        match self.0 {}
    }
}
