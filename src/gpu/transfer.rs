//! Between host memory and arrays: uploads, downloads, and copies to staging buffers.

use super::array::{Array, DeviceElement, RawArray};
use super::command::inside;
use super::error::DeviceError;
use super::recorder::Recorder;
use super::staging::{Map, Staging, read_mapped};

/// Bytes that a download copies at a time, so that staging stays small.
const CHUNK: u64 = 16 << 20;

impl Recorder {
    /// Submits, then writes `data` to elements `start..` of `array`, after everything recorded before and before
    /// everything recorded later. Does not wait.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the range does not lie in the array, [`DeviceError::Lost`].
    pub fn upload<T: DeviceElement>(&mut self, array: &Array<T>, start: u64, data: &[T]) -> Result<(), DeviceError> {
        inside("upload", array.len(), start, data.len() as u64)?;
        self.reach(array.raw(), "upload")?;
        array.raw().written("upload")?;
        self.submit()?;
        self.write(array.raw(), start, bytemuck::cast_slice(data));
        self.counts.uploads += 1;
        Ok(())
    }

    /// Writes bytes to elements `start..` of `array`, after everything submitted before and before everything submitted later.
    pub(crate) fn write(&self, array: &RawArray, start: u64, mut data: &[u8]) {
        let queue = self.gpu().queue();
        self.gpu().guarded(|| {
            for (buffer, offset, bytes) in array.pieces(start, data.len() as u64 / array.element_bytes()) {
                let (piece, rest) = data.split_at(bytes as usize);
                queue.write_buffer(buffer, offset, piece);
                data = rest;
            }
        });
    }

    /// Submits, waits and reads elements `start..start + len` of `array`.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the range does not lie in the array, [`DeviceError::OutOfMemory`],
    /// [`DeviceError::Lost`].
    pub fn download<T: DeviceElement>(
        &mut self,
        array: &Array<T>,
        start: u64,
        len: u64,
    ) -> Result<Vec<T>, DeviceError> {
        inside("download", array.len(), start, len)?;
        let mut data = vec![T::zeroed(); len as usize];
        self.download_into(array, start, &mut data)?;
        Ok(data)
    }

    /// As [`download`](Self::download), into memory that the caller has.
    pub(crate) fn download_into<T: DeviceElement>(
        &mut self,
        array: &Array<T>,
        start: u64,
        data: &mut [T],
    ) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        inside("download", array.len(), start, len)?;
        self.reach(array.raw(), "download")?;
        self.submit()?;
        let mut rest: &mut [u8] = bytemuck::cast_slice_mut(data);
        for (buffer, offset, bytes) in array.raw().pieces(start, len) {
            for at in (0..bytes).step_by(CHUNK as usize) {
                let size = (bytes - at).min(CHUNK);
                let (chunk, after) = rest.split_at_mut(size as usize);
                self.read(buffer, offset + at, chunk)?;
                rest = after;
            }
        }
        self.counts.downloads += 1;
        Ok(())
    }

    /// Waits for everything submitted and reads bytes of a buffer through a staging buffer.
    fn read(&mut self, buffer: &wgpu::Buffer, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = target.len() as u64;
        let staging = self.staging_buffer(bytes)?;
        self.submit_copies(staging.buffer(), &[(buffer, offset, bytes)]);
        let map = Map::begin(self.gpu(), staging.buffer(), wgpu::MapMode::Read, bytes);
        map.wait(self.last.as_ref())?;
        read_mapped(staging.buffer(), 0, bytes, |view| target.copy_from_slice(view))
    }

    /// A staging buffer of `bytes` bytes at least, nobody else's until it is dropped.
    pub(crate) fn staging_buffer(&self, bytes: u64) -> Result<Staging, DeviceError> {
        Staging::take(&self.staging, bytes)
    }

    /// Submits the copy of a range of an array to the beginning of a staging buffer. Does not wait.
    pub(crate) fn stage(
        &mut self,
        array: &RawArray,
        start: u64,
        len: u64,
        staging: &wgpu::Buffer,
    ) -> Result<(), DeviceError> {
        self.submit()?;
        self.submit_copies(staging, &array.pieces(start, len));
        Ok(())
    }

    /// Submits copies of pieces of buffers to the beginning of another, one behind the other.
    fn submit_copies(&mut self, to: &wgpu::Buffer, pieces: &[(&wgpu::Buffer, u64, u64)]) {
        let gpu = self.gpu();
        let descriptor = wgpu::CommandEncoderDescriptor { label: Some("meshloom::staging") };
        let submitted = gpu.guarded(|| {
            let (mut encoder, mut at) = (gpu.device().create_command_encoder(&descriptor), 0);
            for &(buffer, offset, bytes) in pieces {
                encoder.copy_buffer_to_buffer(buffer, offset, to, at, bytes);
                at += bytes;
            }
            gpu.queue().submit([encoder.finish()])
        });
        self.last = Some(submitted);
    }

    /// Refuses an array that the device does not have, or not at present.
    fn reach(&self, array: &RawArray, what: &str) -> Result<(), DeviceError> {
        array.on(self.gpu(), what)?;
        array.at_rest(what)
    }
}
