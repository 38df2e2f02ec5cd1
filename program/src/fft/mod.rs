//! `meshloom fft`: what NumPy's `fftn`, `ifftn`, `rfftn` and `irfftn` do to an array in a file.

mod arguments;
mod file_transform;
mod parts;
mod plan_only;

use meshloom::comm::{Communicator, Op};
use meshloom::exchange::GridComms;
use meshloom::fft::{FftError, Precision, Transform, TransformOptions, Value};
use meshloom::gpu::{Array, Recorder};
use meshloom::grid::{Box3, Grid};
use meshloom::io::collective::write_npy;
use meshloom::io::{IoError, NpyFile, printable_path};
use meshloom::{Error, Rank};

use crate::checked_files::{check_files, writable};
use crate::common;
use crate::failure::Failure;
use crate::output_name::check_name;
use crate::phases::Phases;
use crate::terminal;
pub use arguments::Arguments;
use file_transform::FileTransform;
use parts::{OutputPart, Stored, fill, save};

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.plan.plan_only {
        return plan_only::run(arguments);
    }
    let files = check_files([arguments.input()], [arguments.output()])?;
    check_name(arguments.output(), &["npy"])?;
    if arguments.last_size.is_some() && !(arguments.inverse && arguments.real) {
        return Err(Failure::Usage(
            "--last-size is the length of the real axis that --inverse --real gives; add both or leave it out".into(),
        ));
    }
    let report = arguments.common.launch(&files, |rank| {
        let comm = rank.comm.clone();
        let (request, file) = comm.together(|| {
            let (request, file) = FileTransform::new(arguments)?;
            check_precision(rank, arguments, &request, &file)?;
            writable(&comm, arguments.output())?;
            Ok::<_, Failure>((request, file))
        })?;
        let report = match (request.precision, arguments.real) {
            (Precision::Single, true) => work::<f32>(rank, arguments, &request, &file),
            (Precision::Single, false) => work::<[f32; 2]>(rank, arguments, &request, &file),
            (Precision::Double, true) => work::<f64>(rank, arguments, &request, &file),
            (Precision::Double, false) => work::<[f64; 2]>(rank, arguments, &request, &file),
        };
        Ok(report?)
    })?;
    arguments.common.print(report)
}

/// Refuses a device without the precision that is needed.
fn check_precision(rank: &Rank, arguments: &Arguments, request: &FileTransform, file: &NpyFile) -> Result<(), Failure> {
    if request.precision.check("", rank.gpu.capabilities()).is_ok() {
        return Ok(());
    }
    let device = &rank.gpu.info().name;
    let asks = match arguments.precision {
        Some(_) => "--precision f64 asks for".into(),
        None => format!("{} with its elements of type {} asks for", printable_path(file.path()), file.dtype()),
    };
    Err(Failure::Failed(format!(
        "{device} has no double precision (f64), which {asks}; \
         give --precision f32, or a --device that `meshloom devices` lists with f64"
    )))
}

/// One rank's part of a transform, with its arrays.
struct RankTransform<'a, T: Value> {
    transform: Transform<T>,
    field: Array<T>,
    spectrum: Array<T::Mode>,
    recorder: &'a mut Recorder,
    comms: GridComms,
    request: &'a FileTransform,
}

impl<'a, T: Value> RankTransform<'a, T> {
    fn new(rank: &'a mut Rank, grid: Grid, request: &'a FileTransform, file: &NpyFile) -> Result<Self, Error> {
        let gpu = &rank.gpu;
        let transform = Transform::with(gpu, &request.spec, grid, rank.comm.rank(), &TransformOptions::default());
        let transform = transform.map_err(|error| match error {
            FftError::Device(error) => Error::from(error),
            // The lengths are the file's and not the call's.
            error => IoError::shape(file.path(), file.shape(), format!("one that can be transformed ({error})")).into(),
        })?;
        Ok(RankTransform {
            field: transform.field(gpu, &transform.field_layout())?,
            spectrum: transform.spectrum(gpu)?,
            recorder: &mut rank.recorder,
            comms: GridComms::new(&rank.comm, grid)?,
            transform,
            request,
        })
    }

    /// Both arrays, and this rank's parts of them: cells and modes.
    fn arrays(&mut self) -> (&mut Recorder, [Box3; 2], &Array<T>, &Array<T::Mode>) {
        let parts = [self.transform.field_part(), self.transform.spectrum_part()];
        (self.recorder, parts, &self.field, &self.spectrum)
    }

