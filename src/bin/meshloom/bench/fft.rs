//! `meshloom bench fft`: transforms.

use clap::Args;
use meshloom::exchange::GridComms;
use meshloom::fft::{FftError, Route, Spec, Transform, TransformChoice, TransformError, Tuner, Value as Cell, Values};
use meshloom::gpu::{Array, Gpu, Recorder};
use meshloom::grid::{Cost, FieldLayout, Grid};
use meshloom::{Context, Error};
use serde_json::{Value, json};

use super::copy::{self, CopySpeed};
use super::measure::{Clock, Spread};
use super::reference::{self, fft::Reference};
use super::report::{self, Report, amount, range, rate, time};
use super::{Found, Settings, name, values};
use crate::common::Failure;

#[derive(Args)]
pub struct Arguments {
    /// Cells of the mesh: one number for a cube, or three as 96x80x60; several with commas between
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "128", value_parser = super::shape)]
    size: Vec<[u64; 3]>,
    /// Only real fields (both kinds otherwise)
    #[arg(long)]
    real: bool,
    /// Only complex fields (both kinds otherwise)
    #[arg(long, conflicts_with = "real")]
    complex: bool,
    /// Search for the fastest process grid, messages and kernels first, and remember them
    #[arg(long)]
    tune: bool,
    #[command(flatten)]
    settings: Settings,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    reference::check(arguments.settings.reference)?;
    arguments.settings.run(|rank| measure(rank, arguments))
}

const COLUMNS: [&str; 11] = [
    "mesh",
    "values",
    "direction",
    "median",
    "a cell",
    "least .. greatest",
    "memory",
    "of copy",
    "between",
    "reference",
    "ratio",
];

fn measure(rank: &Context, arguments: &Arguments) -> Result<Found, Error> {
    let settings = &arguments.settings;
    let kinds: Vec<Values> = [(Values::Complex, arguments.real), (Values::Real, arguments.complex)]
        .into_iter()
        .filter_map(|(kind, left_out)| (!left_out).then_some(kind))
        .collect();
    let jobs: Vec<_> = arguments.size.iter().flat_map(|&shape| kinds.iter().map(move |&kind| (shape, kind))).collect();
    let clock = Clock::new(settings, rank, copy::MEASUREMENTS + jobs.len() * if settings.reference { 3 } else { 2 });
    let mut recorder = Recorder::new(&rank.gpu)?;
    // All plans come first: a size that cannot be is found before anything has run.
    let mut planned = Vec::new();
    for (shape, kind) in jobs {
        let grid = settings.grid(shape, rank.comm.size())?;
        match plan(rank, &clock, arguments, kind, shape, grid)? {
            Ok(job) => planned.push(job),
            Err(message) => return Ok(Err(message)),
        }
    }
    let mut report = Report::new("fft", settings, rank, &COLUMNS);
    let copy = copy::measure(rank, &clock, &mut recorder)?;
    report.copy(&copy);
    for job in planned {
        let mut bench = Bench { rank, settings, clock: &clock, copy: &copy, report: &mut report };
        match job {
            Job::Real(job) => bench.measure(&mut recorder, job)?,
            Job::Complex(job) => bench.measure(&mut recorder, job)?,
        }
    }
    report.field("seconds", json!({ "total": clock.finish() }));
    Ok(Ok(report))
}

/// A transform that is to be measured.
struct Planned<T> {
    shape: [u64; 3],
    choice: TransformChoice,
    transform: Transform<T>,
    /// Seconds that the plan took.
    seconds: f64,
}

enum Job {
    Real(Planned<f32>),
    Complex(Planned<[f32; 2]>),
}

