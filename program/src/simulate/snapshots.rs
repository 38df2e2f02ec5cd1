//! Snapshots of a run, the checkpoint of one that was stopped, and resuming from the last of them.

use std::path::{Path, PathBuf};

use meshloom::io::collective::fingerprint;
use meshloom::io::{NpyFile, Sealed, printable_path};
use meshloom::pm::{ConeParticles, Config, LightCone, Quantity, Reached, Simulation};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use super::halos::{self, Halos};
use super::options::Velocities;
use super::outputs::{DISPLACEMENTS, Outputs};
use crate::described::difference;
use crate::resumable::{DESCRIPTION, refused};

/// Displacements and momenta of a rank's particles, as rows.
pub type State = [Vec<f32>; 2];

/// Returns the files of a state: momenta are the velocities of a run, unless it writes peculiar
/// ones.
fn state_files(outputs: &Outputs) -> [&'static str; 2] {
    let peculiar = outputs.parameters.options.velocities == Velocities::Peculiar;
    [DISPLACEMENTS, if peculiar { "momenta.npy" } else { "velocities.npy" }]
}

/// The particles that have crossed the light cone so far, where the run has one.
const CROSSED: &str = "light_cone.npy";

/// Returns the description of a snapshot without its fingerprints.
fn describe(outputs: &Outputs, a: f64, step: usize) -> Value {
    json!({ "a": a, "step": step, "run": outputs.run })
}

/// Fingerprints of the arrays of a state and of what has crossed the light cone, by file.
/// Collective.
fn fingerprints(
    rank: &Rank,
    outputs: &Outputs,
    config: &Config,
    state: &State,
    crossed: Option<&ConeParticles>,
) -> Result<Value, Error> {
    let mut marks = Vec::new();
    for values in state {
        let rows = config.rows(rank.comm.shares(), rank.comm.rank())?;
        marks.push(fingerprint(&rank.comm, rows.map(|row| 3 * row), 3 * config.particles, &[values])?);
    }
    marks.extend(crossed.map(|crossed| crossed.fingerprint(&rank.comm)).transpose()?);
    let files = state_files(outputs).into_iter().chain([CROSSED]);
    Ok(files.zip(marks).map(|(name, mark)| (name.to_string(), Value::from(format!("{mark:016x}")))).collect())
}

/// Writes the snapshot that was just reached, unless the run was `resumed` from it. Where that
/// fails a checkpoint keeps the steps; among several ranks, which write it
/// beforehand, it does only after the last step, since it is as long as the snapshot. Collective.
pub fn write(
    outputs: &Outputs,
    rank: &mut Rank,
    simulation: &mut Simulation,
    light_cone: Option<&LightCone>,
    (reached, resumed): (Reached, bool),
) -> Result<(), Error> {
    let directory = outputs.states.snapshot(reached.a);
    if resumed {
        // All ranks must agree, since they write together: rank 0 decides.
        let mut there = [u64::from(directory.join(DESCRIPTION).exists())];
        rank.comm.broadcast(0, &mut there)?;
        if there == [1] {
            return Ok(());
        }
    }
    let state = simulation.phase_space(rank)?;
    let others = rank.comm.size() > 1;
    let kept = resumed || others && reached.step < simulation.steps();
    let keep = |(rank, simulation): &mut (&mut Rank, &mut Simulation)| match kept {
        true => Ok(()),
        false => write_checkpoint(outputs, rank, simulation, &state, light_cone, reached),
    };
    let write = |(rank, simulation): &mut (&mut Rank, &mut Simulation)| {
        write_whole(outputs, rank, simulation, (&state, light_cone), reached, &directory)
    };
    keeping(&mut (rank, simulation), others, keep, write)
}