    /// Reads the input; returns whether it is finite on all ranks.
    fn read(&mut self, comm: &Communicator, file: &NpyFile) -> Result<bool, Error>
    where
        T: Stored,
        T::Mode: Stored,
    {
        let (inverse, shape) = (self.request.inverse, self.request.input);
        let (recorder, [cells, modes], field, spectrum) = self.arrays();
        let finite = match inverse {
            true => fill(recorder, spectrum, file, &modes, shape)?,
            false => fill(recorder, field, file, &cells, shape)?,
        };
        let mut bad = [u64::from(!finite)];
        comm.all_reduce(&mut bad, Op::Max)?;
        Ok(bad == [0])
    }

    fn transform(&mut self) -> Result<(), Error> {
        let RankTransform { transform, field, spectrum, recorder, comms, request } = self;
        let layout = transform.field_layout();
        if request.inverse {
            transform.inverse(recorder, comms, spectrum, field, &layout)?;
        } else {
            transform.forward(recorder, comms, field, &layout, spectrum)?;
        }
        Ok(recorder.wait()?)
    }

    fn write(&mut self, comm: &Communicator, arguments: &Arguments, finite: bool) -> Result<(), Error>
    where
        T: Stored,
        T::Mode: Stored,
    {
        let (request, path) = (self.request, arguments.output());
        // In f64 overflow gives infinity, as in NumPy; in f32, which overflows in many units, it is
        // an error.
        let finite = finite && request.precision == Precision::Single;
        let axes = request.output_shape().len();
        let (recorder, [cells, modes], field, spectrum) = self.arrays();
        if request.inverse {
            write_npy(comm, path, request.output_shape(), |to| {
                save(recorder, field, to, &OutputPart { path, axes, shape: request.output, part: &cells, finite })
            })
        } else {
            write_npy(comm, path, request.output_shape(), |to| {
                save(recorder, spectrum, to, &OutputPart { path, axes, shape: request.output, part: &modes, finite })
            })
        }
    }

    /// Returns the bytes that the passes of this rank move through device memory.
    fn traffic(&self) -> u64 {
        let plan = self.transform.plan();
        if self.request.inverse { plan.inverse.traffic() } else { plan.forward.traffic() }
    }
}

/// One rank's work.
fn work<T>(
    rank: &mut Rank,
    arguments: &Arguments,
    request: &FileTransform,
    file: &NpyFile,
) -> Result<serde_json::Value, Error>
where
    T: Value<Mode: Stored> + Stored,
{
    let comm = &rank.comm.clone();
    let mut phases = Phases::new(arguments.common.progress(comm.rank(), 4, "fft"));
    if comm.rank() == 0 && request.loses_digits(file.dtype()) {
        let path = printable_path(file.path());
        terminal::warn(&format!("integers beyond 2^24 of {path} lose digits in f32; --precision f64 keeps them"));
    }
    let grid = arguments.common.process_grid(request.spec.cells, comm.shares())?;
    let mut work = RankTransform::<T>::new(rank, grid, request, file)?;
    phases.done("plan");
    let finite = work.read(comm, file)?;
    phases.done("read");
    work.transform()?;
    phases.done("transform");
    work.write(comm, arguments, finite)?;
    phases.done("write");
    let cost = work.comms.cost();
    let mut sums = [work.traffic(), cost.sent_bytes, cost.messages];
    comm.all_reduce(&mut sums, Op::Sum)?;
    let dtype = if request.inverse { T::NAME } else { T::Mode::NAME };
    Ok(serde_json::json!({
        "command": "fft",
        "input": { "path": file.path().display().to_string(), "shape": file.shape(), "dtype": file.dtype().to_string() },
        "output": {
            "path": arguments.output().display().to_string(),
            "shape": request.output_shape(),
            "dtype": dtype,
        },
        "transform": request.name,
        "norm": arguments.norm,
        "precision": common::Precision::from(request.precision),
        "device": rank.gpu.info().name,
        "ranks": comm.size(), "shares": common::shares_value(comm.shares()),
        "grid": grid.parts(),
        "host_seconds": phases.host_seconds(comm)?,
        "seconds": phases.finish(),
        "bytes": { "device": sums[0], "between_ranks": sums[1] },
        "messages": sums[2],
    }))
}
