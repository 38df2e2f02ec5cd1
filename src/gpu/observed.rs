//! Submissions whose dispatches an observer sees one by one.

use super::command::Command;
use super::params::PARAMS;
use super::{DeviceError, ObservedDispatch, RawArray, Recorder, Verdict};

impl Recorder {
    /// Submits the commands one by one, and asks the observer before each dispatch what becomes of
    /// it.
    pub(super) fn hand_over_observed(&mut self) -> Result<(), DeviceError> {
        for command in std::mem::take(&mut self.commands) {
            let Command::Dispatch { pipeline, arrays, params, groups } = &command else {
                self.commands.push(command);
                self.hand_over(&[])?;
                continue;
            };
            let (pipeline, arrays, groups, params) = (pipeline.clone(), arrays.clone(), *groups, *params as usize);
            let Some(kernel) = &pipeline.observed else {
                self.commands.push(command);
                self.hand_over(&[])?;
                continue;
            };
            let mut buffers = vec![self.params[params..params + PARAMS as usize].to_vec()];
            buffers.extend(self.contents(&arrays)?);
            let capabilities = self.gpu.capabilities();
            let dispatch = ObservedDispatch {
                kernel: &pipeline.label,
                groups,
                buffers,
                subgroup: capabilities.subgroup_most,
                // llvmpipe, the device whose loops end, makes two operations of an `fma`.
                fuses: capabilities.loop_rounds.is_none(),
            };
            let stopped = |why| DeviceError::Observer { kernel: pipeline.label.clone(), why };
            match kernel.dispatch(dispatch).map_err(stopped)? {
                Verdict::Run => {
                    self.commands.push(command);
                    self.hand_over(&[])?;
                }
                Verdict::Inspect(inspect) => {
                    self.commands.push(command);
                    self.hand_over(&[])?;
                    inspect(&self.contents(&arrays)?).map_err(stopped)?;
                }
                Verdict::Replace(contents) => {
                    for (binding, bytes) in arrays.iter().flat_map(RawArray::bindings).zip(contents) {
                        if let Some(bytes) = bytes {
                            self.gpu.0.open.write(binding.buffer, binding.offset, &bytes);
                        }
                    }
                    self.counts.dispatches += 1;
                }
            }
        }
        Ok(())
    }

    /// Downloads the windows of arrays.
    fn contents(&mut self, arrays: &[RawArray]) -> Result<Vec<Vec<u8>>, DeviceError> {
        let read = |binding: wgpu::BufferBinding<'_>| {
            let bytes = binding.size.map_or(0, wgpu::BufferSize::get);
            let mut contents = Vec::with_capacity(bytes as usize);
            self.read(binding.buffer, binding.offset, bytes, |view| contents.extend_from_slice(view))?;
            Ok(contents)
        };
        arrays.iter().flat_map(RawArray::bindings).map(read).collect()
    }
}
