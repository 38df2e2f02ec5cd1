//! Times of kernels by the clock of the device.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::staging::{Map, read_mapped};
use super::{DeviceError, Gpu};
use crate::timeline;

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

/// Submissions whose timestamps may be on their way at a time.
const IN_FLIGHT: usize = 32;

/// Timestamps at the beginning and end of compute passes.
pub(super) struct Timer {
    gpu: Gpu,
    /// Passes that one submission can time.
    most: u32,
    /// Whether each submission blocks until its times are added to those of the kernels.
    pub measures: bool,
    /// Receives the timestamps of the next submission.
    next: Slot,
    free: Vec<Slot>,
    in_flight: VecDeque<InFlight>,
    /// Dispatches and seconds of each kernel.
    kernels: BTreeMap<String, (u64, f64)>,
    clock: DeviceClock,
}

/// The queries of one submission, and the buffers through which the host reads them.
struct Slot {
    gpu: Gpu,
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
}

/// A submission whose timestamps have not been read. The mapping is dropped before its buffer.
struct InFlight {
    map: Map,
    slot: Slot,
    /// One dispatch in each pass.
    kernels: Vec<String>,
    begin: Instant,
}

/// Returns the bytes of the timestamps of `passes` passes.
fn bytes(passes: u32) -> u64 {
    16 * u64::from(passes)
}

impl Slot {
    fn new(gpu: &Gpu, most: u32) -> Result<Self, DeviceError> {
        let (label, ty) = (Some("meshloom::timer"), wgpu::QueryType::Timestamp);
        let descriptor = wgpu::QuerySetDescriptor { label, ty, count: 2 * most };
        let queries = gpu.0.open.guarded(|| gpu.device().create_query_set(&descriptor));
        let buffer = |usage| gpu.0.pool.allocate(&gpu.0.open, "meshloom::timer", bytes(most), usage);
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC)?;
        let read = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?;
        Ok(Slot { gpu: gpu.clone(), queries, resolved, read })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        [&self.resolved, &self.read].into_iter().for_each(|buffer| self.gpu.0.pool.forget(buffer));
    }
}

impl Timer {
    /// Creates a timer of up to `most` passes a submission; `None` if the device has no timestamps.
    pub fn new(gpu: &Gpu, most: u32, measures: bool) -> Result<Option<Self>, DeviceError> {
        if !gpu.capabilities().timestamps {
            return Ok(None);
        }
        let clock = DeviceClock { tick: f64::from(gpu.queue().get_timestamp_period()), origin: None };
        let (gpu, next) = (gpu.clone(), Slot::new(gpu, most)?);
        let (free, in_flight, kernels) = Default::default();
        Ok(Some(Timer { gpu, most, measures, next, free, in_flight, kernels, clock }))
    }

