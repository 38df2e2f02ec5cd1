//! Recording work and handing it to the device.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::array::{Array, DeviceElement, LONGEST, RawArray};
use super::device::Gpu;
use super::error::DeviceError;
use super::pipeline::{Kernel, PARAMS, Pipeline};
use super::staging::{Staging, StagingPool};

/// What a recorder has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Submissions to the queue.
    pub submits: u64,
    /// Dispatches submitted.
    pub dispatches: u64,
    /// Downloads: each waits for the device.
    pub downloads: u64,
    /// Uploads.
    pub uploads: u64,
    /// Seconds in compute passes by the device's own clock; zero unless [`Recorder::measure`] is on.
    pub seconds: f64,
}

enum Command {
    Dispatch { pipeline: Arc<Pipeline>, arrays: Vec<RawArray>, params: u32, groups: [u32; 2] },
    Copy { from: RawArray, to: RawArray, from_start: u64, to_start: u64, len: u64 },
    Clear { array: RawArray },
}

impl Command {
    /// Refuses arrays that are on their way between ranks.
    fn at_rest(&self) -> Result<(), DeviceError> {
        match self {
            Command::Dispatch { pipeline, arrays, .. } => arrays.iter().try_for_each(|a| a.at_rest(&pipeline.label)),
            Command::Copy { from, to, .. } => [from, to].iter().try_for_each(|array| array.at_rest("copy")),
            Command::Clear { array } => array.at_rest("clear"),
        }
    }
}

/// Records dispatches and copies and submits them together.
///
/// - Each rank has one; it is not shared between threads.
/// - `dispatch`, `copy` and `clear` only note what is to be done: nothing is submitted before [`submit`](Self::submit),
///   [`upload`](Self::upload), [`download`](Self::download) or 256 dispatches.
/// - Commands run in the order they were recorded; neighbouring dispatches go into one compute pass.
/// - `download` and [`wait`](Self::wait) wait for the device, nothing else does.
pub struct Recorder {
    gpu: Gpu,
    commands: Vec<Command>,
    params: Vec<u8>,
    uniforms: wgpu::Buffer,
    staging: Option<wgpu::Buffer>,
    rotating: Arc<StagingPool>,
    last: Option<wgpu::SubmissionIndex>,
    timer: Option<Timer>,
    counts: Counts,
    /// What was wrong with a command that could not say so.
    refused: Option<DeviceError>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (recorded, counts) = (self.commands.len(), &self.counts);
        f.debug_struct("Recorder").field("gpu", &self.gpu).field("recorded", &recorded).field("counts", counts).finish()
    }
}

/// Dispatches that one submission can hold: the uniform buffer has room for as many.
const MOST: usize = 256;

struct Timer {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
}

/// Passes that a measured submission can time.
const TIMED: u32 = 64;

