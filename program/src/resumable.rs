//! States that a run is resumed from: snapshots and a checkpoint, each a directory in the run's
//! own, and whole when it has its description.

use std::cell::Cell;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::io::cleanup;
use meshloom::io::{IoError, OutputDir, Sealed, printable_path};
use meshloom::pm::SimulationError;
use serde_json::Value;

use crate::described::{self, difference};
use crate::failure::Ended;
use crate::terminal;

/// The description of a state, which is written last.
pub const DESCRIPTION: &str = "snapshot.json";

/// The directory of the state of a run that was stopped between snapshots.
const CHECKPOINT: &str = "checkpoint";

/// The directory of a checkpoint that is being written beside the last one.
const NEXT: &str = "checkpoint.next";

/// Prefix of the names of directories of snapshots.
const SNAPSHOT: &str = "snapshot_";

/// Bytes of a state from which on it is to be spread over storage targets.
const STRIPED: u64 = 1 << 30;

/// Returns the warning of a directory on Lustre whose files have one stripe.
fn one_stripe(out: &Path) -> String {
    let out = printable_path(out);
    format!(
        "{out}: files there have one Lustre stripe, so all ranks write to one storage target; before the run: \
         lfs setstripe -c -1 -S 16M {out}"
    )
}

/// The states of a run.
pub struct States {
    out: PathBuf,
    /// Files that the command writes into their directories, by name.
    is_file: fn(&str) -> bool,
    /// Whether those of other runs are gone.
    cleared: Cell<bool>,
}

impl States {
    /// In the output directory `out`.
    pub fn new(out: &Path, is_file: fn(&str) -> bool) -> Self {
        States { out: out.into(), is_file, cleared: Cell::new(false) }
    }

    /// Returns the directory of a snapshot by its name.
    pub fn snapshot(&self, name: impl Display) -> PathBuf {
        self.out.join(format!("{SNAPSHOT}{name}"))
    }

    /// Returns the directory of the checkpoint.
    fn checkpoint(&self) -> PathBuf {
        self.out.join(CHECKPOINT)
    }

    /// Writes a checkpoint by `write` into the directory that this gets. The last checkpoint stays
    /// until the new one is complete. Collective.
    pub fn replace_checkpoint<E: From<Error>>(
        &self,
        comm: &Communicator,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        write(&self.out.join(NEXT))?;
        self.promote(comm)?;
        Ok(())
    }

