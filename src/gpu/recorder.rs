//! Recording work and handing it to the device.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::buffer_copy::BufferCopy;
use super::command::{Command, Encoding, Schedule, folded, inside, least_of_pass};
use super::params::{KernelParams, PARAMS};
use super::stack::{open_copies, refusal};
use super::staging::StagingPool;
use super::timer::{KernelTime, Timer};
use super::variant::stride_bytes;
use super::{Array, DeviceElement, DeviceError, Gpu, Kernel, RawArray, allowed_len};
use crate::timeline;

/// Counters of a recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecorderCounts {
    /// Submissions to the queue.
    pub submits: u64,
    /// Dispatches submitted.
    pub dispatches: u64,
    /// Compute passes submitted.
    pub passes: u64,
    /// Levels that have a dispatch, added up over submissions. A command is one level behind the
    /// last command that it depends on, so no order of the commands waits less often.
    pub levels: u64,
    /// Downloads: each waits for the device.
    pub downloads: u64,
    /// Uploads.
    pub uploads: u64,
    /// Bytes of parameters that were copied to a buffer on the device, 256 a dispatch; 0 where all
    /// kernels take them as immediate data ([`Capabilities`](super::Capabilities)).
    pub parameter_bytes: u64,
    /// Bytes of clears and copies that were recorded as commands of the queue; on GPUs, kernels
    /// serve for 64 KiB and more.
    pub moved_by_commands: u64,
    /// Seconds in compute passes by the device's own clock; zero unless [`Recorder::measure`] is
    /// on.
    pub seconds: f64,
}

/// Records dispatches and copies and submits them together.
///
/// - Each rank has one; it is not shared between threads.
/// - `dispatch`, `copy` and `clear` only note what is to be done: nothing is submitted before
///   [`submit`](Self::submit), [`upload`](Self::upload), [`download`](Self::download) or 256
///   dispatches.
/// - Each command reads what the commands recorded before it have written. On GPUs, dispatches that
///   do not depend on each other may run at the same time, even if others were recorded between
///   them. A dispatch depends on every earlier command that wrote one of its buffers, or that used
///   a buffer which it writes; parts of one array share its buffers.
/// - `download` and [`wait`](Self::wait) wait for the device, nothing else does.
pub struct Recorder {
    pub(super) gpu: Gpu,
    pub(super) commands: Vec<Command>,
    pub(super) params: Vec<u8>,
    uniforms: wgpu::Buffer,
    /// Commands that a caller has encoded but not submitted yet.
    encoded: Vec<Command>,
    /// Bytes of parameters that belong to it.
    encoded_params: usize,
    pub(super) staging: Arc<StagingPool>,
    pub(super) last: Option<wgpu::SubmissionIndex>,
    timer: Option<Timer>,
    pub(super) counts: RecorderCounts,
    /// Error of a command that had no way to return it.
    refused: Option<DeviceError>,
    /// Whether [`submit_part`](Self::submit_part) has submitted work to which more belongs.
    in_parts: bool,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (recorded, counts) = (self.commands.len(), &self.counts);
        f.debug_struct("Recorder").field("gpu", &self.gpu).field("recorded", &recorded).field("counts", counts).finish()
    }
}

/// Dispatches that one submission can hold: the uniform buffer has room for as many.
const MOST: usize = 256;