/// Writes a snapshot of `state` in its directory, with its groups. Collective.
fn write_whole(
    outputs: &Outputs,
    rank: &mut Rank,
    simulation: &mut Simulation,
    (state, light_cone): (&State, Option<&LightCone>),
    reached: Reached,
    directory: &Path,
) -> Result<(), Error> {
    let crossed = light_cone.map(|light_cone| light_cone.particles(rank)).transpose()?;
    let mut halos = None;
    if let Some(linking) = outputs.parameters.linking {
        let clouds = halos::clouds(rank, simulation)?;
        // Groups need the memory of the particles, which are here.
        simulation.release(rank)?;
        halos = Some(Halos::find(rank, simulation, clouds, linking, &outputs.parameters.overdensities)?);
        simulation.upload(rank, state)?;
    }
    let comm = rank.comm.clone();
    let place = StatePlace { outputs, directory, reached, halos: halos.as_ref(), crossed: crossed.as_ref() };
    let made = outputs.states.make(&comm, directory)?;
    let spectrum = outputs.spectrum(rank, simulation, directory)?;
    place.write(rank, simulation, state, |rank, simulation, files| {
        files.push(simulation.seal_particles(rank, &directory.join("positions.npy"), Quantity::Position)?);
        // Momenta are part of the state.
        if outputs.velocities() == Quantity::Velocity {
            files.push(simulation.seal_particles(rank, &directory.join("velocities.npy"), Quantity::Velocity)?);
        }
        files.extend(outputs.hdf5(rank, simulation, directory)?);
        files.extend(spectrum);
        if let Some(halos) = &halos {
            files.extend(halos.seal(&comm, outputs, simulation, directory)?);
        }
        Ok(())
    })?;
    drop(made);
    Ok(())
}

/// Writes the `state` of a run between snapshots, in place of the last checkpoint. Collective.
pub fn write_checkpoint(
    outputs: &Outputs,
    rank: &mut Rank,
    simulation: &mut Simulation,
    state: &State,
    light_cone: Option<&LightCone>,
    reached: Reached,
) -> Result<(), Error> {
    let crossed = light_cone.map(|light_cone| light_cone.particles(rank)).transpose()?;
    let comm = rank.comm.clone();
    outputs.states.replace_checkpoint(&comm, |directory| {
        let place = StatePlace { outputs, directory, reached, halos: None, crossed: crossed.as_ref() };
        let made = outputs.states.make(&comm, directory)?;
        place.write(rank, simulation, state, |_, _, _| Ok(()))?;
        drop(made);
        Ok(())
    })
}

/// Does `work` that comes after the steps such that they are not lost where it fails: `keep` writes
/// what the run is resumed from. Of one rank it does when the work has failed or was stopped; among
/// `others` it does before, since those that wait for a rank that has failed can do nothing
/// together any more.
pub fn keeping<C, T, E: From<Error>>(
    rank: &mut C,
    others: bool,
    keep: impl FnOnce(&mut C) -> Result<(), Error>,
    work: impl FnOnce(&mut C) -> Result<T, E>,
) -> Result<T, E> {
    if others {
        keep(rank)?;
        return work(rank);
    }
    work(rank).or_else(|failed| {
        keep(rank)?;
        Err(failed)
    })
}

/// Place and moment of a state.
struct StatePlace<'a> {
    outputs: &'a Outputs<'a>,
    directory: &'a Path,
    reached: Reached,
    halos: Option<&'a Halos>,
    crossed: Option<&'a ConeParticles>,
}

impl StatePlace<'_> {
    /// Writes the state with its description, and the files that `more` adds. Collective.
    fn write(
        &self,
        rank: &mut Rank,
        simulation: &mut Simulation,
        state: &State,
        more: impl FnOnce(&mut Rank, &mut Simulation, &mut Vec<Sealed>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let StatePlace { outputs, directory, reached, halos, crossed } = self;
        let mut whole = describe(outputs, reached.a, reached.step);
        whole["halos"] = halos.map(|halos| halos.report(&rank.comm)).transpose()?.into();
        whole["fingerprints"] = fingerprints(rank, outputs, simulation.config(), state, *crossed)?;
        // Positions in f32 lose digits of the displacements, which a resumed run needs.
        let mut files = Vec::new();
        for (name, values) in state_files(outputs).iter().zip(state) {
            files.push(simulation.seal_rows(&directory.join(name), values)?);
        }
        files.extend(crossed.map(|crossed| crossed.seal(&rank.comm, &directory.join(CROSSED))).transpose()?);
        more(rank, simulation, &mut files)?;
        outputs.publish(&rank.comm, &directory.join(DESCRIPTION), &whole, files)
    }
}

