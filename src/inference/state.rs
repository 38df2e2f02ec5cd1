//! The state of a fit in a file, from which it goes on.
//!
//! `state.npz` has the numbers of the position and of all residuals as each rank of a group holds them, rank after rank, and a report of each iteration.
//! It is replaced as a whole, so that a killed run leaves the state of its last iteration, or that of the one before.

use std::path::{Path, PathBuf};

use super::error::InferenceError;
use super::excitation::Excitations;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::report::IterationReport;
use super::samples::Samples;
use super::vector_space::{Staged, VectorSpace};
use crate::hash::{START, fnv1a};
use crate::io::collective::write_npz;
use crate::io::{IoError, Member, NpzFile, OutputDir};

/// What a fit goes on from.
pub(super) struct Saved<S: VectorSpace> {
    pub samples: Samples<S>,
    /// The iteration whose random numbers the samples have.
    pub drawn_in: u32,
    pub history: Vec<IterationReport>,
}

/// The version of the file, and the numbers of a report.
const VERSION: i64 = 1;
const REPORT: usize = 8;

/// The file of a fit's state.
pub(super) struct StateFile {
    path: PathBuf,
    /// What the state is of: a fit of something else does not go on from it.
    of: [i64; 2],
}

/// Where a rank's numbers stand in a row of the file, and the length of a row.
struct Row {
    first: [u64; 2],
    own: [u64; 2],
    all: [u64; 2],
}

impl Row {
    /// The same on every group. All ranks of all groups call it.
    fn of(groups: &SampleGroups, staged: &Staged) -> Result<Self, InferenceError> {
        let (all, own) = (groups.all(), [staged.singles.len() as u64, staged.doubles.len() as u64]);
        let lengths = all.all_gather(&own)?;
        let each = all.size() / groups.count();
        let lengths = &lengths[..2 * each];
        let before = &lengths[..2 * (all.rank() % each)];
        let sum = |lengths: &[u64], kind: usize| lengths.iter().skip(kind).step_by(2).sum();
        Ok(Row { first: [sum(before, 0), sum(before, 1)], own, all: [sum(lengths, 0), sum(lengths, 1)] })
    }
}

impl StateFile {
    /// The state of fits of this likelihood in `directory`, which is made if there is none. All ranks call it.
    pub fn new<S: VectorSpace>(
        directory: &Path,
        groups: &SampleGroups,
        likelihood: &dyn LogLikelihood<S>,
        excitations: &Excitations<S>,
    ) -> Result<Self, InferenceError> {
        if groups.all().rank() == 0 {
            // It stays, though it is empty before the first iteration ends.
            std::mem::forget(OutputDir::create(directory)?);
        }
        groups.all().barrier()?;
        let text = format!("{} {}", likelihood.name(), likelihood.degrees_of_freedom());
        let seed = if let Excitations::Seed(seed) = excitations { *seed } else { 0 };
        Ok(StateFile {
            path: directory.join("state.npz"),
            of: [(fnv1a(START, text.as_bytes()) >> 1) as i64, seed as i64],
        })
    }

    fn wrong(&self, why: impl Into<String>) -> InferenceError {
        InferenceError::State { path: self.path.clone(), why: why.into() }
    }

    /// Writes the state in place of the one before. All ranks of all groups call it.
    pub fn save<S: VectorSpace>(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        saved: &Saved<S>,
    ) -> Result<(), InferenceError> {
        let samples = &saved.samples;
        let position = space.stage(&samples.position)?;
        let row = Row::of(groups, &position)?;
        let rows = 1 + samples.count() as u64;
        let ranks = (groups.all().size() / groups.count()) as i64;
        let head = [VERSION, self.of[0], self.of[1], samples.count() as i64, i64::from(saved.drawn_in), ranks];
        let history: Vec<f64> = saved.history.iter().flat_map(numbers).collect();
        let members = [
            Member::new::<i64>("head", &[head.len() as u64]),
            Member::new::<f64>("history", &[saved.history.len() as u64, REPORT as u64]),
            Member::new::<f32>("singles", &[rows, row.all[0]]),
            Member::new::<f64>("doubles", &[rows, row.all[1]]),
        ];
        write_npz::<InferenceError>(groups.all(), &self.path, &members, |archive| {
            if groups.all().rank() == 0 {
                archive.write(0, 0, &head)?;
                archive.write(1, 0, &history)?;
            }
            let mut write = |number: usize, staged: &Staged| {
                archive.write(2, number as u64 * row.all[0] + row.first[0], &staged.singles)?;
                archive.write(3, number as u64 * row.all[1] + row.first[1], &staged.doubles)
            };
            if groups.index() == 0 {
                write(0, &position)?;
            }
            for sample in samples.own() {
                if let Some(residual) = samples.residual(sample) {
                    write(1 + sample, &space.stage(residual)?)?;
                }
            }
            Ok(())
        })
    }

