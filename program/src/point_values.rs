//! Values of points on disk: masses, velocities and the like.

use std::ops::Range;
use std::path::Path;

use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::host_memory::{self, HostMemoryError};
#[cfg(feature = "hdf5")]
use meshloom::io::hdf5::Snapshot;
use meshloom::io::{IoError, NpyFile, is_hdf5, printable_path};

use crate::coordinates::PointReader;
use crate::particle_type::ParticleType;
use crate::terminal;

/// Values of the points of another file: a `.npy` array of shape `(N,)` or `(N, axes)`, or masses,
/// velocities or scale factors (of a light cone) of a snapshot in HDF5, in the file's units;
/// velocities are peculiar where the snapshot says how its own depend on the scale factor, in km/s
/// where it says their unit.
pub struct PointValues {
    file: ValueFile,
    /// Values per point.
    width: u64,
    /// Whether they are masses, which must not be negative.
    masses: bool,
    /// Factor that converts them to peculiar velocities, if the file gives it, and whether the
    /// result is in km/s.
    factor: Option<(f64, bool)>,
}

enum ValueFile {
    Npy(NpyFile),
    #[cfg(feature = "hdf5")]
    Masses(Snapshot),
    #[cfg(feature = "hdf5")]
    Velocities(Snapshot),
    #[cfg(feature = "hdf5")]
    ScaleFactors(Snapshot),
}

/// Rows that are read at a time, or as many as a compressed chunk has.
const PIECE: u64 = 1 << 18;

impl PointValues {
    /// Reads the header. `name` is `mass`, `velocity`, `scale_factor`, or an attribute that
    /// snapshots do not have; `shape` is that of the array.
    ///
    /// # Errors
    /// [`IoError`] for other files, and `IoErrorKind::Shape` for another shape.
    pub fn open(path: &Path, particles: ParticleType, name: &str, shape: &[u64]) -> Result<Self, IoError> {
        let file = if is_hdf5(path) && ["mass", "velocity", "scale_factor"].contains(&name) {
            Self::open_hdf5(path, particles, name, shape)?
        } else {
            let file = NpyFile::open(path)?;
            file.expect_shape(shape)?;
            ValueFile::Npy(file)
        };
        let factor = match &file {
            #[cfg(feature = "hdf5")]
            ValueFile::Velocities(snapshot) => snapshot.velocity_unit()?.map(|unit| (unit.factor, unit.km_s)),
            _ => None,
        };
        Ok(PointValues { file, width: shape.get(1).copied().unwrap_or(1), masses: name == "mass", factor })
    }

