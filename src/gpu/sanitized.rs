//! Submissions that go through the sanitizer.

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
        for command in std::mem::take(&mut self.commands) {
            if let Command::Dispatch { pipeline, arrays, params, groups } = &command {
                let ran = self.sanitize(pipeline, arrays, *params, *groups)?;
                if matches!(self.gpu.0.pipelines.sanitizer, Sanitizer::Run { .. }) {
                    self.take_over(arrays, &ran);
                    self.counts.dispatches += 1;
                    continue;
                }
            }
            self.commands.push(command);
            self.hand_over()?;
        }
        Ok(())
    }

    /// Has the sanitizer run a dispatch; gives what the buffers hold then, by binding.
    fn sanitize(
        &mut self,
        pipeline: &Pipeline,
        arrays: &[RawArray],
        params: u32,
        groups: [u32; 2],
    ) -> Result<Vec<Memory>, DeviceError> {
        let Some(program) = &pipeline.program else { return Ok(Vec::new()) };
        let (params, kernel) = (params as usize, pipeline.label.clone());
        let mut buffers = vec![Memory::of_buffer(self.params[params..params + PARAMS as usize].into())];
        for binding in arrays.iter().flat_map(RawArray::bindings) {
            let bytes = binding.size.map_or(0, wgpu::BufferSize::get);
            buffers.push(Memory::of_buffer(self.read_buffer(binding.buffer, binding.offset, bytes)?));
        }
        let subgroup = self.gpu.capabilities().subgroup_most;
        let mut interpreter = Interpreter::new(program, subgroup, groups, buffers);
        interpreter.counts = tracing::enabled!(tracing::Level::DEBUG);
        let checked = self.gpu.0.pipelines.sanitizer == Sanitizer::Check;
        let report = interpreter.run(if checked { STEPS_CHECKED } else { STEPS_RUN });
        if let Some(traffic) = report.traffic {
            tracing::debug!(kernel, ?groups, ?traffic, "the sanitizer ran a dispatch");
        }
        let wrong = |why: String| Err(DeviceError::Sanitizer { kernel: kernel.clone(), why });
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
        }
        Ok(interpreter.buffers)
    }

    /// Writes what the sanitizer has left in the buffers of a dispatch to those of the device.
    fn take_over(&mut self, arrays: &[RawArray], ran: &[Memory]) {
        let gpu = &self.gpu;
        gpu.guarded(|| {
            for (binding, memory) in arrays.iter().flat_map(RawArray::bindings).zip(&ran[1..]) {
                if memory.is_changed() {
                    gpu.queue().write_buffer(binding.buffer, binding.offset, &memory.bytes);
                }
            }
        });
    }
}
