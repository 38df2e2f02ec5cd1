//! The state that a reconstruction goes on from: that of the fit, and what problem it is of.

use std::path::{Path, PathBuf};

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::io::{IoError, OutputDir, printable_path, write_whole};
use serde_json::{Value, json};

use super::problem::Problem;
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
        let (name, theirs, ours) = described::difference(&self.problem, problem)?;
        let path = printable_path(&self.path);
        Some(Failure::Failed(format!(
            "{path}: the state is of another reconstruction: {name} is {theirs} there and {ours} here; give the same, or leave --resume out"
        )))
    }
}

/// Where the state of a fit is kept, and whether it goes on from there.
pub struct State {
    pub directory: PathBuf,
    pub resumes: bool,
}

/// Makes the directory of the state ready; what is there goes, unless the fit `resumes`. All ranks call it.
pub fn prepare(all: &Communicator, out: &Path, resumes: bool, problem: &Problem<'_, '_>) -> Result<State, Error> {
    let directory = out.join(DIRECTORY);
    if all.rank() == 0 && !resumes {
        // It stays, though it has no state before the first iteration ends.
        std::mem::forget(OutputDir::create(&directory)?);
        described::remove(&directory.join(FIT))?;
        let each = all.size() / problem.groups.count();
        let description = json!({ "problem": problem.identity, "ranks_of_a_group": each });
        write_whole(directory.join(DESCRIPTION), format!("{description:#}\n").as_bytes())?;
    }
    all.barrier()?;
    Ok(State { directory, resumes })
}
