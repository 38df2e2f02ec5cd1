//! `meshloom power`: power spectra of fields and points, cross-spectra and multipoles.

mod arguments;
mod measurement;
mod modes;

use std::path::PathBuf;

use meshloom::comm::Op;
use meshloom::exchange::GridComms;
use meshloom::io::{Column, IoError, write_csv};
use meshloom::mesh::{Bin, ModeBinner, Modes, SpectrumGeometry};
use meshloom::{Context, Error};

use crate::checked_files::{check_files, writable};
use crate::failure::Failure;
use crate::output_name::{TABLE, check_name};
use crate::phases::Phases;
use crate::space::differences;
use crate::terminal;
pub use arguments::Arguments;
use measurement::{Content, InputFile, Measurement, open};
use modes::{MeshTransform, modes_of};

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let inputs = [Some(&arguments.input), arguments.cross.as_ref()].into_iter().flatten().map(PathBuf::as_path);
    let files = check_files(inputs.clone(), [arguments.output.as_path()])?;
    check_name(&arguments.output, &TABLE)?;
    arguments.particles.check(inputs)?;
    if let Some(inputs) = arguments.common.before_launch(Inputs::open(arguments))? {
        inputs.measurements(arguments)?;
    }
    let report = arguments.common.launch_together(&files, |context| {
        let inputs = Inputs::open(arguments)?;
        match inputs.measurements(arguments) {
            Ok(measurements) => measure(context, &inputs, &measurements).map(Ok),
            Err(failure) => Ok(Err(failure)),
        }
    })?;
    arguments.common.print(report)
}

/// The files of a call, opened: the first, and that of `--cross`.
struct Inputs(Vec<(InputFile, Content)>);

impl Inputs {
    fn open(arguments: &Arguments) -> Result<Self, IoError> {
        let paths = [Some(&arguments.input), arguments.cross.as_ref()];
        Ok(Inputs(paths.into_iter().flatten().map(|path| open(path, arguments.particles)).collect::<Result<_, _>>()?))
    }

    /// What is measured of each.
    fn measurements<'a>(&self, arguments: &'a Arguments) -> Result<Vec<Measurement<'a>>, Failure> {
        let (file, input) = &self.0[0];
        let other = self.0.get(1).map(|(file, _)| file);
        let mut measurements = vec![Measurement::new(arguments, (file, *input), other)?];
        if let (Some(path), Some((_, other))) = (&arguments.cross, self.0.get(1)) {
            measurements.push(measurements[0].of_other(path, *other)?);
        }
        Ok(measurements)
    }

    /// Says where two files may mean different things by their numbers.
    fn warn(&self) -> Result<(), IoError> {
        if let [(one, _), (other, _)] = &self.0[..] {
            let said = differences((one.path(), &one.space()?), (other.path(), &other.space()?));
            said.iter().for_each(|words| terminal::warn(words));
        }
        Ok(())
    }
}

/// One rank's work; rank 0 writes the file.
fn measure(context: &mut Context, inputs: &Inputs, measurements: &[Measurement]) -> Result<serde_json::Value, Error> {
    let (measurement, (_, input)) = (&measurements[0], &inputs.0[0]);
    let (comm, arguments) = (context.comm.clone(), measurement.arguments);
    let mut phases = Phases::new(arguments.common.progress(comm.rank(), 5, "power"));
    if comm.rank() == 0 {
        writable(&arguments.output)?;
        inputs.warn()?;
    }
    let grid = arguments.common.process_grid(measurement.shape, comm.size())?;
    let mut comms = GridComms::new(&comm, grid)?;
    let (table, distributed) = if inputs.0.iter().any(|(_, input)| *input == Content::Points(0)) {
        (Table::default(), 0)
    } else {
        let mut transform = MeshTransform::new(&mut context.recorder, &mut comms, measurement, *input)?;
        spectra(&mut transform, inputs, measurements, &mut phases)?
    };
    let mut sent = [distributed + comms.cost().sent];
    comm.all_reduce(&mut sent, Op::Sum)?;
    if comm.rank() == 0 {
        table.write(arguments)?;
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
        "bins": table.bins.len(),
        "cross": arguments.cross.as_ref().map(|path| path.display().to_string()),
        "multipoles": arguments.multipoles,
        "device": context.gpu.info().name,
        "ranks": comm.size(),
        "grid": grid.parts(),
        "host_seconds": phases.host_seconds(&comm)?,
        "seconds": phases.finish(),
        "bytes": { "device": null, "between_ranks": sent[0] },
    });
    match *input {
        Content::Field(shape) => report["shape"] = shape.to_vec().into(),
        Content::Points(count) => report["points"] = count.into(),
    }
    Ok(report)
}

