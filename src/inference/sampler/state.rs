//! The state of chains in a file, from which they go on.
//!
//! `chains.npz` has for each chain its place, scales, moments and direction, batches of steps
//! within the window that takes them, its kept draws, and the numbers of its adaptation and of
//! scales of correlated parts. Gradients are computed again.

use std::ops::Deref;
use std::rc::Rc;

use super::adaptation::{Batches, DualAverage, EnergyAverage, Moments};
use super::moves::Flight;
use super::phase::{Scale, Target};
use super::{Chain, DrawStatistics, STATISTICS, Sampler, StepAverage};
use crate::inference::error::{InferenceError, Result};
use crate::inference::log_likelihood::LogLikelihood;
use crate::inference::report::Numbers;
use crate::inference::state_file::{NewRows, RowLayout, SavedRows, StateFile};
use crate::inference::vector_space::VectorSpace;
use crate::io::collective::write_npz;
use crate::io::{Member, NpyFile};
use crate::operators::Fingerprint;

/// Version of the file.
const VERSION: i64 = 2;

/// Rows of a chain before its kept draws: place, scale, mean and squares of moments, direction.
const ROWS: u64 = 5;

/// Rows of batches after these: sum, mean and squares of moments.
const BATCH_ROWS: u64 = 3;

/// Numbers of a chain: step size, length, those of a flight (whether there is one, square, along),
/// of the average, steps of the present batch, and counts of the moments of batches and of draws.
const NUMBERS: usize = 13;

impl<S: VectorSpace, L: Deref<Target: LogLikelihood<S> + Sized>> Sampler<S, L> {
    /// Returns the numbers by which a state is known to be of these options.
    fn head(&self) -> [i64; 7] {
        let options = &self.options;
        let mut algorithm = Fingerprint::new();
        algorithm.text(&format!("{:?}", options.algorithm));
        let thinning = options.thinning.map_or(0, i64::from);
        let [chains, warmup] = [options.chains, options.warmup].map(i64::from);
        [VERSION, options.seed as i64, algorithm.value() as i64, chains, warmup, thinning, i64::from(self.done)]
    }

    /// Number of kept draws of each chain.
    fn kept(&self, done: u32) -> u64 {
        let draws = done.saturating_sub(self.options.warmup);
        self.options.thinning.map_or(0, |thinning| u64::from(draws / thinning))
    }

    /// Number of rows of each chain before its kept draws.
    fn rows(&self, done: u32) -> u64 {
        // Batches exist from the first draw of their window to its end.
        let has_batches =
            done.checked_sub(1).is_some_and(|last| self.batch(last).is_some() && self.batch(done).is_some());
        ROWS + if has_batches { BATCH_ROWS } else { 0 }
    }

    /// Writes the state in place of the one before. Collective over all groups.
    pub(super) fn save(&self, space: &mut S, file: &StateFile) -> Result<()> {
        let (chains, kept) = (u64::from(self.options.chains), self.kept(self.done));
        let each = self.rows(self.done) + kept;
        let like = &self.chains[0].place.x;
        let scales = self.chains[0].scale.numbers().len() as u64;
        let identity = file.identity.parts().map(|(_, mark)| mark as i64);
        let head = self.head();
        let members = vec![
            Member::new::<i64>("head", &[head.len() as u64]),
            Member::new::<i64>("identity", &[identity.len() as u64]),
            Member::new::<f64>("numbers", &[chains, NUMBERS as u64]),
            Member::new::<f64>("statistics", &[chains, kept + 1, STATISTICS as u64]),
            Member::new::<f64>("scales", &[chains, scales]),
        ];
        let rows = NewRows::new(space, &self.groups, like, chains * each, members)?;
        let is_first = self.groups.place() == 0;
        write_npz::<InferenceError>(self.groups.all(), &file.path, &rows.members, |archive| {
            if self.groups.all().rank() == 0 {
                archive.write(0, 0, &head)?;
                archive.write(1, 0, &identity)?;
                rows.write_boxes(archive)?;
            }
            for chain in &self.chains {
                let number = u64::from(chain.number);
                if is_first {
                    archive.write(2, number * NUMBERS as u64, &numbers(chain))?;
                    let statistics =
                        DrawStatistics::numbers_of(chain.of_kept.iter().chain([&chain.statistics]).copied());
                    archive.write(3, number * (kept + 1) * STATISTICS as u64, &statistics)?;
                    archive.write(4, number * scales, &chain.scale.numbers())?;
                }
                let direction = chain.flight.as_ref().map_or(&chain.place.momentum, |flight| &flight.place.momentum);
                let Moments { mean, squares, .. } = &chain.moments;
                let own = [&chain.place.x, &chain.scale.diagonal, mean, squares, direction];
                let batches = chain.batches.iter().flat_map(|batches| {
                    let Moments { mean, squares, .. } = &batches.means;
                    [&batches.sum, mean, squares]
                });
                for (row, vector) in own.into_iter().chain(batches).chain(&chain.kept).enumerate() {
                    rows.write(archive, number * each + row as u64, &space.stage(vector)?)?;
                }
            }
            Ok(())
        })
    }

