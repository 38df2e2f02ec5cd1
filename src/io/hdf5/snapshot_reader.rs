//! Reading snapshots, each rank its own particles.

use std::ops::{Deref, Range};
use std::path::Path;

use super::part_file::{check_count, coordinates_name};
use super::{Opened, PartFile, PointFiles, VelocityUnit, broken, group_name, parts, queries, read_rows, wrong};
use crate::io::{Dtype, IoError, IoErrorKind, Result};

/// The particles of one type in a snapshot in the layout of Gadget-4 or SWIFT, from one file or
/// several, as one array.
///
/// - **Files**: any one of `name.0.hdf5`, `name.1.hdf5`, ... opens all, and so does `name.hdf5` if
///   only these exist.
/// - **Particles**: the requested type ([`SnapshotOptions`]), else those of
///   `PartType1` (dark matter), else the only type with coordinates.
/// - Opening reads only headers; a `positions_*`, `velocities_*`, ... call reads only its rows,
///   counted over all files. Every rank opens the snapshot by itself, without synchronization.
/// - Numbers are in the units of the file.
///
/// [`Hdf5Writer`](super::Hdf5Writer) has an example.
#[derive(Clone, Debug)]
pub struct Snapshot {
    files: PointFiles,
    particle_type: usize,
}

impl Deref for Snapshot {
    type Target = PointFiles;

    fn deref(&self) -> &PointFiles {
        &self.files
    }
}

/// Options for opening a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// The N of the `PartTypeN` to read: in Gadget's files 0 is gas, 1 dark matter, 4 stars, 5
    /// black holes. `None` chooses like [`Snapshot::open`].
    pub particle_type: Option<usize>,
    /// Whether the coordinates alone determine the number of particles, and the counts in the
    /// header are ignored: for a part of a larger snapshot that was saved with the header of the
    /// whole.
    pub trust_coordinates: bool,
}

