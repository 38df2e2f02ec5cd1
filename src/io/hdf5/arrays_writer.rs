//! Writing of plain arrays, as in an `.npz` archive.

use std::path::Path;

use hdf5_metno::file::File as Hdf5File;

use super::attributes;
use super::shared_datasets::{DatasetSpec, NumberKind, SharedDatasets};
use crate::io::{IoError, Member, NpyElement, Sealed};

/// Numbers that a file says beside its arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// The array that they are of, or a group, such as `Header`, which is made for them.
    pub at: String,
    /// Their name.
    pub name: String,
    /// The numbers, one at least.
    pub values: Vec<f64>,
}

/// A file of named arrays that ranks write together: what [`NpzWriter`](crate::io::NpzWriter) is for `.npz`, as datasets of these names, types and
/// shapes. Ranks share it as they share any [`SharedFile`](crate::io::SharedFile): rank 0 creates it, the others open it after a barrier;
/// [`seal_arrays`](crate::io::collective::seal_arrays) does all of that.
///
/// Datasets are contiguous; equal arrays with equal attributes make equal files.
#[derive(Debug)]
pub struct ArraysWriter {
    datasets: SharedDatasets,
}

impl ArraysWriter {
    /// Creates the file with all arrays, none of their numbers, and these attributes.
    ///
    /// # Errors
    /// [`IoError::MemberType`] for members of complex numbers; [`IoError::OutputIsDash`], [`IoError::NotAFile`],
    /// [`IoError::Create`], [`IoError::Exists`] if the token was used before, [`IoError::Shape`] if no file could hold the arrays. Nothing is left
    /// behind after an error.
    pub fn create(
        path: impl AsRef<Path>,
        members: &[Member],
        attributes: &[Attribute],
        token: &str,
    ) -> Result<Self, IoError> {
        let mut specs = specs(path.as_ref(), members)?;
        for spec in &mut specs {
            let own = attributes.iter().filter(|attribute| attribute.at == spec.name);
            spec.attributes = own.map(|attribute| (attribute.name.clone(), attribute.values.clone())).collect();
        }
        let describe = |file: &Hdf5File| {
            let of_group = |attribute: &&Attribute| members.iter().all(|member| member.name != attribute.at);
            for Attribute { at, name, values } in attributes.iter().filter(of_group) {
                let group = if file.link_exists(at) { file.group(at)? } else { file.create_group(at)? };
                attributes::list(&group, name, values)?;
            }
            Ok(())
        };
        Ok(ArraysWriter { datasets: SharedDatasets::create(path.as_ref(), token, specs, describe)? })
    }

    /// Opens the file that rank 0 has created, with rank 0's [`offsets`](Self::offsets). Called by all other ranks, after a barrier.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`IoError::Create`] if the file is not to be seen from here: the ranks do not share a file system, or rank 0
    /// has failed; [`IoError::Shape`]
    /// for another number of offsets than of datasets.
    pub fn open(path: impl AsRef<Path>, members: &[Member], (token, offsets): (&str, &[u64])) -> Result<Self, IoError> {
        let specs = specs(path.as_ref(), members)?;
        Ok(ArraysWriter { datasets: SharedDatasets::open(path.as_ref(), token, specs, offsets)? })
    }

    /// The byte offsets of the arrays, which rank 0 broadcasts for the other ranks to [`open`](Self::open) the file.
    pub fn offsets(&self) -> &[u64] {
        self.datasets.offsets()
    }

    /// Writes elements of a member, by its number, from element `first` on.
    ///
    /// # Errors
    /// [`IoError::Range`] beyond the member's end, [`IoError::Write`].
    pub fn write<T: NpyElement>(&self, member: usize, first: u64, elements: &[T]) -> Result<(), IoError> {
        self.datasets.write_numbers(member, first, elements)
    }

    /// Flushes this rank's part to the disk; the file gets its name by [`Sealed::publish`], on the rank that created it.
    ///
    /// # Errors
    /// [`IoError::Write`].
    pub fn seal(self) -> Result<Sealed, IoError> {
        self.datasets.seal()
    }
}

fn specs(path: &Path, members: &[Member]) -> Result<Vec<DatasetSpec>, IoError> {
    let spec = |member: &Member| {
        let kind = match member.descr {
            "<f4" => NumberKind::F32,
            "<f8" => NumberKind::F64,
            "<i4" => NumberKind::I32,
            "<i8" => NumberKind::I64,
            "<u4" => NumberKind::U32,
            "<u8" => NumberKind::U64,
            found => {
                let (path, member, found) = (path.into(), member.name.clone(), found.into());
                let wanted = "float32, float64, int32, int64, uint32 or uint64".to_string();
                return Err(IoError::MemberType { path, member, found, wanted });
            }
        };
        Ok(DatasetSpec {
            name: member.name.clone(),
            kind,
            shape: member.shape.clone(),
            quantity: None,
            attributes: Vec::new(),
        })
    };
    members.iter().map(spec).collect()
}
