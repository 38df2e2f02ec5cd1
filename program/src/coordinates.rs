//! Coordinates of points on disk: a `.npy` array, the particles of a snapshot in HDF5, or the centres of a catalogue of groups.

use std::ops::Range;
use std::path::{Path, PathBuf};

#[cfg(feature = "hdf5")]
use meshloom::io::hdf5::{Background, Centers, Snapshot, snapshot_paths};
use meshloom::io::{Dtype, IoError, NpyFile, NpzFile, is_hdf5};

use crate::particle_type::ParticleType;
use crate::space::Space;

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
    /// The centres in an archive of groups, with the path of that.
    Archive(PathBuf, NpyFile),
    #[cfg(feature = "hdf5")]
    Snapshot(Snapshot),
    /// The centres in a catalogue of groups.
    #[cfg(feature = "hdf5")]
    Centers(Centers),
}

/// The array of an archive that has the centres of groups.
const CENTER: &str = "center";

/// Whether a file is an archive of arrays, by its name.
pub fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz"))
}

impl Coordinates {
    /// Reads the header. The kind of the file follows from its name and its first bytes; of a snapshot particles of one type are
    /// taken, of a catalogue of groups the centres.
    ///
    /// # Errors
    /// [`IoError`] for files that hold no points of 2 or 3 axes, f32 or f64; [`IoError::NoHdf5`] for snapshots in a build
    /// without HDF5.
    pub fn open(path: &Path, particles: ParticleType) -> Result<Self, IoError> {
        if is_hdf5(path) {
            return Self::open_hdf5(path, particles);
        }
        let archive = is_archive(path);
        let file = if archive { NpzFile::open(path)?.member(CENTER)? } else { NpyFile::open(path)? };
        file.points()?;
        if !matches!(file.dtype(), Dtype::F32 | Dtype::F64) {
            let (found, wanted) = (file.dtype().to_string(), "float32 or float64".to_string());
            return Err(IoError::Dtype { path: path.into(), found, wanted });
        }
        Ok(if archive { Coordinates::Archive(path.into(), file) } else { Coordinates::Npy(file) })
    }

    #[cfg(feature = "hdf5")]
    fn open_hdf5(path: &Path, particles: ParticleType) -> Result<Self, IoError> {
        match Centers::open(path)? {
            // The snapshot's error where particles are asked for, which a catalogue has not.
            Some(centers) if !particles.is_given() => Ok(Coordinates::Centers(centers)),
            _ => particles.open(path).map(Coordinates::Snapshot),
        }
    }

    #[cfg(not(feature = "hdf5"))]
    fn open_hdf5(path: &Path, _: ParticleType) -> Result<Self, IoError> {
        Err(IoError::NoHdf5 { path: path.into() })
    }

    /// The path of the call.
    pub fn path(&self) -> &Path {
        match self {
            Coordinates::Npy(file) => file.path(),
            Coordinates::Archive(path, _) => path,
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot.path(),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => centers.path(),
        }
    }

    /// Returns `true` for the particles of a snapshot, which may have masses.
    pub fn is_snapshot(&self) -> bool {
        match self {
            Coordinates::Npy(_) | Coordinates::Archive(..) => false,
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(_) => true,
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(_) => false,
        }
    }

    /// Number of points, number of axes.
    pub fn shape(&self) -> [u64; 2] {
        match self {
            // The shape was checked when the file was opened.
            Coordinates::Npy(file) | Coordinates::Archive(_, file) => [file.shape()[0], file.shape()[1]],
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => [snapshot.count(), snapshot.dims() as u64],
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => [centers.count(), centers.dims() as u64],
        }
    }

    /// F32 or F64.
    pub fn dtype(&self) -> Dtype {
        match self {
            Coordinates::Npy(file) | Coordinates::Archive(_, file) => file.dtype(),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot.dtype(),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => centers.dtype(),
        }
    }

    /// Sides of the box in the file's header, one for each axis; 0 is an open axis.
    pub fn sides(&self) -> Option<Vec<f64>> {
        match self {
            Coordinates::Npy(_) | Coordinates::Archive(..) => None,
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot.sides().map(|sides| sides[..snapshot.dims()].to_vec()),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => centers.sides().map(|sides| sides[..centers.dims()].to_vec()),
        }
    }

