//! Cosmological particle-mesh runs.

use meshloom::comm::{Communicator, Op};
use meshloom::cosmology::{LinearPower, LptOrder, Scheme, TransferKind};
use meshloom::fft::{Spec, Transform};
use meshloom::grid::{Grid, volume};
use meshloom::mesh::{Bin, Window};
use meshloom::pm::{Config, Noise, NoiseBy, Quantity, Simulation, device_mode_noise, device_white_noise};
use meshloom::rank::{Parts, Rank};
use numpy::{PyArray1, PyArrayDyn};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::comm::Comm;
use crate::cosmology::{CosmologyTuple, cosmology};
use crate::failure::Failure;
use crate::host_array::{HostArray, indices, to_numpy};

/// Particles at one time.
struct Snapshot {
    a: f64,
    /// Coordinates and peculiar velocities, particle by particle.
    positions: Vec<f32>,
    velocities: Vec<f32>,
    power: Vec<Bin>,
}

impl Snapshot {
    /// Returns the state of a run. Collective.
    fn of(simulation: &mut Simulation, context: &mut Rank) -> Result<Self, Failure> {
        let a = simulation.scale_factor();
        // Looks whether all particles are where they can be.
        simulation.phase_space(context)?;
        let positions = simulation.particles(context, Quantity::Position)?;
        let velocities = simulation.particles(context, Quantity::Velocity)?;
        Ok(Snapshot { a, positions, velocities, power: simulation.power(context)? })
    }

    fn dictionary(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let found = PyDict::new(py);
        found.set_item("a", self.a)?;
        found.set_item("positions", to_numpy(py, self.positions))?;
        found.set_item("velocities", to_numpy(py, self.velocities))?;
        found.set_item("k", to_numpy(py, self.power.iter().map(|bin| bin.k).collect::<Vec<f64>>()))?;
        found.set_item("power", to_numpy(py, self.power.iter().map(|bin| bin.power).collect::<Vec<f64>>()))?;
        found.set_item("modes", indices(py, self.power.iter().map(|bin| bin.modes).collect()))?;
        Ok(found)
    }
}

fn noise_named(name: &str) -> PyResult<NoiseBy> {
    match name {
        "mode" => Ok(NoiseBy::Mode),
        "site" => Ok(NoiseBy::Site),
        _ => Err(PyValueError::new_err(format!("noise_by: expected \"mode\" or \"site\", got {name:?}"))),
    }
}

/// Returns what `options` says of a run; what it leaves out is as in [`Config::default`].
pub fn config(options: &Bound<'_, PyDict>, ranks: usize) -> PyResult<Config> {
    let mut config = Config::default();
    let wrong = |name: &str, value: &Bound<'_, PyAny>, known: &str| {
        PyValueError::new_err(format!("{name}: expected {known}, got {value}"))
    };
    for (name, value) in options {
        let name: String = name.extract()?;
        match name.as_str() {
            "particles" => config.particles = value.extract()?,
            "mesh" => config.mesh = value.extract()?,
            "box" => config.box_size = value.extract()?,
            "seed" => config.seed = value.extract()?,
            "a_start" => config.a_start = value.extract()?,
            "a_end" => config.a_end = value.extract()?,
            "noise_by" => config.noise_by = noise_named(&value.extract::<String>()?)?,
            "steps" => config.steps = value.extract()?,
            "snapshots" => config.snapshots = value.extract()?,
            "cosmology" => config.cosmology = cosmology(value.extract::<CosmologyTuple>()?)?,
            "lpt" => {
                config.lpt =
                    LptOrder::from_number(value.extract()?).ok_or_else(|| wrong(&name, &value, "1, 2 or 3"))?;
            }
            "scheme" => {
                config.scheme = match value.extract::<String>()?.as_str() {
                    "fastpm" => Scheme::FastPm,
                    "bullfrog" => Scheme::BullFrog,
                    _ => return Err(wrong(&name, &value, "\"fastpm\" or \"bullfrog\"")),
                }
            }
            "migrate" => config.migrate = value.str()?.extract::<String>()?.parse().map_err(PyValueError::new_err)?,
            "window" => config.window = value.extract::<String>()?.parse::<Window>().map_err(PyValueError::new_err)?,
            _ => return Err(PyValueError::new_err(format!("there is no option `{name}`"))),
        }
    }
    // Parts of one rank after the other are all particles in their order.
    config.grid = Some([ranks, 1]);
    config.validate().map_err(Failure::from)?;
    Ok(config)
}

