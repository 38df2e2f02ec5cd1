//! How fast the devices copy their memory: what any kernel that reads and writes can hope for.

use meshloom::gpu::{Access, Array, Element, Kernel, KernelSource, Recorder};
use meshloom::{Context, Error};
use serde_json::{Value, json};

use super::measure::{Clock, Spread};

/// Bytes that are copied on a device: more than its caches hold, where it has that much to spare.
const BYTES: u64 = 64 << 20;

/// The speed of copies on all ranks at the same time.
pub struct CopySpeed {
    /// Bytes read and written, of all ranks.
    bytes: u64,
    /// By a kernel.
    kernel: Spread,
    /// By the driver: on software renderers far quicker than any kernel.
    driver: Spread,
}

impl CopySpeed {
    /// Bytes a second of the quicker way, reading and writing, of all devices together.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.kernel.median.min(self.driver.median)
    }

    /// Bytes a second by a kernel.
    pub fn by_kernel(&self) -> f64 {
        self.bytes as f64 / self.kernel.median
    }

    pub fn json(&self) -> Value {
        json!({
            "bytes": self.bytes,
            "bytes_per_second": self.bytes_per_second(),
            "kernel": self.kernel.json(),
            "driver": self.driver.json(),
        })
    }
}

fn kernel() -> Kernel {
    let body = r"
        @compute @workgroup_size(GROUP) fn main(
            @builtin(workgroup_id) id: vec3<u32>,
            @builtin(num_workgroups) count: vec3<u32>,
            @builtin(local_invocation_index) lane: u32,
        ) {
            for (var k = 0u; k < ITEMS; k++) {
                let i = (group_number(id, count) * ITEMS + k) * GROUP + lane;
                if i < params.count { store_to(i, load_from(i)); }
            }
        }";
    let source = KernelSource::new("bench::copy", body)
        .fields("count: u32")
        // The widest element that kernels of the library use.
        .array("from", Element::Complex32, Access::Read)
        .array("to", Element::Complex32, Access::ReadWrite);
    // SAFETY: both arrays have `count` elements at least, and the loop ends.
    unsafe { Kernel::new_unchecked(source) }
}

/// Elements of the arrays that one rank copies.
fn elements(rank: &Context) -> u64 {
    let capabilities = rank.gpu.capabilities();
    // Ranks that share a device share the amount; an eighth of the memory is never too much.
    let memory = capabilities.memory.map_or(BYTES, |bytes| bytes / 8);
    let bytes = BYTES.min(memory) / rank.sharing.max(1) as u64;
    // One window: more of them cost address arithmetic.
    let bytes = bytes.min(capabilities.window_bytes);
    1 << (bytes / Element::Complex32.bytes()).max(1).ilog2()
}

/// Measurements that it takes.
pub const MEASUREMENTS: usize = 2;

/// Measures it. All ranks call it.
pub fn measure(rank: &Context, clock: &Clock, recorder: &mut Recorder) -> Result<CopySpeed, Error> {
    let (kernel, count) = (kernel(), elements(rank));
    let from: Array<[f32; 2]> = rank.gpu.array("bench::from", count)?;
    let to: Array<[f32; 2]> = rank.gpu.array("bench::to", count)?;
    let values = super::values(2 * count, rank.comm.rank());
    recorder.upload(&from, 0, bytemuck::cast_slice(&values))?;
    let by_kernel = clock.together(recorder, |recorder| {
        Ok(recorder.each(&kernel, &[from.raw(), to.raw()], &(count as u32), count)?)
    })?;
    let by_driver = clock.together(recorder, |recorder| Ok(recorder.copy(&from, 0, &to, 0, count)?))?;
    let [bytes] = clock.sum([2 * count * Element::Complex32.bytes()])?;
    Ok(CopySpeed { bytes, kernel: by_kernel, driver: by_driver })
}