    /// Returns what pass number `pass` of a submission writes.
    pub fn writes(&self, pass: u32) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        (pass < self.most).then(|| wgpu::ComputePassTimestampWrites {
            query_set: &self.next.queries,
            beginning_of_pass_write_index: Some(2 * pass),
            end_of_pass_write_index: Some(2 * pass + 1),
        })
    }

    /// Makes the timestamps of `passes` passes readable when the submission is done.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder, passes: u32) {
        let (Slot { queries, resolved, read, .. }, passes) = (&self.next, passes.min(self.most));
        encoder.resolve_query_set(queries, 0..2 * passes, resolved, 0);
        encoder.copy_buffer_to_buffer(resolved, 0, read, 0, bytes(passes));
    }

    /// Takes a submission, made since `begin`, whose passes are one dispatch each of `kernels`.
    /// Waits for it if the timer measures, and returns the seconds of its passes.
    pub fn submitted(
        &mut self,
        kernels: Vec<String>,
        begin: Instant,
        submission: &wgpu::SubmissionIndex,
    ) -> Result<f64, DeviceError> {
        let bytes = bytes((kernels.len() as u32).min(self.most));
        let next = self.free.pop().map_or_else(|| Slot::new(&self.gpu, self.most), Ok)?;
        let slot = std::mem::replace(&mut self.next, next);
        let map = Map::begin(&self.gpu, &slot.read, wgpu::MapMode::Read, bytes);
        self.in_flight.push_back(InFlight { map, slot, kernels, begin });
        if self.measures {
            self.in_flight.iter().try_for_each(|last| last.map.wait(Some(submission)))?;
        }
        let mut seconds = 0.0;
        while let Some(first) = self.in_flight.front() {
            if !first.map.is_ready()? {
                if self.in_flight.len() <= IN_FLIGHT {
                    break;
                }
                first.map.wait(None)?;
            }
            seconds += self.read_first()?;
        }
        Ok(seconds)
    }

    /// Reads the timestamps of the first submission in flight, which must be there; returns the
    /// seconds of its passes if the timer measures.
    fn read_first(&mut self) -> Result<f64, DeviceError> {
        let Some(InFlight { map, slot, kernels, begin }) = self.in_flight.pop_front() else { return Ok(0.0) };
        let mut passes = Vec::new();
        read_mapped(&slot.read, bytes((kernels.len() as u32).min(self.most)), |view| {
            passes.extend(view.chunks_exact(16).map(bytemuck::pod_read_unaligned::<[u64; 2]>));
        })?;
        drop(map);
        self.free.push(slot);
        if timeline::is_enabled()
            && let (Some(first), Some(last)) = (passes.first(), passes.last())
        {
            self.clock.calibrate([begin, Instant::now()], [first[0], last[1]]);
            for (kernel, &[begin, end]) in kernels.iter().zip(&passes) {
                timeline::pass(kernel, [begin, end.max(begin)].map(|ticks| self.clock.host(ticks)));
            }
        }
        if !self.measures {
            return Ok(0.0);
        }
        let mut all = 0.0;
        for (kernel, [begin, end]) in kernels.into_iter().zip(passes) {
            let seconds = self.clock.duration(begin, end).as_secs_f64();
            let (dispatches, sum) = self.kernels.entry(kernel).or_default();
            (*dispatches, *sum) = (*dispatches + 1, *sum + seconds);
            all += seconds;
        }
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
        // The timeline has the last passes, too. A lost device loses them.
        while !std::thread::panicking()
            && let Some(first) = self.in_flight.front()
            && first.map.wait(None).is_ok()
            && self.read_first().is_ok()
        {}
    }
}

/// Relation of the clock of a device to that of the host.
struct DeviceClock {
    /// Nanoseconds of a tick.
    tick: f64,
    /// An instant of the host and the ticks of the device at that time.
    origin: Option<(Instant, u64)>,
}

impl DeviceClock {
    /// Learns that the device worked within the interval `host`, from tick `device[0]` to
    /// `device[1]`. Both clocks may drift: the relation moves only where it contradicts this.
    fn calibrate(&mut self, host: [Instant; 2], device: [u64; 2]) {
        // A device begins soon after a submission, while the host may read the end much later.
        if self.origin.is_none() || self.host(device[0]) < host[0] {
            self.origin = Some((host[0], device[0]));
        }
        let late = self.host(device[1]).saturating_duration_since(host[1]);
        if let Some((instant, _)) = &mut self.origin {
            *instant = instant.checked_sub(late).unwrap_or(*instant);
        }
    }

    /// Returns the instant of a tick.
    fn host(&self, ticks: u64) -> Instant {
        let Some((instant, origin)) = self.origin else { return Instant::now() };
        match ticks.checked_sub(origin) {
            Some(_) => instant + self.duration(origin, ticks),
            None => instant.checked_sub(self.duration(ticks, origin)).unwrap_or(instant),
        }
    }

    /// Returns the time between two ticks; zero if they are in the wrong order.
    fn duration(&self, begin: u64, end: u64) -> Duration {
        Duration::from_secs_f64(end.saturating_sub(begin) as f64 * self.tick * 1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_time_lies_within_each_submission() {
        let zero = Instant::now() + Duration::from_secs(100);
        let at = |micros: u64| zero + Duration::from_micros(micros);
        // Ticks of half a microsecond.
        let mut clock = DeviceClock { tick: 500.0, origin: None };
        clock.calibrate([at(10), at(50)], [1026, 1040]);
        assert_eq!([clock.host(1026), clock.host(1040), clock.host(1006)], [at(10), at(17), at(0)]);
        // A submission that began at once, 1 us before the host's time by this relation.
        clock.calibrate([at(60), at(80)], [1124, 1130]);
        assert_eq!([clock.host(1124), clock.host(1130)], [at(60), at(63)]);
        // The host's clock has drifted: the work ended before tick 1230 by this relation.
        clock.calibrate([at(100), at(110)], [1210, 1230]);
        assert_eq!([clock.host(1210), clock.host(1230)], [at(100), at(110)]);
        // Nothing contradicts the relation.
        clock.calibrate([at(190), at(290)], [1400, 1410]);
        assert_eq!(clock.host(1410), at(200));
        assert_eq!(clock.duration(7, 5), Duration::ZERO);
    }
}