    /// What the file says of the space that its points are in.
    ///
    /// # Errors
    /// Those of the file.
    pub fn space(&self) -> Result<Space, IoError> {
        match self {
            Coordinates::Npy(_) | Coordinates::Archive(..) => Ok(Space::default()),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => Ok(Space {
                sides: self.sides(),
                scale_factor: snapshot.scale_factor(),
                densities: snapshot.background()?.map(densities),
                h: snapshot.hubble()?,
                length_unit: snapshot.length_unit()?,
            }),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => Ok(Space {
                sides: self.sides(),
                scale_factor: centers.scale_factor(),
                densities: centers.background()?.map(densities),
                h: centers.hubble()?,
                length_unit: centers.length_unit()?,
            }),
        }
    }

    /// The universe of a snapshot that says its cosmology and its moment.
    ///
    /// # Errors
    /// Those of the file.
    pub fn universe(&self) -> Result<Option<Universe>, IoError> {
        match self {
            Coordinates::Npy(_) | Coordinates::Archive(..) => Ok(None),
            // Groups are not all of the matter.
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(_) => Ok(None),
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

    /// The dataset that is read, in a file that has several.
    fn dataset(&self) -> Option<String> {
        match self {
            Coordinates::Npy(_) => None,
            Coordinates::Archive(..) => Some(CENTER.into()),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => Some(format!("PartType{}/Coordinates", snapshot.particle_type())),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => Some(centers.dataset().into()),
        }
    }

    /// Rows in pieces of about `each`, none of which ends within a chunk of the file: each chunk is decompressed once.
    ///
    /// # Errors
    /// Those of the file.
    pub fn pieces(&self, rows: Range<u64>, each: u64) -> Result<Vec<Range<u64>>, IoError> {
        let plain = |rows: Range<u64>| {
            rows.clone().step_by(each as usize).map(|first| first..rows.end.min(first + each)).collect()
        };
        match self {
            Coordinates::Npy(_) | Coordinates::Archive(..) => Ok(plain(rows)),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot.pieces("Coordinates", rows, each),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(_) => Ok(plain(rows)),
        }
    }

    /// A description for a report.
    pub fn report(&self) -> serde_json::Value {
        let mut report = serde_json::json!({
            "path": self.path().display().to_string(),
            "shape": self.shape(),
            "dtype": self.dtype().to_string(),
        });
        if let Some(dataset) = self.dataset() {
            report["dataset"] = dataset.into();
        }
        match self {
            Coordinates::Npy(_) | Coordinates::Archive(..) => report,
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => snapshot_report(report, snapshot),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => {
                report["format"] = "hdf5".into();
                report["files"] = centers.paths().count().into();
                let sides = centers.sides().map(|sides| sides[..centers.dims()].to_vec());
                report["box_size"] = sides.filter(|sides| sides.iter().any(|&side| side > 0.0)).into();
                report
            }
        }
    }

    /// Elements as f32; see [`NpyFile::read_f32`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn read_f32(&self, elements: Range<u64>) -> Result<Vec<f32>, IoError> {
        match self {
            Coordinates::Npy(file) | Coordinates::Archive(_, file) => file.read_f32(elements),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => self.of_rows(elements, |rows| snapshot.positions_f32(rows)),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => self.of_rows(elements, |rows| centers.positions_f32(rows)),
        }
    }

    /// Elements as f64; see [`NpyFile::read_f64`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn read_f64(&self, elements: Range<u64>) -> Result<Vec<f64>, IoError> {
        match self {
            Coordinates::Npy(file) | Coordinates::Archive(_, file) => file.read_f64(elements),
            #[cfg(feature = "hdf5")]
            Coordinates::Snapshot(snapshot) => self.of_rows(elements, |rows| snapshot.positions_f64(rows)),
            #[cfg(feature = "hdf5")]
            Coordinates::Centers(centers) => self.of_rows(elements, |rows| centers.positions_f64(rows)),
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

/// The files of the input at `path`: it, or all those of the snapshot or catalogue that it is of.
///
/// # Errors
/// Those of the files.
#[cfg(feature = "hdf5")]
pub fn files(path: &Path) -> Result<Vec<PathBuf>, IoError> {
    if !is_hdf5(path) {
        return Ok(vec![path.into()]);
    }
    match Centers::open(path) {
        Ok(Some(centers)) => Ok(centers.paths().map(Path::to_path_buf).collect()),
        _ => snapshot_paths(path),
    }
}

/// Without the feature there are no snapshots.
#[cfg(not(feature = "hdf5"))]
pub fn files(path: &Path) -> Result<Vec<PathBuf>, IoError> {
    Ok(vec![path.into()])
}

/// Densities of matter and of dark energy today.
#[cfg(feature = "hdf5")]
fn densities(background: Background) -> [f64; 2] {
    [background.omega_m, background.omega_de]
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
