//! Files of points and their box, which all commands about points share.

use std::ops::Range;
use std::path::Path;

use meshloom::comm::{Communicator, Op};
use meshloom::gpu::Recorder;
use meshloom::host_memory;
use meshloom::io::{Dtype, IoError, printable_path};
use meshloom::points::{BoxCheck, BoxUse, Cloud, Domain, ParticleError};
use meshloom::{Error, Rank};

use crate::coordinates::{self, PointReader};
use crate::failure::Failure;
use crate::particle_type::ParticleType;
use crate::space::{common_sides, differences};
use crate::terminal;

/// The value of `--box`: one side for all axes, or one each; 0 or `open` is an open axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Sides(Vec<f64>);

impl std::str::FromStr for Sides {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |word: &str| match word.trim() {
            "open" => Some(0.0),
            word => word.parse::<f64>().ok(),
        };
        let sides: Option<Vec<f64>> = text.split(',').map(side).collect();
        let sides = sides.filter(|sides| sides.len() <= 3);
        let sides =
            sides.ok_or("write one side, or one for each axis with commas between; `open` or 0 for an open axis")?;
        // A domain, which checks the sides, has two axes at least.
        let both = if sides.len() == 1 { vec![sides[0]; 2] } else { sides.clone() };
        Domain::new(&both).map_err(|error| error.to_string())?;
        Ok(Sides(sides))
    }
}

impl Sides {
    /// Returns the domain of points of `dims` axes.
    ///
    /// # Errors
    /// [`Failure::Usage`] for another number of sides.
    fn domain(sides: Option<&Self>, dims: usize) -> Result<Domain, Failure> {
        let sides = match sides {
            None => vec![0.0; dims],
            Some(Sides(sides)) if sides.len() == 1 => vec![sides[0]; dims],
            Some(Sides(sides)) => sides.clone(),
        };
        if sides.len() != dims {
            let have = sides.len();
            return Err(Failure::Usage(format!(
                "--box has {have} sides, but the points have {dims} axes; give one side per axis, or one for all"
            )));
        }
        Domain::new(&sides).map_err(|error| Failure::Usage(format!("--box: {error}")))
    }
}

/// Returns the sides of a domain for a report: a length, or null for an open axis.
pub fn sides(domain: &Domain) -> serde_json::Value {
    (0..domain.dims()).map(|axis| domain.side(axis)).collect::<Vec<_>>().into()
}

/// A file of points.
pub struct PointFile {
    pub file: Box<dyn PointReader>,
    count: u64,
    dims: usize,
}

/// Coordinates that are read at a time, or as many as a compressed chunk has.
const PIECE: u64 = 1 << 20;

impl PointFile {
    /// Reads the header; of a snapshot particles of one type are taken.
    ///
    /// # Errors
    /// [`IoError`] for files that hold no points of 2 or 3 axes, f32 or f64.
    pub fn open(path: &Path, particles: ParticleType) -> Result<Self, IoError> {
        let file = coordinates::open(path, particles)?;
        let (count, dims) = (file.shape()[0], file.shape()[1] as usize);
        Ok(PointFile { file, count, dims })
    }

    /// Returns the number of points.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Axes: 2 or 3.
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// Returns the domain of the points: the box of `sides`, else that of the file's header, else
    /// open space.
    ///
    /// # Errors
    /// [`Failure::Usage`] where `sides` are of another number of axes, [`Failure::Failed`] for a
    /// header's box that cannot be one.
    pub fn domain(&self, sides: Option<&Sides>) -> Result<Domain, Failure> {
        self.domain_of(sides, self.file.sides())
    }

    /// Same as [`domain`](Self::domain), of these points and of others, which must not be in
    /// another box where `sides` does not say it.
    ///
    /// # Errors
    /// Same as [`domain`](Self::domain); [`Failure::Failed`] for two boxes, and the files' own.
    pub fn domain_with(&self, others: &PointFile, sides: Option<&Sides>) -> Result<Domain, Failure> {
        if sides.is_some() {
            return self.domain(sides);
        }
        let (own, theirs) = (self.file.space()?, others.file.space()?);
        self.domain_of(None, common_sides((self.file.path(), &own), (others.file.path(), &theirs))?)
    }

    fn domain_of(&self, sides: Option<&Sides>, of_files: Option<Vec<f64>>) -> Result<Domain, Failure> {
        match of_files.filter(|_| sides.is_none()) {
            Some(own) => Domain::new(&own).map_err(|error| {
                let path = printable_path(self.file.path());
                Failure::Failed(format!("{path}: Header/BoxSize: {error}; give --box, which goes before it"))
            }),
            None => Sides::domain(sides, self.dims),
        }
    }

