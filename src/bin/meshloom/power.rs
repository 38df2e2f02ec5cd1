//! `meshloom power`: power spectra of fields and points.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use meshloom::comm::Op;
use meshloom::exchange::GridComms;
use meshloom::fft::{Transform, good_size};
use meshloom::gpu::{Array, Recorder};
use meshloom::grid::{Box3, split};
use meshloom::io::{Column, IoError, NpyFile, is_hdf5, printable_path, write_csv};
use meshloom::mesh::{
    Bin, Mesh, MeshError, ModeBinner, Modes, Painter, PointsInCells, SpectrumGeometry, Window, density_contrast,
};
use meshloom::{Context, Error};

use crate::common::{Common, refuse_dash, writable};
use crate::coordinates::Coordinates;
use crate::failure::Failure;
use crate::phases::Phases;

#[derive(Args)]
pub struct Arguments {
    /// A field (3-D array, divided by its mean) or points (shape (N, 3)), f32 or f64; or a snapshot in HDF5
    #[arg(value_name = "FIELD.npy|POINTS.npy|SNAPSHOT.hdf5")]
    input: PathBuf,
    /// Sides of the periodic box [default: a snapshot's own]
    #[arg(long = "box", value_name = "L|LX,LY,LZ", value_parser = size, allow_hyphen_values = true)]
    size: Option<[f64; 3]>,
    /// The spectrum to write: wavenumber, power and number of modes of each bin
    #[arg(short, long, value_name = "OUT.csv")]
    output: PathBuf,
    /// Cells of the mesh that points are painted on [default: twice the cube root of their number, from 16 to 512]
    #[arg(long, value_name = "N|NX,NY,NZ", value_parser = shape)]
    mesh: Option<[u64; 3]>,
    /// Window that points are painted with or, with --deconvolve, that a field was painted with [default: cic]
    #[arg(long, value_name = "cic|tsc|pcs")]
    window: Option<Window>,
    /// Divide the power by that of the window
    #[arg(long)]
    deconvolve: bool,
    /// Paint points a second time half a cell away, against the strongest aliases
    #[arg(long)]
    interlace: bool,
    /// Subtract the power of as many random points: volume / number
    #[arg(long)]
    shot_noise: bool,
    #[command(flatten)]
    common: Common,
}

/// Parses one number for all axes or one for each.
fn three<T: Copy + std::str::FromStr>(text: &str) -> Option<[T; 3]> {
    let numbers: Option<Vec<T>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    match numbers?[..] {
        [all] => Some([all; 3]),
        [x, y, z] => Some([x, y, z]),
        _ => None,
    }
}

fn size(text: &str) -> Result<[f64; 3], String> {
    let open = |side: &str| side.trim() == "open" || side.trim().parse::<f64>() == Ok(0.0);
    if text.split(',').any(open) {
        return Err("a Fourier spectrum needs a box that is periodic along every axis; give its sides".into());
    }
    let size = three::<f64>(text).ok_or("write one length, or three with commas between")?;
    if is_box(&size) { Ok(size) } else { Err("every side must be a length from 1e-30 to 1e30".into()) }
}

/// Whether squares and volumes of lengths stay in the range of f64.
fn is_box(size: &[f64; 3]) -> bool {
    size.iter().all(|side| (1e-30..=1e30).contains(side))
}

/// The box of the call, else that of a snapshot's header.
fn box_of(arguments: &Arguments, file: &InputFile) -> Result<[f64; 3], Failure> {
    if let Some(size) = arguments.size {
        return Ok(size);
    }
    let own = match file {
        InputFile::Npy(_) => None,
        InputFile::Snapshot(points) => points.box_size(),
    };
    match own {
        None => Err(Failure::Usage("--box is missing: give the sides of the periodic box, as --box 128".into())),
        Some(own) => own.try_into().ok().filter(is_box).ok_or_else(|| {
            let path = printable_path(&arguments.input);
            Failure::Failed(format!("{path}: Header/BoxSize is no box that is periodic along every axis; give --box"))
        }),
    }
}

/// Longest side of a mesh: products of two sides stay within 32 bits, which kernels count in.
const MAX_SIDE: u64 = 1 << 14;

