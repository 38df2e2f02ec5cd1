//! Values of points on disk: masses, velocities and the like.

use std::ops::Range;
use std::path::Path;

#[cfg(feature = "hdf5")]
use meshloom::io::hdf5::Snapshot;
use meshloom::io::{IoError, NpyFile, is_hdf5};

/// Values of as many points as another file has: a `.npy` array of shape `(N,)` or `(N, axes)`, or those of a snapshot in HDF5, as
/// they stand there.
pub enum Values {
    Npy(NpyFile),
    #[cfg(feature = "hdf5")]
    Masses(Snapshot),
    #[cfg(feature = "hdf5")]
    Velocities(Snapshot),
}

impl Values {
    /// Looks at the header. `name` is `mass`, `velocity`, or something that snapshots have not; `shape` that of an array.
    ///
    /// # Errors
    /// [`IoError`] for other files, and [`IoError::Shape`] for another shape.
    pub fn open(path: &Path, name: &str, shape: &[u64]) -> Result<Self, IoError> {
        if is_hdf5(path) && ["mass", "velocity"].contains(&name) {
            return Self::open_hdf5(path, name, shape);
        }
        let file = NpyFile::open(path)?;
        file.expect_shape(shape)?;
        Ok(Values::Npy(file))
    }

    #[cfg(feature = "hdf5")]
    fn open_hdf5(path: &Path, name: &str, shape: &[u64]) -> Result<Self, IoError> {
        let snapshot = Snapshot::open(path)?;
        let found =
            if name == "mass" { vec![snapshot.count()] } else { vec![snapshot.count(), snapshot.dims() as u64] };
        if found != shape {
            return Err(IoError::Shape {
                path: path.into(),
                found,
                wanted: format!("{shape:?}, a row for each point,"),
            });
        }
        // Whether it has them is said before the work.
        let first = 0..snapshot.count().min(1);
        Ok(if name == "mass" {
            snapshot.masses_f32(first)?;
            Values::Masses(snapshot)
        } else {
            snapshot.velocities_f32(first)?;
            Values::Velocities(snapshot)
        })
    }

    #[cfg(not(feature = "hdf5"))]
    fn open_hdf5(path: &Path, _: &str, _: &[u64]) -> Result<Self, IoError> {
        Err(IoError::NoHdf5 { path: path.into() })
    }

    /// The values of these points, `width` each: finite numbers.
    ///
    /// # Errors
    /// Those of the file, and [`IoError::NonFinite`] for the first that is none.
    pub fn read(&self, rows: Range<u64>, width: u64) -> Result<Vec<f32>, IoError> {
        #[cfg(feature = "hdf5")]
        let finite = |file: &Snapshot, values: Vec<f32>| match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let (row, place) = (rows.start + at as u64 / width, at as u64 % width);
                let index = if width == 1 { vec![row] } else { vec![row, place] };
                Err(IoError::NonFinite { path: file.path().into(), index, value: values[at].into() })
            }
        };
        match self {
            Values::Npy(file) => file.read_finite_f32(rows.start * width..rows.end * width),
            #[cfg(feature = "hdf5")]
            Values::Masses(file) => finite(file, file.masses_f32(rows.clone())?),
            #[cfg(feature = "hdf5")]
            Values::Velocities(file) => finite(file, file.velocities_f32(rows.clone())?),
        }
    }
}
