//! The files of a run.

use std::path::{Path, PathBuf};

use meshloom::comm::Op;
use meshloom::grid::{Box3, extent};
use meshloom::io::{
    Column, IoError, NpyFile, OutputDir, Sealed, cleanup, csv_text, density_png_bytes, printable_path, seal_whole,
};
use meshloom::pm::{Config, Reached, Simulation, SimulationError};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

#[cfg(feature = "hdf5")]
use super::parameters::Hdf5;
use super::parameters::{Epoch, Parameters};

/// Displacements and momenta by axis.
type State = [[Vec<f32>; 3]; 2];

/// Where a run writes, and what a snapshot must know.
pub struct Outputs<'a> {
    parameters: &'a Parameters,
}

/// Written last: a snapshot that has it is whole.
const WHOLE: &str = "snapshot.json";

impl<'a> Outputs<'a> {
    pub fn new(parameters: &'a Parameters) -> Self {
        Outputs { parameters }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.parameters.out.join(name)
    }

    fn directory(&self, epoch: &Epoch) -> PathBuf {
        self.path(&format!("snapshot_{}", epoch.0))
    }

    /// Makes the directory of the run, and clears away what killed runs have left there and in directories of snapshots.
    pub fn create(&self) -> Result<OutputDir, IoError> {
        let directory = OutputDir::create(&self.parameters.out)?;
        for entry in std::fs::read_dir(directory.path()).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"snapshot_") {
                cleanup::clear_leftovers(entry.path());
            }
        }
        Ok(directory)
    }

    /// Writes the snapshot that was just reached.
    pub fn snapshot(&self, simulation: &mut Simulation, reached: Reached) -> Result<(), Error> {
        let Some(epoch) = self.parameters.snapshots.iter().find(|epoch| epoch.value() == reached.a) else {
            return Ok(());
        };
        let (directory, first) = (self.directory(epoch), simulation.comm().rank() == 0);
        let made = if first { Some(OutputDir::create(&directory)?) } else { None };
        simulation.comm().barrier()?;
        let [displacement, momentum] = simulation.phase_space()?;
        let positions = simulation.positions(&displacement);
        // Positions in f32 have lost digits of the displacement: a run goes on from the displacements themselves.
        let mut files = vec![
            simulation.seal_points(&directory.join("displacements.npy"), &displacement)?,
            simulation.seal_points(&directory.join("velocities.npy"), &momentum)?,
            simulation.seal_points(&directory.join("positions.npy"), &positions)?,
        ];
        files.extend(self.hdf5(simulation, &directory, &positions, &momentum)?);
        if first {
            let whole = json!({ "a": reached.a, "step": reached.step, "run": self.parameters.object() });
            let path = directory.join(WHOLE);
            files.push(seal_json(&path, &whole)?);
            // What an older run left is not whole while its files are replaced.
            if let Err(source) = std::fs::remove_file(&path)
                && source.kind() != std::io::ErrorKind::NotFound
            {
                return Err(IoError::Write { path, bytes: 0, source }.into());
            }
        }
        // Ranks with a file of their own wait until rank 0 has all of its.
        simulation.comm().barrier()?;
        for file in files {
            file.publish()?;
        }
        drop(made);
        simulation.comm().barrier()?;
        Ok(())
    }

    /// Writes the particles in HDF5, if that is asked for.
    #[cfg(feature = "hdf5")]
    pub fn hdf5(
        &self,
        simulation: &Simulation,
        directory: &Path,
        positions: &[Vec<f32>; 3],
        momentum: &[Vec<f32>; 3],
    ) -> Result<Option<Sealed>, Error> {
        use meshloom::io::hdf5::Files;

        let files = match self.parameters.hdf5 {
            None => return Ok(None),
            Some(Hdf5::One) => Files::One,
            Some(Hdf5::PerRank) => Files::PerRank,
        };
        simulation.seal_snapshot(&directory.join("snapshot.hdf5"), files, positions, momentum).map(Some)
    }

    /// Without HDF5 the parameters ask for none.
    #[cfg(not(feature = "hdf5"))]
    pub fn hdf5(
        &self,
        _: &Simulation,
        _: &Path,
        _: &[Vec<f32>; 3],
        _: &[Vec<f32>; 3],
    ) -> Result<Option<Sealed>, Error> {
        Ok(None)
    }

    /// The last whole snapshot of this very run: its step and this rank's part of the state.
    pub fn last_whole(&self, rank: &Rank, config: &Config) -> Result<Option<(usize, State)>, Error> {
        let mut epochs: Vec<&Epoch> = self.parameters.snapshots.iter().collect();
        epochs.sort_by(|a, b| b.value().total_cmp(&a.value()));
        for epoch in epochs {
            let directory = self.directory(epoch);
            let Ok(text) = std::fs::read_to_string(directory.join(WHOLE)) else { continue };
            let resume = |why: String| {
                Error::from(SimulationError::Resume { why: format!("{}: {why}", printable_path(&directory)) })
            };
            let whole: Value = serde_json::from_str(&text)
                .map_err(|e| resume(format!("{WHOLE} is damaged ({e}); remove the snapshot")))?;
            if whole["run"] != self.parameters.object() {
                let why = "it belongs to a run with other parameters; use the same ones or another --out".to_string();
                return Err(resume(why));
            }
            let step =
                whole["step"].as_u64().ok_or_else(|| resume(format!("{WHOLE} names no step; remove the snapshot")))?;
            let own = config.grid(rank.comm.size())?.part(config.sites(), rank.comm.rank());
            let n = config.particles;
            let read = |name: &str| {
                let rows = own[0].clone().flat_map(|i| own[1].clone().map(move |j| (i * n + j) * n));
                Simulation::read_points(config, rows, &NpyFile::open(directory.join(name))?)
            };
            return Ok(Some((step as usize, [read("displacements.npy")?, read("velocities.npy")?])));
        }
        Ok(None)
    }

    /// Draws the density, projected along the last axis.
    pub fn picture(&self, rank: &Rank, config: &Config, own: &Box3, density: &[f32]) -> Result<Option<Sealed>, Error> {
        let side = config.mesh as usize;
        let mut map = vec![0.0f64; side * side];
        let [_, width, depth] = extent(own).map(|n| n as usize);
        for (column, cells) in density.chunks(depth.max(1)).enumerate() {
            let (i, j) = (own[0].start as usize + column / width, own[1].start as usize + column % width);
            map[i * side + j] = cells.iter().map(|&c| f64::from(c)).sum::<f64>() / side as f64;
        }
        // Each column has one owner: the sum only gathers.
        rank.comm.all_reduce(&mut map, Op::Sum)?;
        if rank.comm.rank() != 0 {
            return Ok(None);
        }
        let map: Vec<f32> = map.into_iter().map(|v| v as f32).collect();
        let path = self.path("density.png");
        Ok(Some(seal_whole(&path, &density_png_bytes(&map, side, side, &path)?)?))
    }

    /// Writes the power spectrum of the density beside the linear one.
    pub fn spectrum(&self, rank: &Rank, simulation: &mut Simulation) -> Result<Option<Sealed>, Error> {
        let bins = simulation.power()?;
        if rank.comm.rank() != 0 {
            return Ok(None);
        }
        let k: Vec<f64> = bins.iter().map(|bin| bin.k).collect();
        let power: Vec<f64> = bins.iter().map(|bin| bin.power).collect();
        let modes: Vec<u64> = bins.iter().map(|bin| bin.modes).collect();
        let a = simulation.scale_factor();
        let linear: Vec<f64> = k.iter().map(|&k| simulation.linear_power().at(k, a)).collect::<Result<_, _>>()?;
        let columns = [
            ("k", Column::F64(&k)),
            ("P", Column::F64(&power)),
            ("modes", Column::U64(&modes)),
            ("P_linear", Column::F64(&linear)),
        ];
        let path = self.path("power_spectrum.csv");
        Ok(Some(seal_whole(&path, csv_text(&path, &columns)?.as_bytes())?))
    }

    /// Writes the run's own description.
    pub fn report(&self, report: &Value) -> Result<Sealed, Error> {
        seal_json(&self.path("run.json"), report)
    }
}

fn seal_json(path: &Path, value: &Value) -> Result<Sealed, Error> {
    Ok(seal_whole(path, format!("{value:#}\n").as_bytes())?)
}
