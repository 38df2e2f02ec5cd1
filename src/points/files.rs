//! Particles in other orders, and their files.

use std::path::Path;

use super::sort::{SortError, route_by_key};
use super::{AnyArray, Cloud, DeviceValue, ParticleError, ParticleFileError, Particles, every, offsets};
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, Recorder};
#[cfg(feature = "hdf5")]
use crate::io::hdf5;
use crate::io::{IoError, NpyElement, NpyWriter, collective};
use crate::rank::Rank;

/// Elements of a column that are on the host at a time.
const PIECE: u64 = 1 << 22;

/// The rows of all ranks that a rank writes.
struct Rows {
    first: u64,
    total: u64,
}

impl Rows {
    fn of(rank: &Rank, particles: &Particles) -> Result<Self, ParticleError> {
        let counts = rank.comm.all_gather(&[particles.len()])?;
        Ok(Rows { first: offsets(&counts)[rank.comm.rank()], total: counts.iter().sum() })
    }

    fn shape(&self, width: u64) -> Vec<u64> {
        if width == 1 { vec![self.total] } else { vec![self.total, width] }
    }
}

/// Downloads a column piece by piece and writes each from its element on.
fn write_pieces<T: DeviceValue>(
    recorder: &mut Recorder,
    values: &Array<T>,
    first: u64,
    mut write: impl FnMut(u64, &[T]) -> Result<(), IoError>,
) -> Result<(), ParticleFileError> {
    for start in (0..values.len()).step_by(PIECE as usize) {
        let count = PIECE.min(values.len() - start);
        let piece = recorder.download(values, start, count)?;
        write(first + start, &piece)?;
    }
    Ok(())
}

fn write_npy<T: DeviceValue + NpyElement>(
    rank: &mut Rank,
    path: &Path,
    (values, width): (&Array<T>, u64),
    rows: &Rows,
) -> Result<(), ParticleFileError> {
    let (comm, recorder) = (rank.comm.clone(), &mut rank.recorder);
    collective::write_npy(&comm, path, &rows.shape(width), |to: &NpyWriter<T>| {
        write_pieces(recorder, values, rows.first * width, |first, piece| to.write(first, piece))
    })
}

impl Particles {
    /// Returns the particles of all ranks sorted by an attribute of type `u32`: one value, or two
    /// that form a 64-bit number, low word first, below 2^63. Each rank gets an equal part; equal
    /// keys keep their order.
    ///
    /// Collective; blocks. One sort, and one exchange for positions and for each attribute.
    ///
    /// # Errors
    /// - [`ParticleError::Missing`] and [`ParticleError::Type`] if no attribute of `u32` has this
    ///   name.
    /// - [`ParticleError::Width`] if it has more than two values per particle.
    /// - [`SortError::Device`] if device memory is short.
    pub fn by(&self, rank: &mut Rank, name: &str) -> Result<Particles, SortError> {
        let (keys, width) = (self.get::<u32>(name)?, self.known_column(name)?.1);
        let count = self.len();
        let [low, high] = [rank.gpu.array("points::low", count)?, rank.gpu.array("points::high", count)?];
        match width {
            1 => {
                rank.recorder.copy(&keys, 0, &low, 0, count)?;
                rank.recorder.clear(&high);
            }
            2 => {
                for (words, first) in [(&low, 0), (&high, 1)] {
                    let index = every(&mut rank.recorder, first, 2, count)?;
                    Permute::new().gather(&mut rank.recorder, &keys, &index, words, 1, Count::All)?;
                }
            }
            found => return Err(ParticleError::Width { name: name.into(), found, most: 2 }.into()),
        }
        let route = route_by_key(rank, [&high, &low])?;
        let cloud = self.cloud();
        let positions = route.forward(rank, cloud.positions(), cloud.domain().dims() as u64)?;
        let mut moved = Cloud::new(&mut rank.recorder, cloud.domain(), positions)?;
        route.forward_attributes(rank, cloud, &mut moved)?;
        Ok(moved.into())
    }

    /// Writes an attribute of all ranks, or the coordinates for `x`, to one `.npy` file of shape
    /// `[N]` or `[N, width]`, in rank order.
    ///
    /// Collective; blocks.
    ///
    /// # Errors
    /// - [`ParticleFileError::Particles`] if no attribute has this name.
    /// - [`ParticleFileError::Io`] if the file cannot be written, on all ranks.
    pub fn write_npy(&self, rank: &mut Rank, path: impl AsRef<Path>, name: &str) -> Result<(), ParticleFileError> {
        let (rows, (values, width)) = (Rows::of(rank, self)?, self.known_column(name)?);
        match &values {
            AnyArray::F32(values) => write_npy(rank, path.as_ref(), (values, width), &rows),
            AnyArray::U32(values) => write_npy(rank, path.as_ref(), (values, width), &rows),
            AnyArray::I32(values) => write_npy(rank, path.as_ref(), (values, width), &rows),
        }
    }

    /// Writes attributes of all ranks to datasets of their names, `x` for the coordinates, in one
    /// HDF5 file, in rank order.
    ///
    /// Collective; blocks. Needs the feature `hdf5`.
    ///
    /// # Errors
    /// - [`ParticleFileError::Particles`] if no attribute has this name.
    /// - [`ParticleFileError::Io`] if the file cannot be written, on all ranks.
    #[cfg(feature = "hdf5")]
    pub fn write_hdf5(&self, rank: &mut Rank, path: impl AsRef<Path>, names: &[&str]) -> Result<(), ParticleFileError> {
        use crate::io::Member;

        let rows = Rows::of(rank, self)?;
        let columns = names.iter().map(|name| self.known_column(name)).collect::<Result<Vec<_>, _>>()?;
        let member = |(name, (values, width)): (&&str, &(AnyArray, u64))| {
            let shape = rows.shape(*width);
            match values {
                AnyArray::F32(_) => Member::new::<f32>(name, &shape),
                AnyArray::U32(_) => Member::new::<u32>(name, &shape),
                AnyArray::I32(_) => Member::new::<i32>(name, &shape),
            }
        };
        let members: Vec<Member> = names.iter().zip(&columns).map(member).collect();
        let (comm, recorder) = (rank.comm.clone(), &mut rank.recorder);
        let contents = hdf5::Hdf5Contents::Arrays { members: &members, attributes: &[] };
        let sealed = collective::seal_hdf5(&comm, path.as_ref(), &contents, |to| {
            for (number, (values, width)) in columns.iter().enumerate() {
                let first = rows.first * width;
                match values {
                    AnyArray::F32(values) => write_member(recorder, to, (number, first), values)?,
                    AnyArray::U32(values) => write_member(recorder, to, (number, first), values)?,
                    AnyArray::I32(values) => write_member(recorder, to, (number, first), values)?,
                }
            }
            Ok::<_, ParticleFileError>(())
        })?;
        comm.together(|| Ok(sealed.publish()?))
    }
}

#[cfg(feature = "hdf5")]
fn write_member<T: DeviceValue + NpyElement>(
    recorder: &mut Recorder,
    to: &hdf5::Hdf5Writer,
    (number, first): (usize, u64),
    values: &Array<T>,
) -> Result<(), ParticleFileError> {
    write_pieces(recorder, values, first, |first, piece| to.write(number, first, piece))
}
