//! The state that `infer` and `reconstruct` go on from, and their warnings of fits that are not
//! solved.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::inference::{Convergence, Existing, IterationReport, Schedule};
use meshloom::io::{IoError, OutputDir, printable_path, write_whole};
use serde_json::{Value, json};

use crate::described;
use crate::failure::Failure;

const DIRECTORY: &str = "state";
const FIT: &str = "state.npz";
const DESCRIPTION: &str = "problem.json";
const OPTIONS: &str = "options.json";

/// A state that was found.
pub struct Found {
    path: PathBuf,
    problem: Value,
    /// Ranks of each of its groups; 0 where that is not known.
    pub each: usize,
    /// Options of the call that made its last iteration; null if unknown.
    options: Value,
}

/// Returns the state in the output directory `out`, if a fit has left one. All ranks find the same.
pub fn find(out: &Path) -> Result<Option<Found>, IoError> {
    let directory = out.join(DIRECTORY);
    if !directory.join(FIT).exists() {
        return Ok(None);
    }
    let path = directory.join(DESCRIPTION);
    let mut description = described::read(&path)?.unwrap_or_default();
    let each = description["ranks_of_a_group"].as_u64().unwrap_or_default() as usize;
    let options = described::read(&directory.join(OPTIONS))?.unwrap_or_default();
    Ok(Some(Found { path, problem: description["problem"].take(), each, options }))
}

impl Found {
    /// Returns the failure to go on with `problem` from the state of another one.
    pub fn of_another(&self, problem: &Value) -> Option<Failure> {
        let path = printable_path(&self.path);
        if self.problem.is_null() {
            let message = format!("{path} is missing, which says what the state is of; start again, without --resume");
            return Some(Failure::Failed(message));
        }
        let (name, theirs, ours) = described::difference(&self.problem, problem)?;
        if let Some(input) = name.strip_prefix("fingerprints.") {
            return Some(Failure::Failed(format!(
                "{path}: the state is of another problem: the values of `{input}` are others; give the same input, or leave --resume out"
            )));
        }
        Some(Failure::Failed(format!(
            "{path}: the state is of another problem: {name} is {theirs} there and {ours} here; give the same, or leave --resume out"
        )))
    }
}

/// Extent of a fit after its last iteration, or as requested by a call.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub iterations: usize,
    pub samples: usize,
}

/// Location of the state of a fit, and whether the fit continues from it.
pub struct State {
    pub directory: PathBuf,
    /// State that the fit continues from.
    found: Option<Found>,
    /// Options of iterations; these may change when a fit continues.
    options: Value,
    /// Whether an iteration was done by this call.
    moved: Cell<bool>,
}

impl State {
    /// In the output directory `out`.
    pub fn new(out: &Path, found: Option<Found>, options: Value) -> Self {
        State { directory: out.join(DIRECTORY), found, options, moved: Cell::new(false) }
    }

    /// Returns `true` if the fit goes on from a state.
    pub fn resumes(&self) -> bool {
        self.found.is_some()
    }

    /// Returns the use of a state that is in the directory.
    pub fn existing(&self) -> Existing {
        if self.resumes() { Existing::Resume } else { Existing::Refuse }
    }

    /// Makes the directory ready for a fit of `problem` in groups of `each` ranks; what is there
    /// goes, unless the fit resumes. Collective.
    pub fn prepare(&self, all: &Communicator, problem: &Value, each: usize) -> Result<(), Error> {
        if all.rank() == 0 && !self.resumes() {
            // It stays, though it has no state before the first iteration ends.
            std::mem::forget(OutputDir::create(&self.directory)?);
            described::remove(&self.directory.join(FIT))?;
            let description = json!({ "problem": problem, "ranks_of_a_group": each });
            write_whole(self.directory.join(DESCRIPTION), format!("{description:#}\n").as_bytes())?;
            self.write_options()?;
        }
        all.barrier()?;
        Ok(())
    }

    fn write_options(&self) -> Result<(), IoError> {
        write_whole(self.directory.join(OPTIONS), format!("{:#}\n", self.options).as_bytes())
    }

    /// Notes that an iteration was done: the state is of this call's options. Collective.
    pub fn has_moved(&self, all: &Communicator) -> Result<(), IoError> {
        self.moved.set(true);
        if all.rank() == 0 { self.write_options() } else { Ok(()) }
    }

    /// Returns the failure to give a fit that others have made for what this call asks for, which
    /// had no iteration left to do.
    pub fn of_other_options(&self, done: Extent, asked: Extent) -> Option<Failure> {
        let theirs = self.found.as_ref().filter(|_| !self.moved.get())?;
        other_options((done, &theirs.options), (asked, &self.options)).map(Failure::Failed)
    }
}

/// Why a fit that was done before is not what is asked for.
fn other_options((done, theirs): (Extent, &Value), (asked, ours): (Extent, &Value)) -> Option<String> {
    let remedy = "give more --iterations, or leave --resume out";
    if done.iterations > asked.iterations || done.samples != asked.samples {
        return Some(format!(
            "the state has {} samples after {} iterations, and this call asks for {} after {}: {remedy}",
            done.samples, done.iterations, asked.samples, asked.iterations
        ));
    }
    // Without samples it does not matter how they would be drawn.
    if done.samples == 0 || theirs.is_null() {
        return None;
    }
    let (name, theirs, ours) = described::difference(theirs, ours)?;
    Some(format!("the state has all iterations and was made with {name} {theirs}, this call asks for {ours}: {remedy}"))
}

/// Returns the warnings that samples of the last iteration are not solved. `remedies` are for
/// conjugate gradients and for Newton's method.
///
/// Bent samples may run out of steps before a fit can settle, because updates go on from there.
pub fn warnings(history: &[IterationReport], remedies: [&str; 2]) -> Vec<String> {
    let Some(last) = history.last() else { return Vec::new() };
    let limited = if history.len() < Schedule::LEAST { 0 } else { last.sampling.limited };
    let sampling = Convergence { limited, ..last.sampling };
    sampling.doubts(&format!("the {} samples", last.samples), remedies)
}

/// Returns the warnings that a fit with this last iteration has not found the posterior, each with
/// `advice`. `expected` is the range of reduced chi-squared.
pub fn doubts(last: Option<&IterationReport>, expected: Option<[f64; 2]>, advice: &str) -> Vec<String> {
    let doubts = last.map_or_else(Vec::new, |last| last.doubts(expected));
    doubts.into_iter().map(|why| format!("{why}; {advice}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_that_is_done_is_of_the_options_that_made_it() {
        let done = Extent { iterations: 2, samples: 4 };
        let [mgvi, geovi] = ["mgvi", "geovi"].map(|mode| json!({ "mode": mode }));
        let why = |asked, ours| other_options((done, &mgvi), (asked, ours)).unwrap_or_default();
        assert_eq!(why(done, &mgvi), "");
        assert!(why(Extent { iterations: 1, ..done }, &mgvi).contains("after 2 iterations"));
        assert!(why(Extent { samples: 14, ..done }, &mgvi).contains("asks for 14 after 2"));
        assert!(why(done, &geovi).contains("with mode \"mgvi\", this call asks for \"geovi\""));
        // An older state does not say how, and the most probable place has no samples.
        let place = Extent { samples: 0, ..done };
        assert!(other_options((done, &Value::Null), (done, &geovi)).is_none());
        assert!(other_options((place, &mgvi), (place, &geovi)).is_none());
    }
}
