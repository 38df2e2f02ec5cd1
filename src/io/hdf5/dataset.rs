//! Descriptions of datasets to be written.

use hdf5_metno::dataset::{AllocTime, FillTime};
use hdf5_metno::file::File as Hdf5File;
use hdf5_metno::{Error, H5Type};

use super::units::Quantity;
use super::{SnapshotInfo, attributes};
use crate::io::{Member, NpyElement};

/// A dataset of a file. The name of its member begins with the group and a `/`, unless it is in the root.
#[derive(Clone, Debug)]
pub(super) struct DatasetSpec {
    pub member: Member,
    /// Quantity and unit, written as attributes.
    pub quantity: Option<(Quantity, SnapshotInfo)>,
    /// Further attributes.
    pub attributes: Vec<(String, Vec<f64>)>,
}

impl DatasetSpec {
    /// Creates a description of `rows` rows of `width` values; a width of 1 gives a single axis.
    pub fn table<T: NpyElement>(name: &str, [rows, width]: [u64; 2], quantity: Quantity, info: &SnapshotInfo) -> Self {
        let shape = if width == 1 { vec![rows] } else { vec![rows, width] };
        DatasetSpec {
            member: Member::new::<T>(name, &shape),
            quantity: Some((quantity, *info)),
            attributes: Vec::new(),
        }
    }

    /// Creates the dataset; returns the byte offset at which it begins.
    pub fn create(&self, file: &Hdf5File) -> hdf5_metno::Result<u64> {
        let name = &self.member.name;
        if let Some((group, _)) = name.rsplit_once('/').filter(|(group, _)| !file.link_exists(group)) {
            file.create_group(group)?;
        }
        match self.member.descr {
            "<f4" => self.create_as::<f32>(file),
            "<f8" => self.create_as::<f64>(file),
            "<i4" => self.create_as::<i32>(file),
            "<i8" => self.create_as::<i64>(file),
            "<u4" => self.create_as::<u32>(file),
            "<u8" => self.create_as::<u64>(file),
            other => Err(Error::from(format!("no datasets of elements {other}"))),
        }
    }

    fn create_as<T: H5Type>(&self, file: &Hdf5File) -> hdf5_metno::Result<u64> {
        let builder = file.new_dataset::<T>();
        let builder = builder.no_chunk().alloc_time(Some(AllocTime::Early)).fill_time(FillTime::Never);
        // Without times of writing, so that equal values give equal files.
        let builder = builder.obj_track_times(false);
        let shape: Vec<usize> = self.member.shape.iter().map(|&n| n as usize).collect();
        let dataset = builder.shape(shape).create(self.member.name.as_str())?;
        if let Some((quantity, info)) = &self.quantity {
            attributes::describe(&dataset, quantity, info)?;
        }
        for (name, values) in &self.attributes {
            attributes::list(&dataset, name, values)?;
        }
        match dataset.offset() {
            Some(offset) => Ok(offset),
            // Empty datasets have no offset.
            None if self.len() == Some(0) => Ok(0),
            None => Err(Error::from("a dataset has no offset in the file")),
        }
    }

    /// Returns the number of elements; `None` beyond `u64`.
    pub fn len(&self) -> Option<u64> {
        self.member.shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n))
    }

    pub fn row_len(&self) -> u64 {
        self.member.shape.iter().skip(1).product()
    }
}
