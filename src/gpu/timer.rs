//! Times of kernels by the clock of the device.

use std::collections::BTreeMap;

use super::device::Gpu;
use super::error::DeviceError;
use super::staging::{Map, read_mapped};

/// The dispatches of a kernel that were measured; see
/// [`Recorder::kernel_times`](super::Recorder::kernel_times).
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// Its label.
    pub kernel: String,
    /// Number of dispatches.
    pub dispatches: u64,
    /// Seconds of all of them by the device's own clock.
    pub seconds: f64,
}

/// Timestamps at the beginning and end of compute passes.
pub(super) struct Timer {
    gpu: Gpu,
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
    /// Passes that one submission can time.
    most: u32,
    /// Dispatches and seconds of each kernel.
    kernels: BTreeMap<String, (u64, f64)>,
}

/// Returns the bytes of the timestamps of `passes` passes.
fn bytes(passes: u32) -> u64 {
    16 * u64::from(passes)
}

impl Timer {
    /// A timer of up to `most` passes a submission, where the device has timestamps.
    pub fn new(gpu: &Gpu, most: u32) -> Result<Option<Self>, DeviceError> {
        if !gpu.capabilities().timestamps {
            return Ok(None);
        }
        let (label, ty) = (Some("meshloom::timer"), wgpu::QueryType::Timestamp);
        let descriptor = wgpu::QuerySetDescriptor { label, ty, count: 2 * most };
        let queries = gpu.guarded(|| gpu.device().create_query_set(&descriptor));
        let buffer = |usage| gpu.new_buffer("meshloom::timer", bytes(most), usage);
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC)?;
        let read = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?;
        Ok(Some(Timer { gpu: gpu.clone(), queries, resolved, read, most, kernels: BTreeMap::new() }))
    }

    /// Returns what pass number `pass` of a submission writes.
    pub fn writes(&self, pass: u32) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        (pass < self.most).then(|| wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(2 * pass),
            end_of_pass_write_index: Some(2 * pass + 1),
        })
    }

    /// Makes the timestamps of `passes` passes readable when the submission is done.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder, passes: u32) {
        let passes = passes.min(self.most);
        encoder.resolve_query_set(&self.queries, 0..2 * passes, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.read, 0, bytes(passes));
    }

    /// Waits for the submission, whose passes are one dispatch each of `kernels`, adds what each
    /// took to its kernel's, and returns the seconds of all.
    pub fn seconds(&mut self, kernels: Vec<String>, submission: &wgpu::SubmissionIndex) -> Result<f64, DeviceError> {
        let bytes = bytes((kernels.len() as u32).min(self.most));
        let map = Map::begin(&self.gpu, &self.read, wgpu::MapMode::Read, bytes);
        map.wait(Some(submission))?;
        let (mut all, tick) = (0.0, f64::from(self.gpu.queue().get_timestamp_period()) * 1e-9);
        read_mapped(&self.read, bytes, |view| {
            let times = view.chunks_exact(16).map(bytemuck::pod_read_unaligned::<[u64; 2]>);
            for (kernel, [begin, end]) in kernels.into_iter().zip(times) {
                let seconds = end.saturating_sub(begin) as f64 * tick;
                let (dispatches, sum) = self.kernels.entry(kernel).or_default();
                (*dispatches, *sum) = (*dispatches + 1, *sum + seconds);
                all += seconds;
            }
        })?;
        Ok(all)
    }

    /// Returns what each kernel took, the longest first.
    pub fn kernels(&self) -> Vec<KernelTime> {
        let time =
            |(kernel, &(dispatches, seconds)): (&String, _)| KernelTime { kernel: kernel.clone(), dispatches, seconds };
        let mut times: Vec<_> = self.kernels.iter().map(time).collect();
        times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        times
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        [&self.resolved, &self.read].into_iter().for_each(|buffer| self.gpu.forget(buffer));
    }
}