impl Recorder {
    /// A recorder for `gpu`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn new(gpu: &Gpu) -> Result<Self, DeviceError> {
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let uniforms = gpu.new_buffer("meshloom::params", MOST as u64 * PARAMS, usage)?;
        Ok(Recorder {
            gpu: gpu.clone(),
            commands: Vec::new(),
            params: Vec::new(),
            uniforms,
            staging: None,
            rotating: Arc::new(StagingPool::new(gpu)),
            last: None,
            timer: None,
            counts: Counts::default(),
            refused: None,
        })
    }

    /// The device it records for.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Times compute passes on the device, where it has timestamps. Each measured submission is waited for, so this is
    /// for finding out, not for running.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn measure(&mut self, on: bool) -> Result<(), DeviceError> {
        self.submit()?;
        self.timer = None;
        if on && self.gpu.capabilities().timestamps {
            let queries = self.gpu.device().create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("meshloom::timer"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * TIMED,
            });
            let bytes = u64::from(2 * TIMED) * 8;
            let resolved = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
            let read = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            let resolved = self.gpu.new_buffer("meshloom::timer", bytes, resolved)?;
            self.timer = Some(Timer { queries, resolved, read: self.gpu.new_buffer("meshloom::timer", bytes, read)? });
        }
        Ok(())
    }

    /// Records `kernel` over `workgroups` workgroups with `arrays` in the order of its slots. Compiles the kernel if it
    /// is new. Zero workgroups record nothing. An array may stand in several slots if all of them only read.
    ///
    /// # Errors
    /// [`DeviceError::Shader`], [`DeviceError::TooManyWindows`]; [`DeviceError::Misuse`] for arrays, parameters or a number of
    /// workgroups that do not fit the kernel, and arrays of another device. Nothing is recorded then, and all goes on working.
    pub fn dispatch<P: bytemuck::NoUninit>(
        &mut self,
        kernel: &Kernel,
        arrays: &[&RawArray],
        params: &P,
        workgroups: u64,
    ) -> Result<(), DeviceError> {
        self.dispatch_bytes(kernel, arrays, bytemuck::bytes_of(params), workgroups)
    }

    /// As [`dispatch`](Self::dispatch), with parameters as bytes.
    pub(crate) fn dispatch_bytes(
        &mut self,
        kernel: &Kernel,
        arrays: &[&RawArray],
        bytes: &[u8],
        workgroups: u64,
    ) -> Result<(), DeviceError> {
        if workgroups == 0 {
            return Ok(());
        }
        let pipeline = kernel.pipeline(&self.gpu, arrays)?;
        let given = bytes.len() as u64;
        let most = given.max(pipeline.params.as_ref().map_or(0, |extent| *extent.end()));
        if most > PARAMS {
            return Err(kernel.misuse(format!("{most} bytes of parameters, {PARAMS} are allowed")));
        }
        if let Some(extent) = pipeline.params.as_ref().filter(|extent| !extent.contains(&given)) {
            let why = format!("{given} bytes of parameters are given, those of its text take {}", extent.end());
            return Err(kernel.misuse(why));
        }
        let most = self.gpu.capabilities().workgroups;
        let groups = folded(workgroups, most).ok_or_else(|| {
            kernel.misuse(format!("{workgroups} workgroups, {} are allowed", u64::from(most) * u64::from(most)))
        })?;
        if self.params.len() as u64 >= MOST as u64 * PARAMS {
            self.submit()?;
        }
        let offset = self.params.len();
        self.params.extend_from_slice(bytes);
        self.params.resize(offset + PARAMS as usize, 0);
        self.commands.push(Command::Dispatch {
            pipeline,
            arrays: arrays.iter().map(|&array| array.clone()).collect(),
            params: offset as u32,
            groups,
        });
        Ok(())
    }

    /// Records an elementwise `kernel` over `count` elements: [`dispatch`](Self::dispatch) with as many workgroups of
    /// the device's tuned shape as cover them.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch); [`DeviceError::TooLong`] for more than [`LONGEST`] elements.
    pub fn each<P: bytemuck::NoUninit>(
        &mut self,
        kernel: &Kernel,
        arrays: &[&RawArray],
        params: &P,
        count: u64,
    ) -> Result<(), DeviceError> {
        if count > LONGEST {
            return Err(DeviceError::TooLong { label: kernel.source().label().into(), len: count });
        }
        let tuning = self.gpu.tuning();
        let group = u64::from(kernel.source().fixed_group().unwrap_or(tuning.group)).max(1);
        self.dispatch(kernel, arrays, params, count.div_ceil(group * u64::from(tuning.items)))
    }

    /// Records a copy of `len` elements from one array to another. Within one array, where the ranges may overlap, they pass through
    /// memory of their own.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when a range does not lie in its array or an array is of another device, and
    /// [`DeviceError::OutOfMemory`].
    pub fn copy<T: DeviceElement>(
        &mut self,
        from: &Array<T>,
        from_start: u64,
        to: &Array<T>,
        to_start: u64,
        len: u64,
    ) -> Result<(), DeviceError> {
        inside("copy (source)", from.len(), from_start, len)?;
        inside("copy (destination)", to.len(), to_start, len)?;
        from.raw().on(&self.gpu, "copy (source)")?;
        to.raw().on(&self.gpu, "copy (destination)")?;
        to.raw().written("copy (destination)")?;
        if len == 0 {
            return Ok(());
        }
        let mut note = |from: &Array<T>, from_start: u64, to: &Array<T>, to_start: u64| {
            let (from, to) = (from.raw().clone(), to.raw().clone());
            self.commands.push(Command::Copy { from, to, from_start, to_start, len });
        };
        if from.raw().shares(to.raw()) {
            // No buffer is copied to itself.
            let between = self.gpu.array::<T>("meshloom::copy", len)?;
            note(from, from_start, &between, 0);
            note(&between, 0, to, to_start);
        } else {
            note(from, from_start, to, to_start);
        }
        Ok(())
    }

    /// Records setting all of `array` to zero. An array of another device, or one that may only be read, is left alone, and the
    /// next submission says so ([`DeviceError::Misuse`]).
    pub fn clear<T: DeviceElement>(&mut self, array: &Array<T>) {
        if let Err(error) = array.raw().on(&self.gpu, "clear").and_then(|()| array.raw().written("clear")) {
            self.refused.get_or_insert(error);
            return;
        }
        self.commands.push(Command::Clear { array: array.raw().clone() });
    }

    /// Hands everything recorded to the device; does not wait.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] when the device failed earlier; [`DeviceError::Misuse`] when an array is on its way between ranks:
    /// what was recorded waits then for the next submission.
    pub fn submit(&mut self) -> Result<(), DeviceError> {
        self.gpu.check()?;
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        self.commands.iter().try_for_each(Command::at_rest)?;
        if self.commands.is_empty() {
            return Ok(());
        }
        if !self.params.is_empty() {
            self.gpu.queue().write_buffer(&self.uniforms, 0, &self.params);
        }
        let encoder = wgpu::CommandEncoderDescriptor { label: Some("meshloom") };
        let mut encoder = self.gpu.device().create_command_encoder(&encoder);
        let commands = std::mem::take(&mut self.commands);
        let (mut rest, mut passes) = (&commands[..], 0);
        while let Some(first) = rest.first() {
            match first {
                Command::Dispatch { .. } => {
                    let run = rest.iter().take_while(|c| matches!(c, Command::Dispatch { .. })).count();
                    self.encode(&mut encoder, &rest[..run], passes);
                    passes += 1;
                    rest = &rest[run..];
                }
                Command::Copy { from, to, from_start, to_start, len } => {
                    copy_pieces(&mut encoder, from, *from_start, to, *to_start, *len);
                    rest = &rest[1..];
                }
                Command::Clear { array } => {
                    for (buffer, offset, bytes) in array.pieces(0, array.len) {
                        encoder.clear_buffer(buffer, offset, Some(bytes.next_multiple_of(4)));
                    }
                    rest = &rest[1..];
                }
            }
        }
        let timed = passes.min(TIMED);
        if let Some(timer) = self.timer.as_ref().filter(|_| timed > 0) {
            encoder.resolve_query_set(&timer.queries, 0..2 * timed, &timer.resolved, 0);
            encoder.copy_buffer_to_buffer(&timer.resolved, 0, &timer.read, 0, u64::from(2 * timed) * 8);
        }
        self.last = Some(self.gpu.queue().submit([encoder.finish()]));
        self.params.clear();
        self.counts.submits += 1;
        self.counts.dispatches += commands.iter().filter(|c| matches!(c, Command::Dispatch { .. })).count() as u64;
        // The commands hold the arrays they use until here: only now may their memory be handed out again.
        drop(commands);
        if timed > 0 && self.timer.is_some() {
            self.read_timer(timed)?;
        }
        self.gpu.check()
    }

    fn encode(&self, encoder: &mut wgpu::CommandEncoder, dispatches: &[Command], pass: u32) {
        let timestamp_writes =
            self.timer.as_ref().filter(|_| pass < TIMED).map(|timer| wgpu::ComputePassTimestampWrites {
                query_set: &timer.queries,
                beginning_of_pass_write_index: Some(2 * pass),
                end_of_pass_write_index: Some(2 * pass + 1),
            });
        let descriptor = wgpu::ComputePassDescriptor { label: Some("meshloom"), timestamp_writes };
        let mut pass = encoder.begin_compute_pass(&descriptor);
        for command in dispatches {
            let Command::Dispatch { pipeline, arrays, params, groups } = command else { continue };
            let uniform =
                wgpu::BufferBinding { buffer: &self.uniforms, offset: 0, size: wgpu::BufferSize::new(PARAMS) };
            let mut entries =
                vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(uniform) }];
            for (buffer, offset, bytes) in arrays.iter().flat_map(RawArray::bindings) {
                let range = wgpu::BufferBinding { buffer, offset, size: wgpu::BufferSize::new(bytes) };
                entries.push(wgpu::BindGroupEntry {
                    binding: entries.len() as u32,
                    resource: wgpu::BindingResource::Buffer(range),
                });
            }
            let group = self.gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(&pipeline.label),
                layout: &pipeline.layout,
                entries: &entries,
            });
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, &group, &[*params]);
            pass.dispatch_workgroups(groups[0], groups[1], 1);
        }
    }

    fn read_timer(&mut self, passes: u32) -> Result<(), DeviceError> {
        let Some(timer) = &self.timer else { return Ok(()) };
        let (read, bytes) = (timer.read.clone(), u64::from(2 * passes) * 8);
        let mut ticks = vec![0u64; 2 * passes as usize];
        self.map(&read, 0, bytes, |view| bytemuck::cast_slice_mut(&mut ticks).copy_from_slice(view))?;
        let period = f64::from(self.gpu.queue().get_timestamp_period()) * 1e-9;
        self.counts.seconds += ticks.chunks(2).map(|t| t[1].saturating_sub(t[0]) as f64 * period).sum::<f64>();
        Ok(())
    }

    /// Submits, then writes `data` to elements `start..` of `array`, after everything recorded before and before
    /// everything recorded later.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the range does not lie in the array, [`DeviceError::Lost`].
    pub fn upload<T: DeviceElement>(&mut self, array: &Array<T>, start: u64, data: &[T]) -> Result<(), DeviceError> {
        inside("upload", array.len(), start, data.len() as u64)?;
        self.reach(array.raw(), "upload")?;
        array.raw().written("upload")?;
        self.submit()?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let mut at = 0;
        for (buffer, offset, len) in array.raw().pieces(start, data.len() as u64) {
            self.gpu.queue().write_buffer(buffer, offset, &bytes[at..at + len as usize]);
            at += len as usize;
        }
        self.counts.uploads += 1;
        Ok(())
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
        self.reach(array.raw(), "download")?;
        let mut data = vec![T::zeroed(); len as usize];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut data);
        // A few MiB at a time, so that staging stays small.
        const CHUNK: u64 = 16 << 20;
        self.submit()?;
        let mut at = 0;
        for (buffer, offset, piece) in array.raw().pieces(start, len) {
            for part in (0..piece).step_by(CHUNK as usize) {
                let size = (piece - part).min(CHUNK);
                let staging = self.staging(size)?;
                let mut encoder = self
                    .gpu
                    .device()
                    .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("meshloom::download") });
                encoder.copy_buffer_to_buffer(buffer, offset + part, &staging, 0, size);
                self.last = Some(self.gpu.queue().submit([encoder.finish()]));
                let target = &mut bytes[at..at + size as usize];
                self.map(&staging, 0, size, |view| target.copy_from_slice(view))?;
                at += size as usize;
            }
        }
        self.counts.downloads += 1;
        Ok(data)
    }

    /// Refuses an array that the device does not have, or not at present.
    fn reach(&self, array: &RawArray, what: &str) -> Result<(), DeviceError> {
        array.on(&self.gpu, what)?;
        array.at_rest(what)
    }

    /// Submits and waits until everything submitted is done.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn wait(&mut self) -> Result<(), DeviceError> {
        self.submit()?;
        self.poll(wgpu::PollType::Wait { submission_index: self.last.clone(), timeout: None })
    }

    fn poll(&self, how: wgpu::PollType) -> Result<(), DeviceError> {
        self.gpu.device().poll(how).map_err(|e| DeviceError::Lost(e.to_string()))?;
        self.gpu.check()
    }

    /// Waits until a range of a mappable buffer is mapped for reading and lends it to `body`.
    pub(crate) fn map(
        &mut self,
        buffer: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
        body: impl FnOnce(&[u8]),
    ) -> Result<(), DeviceError> {
        let lost = |e: String| DeviceError::Lost(e);
        self.await_map(buffer, wgpu::MapMode::Read, offset, bytes)?;
        let view = buffer.get_mapped_range(offset..offset + bytes).map_err(|e| lost(e.to_string()))?;
        body(&view);
        drop(view);
        buffer.unmap();
        Ok(())
    }

    /// Waits until a range is mapped in `mode`; the caller unmaps.
    pub(crate) fn await_map(
        &mut self,
        buffer: &wgpu::Buffer,
        mode: wgpu::MapMode,
        offset: u64,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        buffer.map_async(mode, offset..offset + bytes, move |result| drop(sender.send(result)));
        loop {
            self.poll(wgpu::PollType::Wait { submission_index: self.last.clone(), timeout: None })?;
            // Another thread that polls the same device may run the callback a moment later.
            match receiver.recv_timeout(Duration::from_millis(1)) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(e)) => return Err(DeviceError::Lost(e.to_string())),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(e) => return Err(DeviceError::Lost(e.to_string())),
            }
        }
    }

    /// A staging buffer of `bytes` bytes at least, nobody else's until it is dropped.
    pub(crate) fn staging_buffer(&self, bytes: u64) -> Result<Staging, DeviceError> {
        Staging::take(&self.rotating, bytes)
    }

    /// Submits the copy of a range of an array to the beginning of a staging buffer.
    pub(crate) fn stage(
        &mut self,
        array: &RawArray,
        start: u64,
        len: u64,
        staging: &wgpu::Buffer,
    ) -> Result<(), DeviceError> {
        self.submit()?;
        let mut encoder = self
            .gpu
            .device()
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("meshloom::stage") });
        let mut at = 0;
        for (buffer, offset, bytes) in array.pieces(start, len) {
            encoder.copy_buffer_to_buffer(buffer, offset, staging, at, bytes);
            at += bytes;
        }
        self.last = Some(self.gpu.queue().submit([encoder.finish()]));
        Ok(())
    }

    /// Lets callbacks of finished work run; does not wait.
    pub(crate) fn poll_once(&self) -> Result<(), DeviceError> {
        self.poll(wgpu::PollType::Poll)
    }

    fn staging(&mut self, bytes: u64) -> Result<wgpu::Buffer, DeviceError> {
        if let Some(buffer) = self.staging.as_ref().filter(|buffer| buffer.size() >= bytes) {
            return Ok(buffer.clone());
        }
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let size = bytes.max(1 << 16).next_power_of_two();
        let buffer = self.gpu.new_buffer("meshloom::staging", size, usage)?;
        if let Some(old) = self.staging.replace(buffer.clone()) {
            self.gpu.forget(&old);
        }
        Ok(buffer)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let timer = self.timer.iter().flat_map(|timer| [&timer.resolved, &timer.read]);
        for buffer in timer.chain(&self.staging).chain([&self.uniforms]) {
            self.gpu.forget(buffer);
        }
    }
}