impl Snapshot {
    /// Opens all files of the snapshot and checks that they agree.
    ///
    /// # Errors
    /// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`; `IoErrorKind::Format`
    /// for foreign and truncated files, headers that are missing, impossible or contradict each
    /// other, and for a missing file of several; `IoErrorKind::ParticleCount` for a header that
    /// counts other particles than there are; `IoErrorKind::Missing` if no particles, or several
    /// types other than `PartType1`, have coordinates; `IoErrorKind::Shape` and
    /// `IoErrorKind::ElementType` for coordinates that are not `(N, 3)` or `(N, 2)`, f32 or f64.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, SnapshotOptions::default())
    }

    /// Opens the snapshot with options.
    ///
    /// # Errors
    /// Same as [`open`](Self::open); `IoErrorKind::Missing` if no particles of the requested type
    /// have coordinates, unless the snapshot counts no particles at all.
    pub fn open_with(path: impl AsRef<Path>, options: SnapshotOptions) -> Result<Self> {
        let (path, is_trusted) = (path.as_ref(), options.trust_coordinates);
        let files = parts::find(path)?;
        let particle_type = particle_type(path, &files, options.particle_type)?;
        let header = files[0].header.clone();
        let read = |file: PartFile| Ok((file.path.clone(), file.coordinates(particle_type, is_trusted)?));
        let points = files.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        let files = PointFiles::new(path, header, &coordinates_name(particle_type), points)?;
        if !is_trusted {
            let counted = ("NumPart_Total", files.header.total.as_deref());
            check_count(path, counted, particle_type, files.count())?;
        }
        Ok(Snapshot { files, particle_type })
    }

    /// Returns the number N of the `PartTypeN` that is read.
    #[must_use]
    pub fn particle_type(&self) -> usize {
        self.particle_type
    }

    /// Returns `rows` in pieces of about `each` rows, cut at the ends of compressed chunks of a
    /// dataset, such as `Coordinates` or `Velocities`, so that reading piece by piece decompresses
    /// each chunk once. A piece is longer than `each` only if a chunk is.
    ///
    /// # Errors
    /// `IoErrorKind::Misuse`, `IoErrorKind::Format`.
    pub fn pieces(&self, name: &str, rows: Range<u64>, each: u64) -> Result<Vec<Range<u64>>> {
        self.check_range(&rows)?;
        let (mut chunks, name) = (Vec::new(), self.name(name));
        for (path, part, _) in self.parts_with(&rows) {
            let dataset = Opened::new(path)?.of_particles(&name)?;
            let at_once = dataset.map_or(Ok(1), |(_, dataset)| queries::rows_at_once(&dataset));
            chunks.push((part.clone(), at_once.map_err(|e| broken(path, &e))?));
        }
        Ok(pieces(rows, each, &chunks))
    }

    /// Reads velocities in the units of the files, with as many numbers per row as coordinates.
    ///
    /// # Errors
    /// Same as [`positions_f32`](PointFiles::positions_f32), and `IoErrorKind::Missing` if there
    /// are none.
    pub fn velocities_f32(&self, rows: Range<u64>) -> Result<Vec<f32>> {
        self.floats_f32(&self.name("Velocities"), self.dims, rows)
    }

    /// Reads scale factors of the particles of a light cone ([`ConeInfo`](super::ConeInfo)).
    ///
    /// # Errors
    /// Same as [`velocities_f32`](Self::velocities_f32).
    pub fn scale_factors_f32(&self, rows: Range<u64>) -> Result<Vec<f32>> {
        self.floats_f32(&self.name("ScaleFactors"), 1, rows)
    }

    /// Returns the factor that makes [`velocities_f32`](Self::velocities_f32) peculiar: the power
    /// of the scale factor in the dataset's attributes (`a_scaling` of Gadget-4, `a-scale exponent`
    /// of SWIFT) and, if the dataset or the file states the unit (`to_cgs`, `Conversion factor to
    /// CGS (not including cosmological corrections)`, `Parameters/UnitVelocity_in_cm_per_s`), the
    /// conversion to km/s. `None` if the power or the scale factor is not stated.
    ///
    /// # Errors
    /// `IoErrorKind::Format` for files that cannot be read, and for an attribute that is not a
    /// number.
    pub fn velocity_unit(&self) -> Result<Option<VelocityUnit>> {
        let (Some(a), Some(path)) = (self.scale_factor(), self.first_with_points()) else { return Ok(None) };
        VelocityUnit::read(path, self.particle_type, a)
    }

    /// Returns masses of particles: the type's entry in `Header/MassTable` if it is not 0, else
    /// those of `Masses` (`Mass`).
    ///
    /// Masses are not negative. If a file has both they must be equal, and every file with
    /// particles must have both.
    ///
    /// # Errors
    /// Same as [`positions_f32`](PointFiles::positions_f32); `IoErrorKind::Missing` if there are
    /// neither, `IoErrorKind::Value` and `IoErrorKind::Format` for masses that are negative or not
    /// finite, and `IoErrorKind::Format` if both exist and differ.
    pub fn masses_f32(&self, rows: Range<u64>) -> Result<Vec<f32>> {
        let Some(&mass) = self.header.masses.get(self.particle_type).filter(|&&mass| mass > 0.0) else {
            return self.masses_of_dataset(rows);
        };
        self.check_range(&rows)?;
        let narrow = mass as f32;
        if narrow == 0.0 || !narrow.is_finite() {
            let (entry, path) = (self.particle_type, self.first());
            let reason =
                format!("Header/MassTable: {mass:e} for type {entry} is beyond the range of f32; use other units");
            return Err(wrong(path, reason));
        }
        if self.has_masses(&rows)? {
            let masses = self.masses_of_dataset(rows.clone())?;
            let differs = |found: &f32| (f64::from(*found) - mass).abs() > 1e-5 * mass;
            if let Some((row, found)) = (rows.start..).zip(&masses).find(|(_, found)| differs(found)) {
                let (entry, name) = (self.particle_type, self.name("Masses"));
                let reason = format!(
                    "Header/MassTable has {mass:e} for type {entry}, but in {name} the mass of particle {row} is {found:e}; set the \
                     entry to 0, or remove the dataset"
                );
                return Err(wrong(&self.path, reason));
            }
        }
        let mut masses = self.allocate(&rows, 1)?;
        masses.resize((rows.end - rows.start) as usize, narrow);
        Ok(masses)
    }

    fn masses_of_dataset(&self, rows: Range<u64>) -> Result<Vec<f32>> {
        let first = rows.start;
        let masses = self.floats_f32(&self.name("Masses"), 1, rows)?;
        match masses.iter().position(|mass| !(mass.is_finite() && *mass >= 0.0)) {
            None => Ok(masses),
            Some(at) => Err(self.wrong_mass(first + at as u64, masses[at])),
        }
    }

    /// Returns `true` if a file with some of the rows has a dataset of masses.
    fn has_masses(&self, rows: &Range<u64>) -> Result<bool> {
        let name = self.name("Masses");
        for (path, ..) in self.parts_with(rows) {
            if Opened::new(path)?.of_particles(&name)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Creates the error of a mass that is negative or not finite.
    fn wrong_mass(&self, row: u64, mass: f32) -> IoError {
        let name = self.name("Masses");
        if mass.is_finite() {
            return wrong(&self.path, format!("{name}: the mass of particle {row} is {mass}; it must be from 0 on"));
        }
        IoError::non_finite(self.path.join(name), vec![row], mass.into())
    }

    /// Reads `ParticleIDs`.
    ///
    /// # Errors
    /// Same as [`positions_f64`](PointFiles::positions_f64), `IoErrorKind::Missing` if there are
    /// none, `IoErrorKind::ElementType` if they are not integers, and `IoErrorKind::Format` for one
    /// below 0.
    pub fn ids(&self, rows: Range<u64>) -> Result<Vec<u64>> {
        let mut below = None;
        let ids = self.read(&rows, &self.name("ParticleIDs"), 1, |dataset, at, dtype, out| {
            match dtype {
                Dtype::U32 | Dtype::U64 => out.extend(read_rows::<u64>(dataset, at, 1)?),
                // Read as unsigned, all negative ids would be 0.
                Dtype::I32 | Dtype::I64 => {
                    for id in read_rows::<i64>(dataset, at, 1)? {
                        if id < 0 {
                            below.get_or_insert((rows.start + out.len() as u64, id));
                        }
                        out.push(id as u64);
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        match below {
            None => Ok(ids),
            Some((row, id)) => {
                let name = self.name("ParticleIDs");
                Err(wrong(&self.path, format!("{name}: that of particle {row} is {id}; ids are numbers from 0 on")))
            }
        }
    }

    /// Returns the full name of a dataset of the particles.
    fn name(&self, dataset: &str) -> String {
        format!("{}/{dataset}", group_name(self.particle_type))
    }
}

/// Returns the particle type to read: the wanted one, else 1, else the only one with coordinates.
fn particle_type(path: &Path, files: &[PartFile], wanted: Option<usize>) -> Result<usize> {
    let mut found: Vec<usize> = files.iter().flat_map(|file| file.types.clone()).collect();
    found.sort_unstable();
    found.dedup();
    let is_empty = files[0].header.total.as_ref().is_some_and(|total| total.iter().all(|&n| n == 0));
    let usual = wanted.unwrap_or(1);
    match found[..] {
        _ if found.contains(&usual) => Ok(usual),
        [only] if wanted.is_none() => Ok(only),
        [] if is_empty => Ok(usual),
        _ => Err(IoError::new(IoErrorKind::Missing, path, missing_type(wanted, &found))),
    }
}

/// Returns the message of a snapshot with particles of the types `found`, but not of the type
/// `wanted`.
fn missing_type(wanted: Option<usize>, found: &[usize]) -> String {
    let none = match wanted {
        Some(wanted) => format!("no particles of type {wanted} have coordinates (PartType{wanted}/Coordinates)"),
        None if found.is_empty() => "no particles have coordinates (as PartType1/Coordinates)".to_string(),
        None => "no particles of type 1, which are read if no others are asked for, have coordinates".to_string(),
    };
    let names: Vec<String> = found.iter().map(usize::to_string).collect();
    match &names[..] {
        [] => format!("{none}; is it a snapshot of particles?"),
        [only] => format!("{none}; those of type {only} do; choose this type"),
        [others @ .., last] => {
            format!("{none}; those of types {} and {last} do; choose one of these types", others.join(", "))
        }
    }
}

/// Returns `rows` in pieces of about `each` that end between the chunks of the parts; `parts` gives
/// their rows and the rows of a chunk.
fn pieces(rows: Range<u64>, each: u64, parts: &[(Range<u64>, u64)]) -> Vec<Range<u64>> {
    let (mut pieces, mut at) = (Vec::new(), rows.start);
    while at < rows.end {
        let wanted = at.saturating_add(each.max(1)).min(rows.end);
        let border = parts.iter().find(|(part, _)| part.contains(&wanted)).map_or(wanted, |(part, chunk)| {
            let before = part.start + (wanted - part.start) / chunk * chunk;
            if before > at { before } else { before.saturating_add(*chunk).min(part.end) }
        });
        let end = if wanted == rows.end { wanted } else { border.min(rows.end) };
        pieces.push(at..end);
        at = end;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::{missing_type, pieces};

    #[test]
    fn particle_types_are_named_with_the_way_to_choose() {
        let text = missing_type;
        assert!(text(None, &[0, 4, 5]).ends_with("those of types 0, 4 and 5 do; choose one of these types"));
        assert!(text(Some(5), &[1]).starts_with("no particles of type 5 have coordinates (PartType5/"));
        assert!(text(Some(5), &[1]).ends_with("those of type 1 do; choose this type"));
        assert!(text(None, &[]).ends_with("is it a snapshot of particles?"));
    }

    #[test]
    fn pieces_end_where_chunks_do() {
        let parts = [(0..10, 4), (10..10, 7), (10..100, 50), (100..130, 1)];
        assert_eq!(
            pieces(0..130, 5, &parts),
            [0..4, 4..8, 8..10, 10..60, 60..100, 100..105, 105..110, 110..115, 115..120, 120..125, 125..130]
        );
        assert_eq!(pieces(3..64, 1000, &parts).as_slice(), std::slice::from_ref(&(3..64)));
        assert_eq!(pieces(12..90, 20, &parts), [12..60, 60..90]);
        assert_eq!((pieces(5..5, 1, &parts), pieces(0..3, 0, &[])), (vec![], vec![0..1, 1..2, 2..3]));
    }
}
