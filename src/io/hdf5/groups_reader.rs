//! Reading of group catalogues.

use std::path::Path;

use hdf5_metno::{File as Hdf5File, H5Type};

use super::GroupCatalog;
use super::attributes::numbers;
use super::part_file::{broken, open, wrong};
use crate::io::IoError;

/// Reads a catalogue that [`write_groups`](super::write_groups) has written, whole. Called by any rank by itself.
///
/// # Errors
/// [`IoError::InputIsDash`], [`IoError::NotFound`], [`IoError::NotAFile`], [`IoError::Read`], and [`IoError::NotHdf5`]
/// for files that are foreign, cut off, or without what such a catalogue has.
pub fn read_groups(path: impl AsRef<Path>) -> Result<GroupCatalog, IoError> {
    let path = path.as_ref();
    let file = Reader { file: open(path)?, path };
    let count: Vec<u64> = file.rows("Group", "GroupLen", 1, None)?;
    let rows = Some(count.len());
    let floats = |name: &str| file.rows::<f32>("Group", name, 1, rows);
    let vectors = |name: &str| {
        let flat = file.rows::<f32>("Group", name, 3, rows)?;
        Ok::<_, IoError>(flat.as_chunks::<3>().0.to_vec())
    };
    let mut offset = vec![0];
    let mut end = 0u64;
    for &count in &count {
        end = end.checked_add(count).ok_or_else(|| wrong(path, "Group/GroupLen counts more members than can be"))?;
        offset.push(end);
    }
    let members = match file.has("IDs", "ID")? {
        true => Some(file.rows::<u64>("IDs", "ID", 1, Some(end as usize))?),
        false => None,
    };
    Ok(GroupCatalog {
        box_size: file.header("BoxSize")?,
        scale_factor: file.header("Time")?,
        label: file.rows("Group", "GroupLabel", 1, rows)?,
        mass: floats("GroupMass")?,
        center: vectors("GroupPos")?,
        velocity: if file.has("Group", "GroupVel")? { Some(vectors("GroupVel")?) } else { None },
        inertia_radius: floats("GroupInertiaRadius")?,
        velocity_dispersion: if file.has("Group", "GroupVelDisp")? { Some(floats("GroupVelDisp")?) } else { None },
        max_radius: floats("GroupMaxRadius")?,
        count,
        offset,
        members,
    })
}

struct Reader<'a> {
    file: Hdf5File,
    path: &'a Path,
}

impl Reader<'_> {
    fn has(&self, group: &str, name: &str) -> Result<bool, IoError> {
        let has = || Ok(self.file.link_exists(group) && self.file.group(group)?.link_exists(name));
        has().map_err(|e| broken(self.path, &e))
    }

    fn header(&self, name: &str) -> Result<f64, IoError> {
        let read = || numbers(&*self.file.group("Header")?, name);
        let value = read().map_err(|e| broken(self.path, &e))?.and_then(|values| values.first().copied());
        value.ok_or_else(|| wrong(self.path, format!("it has no Header/{name}; is it a catalogue of groups?")))
    }

    /// All rows of `width` numbers of a dataset, as many as `rows` says.
    fn rows<T: H5Type>(&self, group: &str, name: &str, width: usize, rows: Option<usize>) -> Result<Vec<T>, IoError> {
        if !self.has(group, name)? {
            return Err(wrong(self.path, format!("it has no {group}/{name}; is it a catalogue of groups?")));
        }
        let dataset = self.file.group(group).and_then(|group| group.dataset(name));
        let dataset = dataset.map_err(|e| broken(self.path, &e))?;
        let shape = dataset.shape();
        let found = match shape[..] {
            [found] if width == 1 => found,
            [found, wide] if wide == width => found,
            _ => return Err(wrong(self.path, format!("{group}/{name} has the shape {shape:?}"))),
        };
        if rows.is_some_and(|rows| rows != found) {
            return Err(wrong(self.path, format!("{group}/{name} has {found} rows, others {}", rows.unwrap_or(0))));
        }
        dataset.read_raw::<T>().map_err(|e| broken(self.path, &e))
    }
}
