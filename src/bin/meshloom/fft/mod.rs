//! `meshloom fft`: what NumPy's `fftn`, `ifftn`, `rfftn` and `irfftn` do to an array in a file.

mod job;
mod parts;
mod plan_only;

use std::path::{Path, PathBuf};

use clap::Args;
use meshloom::comm::{Communicator, Op};
use meshloom::exchange::GridComms;
use meshloom::fft::{FftError, Norm, Precision, Transform, TransformCallbacks, Tuning, Value};
use meshloom::gpu::{Array, Recorder};
use meshloom::grid::{Box3, Grid};
use meshloom::io::collective::write_npy;
use meshloom::io::{IoError, NpyFile, printable_path};
use meshloom::{Context, Error, Launch};

use crate::common::{Common, Failure, refuse_dash, writable};
use crate::phases::Phases;
use job::Job;
use parts::{Stored, fill, save};

#[derive(Args)]
pub struct Arguments {
    /// An array of 1, 2 or 3 axes, real, complex or integer
    #[arg(value_name = "IN.npy", required_unless_present = "plan_only", conflicts_with = "plan_only")]
    input: Option<PathBuf>,
    /// The transformed array, in NumPy's order and shape
    #[arg(short, long, value_name = "OUT.npy", required_unless_present = "plan_only", conflicts_with = "plan_only")]
    output: Option<PathBuf>,
    /// Transform back
    #[arg(long)]
    inverse: bool,
    /// Between real values and the half spectrum, as rfftn and irfftn do
    #[arg(long)]
    real: bool,
    /// Length of the last axis that --inverse --real gives [default: 2 (m - 1) of m modes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=job::LONGEST))]
    last_size: Option<u64>,
    /// Which transform has the factor 1/N; ortho: both its root
    #[arg(long, value_name = "backward|ortho|forward", default_value = "backward", value_parser = norm)]
    norm: Norm,
    /// The numbers to work with [default: f32 for float32 and complex64, else f64]
    #[arg(long, value_name = "f32|f64", value_parser = precision)]
    precision: Option<Precision>,
    #[command(flatten)]
    plan: plan_only::Options,
    #[command(flatten)]
    common: Common,
}

impl Arguments {
    /// The input; there is one unless only a plan is wanted.
    fn input(&self) -> &Path {
        self.input.as_deref().unwrap_or(Path::new(""))
    }

    /// The output, likewise.
    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(""))
    }
}

const NORMS: [(&str, Norm); 3] = [("backward", Norm::Backward), ("ortho", Norm::Ortho), ("forward", Norm::Forward)];
const PRECISIONS: [(&str, Precision); 2] = [("f32", Precision::Single), ("f64", Precision::Double)];

fn norm(text: &str) -> Result<Norm, String> {
    let found = NORMS.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, norm)| norm).ok_or_else(|| "write backward, ortho or forward".into())
}

fn precision(text: &str) -> Result<Precision, String> {
    let found = PRECISIONS.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, precision)| precision).ok_or_else(|| "write f32 or f64".into())
}

/// The word for a value of an option.
fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.plan.plan_only {
        return plan_only::run(arguments);
    }
    if let Some(name) = arguments.plan.given() {
        return Err(Failure::Usage(format!("{name} is for --plan-only; add that or leave it out")));
    }
    refuse_dash([arguments.input()], arguments.output())?;
    if arguments.last_size.is_some() && !(arguments.inverse && arguments.real) {
        return Err(Failure::Usage(
            "--last-size is the length of the real axis that --inverse --real gives; add both or leave it out".into(),
        ));
    }
    // Before a device is looked for; ranks of several processes leave their errors to the launch, which prints one.
    if Launch::detect(arguments.common.ranks.into()) != Launch::Mpi {
        Job::new(arguments).map_err(|error| Failure::Failed(error.to_string()))?;
    }
    let report = arguments.common.launch_together(|rank| {
        let (job, file) = Job::new(arguments)?;
        if let Some(failure) = no_double(rank, arguments, &job, &file)? {
            return Ok(Err(failure));
        }
        let report = match (job.precision, arguments.real) {
            (Precision::Single, true) => work::<f32>(rank, arguments, &job, &file),
            (Precision::Single, false) => work::<[f32; 2]>(rank, arguments, &job, &file),
            (Precision::Double, true) => work::<f64>(rank, arguments, &job, &file),
            (Precision::Double, false) => work::<[f64; 2]>(rank, arguments, &job, &file),
        };
        report.map(Ok)
    })?;
    arguments.common.print(report)
}

/// Why double precision cannot be had; all ranks find the same, so that they leave together.
fn no_double(rank: &Context, arguments: &Arguments, job: &Job, file: &NpyFile) -> Result<Option<Failure>, Error> {
    let mut lacking = [0];
    if job.precision.check("", rank.gpu.capabilities()).is_err() {
        lacking[0] = rank.comm.size() - rank.comm.rank();
    }
    let mut lacking = lacking.map(|n| n as u64);
    rank.comm.all_reduce(&mut lacking, Op::Max)?;
    if lacking == [0] {
        return Ok(None);
    }
    let first = rank.comm.size() - lacking[0] as usize;
    let mut name = [0u8; 256];
    let bytes = rank.gpu.info().name.as_bytes();
    let len = bytes.len().min(name.len());
    name[..len].copy_from_slice(&bytes[..len]);
    rank.comm.broadcast(first, &mut name)?;
    let device = String::from_utf8_lossy(&name).trim_end_matches('\0').to_string();
    let asks = match arguments.precision {
        Some(_) => "--precision f64 asks for".into(),
        None => format!("{} with its elements of type {} asks for", printable_path(file.path()), file.dtype()),
    };
    Ok(Some(Failure::Failed(format!(
        "{device} has no double precision (f64), which {asks}; \
         give --precision f32, or a --device that `meshloom devices` lists with f64"
    ))))
}

