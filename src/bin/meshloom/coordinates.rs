//! Coordinates of points on disk: a `.npy` array, or the particles of a snapshot in HDF5.

use std::ops::Range;
use std::path::{Path, PathBuf};

#[cfg(feature = "hdf5")]
use meshloom::io::hdf5::{Snapshot, snapshot_paths};
use meshloom::io::{Dtype, IoError, NpyFile, is_hdf5};

use crate::particle_type::ParticleType;

/// What is known of the universe that points are in, at their moment.
#[derive(Clone, Copy, Debug)]
pub struct Universe {
    /// Omega_m of the time: matter over the critical density.
    pub matter_fraction: f64,
    /// Curvature's share of today's critical density.
    pub omega_k: f64,
}

/// An array of shape `(N, 3)` or `(N, 2)`, f32 or f64, whose elements are counted in C order.
pub enum Coordinates {
    Npy(NpyFile),
    #[cfg(feature = "hdf5")]
    Snapshot(Snapshot),
}

impl Coordinates {
    /// Reads the header. The kind of the file follows from its name and its first bytes; of a snapshot particles of one type are
    /// taken.
    ///
    /// # Errors
    /// [`IoError`] for files that hold no points of 2 or 3 axes, f32 or f64; [`IoError::NoHdf5`] for snapshots in a build
    /// without HDF5.
    pub fn open(path: &Path, particles: ParticleType) -> Result<Self, IoError> {
        if is_hdf5(path) {
            return Self::open_hdf5(path, particles);
        }
        let file = NpyFile::open(path)?;
        file.points()?;
        if !matches!(file.dtype(), Dtype::F32 | Dtype::F64) {
            let (found, wanted) = (file.dtype().to_string(), "float32 or float64".to_string());
            return Err(IoError::Dtype { path: path.into(), found, wanted });
        }
        Ok(Coordinates::Npy(file))
    }

    #[cfg(feature = "hdf5")]
    fn open_hdf5(path: &Path, particles: ParticleType) -> Result<Self, IoError> {
        particles.open(path).map(Coordinates::Snapshot)
    }

    #[cfg(not(feature = "hdf5"))]
    fn open_hdf5(path: &Path, _: ParticleType) -> Result<Self, IoError> {
        Err(IoError::NoHdf5 { path: path.into() })
    }

    /// The path of the call.
    pub fn path(&self) -> &Path {
        match self {
            Coordinates::Npy(file) => file.path(),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot.path(),
        }
    }

    /// Number of points, number of axes.
    pub fn shape(&self) -> [u64; 2] {
        match self {
            // The shape was checked when the file was opened.
            Coordinates::Npy(file) => [file.shape()[0], file.shape()[1]],
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => [snapshot.count(), snapshot.dims() as u64],
        }
    }

    /// F32 or F64.
    pub fn dtype(&self) -> Dtype {
        match self {
            Coordinates::Npy(file) => file.dtype(),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot.dtype(),
        }
    }

    /// Sides of the box in the file's header, one for each axis; 0 is an open axis.
    pub fn box_size(&self) -> Option<Vec<f64>> {
        match self {
            Coordinates::Npy(_) => None,
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot.box_size().map(|sides| sides[..snapshot.dims()].to_vec()),
        }
    }

    /// The universe of a snapshot that says its cosmology and its moment.
    ///
    /// # Errors
    /// Those of the file.
    pub fn universe(&self) -> Result<Option<Universe>, IoError> {
        match self {
            Coordinates::Npy(_) => Ok(None),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => {
                let background = snapshot.background()?;
                Ok(background.zip(snapshot.scale_factor()).map(|(background, a)| Universe {
                    matter_fraction: background.matter_fraction(a),
                    omega_k: background.omega_k(),
                }))
            }
        }
    }

    /// The ids of a snapshot's particles; none where the file has none.
    ///
    /// # Errors
    /// Those of the file.
    #[cfg(feature = "hdf5")]
    pub fn ids(&self, rows: Range<u64>) -> Result<Option<Vec<u64>>, IoError> {
        let Coordinates::Snapshot(snapshot) = self else { return Ok(None) };
        match snapshot.ids(rows) {
            Err(IoError::NoMember { .. }) => Ok(None),
            ids => ids.map(Some),
        }
    }

    /// Without the feature there is no file with ids.
    #[cfg(not(feature = "hdf5"))]
    pub fn ids(&self, _: Range<u64>) -> Result<Option<Vec<u64>>, IoError> {
        Ok(None)
    }

    /// A description for a report.
    pub fn report(&self) -> serde_json::Value {
        let report = serde_json::json!({
            "path": self.path().display().to_string(),
            "shape": self.shape(),
            "dtype": self.dtype().to_string(),
        });
        match self {
            Coordinates::Npy(_) => report,
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot_report(report, snapshot),
        }
    }

    /// Elements as f32; see [`NpyFile::read_f32`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn read_f32(&self, elements: Range<u64>) -> Result<Vec<f32>, IoError> {
        match self {
            Coordinates::Npy(file) => file.read_f32(elements),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => self.of_rows(elements, |rows| snapshot.positions_f32(rows)),
        }
    }

    /// Elements as f64; see [`NpyFile::read_f64`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn read_f64(&self, elements: Range<u64>) -> Result<Vec<f64>, IoError> {
        match self {
            Coordinates::Npy(file) => file.read_f64(elements),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => self.of_rows(elements, |rows| snapshot.positions_f64(rows)),
        }
    }

    /// Reads whole rows and cuts the elements out of them.
    #[cfg(feature = "hdf5")]
    fn of_rows<T>(
        &self,
        elements: Range<u64>,
        read: impl FnOnce(Range<u64>) -> Result<Vec<T>, IoError>,
    ) -> Result<Vec<T>, IoError> {
        let dims = self.shape()[1];
        let rows = elements.start / dims..elements.end.div_ceil(dims);
        let before = (elements.start - rows.start * dims) as usize;
        let mut values = read(rows)?;
        values.drain(..before);
        values.truncate((elements.end - elements.start) as usize);
        Ok(values)
    }
}

/// The files of the input at `path`: it, or all those of the snapshot that it is of.
///
/// # Errors
/// Those of the files.
#[cfg(feature = "hdf5")]
pub fn files(path: &Path) -> Result<Vec<PathBuf>, IoError> {
    if is_hdf5(path) { snapshot_paths(path) } else { Ok(vec![path.into()]) }
}

/// Without the feature there are no snapshots.
#[cfg(not(feature = "hdf5"))]
pub fn files(path: &Path) -> Result<Vec<PathBuf>, IoError> {
    Ok(vec![path.into()])
}

/// Adds what a snapshot has besides an array of points.
#[cfg(feature = "hdf5")]
fn snapshot_report(mut report: serde_json::Value, snapshot: &Snapshot) -> serde_json::Value {
    report["format"] = "hdf5".into();
    report["files"] = snapshot.files().into();
    report["particle_type"] = snapshot.particle_type().into();
    report["box_size"] = snapshot.box_size().map(|sides| sides[..snapshot.dims()].to_vec()).into();
    report
}
