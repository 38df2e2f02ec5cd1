//! States that a run is resumed from: snapshots and a checkpoint, each a directory in the run's own, and whole when it has its description.

use std::cell::Cell;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::io::{IoError, OutputDir, cleanup};
use serde_json::Value;

use crate::described;
use crate::run_directory;

/// The description of a state, which is written last.
pub const DESCRIPTION: &str = "snapshot.json";

/// The directory of the state of a run that was stopped between snapshots.
const CHECKPOINT: &str = "checkpoint";

/// What the names of directories of snapshots begin with.
pub const SNAPSHOT: &str = "snapshot_";

/// The states of a run.
pub struct States {
    out: PathBuf,
    /// Whether those of other runs are gone.
    cleared: Cell<bool>,
}

impl States {
    /// In the output directory `out`.
    pub fn new(out: &Path) -> Self {
        States { out: out.into(), cleared: Cell::new(false) }
    }

    /// The directory of a snapshot by its name.
    pub fn snapshot(&self, name: impl Display) -> PathBuf {
        self.out.join(format!("{SNAPSHOT}{name}"))
    }

    /// The directory of the checkpoint.
    pub fn checkpoint(&self) -> PathBuf {
        self.out.join(CHECKPOINT)
    }

    /// Takes the run's directory ([`run_directory::take`]), and removes what killed runs have left there and in directories of states. All ranks call it.
    pub fn take_directory(&self, comm: &Communicator) -> Result<Option<OutputDir>, Error> {
        let taken = run_directory::take(comm, &self.out)?;
        if taken.is_some() {
            self.directories()?.iter().for_each(cleanup::clear_leftovers);
        }
        Ok(taken)
    }

    /// Directories of states, whole ones and others, by name.
    pub fn directories(&self) -> Result<Vec<PathBuf>, IoError> {
        let failed = |source| IoError::Read { path: self.out.clone(), source };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.out).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let is_state = name == CHECKPOINT || name.as_encoded_bytes().starts_with(SNAPSHOT.as_bytes());
            if is_state && entry.path().is_dir() {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes, before something of this run stands beside them, states of others and those that a killed run has not finished: one of another run would pass
    /// for this one's, and `--resume` would find it in place of this one's own. It is done once. The state in `kept` is being written. `is_other` is told
    /// what a description says of its run; `is_file` knows files of states by name, and others stay, with their directory.
    pub fn clear(
        &self,
        kept: Option<&Path>,
        is_other: impl Fn(&Value) -> bool,
        is_file: impl Fn(&str) -> bool,
    ) -> Result<(), IoError> {
        if self.cleared.replace(true) {
            return Ok(());
        }
        for directory in self.directories()?.into_iter().filter(|directory| Some(directory.as_path()) != kept) {
            let path = directory.join(DESCRIPTION);
            let said = described::read(&path).ok().flatten().unwrap_or_default();
            if is_other(&said["run"]) || described::is_unfinished(&path) {
                remove(&directory, &is_file)?;
            }
        }
        Ok(())
    }

    /// Removes the checkpoint of a run that has ended, as far as it can be removed.
    pub fn remove_checkpoint(&self, is_file: impl Fn(&str) -> bool) {
        if let Err(error) = remove(&self.checkpoint(), is_file) {
            tracing::debug!(%error, "a checkpoint stays");
        }
    }
}

/// Removes the files of a state, and its directory where nothing else is in it.
fn remove(directory: &Path, is_file: impl Fn(&str) -> bool) -> Result<(), IoError> {
    if !directory.is_dir() {
        return Ok(());
    }
    // The description first: what is left without it is no state.
    let path = directory.join(DESCRIPTION);
    described::remove(&path)?;
    described::remove_files(directory, is_file)?;
    described::remove(&described::mark(&path))?;
    // Unless something of the user's is in it.
    let _ = fs::remove_dir(directory);
    Ok(())
}
