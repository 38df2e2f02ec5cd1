//! Reading of group catalogs.

use std::path::Path;

use hdf5_metno::{Dataset, H5Type};

use super::part_file::{Opened, broken, wrong};
use super::{GroupCatalog, queries};
use crate::host_memory;
use crate::io::{Dtype, IoError};

/// Reads a whole catalog that [`write_groups`](super::write_groups) has written. Not collective.
///
/// # Errors
/// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`; `IoErrorKind::Format` for
/// foreign and truncated files, missing datasets, and impossible numbers.
pub fn read_groups(path: impl AsRef<Path>) -> Result<GroupCatalog, IoError> {
    let path = path.as_ref();
    let file = Reader { file: Opened::new(path)?, path };
    let count = file.needed("GroupLen", file.whole_numbers("Group/GroupLen", None)?)?;
    let rows = Some(count.len() as u64);
    let mut offset = host_memory::reserve("groups", count.len() + 1)?;
    offset.push(0);
    let mut end = 0u64;
    for &count in &count {
        end = end.checked_add(count).ok_or_else(|| wrong(path, "Group/GroupLen counts more members than can be"))?;
        offset.push(end);
    }
    let magnitudes = |name: &str| file.floats(name, 1, rows, |value| value >= 0.0);
    let vectors = |name: &str| {
        let flat = file.floats(name, 3, rows, |_| true)?;
        let rows = flat.map(|flat| host_memory::copy("groups", flat.as_chunks::<3>().0)).transpose()?;
        Ok::<_, IoError>(rows)
    };
    let catalog = GroupCatalog {
        box_size: file.header("BoxSize")?,
        scale_factor: file.header("Time")?,
        label: file.needed("GroupLabel", file.whole_numbers("Group/GroupLabel", rows)?)?,
        mass: file.needed("GroupMass", magnitudes("GroupMass")?)?,
        center: file.needed("GroupPos", vectors("GroupPos")?)?,
        velocity: vectors("GroupVel")?,
        inertia_radius: file.needed("GroupInertiaRadius", magnitudes("GroupInertiaRadius")?)?,
        velocity_dispersion: magnitudes("GroupVelDisp")?,
        max_radius: file.needed("GroupMaxRadius", magnitudes("GroupMaxRadius")?)?,
        count,
        offset,
        members: file.whole_numbers("IDs/ID", Some(end))?,
    };
    file.file.still_whole()?;
    Ok(catalog)
}

struct Reader<'a> {
    file: Opened,
    path: &'a Path,
}

impl Reader<'_> {
    fn absent(&self, name: &str) -> IoError {
        wrong(self.path, format!("it has no {name}; is it a catalog of groups?"))
    }

    /// Returns a dataset of the group `Group` that a catalog must have.
    fn needed<T>(&self, name: &str, found: Option<T>) -> Result<T, IoError> {
        found.ok_or_else(|| self.absent(&format!("Group/{name}")))
    }

    /// Returns a header attribute of one number above 0; the box size may be 0, for open space.
    fn header(&self, name: &str) -> Result<f64, IoError> {
        match self.file.number("Header", name)? {
            Some(value) if value > 0.0 || value == 0.0 && name == "BoxSize" => Ok(value),
            Some(value) => Err(wrong(self.path, format!("Header/{name} is {value}; it must be above 0"))),
            None => Err(self.absent(&format!("Header/{name}"))),
        }
    }

    /// Returns a dataset of `rows` rows of `width` numbers, with its type; `None` if it is missing.
    fn find(&self, name: &str, width: usize, rows: Option<u64>) -> Result<Option<(Dataset, Dtype)>, IoError> {
        let Some(dataset) = self.file.dataset(name)? else { return Ok(None) };
        let shape = dataset.space().map_err(|e| broken(self.path, &e))?.shape();
        let found = match shape[..] {
            [found] if width == 1 => found as u64,
            [found, wide] if wide == width => found as u64,
            _ => return Err(wrong(self.path, format!("{name} has the shape {shape:?}"))),
        };
        if let Some(rows) = rows.filter(|&rows| rows != found) {
            return Err(wrong(self.path, format!("{name} has {found} rows, others {rows}")));
        }
        self.file.check(&dataset, name)?;
        match queries::element_type(&dataset).map_err(|e| broken(self.path, &e))? {
            Ok(dtype) => Ok(Some((dataset, dtype))),
            Err(words) => Err(wrong(self.path, format!("{name} is {words}, where numbers are needed"))),
        }
    }

    fn all<T: H5Type>(&self, dataset: &Dataset) -> Result<Vec<T>, IoError> {
        dataset.read_raw::<T>().map_err(|e| self.file.unread(dataset, dataset.name().trim_start_matches('/'), &e))
    }

    /// Reads counts or ids; `None` if the dataset is missing.
    fn whole_numbers(&self, name: &str, rows: Option<u64>) -> Result<Option<Vec<u64>>, IoError> {
        let Some((dataset, dtype)) = self.find(name, 1, rows)? else { return Ok(None) };
        match dtype {
            Dtype::U32 | Dtype::U64 => self.all(&dataset).map(Some),
            other => Err(wrong(self.path, format!("{name} is of type {other}, and not of uint32 or uint64"))),
        }
    }

    /// Reads finite numbers of the group `Group`, all of which must pass `good`; `None` if the
    /// dataset is missing.
    fn floats(
        &self,
        name: &str,
        width: usize,
        rows: Option<u64>,
        good: impl Fn(f32) -> bool,
    ) -> Result<Option<Vec<f32>>, IoError> {
        let name = format!("Group/{name}");
        let Some((dataset, dtype)) = self.find(&name, width, rows)? else { return Ok(None) };
        if !matches!(dtype, Dtype::F32 | Dtype::F64) {
            let reason = format!("{name} is of type {dtype}, and not of float32 or float64");
            return Err(wrong(self.path, reason));
        }
        let values: Vec<f32> = self.all(&dataset)?;
        match values.iter().position(|&value| !(value.is_finite() && good(value))) {
            None => Ok(Some(values)),
            Some(at) => Err(wrong(self.path, format!("{name}: row {} is {}", at / width, values[at]))),
        }
    }
}
