//! The state of a fit in a file, from which it is resumed.
//!
//! `state.npz` has the position and all residuals as each rank of a group holds them, rank after rank, with the boxes of
//! each, the outcome of each sample, and a report of each iteration. Fingerprints of the likelihood identify data and
//! model; the energy at the position is a second check. The file is replaced as a whole, so that a killed run leaves the
//! state of its last iteration or of the one before.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::convergence::{Convergence, OUTCOME, STOPS, SampleOutcome, gather};
use super::error::InferenceError;
use super::excitation::Excitations;
use super::groups::SampleGroups;
use super::identity::Identity;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonStop;
use super::report::IterationReport;
use super::samples::Samples;
use super::state_layout::RowLayout;
use super::vector_space::{Staged, VectorSpace};
use crate::io::collective::write_npz;
use crate::io::{IoError, Member, NpzFile, OutputDir};

/// The state from which a fit is resumed.
pub(super) struct Saved<S: VectorSpace> {
    pub samples: Samples<S>,
    /// The iteration whose random numbers the samples have.
    pub drawn_in: u32,
    pub history: Vec<IterationReport>,
}

/// Version of the file, and numbers of a report.
const VERSION: i64 = 6;
const REPORT: usize = 14;

/// Allowed difference between the energy and the saved one, for each datum. On one device they are the same bits; on
/// another one values in f32 round differently, by this much where they are 10^4 times their noise. Data that differ by
/// their noise change the energy by 1/2 each.
const APART: f64 = 0.01;

/// The use of a state that is in the directory of a fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Refuses to run.
    Refuse,
    /// Resumes from it.
    Resume,
    /// Replaces it after its first iteration.
    Overwrite,
}

/// The file of a fit's state.
pub(super) struct StateFile<'a, S: VectorSpace> {
    path: PathBuf,
    likelihood: &'a dyn LogLikelihood<S>,
    identity: Identity,
    seed: u64,
}