    /// Replaces the last checkpoint by one that is complete. Collective.
    ///
    /// Its description moves last, so that a run that is killed meanwhile leaves one that is
    /// complete, and the next call goes on.
    fn promote(&self, comm: &Communicator) -> Result<(), Error> {
        let (next, checkpoint) = (self.out.join(NEXT), self.checkpoint());
        comm.together(|| {
            if comm.rank() != 0 || !next.join(DESCRIPTION).is_file() {
                return Ok::<_, Error>(());
            }
            // Without a description its files are those of an earlier call.
            if checkpoint.join(DESCRIPTION).exists() {
                self.remove(&checkpoint)?;
            }
            std::mem::forget(OutputDir::create(&checkpoint)?);
            let failed = |source| IoError::write(&checkpoint, 0, source);
            for entry in fs::read_dir(&next).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                if name.to_str().is_some_and(|name| (self.is_file)(name) && name != DESCRIPTION) {
                    fs::rename(next.join(&name), checkpoint.join(&name)).map_err(failed)?;
                }
            }
            fs::rename(next.join(DESCRIPTION), checkpoint.join(DESCRIPTION)).map_err(failed)?;
            // Unless something of the user's is in it.
            let _ = fs::remove_dir(&next);
            Ok(())
        })
    }

    /// Checks, before a run with these snapshots, that nothing else has the name of a directory of
    /// theirs or of the checkpoint, and no directory that of a file there or in the run's own.
    ///
    /// # Errors
    /// `IoErrorKind::FileType`.
    pub fn check_places(&self, snapshots: impl Iterator<Item = impl Display>) -> Result<(), IoError> {
        let states = snapshots.map(|name| self.snapshot(name)).chain([self.checkpoint(), self.out.join(NEXT)]);
        for path in states.chain([self.out.clone()]).filter(|path| path.exists()) {
            if !path.is_dir() {
                return Err(IoError::not_a_directory(path));
            }
            // A directory that cannot be listed is left to the writer.
            for entry in path.read_dir().into_iter().flatten().flatten() {
                if entry.file_name().to_str().is_some_and(self.is_file) && entry.path().is_dir() {
                    return Err(IoError::not_a_file(entry.path()));
                }
            }
        }
        Ok(())
    }

    /// Takes the directory of a run of `command` ([`described::take`]), and removes what killed
    /// runs have left there and in directories of states. Warns if files as long as a state of
    /// `state_bytes` bytes would be slow there. Collective.
    pub fn take_directory(
        &self,
        comm: &Communicator,
        command: &str,
        state_bytes: u64,
    ) -> Result<Option<OutputDir>, Ended> {
        let taken = described::take(comm, &self.out, command)?;
        if let Some(directory) = &taken {
            if state_bytes >= STRIPED && directory.stripes() == Some(1) {
                terminal::warn(&one_stripe(&self.out));
            }
            self.directories()?.iter().for_each(cleanup::clear_leftovers);
        }
        self.promote(comm)?;
        Ok(taken)
    }

    /// Makes the directory of a state, which stays where something is in it when rank 0 drops what
    /// it gets. Collective.
    pub fn make(&self, comm: &Communicator, directory: &Path) -> Result<Option<OutputDir>, Error> {
        let made = if comm.rank() == 0 { Some(OutputDir::create(directory)?) } else { None };
        comm.barrier()?;
        Ok(made)
    }

    /// Directories of states, whole ones and others, by name.
    pub fn directories(&self) -> Result<Vec<PathBuf>, IoError> {
        let failed = |source| IoError::read(&self.out, source);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.out).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let is_state =
                name == CHECKPOINT || name == NEXT || name.as_encoded_bytes().starts_with(SNAPSHOT.as_bytes());
            if is_state && entry.path().is_dir() {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }

    /// Returns the last state by its moment, an increasing number: the first of `snapshots`, which
    /// come latest first, that has a description, or the checkpoint if that is later, by the entry
    /// `key` of its description. Collective; all ranks must find the same.
    pub fn newest(
        &self,
        comm: &Communicator,
        snapshots: impl IntoIterator<Item = (u64, PathBuf)>,
        (key, moment): (&str, fn(&Value) -> Option<u64>),
    ) -> Result<Option<Found>, Error> {
        let read = |moment: u64, directory: PathBuf| -> Result<Option<Found>, Error> {
            let said = described::read(&directory.join(DESCRIPTION));
            let said = said.map_err(|error| refused(format!("{error}; or remove the snapshot")))?;
            Ok(said.map(|said| Found { moment, directory, said }))
        };
        let mut newest = None;
        for (moment, directory) in snapshots {
            newest = read(moment, directory)?;
            if newest.is_some() {
                break;
            }
        }
        if let Some(mut checkpoint) = read(0, self.checkpoint())? {
            let said = moment(&checkpoint.said[key]);
            checkpoint.moment = said.ok_or_else(|| checkpoint.bad(format!("{DESCRIPTION} has no {key}; remove it")))?;
            if newest.as_ref().is_none_or(|snapshot| snapshot.moment < checkpoint.moment) {
                newest = Some(checkpoint);
            }
        }
        match comm.first_to_differ(newest.as_ref().map_or(u64::MAX, |found| found.moment))? {
            Some(other) => Err(refused(format!(
                "{}: rank {other} finds another last snapshot than rank 0; all ranks must see the same files",
                printable_path(&self.out)
            ))),
            None => Ok(newest),
        }
    }

    /// [`described::publish`] of files with their description at `path`. Before this run's first
    /// the states of others go, as `is_other` tells by their descriptions, and `clear` removes what
    /// is not to stand beside these files. Collective.
    pub fn publish(
        &self,
        comm: &Communicator,
        path: &Path,
        whole: &Value,
        files: Vec<Sealed>,
        is_other: impl Fn(&Value) -> bool,
        clear: impl FnOnce(bool) -> Result<(), IoError>,
    ) -> Result<(), Error> {
        described::publish(comm, path, whole, files, |unfinished| {
            if !self.cleared.replace(true) {
                self.clear(path.parent(), is_other)?;
            }
            clear(unfinished)
        })
    }

    /// Removes states of other runs, and unfinished ones of a killed run, except the one in `kept`,
    /// which is being written: they would pass for states of this run, and `--resume` would find
    /// them. Files for which `is_file` is false stay, with their directory.
    fn clear(&self, kept: Option<&Path>, is_other: impl Fn(&Value) -> bool) -> Result<(), IoError> {
        for directory in self.directories()?.into_iter().filter(|directory| Some(directory.as_path()) != kept) {
            let path = directory.join(DESCRIPTION);
            let said = described::read(&path).ok().flatten().unwrap_or_default();
            if is_other(&said) || described::is_unfinished(&path) {
                self.remove(&directory)?;
            }
        }
        Ok(())
    }

    /// Removes the checkpoint of a run that has ended, as far as it can be removed.
    pub fn remove_checkpoint(&self) {
        for checkpoint in [self.checkpoint(), self.out.join(NEXT)] {
            if checkpoint.is_dir()
                && let Err(error) = self.remove(&checkpoint)
            {
                tracing::debug!(%error, "a checkpoint stays");
            }
        }
    }

    /// Removes the files of a state, and its directory where nothing else is in it.
    fn remove(&self, directory: &Path) -> Result<(), IoError> {
        // The description first: files without it are not a state.
        let path = directory.join(DESCRIPTION);
        described::remove(&path)?;
        described::remove_files(directory, self.is_file)?;
        described::remove(&described::mark(&path))?;
        // Unless something of the user's is in it.
        let _ = fs::remove_dir(directory);
        Ok(())
    }
}

/// A state that was found.
pub struct Found {
    /// The moment that it is of.
    pub moment: u64,
    pub directory: PathBuf,
    /// Its description.
    pub said: Value,
}

/// Returns the error of a run that cannot be resumed.
pub fn refused(why: String) -> Error {
    SimulationError::Resume { why }.into()
}

impl Found {
    /// Returns the error of a run that cannot be resumed from it.
    pub fn bad(&self, why: impl Display) -> Error {
        refused(format!("{}: {why}", printable_path(&self.directory)))
    }

    /// Returns the error where it is not what was written.
    pub fn damaged(&self, why: impl Display) -> Error {
        self.bad(format!("it is damaged; remove the snapshot ({why})"))
    }

    /// Checks that what its description says of its run, `theirs`, is what this run says.
    pub fn check_run(&self, theirs: &Value, ours: &Value) -> Result<(), Error> {
        match difference(theirs, ours) {
            Some((name, theirs, ours)) if !name.is_empty() => Err(self.bad(format!(
                "it belongs to a run with {name} = {theirs}, but this one has {ours}; use the same parameters or another --out"
            ))),
            _ => Ok(()),
        }
    }
}
