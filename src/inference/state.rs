//! The state of a fit in a file, from which it is resumed.
//!
//! `state.npz` has the position and all residuals as each rank of a group holds them, rank after
//! rank, with the boxes of each, the outcome of each sample, and a report of each iteration.
//! Fingerprints of the likelihood identify data and model; the energy at the position is a second
//! check. The file is replaced as a whole, so that a killed run leaves the state of its last
//! iteration or of the one before.

use std::path::{Path, PathBuf};

use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::{Identity, LogLikelihood};
use super::report::{Convergence, IterationReport, Number, Numbers, OUTCOME, SampleOutcome, gather};
use super::rows::{NewRows, RowLayout, SavedRows};
use super::samples::Samples;
use super::vector_space::VectorSpace;
use crate::io::collective::write_npz;
use crate::io::{IoError, Member, NpyFile, NpzFile, OutputDir};

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

/// Allowed difference between the energy and the saved one, for each datum. On one device they are
/// the same bits; on another one values in f32 round differently, by this much where they are 10^4
/// times their noise. Data that differ by their noise change the energy by 1/2 each.
const APART: f64 = 0.01;

impl Numbers<REPORT> for IterationReport {
    fn parts(&mut self) -> [&mut dyn Number; REPORT] {
        let [data, latent] = &mut self.chi_squared;
        let Convergence { steps, unconverged, error_ratio, failed, limited } = &mut self.sampling;
        [
            &mut self.iteration,
            &mut self.samples,
            &mut self.energy,
            &mut self.steps,
            &mut self.applications,
            data,
            latent,
            &mut self.seconds,
            steps,
            unconverged,
            &mut self.stop,
            error_ratio,
            failed,
            limited,
        ]
    }
}

/// The use of a state that is in the directory of a fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The state is an error.
    #[default]
    Refuse,
    /// The fit continues from the state.
    Resume,
    /// The first iteration replaces the state.
    Overwrite,
}

/// The file of a fit's state.
pub(super) struct StateFile {
    pub path: PathBuf,
    /// Identity of the likelihood.
    pub identity: Identity,
    seed: u64,
}

/// Returns the energy of the likelihood, which may be infinite.
fn energy_of<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    position: &S::Vector,
) -> Result<f64, InferenceError> {
    match likelihood.energy(space, position) {
        Err(InferenceError::NotFinite { .. }) => Ok(f64::INFINITY),
        energy => energy,
    }
}

impl StateFile {
    /// Opens a state in `directory`, which is created if it does not exist. Collective.
    pub fn new(
        (directory, name): (&Path, &str),
        existing: Existing,
        groups: &SampleGroups,
        identity: Identity,
        seed: u64,
    ) -> Result<Self, InferenceError> {
        let path = directory.join(name);
        let mut refused = [u32::from(existing == Existing::Refuse && groups.all().rank() == 0 && path.exists())];
        groups.all().broadcast(0, &mut refused)?;
        if refused[0] == 1 {
            let why = "it would be lost: go on from it with `resume` (in Python `resume=True`), \
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
        Ok(StateFile { path, identity, seed })
    }

    pub fn wrong(&self, why: impl Into<String>) -> InferenceError {
        InferenceError::State { path: self.path.clone(), why: why.into() }
    }

    /// Returns the error of a file that cannot be read.
    fn broken(&self, error: IoError) -> InferenceError {
        self.wrong(format!("{error}; remove it to start again"))
    }

    /// Opens the file and checks that it is whole; `None` if it does not exist. Collective over all
    /// groups.
    pub fn open(&self, groups: &SampleGroups) -> Result<Option<OpenState<'_>>, InferenceError> {
        let mut is_there = [u32::from(groups.all().rank() == 0 && self.path.exists())];
        groups.all().broadcast(0, &mut is_there)?;
        if is_there[0] == 0 {
            return Ok(None);
        }
        let archive = NpzFile::open(&self.path).map_err(|error| self.broken(error))?;
        if groups.all().rank() == 0 {
            archive.check().map_err(|error| self.broken(error))?;
        }
        Ok(Some(OpenState { state: self, archive }))
    }

    /// Writes the state in place of the one before. Collective over all groups.
    pub fn save<S: VectorSpace>(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        likelihood: &dyn LogLikelihood<S>,
        saved: &Saved<S>,
    ) -> Result<(), InferenceError> {
        let samples = &saved.samples;
        let energy = energy_of(space, likelihood, &samples.position)?;
        let position = space.stage(&samples.position)?;
        let identity = self.identity.parts().map(|(_, mark)| mark as i64);
        let head = [VERSION, self.seed as i64, samples.count() as i64, i64::from(saved.drawn_in)];
        let history: Vec<f64> = saved.history.iter().flat_map(IterationReport::numbers).collect();
        let outcomes = gather(groups, samples.outcomes())?;
        let outcomes: Vec<f64> = outcomes.iter().flat_map(SampleOutcome::numbers).collect();
        let members = vec![
            Member::new::<i64>("head", &[head.len() as u64]),
            Member::new::<i64>("identity", &[identity.len() as u64]),
            Member::new::<f64>("energy", &[1]),
            Member::new::<f64>("history", &[saved.history.len() as u64, REPORT as u64]),
            Member::new::<f64>("outcomes", &[samples.count() as u64, OUTCOME as u64]),
        ];
        let rows = NewRows::new(space, groups, &samples.position, 1 + samples.count() as u64, members)?;
        write_npz::<InferenceError>(groups.all(), &self.path, &rows.members, |archive| {
            if groups.all().rank() == 0 {
                archive.write(0, 0, &head)?;
                archive.write(1, 0, &identity)?;
                archive.write(2, 0, &[energy])?;
                archive.write(3, 0, &history)?;
                archive.write(4, 0, &outcomes)?;
                rows.write_boxes(archive)?;
            }
            if groups.index() == 0 {
                rows.write(archive, 0, &position)?;
            }
            for sample in samples.own() {
                if let Some(residual) = samples.residual(sample) {
                    rows.write(archive, 1 + sample as u64, &space.stage(residual)?)?;
                }
            }
            Ok(())
        })
    }

