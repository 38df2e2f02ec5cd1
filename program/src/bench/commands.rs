//! `meshloom bench commands`: what commands cost on the host and on the device, whatever they do.

use std::time::Instant;

use clap::Args;
use meshloom::gpu::{Array, Kernel, KernelSource, Recorder};
use meshloom::{Error, Rank, wgpu};
use serde_json::json;

use super::input::Settings;
use super::measure::{Clock, Spread, WARM_UP};
use super::report::{Report, amount, range, rate, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Bytes to clear and to copy; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "65536,1048576,67108864",
        value_parser = clap::value_parser!(u64).range(4..=1 << 34))]
    bytes: Vec<u64>,
    #[command(flatten)]
    pub settings: Settings,
}

const COLUMNS: [&str; 5] = ["what", "bytes", "median", "least .. greatest", "read and written"];

/// Dispatches of a submission: fewer than make a recorder submit by itself.
const DISPATCHES: u32 = 200;

/// Elements of an array, which one workgroup covers.
const ELEMENTS: u64 = 64;

meshloom::kernel_params! { struct CommandParams { count: u32 } }

fn kernel() -> Kernel {
    let source = KernelSource::new("bench::commands", include_str!("commands.wgsl")).params::<CommandParams>();
    // SAFETY: the array has `count` elements, and the loop ends.
    unsafe { Kernel::new_unchecked(source) }
}

/// Use of commands that have no work.
#[derive(Clone, Copy)]
enum Operation {
    /// Dispatches that change one array in turn.
    Dependent,
    /// Dispatches that each change an array of their own.
    Independent,
    /// Several chains of dependent dispatches, each recorded behind the one before.
    Chains(u32),
    /// Dispatches with a copy before each, which ends the compute pass.
    Passes,
    /// A dispatch and a wait for it.
    Wait,
    /// A dispatch and a download of an element.
    Download,
}

const OPERATIONS: [Operation; 7] = [
    Operation::Dependent,
    Operation::Independent,
    Operation::Chains(2),
    Operation::Chains(8),
    Operation::Passes,
    Operation::Wait,
    Operation::Download,
];

impl Operation {
    fn name(self) -> String {
        let name = match self {
            Operation::Chains(count) => return format!("a dispatch of {count} chains, one recorded behind another"),
            Operation::Dependent => "a dispatch that depends on the one before",
            Operation::Independent => "a dispatch that depends on none",
            Operation::Passes => "a dispatch in a pass of its own, and a copy",
            Operation::Wait => "a dispatch, submitted and waited for",
            Operation::Download => "a dispatch and the download of a number",
        };
        name.into()
    }

    /// Returns how often one call of [`run`](Work::run) does it.
    fn times(self) -> u32 {
        match self {
            Operation::Dependent | Operation::Independent | Operation::Chains(_) | Operation::Passes => DISPATCHES,
            Operation::Wait | Operation::Download => 1,
        }
    }
}

/// Kernel and arrays of the dispatches.
struct Work {
    kernel: Kernel,
    arrays: Vec<Array<u32>>,
    /// Ends of a copy.
    ends: [Array<u32>; 2],
}

impl Work {
    fn new(rank: &Rank) -> Result<Self, Error> {
        let array = |len| rank.gpu.array::<u32>("bench::commands", len);
        let arrays = (0..DISPATCHES).map(|_| array(ELEMENTS)).collect::<Result<_, _>>()?;
        Ok(Work { kernel: kernel(), arrays, ends: [array(1)?, array(1)?] })
    }

    fn dispatch(&self, recorder: &mut Recorder, array: usize) -> Result<(), Error> {
        let params = CommandParams { count: ELEMENTS as u32 };
        Ok(recorder.each(&self.kernel, &[self.arrays[array].raw()], &params, ELEMENTS)?)
    }

