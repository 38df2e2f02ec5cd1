//! Submissions that go through the sanitizer, before the device, in its place, or beside it.

use super::array::RawArray;
use super::command::Command;
use super::error::DeviceError;
use super::options::Sanitizer;
use super::pipeline::{PARAMS, Pipeline};
use super::recorder::Recorder;
use super::sanitizer::{Interpreter, Memory};

/// Steps of invocations that the sanitizer runs of a dispatch: some seconds, where the device runs all of it afterwards.
const STEPS_CHECKED: u64 = 1 << 28;
/// Those that it runs in the place of the device: some minutes.
const STEPS_RUN: u64 = 1 << 34;

impl Recorder {
    /// Submits the commands one by one, each dispatch after the sanitizer has run it on what its arrays hold then, or in the place of that.
    pub(super) fn hand_over_sanitized(&mut self) -> Result<(), DeviceError> {
        let sanitizer = self.gpu.0.pipelines.sanitizer;
        for command in std::mem::take(&mut self.commands) {
            let Command::Dispatch { pipeline, arrays, params, groups } = &command else {
                self.commands.push(command);
                self.hand_over()?;
                continue;
            };
            let (pipeline, arrays) = (pipeline.clone(), arrays.clone());
            let ran = self.sanitize(&pipeline, &arrays, *params, *groups)?;
            if let Sanitizer::Run { .. } = sanitizer {
                self.take_over(&arrays, ran.as_ref());
                self.counts.dispatches += 1;
                continue;
            }
            self.commands.push(command);
            self.hand_over()?;
            if let (Sanitizer::Compare, Some(ran)) = (sanitizer, ran) {
                self.compare(&pipeline.label, &arrays, &ran)?;
            }
        }
        Ok(())
    }

    /// Has the sanitizer run a dispatch; gives it as it is in the end, or nothing where it did not come to that.
    fn sanitize<'p>(
        &mut self,
        pipeline: &'p Pipeline,
        arrays: &[RawArray],
        params: u32,
        groups: [u32; 2],
    ) -> Result<Option<Interpreter<'p>>, DeviceError> {
        let Some(program) = &pipeline.program else { return Ok(None) };
        let (params, kernel) = (params as usize, pipeline.label.as_str());
        let mut buffers = vec![Memory::of_buffer(self.params[params..params + PARAMS as usize].into())];
        for binding in arrays.iter().flat_map(RawArray::bindings) {
            buffers.push(Memory::of_buffer(self.contents(&binding)?));
        }
        let subgroup = self.gpu.capabilities().subgroup_most;
        let mut interpreter = Interpreter::new(program, subgroup, groups, buffers);
        // llvmpipe, the device whose loops end, makes two operations of an `fma`.
        interpreter.fused = self.gpu.capabilities().loop_rounds.is_none();
        interpreter.counts = tracing::enabled!(tracing::Level::DEBUG);
        let checked = !matches!(self.gpu.0.pipelines.sanitizer, Sanitizer::Run { .. });
        let report = interpreter.run(if checked { STEPS_CHECKED } else { STEPS_RUN });
        if let Some(traffic) = report.traffic {
            tracing::debug!(kernel, ?groups, ?traffic, "the sanitizer ran a dispatch");
        }
        let wrong = |why: String| Err(DeviceError::Sanitizer { kernel: kernel.into(), why });
        if !report.findings.is_empty() {
            return wrong(report.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        }
        if let Some(what) = report.unknown {
            return wrong(format!("the sanitizer does not know {what}"));
        }
        if let Some(last) = report.unfinished {
            if !checked {
                return wrong(format!("it takes more than {STEPS_RUN} steps; use a smaller problem"));
            }
            tracing::warn!(kernel, last, ?groups, "the sanitizer ran a dispatch only up to this workgroup");
            return Ok(None);
        }
        Ok(Some(interpreter))
    }

    /// What the device holds at a binding.
    fn contents(&mut self, binding: &wgpu::BufferBinding<'_>) -> Result<Vec<u8>, DeviceError> {
        let bytes = binding.size.map_or(0, wgpu::BufferSize::get);
        self.read_buffer(binding.buffer, binding.offset, bytes)
    }

    /// Compares what the device holds after a dispatch with what the sanitizer has left.
    fn compare(&mut self, kernel: &str, arrays: &[RawArray], ran: &Interpreter<'_>) -> Result<(), DeviceError> {
        for (binding, number) in arrays.iter().flat_map(RawArray::bindings).zip(1..) {
            let contents = self.contents(&binding)?;
            if let Some(difference) = ran.compare(number, &contents) {
                return Err(DeviceError::Sanitizer { kernel: kernel.into(), why: difference.to_string() });
            }
        }
        Ok(())
    }

    /// Writes what the sanitizer has left in the buffers of a dispatch to those of the device.
    fn take_over(&mut self, arrays: &[RawArray], ran: Option<&Interpreter<'_>>) {
        let buffers = ran.iter().flat_map(|ran| &ran.buffers[1..]);
        for (binding, memory) in arrays.iter().flat_map(RawArray::bindings).zip(buffers) {
            if memory.is_changed() {
                self.gpu.write(binding.buffer, binding.offset, &memory.bytes);
            }
        }
    }
}
