//! Staging buffers, which go back to their recorder when they are dropped, and buffers that the
//! host has mapped.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use super::{DeviceError, Gpu, StagingDirection};
use crate::comm::Memory;
use crate::parallel::locked;

/// Unused staging buffers of a recorder. They count as memory of the device.
pub(super) struct StagingPool {
    pub gpu: Gpu,
    /// In the order of their return, so that the device has most likely finished with the first
    /// one.
    pub free: Mutex<Vec<wgpu::Buffer>>,
}

impl Drop for StagingPool {
    fn drop(&mut self) {
        locked(&self.free).iter().for_each(|buffer| self.gpu.0.pool.forget(buffer));
    }
}

/// A staging buffer that one user has for itself; it goes back to its recorder's free ones when
/// dropped, and must not be mapped then.
pub(crate) struct Staging {
    pool: Arc<StagingPool>,
    pub buffer: wgpu::Buffer,
}

/// Returns the size of the buffer that [`StagingPool::take`] uses for `bytes` bytes.
pub(crate) fn staging_size(bytes: u64) -> u64 {
    bytes.max(1 << 12).next_power_of_two()
}

impl StagingPool {
    /// Takes a buffer of at least `bytes` bytes.
    pub fn take(self: &Arc<Self>, direction: StagingDirection, bytes: u64) -> Result<Staging, DeviceError> {
        let (size, usage) = (staging_size(bytes), direction.usage());
        let mut free = locked(&self.free);
        let fitting = free.iter().position(|buffer| buffer.usage() == usage && buffer.size() >= size);
        let buffer = match fitting {
            Some(at) => free.remove(at),
            None => {
                // A free one that is too small is given up for it, so that their number does not
                // grow with sizes.
                if let Some(at) = free.iter().position(|buffer| buffer.usage() == usage) {
                    self.gpu.0.pool.forget(&free.remove(at));
                }
                drop(free);
                self.gpu.0.pool.allocate(&self.gpu.0.open, "meshloom::staging", size, usage)?
            }
        };
        Ok(Staging { pool: self.clone(), buffer })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        locked(&self.pool.free).push(self.buffer.clone());
    }
}

const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

/// The first bytes of a buffer, mapped or to be mapped as soon as the device is done with it.
/// Dropping it unmaps.
pub(crate) struct Map {
    gpu: Gpu,
    buffer: wgpu::Buffer,
    mode: wgpu::MapMode,
    bytes: u64,
    state: Arc<AtomicU8>,
}

impl Map {
    /// Asks for `bytes` bytes (a multiple of 4); does not wait. Somebody must
    /// [poll](super::Recorder::poll) the device.
    pub fn begin(gpu: &Gpu, buffer: &wgpu::Buffer, mode: wgpu::MapMode, bytes: u64) -> Map {
        let state = Arc::new(AtomicU8::new(PENDING));
        let flag = state.clone();
        let note = move |result: Result<(), wgpu::BufferAsyncError>| {
            flag.store(if result.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
        };
        gpu.0.open.guarded(|| buffer.map_async(mode, 0..bytes, note));
        Map { gpu: gpu.clone(), buffer: buffer.clone(), mode, bytes, state }
    }

    /// Returns whether the bytes are there.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] when they cannot be mapped.
    pub fn is_ready(&self) -> Result<bool, DeviceError> {
        match self.state.load(Ordering::Acquire) {
            PENDING => Ok(false),
            MAPPED => Ok(true),
            _ => Err(DeviceError::Lost("a buffer could not be mapped".into())),
        }
    }

    /// Waits until the bytes are there: for `submission`, or for all that was submitted to the
    /// device.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn wait(&self, submission: Option<&wgpu::SubmissionIndex>) -> Result<(), DeviceError> {
        while !self.is_ready()? {
            self.gpu.0.open.poll(wgpu::PollType::Wait { submission_index: submission.cloned(), timeout: None })?;
            // Another thread that polls the same device may run the callback a moment later.
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Gives the first `bytes` bytes of a buffer that is mapped for reading to `body`.
pub(crate) fn read_mapped(buffer: &wgpu::Buffer, bytes: u64, body: impl FnOnce(&[u8])) -> Result<(), DeviceError> {
    let view = buffer.get_mapped_range(0..bytes).map_err(|e| DeviceError::Lost(e.to_string()))?;
    body(&view);
    Ok(())
}

/// The bytes of a [`Map`] that is ready, as memory that lies still until it is dropped, and a
/// keeper, which is dropped when they are unmapped.
pub(crate) struct MappedBytes<K> {
    place: NonNull<u8>,
    bytes: usize,
    /// Keeps the place valid; dropped before the mapping ends.
    _view: MappedView,
    _map: Map,
    _keeper: K,
}

/// wgpu's view of mapped bytes, kept for as long as they are used.
enum MappedView {
    Read { _view: wgpu::BufferView },
    Write { _view: wgpu::BufferViewMut },
}

// SAFETY: the place belongs to the view, which may be used from any thread.
unsafe impl<K: Send> Send for MappedBytes<K> {}
// SAFETY: what lies there is reached through raw pointers only, whose users keep order among
// themselves.
unsafe impl<K: Sync> Sync for MappedBytes<K> {}

impl<K> MappedBytes<K> {
    /// Returns the bytes of a mapping that [is ready](Map::is_ready) and belongs to a chunk or an
    /// array that is lent to an exchange. If it fails, the keeper is dropped after the unmapping.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] when the device is.
    pub fn new(keeper: K, map: Map) -> Result<Self, DeviceError> {
        let (lost, range) = (|e: wgpu::MapRangeError| DeviceError::Lost(e.to_string()), 0..map.bytes);
        let (place, view) = match map.mode {
            wgpu::MapMode::Read => {
                let view = map.buffer.get_mapped_range(range).map_err(lost)?;
                (NonNull::from(&*view).cast(), MappedView::Read { _view: view })
            }
            wgpu::MapMode::Write => {
                let mut view = map.buffer.get_mapped_range_mut(range).map_err(lost)?;
                (view.slice(..).as_raw_element_ptr(), MappedView::Write { _view: view })
            }
        };
        Ok(MappedBytes { place, bytes: map.bytes as usize, _view: view, _map: map, _keeper: keeper })
    }
}

// SAFETY: the bytes stay mapped and in their place until they are dropped. They belong to a chunk
// or an array that is lent to an exchange, which sends or receives each byte once; those of a
// mapping for reading are only sent.
unsafe impl<K: Send + Sync> Memory for MappedBytes<K> {
    fn place(&self) -> NonNull<u8> {
        self.place
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // A mapping that is given up must be granted first: wgpu files it under the work that it
        // waits for, and would grant a later mapping of the same buffer too early.
        while self.state.load(Ordering::Acquire) == PENDING {
            let wait = wgpu::PollType::Wait { submission_index: None, timeout: None };
            if self.gpu.0.open.poll_once(wait).is_err() {
                break;
            }
            std::thread::yield_now();
        }
        if self.state.load(Ordering::Acquire) != FAILED {
            self.gpu.0.open.guarded(|| self.buffer.unmap());
        }
    }
}
