//! Coordinates of points on disk: a `.npy` array, the particles of a snapshot in HDF5, or the
//! centers of a catalog of groups.

use std::ops::Range;
use std::path::{Path, PathBuf};

use meshloom::io::{Dtype, IoError, NpyFile, NpzFile, is_hdf5};
use serde_json::{Value, json};

use crate::particle_type::ParticleType;
use crate::space::Space;

/// The universe that points are in, at their moment.
#[derive(Clone, Copy, Debug)]
pub struct Universe {
    /// Omega_m of the time: matter over the critical density.
    pub matter_fraction: f64,
    /// Curvature's share of today's critical density.
    pub omega_k: f64,
}

/// Returns rows in pieces of `each`.
fn even_pieces(rows: Range<u64>, each: u64) -> Vec<Range<u64>> {
    rows.clone().step_by(each as usize).map(|first| first..rows.end.min(first + each)).collect()
}

/// A file of coordinates, or of a field, whose elements are counted in C order.
pub trait PointReader {
    /// Returns the path of the call.
    fn path(&self) -> &Path;

    /// Returns the shape of the array: `[count, axes]` of points.
    fn shape(&self) -> Vec<u64>;

    fn dtype(&self) -> Dtype;

    /// Elements as f32; see [`NpyFile::read_f32`].
    fn read_f32(&self, elements: Range<u64>) -> Result<Vec<f32>, IoError>;

    /// Elements as f64; see [`NpyFile::read_f64`].
    fn read_f64(&self, elements: Range<u64>) -> Result<Vec<f64>, IoError>;

    /// Returns the array that is read, in a file that has several.
    fn dataset(&self) -> Option<String> {
        None
    }

    /// Sides of the box in the file's header, one for each axis; 0 is an open axis.
    fn sides(&self) -> Option<Vec<f64>> {
        None
    }

    /// Returns `true` for the particles of a snapshot, which may have masses.
    fn is_snapshot(&self) -> bool {
        false
    }

    /// Returns the space of the points, as the file describes it.
    fn space(&self) -> Result<Space, IoError> {
        Ok(Space::default())
    }

    /// Returns the universe of a snapshot that says its cosmology and its moment.
    fn universe(&self) -> Result<Option<Universe>, IoError> {
        Ok(None)
    }

    /// Returns the ids of a snapshot's particles, if it has them.
    fn ids(&self, _rows: Range<u64>) -> Result<Option<Vec<u64>>, IoError> {
        Ok(None)
    }

    /// Rows in pieces of about `each`, none of which ends within a compressed chunk of the file.
    fn pieces(&self, rows: Range<u64>, each: u64) -> Result<Vec<Range<u64>>, IoError> {
        Ok(even_pieces(rows, each))
    }

    /// Adds what a report says of the format.
    fn describe(&self, _report: &mut Value) {}

    /// Returns a description for a report.
    fn report(&self) -> Value {
        let mut report = json!({
            "path": self.path().display().to_string(), "shape": self.shape(), "dtype": self.dtype().to_string(),
        });
        if let Some(dataset) = self.dataset() {
            report["dataset"] = dataset.into();
        }
        self.describe(&mut report);
        report
    }
}

impl PointReader for NpyFile {
    fn path(&self) -> &Path {
        self.path()
    }

    fn shape(&self) -> Vec<u64> {
        self.shape().to_vec()
    }

    fn dtype(&self) -> Dtype {
        self.dtype()
    }

    fn read_f32(&self, elements: Range<u64>) -> Result<Vec<f32>, IoError> {
        self.read_f32(elements)
    }

    fn read_f64(&self, elements: Range<u64>) -> Result<Vec<f64>, IoError> {
        self.read_f64(elements)
    }
}

/// The centers in an archive of groups.
struct Archive {
    path: PathBuf,
    centers: NpyFile,
}

/// The array of an archive that has the centers of groups.
const CENTER: &str = "center";

impl PointReader for Archive {
    fn path(&self) -> &Path {
        &self.path
    }

    fn shape(&self) -> Vec<u64> {
        self.centers.shape().to_vec()
    }

    fn dtype(&self) -> Dtype {
        self.centers.dtype()
    }

    fn read_f32(&self, elements: Range<u64>) -> Result<Vec<f32>, IoError> {
        self.centers.read_f32(elements)
    }

    fn read_f64(&self, elements: Range<u64>) -> Result<Vec<f64>, IoError> {
        self.centers.read_f64(elements)
    }

    fn dataset(&self) -> Option<String> {
        Some(CENTER.into())
    }
}

/// Returns `true` if a file is an archive of arrays, by its name.
pub fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz"))
}

/// Opens a file of points of 2 or 3 axes, f32 or f64.
///
/// The kind of the file follows from its name and its first bytes. Of a snapshot particles of one
/// type are taken, of a catalog of groups the centers.
///
/// # Errors
/// [`IoError`] for other files; `IoErrorKind::Unsupported` for snapshots in a build without HDF5.
pub fn open(path: &Path, particles: ParticleType) -> Result<Box<dyn PointReader>, IoError> {
    if is_hdf5(path) {
        return open_hdf5(path, particles);
    }
    let archive = is_archive(path);
    let file = if archive { NpzFile::open(path)?.member(CENTER)? } else { NpyFile::open(path)? };
    file.points()?;
    if !matches!(file.dtype(), Dtype::F32 | Dtype::F64) {
        let (found, wanted) = (file.dtype().to_string(), "float32 or float64".to_string());
        return Err(IoError::element_type(path, found, wanted));
    }
    Ok(if archive { Box::new(Archive { path: path.into(), centers: file }) } else { Box::new(file) })
}

