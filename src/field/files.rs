//! Fields in NumPy files, written and read by all ranks.

use std::ops::Range;
use std::path::Path;

use super::{Field, Result};
use crate::gpu::DeviceElement;
use crate::grid::{Mesh, extent};
use crate::host_memory;
use crate::io::{IoError, NpyElement, NpyFile, Sealed, collective};
#[cfg(feature = "image")]
use crate::io::{diverging::diverging_png_bytes, write_whole};
use crate::rank::Rank;

/// Elements that are on the host at a time, about.
const CHUNK: u64 = 1 << 22;

/// Returns the rows of own cells that are contiguous in a file: where they begin among the own
/// cells without gaps and in the file, and how long they are.
fn runs(mesh: &Mesh, components: u64) -> impl Iterator<Item = FileRun> + use<> {
    let (shape, own) = (mesh.shape(), mesh.layout().own.clone());
    let [planes, rows, columns] = extent(&own);
    // All planes of whole rows are one run.
    let (runs, len) = match rows == shape[1] && columns == shape[2] {
        true => (1, planes * rows * columns),
        false => (planes, rows * columns),
    };
    let runs = if len == 0 { 0 } else { runs };
    (0..components).flat_map(move |component| {
        let own = own.clone();
        (0..runs).map(move |run| {
            let cell = ((own[0].start + run) * shape[1] + own[1].start) * shape[2] + own[2].start;
            let file = component * shape[0] * shape[1] * shape[2] + cell;
            FileRun { packed: component * planes * rows * columns + run * len, file, len }
        })
    })
}

struct FileRun {
    packed: u64,
    file: u64,
    len: u64,
}

impl FileRun {
    /// Cuts the run into chunks: first elements among the own cells and in the file, and the
    /// length.
    fn chunks(self) -> impl Iterator<Item = FileRun> {
        (0..self.len).step_by(CHUNK as usize).map(move |at| FileRun {
            packed: self.packed + at,
            file: self.file + at,
            len: CHUNK.min(self.len - at),
        })
    }
}

/// Returns the shape of a field in a file: without padding, and with the components in front if
/// there are several.
fn file_shape(mesh: &Mesh, components: u64) -> Vec<u64> {
    let front = if components > 1 { vec![components] } else { Vec::new() };
    [front, mesh.unpadded_shape().to_vec()].concat()
}

mod sealed {
    /// Keeps [`ReadElement`](super::ReadElement) to the types of this module.
    pub trait Sealed {}
}

/// Element types of fields that can be read from NumPy files. The trait is sealed.
pub trait ReadElement: DeviceElement + sealed::Sealed {
    /// Reads elements of a file and converts them.
    ///
    /// # Errors
    /// [`IoError`] if the file cannot be read or its elements do not convert.
    fn read(file: &NpyFile, elements: Range<u64>) -> Result<Vec<Self>, IoError>;
}

macro_rules! read_elements {
    ($($type:ty: $read:ident,)*) => {$(
        impl sealed::Sealed for $type {}
        impl ReadElement for $type {
            fn read(file: &NpyFile, elements: Range<u64>) -> Result<Vec<Self>, IoError> {
                file.$read(elements)
            }
        }
    )*};
}

read_elements! {
    f32: read_f32,
    f64: read_f64,
    [f32; 2]: read_c32,
    [f64; 2]: read_c64,
}

impl Rank {
    /// Writes a field to one `.npy` file from all ranks. The array has the shape of the mesh
    /// without padding, with the components as first axis if there are several. Ghost cells are not
    /// written. [Collective](Self); blocks. The file exists on success, and not at all otherwise.
    ///
    /// # Errors
    /// - [`FieldError::Io`](super::FieldError::Io) if the file cannot be written, on all ranks.
    /// - [`FieldError::Device`](super::FieldError::Device) if the device fails.
    /// - [`FieldError::Comm`](super::FieldError::Comm) if another rank fails.
    pub fn write_npy<T: DeviceElement + NpyElement>(&mut self, path: impl AsRef<Path>, field: &Field<T>) -> Result<()> {
        let (sealed, comm) = (self.seal_npy(path, field)?, self.comm.clone());
        comm.together(|| Ok(sealed.publish()?))
    }