    fn run(&self, recorder: &mut Recorder, operation: Operation) -> Result<(), Error> {
        for n in 0..operation.times() as usize {
            match operation {
                Operation::Dependent => self.dispatch(recorder, 0)?,
                Operation::Independent => self.dispatch(recorder, n)?,
                Operation::Chains(count) => self.dispatch(recorder, n / (DISPATCHES / count) as usize)?,
                Operation::Passes => {
                    recorder.copy(&self.ends[0], 0, &self.ends[1], 0, 1)?;
                    self.dispatch(recorder, 0)?;
                }
                Operation::Wait => {
                    self.dispatch(recorder, 0)?;
                    recorder.wait()?;
                }
                Operation::Download => {
                    self.dispatch(recorder, 0)?;
                    recorder.download(&self.arrays[0], 0, 1)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the seconds of the host for a dispatch: to record it, and to encode and submit it.
    fn host(&self, recorder: &mut Recorder, operation: Operation, runs: u32) -> Result<[Spread; 2], Error> {
        let mut seconds = [Vec::new(), Vec::new()];
        for run in 0..WARM_UP + runs {
            recorder.wait()?;
            let start = Instant::now();
            self.run(recorder, operation)?;
            let recorded = start.elapsed().as_secs_f64();
            recorder.submit()?;
            let submitted = start.elapsed().as_secs_f64() - recorded;
            if run >= WARM_UP {
                seconds[0].push(recorded);
                seconds[1].push(submitted);
            }
        }
        recorder.wait()?;
        Ok(seconds.map(|seconds| Spread::new(seconds, DISPATCHES)))
    }
}

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let settings = &arguments.settings;
    let measurements = OPERATIONS.len() + MOVES.len() * arguments.bytes.len();
    let mut session = Session::new("commands", settings, rank, measurements, &COLUMNS);
    let work = Work::new(session.rank)?;
    for operation in [Operation::Dependent, Operation::Chains(2), Operation::Chains(8)] {
        let host = work.host(&mut session.rank.recorder, operation, settings.runs)?;
        for (what, seconds) in ["recorded", "encoded and submitted"].into_iter().zip(host) {
            report_one(&mut session, &format!("{}: {what}", operation.name()), None, &seconds);
        }
    }
    for operation in OPERATIONS {
        let Session { rank, clock, .. } = &mut session;
        let all = clock.together(&mut rank.recorder, |recorder| work.run(recorder, operation))?;
        report_one(&mut session, &operation.name(), None, &all.of_parts(operation.times()));
    }
    for &bytes in &arguments.bytes {
        measure_moves(&mut session, bytes)?;
    }
    Ok(session.finish())
}

/// Clears and copies.
#[derive(Clone, Copy)]
enum Move {
    Clear,
    ClearByCommand,
    Copy,
    CopyByCommand,
}

const MOVES: [Move; 4] = [Move::Clear, Move::ClearByCommand, Move::Copy, Move::CopyByCommand];

impl Move {
    fn name(self) -> &'static str {
        match self {
            Move::Clear => "a clear",
            Move::ClearByCommand => "a clear by a command",
            Move::Copy => "a copy",
            Move::CopyByCommand => "a copy by a command",
        }
    }
}

/// Clears and copies of an array, as the library does it and by commands of the driver. Collective.
fn measure_moves(session: &mut Session, bytes: u64) -> Result<(), Error> {
    let Session { rank, clock, .. } = session;
    let len = (bytes / 4).max(1);
    let arrays = [rank.gpu.array::<u32>("bench::from", len)?, rank.gpu.array::<u32>("bench::to", len)?];
    let recorder = &mut rank.recorder;
    let mut times = Vec::new();
    for what in MOVES {
        times.push(measure_move(clock, recorder, what, &arrays)?);
    }
    for (what, seconds) in MOVES.into_iter().zip(times) {
        let directions = if matches!(what, Move::Clear | Move::ClearByCommand) { 1 } else { 2 };
        let [moved] = session.sum([4 * len * directions])?;
        report_one(session, what.name(), Some(moved), &seconds);
    }
    Ok(())
}

fn measure_move(clock: &Clock, recorder: &mut Recorder, what: Move, arrays: &[Array<u32>; 2]) -> Result<Spread, Error> {
    let [from, to] = arrays;
    clock.together(recorder, |recorder| {
        match what {
            Move::Clear => recorder.clear(to),
            Move::Copy => recorder.copy(from, 0, to, 0, from.len())?,
            Move::ClearByCommand | Move::CopyByCommand => {
                let gpu = recorder.gpu().clone();
                let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                // Both arrays are cut into the same windows.
                for (from, to) in from.bindings()?.zip(to.bindings()?) {
                    let size = to.size.map(u64::from);
                    match what {
                        Move::ClearByCommand => encoder.clear_buffer(to.buffer, to.offset, size),
                        _ => encoder.copy_buffer_to_buffer(from.buffer, from.offset, to.buffer, to.offset, size),
                    }
                }
                recorder.submitted(gpu.queue().submit([encoder.finish()]));
            }
        }
        Ok(())
    })
}

/// Adds a row to the table and an element to the results.
fn report_one(session: &mut Session, what: &str, bytes: Option<u64>, seconds: &Spread) {
    let mut row = vec![what.to_string(), bytes.map(amount).unwrap_or_default(), time(seconds.median), range(seconds)];
    row.extend(bytes.map(|bytes| rate(bytes as f64 / seconds.median)));
    session.report.row(row);
    session.report.result(json!({ "what": what, "bytes": { "device": bytes }, "seconds": seconds }));
}
