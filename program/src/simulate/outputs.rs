//! The files of a run.

use std::path::{Path, PathBuf};

use meshloom::comm::Communicator;
use meshloom::cosmology::Halofit;
use meshloom::io::collective::fingerprint;
use meshloom::io::{Column, IoError, Sealed, csv_text, seal_whole};
use meshloom::pm::{Config, Quantity, Simulation};
use meshloom::{Error, Rank};
use meshloom_program::plots::{Blocks, ColorScale, MapFigure};
use serde_json::Value;

use super::mass_function::redshift;
use super::options::Velocities;
use super::parameters::RunParameters;
use crate::described;
use crate::projection;
use crate::resumable::{self, States};
use crate::trace;

/// The output directory of a run.
pub struct Outputs<'a> {
    pub parameters: &'a RunParameters,
    /// [`RunParameters::object`].
    pub run: Value,
    pub states: States,
}

/// Files that every run writes.
const ALWAYS: [&str; 5] =
    [described::DESCRIPTION, "positions.npy", "velocities.npy", "power_spectrum.csv", "density.png"];

/// Files that only some runs write, besides those of [`part`] and [`sphere_table`].
const OPTIONAL: [&str; 11] = [
    "density.npy",
    "halos.npz",
    "halos.0.hdf5",
    "mass_function.csv",
    "mass_function.png",
    "snapshot.hdf5",
    "momenta.npy",
    "light_cone.npy",
    "light_cone.hdf5",
    "light_cone_halos.npz",
    "light_cone_halos.0.hdf5",
];

/// Files with groups of the linking length, which are written on request only.
const HALOS: [&str; 2] = ["halos.0.hdf5", "light_cone_halos.0.hdf5"];

