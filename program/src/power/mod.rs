//! `meshloom power`: power spectra of fields and points, cross-spectra and multipoles.

mod arguments;
mod measurement;
mod modes;

use std::path::PathBuf;

use meshloom::comm::Op;
use meshloom::exchange::GridComms;
use meshloom::io::{Column, IoError, write_csv};
use meshloom::mesh::{Bin, ModeBinner, Modes, SpectrumGeometry};
use meshloom::{Error, Rank};

use crate::checked_files::{check_files, writable};
use crate::failure::Failure;
use crate::output_name::{TABLE, check_name};
use crate::phases::Phases;
use crate::space::differences;
use crate::terminal;
pub use arguments::{Arguments, Contrast};
use measurement::{CROSS_MASSES, Content, Input, MASSES, Measurement};
use modes::{MeshTransform, modes_of};

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let inputs =
        [Some(&arguments.input), arguments.cross.as_ref(), arguments.masses.as_ref(), arguments.cross_masses.as_ref()];
    let inputs = inputs.into_iter().flatten().map(PathBuf::as_path);
    let files = check_files(inputs.clone(), [arguments.output.as_path()])?;
    check_name(&arguments.output, &TABLE)?;
    arguments.particles.check(inputs)?;
    let report = arguments.common.launch(&files, |rank| {
        let comm = rank.comm.clone();
        let inputs = comm.together(|| {
            let inputs = Inputs::open(arguments)?;
            inputs.measurements(arguments)?;
            writable(&comm, &arguments.output)?;
            if comm.rank() == 0 {
                inputs.warn()?;
            }
            Ok::<_, Failure>(inputs)
        })?;
        let measurements = inputs.measurements(arguments)?;
        Ok(measure(rank, &inputs, &measurements)?)
    })?;
    arguments.common.print(report)
}

/// The files of a call, opened: the first, and that of `--cross`.
struct Inputs(Vec<Input>);

impl Inputs {
    fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let masses = |option, path: &'_ Option<PathBuf>| path.clone().map(|path| (option, path));
        let paths = [
            (Some(&arguments.input), masses(MASSES, &arguments.masses)),
            (arguments.cross.as_ref(), masses(CROSS_MASSES, &arguments.cross_masses)),
        ];
        let mut inputs = Vec::new();
        for (path, masses) in paths {
            let Some(path) = path else { continue };
            let masses = masses.as_ref().map(|(option, path)| (*option, path.as_path()));
            inputs.push(Input::open(path, masses, arguments.particles)?);
        }
        Ok(Inputs(inputs))
    }

    /// Returns what is measured of each.
    fn measurements<'a>(&self, arguments: &'a Arguments) -> Result<Vec<Measurement<'a>>, Failure> {
        self.check_contrast(arguments)?;
        let Input { file, content, .. } = &self.0[0];
        let other = self.0.get(1).map(|input| &*input.file);
        let mut measurements = vec![Measurement::new(arguments, (&**file, *content), other)?];
        if let (Some(path), Some(other)) = (&arguments.cross, self.0.get(1)) {
            measurements.push(measurements[0].of_other(path, other.content)?);
        }
        Ok(measurements)
    }

    /// Refuses --contrast where it would have no effect.
    fn check_contrast(&self, arguments: &Arguments) -> Result<(), Failure> {
        let is_field = |at: usize| self.0.get(at).is_some_and(|input| matches!(input.content, Content::Field(_)));
        let usage = |message: &str| Err(Failure::Usage(message.into()));
        match arguments.contrast {
            Some(Contrast::Both) if !is_field(0) && !is_field(1) => {
                usage("--contrast is for fields; points have a density")
            }
            Some(Contrast::First) if !is_field(0) => {
                usage("--contrast=first is for fields, and the first input has points")
            }
            Some(Contrast::Other) if !is_field(1) => {
                usage("--contrast=other is for a field that is given with --cross")
            }
            _ => Ok(()),
        }
    }

    /// Warns of differences in the meaning of the numbers of two files.
    fn warn(&self) -> Result<(), IoError> {
        if let [Input { file: one, .. }, Input { file: other, .. }] = &self.0[..] {
            let said = differences((one.path(), &one.space()?), (other.path(), &other.space()?));
            said.iter().for_each(|words| terminal::warn(words));
        }
        Ok(())
    }
}

/// One rank's work; rank 0 writes the file.
fn measure(rank: &mut Rank, inputs: &Inputs, measurements: &[Measurement]) -> Result<serde_json::Value, Error> {
    let (measurement, input) = (&measurements[0], &inputs.0[0].content);
    let (comm, arguments) = (rank.comm.clone(), measurement.arguments);
    let mut phases = Phases::new(arguments.common.progress(comm.rank(), 5, "power"));
    let grid = arguments.common.process_grid(measurement.shape, comm.shares())?;
    let mut comms = GridComms::new(&comm, grid)?;
    let (table, distributed) = if inputs.0.iter().any(|input| input.content == Content::Points(0)) {
        (Table::default(), 0)
    } else {
        let mut transform = MeshTransform::new(&mut rank.recorder, &mut comms, measurement, *input)?;
        spectra(&mut transform, inputs, measurements, &mut phases)?
    };
    let mut sent = [distributed + comms.cost().sent_bytes];
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
        "contrast": measurements.iter().map(|measurement| measurement.is_contrast).collect::<Vec<_>>(),
        "masses": arguments.masses.as_ref().map(|path| path.display().to_string()),
        "cross_masses": arguments.cross_masses.as_ref().map(|path| path.display().to_string()),
        "cross": arguments.cross.as_ref().map(|path| path.display().to_string()),
        "multipoles": arguments.multipoles,
        "device": rank.gpu.info().name,
        "ranks": comm.size(), "shares": crate::common::shares_value(comm.shares()),
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

/// Results: bins of the first input, and further columns.
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

/// Returns the correlation of two fields in each bin, from their powers and their cross-spectrum;
/// NaN where a field has no power.
///
/// It is between -1 and 1 after the correction for the rounding of powers.
fn correlation(one: &[Bin], other: &[Bin], cross: &[f64]) -> Vec<f64> {
    const ROUNDING: f64 = 1e-4;
    let bounded = |r: f64| if (1.0..1.0 + ROUNDING).contains(&r.abs()) { r.signum() } else { r };
    one.iter().zip(other).zip(cross).map(|((p, q), r)| bounded(r / (p.power * q.power).sqrt())).collect()
}

/// Returns the spectra, the same on all ranks, and the bytes that this rank sent to distribute
/// points.
fn spectra(
    transform: &mut MeshTransform,
    inputs: &Inputs,
    measurements: &[Measurement],
    phases: &mut Phases,
) -> Result<(Table, u64), Error> {
    let (arguments, mut found) = (measurements[0].arguments, Vec::new());
    for (measurement, input) in measurements.iter().zip(&inputs.0) {
        found.push(modes_of(measurement, input, transform, phases)?);
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
    for (bins, of) in autos.iter_mut().zip(&found) {
        if let (Some(count), true) = (of.effective_count, arguments.shot_noise) {
            bins.iter_mut().for_each(|bin| bin.power -= measurements[0].volume() / count);
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
