//! Copy speed of device memory: an upper bound for any kernel that reads and writes.

use meshloom::gpu::{Array, Kernel, KernelSource, Profile};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use super::input::values;
use super::measure::Spread;
use super::report::rate;
use super::session::Session;

/// Returns the bytes that are copied on a device with enough memory: far more than its caches hold,
/// and enough that a submission costs little beside them.
fn most_bytes(profile: Profile) -> u64 {
    match profile {
        Profile::Gpu => 1 << 30,
        Profile::Software => 64 << 20,
    }
}

/// Bytes of an element: a complex number.
const ELEMENT_BYTES: u64 = 8;

/// The speed of copies on all ranks at the same time.
pub struct CopySpeed {
    /// Bytes read and written, of all ranks.
    bytes: u64,
    /// By a kernel.
    kernel: Spread,
    /// By the driver, which on software renderers is far quicker than any kernel.
    driver: Spread,
}

impl CopySpeed {
    /// Bytes per second of the quicker way, reading and writing, of all devices together.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.kernel.median.min(self.driver.median)
    }

    /// Bytes per second by a kernel.
    pub fn by_kernel(&self) -> f64 {
        self.bytes as f64 / self.kernel.median
    }

    pub fn json(&self) -> Value {
        json!({
            "bytes": self.bytes,
            "bytes_per_second": self.bytes_per_second(),
            "kernel": self.kernel,
            "driver": self.driver,
        })
    }
}

meshloom::kernel_params! { struct CopyParams { count: u32 } }

fn kernel() -> Kernel {
    let source = KernelSource::new("bench::copy", include_str!("copy.wgsl")).params::<CopyParams>();
    // SAFETY: both arrays have `count` elements at least, and the loop ends.
    unsafe { Kernel::new_unchecked(source) }
}

/// Elements of the arrays that one rank copies.
fn elements(rank: &Rank) -> u64 {
    let capabilities = rank.gpu.capabilities();
    // Ranks that share a device share the amount, which is an eighth of the memory at most.
    let most = most_bytes(rank.gpu.common().profile);
    let bytes = most.min(capabilities.memory.map_or(most, |bytes| bytes / 8)) / rank.sharing.max(1) as u64;
    // An array of one window needs no address arithmetic.
    let bytes = bytes.min(capabilities.window_bytes);
    1 << (bytes / ELEMENT_BYTES).max(1).ilog2()
}

/// Returns an array of random numbers, made once and copied on the device until the array is full:
/// some devices compress equal values.
pub fn filled(rank: &mut Rank, count: u64) -> Result<Array<[f32; 2]>, Error> {
    let array = rank.gpu.array("bench::from", count)?;
    let first = count.min(1 << 20);
    let content = values(2 * first, rank.comm.rank());
    rank.recorder.upload(&array, 0, bytemuck::cast_slice(&content))?;
    let mut full = first;
    while full < count {
        let more = full.min(count - full);
        rank.recorder.copy(&array, 0, &array, full, more)?;
        full += more;
    }
    Ok(array)
}

/// Number of measurements.
pub const MEASUREMENTS: usize = 2;

/// Measures it and adds it to the report. Collective.
pub fn measure(session: &mut Session) -> Result<CopySpeed, Error> {
    let Session { rank, clock, .. } = session;
    let (kernel, count) = (kernel(), elements(rank));
    let from = filled(rank, count)?;
    let to: Array<[f32; 2]> = rank.gpu.array("bench::to", count)?;
    let recorder = &mut rank.recorder;
    let by_kernel = clock.together(recorder, |recorder| {
        Ok(recorder.each(&kernel, &[from.raw(), to.raw()], &CopyParams { count: count as u32 }, count)?)
    })?;
    let by_driver = clock.together(recorder, |recorder| Ok(recorder.copy(&from, 0, &to, 0, count)?))?;
    let [bytes] = clock.sum([2 * count * ELEMENT_BYTES])?;
    let speed = CopySpeed { bytes, kernel: by_kernel, driver: by_driver };
    let [best, kernel] = [speed.bytes_per_second(), speed.by_kernel()].map(rate);
    session.report.note(format!("copies in device memory, reading and writing: {best} (by a kernel: {kernel})"));
    session.report.field("copy", speed.json());
    Ok(speed)
}