fn shape(text: &str) -> Result<[u64; 3], String> {
    let shape = three::<u64>(text).ok_or("write one number of cells, or three with commas between")?;
    if shape.iter().any(|n| !(1..=MAX_SIDE).contains(n)) {
        return Err(format!("every axis must have from 1 to {MAX_SIDE} cells"));
    }
    Ok(shape)
}

/// The content of a file, by its shape.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    Field([u64; 3]),
    Points(u64),
}

/// A file of a field or of points.
enum InputFile {
    Npy(NpyFile),
    Snapshot(Coordinates),
}

impl InputFile {
    fn read_f64(&self, elements: Range<u64>) -> Result<Vec<f64>, IoError> {
        match self {
            InputFile::Npy(file) => file.read_f64(elements),
            InputFile::Snapshot(points) => points.read_f64(elements),
        }
    }
}

fn open(path: &Path) -> Result<(InputFile, Content), IoError> {
    let (source, shape) = if is_hdf5(path) {
        let points = Coordinates::open(path)?;
        let shape = points.shape().to_vec();
        (InputFile::Snapshot(points), shape)
    } else {
        let file = NpyFile::open(path)?;
        let shape = file.shape().to_vec();
        (InputFile::Npy(file), shape)
    };
    let wrong = |wanted: &str| IoError::Shape { path: path.into(), found: shape.clone(), wanted: wanted.into() };
    let input = match shape[..] {
        [count, 3] => Content::Points(count),
        [n0, n1, n2] => Content::Field([n0, n1, n2]),
        [_, 2] => return Err(wrong("a spectrum in three dimensions: (N, 3) for points")),
        _ => return Err(wrong("three axes for a field, or (N, 3) for points")),
    };
    if let Content::Field(shape) = input
        && shape.contains(&0)
    {
        return Err(wrong("at least one cell along each axis"));
    }
    Ok((source, input))
}

/// A call, checked against its input.
struct Measurement<'a> {
    arguments: &'a Arguments,
    shape: [u64; 3],
    size: [f64; 3],
    /// The window that points are painted with, or that a field is to be corrected for.
    window: Option<Window>,
}

impl<'a> Measurement<'a> {
    fn new(arguments: &'a Arguments, file: &InputFile, input: Content) -> Result<Self, Failure> {
        let size = box_of(arguments, file)?;
        let usage = |message: &str| Err(Failure::Usage(message.into()));
        let window = arguments.window.unwrap_or_default();
        let (shape, window) = match input {
            Content::Points(count) => (arguments.mesh.unwrap_or([default_mesh(count); 3]), Some(window)),
            Content::Field(shape) => {
                if arguments.mesh.is_some_and(|mesh| mesh != shape) {
                    let [x, y, z] = shape;
                    return usage(&format!("--mesh is for points; this field has its own mesh of {x},{y},{z} cells"));
                }
                if arguments.window.is_some() && !arguments.deconvolve {
                    return usage(
                        "--window is for points; with a field it needs --deconvolve, to say what to divide by",
                    );
                }
                if arguments.interlace {
                    return usage("--interlace is for points; a field is painted already");
                }
                if arguments.shot_noise {
                    return usage("--shot-noise is for points; a field does not tell how many it was made of");
                }
                (shape, arguments.deconvolve.then_some(window))
            }
        };
        Ok(Measurement { arguments, shape, size, window })
    }

    fn volume(&self) -> f64 {
        self.size.iter().product()
    }
}

/// Twice the mean number of points along an axis, rounded up to an even size that can be transformed.
fn default_mesh(points: u64) -> u64 {
    // The cube root of a cube must not be rounded up by a floating-point error.
    let along = (2.0 * (points as f64).cbrt() - 1e-9).clamp(16.0, 512.0);
    2 * good_size((along / 2.0).ceil() as u64)
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    refuse_dash([arguments.input.as_path()], &arguments.output)?;
    let measurement = match arguments.common.before_launch(open(&arguments.input))? {
        Some((file, input)) => Some(Measurement::new(arguments, &file, input)?),
        None => None,
    };
    let report = arguments.common.launch(|context| {
        let (file, input) = open(&arguments.input)?;
        match &measurement {
            Some(measurement) => measure(context, measurement, &file, input),
            // The file has appeared since.
            None => Err(IoError::NotFound { path: arguments.input.clone() }.into()),
        }
    })?;
    arguments.common.print(report)
}

