//! Between host memory and arrays: uploads, downloads, and copies to staging buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::buffer_copy::{BufferCopy, StagingDirection};
use super::command::inside;
use super::copy_queues::CopyCompletion;
use super::staging::{Map, Staging, read_mapped};
use super::{Array, DeviceElement, DeviceError, Gpu, RawArray, Recorder, unstacked};
use crate::{host_memory, timeline};

/// Bytes that a download copies at a time, so that staging stays small.
const CHUNK: u64 = 16 << 20;

/// Bytes that are downloaded by the submission of what is recorded, several arrays through one
/// staging buffer. For more, the copies take longer than a submission, and what is recorded should
/// give its memory back first.
const SMALL: u64 = 64 << 10;

/// A range of an array, in elements, and the place in a host buffer, in bytes, that it is copied to
/// or from.
#[derive(Clone, Copy)]
pub(crate) struct StagedCopy<'a> {
    pub start: u64,
    pub len: u64,
    pub host: &'a wgpu::Buffer,
    pub at_bytes: u64,
}

/// Completion of copies to or from memory that ranks share.
#[derive(Clone)]
pub(crate) enum Completion {
    /// Copies on wgpu's queue.
    Submitted(Arc<AtomicBool>),
    /// Copies on a queue of their own.
    Queued(Arc<QueuedCopies>),
}

/// Copies on a queue of their own, with the memory that they use. Dropping them waits for the
/// copies.
pub(crate) struct QueuedCopies {
    completion: CopyCompletion,
    gpu: Gpu,
    _array: RawArray,
    _hosts: Vec<wgpu::Buffer>,
}

impl QueuedCopies {
    fn is_done(&self) -> bool {
        self.completion.is_done().unwrap_or_else(|error| {
            self.gpu.failure_reporter()(&error.to_string());
            false
        })
    }
}

impl Drop for QueuedCopies {
    fn drop(&mut self) {
        while !self.is_done() && self.gpu.check().is_ok() {
            self.completion.wait();
        }
    }
}

impl Completion {
    /// Returns `true` once the device has finished; somebody must [poll](Recorder::poll) it.
    pub fn is_done(&self) -> bool {
        match self {
            Completion::Submitted(done) => done.load(Ordering::Acquire),
            Completion::Queued(copies) => copies.is_done(),
        }
    }

