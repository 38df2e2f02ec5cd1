//! The file of a state, of a fit or of chains, and the vectors in it: row by row, as the ranks of a
//! group hold them.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::log_likelihood::Identity;
use super::vector_space::{Share, Staged, VectorSpace};
use crate::grid::{Box3, extent, volume};
use crate::host_memory;
use crate::io::collective::Archive;
use crate::io::{IoError, Member, NpyFile, NpzFile, OutputDir};

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

/// The file of a state.
pub(super) struct StateFile {
    pub path: PathBuf,
    /// Identity of the likelihood.
    pub identity: Identity,
    pub seed: u64,
}

impl StateFile {
    /// Opens a state in `directory`, which is created if it does not exist. Collective.
    pub fn new(
        (directory, name): (&Path, &str),
        existing: Existing,
        groups: &SampleGroups,
        identity: Identity,
        seed: u64,
    ) -> Result<Self> {
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
    pub fn open(&self, groups: &SampleGroups) -> Result<Option<OpenState<'_>>> {
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

    /// Refuses the state of another likelihood.
    pub fn check_identity(&self, saved: &[i64]) -> Result<()> {
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
}

/// A state that is read.
pub(super) struct OpenState<'a> {
    pub state: &'a StateFile,
    archive: NpzFile,
}

impl OpenState<'_> {
    pub fn member(&self, name: &str) -> Result<NpyFile> {
        self.or_broken(self.archive.member(name))
    }

    pub fn integers(&self, name: &str) -> Result<Vec<i64>> {
        let member = self.member(name)?;
        self.or_broken(member.read_i64(0..member.len()))
    }

    pub fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let member = self.member(name)?;
        self.or_broken(member.read_f64(0..member.len()))
    }

    /// Returns what was read, or the error of a file that cannot be read.
    pub fn or_broken<T>(&self, read: Result<T, IoError>) -> Result<T> {
        read.map_err(|error| self.state.broken(error))
    }
}

/// Names of the members with the boxes of ranks and with the rows of f32 and f64.
const BOXES: &str = "boxes";
const SINGLES: &str = "singles";
const DOUBLES: &str = "doubles";

/// The rows of a file that is written: its last three members.
pub(super) struct NewRows {
    layout: RowLayout,
    place: usize,
    /// All members of the file.
    pub members: Vec<Member>,
}

impl NewRows {
    /// Describes `rows` vectors like `like`, after other members. Collective over all groups.
    pub fn new<S: VectorSpace>(
        space: &S,
        groups: &SampleGroups,
        like: &S::Vector,
        rows: u64,
        mut members: Vec<Member>,
    ) -> Result<Self> {
        let layout = RowLayout::of(space, groups, like)?;
        let [single, double] = layout.len();
        let shares = layout.ranks.first().map_or(0, Vec::len);
        members.push(Member::new::<i64>(BOXES, &[layout.ranks.len(), shares, BOX].map(|len| len as u64)));
        members.push(Member::new::<f32>(SINGLES, &[rows, single]));
        members.push(Member::new::<f64>(DOUBLES, &[rows, double]));
        Ok(NewRows { layout, place: groups.place(), members })
    }

    /// Writes the boxes of ranks. Call it on one rank.
    pub fn write_boxes(&self, archive: &mut Archive) -> Result<(), IoError> {
        let ranges = self.layout.ranks.iter().flatten().flat_map(|share| &share.own);
        let boxes: Vec<i64> = ranges.flat_map(|range| [range.start as i64, range.end as i64]).collect();
        archive.write(self.members.len() - 3, 0, &boxes)
    }

    /// Writes what this rank holds of a vector.
    pub fn write(&self, archive: &mut Archive, number: u64, own: &Staged) -> Result<(), IoError> {
        let ([single, double], [to_single, to_double]) = (self.layout.len(), self.layout.first(self.place));
        archive.write(self.members.len() - 2, number * single + to_single, &own.singles)?;
        archive.write(self.members.len() - 1, number * double + to_double, &own.doubles)
    }
}

/// The rows of a file that is read.
pub(super) struct SavedRows<'a> {
    own: RowLayout,
    theirs: RowLayout,
    place: usize,
    file: &'a OpenState<'a>,
    singles: NpyFile,
    doubles: NpyFile,
}

impl<'a> SavedRows<'a> {
    /// Opens `rows` vectors of a layout, for a rank of it; refuses a file that has others.
    pub fn open((own, place): (RowLayout, usize), rows: u64, file: &'a OpenState) -> Result<Self> {
        let (singles, doubles) = (file.member(SINGLES)?, file.member(DOUBLES)?);
        let fits = |layout: &RowLayout| {
            let [single, double] = layout.len();
            singles.shape() == [rows, single] && doubles.shape() == [rows, double]
        };
        let Some(theirs) = own.of_boxes(&file.integers(BOXES)?).filter(fits) else {
            return Err(file.state.wrong(format!(
                "it has vectors of {:?} and {:?} numbers, which are no cut of these; it is of another model",
                singles.shape(),
                doubles.shape()
            )));
        };
        Ok(SavedRows { own, theirs, place, file, singles, doubles })
    }

    /// Reads a vector.
    pub fn read<S: VectorSpace>(&self, space: &mut S, like: &S::Vector, number: u64) -> Result<S::Vector> {
        let SavedRows { own, theirs, place, file, singles, doubles } = self;
        let [single, double] = theirs.len();
        let at = |range: Range<u64>, len: u64| number * len + range.start..number * len + range.end;
        let mut staged = Staged::default();
        for (part, share) in own.ranks[*place].iter().enumerate() {
            if share.is_double {
                let mut read = |range| file.or_broken(doubles.read_finite_f64(at(range, double)));
                staged.doubles.extend(theirs.gather(part, share, &mut read)?);
            } else {
                let mut read = |range| file.or_broken(singles.read_finite_f32(at(range, single)));
                staged.singles.extend(theirs.gather(part, share, &mut read)?);
            }
        }
        let mut vector = space.like(like)?;
        space.unstage(&staged, &mut vector)?;
        Ok(vector)
    }
}

/// Numbers of a box in the file.
const BOX: usize = 6;

/// The shares of each rank of a group: a row of the file has the numbers of one rank after the
/// other.
pub(super) struct RowLayout {
    ranks: Vec<Vec<Share>>,
}

/// Returns the count of f32 or f64 of shares.
fn len(shares: &[Share], is_double: bool) -> u64 {
    shares.iter().filter(|share| share.is_double == is_double).map(Share::len).sum()
}

impl RowLayout {
    /// Returns the layout of the ranks of a group, which is the same for all groups. Collective
    /// over all groups.
    pub fn of<S: VectorSpace>(space: &S, groups: &SampleGroups, x: &S::Vector) -> Result<Self> {
        let own = space.shares(x)?;
        let boxes: Vec<u64> =
            own.iter().flat_map(|share| &share.own).flat_map(|range| [range.start, range.end]).collect();
        let all = groups.all().all_gather(&boxes)?;
        let group = groups.all().size() / groups.count() * boxes.len();
        Ok(RowLayout { ranks: all[..group].chunks(boxes.len().max(1)).map(|boxes| with_boxes(&own, boxes)).collect() })
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

    /// Returns the numbers of a share of part `part` from a row of this layout, of which `read`
    /// returns a range.
    fn gather<T: Copy + Default>(
        &self,
        part: usize,
        own: &Share,
        read: &mut dyn FnMut(Range<u64>) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
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