/// One rank's work; rank 0 writes the file.
fn measure(
    context: &mut Context,
    measurement: &Measurement,
    file: &InputFile,
    input: Content,
) -> Result<serde_json::Value, Error> {
    let (comm, arguments) = (context.comm.clone(), measurement.arguments);
    let mut phases = Phases::new(arguments.common.progress(comm.rank(), 5, "power"));
    if comm.rank() == 0 {
        writable(&arguments.output)?;
    }
    let grid = arguments.common.process_grid(measurement.shape, comm.size())?;
    let mut comms = GridComms::new(&comm, grid)?;
    let (bins, distributed) = match input {
        Content::Points(0) => (Vec::new(), 0),
        _ => {
            let mut transform = MeshTransform::new(&mut context.recorder, &mut comms, measurement, input)?;
            spectrum(&mut transform, measurement, file, input, &mut phases)?
        }
    };
    let mut sent = [distributed + comms.cost().sent];
    comm.all_reduce(&mut sent, Op::Sum)?;
    if comm.rank() == 0 {
        write(&arguments.output, &bins)?;
    }
    phases.done("write");
    let mut report = serde_json::json!({
        "command": "power",
        "file": arguments.input.display().to_string(),
        "output": arguments.output.display().to_string(),
        "mesh": measurement.shape,
        "box": measurement.size,
        "window": measurement.window.map(|window| window.to_string()),
        "deconvolve": arguments.deconvolve,
        "interlace": arguments.interlace,
        "shot_noise": arguments.shot_noise,
        "bins": bins.len(),
        "device": context.gpu.info().name,
        "ranks": comm.size(),
        "grid": grid.parts(),
        "host_seconds": phases.host_seconds(&comm)?,
        "seconds": phases.finish(),
        "bytes": { "between_ranks": sent[0] },
    });
    match input {
        Content::Field(shape) => report["shape"] = shape.to_vec().into(),
        Content::Points(count) => report["points"] = count.into(),
    }
    Ok(report)
}

/// The power spectrum, the same on all ranks, and the bytes that this rank sent to distribute points.
fn spectrum(
    transform: &mut MeshTransform,
    measurement: &Measurement,
    file: &InputFile,
    input: Content,
    phases: &mut Phases,
) -> Result<(Vec<Bin>, u64), Error> {
    let ModesOfInput { modes, shifted, sent } = match input {
        Content::Field(_) => field_modes(measurement, file, transform, phases)?,
        Content::Points(count) => point_modes(measurement, file, count, transform, phases)?,
    };
    let part = transform.plan.spectrum_part();
    let geometry = SpectrumGeometry { shape: measurement.shape, size: measurement.size, part };
    let window = measurement.window.filter(|_| measurement.arguments.deconvolve);
    let modes = Modes { modes: &modes, shifted: shifted.as_ref(), window };
    let mut bins = ModeBinner::default().measure(transform.recorder, transform.comms.world(), &geometry, modes)?;
    if let (Content::Points(count), true) = (input, measurement.arguments.shot_noise) {
        bins.iter_mut().for_each(|bin| bin.power -= measurement.volume() / count as f64);
    }
    phases.done("bin");
    Ok((bins, sent))
}

fn write(output: &Path, bins: &[Bin]) -> Result<(), IoError> {
    let k: Vec<f64> = bins.iter().map(|bin| bin.k).collect();
    let power: Vec<f64> = bins.iter().map(|bin| bin.power).collect();
    let modes: Vec<u64> = bins.iter().map(|bin| bin.modes).collect();
    write_csv(output, &[("k", Column::F64(&k)), ("P", Column::F64(&power)), ("modes", Column::U64(&modes))])
}

/// A mesh of one rank and its transform.
struct MeshTransform<'a> {
    recorder: &'a mut Recorder,
    comms: &'a mut GridComms,
    plan: Transform,
}

/// Modes of one rank on its device, in the order of its part of the spectrum.
type ModeArray = Array<[f32; 2]>;

/// The modes of this rank.
struct ModesOfInput {
    modes: ModeArray,
    /// Those of the points moved by half a cell, for interlacing.
    shifted: Option<ModeArray>,
    /// Bytes sent to distribute points.
    sent: u64,
}