/// A transform that is ready, with what it is given and what it gives.
struct Work<'a, T: Value> {
    transform: Transform<T>,
    field: Array<T>,
    spectrum: Array<T::Mode>,
    recorder: Recorder,
    lines: GridComms,
    job: &'a Job,
}

impl<'a, T: Value> Work<'a, T> {
    fn new(rank: &Context, grid: Grid, job: &'a Job, file: &NpyFile) -> Result<Self, Error> {
        let gpu = &rank.gpu;
        let transform =
            Transform::with(gpu, &job.spec, grid, rank.comm.rank(), &Tuning::of(gpu), &TransformCallbacks::default());
        let transform = transform.map_err(|error| match error {
            FftError::Device(error) => Error::from(error),
            // The lengths are the file's, not the call's.
            error => IoError::Shape {
                path: file.path().into(),
                found: file.shape().to_vec(),
                wanted: format!("one that can be transformed ({error})"),
            }
            .into(),
        })?;
        Ok(Work {
            field: transform.field(gpu, &transform.field_layout())?,
            spectrum: transform.spectrum(gpu)?,
            recorder: Recorder::new(gpu)?,
            lines: GridComms::new(&rank.comm, grid)?,
            transform,
            job,
        })
    }

    /// Both arrays, and this rank's parts of them.
    fn ends(&mut self) -> (&mut Recorder, [Box3; 2], &Array<T>, &Array<T::Mode>) {
        let parts = [self.transform.field_part(), self.transform.spectrum_part()];
        (&mut self.recorder, parts, &self.field, &self.spectrum)
    }

    /// Reads the input; says whether it is finite on all ranks.
    fn read(&mut self, comm: &Communicator, file: &NpyFile) -> Result<bool, Error>
    where
        T: Stored,
        T::Mode: Stored,
    {
        let (inverse, shape) = (self.job.inverse, self.job.input);
        let (recorder, [cells, modes], field, spectrum) = self.ends();
        let finite = match inverse {
            true => fill(recorder, spectrum, file, &modes, shape)?,
            false => fill(recorder, field, file, &cells, shape)?,
        };
        let mut bad = [u64::from(!finite)];
        comm.all_reduce(&mut bad, Op::Max)?;
        Ok(bad == [0])
    }

    fn transform(&mut self) -> Result<(), Error> {
        let Work { transform, field, spectrum, recorder, lines, job } = self;
        let layout = transform.field_layout();
        if job.inverse {
            transform.inverse(recorder, lines, spectrum, None, field, &layout)?;
        } else {
            transform.forward(recorder, lines, field, &layout, spectrum)?;
        }
        Ok(recorder.wait()?)
    }

    fn write(&mut self, comm: &Communicator, arguments: &Arguments, finite: bool) -> Result<(), Error>
    where
        T: Stored,
        T::Mode: Stored,
    {
        let (job, path) = (self.job, arguments.output());
        // f64 overflows as NumPy does; in f32 that is a matter of units.
        let finite = finite && job.precision == Precision::Single;
        let axes = job.output_shape().len();
        let (recorder, [cells, modes], field, spectrum) = self.ends();
        if job.inverse {
            write_npy(comm, path, job.output_shape(), |to| {
                save(recorder, field, to, (&cells, job.output), (path, axes, finite))
            })
        } else {
            write_npy(comm, path, job.output_shape(), |to| {
                save(recorder, spectrum, to, (&modes, job.output), (path, axes, finite))
            })
        }
    }

    /// Bytes that the passes of this rank move through device memory.
    fn traffic(&self) -> u64 {
        let plan = self.transform.plan();
        if self.job.inverse { plan.inverse.traffic() } else { plan.forward.traffic() }
    }
}

/// One rank's work.
fn work<T>(rank: &Context, arguments: &Arguments, job: &Job, file: &NpyFile) -> Result<serde_json::Value, Error>
where
    T: Value<Mode: Stored> + Stored,
{
    let comm = &rank.comm;
    let mut phases = Phases::new(arguments.common.progress(comm.rank(), 4, "fft"));
    if comm.rank() == 0 {
        writable(arguments.output())?;
        if job.loses_digits(file.dtype()) {
            tracing::warn!("integers beyond 2^24 of {} lose digits in f32", file.path().display());
        }
    }
    let grid = match arguments.common.grid {
        Some(parts) => Grid::new(parts, comm.size())?,
        None => Grid::auto(job.spec.cells, comm.size()),
    };
    let mut work = Work::<T>::new(rank, grid, job, file)?;
    phases.done("plan");
    let finite = work.read(comm, file)?;
    phases.done("read");
    work.transform()?;
    phases.done("transform");
    work.write(comm, arguments, finite)?;
    phases.done("write");
    let cost = work.lines.cost();
    let mut sums = [work.traffic(), cost.sent, cost.messages];
    comm.all_reduce(&mut sums, Op::Sum)?;
    let dtype = if job.inverse { T::NAME } else { T::Mode::NAME };
    Ok(serde_json::json!({
        "command": "fft",
        "input": { "path": file.path().display().to_string(), "shape": file.shape(), "dtype": file.dtype().to_string() },
        "output": {
            "path": arguments.output().display().to_string(),
            "shape": job.output_shape(),
            "dtype": dtype,
        },
        "transform": job.name,
        "norm": word(&NORMS, &arguments.norm),
        "precision": word(&PRECISIONS, &job.precision),
        "device": rank.gpu.info().name,
        "ranks": comm.size(),
        "grid": grid.parts(),
        "seconds": phases.finish(),
        "bytes": { "device": sums[0], "between_ranks": sums[1] },
        "messages": sums[2],
    }))
}