    /// Reads the chains of this group; returns `false` without a file. Collective over all
    /// groups.
    pub(super) fn load(&mut self, space: &mut S, file: &StateFile, like: &S::Vector) -> Result<bool> {
        let layout = RowLayout::of(space, &self.groups, like)?;
        let Some(open) = file.open(&self.groups)? else { return Ok(false) };
        let head = open.integers("head")?;
        let names = ["version", "seed", "algorithm", "chains", "warm-up", "thinning"];
        let own = self.head();
        if head.len() != own.len() {
            return Err(file.wrong("it is not a state of chains; give another directory"));
        }
        if let Some((name, _)) = names.iter().zip(head.iter().zip(&own)).find(|(_, (theirs, own))| theirs != own) {
            return Err(file.wrong(format!(
                "its chains have another {name}; give the same options or another directory, or start again"
            )));
        }
        file.check_identity(&open.integers("identity")?)?;
        let Some(done) = u32::try_from(head[6]).ok().filter(|done| *done <= self.total()) else {
            return Err(file.wrong(format!(
                "it has {} draws with the warm-up, and {} are asked for; raise the number of draws",
                head[6],
                self.total()
            )));
        };
        let (chains, kept) = (u64::from(self.options.chains), self.kept(done));
        let before = self.rows(done);
        let each = before + kept;
        let rows = SavedRows::open((layout, self.groups.place()), chains * each, &open)?;
        let (all_numbers, all_statistics) = (open.member("numbers")?, open.member("statistics")?);
        let all_scales = open.member("scales")?;
        // Returns the numbers of a chain in a member that has `each` of them for each.
        let of_chain = |member: &NpyFile, chain: usize, each: u64| {
            open.or_broken(member.read_f64(chain as u64 * each..(chain as u64 + 1) * each))
        };
        let scales = all_scales.len() / chains;
        let wrong = || file.wrong("its numbers are not those of chains; remove it to start again");
        for chain in self.own() {
            let numbers = of_chain(&all_numbers, chain, NUMBERS as u64)?;
            let numbers: [f64; NUMBERS] = numbers.try_into().map_err(|_| wrong())?;
            let [step, length, is_flying, square, along, average @ .., steps, means, count] = numbers;
            let average = self.average(average).ok_or_else(wrong)?;
            let of_draws = of_chain(&all_statistics, chain, (kept + 1) * STATISTICS as u64)?;
            let mut statistics = DrawStatistics::of_numbers(&of_draws);
            let Some(last) = statistics.pop().filter(|_| step > 0.0) else { return Err(wrong()) };
            let mut row = |row: u64| rows.read(space, like, chain as u64 * each + row);
            let [x, scale, mean, squares, direction] = [row(0)?, row(1)?, row(2)?, row(3)?, row(4)?];
            let batches = match before > ROWS {
                true => {
                    let means = Moments { count: means as u32, mean: row(ROWS + 1)?, squares: row(ROWS + 2)? };
                    Some(Batches { steps: steps as u32, sum: row(ROWS)?, means })
                }
                false => None,
            };
            let kept = (0..kept).map(|number| row(before + number)).collect::<Result<Vec<_>, _>>()?;
            let of_scale = of_chain(&all_scales, chain, scales)?;
            let Some(scale) = Scale::restore(space, &*self.likelihood, &x, (scale, &of_scale))? else {
                return Err(wrong());
            };
            let target = Target { likelihood: &*self.likelihood, scale: &scale };
            let Some(place) = target.place(space, x)? else { return Err(wrong()) };
            let place = Rc::new(place);
            let resume = || Flight::resume(space, &target, &place, direction, [square, along]);
            let flight = (is_flying == 1.0).then(resume).transpose()?;
            self.chains.push(Chain {
                number: chain as u32,
                place: flight.as_ref().map_or(place, |flight| flight.place.clone()),
                flight,
                scale,
                step,
                length,
                average,
                moments: Moments { count: count as u32, mean, squares },
                batches,
                statistics: last,
                kept,
                of_kept: statistics,
            });
        }
        self.done = done;
        Ok(true)
    }

    /// Returns the average of some numbers; `None` if there is none.
    fn average(&self, numbers: [f64; 5]) -> Option<StepAverage> {
        if !numbers.iter().all(|number| number.is_finite()) {
            return None;
        }
        Some(match self.options.algorithm {
            super::Algorithm::Mclmc { .. } => {
                StepAverage::Energy(EnergyAverage { sum: numbers[0], weight: numbers[1] })
            }
            _ => {
                let [center, target, count, error, mean] = numbers;
                StepAverage::Acceptance(DualAverage { center, target, count, error, mean })
            }
        })
    }
}

/// Returns the numbers of a chain.
fn numbers<S: VectorSpace>(chain: &Chain<S>) -> [f64; NUMBERS] {
    let flight = chain.flight.as_ref();
    let [is_flying, square, along] = flight.map_or([0.0; 3], |flight| [1.0, flight.square, flight.along]);
    let [a, b, c, d, e] = match chain.average {
        StepAverage::Energy(EnergyAverage { sum, weight }) => [sum, weight, 0.0, 0.0, 0.0],
        StepAverage::Acceptance(DualAverage { center, target, count, error, mean }) => {
            [center, target, count, error, mean]
        }
    };
    let [steps, means] = chain.batches.as_ref().map_or([0, 0], |batches| [batches.steps, batches.means.count]);
    let [steps, means, count] = [steps, means, chain.moments.count].map(f64::from);
    [chain.step, chain.length, is_flying, square, along, a, b, c, d, e, steps, means, count]
}