impl<'a> MeshTransform<'a> {
    fn new(
        recorder: &'a mut Recorder,
        comms: &'a mut GridComms,
        measurement: &Measurement,
        input: Content,
    ) -> Result<Self, Error> {
        let plan = Transform::new(recorder.gpu(), measurement.shape, comms.grid(), comms.rank());
        let plan = plan.map_err(|error| match (Error::from(error), input) {
            // The lengths are the file's and not the call's.
            (Error::Fft(error), Content::Field(shape)) => IoError::Shape {
                path: measurement.arguments.input.clone(),
                found: shape.into(),
                wanted: format!("one that can be transformed ({error})"),
            }
            .into(),
            (error, _) => error,
        })?;
        Ok(MeshTransform { recorder, comms, plan })
    }

    /// The modes of a field.
    fn modes(&mut self, real: &Array<f32>) -> Result<ModeArray, Error> {
        let MeshTransform { recorder, comms, plan } = self;
        let spectrum = plan.spectrum(recorder.gpu())?;
        plan.forward(recorder, comms, real, &plan.field_layout(), &spectrum)?;
        Ok(spectrum)
    }

    /// The modes of the density contrast of points.
    fn modes_of_points(
        &mut self,
        points: &PointsInCells,
        painter: &Painter,
        phases: &mut Phases,
    ) -> Result<ModeArray, Error> {
        let real = self.real()?;
        points.density(self.recorder, self.comms, painter, -1.0, &real)?;
        phases.done("paint");
        let modes = self.modes(&real)?;
        self.recorder.wait()?;
        phases.done("transform");
        Ok(modes)
    }

    /// A field in real space.
    fn real(&self) -> Result<Array<f32>, Error> {
        Ok(self.recorder.gpu().array("power::real", self.plan.field_layout().len())?)
    }
}

/// The modes of a field.
fn field_modes(
    measurement: &Measurement,
    file: &InputFile,
    transform: &mut MeshTransform,
    phases: &mut Phases,
) -> Result<ModesOfInput, Error> {
    let own: Box3 = transform.plan.field_part();
    let [_, n1, n2] = measurement.shape;
    let mut values = Vec::new();
    if !own[1].is_empty() {
        for i in own[0].clone() {
            values.extend(file.read_f64((i * n1 + own[1].start) * n2..(i * n1 + own[1].end) * n2)?);
        }
    }
    let contrast =
        density_contrast(transform.comms.world(), &own, &values).map_err(|error| in_file(error, measurement))?;
    drop(values);
    phases.done("read");
    let real = transform.real()?;
    transform.recorder.upload(&real, 0, &contrast)?;
    let modes = transform.modes(&real)?;
    transform.recorder.wait()?;
    phases.done("transform");
    Ok(ModesOfInput { modes, shifted: None, sent: 0 })
}

/// The modes of the density of points, and of the points moved by half a cell.
fn point_modes(
    measurement: &Measurement,
    file: &InputFile,
    count: u64,
    transform: &mut MeshTransform,
    phases: &mut Phases,
) -> Result<ModesOfInput, Error> {
    let (comm, grid) = (transform.comms.world().clone(), transform.comms.grid());
    let rows = split(count, comm.size() as u64, comm.rank() as u64);
    let values = file.read_f64(3 * rows.start..3 * rows.end)?;
    phases.done("read");
    let (window, interlace) = (measurement.window.unwrap_or_default(), measurement.arguments.interlace);
    let (shape, size) = (measurement.shape, measurement.size);
    let mesh = Mesh::new(shape, size, grid, comm.rank(), PointsInCells::ghost_widths(window, interlace));
    let (positions, _) = values.as_chunks::<3>();
    let points = PointsInCells::distribute(transform.recorder, &comm, grid, mesh, size, positions);
    let mut points = points.map_err(|error| in_file(error, measurement))?;
    drop(values);
    phases.done("distribute");
    let painter = Painter::new(window);
    let modes = transform.modes_of_points(&points, &painter, phases)?;
    let mut shifted = None;
    if interlace {
        points.shift(transform.recorder, 0.5)?;
        shifted = Some(transform.modes_of_points(&points, &painter, phases)?);
    }
    Ok(ModesOfInput { modes, shifted, sent: points.sent() })
}

/// Adds the path of the file to the error of a bad value.
fn in_file(error: MeshError, measurement: &Measurement) -> Error {
    match error {
        MeshError::NotFinite { index, value } => {
            IoError::NonFinite { path: measurement.arguments.input.clone(), index, value }.into()
        }
        error => error.into(),
    }
}