    /// Returns what velocities are, in words: of which kind, and in which unit.
    pub fn velocity_words(&self) -> &'static str {
        match self.factor {
            Some((_, true)) => "peculiar, km/s",
            Some((_, false)) => "peculiar, in the file's unit",
            None => "as in the file",
        }
    }

    /// Returns `true` if they are peculiar velocities in km/s, as the file says it.
    pub fn is_peculiar_km_s(&self) -> bool {
        matches!(self.factor, Some((_, true)))
    }

    #[cfg(feature = "hdf5")]
    fn open_hdf5(path: &Path, particles: ParticleType, name: &str, shape: &[u64]) -> Result<ValueFile, IoError> {
        let snapshot = particles.open(path)?;
        let found =
            if name == "velocity" { vec![snapshot.count(), snapshot.dims() as u64] } else { vec![snapshot.count()] };
        if found != shape {
            return Err(IoError::shape(path, found, format!("{shape:?}, a row for each point,")));
        }
        // Reading one row finds before the work whether the snapshot has them.
        let first = 0..snapshot.count().min(1);
        Ok(match name {
            "mass" => snapshot.masses_f32(first).map(|_| ValueFile::Masses(snapshot))?,
            "velocity" => snapshot.velocities_f32(first).map(|_| ValueFile::Velocities(snapshot))?,
            _ => snapshot.scale_factors_f32(first).map(|_| ValueFile::ScaleFactors(snapshot))?,
        })
    }

    #[cfg(not(feature = "hdf5"))]
    fn open_hdf5(path: &Path, _: ParticleType, _: &str, _: &[u64]) -> Result<ValueFile, IoError> {
        Err(IoError::no_hdf5(path))
    }

    /// Values per point.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Returns the values of this rank's points, checked to be finite and in the range of f32.
    /// Collective.
    ///
    /// # Errors
    /// Those of the file; `IoErrorKind::Value` for the first
    /// bad element of the file, the same on all ranks.
    pub fn read(&self, comm: &Communicator, rows: Range<u64>) -> Result<Vec<f32>, Error> {
        let count = (rows.end - rows.start) * self.width;
        let memory = |error: HostMemoryError| IoError::memory(self.path(), error.bytes);
        let (mut values, mut bad) = (host_memory::reserve("values", count as usize).map_err(memory)?, None);
        for rows in self.pieces(rows)? {
            let first = rows.start;
            let mut piece = self.wide(rows)?;
            if let Some((factor, _)) = self.factor {
                piece.iter_mut().for_each(|value| *value *= factor);
            }
            let place = first * self.width;
            bad = bad.or_else(|| {
                let at = piece.iter().position(|&value| !self.allows(value))?;
                Some([place + at as u64, piece[at].to_bits()])
            });
            values.extend(piece.into_iter().map(|value| value as f32));
        }
        let all = comm.all_gather(&bad.unwrap_or([u64::MAX; 2]))?;
        match all.as_chunks::<2>().0.iter().min() {
            Some(&[element, bits]) if element < u64::MAX => Err(self.error(element, f64::from_bits(bits)).into()),
            _ => Ok(values),
        }
    }

    /// Rows in pieces, none of which ends within a compressed chunk of a snapshot.
    fn pieces(&self, rows: Range<u64>) -> Result<Vec<Range<u64>>, IoError> {
        match &self.file {
            ValueFile::Npy(_) => {
                Ok(rows.clone().step_by(PIECE as usize).map(|first| first..rows.end.min(first + PIECE)).collect())
            }
            #[cfg(feature = "hdf5")]
            ValueFile::Masses(file) => file.pieces("Masses", rows, PIECE),
            #[cfg(feature = "hdf5")]
            ValueFile::Velocities(file) => file.pieces("Velocities", rows, PIECE),
            #[cfg(feature = "hdf5")]
            ValueFile::ScaleFactors(file) => file.pieces("ScaleFactors", rows, PIECE),
        }
    }

    fn wide(&self, rows: Range<u64>) -> Result<Vec<f64>, IoError> {
        #[cfg(feature = "hdf5")]
        let widen = |values: Vec<f32>| values.into_iter().map(f64::from).collect();
        match &self.file {
            ValueFile::Npy(file) => file.read_f64(rows.start * self.width..rows.end * self.width),
            #[cfg(feature = "hdf5")]
            ValueFile::Masses(file) => file.masses_f32(rows).map(widen),
            #[cfg(feature = "hdf5")]
            ValueFile::Velocities(file) => file.velocities_f32(rows).map(widen),
            #[cfg(feature = "hdf5")]
            ValueFile::ScaleFactors(file) => file.scale_factors_f32(rows).map(widen),
        }
    }

    fn allows(&self, value: f64) -> bool {
        let narrow = value as f32;
        // A mass that becomes 0 would not count.
        narrow.is_finite() && !(self.masses && (value < 0.0 || narrow == 0.0 && value != 0.0))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        match &self.file {
            ValueFile::Npy(file) => file.path(),
            #[cfg(feature = "hdf5")]
            ValueFile::Masses(file) | ValueFile::Velocities(file) | ValueFile::ScaleFactors(file) => file.path(),
        }
    }

    /// Returns the error of a bad element.
    fn error(&self, element: u64, value: f64) -> IoError {
        let (path, row, place) = (self.path().to_path_buf(), element / self.width, element % self.width);
        let index = if self.width == 1 { vec![row] } else { vec![row, place] };
        match value {
            value if !value.is_finite() => IoError::non_finite(path, index, value),
            value if value < 0.0 && self.masses => IoError::negative(path, index, value),
            value => IoError::beyond_f32(path, index, value),
        }
    }
}

/// Warns, on rank 0, if the points of a snapshot have unequal masses that a call without masses
/// ignores. `option` weights points by masses. Each rank examines its `rows`; collective. Masses
/// that cannot be read cause no warning.
///
/// # Errors
/// Errors of the ranks.
pub fn warn_of_unused_masses(
    comm: &Communicator,
    points: &dyn PointReader,
    particles: ParticleType,
    rows: Range<u64>,
    option: &str,
) -> Result<(), Error> {
    let (path, count) = (points.path(), points.shape()[0]);
    let mut extremes = [f64::INFINITY, f64::NEG_INFINITY];
    if points.is_snapshot()
        && let Ok(masses) = PointValues::open(path, particles, "mass", &[count])
    {
        for piece in masses.pieces(rows).unwrap_or_default() {
            let Ok(values) = masses.wide(piece) else { break };
            extremes = values.iter().fold(extremes, |[least, most], &mass| [mass.min(least), mass.max(most)]);
        }
    }
    let (mut least, mut most) = ([extremes[0]], [extremes[1]]);
    comm.all_reduce(&mut least, Op::Min)?;
    comm.all_reduce(&mut most, Op::Max)?;
    if least[0] < most[0] && comm.rank() == 0 {
        let name = printable_path(path);
        terminal::warn(&format!(
            "{name}: its particles have masses from {:e} to {:e}, and each counts as one; weight them by their masses with \
             {option} {name}",
            least[0], most[0]
        ));
    }
    Ok(())
}