/// Returns what the user of a run should know that goes ahead although its numbers spoil its
/// physics. Without a device.
#[pyfunction]
pub fn run_warnings(options: &Bound<'_, PyDict>) -> PyResult<Vec<String>> {
    let config = config(options, 1)?;
    let power = LinearPower::new(config.cosmology, TransferKind::Full).map_err(Failure::from)?;
    Ok(config.warnings(&power).map_err(Failure::from)?)
}

/// Returns the white noise that runs of a seed begin with, of this rank's part of the first axis.
/// Collective.
#[pyfunction]
pub fn noise_of_seed<'py>(
    py: Python<'py>,
    comm: &Comm,
    particles: u64,
    seed: u64,
    noise_by: &str,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let (noise_by, sites) = (noise_named(noise_by)?, [particles; 3]);
    let values = comm.session.run(py, move |work| {
        let (ranks, rank) = (work.context.comm.size(), work.context.comm.rank());
        let (grid, spec) = (Grid::new([ranks, 1], ranks)?, Spec::of::<f32>(sites));
        let make = |context: &mut Rank| Ok(Transform::<f32>::new(&context.gpu, sites, grid, rank)?);
        work.with_transform(&spec, grid, make, |Parts { recorder, comms, .. }, transform| {
            let own = transform.field_part();
            let field = recorder.gpu().array::<f32>("pm::noise", volume(&own))?;
            match noise_by {
                NoiseBy::Site => device_white_noise(recorder, seed, sites, &own, &field)?,
                NoiseBy::Mode => {
                    let modes = transform.spectrum(recorder.gpu())?;
                    device_mode_noise(recorder, seed, particles, &transform.spectrum_part(), &modes)?;
                    transform.inverse(recorder, comms, &modes, &field, &transform.field_layout())?;
                }
            }
            Ok(recorder.download(&field, 0, field.len())?)
        })
    })?;
    Ok(to_numpy(py, values))
}

/// Ends a run on all ranks where `progress` has failed on one: the others would wait for that one
/// in the next step. Collective.
fn go_on_together(comm: &Communicator, told: PyResult<()>) -> Result<(), Failure> {
    let mut failed = [u32::from(told.is_err())];
    comm.all_reduce(&mut failed, Op::Max)?;
    told?;
    if failed == [0] { Ok(()) } else { Err(Failure::Elsewhere) }
}

/// Returns a run on all ranks: its snapshots in order, the last one at its end. `progress(step,
/// steps, a)` is called after each step.
#[pyfunction]
pub fn simulate<'py>(
    py: Python<'py>,
    comm: &Comm,
    options: &Bound<'py, PyDict>,
    noise: Option<&Bound<'py, PyArrayDyn<f32>>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let config = config(options, comm.session.size())?;
    let noise = noise.map(HostArray::new).transpose()?;
    let snapshots = comm.session.run(py, move |work| {
        let a_end = config.a_end;
        let values = noise.as_ref().map_or(Noise::Seed, |noise| Noise::Values(noise.as_slice()));
        let mut simulation = Simulation::new(&mut work.context, config, values)?;
        drop(noise);
        let mut snapshots = Vec::new();
        let watch = work.watch();
        let steps = simulation.steps();
        let ended = simulation.run(&mut work.context, |simulation, context, reached| {
            watch.go_on()?;
            let told = match &progress {
                Some(progress) => Python::attach(|py| progress.call1(py, (reached.step, steps, reached.a)).map(|_| ())),
                None => Ok(()),
            };
            go_on_together(&context.comm, told)?;
            if reached.snapshot && reached.a != a_end {
                snapshots.push(Snapshot::of(simulation, context)?);
            }
            Ok::<_, Failure>(())
        });
        match ended {
            // The rank that has failed says why.
            Err(Failure::Elsewhere) => return Ok(Vec::new()),
            ended => ended?,
        }
        snapshots.push(Snapshot::of(&mut simulation, &mut work.context)?);
        Ok(snapshots)
    })?;
    snapshots.into_iter().map(|snapshot| snapshot.dictionary(py)).collect()
}
