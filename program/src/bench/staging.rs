//! `meshloom bench staging`: copies between device memory and the host.

use std::time::Instant;

use clap::Args;
use meshloom::gpu::DeviceError;
use meshloom::{Error, Rank, wgpu};
use serde_json::json;

use super::input::Settings;
use super::measure::{Spread, WARM_UP};
use super::report::{Report, amount, range, rate, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Bytes of a staging buffer; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2097152,8388608,33554432",
        value_parser = clap::value_parser!(u64).range(4096..=1 << 30))]
    bytes: Vec<u64>,
    #[command(flatten)]
    pub settings: Settings,
}

const COLUMNS: [&str; 5] = ["what", "bytes", "median", "least .. greatest", "speed"];

/// Copies of a submission: chunks of an exchange that are on their way together.
const COPIES: usize = 8;

/// A copy of the host or of the device.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// The host writes into a buffer for uploads.
    HostIn,
    /// The host reads a buffer for uploads: slow where it lies in the card's memory.
    HostBack,
    /// The host reads a buffer for downloads.
    HostOut,
    /// The device copies into device memory.
    DeviceIn,
    /// The device copies out of device memory.
    DeviceOut,
    /// The device does both, in turn.
    DeviceBoth,
    /// A copy out of device memory is submitted and waited for, and the host reads it.
    Download,
}

const WAYS: [Way; 7] =
    [Way::HostIn, Way::HostBack, Way::HostOut, Way::DeviceIn, Way::DeviceOut, Way::DeviceBoth, Way::Download];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::HostIn => "the host writes to staging for uploads",
            Way::HostBack => "the host reads staging for uploads",
            Way::HostOut => "the host reads staging for downloads",
            Way::DeviceIn => "the device copies in",
            Way::DeviceOut => "the device copies out",
            Way::DeviceBoth => "the device copies in and out",
            Way::Download => "a copy out, waited for and read",
        }
    }

    /// Returns the copies that are timed together.
    fn copies(self) -> usize {
        match self {
            Way::DeviceIn | Way::DeviceOut => COPIES,
            Way::DeviceBoth => 2 * COPIES,
            _ => 1,
        }
    }
}

/// Buffers of the measurements.
struct Buffers {
    device: wgpu::Device,
    queue: wgpu::Queue,
    bytes: u64,
    up: Vec<wgpu::Buffer>,
    down: Vec<wgpu::Buffer>,
    inside: [wgpu::Buffer; 2],
    host: Vec<u8>,
}

impl Buffers {
    fn new(rank: &Rank, bytes: u64) -> Result<Self, Error> {
        let (device, queue) = (rank.gpu.device().clone(), rank.gpu.queue().clone());
        use wgpu::BufferUsages as Usages;
        let buffer = |usage| {
            let label = Some("bench::staging");
            device.create_buffer(&wgpu::BufferDescriptor { label, size: bytes, usage, mapped_at_creation: false })
        };
        let several = |usage| (0..COPIES).map(|_| buffer(usage)).collect();
        let up = several(Usages::MAP_WRITE | Usages::COPY_SRC);
        let down = several(Usages::MAP_READ | Usages::COPY_DST);
        let inside = [(); 2].map(|()| buffer(Usages::STORAGE | Usages::COPY_SRC | Usages::COPY_DST));
        let host = vec![1; bytes as usize];
        rank.gpu.check()?;
        Ok(Buffers { device, queue, bytes, up, down, inside, host })
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let all = wgpu::PollType::Wait { submission_index: None, timeout: None };
        self.device.poll(all).map(drop).map_err(|error| DeviceError::Lost(error.to_string()))
    }

    /// Submits copies, and waits for them.
    fn copy(&self, way: Way) -> Result<(), DeviceError> {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let [first, second] = &self.inside;
        let copies = if way == Way::Download { 1 } else { COPIES };
        for (up, down) in self.up.iter().zip(&self.down).take(copies) {
            if matches!(way, Way::DeviceIn | Way::DeviceBoth) {
                encoder.copy_buffer_to_buffer(up, 0, first, 0, self.bytes);
            }
            if way != Way::DeviceIn {
                encoder.copy_buffer_to_buffer(second, 0, down, 0, self.bytes);
            }
        }
        self.queue.submit([encoder.finish()]);
        self.wait()
    }

