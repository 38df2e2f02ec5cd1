//! The state that `infer` and `reconstruct` go on from: that of the fit, and what problem it is of.

use std::path::{Path, PathBuf};

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::io::{IoError, OutputDir, printable_path, write_whole};
use serde_json::{Value, json};

use crate::described;
use crate::failure::Failure;

const DIRECTORY: &str = "state";
const FIT: &str = "state.npz";
const DESCRIPTION: &str = "problem.json";

/// A state that was found.
pub struct Found {
    path: PathBuf,
    problem: Value,
    /// Ranks of each of its groups; 0 where that is not known.
    pub each: usize,
}

/// The state in the output directory `out`, if a fit has left one. All ranks find the same.
pub fn find(out: &Path) -> Result<Option<Found>, IoError> {
    let directory = out.join(DIRECTORY);
    if !directory.join(FIT).exists() {
        return Ok(None);
    }
    let path = directory.join(DESCRIPTION);
    let mut description = described::read(&path)?.unwrap_or_default();
    let each = description["ranks_of_a_group"].as_u64().unwrap_or_default() as usize;
    Ok(Some(Found { path, problem: description["problem"].take(), each }))
}

impl Found {
    /// The failure to go on with `problem` from the state of another one.
    pub fn of_another(&self, problem: &Value) -> Option<Failure> {
        let path = printable_path(&self.path);
        if self.problem.is_null() {
            let message = format!("{path} is missing, which says what the state is of; start anew, without --resume");
            return Some(Failure::Failed(message));
        }
        let (name, theirs, ours) = described::difference(&self.problem, problem)?;
        Some(Failure::Failed(format!(
            "{path}: the state is of another problem: {name} is {theirs} there and {ours} here; give the same, or leave --resume out"
        )))
    }
}

/// Where the state of a fit is kept, and whether it goes on from there.
pub struct State {
    pub directory: PathBuf,
    pub resumes: bool,
}

impl State {
    /// In the output directory `out`.
    pub fn new(out: &Path, resumes: bool) -> Self {
        State { directory: out.join(DIRECTORY), resumes }
    }

    /// Makes the directory ready for a fit of `problem` in groups of `each` ranks; what is there goes, unless the fit resumes. All ranks call it.
    pub fn prepare(&self, all: &Communicator, problem: &Value, each: usize) -> Result<(), Error> {
        if all.rank() == 0 && !self.resumes {
            // It stays, though it has no state before the first iteration ends.
            std::mem::forget(OutputDir::create(&self.directory)?);
            described::remove(&self.directory.join(FIT))?;
            let description = json!({ "problem": problem, "ranks_of_a_group": each });
            write_whole(self.directory.join(DESCRIPTION), format!("{description:#}\n").as_bytes())?;
        }
        all.barrier()?;
        Ok(())
    }
}