    /// Returns what these points and others say differently of their space, in words for warnings.
    ///
    /// # Errors
    /// [`IoError`] if a file cannot be read.
    pub fn differences(&self, others: &PointFile) -> Result<Vec<String>, IoError> {
        Ok(differences((self.file.path(), &self.file.space()?), (others.file.path(), &others.file.space()?)))
    }

    /// Returns the rows that this rank reads.
    pub fn rows(&self, comm: &Communicator) -> Range<u64> {
        comm.shares().split(self.count, comm.rank())
    }

    /// Returns the ids of a snapshot for these `wanted` rows, which may belong to any rank; `None`
    /// if it has no ids. Collective.
    ///
    /// Each rank reads those of its own rows, and sends what the others ask for.
    ///
    /// # Errors
    /// Errors of the file and the ranks.
    pub fn ids(&self, comm: &Communicator, wanted: &[u64]) -> Result<Option<Vec<u64>>, Error> {
        let own = self.rows(comm);
        let ids = self.file.ids(own.clone())?;
        // A rank without rows reads nothing, and cannot know.
        let mut there = [u64::from(ids.is_some() || own.is_empty())];
        comm.all_reduce(&mut there, Op::Min)?;
        let Some(ids) = ids.filter(|_| there[0] == 1) else { return Ok(None) };
        let shares = comm.shares();
        let owner = |row: u64| shares.owner(self.count, row);
        let mut asked = host_memory::collect("ids of points", 0..wanted.len())?;
        asked.sort_unstable_by_key(|&at| owner(wanted[at]));
        let mut counts = vec![0; comm.size()];
        wanted.iter().for_each(|&row| counts[owner(row)] += 1);
        let questions = host_memory::collect("ids of points", asked.iter().map(|&at| wanted[at]))?;
        let questions = comm.all_to_all_v(&questions, &counts)?;
        let answers = questions.data().iter().map(|&row| ids[(row - own.start) as usize]);
        let answers = host_memory::collect("ids of points", answers)?;
        let answers = comm.all_to_all_v(&answers, questions.counts())?;
        let mut found = host_memory::zeros("ids of points", wanted.len())?;
        asked.iter().zip(answers.data()).for_each(|(&at, &id)| found[at] = id);
        Ok(Some(found))
    }

    /// Reads this rank's points in `domain` to its device. Collective. Rank 0 warns where rounding
    /// to f32 blurs the order of neighbors, and where points and box seem to be in different units.
    ///
    /// # Errors
    /// `IoErrorKind::Value` with the first bad element of the file, the same on all
    /// ranks; those of the file, the ranks and the device.
    pub fn read(&self, rank: &mut Rank, domain: &Domain, box_use: BoxUse) -> Result<Cloud, Error> {
        let comm = &rank.comm.clone();
        let rows = self.rows(comm);
        let mut looked_at = LookedAt { rounding: Rounding::new(self.dims), box_check: BoxCheck::of(domain, box_use) };
        let found = self.upload(&mut rank.recorder, domain, &rows, &mut looked_at);
        let found = match found {
            Err(Error::Particles(error)) => Err(error),
            Err(error) => return Err(error),
            Ok(cloud) => Ok(cloud),
        };
        let cloud = Cloud::agreed(comm, rows.end - rows.start, found).map_err(|error| self.named(error))?;
        warn_of_box(comm, &looked_at.box_check, self.file.path())?;
        if self.file.dtype() == Dtype::F64
            && let Some(axis) = looked_at.rounding.affected_axis(comm, self.count)?
            && comm.rank() == 0
        {
            terminal::warn(&format!(
                "{}: coordinate {axis} is rounded to f32 by more than 1/100 of the distance between \
                 neighbors, whose order may be lost; along open axes subtract a common origin from the points in f64 first, \
                 before anything rounds them to f32",
                printable_path(self.file.path())
            ));
        }
        Ok(cloud)
    }

    fn upload(
        &self,
        recorder: &mut Recorder,
        domain: &Domain,
        rows: &Range<u64>,
        looked_at: &mut LookedAt,
    ) -> Result<Cloud, Error> {
        let dims = self.dims as u64;
        let len = (rows.end - rows.start) * dims;
        Cloud::check_count(rows.end - rows.start, domain)?;
        let positions = recorder.gpu().array::<f32>("points", len)?;
        for Range { start: first, end: last } in self.file.pieces(rows.clone(), PIECE / dims)? {
            let (elements, at) = (first * dims..last * dims, (first - rows.start) * dims);
            if self.file.dtype() == Dtype::F64 {
                let wide = self.file.read_f64(elements)?;
                let narrow = domain.narrow(&wide, first - rows.start)?;
                looked_at.rounding.add(&wide, &narrow, domain);
                looked_at.box_check.add(&wide);
                recorder.upload(&positions, at, &narrow)?;
            } else {
                let narrow = self.file.read_f32(elements)?;
                looked_at.box_check.add(&narrow);
                recorder.upload(&positions, at, &narrow)?;
            }
        }
        Ok(Cloud::new(recorder, domain, positions)?)
    }

