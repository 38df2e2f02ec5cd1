//! `meshloom bench fft`: transforms.

use clap::Args;
use meshloom::exchange::GridComms;
use meshloom::fft::{FftError, Spec, Transform, TransformChoice, TransformError, Tuner, Value as Cell, Values};
use meshloom::gpu::{Array, Recorder};
use meshloom::grid::{Cost, FieldLayout, Grid};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use super::copy::{self, CopySpeed};
use super::input::Settings;
use super::input::name;
use super::input::values;
use super::measure::Spread;
use super::reference::{self, fft::Reference};
use super::report::{self, Report, amount, range, rate, time};
use super::session::Session;
use crate::failure::{Ended, Failure};

#[derive(Args)]
pub struct Arguments {
    /// Cells of the mesh: one number for a cube, or three as 96x80x60; several with commas between
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "128", value_parser = super::input::shape)]
    size: Vec<[u64; 3]>,
    /// Only real fields [default: real and complex]
    #[arg(long)]
    real: bool,
    /// Only complex fields [default: real and complex]
    #[arg(long, conflicts_with = "real")]
    complex: bool,
    /// Search for the fastest process grid, messages and kernels first, and remember them
    #[arg(long)]
    tune: bool,
    /// Neighboring lines that a workgroup transforms together along strided axes, at most [default:
    /// that of the device]
    #[arg(long, value_name = "N", conflicts_with = "tune", value_parser = clap::value_parser!(u64).range(1..=256))]
    columns: Option<u64>,
    /// Complex points that an invocation holds, approximately [default: that of the device]
    #[arg(long, value_name = "N", conflicts_with = "tune", value_parser = clap::value_parser!(u64).range(2..=64))]
    points: Option<u64>,
    /// Bytes of the device's cache through which two axes may pass layer by layer; 0 for one axis
    /// after the other [default: 35 % of the cache of a known device, else 0]
    #[arg(long, value_name = "BYTES", conflicts_with = "tune", value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    cache_bytes: Option<u64>,
    #[command(flatten)]
    pub settings: Settings,
}

const COLUMNS: [&str; 11] = [
    "mesh",
    "values",
    "direction",
    "median",
    "per cell",
    "least .. greatest",
    "memory",
    "of copy",
    "between",
    "reference",
    "ratio",
];

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Ended> {
    let settings = &arguments.settings;
    let kinds: Vec<Values> = [(Values::Complex, arguments.real), (Values::Real, arguments.complex)]
        .into_iter()
        .filter_map(|(kind, left_out)| (!left_out).then_some(kind))
        .collect();
    let cases: Vec<_> = arguments.size.iter().flat_map(|&shape| kinds.iter().map(move |&kind| (shape, kind))).collect();
    let measurements = copy::MEASUREMENTS + cases.len() * if settings.reference { 3 } else { 2 };
    let mut session = Session::new("fft", settings, rank, measurements, &COLUMNS);
    // All plans come first: a size that cannot be transformed is found before anything has run.
    let mut planned = Vec::new();
    for (shape, kind) in cases {
        let grid = settings.common.process_grid(shape, session.rank.comm.shares())?;
        planned.push(plan(&session, arguments, kind, shape, grid)?);
    }
    let copy = copy::measure(&mut session)?;
    for plan in planned {
        match plan {
            Plan::Real(planned) => measure_one(&mut session, &copy, planned)?,
            Plan::Complex(planned) => measure_one(&mut session, &copy, planned)?,
        }
    }
    Ok(session.finish())
}

/// A transform that is to be measured.
struct Planned<T: Cell> {
    shape: [u64; 3],
    choice: TransformChoice,
    transform: Transform<T>,
    /// Seconds that planning took.
    seconds: f64,
}

enum Plan {
    Real(Planned<f32>),
    Complex(Planned<[f32; 2]>),
}

