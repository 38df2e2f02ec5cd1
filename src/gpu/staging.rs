//! Staging buffers, which go back to their recorder when they are dropped, and buffers that the host has mapped.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::Gpu;
use super::error::DeviceError;

/// Staging buffers of a recorder that nobody uses at present.
pub(super) struct StagingPool {
    gpu: Gpu,
    free: Mutex<Vec<wgpu::Buffer>>,
}

impl StagingPool {
    pub fn new(gpu: &Gpu) -> Self {
        StagingPool { gpu: gpu.clone(), free: Mutex::default() }
    }

    fn free(&self) -> MutexGuard<'_, Vec<wgpu::Buffer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StagingPool {
    fn drop(&mut self) {
        self.free().iter().for_each(|buffer| self.gpu.forget(buffer));
    }
}

/// A staging buffer that one user has for itself; it goes back to its recorder's free ones when dropped, and must not be
/// mapped then.
pub(crate) struct Staging {
    pool: Arc<StagingPool>,
    buffer: wgpu::Buffer,
}

impl Staging {
    pub(super) fn take(pool: &Arc<StagingPool>, bytes: u64) -> Result<Staging, DeviceError> {
        let size = bytes.max(1 << 12).next_power_of_two();
        let mut free = pool.free();
        let fitting = free.iter().rposition(|buffer| buffer.size() >= size);
        let buffer = match fitting {
            Some(at) => free.swap_remove(at),
            None => {
                // A free one that is too small is given up for it, so that their number does not grow with sizes.
                if let Some(small) = free.pop() {
                    pool.gpu.forget(&small);
                }
                drop(free);
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                pool.gpu.new_buffer("meshloom::staging", size, usage)?
            }
        };
        Ok(Staging { pool: pool.clone(), buffer })
    }

    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.pool.free().push(self.buffer.clone());
    }
}

const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

/// The first bytes of a buffer, mapped or to be mapped as soon as the device is done with it. Dropping it unmaps.
pub(crate) struct Map {
    gpu: Gpu,
    buffer: wgpu::Buffer,
    state: Arc<AtomicU8>,
}

impl Map {
    /// Asks for `bytes` bytes (a multiple of 4); does not wait. Somebody must [poll](super::Recorder::poll) the device.
    pub fn begin(gpu: &Gpu, buffer: &wgpu::Buffer, mode: wgpu::MapMode, bytes: u64) -> Map {
        let state = Arc::new(AtomicU8::new(PENDING));
        let flag = state.clone();
        let note = move |result: Result<(), wgpu::BufferAsyncError>| {
            flag.store(if result.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
        };
        gpu.guarded(|| buffer.map_async(mode, 0..bytes, note));
        Map { gpu: gpu.clone(), buffer: buffer.clone(), state }
    }

    /// Whether the bytes are there.
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

    /// Waits until the bytes are there: for `submission`, or for all that was submitted to the device.
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

/// Gives `bytes` bytes at `offset` of a buffer that is mapped for reading to `body`.
pub(crate) fn read_mapped(
    buffer: &wgpu::Buffer,
    offset: u64,
    bytes: u64,
    body: impl FnOnce(&[u8]),
) -> Result<(), DeviceError> {
    // Views of mapped buffers begin at multiples of this.
    let skip = offset % wgpu::MAP_ALIGNMENT;
    let view = buffer.get_mapped_range(offset - skip..offset + bytes);
    let view = view.map_err(|e| DeviceError::Lost(e.to_string()))?;
    body(&view[skip as usize..]);
    Ok(())
}

/// Writes `data` at `offset` of a buffer that is mapped for writing.
pub(crate) fn write_mapped(buffer: &wgpu::Buffer, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
    let skip = offset % wgpu::MAP_ALIGNMENT;
    let view = buffer.get_mapped_range_mut(offset - skip..offset + data.len() as u64);
    let mut view = view.map_err(|e| DeviceError::Lost(e.to_string()))?;
    view.slice(skip as usize..).copy_from_slice(data);
    Ok(())
}

impl Drop for Map {
    fn drop(&mut self) {
        // A mapping that is given up must be granted first: wgpu files it under the work that it waits for, and would grant a later
        // mapping of the same buffer too early.
        while self.state.load(Ordering::Acquire) == PENDING {
            let wait = wgpu::PollType::Wait { submission_index: None, timeout: None };
            if self.gpu.device().poll(wait).is_err() {
                break;
            }
            std::thread::yield_now();
        }
        if self.state.load(Ordering::Acquire) != FAILED {
            self.gpu.guarded(|| self.buffer.unmap());
        }
    }
}