/// What is measured: bins of the first input, and further columns.
#[derive(Default)]
struct Table {
    bins: Vec<Bin>,
    columns: Vec<(&'static str, Vec<f64>)>,
}

impl Table {
    fn write(&self, arguments: &Arguments) -> Result<(), IoError> {
        let k: Vec<f64> = self.bins.iter().map(|bin| bin.k).collect();
        let power: Vec<f64> = self.bins.iter().map(|bin| bin.power).collect();
        let modes: Vec<u64> = self.bins.iter().map(|bin| bin.modes).collect();
        let mut columns = vec![("k", Column::F64(&k)), ("P", Column::F64(&power)), ("modes", Column::U64(&modes))];
        columns.extend(self.columns.iter().map(|(name, values)| (*name, Column::F64(values))));
        // Without points nothing is measured; the names of the columns stay.
        if self.columns.is_empty() {
            let further = [(arguments.cross.is_some(), &CROSS[..]), (arguments.multipoles.is_some(), &MULTIPOLES[..])];
            let names = further.iter().filter(|(asked, _)| *asked).flat_map(|(_, names)| *names);
            columns.extend(names.map(|name| (*name, Column::F64(&[]))));
        }
        write_csv(&arguments.output, &columns)
    }
}

/// Further columns.
const CROSS: [&str; 3] = ["P_other", "P_cross", "correlation"];
const MULTIPOLES: [&str; 2] = ["P2", "P4"];

fn powers(bins: &[Bin]) -> Vec<f64> {
    bins.iter().map(|bin| bin.power).collect()
}

/// The correlation of two fields in each bin, from their powers and their cross-spectrum; not a number where a field has no power.
fn correlation(one: &[Bin], other: &[Bin], cross: &[f64]) -> Vec<f64> {
    one.iter().zip(other).zip(cross).map(|((p, q), r)| r / (p.power * q.power).sqrt()).collect()
}

/// The spectra, the same on all ranks, and the bytes that this rank sent to distribute points.
fn spectra(
    transform: &mut MeshTransform,
    inputs: &Inputs,
    measurements: &[Measurement],
    phases: &mut Phases,
) -> Result<(Table, u64), Error> {
    let (arguments, mut found) = (measurements[0].arguments, Vec::new());
    for (measurement, (file, input)) in measurements.iter().zip(&inputs.0) {
        found.push(modes_of(measurement, file, *input, transform, phases)?);
    }
    let part = transform.plan.spectrum_part();
    let geometry = SpectrumGeometry { shape: measurements[0].shape, size: measurements[0].size, part };
    let window = measurements[0].window.filter(|_| arguments.deconvolve);
    let modes: Vec<Modes> =
        found.iter().map(|of| Modes { modes: &of.modes, shifted: of.shifted.as_ref(), window }).collect();
    let (binner, recorder, comm) = (ModeBinner::default(), &mut *transform.recorder, transform.comms.world());
    let mut autos = Vec::new();
    for &modes in &modes {
        autos.push(binner.measure(recorder, comm, &geometry, modes)?);
    }
    let mut common = None;
    if let [one, other] = modes[..] {
        let cross = powers(&binner.cross(recorder, comm, &geometry, [one, other])?);
        // Before powers lose their shot noise, which may leave nothing or less of them.
        let correlation = correlation(&autos[0], &autos[1], &cross);
        common = Some([cross, correlation]);
    }
    for (bins, (_, input)) in autos.iter_mut().zip(&inputs.0) {
        if let (&Content::Points(count), true) = (input, arguments.shot_noise) {
            bins.iter_mut().for_each(|bin| bin.power -= measurements[0].volume() / count as f64);
        }
    }
    let mut columns = Vec::new();
    if let Some([cross, correlation]) = common {
        columns.extend(CROSS.into_iter().zip([powers(&autos[1]), cross, correlation]));
    }
    if let Some(axis) = &arguments.multipoles {
        let axis = ["x", "y", "z"].iter().position(|name| name == axis).unwrap_or(2);
        let all = binner.multipoles(recorder, comm, &geometry, modes[0], axis)?;
        let values = [all.iter().map(|of| of.quadrupole).collect(), all.iter().map(|of| of.hexadecapole).collect()];
        columns.extend(MULTIPOLES.into_iter().zip(values));
    }
    phases.done("bin");
    let sent = found.iter().map(|of| of.sent).sum();
    Ok((Table { bins: autos.swap_remove(0), columns }, sent))
}
