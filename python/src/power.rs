//! Power spectra of points and of fields.

use meshloom::fft::{Spec, Transform};
use meshloom::gpu::Array;
use meshloom::grid::{Grid, Mesh, MeshOptions, extent};
use meshloom::mesh::{
    Bin, MeshError, ModeBinner, Modes, Painter, PointsInCells, SpectrumGeometry, Window, density_contrast,
    field_contrast,
};
use meshloom::points::{BoxCheck, BoxUse};
use meshloom::rank::{Parts, Rank};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::host_array::{indices, to_numpy};
use crate::points::{Rows, warn_of_box};
use crate::session::Work;

/// Mean wavenumbers, mean powers and numbers of modes.
type Spectrum<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<i64>>);

/// Parameters of a measurement.
#[derive(Clone, Copy)]
struct Measurement {
    shape: [u64; 3],
    size: [f64; 3],
    window: Option<Window>,
    deconvolve: bool,
    interlace: bool,
}

/// The modes of one rank's part of a spectrum.
type ModeArray = Array<[f32; 2]>;

impl Measurement {
    /// Returns the spectrum of the result of `modes`: the modes, and those shifted by half a cell.
    fn measure(
        &self,
        work: &mut Work,
        modes: impl FnOnce(&Self, &mut Parts<'_>, &Transform) -> Result<(ModeArray, Option<ModeArray>), Failure>,
    ) -> Result<Vec<Bin>, Failure> {
        let (ranks, rank) = (work.context.comm.size(), work.context.comm.rank());
        let (grid, spec) = (Grid::new([ranks, 1], ranks)?, Spec::of::<f32>(self.shape));
        let make = |context: &mut Rank| Ok(Transform::<f32>::new(&context.gpu, self.shape, grid, rank)?);
        work.with_transform(&spec, grid, make, |mut parts, transform| {
            let (modes, shifted) = modes(self, &mut parts, transform)?;
            let geometry = SpectrumGeometry { shape: self.shape, size: self.size, part: transform.spectrum_part() };
            let window = self.window.filter(|_| self.deconvolve);
            let modes = Modes { modes: &modes, shifted: shifted.as_ref(), window };
            Ok(ModeBinner::default().measure(parts.recorder, parts.comms.world(), &geometry, modes)?)
        })
    }
}

/// Returns the modes of a real field on the device.
fn modes_of(parts: &mut Parts<'_>, transform: &Transform, field: &Array<f32>) -> Result<ModeArray, Failure> {
    let spectrum = transform.spectrum(parts.gpu)?;
    transform.forward(parts.recorder, parts.comms, field, &transform.field_layout(), &spectrum)?;
    Ok(spectrum)
}

/// Returns the modes of the density contrast of points, and of the points moved by half a cell
/// where they are interlaced.
fn point_modes(
    measurement: &Measurement,
    parts: &mut Parts<'_>,
    transform: &Transform,
    (positions, weights): (&[f64], Option<&[f32]>),
) -> Result<PointModes, Failure> {
    let Measurement { shape, size, interlace, .. } = *measurement;
    let (window, grid) = (measurement.window.unwrap_or_default(), parts.comms.grid());
    let options = MeshOptions { size, grid: Some(grid.parts()), ..MeshOptions::new(shape) };
    let mesh = Mesh::new(&options, grid.ranks(), parts.comms.rank())?;
    let mesh = PointsInCells::with_ghosts(&mesh, window, interlace)?;
    let positions = positions.as_chunks::<3>().0;
    let (recorder, comm) = (&mut *parts.recorder, parts.comms.world());
    let mut points = PointsInCells::distribute(recorder, comm, &mesh, positions, weights)?;
    let painter = Painter::new(window);
    let paint = |parts: &mut Parts<'_>, points: &PointsInCells| {
        let density = parts.gpu.array::<f32>("power::density", transform.field_layout().len())?;
        points.density(parts.recorder, parts.comms, &painter, -1.0, &density)?;
        modes_of(parts, transform, &density)
    };
    let modes = paint(parts, &points)?;
    let mut shifted = None;
    if interlace {
        points.shift(parts.recorder, 0.5)?;
        shifted = Some(paint(parts, &points)?);
    }
    Ok(PointModes { modes: (modes, shifted), effective_count: points.effective_count() })
}

