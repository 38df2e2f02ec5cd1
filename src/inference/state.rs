//! The state of a fit in a file, from which it is resumed.
//!
//! `state.npz` has the position and all residuals as each rank of a group holds them, rank after
//! rank, with the boxes of each, the outcome of each sample, and a report of each iteration.
//! Fingerprints of the likelihood identify data and model; the energy at the position is a second
//! check. The file is replaced as a whole, so that a killed run leaves the state of its last
//! iteration or of the one before.

use super::error::{InferenceError, Result, if_finite};
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::report::{Convergence, IterationReport, Number, Numbers, OUTCOME, SampleOutcome};
use super::samples::Samples;
use super::state_file::{NewRows, RowLayout, SavedRows, StateFile};
use super::vector_space::VectorSpace;
use crate::io::Member;
use crate::io::collective::write_npz;

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

impl StateFile {
    /// Writes the state in place of the one before. Collective over all groups.
    pub fn save<S: VectorSpace>(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        likelihood: &dyn LogLikelihood<S>,
        saved: &Saved<S>,
    ) -> Result<()> {
        let samples = &saved.samples;
        let energy = if_finite(likelihood.energy(space, &samples.position))?.unwrap_or(f64::INFINITY);
        let position = space.stage(&samples.position)?;
        let identity = self.identity.parts().map(|(_, mark)| mark as i64);
        let head = [VERSION, self.seed as i64, samples.count() as i64, i64::from(saved.drawn_in)];
        let history = IterationReport::numbers_of(saved.history.iter().cloned());
        let outcomes = groups.gather(&SampleOutcome::numbers_of(samples.outcomes().iter().copied()))?;
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
    ) -> Result<Option<Saved<S>>> {
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
        let found = if_finite(likelihood.energy(space, &position))?.unwrap_or(f64::INFINITY);
        self.check_energy(&energy, found, APART * likelihood.degrees_of_freedom() as f64)?;
        let mut samples = Samples::none(position);
        samples.replace(groups, count, residuals, outcomes[block].to_vec())?;
        Ok(Some(Saved { samples, drawn_in, history: IterationReport::of_numbers(&history) }))
    }

    /// Refuses a state if the energy of the likelihood at its position differs from the saved one
    /// by more than `most`.
    fn check_energy(&self, saved: &[f64], found: f64, most: f64) -> Result<()> {
        match saved {
            &[saved] if saved == found || (saved - found).abs() <= most => Ok(()),
            _ => Err(self.wrong(format!(
                "it is of other data or another model: the energy of its position was {saved:?} and is {found} here; give another directory, or start again"
            ))),
        }
    }

    /// Returns the outcomes of all samples; refuses numbers that are none.
    fn check_outcomes(&self, numbers: &[f64], count: usize) -> Result<Vec<SampleOutcome>> {
        let outcomes = SampleOutcome::of_numbers(numbers);
        let is_valid = SampleOutcome::numbers_of(outcomes.iter().copied()) == numbers
            && outcomes.iter().all(|own| own.error_ratio >= 0.0);
        if is_valid && outcomes.len() == count {
            return Ok(outcomes);
        }
        Err(self.wrong(format!(
            "expected {OUTCOME} valid numbers in `outcomes` for each of {count} samples; remove it to start again"
        )))
    }

    /// Returns the number of samples and the iteration in which they were drawn.
    fn check_head(&self, head: &[i64]) -> Result<(usize, u32)> {
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