    /// Waits until the device has finished.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn wait(&self, recorder: &Recorder) -> Result<(), DeviceError> {
        while !self.is_done() {
            recorder.poll()?;
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Returns copies between an array and host buffers as copies between buffers.
fn pieces<'a>(direction: StagingDirection, array: &'a RawArray, copies: &[StagedCopy<'a>]) -> Vec<BufferCopy<'a>> {
    let of_copy = |&StagedCopy { start, len, host, at_bytes }: &StagedCopy<'a>| {
        let mut at = at_bytes;
        array.pieces(start, len).into_iter().map(move |(buffer, offset, bytes)| {
            let (array, host) = ((buffer, offset), (host, at));
            at += bytes;
            match direction {
                StagingDirection::ToHost => BufferCopy { from: array, to: host, bytes },
                StagingDirection::ToDevice => BufferCopy { from: host, to: array, bytes },
            }
        })
    };
    copies.iter().flat_map(of_copy).collect()
}

impl Recorder {
    /// Submits, then writes `data` to elements `start..` of `array`, after everything recorded
    /// before and before everything recorded later. Does not wait.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the range does not lie in the array, [`DeviceError::Lost`].
    pub fn upload<T: DeviceElement>(&mut self, array: &Array<T>, start: u64, data: &[T]) -> Result<(), DeviceError> {
        inside("upload", array.len(), start, data.len() as u64)?;
        self.reach(array.raw(), "upload")?;
        array.raw().written("upload")?;
        array.raw().single("upload")?;
        let _activity = timeline::activity!("upload", bytes = size_of_val(data));
        self.submit()?;
        self.write(array.raw(), start, bytemuck::cast_slice(data));
        self.counts.uploads += 1;
        Ok(())
    }

    /// Creates an array that holds `data`. Submits; does not wait.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::TooLong`], [`DeviceError::Lost`].
    pub fn uploaded<T: DeviceElement>(&mut self, label: &str, data: &[T]) -> Result<Array<T>, DeviceError> {
        // In a stack all copies read the same values.
        let array = unstacked(|| self.gpu().array(label, data.len() as u64))?;
        self.upload(&array, 0, data)?;
        Ok(array)
    }

    /// Writes bytes to elements `start..` of `array`, after everything submitted before and before
    /// everything submitted later.
    pub(crate) fn write(&self, array: &RawArray, start: u64, mut data: &[u8]) {
        for (buffer, offset, bytes) in array.pieces(start, data.len() as u64 / array.element_bytes()) {
            let (piece, rest) = data.split_at(bytes as usize);
            self.gpu.0.open.write(buffer, offset, piece);
            data = rest;
        }
    }

    /// Submits, waits and reads elements `start..start + len` of `array`.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the range does not lie in the array,
    /// [`DeviceError::OutOfMemory`], [`DeviceError::HostMemory`], [`DeviceError::Lost`].
    pub fn download<T: DeviceElement>(
        &mut self,
        array: &Array<T>,
        start: u64,
        len: u64,
    ) -> Result<Vec<T>, DeviceError> {
        inside("download", array.len(), start, len)?;
        let mut data = host_memory::zeros("values of an array", len as usize)?;
        self.download_into(array, start, &mut data)?;
        Ok(data)
    }

    /// Submits, blocks and reads elements `start..start + data.len()` of `array` into `data`.
    ///
    /// # Errors
    /// Same as [`download`](Self::download).
    pub fn download_into<T: DeviceElement>(
        &mut self,
        array: &Array<T>,
        start: u64,
        data: &mut [T],
    ) -> Result<(), DeviceError> {
        let (len, mut done) = (data.len() as u64, 0);
        self.download_pieces(array, start, len, |piece: &[T]| {
            data[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    /// Same as [`download`](Self::download), but passes the elements to `take` in pieces, in order.
    pub(crate) fn download_pieces<T: DeviceElement>(
        &mut self,
        array: &Array<T>,
        start: u64,
        len: u64,
        mut take: impl FnMut(&[T]),
    ) -> Result<(), DeviceError> {
        inside("download", array.len(), start, len)?;
        self.download_ranges(&[(array.raw(), start, len)], |_, piece| take(bytemuck::cast_slice(piece)))
    }

    /// Downloads several arrays and passes the bytes of each to `take` in pieces, in order, with
    /// the place of the array among `arrays`. Waits once if they are small.
    pub(crate) fn download_together(
        &mut self,
        arrays: &[&RawArray],
        take: impl FnMut(usize, &[u8]),
    ) -> Result<(), DeviceError> {
        let ranges: Vec<_> = arrays.iter().map(|&array| (array, 0, array.len)).collect();
        self.download_ranges(&ranges, take)
    }

    /// Same as [`download_together`](Self::download_together), for ranges of arrays, in elements.
    fn download_ranges(
        &mut self,
        ranges: &[(&RawArray, u64, u64)],
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<(), DeviceError> {
        ranges.iter().try_for_each(|&(array, ..)| self.reach(array, "download").and(array.single("download")))?;
        let mut total = 0;
        // Where each range begins in the staging buffer: aligned for all elements.
        let begins: Vec<u64> = ranges
            .iter()
            .map(|&(array, _, len)| {
                let at = u64::next_multiple_of(total, 8);
                total = at + len * array.element_bytes();
                at
            })
            .collect();
        let _activity = timeline::activity!("download", bytes = total);
        if (1..=SMALL).contains(&total) {
            let staging = self.staging_buffer(StagingDirection::ToHost, total)?;
            let mut copies = Vec::new();
            for (&(array, start, len), &begin) in ranges.iter().zip(&begins) {
                let copy = StagedCopy { start, len, host: &staging.buffer, at_bytes: begin };
                copies.extend(pieces(StagingDirection::ToHost, array, &[copy]));
            }
            self.submit_with(&copies)?;
            let map = Map::begin(self.gpu(), &staging.buffer, wgpu::MapMode::Read, total);
            map.wait(self.last.as_ref())?;
            read_mapped(&staging.buffer, total, |view| {
                for (number, (&(array, _, len), &begin)) in ranges.iter().zip(&begins).enumerate() {
                    take(number, &view[begin as usize..(begin + len * array.element_bytes()) as usize]);
                }
            })?;
            self.counts.downloads += 1;
            return Ok(());
        }
        self.submit()?;
        for (number, &(array, start, len)) in ranges.iter().enumerate() {
            for (buffer, offset, bytes) in array.pieces(start, len) {
                self.read(buffer, offset, bytes, |view| take(number, view))?;
            }
            self.counts.downloads += 1;
        }
        Ok(())
    }

    /// Submits, waits and gives the bytes of a buffer to `take`, in pieces, from staging buffers.
    pub(super) fn read(
        &mut self,
        buffer: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        for at in (0..bytes).step_by(CHUNK as usize) {
            let (from, bytes) = ((buffer, offset + at), (bytes - at).min(CHUNK));
            // Arrays of recorded work give their memory back before the staging buffer takes any.
            self.submit()?;
            let staging = self.staging_buffer(StagingDirection::ToHost, bytes)?;
            self.submit_encoded(|encoder| BufferCopy { from, to: (&staging.buffer, 0), bytes }.encode(encoder));
            let map = Map::begin(self.gpu(), &staging.buffer, wgpu::MapMode::Read, bytes);
            map.wait(self.last.as_ref())?;
            read_mapped(&staging.buffer, bytes, &mut take)?;
        }
        Ok(())
    }

    /// Takes a staging buffer of at least `bytes` bytes, exclusively until it is dropped.
    pub(crate) fn staging_buffer(&self, direction: StagingDirection, bytes: u64) -> Result<Staging, DeviceError> {
        self.staging.take(direction, bytes)
    }

    /// Submits copies of ranges of an array to the beginnings of staging buffers, or back, in one
    /// submission. Does not wait, and does not submit what is recorded: the array is lent, so that
    /// nothing recorded since may use it.
    pub(crate) fn stage(
        &mut self,
        direction: StagingDirection,
        array: &RawArray,
        copies: &[StagedCopy<'_>],
    ) -> Result<(), DeviceError> {
        self.gpu().check()?;
        let copies = pieces(direction, array, copies);
        self.submit_encoded(|encoder| copies.iter().for_each(|copy| copy.encode(encoder)));
        Ok(())
    }

    /// Same as [`stage`](Self::stage), to or from imported memory, on a queue for copies where the
    /// device has one. Returns the completion.
    pub(crate) fn copy_imported(
        &mut self,
        direction: StagingDirection,
        array: &RawArray,
        copies: &[StagedCopy<'_>],
    ) -> Result<Completion, DeviceError> {
        self.gpu().check()?;
        let all = pieces(direction, array, copies);
        let mut hosts: Vec<wgpu::Buffer> = copies.iter().map(|copy| copy.host.clone()).collect();
        hosts.dedup();
        if let Some(queues) = self.gpu().copies().filter(|_| array.is_for_exchanges()) {
            let _activity = timeline::activity!("submit", name = "submit copies");
            let completion = queues.copy(direction, &all)?;
            let (gpu, array) = (self.gpu().clone(), array.clone());
            let copies = QueuedCopies { completion, gpu, _array: array, _hosts: hosts };
            return Ok(Completion::Queued(Arc::new(copies)));
        }
        let state = match direction {
            StagingDirection::ToHost => wgpu::BufferUses::MAP_READ,
            StagingDirection::ToDevice => wgpu::BufferUses::MAP_WRITE,
        };
        // As wgpu does not map imported memory, a barrier must order accesses of device and host.
        let hand_over = |encoder: &mut wgpu::CommandEncoder| {
            let transitions = hosts.iter().map(|buffer| wgpu::BufferTransition { buffer, state });
            encoder.transition_resources(transitions, [].into_iter());
        };
        self.submit_encoded(|encoder| {
            if direction == StagingDirection::ToDevice {
                hand_over(encoder);
            }
            all.iter().for_each(|copy| copy.encode(encoder));
            if direction == StagingDirection::ToHost {
                hand_over(encoder);
            }
        });
        let done = Arc::new(AtomicBool::new(false));
        let flag = done.clone();
        self.gpu()
            .0
            .open
            .guarded(|| self.gpu().queue().on_submitted_work_done(move || flag.store(true, Ordering::Release)));
        Ok(Completion::Submitted(done))
    }

    /// Submits what `encode` puts into an encoder.
    fn submit_encoded(&mut self, encode: impl FnOnce(&mut wgpu::CommandEncoder)) {
        let gpu = self.gpu();
        let _activity = timeline::activity!("submit", name = "submit copies");
        let descriptor = wgpu::CommandEncoderDescriptor { label: Some("meshloom::staging") };
        let submitted = gpu.0.open.guarded(|| {
            let mut encoder = gpu.device().create_command_encoder(&descriptor);
            encode(&mut encoder);
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
