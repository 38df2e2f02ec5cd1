//! All cells of a field on one rank.

use super::{Field, FieldError, Result};
use crate::gpu::DeviceElement;
use crate::grid::{Box3, Mesh, extent, volume};
use crate::host_memory;
use crate::rank::Rank;

/// Copies the rows of a box between an array in C order over the box, and one over the whole mesh.
fn each_row(shape: [u64; 3], part: &Box3, mut copy: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>)) {
    let [rows, columns, len] = extent(part).map(|n| n as usize);
    let [first, second, third] = [0, 1, 2].map(|a| part[a].start as usize);
    for i in 0..rows {
        for j in 0..columns {
            let packed = (i * columns + j) * len;
            let whole = ((first + i) * shape[1] as usize + second + j) * shape[2] as usize + third;
            copy(packed..packed + len, whole..whole + len);
        }
    }
}

/// Returns the own cells of every rank.
fn parts(mesh: &Mesh) -> Vec<Box3> {
    (0..mesh.grid().ranks()).map(|rank| mesh.grid().part(mesh.shape(), rank)).collect()
}

impl Rank {
    /// Returns the cells of all ranks on `root`, component by component, each in C order over the
    /// mesh; `None` on the other ranks. [Collective](Self); blocks. `root` needs host memory for
    /// twice the field.
    ///
    /// # Errors
    /// - [`FieldError::Comm`] if `root` is not a rank or another rank fails.
    /// - [`FieldError::Device`] if the device fails or host memory is missing.
    pub fn gather<T: DeviceElement>(&mut self, field: &Field<T>, root: usize) -> Result<Option<Vec<T>>> {
        let comm = self.comm_on("Rank::gather", field.mesh(), field.components());
        let own = comm.together(|| self.download(field))?;
        if comm.size() == 1 && root == 0 {
            return Ok(Some(own));
        }
        let Some(gathered) = comm.gather_v(root, &own)? else { return Ok(None) };
        drop(own);
        let (mesh, total) = (field.mesh(), field.mesh().total_cells() as usize);
        let mut all = host_memory::zeros("cells of all ranks", total * field.components() as usize)?;
        for (part, packed) in parts(mesh).iter().zip(gathered.iter()) {
            let each = volume(part) as usize;
            if each == 0 {
                continue;
            }
            for (packed, all) in packed.chunks_exact(each).zip(all.chunks_exact_mut(total)) {
                each_row(mesh.shape(), part, |from, to| all[to].copy_from_slice(&packed[from]));
            }
        }
        Ok(Some(all))
    }

    /// Creates a field of one component from `values` of `root`: all cells in C order over the
    /// mesh. Other ranks pass `None`. Ghost cells are 0 until they are exchanged.
    /// [Collective](Self).
    ///
    /// # Errors
    /// - [`FieldError::Length`] if `values` of `root` is not one value for each cell of the mesh,
    ///   as an error of all ranks.
    /// - [`FieldError::Comm`] if `root` is not a rank or another rank fails.
    /// - [`FieldError::Device`] if the device fails or memory is missing.
    pub fn scatter<T: DeviceElement>(&mut self, mesh: &Mesh, root: usize, values: Option<&[T]>) -> Result<Field<T>> {
        let comm = self.comm_on("Rank::scatter", mesh, 1);
        let parts = parts(mesh);
        let packed = comm.together(|| -> Result<_> {
            if comm.rank() != root {
                return Ok(Vec::new());
            }
            let (expected, values) = (mesh.total_cells(), values.unwrap_or_default());
            FieldError::check_length("Rank::scatter: number of values", expected, values.len() as u64)?;
            let mut packed = host_memory::zeros("cells of all ranks", values.len())?;
            let mut rest = packed.as_mut_slice();
            for part in &parts {
                let (own, others) = rest.split_at_mut(volume(part) as usize);
                each_row(mesh.shape(), part, |to, from| own[to].copy_from_slice(&values[from]));
                rest = others;
            }
            Ok(packed)
        })?;
        let counts: Vec<u64> = parts.iter().map(volume).collect();
        let own = comm.scatter_v(root, (comm.rank() == root).then_some((packed.as_slice(), counts.as_slice())))?;
        comm.together(|| {
            let mut field = self.zeros(mesh)?;
            self.upload(&mut field, &own)?;
            Ok(field)
        })
    }
}