/// State that a run is resumed from.
pub struct LastWhole {
    pub step: usize,
    pub state: State,
    /// Particles that had crossed the light cone, if the run has one.
    pub crossed: Option<ConeParticles>,
}

/// Returns the last whole snapshot of this run: its step and this rank's part of the state.
/// Collective.
///
/// A snapshot with a description that is damaged, of another run or of another moment is an error
/// and not skipped, since the run would overwrite good files.
pub fn last_whole(outputs: &Outputs, rank: &Rank, config: &Config) -> Result<Option<LastWhole>, Error> {
    let mut epochs: Vec<_> = outputs.epochs().collect();
    epochs.sort_by(|a, b| b.total_cmp(a));
    // The bits of positive numbers grow as these do.
    let snapshots = epochs.into_iter().map(|a| (a.to_bits(), outputs.states.snapshot(a)));
    let found = outputs.states.newest(&rank.comm, snapshots, ("a", |a| a.as_f64().map(f64::to_bits)))?;
    let Some(mut found) = found else {
        // Snapshots are boundaries of steps, so that those of other moments belong to other steps.
        let whole = |directory: &PathBuf| directory.join(DESCRIPTION).is_file();
        return match outputs.states.directories()?.into_iter().find(whole) {
            Some(other) => Err(refused(format!(
                "{}: it is a snapshot of a run with other --snapshots; name its moment there, or use another --out to start again",
                printable_path(&other)
            ))),
            None => Ok(None),
        };
    };
    let a = f64::from_bits(found.moment);
    let marks = found.said["fingerprints"].take();
    // The linking length may be another now.
    found.said["halos"].take();
    let step = config.step_at(a)?.ok_or_else(|| found.bad("this run has no step there"))?;
    let mut wanted = describe(outputs, a, step);
    (wanted["fingerprints"], wanted["halos"]) = (Value::Null, Value::Null);
    found.check_run(&found.said["run"], &wanted["run"])?;
    if let Some((name, theirs, ours)) = difference(&found.said, &wanted) {
        return Err(found.bad(format!(
            "{DESCRIPTION} says {name} = {theirs}, but a snapshot in this place has {ours}; remove the snapshot"
        )));
    }
    let read = |name: &str| -> Result<Vec<f32>, Error> {
        let file = NpyFile::open(found.directory.join(name))?;
        Ok(Simulation::read_rows(config, config.rows(rank.comm.shares(), rank.comm.rank())?, &file)?)
    };
    let read = |name: &str| read(name).map_err(|error| found.damaged(error));
    let [displacements, momenta] = state_files(outputs);
    let state = [read(displacements)?, read(momenta)?];
    let crossed = match outputs.parameters.light_cone {
        Some(_) => Some(
            ConeParticles::read(&rank.comm, &found.directory.join(CROSSED)).map_err(|error| found.damaged(error))?,
        ),
        None => None,
    };
    let have = fingerprints(rank, outputs, config, &state, crossed.as_ref())?;
    if let Some((name, ..)) = difference(&marks, &have) {
        let name = if name.is_empty() { "its state" } else { name.as_str() };
        return Err(found.bad(format!("{name} is not what was written with {DESCRIPTION}; remove the snapshot")));
    }
    Ok(Some(LastWhole { step, state, crossed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_kept_where_what_follows_fails() {
        let failed = || Err::<(), Error>(refused("no memory".into()));
        // What is done, and in which order.
        let done = |others: bool, work: &dyn Fn() -> Result<(), Error>| {
            let mut done = Vec::new();
            let keep = |done: &mut Vec<&str>| {
                done.push("keep");
                Ok(())
            };
            let result = keeping(&mut done, others, keep, |done| {
                done.push("work");
                work()
            });
            (done, result.is_ok())
        };
        assert_eq!(done(false, &|| Ok(())), (vec!["work"], true));
        assert_eq!(done(false, &failed), (vec!["work", "keep"], false));
        assert_eq!(done(true, &|| Ok(())), (vec!["keep", "work"], true));
        assert_eq!(done(true, &failed), (vec!["keep", "work"], false));
    }
}