impl<'a, S: VectorSpace> StateFile<'a, S> {
    /// Opens the state of fits of this likelihood in `directory`, which is created if it does not exist. Collective.
    pub fn new(
        (directory, found): (&Path, Found),
        groups: &SampleGroups,
        (likelihood, identity): (&'a dyn LogLikelihood<S>, Identity),
        excitations: &Excitations<S>,
    ) -> Result<Self, InferenceError> {
        let path = directory.join("state.npz");
        let mut refused = [u32::from(found == Found::Refuse && groups.all().rank() == 0 && path.exists())];
        groups.all().broadcast(0, &mut refused)?;
        if refused[0] == 1 {
            let why = "it is that of a fit, which would be lost: go on from it with `resume` (in Python `resume=True`), \
                       replace it with `overwrite` (`overwrite=True`), or give another directory";
            return Err(InferenceError::State { path, why: why.into() });
        }
        groups.all().together::<_, InferenceError>(|| {
            if groups.all().rank() == 0 {
                // The directory stays although it is empty before the first iteration ends.
                std::mem::forget(OutputDir::create(directory)?);
            }
            Ok(())
        })?;
        let seed = if let Excitations::Seed(seed) = excitations { *seed } else { 0 };
        Ok(StateFile { path, likelihood, identity, seed })
    }

    fn wrong(&self, why: impl Into<String>) -> InferenceError {
        InferenceError::State { path: self.path.clone(), why: why.into() }
    }

    /// Returns the energy of the likelihood, which may be infinite.
    fn energy(&self, space: &mut S, position: &S::Vector) -> Result<f64, InferenceError> {
        match self.likelihood.energy(space, position) {
            Err(InferenceError::NotFinite { .. }) => Ok(f64::INFINITY),
            energy => energy,
        }
    }

    /// Writes the state in place of the one before. Collective over all groups.
    pub fn save(&self, space: &mut S, groups: &SampleGroups, saved: &Saved<S>) -> Result<(), InferenceError> {
        let samples = &saved.samples;
        let energy = self.energy(space, &samples.position)?;
        let position = space.stage(&samples.position)?;
        let layout = RowLayout::of(space, groups, &samples.position)?;
        let (row, first) = (layout.len(), layout.first(groups.place()));
        let rows = 1 + samples.count() as u64;
        let identity = self.identity.parts().map(|(_, mark)| mark as i64);
        let head = [VERSION, self.seed as i64, samples.count() as i64, i64::from(saved.drawn_in)];
        let history: Vec<f64> = saved.history.iter().flat_map(numbers).collect();
        let outcomes = gather(groups, samples.outcomes())?;
        let outcomes: Vec<f64> = outcomes.iter().flat_map(SampleOutcome::numbers).collect();
        let members = [
            Member::new::<i64>("head", &[head.len() as u64]),
            Member::new::<i64>("identity", &[identity.len() as u64]),
            Member::new::<i64>("boxes", &layout.boxes_shape()),
            Member::new::<f64>("energy", &[1]),
            Member::new::<f64>("history", &[saved.history.len() as u64, REPORT as u64]),
            Member::new::<f64>("outcomes", &[samples.count() as u64, OUTCOME as u64]),
            Member::new::<f32>("singles", &[rows, row[0]]),
            Member::new::<f64>("doubles", &[rows, row[1]]),
        ];
        write_npz::<InferenceError>(groups.all(), &self.path, &members, |archive| {
            if groups.all().rank() == 0 {
                archive.write(0, 0, &head)?;
                archive.write(1, 0, &identity)?;
                archive.write(2, 0, &layout.boxes())?;
                archive.write(3, 0, &[energy])?;
                archive.write(4, 0, &history)?;
                archive.write(5, 0, &outcomes)?;
            }
            let mut write = |number: usize, staged: &Staged| {
                archive.write(6, number as u64 * row[0] + first[0], &staged.singles)?;
                archive.write(7, number as u64 * row[1] + first[1], &staged.doubles)
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

    /// Reads the state; `None` if there is no file. Collective over all groups.
    pub fn load(
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
        let own = RowLayout::of(space, groups, like)?;
        let broken = |error: IoError| self.wrong(format!("{error}; remove it to start anew"));
        let file = NpzFile::open(&self.path).map_err(broken)?;
        if groups.all().rank() == 0 {
            file.check().map_err(broken)?;
        }
        let head = file.member("head").and_then(|head| head.read_i64(0..head.len())).map_err(broken)?;
        let (count, drawn_in) = self.check_head(&head)?;
        let identity = file.member("identity").and_then(|identity| identity.read_i64(0..identity.len()));
        self.check_identity(&identity.map_err(broken)?)?;
        let rows = 1 + count as u64;
        let history = file.member("history").map_err(broken)?;
        let history = history.read_f64(0..history.len()).map_err(broken)?;
        let outcomes = file.member("outcomes").and_then(|outcomes| outcomes.read_f64(0..outcomes.len()));
        let outcomes = self.check_outcomes(&outcomes.map_err(broken)?, count)?;
        let energy = file.member("energy").and_then(|energy| energy.read_f64(0..energy.len())).map_err(broken)?;
        let boxes = file.member("boxes").and_then(|boxes| boxes.read_i64(0..boxes.len())).map_err(broken)?;
        let (singles, doubles) = (file.member("singles").map_err(broken)?, file.member("doubles").map_err(broken)?);
        let fits = |layout: &RowLayout| {
            let [single, double] = layout.len();
            singles.shape() == [rows, single] && doubles.shape() == [rows, double]
        };
        let Some(theirs) = own.of_boxes(&boxes).filter(fits) else {
            let why = format!(
                "it has vectors of {:?} and {:?} numbers, which are no cut of this fit's; it is of another model",
                singles.shape(),
                doubles.shape()
            );
            return Err(self.wrong(why));
        };
        let [single, double] = theirs.len();
        let mut read = |number: u64| -> Result<S::Vector, InferenceError> {
            let at = |range: Range<u64>, len: u64| number * len + range.start..number * len + range.end;
            let mut staged = Staged::default();
            for (part, share) in own.shares(groups.place()).iter().enumerate() {
                if share.is_double {
                    let mut read = |range| doubles.read_finite_f64(at(range, double)).map_err(broken);
                    staged.doubles.extend(theirs.gather(part, share, &mut read)?);
                } else {
                    let mut read = |range| singles.read_finite_f32(at(range, single)).map_err(broken);
                    staged.singles.extend(theirs.gather(part, share, &mut read)?);
                }
            }
            let mut vector = space.like(like)?;
            space.unstage(&staged, &mut vector)?;
            Ok(vector)
        };
        let position = read(0)?;
        let residuals = groups.block(count).map(|sample| read(1 + sample as u64)).collect::<Result<Vec<_>, _>>()?;
        self.check_energy(&energy, self.energy(space, &position)?)?;
        let own = outcomes[groups.block(count)].to_vec();
        let samples = Samples::new(position, groups, count, residuals)?.with_outcomes(own)?;
        let (history, _) = history.as_chunks::<REPORT>();
        Ok(Some(Saved { samples, drawn_in, history: history.iter().map(report).collect() }))
    }

    /// Refuses a state if the energy of the likelihood at its position differs from the saved one.
    fn check_energy(&self, saved: &[f64], found: f64) -> Result<(), InferenceError> {
        let most = APART * self.likelihood.degrees_of_freedom() as f64;
        match saved {
            &[saved] if saved == found || (saved - found).abs() <= most => Ok(()),
            _ => Err(self.wrong(format!(
                "it is of other data or another model: the energy of its position was {saved:?} and is {found} here; give another directory, or start anew"
            ))),
        }
    }

    /// Returns the outcomes of all samples; refuses numbers that are none.
    fn check_outcomes(&self, numbers: &[f64], count: usize) -> Result<Vec<SampleOutcome>, InferenceError> {
        let (rows, _) = numbers.as_chunks::<OUTCOME>();
        let outcomes: Option<Vec<_>> = rows.iter().map(SampleOutcome::of_numbers).collect();
        outcomes.filter(|outcomes| outcomes.len() == count).ok_or_else(|| {
            self.wrong(format!(
                "expected {OUTCOME} valid numbers in `outcomes` for each of {count} samples; remove it to start anew"
            ))
        })
    }

    /// Refuses the state of another likelihood.
    fn check_identity(&self, saved: &[i64]) -> Result<(), InferenceError> {
        let parts = self.identity.parts();
        if saved.len() != parts.len() {
            return Err(self.wrong("it is no state of a fit; give another directory"));
        }
        match parts.iter().zip(saved).find(|((_, mark), saved)| *mark as i64 != **saved) {
            Some(((name, _), _)) => Err(self.wrong(format!(
                "it is of another fit, whose {name} differ from this one's; give the same, another directory, or start anew"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the number of samples and the iteration in which they were drawn.
    fn check_head(&self, head: &[i64]) -> Result<(usize, u32), InferenceError> {
        // Another version may have another number of them.
        if let Some(&version) = head.first()
            && version != VERSION
        {
            return Err(self.wrong(format!("it has version {version}, this program reads {VERSION}; start anew")));
        }
        let &[_, seed, count, drawn_in] = head else {
            return Err(self.wrong("it is no state of a fit; give another directory"));
        };
        if seed as u64 != self.seed {
            return Err(self.wrong(format!("it was made with seed {}; give that one, or start anew", seed as u64)));
        }
        match (usize::try_from(count), u32::try_from(drawn_in)) {
            (Ok(count), Ok(drawn_in)) => Ok((count, drawn_in)),
            _ => Err(self.wrong(format!("it has {count} samples of iteration {drawn_in}; remove it to start anew"))),
        }
    }
}

fn numbers(report: &IterationReport) -> [f64; REPORT] {
    let IterationReport {
        iteration,
        samples,
        sampling,
        energy,
        steps,
        applications,
        stop,
        chi_squared,
        seconds,
        idle: _,
    } = report;
    let Convergence { steps: most, unconverged, error_ratio, failed, limited } = *sampling;
    let stop = STOPS.iter().position(|one| one == stop).unwrap_or_default() as f64;
    let [data, latent] = chi_squared.map(|chi_squared| chi_squared.unwrap_or(-1.0));
    let [steps, applications, most, unconverged, failed, limited] =
        [*steps, *applications, most, unconverged, failed, limited].map(|count| count as f64);
    let seconds = *seconds;
    [
        f64::from(*iteration),
        *samples as f64,
        *energy,
        steps,
        applications,
        data,
        latent,
        seconds,
        most,
        unconverged,
        stop,
        error_ratio,
        failed,
        limited,
    ]
}

fn report(numbers: &[f64; REPORT]) -> IterationReport {
    let &[
        iteration,
        samples,
        energy,
        steps,
        applications,
        data,
        latent,
        seconds,
        most,
        unconverged,
        stop,
        error_ratio,
        failed,
        limited,
    ] = numbers;
    IterationReport {
        iteration: iteration as u32,
        samples: samples as usize,
        sampling: Convergence {
            steps: most as u64,
            unconverged: unconverged as u64,
            error_ratio,
            failed: failed as u64,
            limited: limited as u64,
        },
        energy,
        steps: steps as u64,
        applications: applications as u64,
        stop: STOPS.get(stop as usize).copied().unwrap_or(NewtonStop::Iterations),
        chi_squared: [data, latent].map(|chi_squared| (chi_squared >= 0.0).then_some(chi_squared)),
        seconds,
        idle: 0,
    }
}