/// The modes of the density contrast of points.
struct PointModes {
    /// Modes of the points, and of the points moved by half a cell.
    modes: (ModeArray, Option<ModeArray>),
    /// The number of points of equal weight that have the same shot noise.
    effective_count: f64,
}

fn window_named(name: Option<&str>) -> PyResult<Option<Window>> {
    name.map(|name| name.parse().map_err(PyValueError::new_err)).transpose()
}

fn spectrum(py: Python<'_>, bins: Vec<Bin>) -> Spectrum<'_> {
    let k = bins.iter().map(|bin| bin.k).collect();
    let power = bins.iter().map(|bin| bin.power).collect();
    (to_numpy(py, k), to_numpy(py, power), indices(py, bins.iter().map(|bin| bin.modes).collect()))
}

/// Measures the power spectrum of the density contrast of all ranks' points, with weights or
/// without, on a mesh of this size and shape. `painting` has the window, whether the power is
/// divided by the window's, and whether points are interlaced. Returns also the number of points of
/// equal weight that have the same shot noise.
#[pyfunction]
pub fn power_of_points<'py>(
    py: Python<'py>,
    comm: &Comm,
    points: &Bound<'py, PyAny>,
    weights: Option<&Bound<'py, PyAny>>,
    mesh: ([f64; 3], [u64; 3]),
    painting: (String, bool, bool),
) -> PyResult<(Spectrum<'py>, f64)> {
    let ((size, shape), (window, deconvolve, interlace)) = (mesh, painting);
    let measurement = Measurement { shape, size, window: window_named(Some(&window))?, deconvolve, interlace };
    let rows = Rows::new(points, &comm.session)?;
    let weights = weights.map(|weights| Rows::new(weights, &comm.session)).transpose()?;
    let (bins, effective_count) = comm.session.run(py, move |work| {
        let positions = rows.to_f64(&mut work.context.recorder)?;
        drop(rows);
        let (mut check, comm) = (BoxCheck::new(&size, BoxUse::Volume), work.context.comm.clone());
        check.add(&positions);
        warn_of_box(work, &comm, "data", &check)?;
        let weights = weights.map(|weights| weights.to_f64(&mut work.context.recorder)).transpose()?;
        let weights: Option<Vec<f32>> = weights.map(|weights| weights.iter().map(|&weight| weight as f32).collect());
        let mut effective_count = 0.0;
        let bins = measurement.measure(work, |measurement, parts, transform| {
            let found = point_modes(measurement, parts, transform, (&positions, weights.as_deref()))?;
            effective_count = found.effective_count;
            Ok(found.modes)
        })?;
        Ok((bins, effective_count))
    })?;
    Ok((spectrum(py, bins), effective_count))
}

/// Measures the power spectrum of a field, of which each rank has a part of the first axis: of a
/// density, which is divided by its mean, or of a field that is a contrast already.
#[pyfunction]
pub fn power_of_field<'py>(
    py: Python<'py>,
    comm: &Comm,
    field: &Bound<'py, PyAny>,
    mesh: ([f64; 3], [u64; 3]),
    window: Option<&str>,
    contrast: bool,
) -> PyResult<Spectrum<'py>> {
    let (size, shape) = mesh;
    let window = window_named(window)?;
    let measurement = Measurement { shape, size, window, deconvolve: window.is_some(), interlace: false };
    let rows = Rows::new(field, &comm.session)?;
    let bins = comm.session.run(py, move |work| {
        measurement.measure(work, |_, parts, transform| {
            let (own, values) = (transform.field_part(), rows.to_f64(parts.recorder)?);
            let want = extent(&own).iter().product::<u64>();
            if values.len() as u64 != want {
                let have = values.len();
                return Err(Failure::Value(format!(
                    "this rank's part has {have} cells, {want} are needed: numpy.array_split along the first axis"
                )));
            }
            let contrast = match contrast {
                true => field_contrast(parts.comms.world(), &own, &values)?,
                false => density_contrast(parts.comms.world(), &own, &values).map_err(|error| match error {
                    MeshError::NotDensity { .. } => Failure::Value(format!("data: {error} (contrast=True)")),
                    error => error.into(),
                })?,
            };
            let density = parts.gpu.array::<f32>("power::density", want)?;
            parts.recorder.upload(&density, 0, &contrast)?;
            Ok((modes_of(parts, transform, &density)?, None))
        })
    })?;
    Ok(spectrum(py, bins))
}
