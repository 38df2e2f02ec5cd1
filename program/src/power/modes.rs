//! From a file of a field or of points to modes on the device.

use meshloom::exchange::GridComms;
use meshloom::fft::Transform;
use meshloom::gpu::{Array, Recorder};
use meshloom::grid::{Box3, MeshOptions, volume};
use meshloom::host_memory;
use meshloom::io::{IoError, IoErrorKind};
use meshloom::mesh::{MeshError, Painter, PointsInCells, density_contrast, field_contrast};
use meshloom::points::{BoxCheck, BoxUse};
use meshloom::{Error, Mesh};

use super::measurement::{Content, Input, Measurement};
use crate::coordinates::PointReader;
use crate::phases::Phases;
use crate::point_values::warn_of_unused_masses;
use crate::points::warn_of_box;

/// A mesh of one rank and its transform.
pub struct MeshTransform<'a> {
    pub recorder: &'a mut Recorder,
    pub comms: &'a mut GridComms,
    pub plan: Transform,
}

/// Modes of one rank on its device, in the order of its part of the spectrum.
pub type ModeArray = Array<[f32; 2]>;

/// The modes of this rank.
pub struct ModesOfInput {
    pub modes: ModeArray,
    /// Modes of the points moved by half a cell, for interlacing.
    pub shifted: Option<ModeArray>,
    /// Bytes sent to distribute points.
    pub sent: u64,
    /// The number of points of equal weight that have the same shot noise; `None` for a field.
    pub effective_count: Option<f64>,
}

impl<'a> MeshTransform<'a> {
    pub fn new(
        recorder: &'a mut Recorder,
        comms: &'a mut GridComms,
        measurement: &Measurement,
        input: Content,
    ) -> Result<Self, Error> {
        let plan = Transform::new(recorder.gpu(), measurement.shape, comms.grid(), comms.rank());
        let plan = plan.map_err(|error| match (Error::from(error), input) {
            // The lengths are the file's and not the call's.
            (Error::Fft(error), Content::Field(shape)) => {
                IoError::shape(measurement.path, shape, format!("one that can be transformed ({error})")).into()
            }
            (error, _) => error,
        })?;
        Ok(MeshTransform { recorder, comms, plan })
    }

    /// Returns the modes of a field.
    fn modes(&mut self, real: &Array<f32>) -> Result<ModeArray, Error> {
        let MeshTransform { recorder, comms, plan } = self;
        let spectrum = plan.spectrum(recorder.gpu())?;
        plan.forward(recorder, comms, real, &plan.field_layout(), &spectrum)?;
        Ok(spectrum)
    }

    /// Returns the modes of the density contrast of points.
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

    /// Returns a field in real space.
    fn real(&self) -> Result<Array<f32>, Error> {
        Ok(self.recorder.gpu().array("power::real", self.plan.field_layout().len())?)
    }
}

/// Returns the modes of an input.
pub fn modes_of(
    measurement: &Measurement,
    input: &Input,
    transform: &mut MeshTransform,
    phases: &mut Phases,
) -> Result<ModesOfInput, Error> {
    match input.content {
        Content::Field(_) => field_modes(measurement, &*input.file, transform, phases),
        Content::Points(count) => point_modes(measurement, input, count, transform, phases),
    }
}

/// Returns the modes of a field.
fn field_modes(
    measurement: &Measurement,
    file: &dyn PointReader,
    transform: &mut MeshTransform,
    phases: &mut Phases,
) -> Result<ModesOfInput, Error> {
    let own: Box3 = transform.plan.field_part();
    let [_, n1, n2] = measurement.shape;
    let mut values = host_memory::reserve("cells", volume(&own) as usize)?;
    if !own[1].is_empty() {
        for i in own[0].clone() {
            values.extend(file.read_f64((i * n1 + own[1].start) * n2..(i * n1 + own[1].end) * n2)?);
        }
    }
    let contrast = match measurement.is_contrast {
        true => field_contrast(transform.comms.world(), &own, &values),
        false => density_contrast(transform.comms.world(), &own, &values),
    };
    let contrast = contrast.map_err(|error| in_file(error, measurement))?;
    drop(values);
    phases.done("read");
    let real = transform.real()?;
    transform.recorder.upload(&real, 0, &contrast)?;
    let modes = transform.modes(&real)?;
    transform.recorder.wait()?;
    phases.done("transform");
    Ok(ModesOfInput { modes, shifted: None, sent: 0, effective_count: None })
}

/// Computes the modes of the density of points, and of the points moved by half a cell.
fn point_modes(
    measurement: &Measurement,
    Input { file, masses, .. }: &Input,
    count: u64,
    transform: &mut MeshTransform,
    phases: &mut Phases,
) -> Result<ModesOfInput, Error> {
    let (comm, grid) = (transform.comms.world().clone(), transform.comms.grid());
    let rows = comm.shares().split(count, comm.rank());
    let values = file.read_f64(3 * rows.start..3 * rows.end)?;
    if let Some((at, &value)) = (0..).zip(&values).find(|(_, value)| value.is_finite() && !(**value as f32).is_finite())
    {
        let index = [rows.start + at / 3, at % 3];
        return Err(IoError::beyond_f32(measurement.path, index, value).into());
    }
    let weights = masses.as_ref().map(|masses| masses.read(&comm, rows.clone())).transpose()?;
    if masses.is_none() {
        warn_of_unused_masses(&comm, &**file, measurement.arguments.particles, rows, measurement.masses_option)?;
    }
    phases.done("read");
    let (window, interlace) = (measurement.window.unwrap_or_default(), measurement.arguments.interlace);
    let (shape, size) = (measurement.shape, measurement.size);
    let options = MeshOptions { size, grid: Some(grid.parts()), ..MeshOptions::new(shape) };
    let mesh = Mesh::new(&options, grid.shares(), comm.rank())?;
    let mesh = PointsInCells::with_ghosts(&mesh, window, interlace)?;
    let (positions, _) = values.as_chunks::<3>();
    let recorder = &mut *transform.recorder;
    let points = PointsInCells::distribute(recorder, &comm, &mesh, positions, weights.as_deref());
    let mut points = points.map_err(|error| match (error, masses) {
        (error @ MeshError::Weights { .. }, Some(masses)) => {
            IoError::new(IoErrorKind::Value, masses.path(), error.to_string()).into()
        }
        (error, _) => in_file(error, measurement),
    })?;
    let mut box_check = BoxCheck::new(&size, BoxUse::Volume);
    box_check.add(&values);
    drop(values);
    warn_of_box(&comm, &box_check, measurement.path)?;
    phases.done("distribute");
    let painter = Painter::new(window);
    let modes = transform.modes_of_points(&points, &painter, phases)?;
    let mut shifted = None;
    if interlace {
        points.shift(transform.recorder, 0.5)?;
        shifted = Some(transform.modes_of_points(&points, &painter, phases)?);
    }
    Ok(ModesOfInput { modes, shifted, sent: points.sent(), effective_count: Some(points.effective_count()) })
}

/// Adds the path of the file to the error of a bad value.
fn in_file(error: MeshError, measurement: &Measurement) -> Error {
    match error {
        MeshError::NotFinite { index, value } => IoError::non_finite(measurement.path, index, value).into(),
        MeshError::NotDensity { .. } => {
            let option = if measurement.arguments.cross.is_some() {
                "--contrast, --contrast=first or --contrast=other"
            } else {
                "--contrast"
            };
            IoError::new(IoErrorKind::Value, measurement.path, format!("{error} ({option})")).into()
        }
        error => error.into(),
    }
}