/// Plans, or says why no rank can.
fn plan(
    rank: &Context,
    clock: &Clock,
    arguments: &Arguments,
    kind: Values,
    shape: [u64; 3],
    grid: Grid,
) -> Result<Result<Job, String>, Error> {
    let tune = arguments.tune.then_some(arguments.settings.has_grid());
    let job = match kind {
        Values::Real => planned::<f32>(rank, tune, shape, grid).map(Job::Real),
        Values::Complex => planned::<[f32; 2]>(rank, tune, shape, grid).map(Job::Complex),
    };
    let job = match job {
        Err(TransformError::Exchange(error)) => return Err(error.into()),
        Err(TransformError::Fft(error)) => Err(error),
        Err(error) => return Err(error.into()),
        Ok(job) => Ok(job),
    };
    let refused = matches!(&job, Err(error) if !matches!(error, FftError::Device(_)));
    // Where all ranks refuse they leave together, which saves the exit code under MPI.
    let [all] = clock.sum([u64::from(refused)])?;
    match job {
        Err(error) if all == rank.comm.size() as u64 => Ok(Err(format!("--size {}: {error}", name(shape)))),
        job => Ok(Ok(job?)),
    }
}

/// One transform, the fastest that is found where `tune` says so, on this grid only or any.
fn planned<T: Cell>(
    rank: &Context,
    tune: Option<bool>,
    shape: [u64; 3],
    grid: Grid,
) -> Result<Planned<T>, TransformError> {
    let spec = Spec::new(T::VALUES, shape);
    let mut choice =
        TransformChoice { grid: grid.parts(), ..TransformChoice::usual(&rank.gpu, &spec, rank.comm.size()) };
    if let Some(fixed) = tune {
        let tuner = Tuner::new(&rank.gpu, &rank.comm, &spec);
        let tuner = if fixed { tuner.on(grid) } else { tuner };
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

struct Bench<'a> {
    rank: &'a Context,
    settings: &'a Settings,
    clock: &'a Clock,
    copy: &'a CopySpeed,
    report: &'a mut Report,
}

/// A transform with its arrays.
struct Work<T: Cell> {
    transform: Transform<T>,
    comms: GridComms,
    layout: FieldLayout,
    field: Array<T>,
    spectrum: Array<T::Mode>,
}

impl<T: Cell> Work<T> {
    fn forward(&mut self, recorder: &mut Recorder) -> Result<(), Error> {
        let Work { transform, comms, layout, field, spectrum } = self;
        Ok(transform.forward(recorder, comms, field, layout, spectrum)?)
    }

    fn inverse(&mut self, recorder: &mut Recorder) -> Result<(), Error> {
        let Work { transform, comms, layout, field, spectrum } = self;
        Ok(transform.inverse(recorder, comms, spectrum, None, field, layout)?)
    }

    fn both(&mut self, recorder: &mut Recorder) -> Result<(), Error> {
        self.forward(recorder)?;
        self.inverse(recorder)
    }
}

fn arrays<T: Cell>(gpu: &Gpu, transform: &Transform<T>) -> Result<(Array<T>, Array<T::Mode>), Error> {
    Ok((gpu.array("bench::field", transform.field_layout().len())?, transform.spectrum(gpu)?))
}

impl Bench<'_> {
    fn measure<T: Cell>(&mut self, recorder: &mut Recorder, job: Planned<T>) -> Result<(), Error> {
        let Planned { shape, choice, transform, seconds: planning } = job;
        let (rank, clock) = (self.rank, self.clock);
        let (field, spectrum) = arrays(&rank.gpu, &transform)?;
        let numbers = (size_of::<T>() / size_of::<f32>()) as u64;
        let content = values(field.len() * numbers, rank.comm.rank());
        recorder.upload(&field, 0, bytemuck::cast_slice(&content))?;
        drop(content);
        let comms = choice.comms(&rank.comm)?;
        let layout = transform.field_layout();
        let mut work = Work { transform, comms, layout, field, spectrum };
        // Kernels are compiled when they are first used: a plan is ready when both directions have run.
        let first = planning + clock.once(recorder, |recorder| work.both(recorder))?;
        let again = clock.once(recorder, |recorder| {
            work.transform = choice.transform::<T>(&rank.gpu, &Spec::new(T::VALUES, shape), &work.comms)?;
            work.both(recorder)
        })?;
        let mut cost = [work.comms.cost(); 3];
        clock.once(recorder, |recorder| work.forward(recorder))?;
        cost[1] = work.comms.cost();
        clock.once(recorder, |recorder| work.inverse(recorder))?;
        cost[2] = work.comms.cost();
        let forward = clock.together(recorder, |recorder| work.forward(recorder))?;
        let inverse = clock.together(recorder, |recorder| work.inverse(recorder))?;
        let plan = work.transform.plan().clone();
        drop(work);
        let reference = if self.settings.reference { self.reference(T::VALUES, shape)? } else { None };
        let kind = match T::VALUES {
            Values::Real => "real",
            Values::Complex => "complex",
        };
        let mut result = json!({
            "shape": shape, "values": kind, "grid": choice.grid, "choice": settings(&choice),
            "plan": { "first": first, "again": again },
        });
        let directions: [(&str, Spread, &Route, Cost, Cost); 2] = [
            ("forward", forward, &plan.forward, cost[0], cost[1]),
            ("inverse", inverse, &plan.inverse, cost[1], cost[2]),
        ];
        for (i, (direction, ours, route, before, after)) in directions.into_iter().enumerate() {
            let theirs = reference.map(|spreads| spreads[i]);
            result[direction] = self.direction(shape, [kind, direction], &ours, route, [before, after], theirs)?;
        }
        self.report.note(format!(
            "{} {kind}: planned, compiled and run both ways in {}, the same again in {}",
            name(shape),
            time(first),
            time(again),
        ));
        self.report.result(result);
        Ok(())
    }

    /// Reports one direction.
    fn direction(
        &mut self,
        shape: [u64; 3],
        [kind, direction]: [&str; 2],
        ours: &Spread,
        route: &Route,
        [before, after]: [Cost; 2],
        theirs: Option<Spread>,
    ) -> Result<Value, Error> {
        let mine = [route.traffic(), after.sent - before.sent, after.messages - before.messages];
        let [device, between, messages] = self.clock.sum(mine)?;
        let speed = device as f64 / ours.median;
        let of_copy = speed / self.copy.bytes_per_second();
        let mut result = json!({
            "seconds": ours.json(),
            "bytes": { "device": device, "between_ranks": between },
            "messages": messages,
            "bytes_per_second": speed,
            "of_copy": of_copy,
        });
        let a_cell = ours.median * 1e9 / shape.iter().product::<u64>() as f64;
        let mut row = vec![name(shape), kind.into(), direction.into(), time(ours.median), format!("{a_cell:.2} ns")];
        let sent = if between > 0 { format!("{} in {messages}", amount(between)) } else { String::new() };
        row.extend([range(ours), rate(speed), format!("{of_copy:.2}"), sent]);
        match theirs {
            Some(theirs) => {
                result["reference"] = report::reference(ours, reference::fft::NAME, &theirs);
                result["reference"]["threads"] = reference::threads().into();
                row.extend([time(theirs.median), report::ratio(ours, &theirs)]);
            }
            None => row.extend([String::new(), String::new()]),
        }
        self.report.row(row);
        Ok(result)
    }

    /// Seconds of both directions on rank 0's processor.
    fn reference(&self, kind: Values, shape: [u64; 3]) -> Result<Option<[Spread; 2]>, Error> {
        let numbers = shape.iter().product::<u64>() * if kind == Values::Real { 1 } else { 2 };
        let field = (self.rank.comm.rank() == 0).then(|| values(numbers, 0));
        let mut reference = field.and_then(|field| Reference::new(kind, shape, field));
        let mut work = reference.as_mut().map(|reference| {
            move |part: usize| match part {
                0 => reference.forward(),
                _ => reference.inverse(),
            }
        });
        let spreads = self.clock.alone::<2>(work.as_mut().map(|work| work as &mut dyn FnMut(usize)))?;
        Ok(spreads)
    }
}

/// What was chosen, for the report.
fn settings(choice: &TransformChoice) -> Value {
    let tuning = choice.tuning;
    json!({
        "grid": choice.grid,
        "tuning": {
            "points": tuning.points, "alone": tuning.alone, "shared": tuning.shared, "columns": tuning.columns,
            "pieces": tuning.pieces,
        },
        "chunk_bytes": choice.chunk_bytes, "depth": choice.depth,
    })
}