/// Plans a transform.
fn plan(session: &Session, arguments: &Arguments, kind: Values, shape: [u64; 3], grid: Grid) -> Result<Plan, Ended> {
    let plan = match kind {
        Values::Real => planned::<f32>(session.rank, arguments, shape, grid).map(Plan::Real),
        Values::Complex => planned::<[f32; 2]>(session.rank, arguments, shape, grid).map(Plan::Complex),
    };
    let plan = match plan {
        Err(TransformError::Fft(error)) => Err(error),
        Err(error) => return Err(Error::from(error).into()),
        Ok(plan) => Ok(plan),
    };
    let refused = matches!(&plan, Err(error) if !matches!(error, FftError::Device(_)));
    // Where all ranks refuse they end together, which keeps the exit code under MPI.
    let [all] = session.sum([u64::from(refused)])?;
    match plan {
        Err(error) if all == session.rank.comm.size() as u64 => {
            Err(Failure::Usage(format!("--size {}: {error}", name(shape))).into())
        }
        plan => Ok(plan.map_err(Error::from)?),
    }
}

/// Plans the default transform, with the kernels that are requested; or, with `--tune`, the fastest
/// one found, on this grid only if requested.
fn planned<T: Cell>(
    rank: &Rank,
    arguments: &Arguments,
    shape: [u64; 3],
    grid: Grid,
) -> Result<Planned<T>, TransformError> {
    let spec = Spec::of::<T>(shape);
    let mut choice =
        TransformChoice { grid: grid.parts(), ..TransformChoice::usual(&rank.gpu, &spec, rank.comm.shares()) };
    arguments.columns.iter().for_each(|&columns| choice.tuning.columns = columns);
    arguments.points.iter().for_each(|&points| (choice.tuning.points, choice.tuning.alone) = (points, points));
    arguments.cache_bytes.iter().for_each(|&bytes| choice.tuning.cache_bytes = bytes);
    if arguments.tune {
        let tuner = Tuner::new(&rank.gpu, &rank.comm, &spec);
        let tuner = if arguments.settings.common.grid.is_some() { tuner.on(grid) } else { tuner };
        choice = match Tuner::default_file() {
            Some(file) => tuner.remembering(file).tune::<T>()?,
            None => tuner.tune::<T>()?,
        }
        .choice;
    }
    let start = std::time::Instant::now();
    let transform = choice.transform::<T>(&rank.gpu, &spec, &choice.comms(&rank.comm)?)?;
    Ok(Planned { shape, choice, transform, seconds: start.elapsed().as_secs_f64() })
}

/// A transform with its arrays.
struct Ready<T: Cell> {
    transform: Transform<T>,
    comms: GridComms,
    layout: FieldLayout,
    field: Array<T>,
    spectrum: Array<T::Mode>,
}

impl<T: Cell> Ready<T> {
    fn forward(&mut self, recorder: &mut Recorder) -> Result<(), Error> {
        let Ready { transform, comms, layout, field, spectrum } = self;
        Ok(transform.forward(recorder, comms, field, layout, spectrum)?)
    }

    fn inverse(&mut self, recorder: &mut Recorder) -> Result<(), Error> {
        let Ready { transform, comms, layout, field, spectrum } = self;
        Ok(transform.inverse(recorder, comms, spectrum, field, layout)?)
    }

    fn both(&mut self, recorder: &mut Recorder) -> Result<(), Error> {
        self.forward(recorder)?;
        self.inverse(recorder)
    }
}

/// Times of both directions of a transform, and the bytes that they move on this rank.
struct Measured {
    /// Seconds to plan and run both directions for the first time, with the compilation of kernels,
    /// and again.
    plan: [f64; 2],
    /// For each direction the time, the bytes in device memory and the cost of exchanges.
    directions: [(Spread, u64, Cost); 2],
}