#[cfg(not(feature = "hdf5"))]
fn open_hdf5(path: &Path, _: ParticleType) -> Result<Box<dyn PointReader>, IoError> {
    Err(IoError::no_hdf5(path))
}

/// Returns the path: without HDF5 an input is one file.
///
/// # Errors
/// None.
#[cfg(not(feature = "hdf5"))]
pub fn files(path: &Path) -> Result<Vec<PathBuf>, IoError> {
    Ok(vec![path.into()])
}

#[cfg(feature = "hdf5")]
pub use hdf5::files;
#[cfg(feature = "hdf5")]
use hdf5::open_hdf5;

#[cfg(feature = "hdf5")]
mod hdf5 {
    use meshloom::io::IoErrorKind;
    use meshloom::io::hdf5::{PointFiles, Snapshot, open_centers, snapshot_paths};

    use super::*;

    pub fn open_hdf5(path: &Path, particles: ParticleType) -> Result<Box<dyn PointReader>, IoError> {
        match open_centers(path)? {
            // The snapshot's error if particles are asked for, which a catalog lacks.
            Some(centers) if !particles.is_given() => Ok(Box::new(Groups(centers))),
            _ => Ok(Box::new(Particles(particles.open(path)?))),
        }
    }

    /// Returns the files of the input at `path`: the file itself, or all files of its snapshot or
    /// catalog.
    ///
    /// # Errors
    /// [`IoError`] if a file cannot be read.
    pub fn files(path: &Path) -> Result<Vec<PathBuf>, IoError> {
        if !is_hdf5(path) {
            return Ok(vec![path.into()]);
        }
        match open_centers(path) {
            Ok(Some(centers)) => Ok(centers.paths().map(Path::to_path_buf).collect()),
            _ => snapshot_paths(path),
        }
    }

    /// Reads whole rows of `dims` values and cuts the elements out of them.
    fn of_rows<T>(
        dims: usize,
        elements: Range<u64>,
        read: impl FnOnce(Range<u64>) -> Result<Vec<T>, IoError>,
    ) -> Result<Vec<T>, IoError> {
        let dims = dims as u64;
        let rows = elements.start / dims..elements.end.div_ceil(dims);
        let before = (elements.start - rows.start * dims) as usize;
        let mut values = read(rows)?;
        values.drain(..before);
        values.truncate((elements.end - elements.start) as usize);
        Ok(values)
    }

    /// Points in HDF5.
    enum Hdf5Points {
        Particles(Snapshot),
        Groups(PointFiles),
    }

    use Hdf5Points::{Groups, Particles};

    impl Hdf5Points {
        fn files(&self) -> &PointFiles {
            match self {
                Particles(snapshot) => snapshot,
                Groups(centers) => centers,
            }
        }
    }

    impl PointReader for Hdf5Points {
        fn path(&self) -> &Path {
            self.files().path()
        }

        fn shape(&self) -> Vec<u64> {
            vec![self.files().count(), self.files().dims() as u64]
        }

        fn dtype(&self) -> Dtype {
            self.files().dtype()
        }

        fn read_f32(&self, elements: Range<u64>) -> Result<Vec<f32>, IoError> {
            of_rows(self.files().dims(), elements, |rows| self.files().positions_f32(rows))
        }

        fn read_f64(&self, elements: Range<u64>) -> Result<Vec<f64>, IoError> {
            of_rows(self.files().dims(), elements, |rows| self.files().positions_f64(rows))
        }

        fn dataset(&self) -> Option<String> {
            Some(self.files().dataset().into())
        }

        fn sides(&self) -> Option<Vec<f64>> {
            self.files().sides().map(|sides| sides[..self.files().dims()].to_vec())
        }

        fn is_snapshot(&self) -> bool {
            matches!(self, Particles(_))
        }

        fn space(&self) -> Result<Space, IoError> {
            Ok(Space {
                sides: self.sides(),
                scale_factor: self.files().scale_factor(),
                densities: self.files().background()?.map(|found| [found.omega_m, found.omega_de]),
                h: self.files().hubble()?,
                length_unit: self.files().length_unit()?,
            })
        }

        fn universe(&self) -> Result<Option<Universe>, IoError> {
            // Groups are not all of the matter, so that their universe is unknown.
            let Particles(snapshot) = self else { return Ok(None) };
            let known = snapshot.background()?.zip(snapshot.scale_factor());
            Ok(known.map(|(background, a)| Universe {
                matter_fraction: background.matter_fraction(a),
                omega_k: background.omega_k(),
            }))
        }

        fn ids(&self, rows: Range<u64>) -> Result<Option<Vec<u64>>, IoError> {
            let Particles(snapshot) = self else { return Ok(None) };
            match snapshot.ids(rows) {
                Err(IoError { kind: IoErrorKind::Missing, .. }) => Ok(None),
                ids => ids.map(Some),
            }
        }

        fn pieces(&self, rows: Range<u64>, each: u64) -> Result<Vec<Range<u64>>, IoError> {
            match self {
                Particles(snapshot) => snapshot.pieces("Coordinates", rows, each),
                Groups(_) => Ok(even_pieces(rows, each)),
            }
        }

        fn describe(&self, report: &mut Value) {
            report["format"] = "hdf5".into();
            report["files"] = self.files().paths().len().into();
            if let Particles(snapshot) = self {
                report["particle_type"] = snapshot.particle_type().into();
            }
            report["box_size"] = self.files().box_size().map(|sides| sides[..self.files().dims()].to_vec()).into();
        }
    }
}
