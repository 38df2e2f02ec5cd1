//! `meshloom bench memory`: device memory in the patterns of kernels.

use clap::Args;
use meshloom::gpu::{Array, Kernel, KernelSource, Recorder};
use meshloom::{Error, Rank};
use serde_json::json;

use super::copy::{self, filled};
use super::input::Settings;
use super::report::{Report, amount, range, rate, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Bytes to read or to add to, a power of two; several with commas between
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "67108864", value_parser = power(1 << 16, 1 << 35))]
    size: Vec<u64>,
    /// Bytes of a row, a power of two; several with commas between
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "32,64,128,256", value_parser = power(8, 1 << 16))]
    row: Vec<u64>,
    /// Bytes from a row to the one that is read next, a power of two; several with commas between
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "4096,65536", value_parser = power(8, 1 << 34))]
    stride: Vec<u64>,
    /// Sectors of 32 bytes that 32 neighboring invocations add to; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "32,16,8", value_parser = power(1, 32))]
    sectors: Vec<u64>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Parses a power of two within bounds.
fn power(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|n: &u64| n.is_power_of_two() && (least..=most).contains(n));
        number.ok_or_else(|| format!("expected a power of two from {least} to {most}"))
    }
}

const COLUMNS: [&str; 8] =
    ["what", "bytes", "of", "stride or sectors", "median", "least .. greatest", "per second", "of copy"];

/// Bytes of an element of rows.
const ELEMENT: u64 = 8;
/// Loads of an invocation.
const LOADS: u64 = 8;
/// Additions of an invocation.
const ADDITIONS: u64 = 8;
/// Bytes of a sector.
const SECTOR: u64 = 32;

meshloom::kernel_params! {
    struct RowParams {
        count: u32,
        /// Elements of a row.
        row_bits: u32,
        /// Rows of a column.
        rows_bits: u32,
        /// Elements between them.
        stride_bits: u32,
        never: f32,
    }
}

meshloom::kernel_params! {
    struct AdditionParams {
        count: u32,
        sectors: u32,
        mask: u32,
    }
}

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let settings = &arguments.settings;
    let per = arguments.row.len() * arguments.stride.len() + arguments.sectors.len();
    let measurements = copy::MEASUREMENTS + arguments.size.len() * per;
    let mut session = Session::new("memory", settings, rank, measurements, &COLUMNS);
    let copy = copy::measure(&mut session)?;
    for &size in &arguments.size {
        let array = filled(session.rank, size / ELEMENT)?;
        for &row in &arguments.row {
            for &stride in arguments.stride.iter().filter(|&&stride| row <= stride && stride <= size) {
                rows(&mut session, copy.bytes_per_second(), &array, [row, stride])?;
            }
        }
        drop(array);
        for &sectors in &arguments.sectors {
            additions(&mut session, size, sectors)?;
        }
    }
    Ok(session.finish())
}

/// Reads rows of an array. Collective.
fn rows(session: &mut Session, copy: f64, array: &Array<[f32; 2]>, [row, stride]: [u64; 2]) -> Result<(), Error> {
    let Session { rank, clock, .. } = session;
    let source = KernelSource::new("bench::rows", include_str!("memory_rows.wgsl")).params::<RowParams>();
    // SAFETY: the places of `LOADS * count` elements are those of the array in another order, the
    // other array has an element, and loops end.
    let kernel = unsafe { Kernel::new_unchecked(source) };
    let sums = rank.gpu.array::<f32>("bench::sums", 1)?;
    let size = array.len() * ELEMENT;
    let count = array.len() / LOADS;
    let params = RowParams {
        count: count as u32,
        row_bits: (row / ELEMENT).ilog2(),
        rows_bits: (size / stride).ilog2(),
        stride_bits: (stride / ELEMENT).ilog2(),
        never: f32::MAX,
    };
    let work = |recorder: &mut Recorder| Ok(recorder.each(&kernel, &[array.raw(), sums.raw()], &params, count)?);
    let seconds = clock.together(&mut rank.recorder, work)?;
    let [bytes] = clock.sum([size])?;
    let speed = bytes as f64 / seconds.median;
    let mut cells = vec!["rows".to_string(), amount(row), amount(size), amount(stride)];
    cells.extend([time(seconds.median), range(&seconds), rate(speed), format!("{:.2}", speed / copy)]);
    session.report.row(cells);
    session.report.result(json!({
        "what": "rows", "row": row, "stride": stride, "bytes": { "device": bytes }, "seconds": seconds,
        "bytes_per_second": speed, "of_copy": speed / copy,
    }));
    Ok(())
}

/// Adds to random sectors of `size` bytes, by words of 64 bits where the device can. Collective.
fn additions(session: &mut Session, size: u64, sectors: u64) -> Result<(), Error> {
    let Session { rank, clock, .. } = session;
    let wide = rank.gpu.capabilities().atomic_u64;
    let source = KernelSource::new("bench::additions", include_str!("memory_additions.wgsl"))
        .params::<AdditionParams>()
        .flag("wide", wide);
    // SAFETY: places are masked to those of the array, and loops end.
    let kernel = unsafe { Kernel::new_unchecked(source) };
    let count = size / SECTOR;
    let params = AdditionParams { count: count as u32, sectors: sectors as u32, mask: (size / SECTOR - 1) as u32 };
    let recorder = &mut rank.recorder;
    let seconds = match wide {
        true => {
            let array = rank.gpu.array::<u64>("bench::additions", size / 8)?;
            recorder.clear(&array);
            clock.together(recorder, |recorder| Ok(recorder.each(&kernel, &[array.raw()], &params, count)?))?
        }
        false => {
            let array = rank.gpu.array::<u32>("bench::additions", size / 4)?;
            recorder.clear(&array);
            clock.together(recorder, |recorder| Ok(recorder.each(&kernel, &[array.raw()], &params, count)?))?
        }
    };
    let [additions] = clock.sum([ADDITIONS * count])?;
    let requests = additions * sectors / 32;
    let (speed, bits) = (additions as f64 / seconds.median, if wide { 64 } else { 32 });
    let mut cells = vec![format!("additions of {bits} bits"), String::new(), amount(size), sectors.to_string()];
    cells.extend([time(seconds.median), range(&seconds), format!("{:.2} G", speed / 1e9)]);
    session.report.row(cells);
    session.report.result(json!({
        "what": "additions", "bits": bits, "sectors": sectors, "bytes": { "device": size }, "seconds": seconds,
        "additions_per_second": speed, "sectors_per_second": requests as f64 / seconds.median,
    }));
    Ok(())
}