/// Measures one transform both ways and reports it. Collective.
fn measure_one<T: Cell>(session: &mut Session, copy: &CopySpeed, planned: Planned<T>) -> Result<(), Error> {
    let (shape, choice) = (planned.shape, planned.choice);
    let Measured { plan: [first, again], directions } = both_directions(session, planned)?;
    let reference = if session.settings.reference { on_host(session, T::VALUES, shape)? } else { None };
    let kind = match T::VALUES {
        Values::Real => "real",
        Values::Complex => "complex",
    };
    let mut result = json!({
        "shape": shape, "values": kind, "grid": choice.grid, "choice": settings(&choice),
        "plan": { "first": first, "again": again },
    });
    for (i, (ours, device, cost)) in directions.into_iter().enumerate() {
        let direction = ["forward", "inverse"][i];
        let [device, between, messages] = session.sum([device, cost.sent_bytes, cost.messages])?;
        let theirs = reference.map(|spreads| spreads[i]);
        let speed = device as f64 / ours.median;
        let of_copy = speed / copy.bytes_per_second();
        result[direction] = json!({
            "seconds": ours,
            "bytes": { "device": device, "between_ranks": between },
            "messages": messages,
            "bytes_per_second": speed,
            "of_copy": of_copy,
        });
        let per_cell = ours.median * 1e9 / shape.iter().product::<u64>() as f64;
        let mut row = vec![name(shape), kind.into(), direction.into(), time(ours.median), format!("{per_cell:.2} ns")];
        let sent = if between > 0 { format!("{} in {messages}", amount(between)) } else { String::new() };
        row.extend([range(&ours), rate(speed), format!("{of_copy:.2}"), sent]);
        if let Some(theirs) = theirs {
            let mut reference = report::reference(&ours, reference::fft::NAME, &theirs);
            reference["threads"] = reference::threads().into();
            result[direction]["reference"] = reference;
            row.extend([time(theirs.median), report::ratio(&ours, &theirs)]);
        }
        session.report.row(row);
    }
    session.report.note(format!(
        "{} {kind}: planned, compiled and run both ways in {}, the same again in {}",
        name(shape),
        time(first),
        time(again),
    ));
    session.report.result(result);
    Ok(())
}

/// Times of both directions. Collective.
fn both_directions<T: Cell>(session: &mut Session, planned: Planned<T>) -> Result<Measured, Error> {
    let Planned { shape, choice, transform, seconds: planning } = planned;
    let Session { rank, clock, .. } = session;
    let recorder = &mut rank.recorder;
    let (layout, field) = (transform.field_layout(), transform.field(&rank.gpu, &transform.field_layout())?);
    let numbers = (size_of::<T>() / size_of::<f32>()) as u64;
    let content = values(field.len() * numbers, rank.comm.rank());
    recorder.upload(&field, 0, bytemuck::cast_slice(&content))?;
    drop(content);
    let (spectrum, comms) = (transform.spectrum(&rank.gpu)?, choice.comms(&rank.comm)?);
    let mut ready = Ready { transform, comms, layout, field, spectrum };
    // Kernels are compiled when they are first used: a plan is ready when both directions have run.
    let first = planning + clock.once(recorder, |recorder| ready.both(recorder))?;
    let again = clock.once(recorder, |recorder| {
        ready.transform = choice.transform::<T>(&rank.gpu, &Spec::of::<T>(shape), &ready.comms)?;
        ready.both(recorder)
    })?;
    let start = ready.comms.cost();
    clock.once(recorder, |recorder| ready.forward(recorder))?;
    let middle = ready.comms.cost();
    clock.once(recorder, |recorder| ready.inverse(recorder))?;
    let costs = [middle.since(start), ready.comms.cost().since(middle)];
    let forward = clock.together(recorder, |recorder| ready.forward(recorder))?;
    let inverse = clock.together(recorder, |recorder| ready.inverse(recorder))?;
    let plan = ready.transform.plan();
    let directions = [(forward, plan.forward.traffic(), costs[0]), (inverse, plan.inverse.traffic(), costs[1])];
    Ok(Measured { plan: [first, again], directions })
}

/// Seconds of both directions on the processor of rank 0. Collective.
fn on_host(session: &Session, kind: Values, shape: [u64; 3]) -> Result<Option<[Spread; 2]>, Error> {
    let numbers = shape.iter().product::<u64>() * if kind == Values::Real { 1 } else { 2 };
    let field = (session.rank.comm.rank() == 0).then(|| values(numbers, 0));
    let mut reference = field.and_then(|field| Reference::new(kind, shape, field));
    let mut work = reference.as_mut().map(|reference| {
        move |part: usize| match part {
            0 => reference.forward(),
            _ => reference.inverse(),
        }
    });
    session.clock.alone::<2>(work.as_mut().map(|work| work as &mut dyn FnMut(usize)))
}

/// Returns what was chosen, for the report.
fn settings(choice: &TransformChoice) -> Value {
    let tuning = choice.tuning;
    json!({
        "grid": choice.grid,
        "tuning": {
            "points": tuning.points, "alone": tuning.alone, "shared": tuning.shared, "columns": tuning.columns,
            "pieces": tuning.pieces, "cache_bytes": tuning.cache_bytes,
        },
        "chunk_bytes": choice.chunk_bytes, "depth": choice.depth,
    })
}