    /// Reads the state, if there is one. All ranks of all groups call it.
    pub fn load<S: VectorSpace>(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        like: &S::Vector,
    ) -> Result<Option<Saved<S>>, InferenceError> {
        let mut is_there = [u32::from(groups.all().rank() == 0 && self.path.exists())];
        groups.all().broadcast(0, &mut is_there)?;
        if is_there[0] == 0 {
            return Ok(None);
        }
        let row = Row::of(groups, &space.stage(like)?)?;
        let broken = |error: IoError| self.wrong(format!("{error}; remove it to start anew"));
        let file = NpzFile::open(&self.path).map_err(broken)?;
        if groups.all().rank() == 0 {
            file.check().map_err(broken)?;
        }
        let head = file.member("head").and_then(|head| head.read_i64(0..head.len())).map_err(broken)?;
        let (count, drawn_in) = self.check_head(&head, groups)?;
        let rows = 1 + count as u64;
        let history = file.member("history").map_err(broken)?;
        let history = history.read_f64(0..history.len()).map_err(broken)?;
        let (singles, doubles) = (file.member("singles").map_err(broken)?, file.member("doubles").map_err(broken)?);
        if singles.shape() != [rows, row.all[0]] || doubles.shape() != [rows, row.all[1]] {
            let why = format!(
                "it has vectors of {:?} and {:?} numbers, this fit has {rows} of {:?}; it is of another model",
                singles.shape(),
                doubles.shape(),
                row.all
            );
            return Err(self.wrong(why));
        }
        let mut read = |number: u64| -> Result<S::Vector, InferenceError> {
            let range = |kind: usize| {
                let first = number * row.all[kind] + row.first[kind];
                first..first + row.own[kind]
            };
            let staged = Staged {
                singles: singles.read_finite_f32(range(0)).map_err(broken)?,
                doubles: doubles.read_finite_f64(range(1)).map_err(broken)?,
            };
            let mut vector = space.like(like)?;
            space.unstage(&staged, &mut vector)?;
            Ok(vector)
        };
        let position = read(0)?;
        let residuals = groups.block(count).map(|sample| read(1 + sample as u64)).collect::<Result<Vec<_>, _>>()?;
        let samples = Samples::new(position, groups, count, residuals)?;
        let (history, _) = history.as_chunks::<REPORT>();
        Ok(Some(Saved { samples, drawn_in, history: history.iter().map(report).collect() }))
    }

    /// The number of samples and the iteration they were drawn in.
    fn check_head(&self, head: &[i64], groups: &SampleGroups) -> Result<(usize, u32), InferenceError> {
        let &[version, likelihood, seed, count, drawn_in, ranks] = head else {
            return Err(self.wrong("it is no state of a fit; give another directory"));
        };
        if version != VERSION {
            return Err(self.wrong(format!("it has version {version}, this program reads {VERSION}; start anew")));
        }
        if likelihood != self.of[0] {
            return Err(self.wrong("it is of another likelihood or other data; give another directory, or start anew"));
        }
        if seed != self.of[1] {
            return Err(self.wrong(format!("it was made with seed {}; give that one, or start anew", seed as u64)));
        }
        let own = (groups.all().size() / groups.count()) as i64;
        if ranks != own {
            return Err(self.wrong(format!(
                "it is of groups of {ranks} ranks, these have {own}; groups may be more or fewer, not larger"
            )));
        }
        match (usize::try_from(count), u32::try_from(drawn_in)) {
            (Ok(count), Ok(drawn_in)) => Ok((count, drawn_in)),
            _ => Err(self.wrong(format!("it has {count} samples of iteration {drawn_in}; remove it to start anew"))),
        }
    }
}

fn numbers(report: &IterationReport) -> [f64; REPORT] {
    let IterationReport { iteration, samples, energy, steps, applications, chi_squared, seconds, idle: _ } = report;
    let [data, latent] = chi_squared.map(|chi_squared| chi_squared.unwrap_or(-1.0));
    [f64::from(*iteration), *samples as f64, *energy, *steps as f64, *applications as f64, data, latent, *seconds]
}

fn report(numbers: &[f64; REPORT]) -> IterationReport {
    let &[iteration, samples, energy, steps, applications, data, latent, seconds] = numbers;
    IterationReport {
        iteration: iteration as u32,
        samples: samples as usize,
        energy,
        steps: steps as u64,
        applications: applications as u64,
        chi_squared: [data, latent].map(|chi_squared| (chi_squared >= 0.0).then_some(chi_squared)),
        seconds,
        idle: 0,
    }
}