/// Workgroups as rows and columns, of which none has more than `most`, with less than a row too many; none if they are more than
/// such a rectangle holds. Surplus workgroups count on behind the last, for which [`LONGEST`] leaves room.
fn folded(workgroups: u64, most: u32) -> Option<[u32; 2]> {
    let rows = workgroups.div_ceil(u64::from(most)).max(1);
    let columns = workgroups.div_ceil(rows);
    (rows <= u64::from(most)).then_some([columns as u32, rows as u32])
}

fn inside(what: &str, have: u64, start: u64, len: u64) -> Result<(), DeviceError> {
    match start.checked_add(len) {
        Some(end) if end <= have => Ok(()),
        _ => Err(DeviceError::Misuse {
            what: what.into(),
            why: format!("{len} elements from {start} of an array of {have}"),
        }),
    }
}

/// Copies between arrays whose buffers may be cut at different places.
fn copy_pieces(
    encoder: &mut wgpu::CommandEncoder,
    from: &RawArray,
    from_start: u64,
    to: &RawArray,
    to_start: u64,
    len: u64,
) {
    let (sources, targets) = (from.pieces(from_start, len), to.pieces(to_start, len));
    let (mut s, mut t, mut s_done, mut t_done) = (0, 0, 0, 0);
    while s < sources.len() && t < targets.len() {
        let bytes = (sources[s].2 - s_done).min(targets[t].2 - t_done);
        encoder.copy_buffer_to_buffer(sources[s].0, sources[s].1 + s_done, targets[t].0, targets[t].1 + t_done, bytes);
        s_done += bytes;
        t_done += bytes;
        if s_done == sources[s].2 {
            (s, s_done) = (s + 1, 0);
        }
        if t_done == targets[t].2 {
            (t, t_done) = (t + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_workgroups_never_count_around() {
        for most in [65_535, 7] {
            for workgroups in
                [0, 1, 6, 7, 8, 48, 49, 65_535, 65_536, 1 << 20, 4_194_176, u64::from(most) * u64::from(most)]
            {
                let Some([x, y]) = folded(workgroups, most) else {
                    assert!(workgroups > u64::from(most) * u64::from(most));
                    continue;
                };
                let all = u64::from(x) * u64::from(y);
                assert!(
                    x <= most && y <= most && all >= workgroups && all - workgroups < u64::from(y),
                    "{workgroups} {most}"
                );
            }
        }
        assert_eq!(folded(u64::from(u32::MAX), 65_535), None);
        // Elements that a workgroup treats: a power of two, and others.
        for each in (0..=14).map(|k| 1u64 << k).chain([3, 48, 100, 384, 3000, 12_288, 16_000]) {
            for len in [LONGEST, LONGEST - 1, LONGEST - each, LONGEST / 2 + 1] {
                let [x, y] = folded(len.div_ceil(each), 65_535).unwrap();
                assert!(u64::from(x) * u64::from(y) * each <= 1 << 32, "{len} elements by {each}");
            }
        }
    }
}