    /// Reads the state; `None` if the file does not exist. Collective over all groups.
    pub fn load<S: VectorSpace>(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        likelihood: &dyn LogLikelihood<S>,
        like: &S::Vector,
    ) -> Result<Option<Saved<S>>, InferenceError> {
        let layout = RowLayout::of(space, groups, like)?;
        let Some(file) = self.open(groups)? else { return Ok(None) };
        let (count, drawn_in) = self.check_head(&file.integers("head")?)?;
        self.check_identity(&file.integers("identity")?)?;
        let rows = 1 + count as u64;
        let history = file.numbers("history")?;
        let outcomes = self.check_outcomes(&file.numbers("outcomes")?, count)?;
        let energy = file.numbers("energy")?;
        let saved = SavedRows::open((layout, groups.place()), rows, &file)?;
        let mut read = |number: u64| saved.read(space, like, number);
        let position = read(0)?;
        let block = groups.block(count);
        let residuals = block.clone().map(|sample| read(1 + sample as u64)).collect::<Result<Vec<_>, _>>()?;
        let found = energy_of(space, likelihood, &position)?;
        self.check_energy(&energy, found, APART * likelihood.degrees_of_freedom() as f64)?;
        let mut samples = Samples::none(position);
        samples.replace(groups, count, residuals, outcomes[block].to_vec())?;
        let (history, _) = history.as_chunks::<REPORT>();
        let history = history.iter().map(|numbers| IterationReport::of_numbers(numbers).0).collect();
        Ok(Some(Saved { samples, drawn_in, history }))
    }

    /// Refuses a state if the energy of the likelihood at its position differs from the saved one
    /// by more than `most`.
    fn check_energy(&self, saved: &[f64], found: f64, most: f64) -> Result<(), InferenceError> {
        match saved {
            &[saved] if saved == found || (saved - found).abs() <= most => Ok(()),
            _ => Err(self.wrong(format!(
                "it is of other data or another model: the energy of its position was {saved:?} and is {found} here; give another directory, or start again"
            ))),
        }
    }

    /// Returns the outcomes of all samples; refuses numbers that are none.
    fn check_outcomes(&self, numbers: &[f64], count: usize) -> Result<Vec<SampleOutcome>, InferenceError> {
        let (rows, _) = numbers.as_chunks::<OUTCOME>();
        let of_numbers = |numbers: &[f64; OUTCOME]| match SampleOutcome::of_numbers(numbers) {
            (outcome, true) if outcome.error_ratio >= 0.0 => Some(outcome),
            _ => None,
        };
        let outcomes: Option<Vec<_>> = rows.iter().map(of_numbers).collect();
        outcomes.filter(|outcomes| outcomes.len() == count).ok_or_else(|| {
            self.wrong(format!(
                "expected {OUTCOME} valid numbers in `outcomes` for each of {count} samples; remove it to start again"
            ))
        })
    }

    /// Refuses the state of another likelihood.
    pub fn check_identity(&self, saved: &[i64]) -> Result<(), InferenceError> {
        let parts = self.identity.parts();
        if saved.len() != parts.len() {
            return Err(self.wrong("it is no state of a fit or of chains; give another directory"));
        }
        match parts.iter().zip(saved).find(|((_, mark), saved)| *mark as i64 != **saved) {
            Some(((name, _), _)) => Err(self.wrong(format!(
                "it is of another posterior, whose {name} differ from this one's; give the same, another directory, or start again"
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
            return Err(self.wrong(format!("it has version {version}, this program reads {VERSION}; start again")));
        }
        let &[_, seed, count, drawn_in] = head else {
            return Err(self.wrong("it is no state of a fit; give another directory"));
        };
        if seed as u64 != self.seed {
            return Err(self.wrong(format!("it was made with seed {}; give that one, or start again", seed as u64)));
        }
        match (usize::try_from(count), u32::try_from(drawn_in)) {
            (Ok(count), Ok(drawn_in)) => Ok((count, drawn_in)),
            _ => Err(self.wrong(format!("it has {count} samples of iteration {drawn_in}; remove it to start again"))),
        }
    }
}

/// A state that is read.
pub(super) struct OpenState<'a> {
    pub state: &'a StateFile,
    archive: NpzFile,
}

impl OpenState<'_> {
    pub fn member(&self, name: &str) -> Result<NpyFile, InferenceError> {
        self.or_broken(self.archive.member(name))
    }

    pub fn integers(&self, name: &str) -> Result<Vec<i64>, InferenceError> {
        let member = self.member(name)?;
        self.or_broken(member.read_i64(0..member.len()))
    }

    pub fn numbers(&self, name: &str) -> Result<Vec<f64>, InferenceError> {
        let member = self.member(name)?;
        self.or_broken(member.read_f64(0..member.len()))
    }

    /// Returns what was read, or the error of a file that cannot be read.
    pub fn or_broken<T>(&self, read: Result<T, IoError>) -> Result<T, InferenceError> {
        read.map_err(|error| self.state.broken(error))
    }
}