/// Returns `true` if a file is one of a snapshot in several HDF5 files: `snapshot.3.hdf5`.
fn part(name: &str) -> bool {
    let number = name.strip_prefix("snapshot.").and_then(|rest| rest.strip_suffix(".hdf5"));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Returns `true` if a file is the mass function of a spherical overdensity.
fn sphere_table(name: &str) -> bool {
    name.starts_with("mass_function_") && name.ends_with(".csv")
}

/// Displacements of a state.
pub const DISPLACEMENTS: &str = "displacements.npy";

/// Returns `true` if a file of this name in the directory of a state is one that runs write there.
pub fn of_state(name: &str) -> bool {
    let written = ALWAYS[1..].iter().chain(&OPTIONAL).chain([&DISPLACEMENTS, &resumable::DESCRIPTION]);
    written.into_iter().any(|written| *written == name) || part(name) || sphere_table(name)
}

/// Returns the states of runs in `out`.
pub fn states(out: &Path) -> States {
    States::new(out, of_state)
}

/// Returns `true` if what a description says of its run is that of a simulation.
fn is_ours(run: &Value) -> bool {
    run["particles"].is_u64() && run["scheme"].is_string()
}

impl<'a> Outputs<'a> {
    /// Creates the outputs of a run with this rank's `noise`, if it was read from a file.
    /// Collective.
    pub fn new(
        rank: &Rank,
        parameters: &'a RunParameters,
        config: &Config,
        noise: Option<&[f32]>,
    ) -> Result<Self, Error> {
        let comm = &rank.comm;
        let mut noise_fingerprint = None;
        if let Some(noise) = noise {
            let rows = config.rows(comm.shares(), comm.rank())?;
            noise_fingerprint = Some(fingerprint(comm, rows, config.particles, &[noise])?);
        }
        Ok(Outputs { parameters, run: parameters.object(noise_fingerprint), states: states(&parameters.out) })
    }

    /// Returns the paths of a run's files in `out`.
    pub fn paths(out: &Path) -> Vec<PathBuf> {
        ALWAYS.iter().chain(&OPTIONAL).map(|name| out.join(name)).collect()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.parameters.out.join(name)
    }

    /// Returns the snapshots of the run.
    pub fn epochs(&self) -> impl Iterator<Item = f64> + use<'a> {
        self.parameters.options.snapshots.iter().copied()
    }

    /// Publishes files of this run with their description at `path`, without those of other runs
    /// beside them. Collective.
    pub fn publish(&self, comm: &Communicator, path: &Path, whole: &Value, files: Vec<Sealed>) -> Result<(), Error> {
        let is_other = |state: &Value| is_ours(&state["run"]) && state["run"] != self.run;
        self.states.publish(comm, path, whole, files, is_other, |unfinished| self.clear(path, unfinished))
    }

    /// Removes the description at `path`, if there is one, and files beside it that would pass for
    /// this run's: those of another run that this one does not replace, and parts of a snapshot in
    /// several files, which must be of one writing. Nothing is removed from a directory without a
    /// description of a run or the mark of an `unfinished` one.
    fn clear(&self, path: &Path, unfinished: bool) -> Result<(), IoError> {
        let older = described::read(path).ok().flatten();
        let runs = older.iter().flat_map(|older| [&older["run"], &older["parameters"]]);
        let runs: Vec<&Value> = runs.filter(|run| is_ours(run)).collect();
        if runs.is_empty() && !unfinished {
            return described::remove(path);
        }
        // A run that is resumed adds to its files; one that begins again replaces them.
        let same = self.parameters.options.resume && !unfinished && runs.contains(&&self.run);
        let parts = self.parameters.options.hdf5.is_some_and(|files| files.several().is_some());
        // The linking length is not part of the run's identity: halos of another length are
        // removed.
        let halos = self.parameters.linking.is_some();
        let outdated = |name: &str| {
            let of_halos = HALOS.contains(&name) || sphere_table(name);
            part(name) && (parts || !same)
                || (OPTIONAL.contains(&name) || sphere_table(name)) && !same
                || halos && of_halos
        };
        described::remove(path)?;
        path.parent().map_or(Ok(()), |directory| described::remove_files(directory, outdated))
    }

    /// Writes the particles in HDF5, with `--hdf5`.
    #[cfg(feature = "hdf5")]
    pub fn hdf5(
        &self,
        rank: &mut Rank,
        simulation: &mut Simulation,
        directory: &Path,
    ) -> Result<Option<Sealed>, Error> {
        use meshloom::io::hdf5::Files;

        let Some(files) = self.parameters.options.hdf5 else { return Ok(None) };
        let files = files.several().map_or(Files::One, Files::Several);
        Ok(Some(simulation.seal_snapshot(rank, &directory.join("snapshot.hdf5"), files)?))
    }

    /// Without the feature, `--hdf5` does not exist.
    #[cfg(not(feature = "hdf5"))]
    pub fn hdf5(&self, _: &mut Rank, _: &mut Simulation, _: &Path) -> Result<Option<Sealed>, Error> {
        Ok(None)
    }

    /// Returns what `velocities.npy` holds.
    pub fn velocities(&self) -> Quantity {
        match self.parameters.options.velocities {
            Velocities::Peculiar => Quantity::Velocity,
            Velocities::Canonical => Quantity::Momentum,
        }
    }

    /// Draws the density of the moment, of whose projection along the last axis `columns` are this
    /// rank's. Collective.
    pub fn picture(
        &self,
        comm: &Communicator,
        simulation: &Simulation,
        columns: &[f32],
    ) -> Result<Option<Sealed>, Error> {
        let config = simulation.config();
        let (grid, blocks) = (config.grid(comm.shares())?, Blocks::new([config.mesh; 2], MapFigure::most_cells(1)));
        let Some(density) = projection::gather(comm, &grid, config.mesh, blocks, columns)? else { return Ok(None) };
        let _activity = trace::activity("draw density");
        let colors = ColorScale::logarithmic(&[&density])?;
        let panel = projection::panel("", &density, blocks, config.box_size, &colors);
        let (particles, z) = (config.particles, redshift(simulation.scale_factor()));
        let title = format!("Density of {particles}³ particles at redshift {z}");
        let path = self.path("density.png");
        let picture = MapFigure { title: &title, panels: &[panel] }.draw(&path)?;
        Ok(Some(seal_whole(&path, &picture.png_bytes(&path)?)?))
    }

    /// Writes the power spectrum of the density of this moment beside the linear one and that of
    /// halofit. Collective.
    pub fn spectrum(
        &self,
        rank: &mut Rank,
        simulation: &mut Simulation,
        directory: &Path,
    ) -> Result<Option<Sealed>, Error> {
        let bins = simulation.power(rank)?;
        if rank.comm.rank() != 0 {
            return Ok(None);
        }
        let _activity = trace::activity("expected spectrum");
        let k: Vec<f64> = bins.iter().map(|bin| bin.k).collect();
        let power: Vec<f64> = bins.iter().map(|bin| bin.power).collect();
        let modes: Vec<u64> = bins.iter().map(|bin| bin.modes).collect();
        let a = simulation.scale_factor();
        let expected = simulation.linear_power();
        let linear: Vec<f64> = k.iter().map(|&k| expected.at(k, a)).collect::<Result<_, _>>()?;
        let halofit = Halofit::new(expected, a)?;
        let nonlinear: Vec<f64> = k.iter().map(|&k| halofit.at(k)).collect();
        let columns = [
            ("k", Column::F64(&k)),
            ("P", Column::F64(&power)),
            ("modes", Column::U64(&modes)),
            ("P_linear", Column::F64(&linear)),
            ("P_halofit", Column::F64(&nonlinear)),
        ];
        let path = directory.join("power_spectrum.csv");
        Ok(Some(seal_whole(&path, csv_text(&path, &columns)?.as_bytes())?))
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_have_numbers() {
        let names = ["snapshot.0.hdf5", "snapshot.12.hdf5", "snapshot.hdf5", "snapshot.x.hdf5", "snapshot.0.hdf5.part"];
        assert_eq!(names.map(part), [true, true, false, false, false]);
    }
}