impl Recorder {
    /// Creates a recorder for `gpu`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn new(gpu: &Gpu) -> Result<Self, DeviceError> {
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let uniforms = gpu.0.pool.allocate(&gpu.0.open, "meshloom::params", MOST as u64 * PARAMS, usage)?;
        Ok(Recorder {
            gpu: gpu.clone(),
            commands: Vec::new(),
            params: Vec::new(),
            uniforms,
            encoded: Vec::new(),
            encoded_params: 0,
            staging: Arc::new(StagingPool { gpu: gpu.clone(), free: Mutex::default() }),
            last: None,
            timer: None,
            counts: RecorderCounts::default(),
            refused: None,
            in_parts: false,
        })
    }

    /// Returns the device it records for.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Returns what it has done so far.
    #[must_use]
    pub fn counts(&self) -> RecorderCounts {
        self.counts
    }

    /// Turns the timing of kernels on or off, where the device has timestamps; each kernel then
    /// gets a compute pass of its own. Each measured submission is waited for, so use this for
    /// analysis only. Turning it on again clears [`kernel_times`](Self::kernel_times).
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn measure(&mut self, on: bool) -> Result<(), DeviceError> {
        self.submit()?;
        self.timer = if on { Timer::new(&self.gpu, MOST as u32, true)? } else { None };
        Ok(())
    }

    /// Returns what each kernel took that was submitted since [`measure`](Self::measure) was
    /// switched on, the longest first; nothing where it is off or the device has no timestamps.
    pub fn kernel_times(&self) -> Vec<KernelTime> {
        self.timer.as_ref().map(Timer::kernels).unwrap_or_default()
    }

    /// Records `kernel` over `workgroups` workgroups with `arrays` in the order of its slots.
    /// Compiles the kernel if it is new. Zero workgroups record nothing. An array may stand in
    /// several slots if all of them only read.
    ///
    /// # Errors
    /// [`DeviceError::Shader`], [`DeviceError::TooManyWindows`]; [`DeviceError::Misuse`] for
    /// arrays, parameters or a number of workgroups that do not fit the kernel, and arrays of
    /// another device. Nothing is recorded then, and all goes on working.
    pub fn dispatch<P: KernelParams>(
        &mut self,
        kernel: &Kernel,
        arrays: &[&RawArray],
        params: &P,
        workgroups: u64,
    ) -> Result<(), DeviceError> {
        kernel.takes::<P>()?;
        self.dispatch_bytes(kernel, arrays, bytemuck::bytes_of(params), workgroups)
    }

    /// Same as [`dispatch`](Self::dispatch), with parameters as bytes.
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
        let given = bytes.len() as u64;
        let label = kernel.source().label();
        DeviceError::ensure(given <= PARAMS, label, || format!("{given} bytes of parameters, {PARAMS} are allowed"))?;
        let pipeline = kernel.pipeline(&self.gpu, arrays)?;
        if let Some(extent) = pipeline.params.as_ref().filter(|extent| !extent.contains(&given)) {
            let why = format!("{given} bytes of parameters are given, those of its text take {}", extent.end());
            return Err(kernel.misuse(why));
        }
        let most = self.gpu.capabilities().workgroups;
        self.takes_copies(label, arrays, given)?;
        let groups = folded(workgroups, most).ok_or_else(|| {
            kernel.misuse(format!("{workgroups} workgroups, {} are allowed", u64::from(most) * u64::from(most)))
        })?;
        if self.params.len() as u64 >= MOST as u64 * PARAMS {
            let in_parts = self.in_parts;
            self.submit()?;
            self.in_parts = in_parts;
        }
        let offset = self.params.len();
        if pipeline.stacked {
            let strides = arrays.iter().map(|array| array.copies.stride as u32);
            self.params.extend(strides.flat_map(u32::to_ne_bytes));
            self.params.resize(offset + stride_bytes(arrays.len()) as usize, 0);
        }
        self.params.extend_from_slice(bytes);
        self.params.resize(offset + PARAMS as usize, 0);
        self.commands.push(Command::Dispatch {
            pipeline,
            arrays: arrays.iter().map(|&array| array.clone()).collect(),
            params: offset as u32,
            groups: [groups[0], groups[1], open_copies()],
        });
        Ok(())
    }

    /// Refuses to run over copies with parameters that leave no room for the strides; where an
    /// observer sees each binding by itself, also parts of one array, whose copies are interleaved.
    fn takes_copies(&self, label: &str, arrays: &[&RawArray], params: u64) -> Result<(), DeviceError> {
        if open_copies() == 1 {
            return Ok(());
        }
        if params + stride_bytes(arrays.len()) > PARAMS {
            return Err(refusal(label, "its parameters leave no room for strides"));
        }
        let is_shared =
            |(n, array): (usize, &&RawArray)| array.copies() > 1 && arrays[..n].iter().any(|other| array.shares(other));
        match self.gpu.0.pipelines.observer {
            Some(_) if arrays.iter().enumerate().any(is_shared) => Err(refusal(label, "its arrays are interleaved")),
            _ => Ok(()),
        }
    }

    /// Records an elementwise `kernel` over `count` elements: [`dispatch`](Self::dispatch) with as
    /// many workgroups of the device's tuned shape as cover them.
    ///
    /// # Errors
    /// Same as [`dispatch`](Self::dispatch); [`DeviceError::TooLong`] for more than
    /// [`LONGEST`](crate::gpu::LONGEST) elements.
    pub fn each<P: KernelParams>(
        &mut self,
        kernel: &Kernel,
        arrays: &[&RawArray],
        params: &P,
        count: u64,
    ) -> Result<(), DeviceError> {
        kernel.takes::<P>()?;
        self.each_bytes(kernel, arrays, bytemuck::bytes_of(params), count)
    }

    /// Same as [`each`](Self::each), with parameters as bytes.
    pub(crate) fn each_bytes(
        &mut self,
        kernel: &Kernel,
        arrays: &[&RawArray],
        bytes: &[u8],
        count: u64,
    ) -> Result<(), DeviceError> {
        allowed_len(kernel.source().label(), count)?;
        let shape = self.gpu.workgroup_shape();
        let group = u64::from(kernel.source().fixed_group().unwrap_or(shape.group)).max(1);
        self.dispatch_bytes(kernel, arrays, bytes, count.div_ceil(group * u64::from(shape.items)))
    }

    /// Records a copy of `len` elements from one array to another. Within one array, where the
    /// ranges may overlap, they pass through memory of their own.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when a range does not lie in its array or an array is of another
    /// device, and [`DeviceError::OutOfMemory`].
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
        if from.raw().shares(to.raw()) {
            // No buffer is copied to itself.
            let between = self.gpu.array::<T>("meshloom::copy", len)?;
            self.copy_between([from.raw(), between.raw()], [from_start, 0], len)?;
            return self.copy_between([between.raw(), to.raw()], [0, to_start], len);
        }
        self.copy_between([from.raw(), to.raw()], [from_start, to_start], len)
    }

    /// Records a copy between different arrays.
    fn copy_between(&mut self, arrays: [&RawArray; 2], starts: [u64; 2], len: u64) -> Result<(), DeviceError> {
        let [from, to] = arrays.map(RawArray::copies);
        if to != open_copies() || (from > 1 && from != to) {
            let why =
                format!("copies of the source: {from}, of the destination: {to}, of the open stack: {}", open_copies());
            return Err(refusal("copy", &why));
        }
        if !self.copies_by_kernel(arrays, starts, len)? {
            self.counts.moved_by_commands += u64::from(to) * len * arrays[0].element_bytes();
            let entries = (0..to).map(|n| [arrays[0].entry(n.min(from - 1)), arrays[1].entry(n)]);
            self.commands.extend(entries.map(|ends| Command::Copy { ends, starts, len }));
        }
        Ok(())
    }

    /// Records setting all of `array` to zero. An array of another device, or one that may only be
    /// read, is left alone, and the next submission says so ([`DeviceError::Misuse`]).
    pub fn clear<T: DeviceElement>(&mut self, array: &Array<T>) {
        let array = array.raw();
        let is_open = || {
            if array.copies() == open_copies() { Ok(()) } else { Err(refusal("clear", "its stack is not open")) }
        };
        let allowed = array.on(&self.gpu, "clear").and_then(|()| array.written("clear")).and_then(|()| is_open());
        match allowed.and_then(|()| self.clears_by_kernel(array)) {
            Ok(true) => {}
            Ok(false) => {
                self.counts.moved_by_commands += u64::from(array.copies()) * array.bytes();
                self.commands.extend((0..array.copies()).map(|n| Command::Clear { array: array.entry(n) }));
            }
            Err(error) => _ = self.refused.get_or_insert(error),
        }
    }

    /// Hands everything recorded to the device; does not wait.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] when the device failed earlier; [`DeviceError::Misuse`] when an array
    /// is on its way between ranks, or work in a caller's encoder has not been submitted
    /// ([`encode_into`](Self::encode_into)): what was recorded waits then for the next submission.
    pub fn submit(&mut self) -> Result<(), DeviceError> {
        self.submit_with(&[])
    }

    /// Same as [`submit`](Self::submit), with copies behind everything recorded, in the same
    /// submission.
    pub(super) fn submit_with(&mut self, copies: &[BufferCopy<'_>]) -> Result<(), DeviceError> {
        self.ready()?;
        let why = "work is in a caller's encoder, before which nothing can be submitted; submit it and call \
                   Recorder::submitted, or drop it and call Recorder::discarded";
        DeviceError::ensure(self.encoded.is_empty(), "Recorder", || why.into())?;
        self.in_parts = false;
        if self.commands.is_empty() && copies.is_empty() {
            return self.gpu.check();
        }
        self.counts.submits += u64::from(!self.commands.is_empty());
        let handed = match self.gpu.0.pipelines.observer {
            None => self.hand_over(copies),
            Some(_) => self.hand_over_observed().and_then(|()| self.hand_over(copies)),
        };
        self.params.clear();
        handed.and_then(|()| self.gpu.check())
    }

    /// Submits all commands, and `copies` behind them.
    pub(super) fn hand_over(&mut self, copies: &[BufferCopy<'_>]) -> Result<(), DeviceError> {
        let gpu = self.gpu.clone();
        if self.timer.is_none() && timeline::is_enabled() {
            self.timer = Timer::new(&gpu, MOST as u32, false)?;
        }
        let _activity = timeline::activity!("submit", commands = self.commands.len(), copies = copies.len());
        let begin = Instant::now();
        let descriptor = wgpu::CommandEncoderDescriptor { label: Some("meshloom") };
        let schedule = match self.timer {
            Some(_) => Schedule::one_by_one(&self.commands),
            None => Schedule::by_levels(&self.commands, least_of_pass(&gpu)),
        };
        let (levels, staged) = (schedule.levels, self.staged_params().len());
        let (submission, passes) = gpu.0.open.guarded(|| {
            let mut encoder = gpu.device().create_command_encoder(&descriptor);
            let passes = self.encode(&mut encoder, &schedule, self.timer.as_ref());
            if let Some(timer) = self.timer.as_ref().filter(|_| passes > 0) {
                timer.resolve(&mut encoder, passes);
            }
            copies.iter().for_each(|copy| copy.encode(&mut encoder));
            (gpu.queue().submit([encoder.finish()]), passes)
        });
        self.counts.dispatches += self.commands.iter().filter(|command| command.is_dispatch()).count() as u64;
        self.counts.passes += u64::from(passes);
        self.counts.parameter_bytes += staged as u64;
        self.counts.levels += levels;
        // The commands hold the arrays they use until here: only now may their memory be used for
        // other arrays.
        let timed: Vec<String> = match self.timer {
            Some(_) => self.commands.iter().filter(|c| c.is_dispatch()).map(|c| c.name().to_string()).collect(),
            None => Vec::new(),
        };
        self.commands.clear();
        self.last = Some(submission.clone());
        if let Some(timer) = self.timer.as_mut().filter(|_| passes > 0) {
            self.counts.seconds += timer.submitted(timed, begin, &submission)?;
        }
        Ok(())
    }

    /// [`submit`](Self::submit) before a wait for other ranks, so that the device works meanwhile;
    /// leaves all as it is where that would be refused, because an array is on its way between
    /// ranks or work is in a caller's encoder.
    pub(crate) fn submit_meanwhile(&mut self) -> Result<(), DeviceError> {
        let free = self.encoded.is_empty() && self.commands.iter().all(|command| command.at_rest().is_ok());
        if free { self.submit() } else { self.gpu.check() }
    }

    /// Submits the first part of long work, so that the device begins before the host has recorded
    /// the rest, or leaves all as it is like [`submit_meanwhile`](Self::submit_meanwhile). The rest
    /// cannot be [encoded](Self::encode_into) for a caller.
    pub(crate) fn submit_part(&mut self) -> Result<(), DeviceError> {
        if !self.encoded.is_empty() {
            return self.gpu.check();
        }
        self.submit_meanwhile()?;
        self.in_parts = true;
        Ok(())
    }

    /// Puts everything recorded into `encoder` instead of submitting it, for the caller to submit
    /// among passes and copies of their own. The encoder must be one of the same device.
    ///
    /// - Tell the recorder what became of the encoder: [`submitted`](Self::submitted) or
    ///   [`discarded`](Self::discarded). Until then more can be recorded and put into the same
    ///   encoder or one that is submitted after it, but calls that submit (`submit`, `upload`,
    ///   `download`, `wait`, exchanges) are refused: their work would come before the encoder's.
    /// - Parameters other than immediate data lie in one buffer, of which a submission has a part
    ///   for each dispatch: up to 256 can be recorded before the encoder must be submitted.
    /// - The recorder keeps the arrays of the work until it hears of the encoder. Until it has been
    ///   submitted, neither their [`bindings`](Array::bindings) may be mapped nor may they be given
    ///   to an exchange.
    /// - [`counts`](Self::counts) and [`measure`](Self::measure) leave this work out.
    ///
    /// # Errors
    /// - Same as [`submit`](Self::submit); the encoder is as it was then.
    /// - [`DeviceError::Misuse`] if a transform in layers (`fft::TransformTuning::cache_bytes`) has
    ///   submitted its first layers: they would run before the passes of the caller.
    pub fn encode_into(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), DeviceError> {
        self.ready()?;
        let why = "a transform in layers has submitted its first layers, which the encoder cannot hold; give \
                   transforms for an encoder a tuning with cache_bytes: 0, or call Recorder::submit";
        DeviceError::ensure(!self.in_parts, "Recorder::encode_into", || why.into())?;
        let gpu = self.gpu.clone();
        let schedule = Schedule::by_levels(&self.commands, least_of_pass(&gpu));
        gpu.0.open.guarded(|| self.encode(encoder, &schedule, None));
        self.encoded.append(&mut self.commands);
        self.encoded_params = self.params.len();
        self.gpu.check()
    }

    /// Notes that the caller has submitted everything from [`encode_into`](Self::encode_into), the
    /// last of it as `submission`. [`wait`](Self::wait) and downloads wait for it.
    pub fn submitted(&mut self, submission: wgpu::SubmissionIndex) {
        self.last = Some(submission);
        self.discarded();
    }

    /// Notes that the caller has dropped everything from [`encode_into`](Self::encode_into): it
    /// will never run.
    pub fn discarded(&mut self) {
        self.encoded.clear();
        self.encoded_params = 0;
        // Commands recorded since have their parameters behind the encoder's, and keep them
        // there.
        if self.commands.is_empty() {
            self.params.clear();
        }
    }

    /// Refuses to go on after errors, and with arrays that are on their way between ranks.
    fn ready(&mut self) -> Result<(), DeviceError> {
        self.gpu.check()?;
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        self.commands.iter().try_for_each(Command::at_rest)
    }

    /// Returns the parameters of the commands that lie in the buffer, if a kernel reads any there.
    fn staged_params(&self) -> &[u8] {
        let is_staged = self.commands.iter().any(Command::stages_params);
        if is_staged { &self.params[self.encoded_params..] } else { &[] }
    }

    /// Encodes all commands, with their parameters in place for the next submission to the queue;
    /// returns the number of passes.
    fn encode(&self, encoder: &mut wgpu::CommandEncoder, schedule: &Schedule<'_>, timer: Option<&Timer>) -> u32 {
        let staged = self.staged_params();
        if !staged.is_empty() {
            self.gpu.queue().write_buffer(&self.uniforms, self.encoded_params as u64, staged);
        }
        let encoding = Encoding { gpu: &self.gpu, params: &self.params, buffer: &self.uniforms, timer };
        encoding.encode(encoder, &schedule.steps)
    }

    /// Submits and waits until everything submitted is done.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn wait(&mut self) -> Result<(), DeviceError> {
        self.submit()?;
        self.gpu.0.open.poll(wgpu::PollType::Wait { submission_index: self.last.clone(), timeout: None })
    }

    /// Returns the last submission, if there was one, to [wait for](Self::wait_for) while later
    /// ones go on.
    #[must_use]
    pub fn last_submission(&self) -> Option<wgpu::SubmissionIndex> {
        self.last.clone()
    }

    /// Waits until a submission of [`last_submission`](Self::last_submission) and all before it are
    /// done; submits nothing.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn wait_for(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), DeviceError> {
        match submission {
            None => Ok(()),
            submission_index => self.gpu.0.open.poll(wgpu::PollType::Wait { submission_index, timeout: None }),
        }
    }

    /// Lets callbacks of finished work run; does not wait.
    pub(crate) fn poll(&self) -> Result<(), DeviceError> {
        self.gpu.0.open.poll(wgpu::PollType::Poll)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.commands.is_empty() && !std::thread::panicking() {
            let count = self.commands.len();
            tracing::warn!(
                "a recorder was dropped with {count} commands that were never submitted; call `submit` first"
            );
        }
        // A caller may still submit what was encoded.
        self.encoded.iter().flat_map(Command::arrays).for_each(RawArray::share);
        self.gpu.0.pool.forget(&self.uniforms);
    }
}