    /// Adds the path of the file, and the value, to an error.
    fn named(&self, error: ParticleError) -> Error {
        let path = self.file.path().to_path_buf();
        match error {
            ParticleError::NonFinite { index, axis } => {
                let element = index * self.dims as u64 + axis as u64;
                let value = self.file.read_f64(element..element + 1).map_or(f64::NAN, |values| values[0]);
                IoError::non_finite(path, [index, axis as u64], value).into()
            }
            ParticleError::OutOfRange { index, axis, value } => {
                IoError::beyond_f32(path, [index, axis as u64], value).into()
            }
            error => error.into(),
        }
    }
}

/// Properties of coordinates that are worth a warning, collected while they are read.
struct LookedAt {
    rounding: Rounding,
    box_check: BoxCheck,
}

/// Has rank 0 warn where the points of the file at `path` and their box seem to be in different
/// units. Collective: every rank calls it.
///
/// # Errors
/// [`Error::Comm`] if another rank fails.
pub fn warn_of_box(comm: &Communicator, check: &BoxCheck, path: &Path) -> Result<(), Error> {
    let warnings = check.warnings(comm)?;
    if comm.rank() == 0 {
        let path = printable_path(path);
        warnings.iter().for_each(|warning| terminal::warn(&format!("{path}: {warning} (--box)")));
    }
    Ok(())
}

/// Displacement of coordinates by rounding to f32, compared with the distance between points.
struct Rounding {
    dims: usize,
    /// For each axis the least coordinate; then minus the greatest; then minus the greatest move:
    /// so that all are minima.
    least: [f64; 9],
}

impl Rounding {
    fn new(dims: usize) -> Self {
        Rounding { dims, least: [f64::INFINITY; 9] }
    }

    fn add(&mut self, wide: &[f64], narrow: &[f32], domain: &Domain) {
        for (at, (&wide, &narrow)) in wide.iter().zip(narrow).enumerate() {
            let axis = at % self.dims;
            let (exact, narrow) = (domain.image(axis, wide), f64::from(narrow));
            let moved = (exact - narrow).abs();
            // A coordinate that rounds to the side becomes 0.
            let moved = domain.side(axis).map_or(moved, |side| moved.min((f64::from(side) - moved).abs()));
            self.least[axis] = self.least[axis].min(exact);
            self.least[3 + axis] = self.least[3 + axis].min(-exact);
            self.least[6 + axis] = self.least[6 + axis].min(-moved);
        }
    }

    /// Returns the first axis along which some coordinate of all ranks moves by more than 1/100 of
    /// the mean distance between neighbors, if points of that number filled their extent evenly.
    fn affected_axis(&self, comm: &Communicator, count: u64) -> Result<Option<usize>, Error> {
        let mut least = self.least;
        comm.all_reduce(&mut least, Op::Min)?;
        let along = (count as f64).powf(1.0 / self.dims as f64);
        let blurred = |&axis: &usize| {
            let (extent, moved) = (-least[3 + axis] - least[axis], -least[6 + axis]);
            // Where all coordinates are one, they move as one.
            count > 1 && extent > 0.0 && moved > 0.01 * extent / along
        };
        Ok((0..self.dims).find(blurred))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_one_side_or_one_an_axis() {
        let domain = |text: &str, dims: usize| Sides::domain(Some(&text.parse::<Sides>().unwrap()), dims).ok();
        assert_eq!(domain("2", 3), Domain::new(&[2.0; 3]).ok());
        assert_eq!(domain("1,open", 2), Domain::new(&[1.0, 0.0]).ok());
        assert_eq!(domain("1, 0 ,3", 3), Domain::new(&[1.0, 0.0, 3.0]).ok());
        assert_eq!(domain("open", 2), Domain::open(2).ok());
        assert_eq!((domain("1,2", 3), domain("1,2,3", 2)), (None, None));
        assert_eq!(Sides::domain(None, 3).ok(), Domain::open(3).ok());
        for wrong in ["", "-1", "nan", "inf", "1,,2", "1,2,3,4", "x", "1e31"] {
            assert!(wrong.parse::<Sides>().is_err(), "{wrong}");
        }
    }
}
