//! The state of a fit in a file, from which it is resumed.
//!
//! `state.npz` has the position and all residuals as each rank of a group holds them, rank after
//! rank, with the boxes of each, the outcome of each sample, and a report of each iteration.
//! Fingerprints of the likelihood identify data and model; the energy at the position is a second
//! check. The file is replaced as a whole, so that a killed run leaves the state of its last
//! iteration or of the one before.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::{Identity, LogLikelihood};
use super::report::{Convergence, IterationReport, Number, Numbers, OUTCOME, SampleOutcome, gather};
use super::samples::Samples;
use super::vector_space::{Share, Staged, VectorSpace};
use crate::grid::{Box3, extent, volume};
use crate::host_memory;
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
    path: PathBuf,
    identity: Identity,
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
    /// Opens the state in `directory`, which is created if it does not exist. Collective.
    pub fn new(
        directory: &Path,
        existing: Existing,
        groups: &SampleGroups,
        identity: Identity,
        seed: u64,
    ) -> Result<Self, InferenceError> {
        let path = directory.join("state.npz");
        let mut refused = [u32::from(existing == Existing::Refuse && groups.all().rank() == 0 && path.exists())];
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
        Ok(StateFile { path, identity, seed })
    }

    fn wrong(&self, why: impl Into<String>) -> InferenceError {
        InferenceError::State { path: self.path.clone(), why: why.into() }
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
        let layout = RowLayout::of(space, groups, &samples.position)?;
        let (row, first) = (layout.len(), layout.first(groups.place()));
        let rows = 1 + samples.count() as u64;
        let identity = self.identity.parts().map(|(_, mark)| mark as i64);
        let head = [VERSION, self.seed as i64, samples.count() as i64, i64::from(saved.drawn_in)];
        let history: Vec<f64> = saved.history.iter().flat_map(IterationReport::numbers).collect();
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

    /// Reads the state; `None` if the file does not exist. Collective over all groups.
    pub fn load<S: VectorSpace>(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        likelihood: &dyn LogLikelihood<S>,
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
        let member = |name: &str| file.member(name).map_err(broken);
        let integers = |name: &str| member(name).and_then(|own| own.read_i64(0..own.len()).map_err(broken));
        let numbers = |name: &str| member(name).and_then(|own| own.read_f64(0..own.len()).map_err(broken));
        let (count, drawn_in) = self.check_head(&integers("head")?)?;
        self.check_identity(&integers("identity")?)?;
        let rows = 1 + count as u64;
        let history = numbers("history")?;
        let outcomes = self.check_outcomes(&numbers("outcomes")?, count)?;
        let energy = numbers("energy")?;
        let boxes = integers("boxes")?;
        let (singles, doubles) = (member("singles")?, member("doubles")?);
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
                "it is of other data or another model: the energy of its position was {saved:?} and is {found} here; give another directory, or start anew"
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

/// Numbers of a box in the file.
const BOX: usize = 6;

/// The shares of each rank of a group: a row of the file has the numbers of one rank after the
/// other.
struct RowLayout {
    ranks: Vec<Vec<Share>>,
}

/// Returns the count of f32 or f64 of shares.
fn len(shares: &[Share], is_double: bool) -> u64 {
    shares.iter().filter(|share| share.is_double == is_double).map(Share::len).sum()
}

impl RowLayout {
    /// Returns the layout of the ranks of a group, which is the same for all groups. Collective
    /// over all groups.
    fn of<S: VectorSpace>(space: &S, groups: &SampleGroups, x: &S::Vector) -> Result<Self, InferenceError> {
        let own = space.shares(x)?;
        let boxes: Vec<u64> =
            own.iter().flat_map(|share| &share.own).flat_map(|range| [range.start, range.end]).collect();
        let all = groups.all().all_gather(&boxes)?;
        let group = groups.all().size() / groups.count() * boxes.len();
        Ok(RowLayout { ranks: all[..group].chunks(boxes.len().max(1)).map(|boxes| with_boxes(&own, boxes)).collect() })
    }

    /// Returns the box of each rank and of each part of a vector, as the file keeps them.
    fn boxes(&self) -> Vec<i64> {
        let ranges = self.ranks.iter().flatten().flat_map(|share| &share.own);
        ranges.flat_map(|range| [range.start as i64, range.end as i64]).collect()
    }

    /// Returns the shape of the boxes.
    fn boxes_shape(&self) -> [u64; 3] {
        [self.ranks.len() as u64, self.ranks.first().map_or(0, Vec::len) as u64, BOX as u64]
    }

    /// Returns the layout of the ranks that wrote these boxes; `None` if they do not cover such
    /// vectors.
    fn of_boxes(&self, boxes: &[i64]) -> Option<Self> {
        let own = self.ranks.first()?;
        let boxes = boxes.iter().map(|&edge| u64::try_from(edge).ok()).collect::<Option<Vec<u64>>>()?;
        if own.is_empty() || boxes.is_empty() || boxes.len() % (BOX * own.len()) > 0 {
            return None;
        }
        let ranks: Vec<_> = boxes.chunks(BOX * own.len()).map(|boxes| with_boxes(own, boxes)).collect();
        let fits = |share: &Share| {
            share.own.iter().zip(share.shape).all(|(range, n)| range.start <= range.end && range.end <= n)
        };
        let is_whole = |part: usize| {
            let found: u64 = ranks.iter().map(|shares: &Vec<Share>| volume(&shares[part].own)).sum();
            let times = if own[part].is_replicated { ranks.len() as u64 } else { 1 };
            found == times * own[part].shape.iter().product::<u64>()
        };
        (ranks.iter().flatten().all(fits) && (0..own.len()).all(is_whole)).then_some(RowLayout { ranks })
    }

    /// Returns the counts of f32 and f64 of a row.
    fn len(&self) -> [u64; 2] {
        [false, true].map(|is_double| self.ranks.iter().map(|shares| len(shares, is_double)).sum())
    }

    /// Returns where the numbers of a rank begin in a row.
    fn first(&self, rank: usize) -> [u64; 2] {
        [false, true].map(|is_double| self.ranks[..rank].iter().map(|shares| len(shares, is_double)).sum())
    }

    /// Returns the shares of a rank.
    fn shares(&self, rank: usize) -> &[Share] {
        &self.ranks[rank]
    }

    /// Returns the numbers of a share of part `part` from a row of this layout, of which `read`
    /// returns a range.
    fn gather<T: Copy + Default>(
        &self,
        part: usize,
        own: &Share,
        read: &mut dyn FnMut(Range<u64>) -> Result<Vec<T>, InferenceError>,
    ) -> Result<Vec<T>, InferenceError> {
        let mut found = host_memory::fill("a saved state", T::default(), own.len() as usize)?;
        let mut first = 0;
        for shares in &self.ranks {
            let theirs = &shares[part];
            let common =
                [0, 1, 2].map(|a| theirs.own[a].start.max(own.own[a].start)..theirs.own[a].end.min(own.own[a].end));
            if common.iter().all(|range| !range.is_empty()) && own.fields > 0 {
                let start = first + len(&shares[..part], own.is_double);
                let values = read(start..start + theirs.len())?;
                copy((&theirs.own, &values), (&own.own, &mut found), &common, own.fields);
                if own.is_replicated {
                    break;
                }
            }
            first += len(shares, own.is_double);
        }
        Ok(found)
    }
}

/// Returns the shares with other boxes.
fn with_boxes(shares: &[Share], boxes: &[u64]) -> Vec<Share> {
    let of = |edges: &[u64]| -> Box3 { [0, 1, 2].map(|a| edges[2 * a]..edges[2 * a + 1]) };
    shares.iter().zip(boxes.chunks(BOX)).map(|(share, edges)| Share { own: of(edges), ..share.clone() }).collect()
}

/// Copies the cells of `common` of each field, line by line.
fn copy<T: Copy>((from, values): (&Box3, &[T]), (to, found): (&Box3, &mut [T]), common: &Box3, fields: u64) {
    let at = |cells: &Box3, field: u64, i: u64, j: u64| {
        let [e0, e1, e2] = extent(cells);
        let [i, j, k] = [i - cells[0].start, j - cells[1].start, common[2].start - cells[2].start];
        ((((field * e0 + i) * e1) + j) * e2 + k) as usize
    };
    let count = (common[2].end - common[2].start) as usize;
    for field in 0..fields {
        for i in common[0].clone() {
            for j in common[1].clone() {
                let line = &values[at(from, field, i, j)..][..count];
                found[at(to, field, i, j)..][..count].copy_from_slice(line);
            }
        }
    }
}
