//! Staging buffers, which go back to their recorder when they are dropped, and buffers that the
//! host has mapped.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use super::buffer_copy::StagingDirection;
use super::device::Gpu;
use super::error::DeviceError;
use crate::parallel::locked;

/// Unused staging buffers of a recorder. They count as memory of the device.
pub(super) struct StagingPool {
    gpu: Gpu,
    /// In the order of their return, so that the device has most likely finished with the first
    /// one.
    free: Mutex<Vec<wgpu::Buffer>>,
}

impl StagingPool {
    pub fn new(gpu: &Gpu) -> Self {
        StagingPool { gpu: gpu.clone(), free: Mutex::default() }
    }
}

impl Drop for StagingPool {
    fn drop(&mut self) {
        locked(&self.free).iter().for_each(|buffer| self.gpu.forget(buffer));
    }
}

/// A staging buffer that one user has for itself; it goes back to its recorder's free ones when
/// dropped, and must not be mapped then.
pub(crate) struct Staging {
    pool: Arc<StagingPool>,
    pub buffer: wgpu::Buffer,
}

/// Returns the size of the buffer that [`Staging::take`] uses for `bytes` bytes.
pub(crate) fn staging_size(bytes: u64) -> u64 {
    bytes.max(1 << 12).next_power_of_two()
}

impl Staging {
    pub(super) fn take(
        pool: &Arc<StagingPool>,
        direction: StagingDirection,
        bytes: u64,
    ) -> Result<Staging, DeviceError> {
        let (size, usage) = (staging_size(bytes), direction.usage());
        let mut free = locked(&pool.free);
        let fitting = free.iter().position(|buffer| buffer.usage() == usage && buffer.size() >= size);
        let buffer = match fitting {
            Some(at) => free.remove(at),
            None => {
                // A free one that is too small is given up for it, so that their number does not
                // grow with sizes.
                if let Some(at) = free.iter().position(|buffer| buffer.usage() == usage) {
                    pool.gpu.forget(&free.remove(at));
                }
                drop(free);
                pool.gpu.new_buffer("meshloom::staging", size, usage)?
            }
        };
        Ok(Staging { pool: pool.clone(), buffer })
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
        gpu.guarded(|| buffer.map_async(mode, 0..bytes, note));
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
            self.gpu.poll(wgpu::PollType::Wait { submission_index: submission.cloned(), timeout: None })?;
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

/// The bytes of a [`Map`] that is ready, as memory that lies still until it is dropped.
pub(crate) struct MappedBytes {
    place: NonNull<u8>,
    bytes: usize,
    /// Keeps the place valid; dropped before the mapping ends.
    _view: MappedView,
    _map: Map,
}

/// wgpu's view of mapped bytes, kept for as long as they are used.
enum MappedView {
    Read { _view: wgpu::BufferView },
    Write { _view: wgpu::BufferViewMut },
}

// SAFETY: the place belongs to the view, which may be used from any thread.
unsafe impl Send for MappedBytes {}
// SAFETY: what lies there is reached through raw pointers only, whose users keep order among
// themselves.
unsafe impl Sync for MappedBytes {}

impl MappedBytes {
    /// Returns the bytes of a mapping that [is ready](Map::is_ready).
    ///
    /// # Errors
    /// [`DeviceError::Lost`] when the device is.
    pub fn new(map: Map) -> Result<MappedBytes, DeviceError> {
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
        Ok(MappedBytes { place, bytes: map.bytes as usize, _view: view, _map: map })
    }

    /// Returns where they begin. They may be read, or written where the mapping is for writing.
    pub fn place(&self) -> NonNull<u8> {
        self.place
    }

    /// Returns how many they are.
    pub fn bytes(&self) -> usize {
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
            self.gpu.guarded(|| self.buffer.unmap());
        }
    }
}