    /// Writes like [`write_npy`](Self::write_npy), but leaves the file to be named by
    /// [`Sealed::publish`] on rank 0, so that several files can appear together.
    /// [Collective](Self); blocks.
    ///
    /// # Errors
    /// Same as [`write_npy`](Self::write_npy).
    pub fn seal_npy<T: DeviceElement + NpyElement>(
        &mut self,
        path: impl AsRef<Path>,
        field: &Field<T>,
    ) -> Result<Sealed> {
        let shape = file_shape(field.mesh(), field.components());
        let comm = self.comm.clone();
        collective::seal_npy(&comm, path.as_ref(), &shape, |file| {
            let own = self.own_cells(field)?;
            for FileRun { packed, file: first, len } in runs(field.mesh(), field.components()).flat_map(FileRun::chunks)
            {
                file.write(first, &self.recorder.download(&own, packed, len)?)?;
            }
            Ok(())
        })
    }

    /// Writes a picture of a field of one component on a mesh of one or two axes as PNG: the first
    /// axis downward, with colors from blue at `-limit` over white at 0 to red at `limit`. Small
    /// meshes are enlarged. [Collective](Self); blocks. Rank 0 needs host memory for twice the
    /// field. Needs the feature `image`.
    ///
    /// # Errors
    /// - [`FieldError::Length`](super::FieldError::Length) if the field has several components, or
    ///   its mesh three axes.
    /// - [`FieldError::Io`](super::FieldError::Io) if the file cannot be written, on all ranks.
    /// - Same as [`gather`](Self::gather).
    #[cfg(feature = "image")]
    pub fn write_png(&mut self, path: impl AsRef<Path>, field: &Field, limit: f32) -> Result<()> {
        let [front, rows, columns] = field.mesh().shape();
        let pictures = front * field.components();
        super::FieldError::check_length("Rank::write_png: number of planes and components", 1, pictures)?;
        let all = self.gather(field, 0)?;
        let (path, comm) = (path.as_ref(), self.comm.clone());
        comm.together(|| {
            let Some(cells) = &all else { return Ok(()) };
            let png = diverging_png_bytes(cells, [columns as usize, rows as usize], limit, path)?;
            Ok(write_whole(path, &png)?)
        })
    }

    /// Creates a field of one component from a `.npy` file with the shape of the mesh, of which
    /// each rank reads its own cells. Real numbers are converted to real `T`. Ghost cells are 0
    /// until they are exchanged. [Collective](Self).
    ///
    /// # Errors
    /// - [`FieldError::Io`](super::FieldError::Io) if the file cannot be read, has another shape or
    ///   other elements, on all ranks.
    /// - [`FieldError::Device`](super::FieldError::Device) if the device fails.
    /// - [`FieldError::Comm`](super::FieldError::Comm) if another rank fails.
    pub fn read_npy<T: ReadElement>(&mut self, mesh: &Mesh, path: impl AsRef<Path>) -> Result<Field<T>> {
        let comm = self.comm.clone();
        comm.together(|| {
            let file = NpyFile::open(path)?.accept_integers();
            file.expect_shape(mesh.unpadded_shape())?;
            let mut field = self.zeros(mesh)?;
            let mut own = host_memory::reserve("cells of a file", mesh.own_cells() as usize)?;
            for FileRun { file: first, len, .. } in runs(mesh, 1) {
                own.extend(T::read(&file, first..first + len)?);
            }
            self.upload(&mut field, &own)?;
            Ok(field)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::MeshOptions;

    #[test]
    fn runs_cover_the_file_once_on_any_grid() {
        for (grid, ranks) in [(None, 1), (Some([3, 1]), 3), (Some([2, 3]), 6), (Some([1, 5]), 5), (Some([7, 1]), 7)] {
            let (shape, components) = ([4, 5, 3], 2);
            let mut seen = [0; 2 * 60];
            for rank in 0..ranks {
                let options = MeshOptions { grid, ghosts: [[0, 0], [1, 1], [0, 0]], ..MeshOptions::new(shape) };
                let mesh = Mesh::new(&options, ranks, rank).unwrap();
                let mut packed = 0;
                for run in runs(&mesh, components) {
                    assert_eq!(run.packed, packed);
                    packed += run.len;
                    (run.file..run.file + run.len).for_each(|place| seen[place as usize] += 1);
                }
                assert_eq!(packed, components * mesh.own_cells());
            }
            assert!(seen.iter().all(|&times| times == 1), "{grid:?}");
        }
    }
}
