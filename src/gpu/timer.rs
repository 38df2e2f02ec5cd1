//! How long compute passes take by the device's own clock.

use super::device::Gpu;
use super::error::DeviceError;
use super::staging::{Map, read_mapped};

/// Passes that one submission can time.
const PASSES: u32 = 64;

/// Timestamps at the beginning and end of compute passes.
pub(super) struct Timer {
    gpu: Gpu,
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
}

/// Bytes of the timestamps of so many passes.
fn bytes(passes: u32) -> u64 {
    16 * u64::from(passes)
}

impl Timer {
    /// A timer, where the device has timestamps.
    pub fn new(gpu: &Gpu) -> Result<Option<Self>, DeviceError> {
        if !gpu.capabilities().timestamps {
            return Ok(None);
        }
        let (label, ty) = (Some("meshloom::timer"), wgpu::QueryType::Timestamp);
        let descriptor = wgpu::QuerySetDescriptor { label, ty, count: 2 * PASSES };
        let queries = gpu.guarded(|| gpu.device().create_query_set(&descriptor));
        let buffer = |usage| gpu.new_buffer("meshloom::timer", bytes(PASSES), usage);
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC)?;
        let read = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?;
        Ok(Some(Timer { gpu: gpu.clone(), queries, resolved, read }))
    }

    /// What pass number `pass` of a submission writes.
    pub fn writes(&self, pass: u32) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        (pass < PASSES).then(|| wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(2 * pass),
            end_of_pass_write_index: Some(2 * pass + 1),
        })
    }

    /// Makes the timestamps of `passes` passes readable when the submission is done.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder, passes: u32) {
        let passes = passes.min(PASSES);
        encoder.resolve_query_set(&self.queries, 0..2 * passes, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.read, 0, bytes(passes));
    }

    /// Waits for the submission and returns the seconds that its passes took.
    pub fn seconds(&self, passes: u32, submission: &wgpu::SubmissionIndex) -> Result<f64, DeviceError> {
        let bytes = bytes(passes.min(PASSES));
        let map = Map::begin(&self.gpu, &self.read, wgpu::MapMode::Read, bytes);
        map.wait(Some(submission))?;
        let mut ticks = 0;
        read_mapped(&self.read, bytes, |view| {
            let times = view.chunks_exact(16).map(bytemuck::pod_read_unaligned::<[u64; 2]>);
            ticks = times.map(|[begin, end]| end.saturating_sub(begin)).sum();
        })?;
        Ok(ticks as f64 * f64::from(self.gpu.queue().get_timestamp_period()) * 1e-9)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        [&self.resolved, &self.read].into_iter().for_each(|buffer| self.gpu.forget(buffer));
    }
}