    /// Returns the seconds of one way.
    fn seconds(&mut self, way: Way) -> Result<f64, DeviceError> {
        let uploads = matches!(way, Way::HostIn | Way::HostBack);
        let buffer = if uploads { self.up[0].clone() } else { self.down[0].clone() };
        let start = Instant::now();
        if !matches!(way, Way::HostIn | Way::HostBack | Way::HostOut) {
            self.copy(way)?;
        }
        if matches!(way, Way::DeviceIn | Way::DeviceOut | Way::DeviceBoth) {
            return Ok(start.elapsed().as_secs_f64());
        }
        buffer.map_async(if uploads { wgpu::MapMode::Write } else { wgpu::MapMode::Read }, .., |_| ());
        self.wait()?;
        let lost = |error: wgpu::MapRangeError| DeviceError::Lost(error.to_string());
        let mapped = Instant::now();
        let copied = match way {
            Way::HostIn => {
                buffer.get_mapped_range_mut(..).map_err(lost)?.slice(..).copy_from_slice(&self.host);
                mapped.elapsed()
            }
            Way::HostBack => {
                let mut view = buffer.get_mapped_range_mut(..).map_err(lost)?;
                let place = view.slice(..).as_raw_element_ptr();
                // SAFETY: as many bytes are mapped, drivers let the host read them, and nothing
                // writes to them.
                unsafe { place.as_ptr().copy_to_nonoverlapping(self.host.as_mut_ptr(), self.host.len()) };
                mapped.elapsed()
            }
            _ => {
                self.host.copy_from_slice(&buffer.get_mapped_range(..).map_err(lost)?);
                if way == Way::Download { start.elapsed() } else { mapped.elapsed() }
            }
        };
        buffer.unmap();
        Ok(copied.as_secs_f64())
    }

    /// Returns whether the kernel copies from mapped memory of staging for uploads, as for MPI
    /// libraries; `None` where that is not known.
    fn is_reachable(&self) -> Result<Option<bool>, DeviceError> {
        let buffer = &self.up[0];
        buffer.map_async(wgpu::MapMode::Write, .., |_| ());
        self.wait()?;
        let mut view = buffer.get_mapped_range_mut(..).map_err(|error| DeviceError::Lost(error.to_string()))?;
        let found = is_reachable(view.slice(..).as_raw_element_ptr().as_ptr());
        drop(view);
        buffer.unmap();
        Ok(found)
    }
}

#[cfg(target_os = "linux")]
fn is_reachable(place: *mut u8) -> Option<bool> {
    let mut byte = 0u8;
    let of = |place: *mut u8| libc::iovec { iov_base: place.cast(), iov_len: 1 };
    let (local, remote) = (of(&raw mut byte), of(place));
    // SAFETY: the kernel writes one byte to `byte`, and finds out by itself whether it may read the
    // other.
    match unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) } {
        1 => Some(true),
        _ => (std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)).then_some(false),
    }
}

#[cfg(not(target_os = "linux"))]
fn is_reachable(_: *mut u8) -> Option<bool> {
    None
}

/// Measures all that `arguments` ask for, on all ranks at the same time. Reports those of rank 0.
/// Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let settings = &arguments.settings;
    let measurements = WAYS.len() * arguments.bytes.len();
    let mut session = Session::new("staging", settings, rank, measurements, &COLUMNS);
    let mut reachable = None;
    for &bytes in &arguments.bytes {
        let bytes = bytes.next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        let mut buffers = Buffers::new(session.rank, bytes)?;
        reachable = buffers.is_reachable()?;
        for way in WAYS {
            // All ranks begin together.
            session.sum([0])?;
            let mut seconds = Vec::new();
            for _ in 0..WARM_UP + settings.runs {
                seconds.push(buffers.seconds(way)?);
            }
            session.clock.counted();
            let seconds = Spread::new(seconds.split_off(WARM_UP as usize), way.copies() as u32);
            let speed = bytes as f64 / seconds.median;
            let mut row = vec![way.name().to_string(), amount(bytes), time(seconds.median), range(&seconds)];
            row.push(rate(speed));
            session.report.row(row);
            session.report.result(json!({
                "what": way.name(), "bytes": { "staging": bytes }, "seconds": seconds, "bytes_per_second": speed,
            }));
        }
    }
    session.report.field("uploads_reachable", reachable.into());
    let words = match reachable {
        Some(true) => "yes",
        Some(false) => "no: messages are received elsewhere and copied",
        None => "not known",
    };
    session.report.note(format!("MPI libraries can write to staging for uploads: {words}"));
    Ok(session.finish())
}
