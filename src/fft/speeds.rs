
use std::time::Instant;

use super::error::TransformError;
use crate::comm::{Communicator, Op};
use crate::gpu::{Gpu, Recorder};
use crate::grid::Cost;

/// Speeds of a machine, in bytes per second and seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    /// Speed of device memory, reading and writing together.
    pub memory: f64,
    /// Speed of copies between device and host, each way.
    pub copy: f64,
    /// Speed of the link between ranks, each way, for one rank.
    pub link: f64,
    /// Latency of a message in seconds.
    pub latency: f64,
}

impl Default for Speeds {
    /// Returns the speeds of a data-center GPU (2 TB/s) on PCIe 4 (25 GB/s) with a quarter of a 400 Gb/s
    /// network (12.5 GB/s) and 5 microseconds.
    fn default() -> Self {
        Speeds { memory: 2e12, copy: 25e9, link: 12.5e9, latency: 5e-6 }
    }
}

/// Bytes of a probe: more than caches hold, and still quick.
const PROBE: u64 = 16 << 20;
const RUNS: usize = 4;

impl Speeds {
    /// Returns the seconds of work, without overlap: device memory, and the three stages of its exchanges.
    pub fn seconds(&self, cost: &Cost) -> f64 {
        cost.device_bytes as f64 / self.memory + self.exchange_seconds(cost).iter().sum::<f64>()
    }

    /// Returns the seconds of copying to the host, sending, and copying to the device.
    pub(super) fn exchange_seconds(&self, cost: &Cost) -> [f64; 3] {
        let wire = cost.messages as f64 * self.latency + cost.sent_bytes.max(cost.received_bytes) as f64 / self.link;
        [cost.sent_bytes as f64 / self.copy, wire, cost.received_bytes as f64 / self.copy]
    }

    /// Measures the speeds while all ranks work at the same time: copies inside device memory, copies to and
    /// from the host, messages around a ring. Takes a fraction of a second. Collective; returns the speeds of
    /// the slowest rank. A single rank has no link and gets that of the default.
    ///
    /// # Errors
    /// [`TransformError`] if the device or another rank fails.
    pub fn measure(gpu: &Gpu, comm: &Communicator) -> Result<Self, TransformError> {
        let mut recorder = Recorder::new(gpu)?;
        let words = PROBE / 4;
        let (from, to) = (gpu.array::<f32>("fft::probe", words)?, gpu.array::<f32>("fft::probe", words)?);
        recorder.clear(&from);
        let inside = least(comm, |_| {
            recorder.copy(&from, 0, &to, 0, words)?;
            Ok(recorder.wait()?)
        })?;
        let mut host = Vec::new();
        let out = least(comm, |_| {
            host = recorder.download(&to, 0, words)?;
            Ok(())
        })?;
        let back = least(comm, |_| {
            recorder.upload(&to, 0, &host)?;
            Ok(recorder.wait()?)
        })?;
        let Speeds { mut link, mut latency, .. } = Speeds::default();
        if comm.size() > 1 {
            let ring = |bytes: u64| {
                least(comm, |_| {
                    let (rank, size) = (comm.rank(), comm.size());
                    let sending = comm.send((rank + 1) % size, 0, vec![0u8; bytes as usize])?;
                    comm.receive((rank + size - 1) % size, 0, bytes)?.wait()?;
                    sending.wait()?;
                    Ok(())
                })
            };
            latency = ring(8)?;
            link = PROBE as f64 / (ring(PROBE)? - latency).max(1e-9);
        }
        Ok(Speeds { memory: 2.0 * PROBE as f64 / inside, copy: PROBE as f64 / out.max(back), link, latency })
    }
}

/// Returns the least seconds of some runs, each of which takes as long as its slowest rank.
fn least(
    comm: &Communicator,
    mut work: impl FnMut(usize) -> Result<(), TransformError>,
) -> Result<f64, TransformError> {
    let mut least = f64::INFINITY;
    for run in 0..=RUNS {
        comm.barrier()?;
        let start = Instant::now();
        work(run)?;
        let mut seconds = [start.elapsed().as_secs_f64()];
        comm.all_reduce(&mut seconds, Op::Max)?;
        if run > 0 {
            least = least.min(seconds[0]);
        }
    }
    Ok(least.max(1e-9))
}
