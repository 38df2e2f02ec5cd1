//! The files of a snapshot.

use std::path::{Path, PathBuf};

use super::part_file::{Header, PartFile, wrong};
use super::part_path;
use crate::io::{IoError, printable_path};

/// The paths of all files of the snapshot that `path` belongs to, in their order, whatever particles they have.
///
/// # Errors
/// Those of [`Snapshot::open`](super::Snapshot::open), but for what it asks of particles.
pub fn snapshot_paths(path: impl AsRef<Path>) -> Result<Vec<PathBuf>, IoError> {
    Ok(find(path.as_ref())?.into_iter().map(|file| file.path).collect())
}

/// All files of the snapshot that `path` belongs to, in their order, with their headers checked.
pub(super) fn find(path: &Path) -> Result<Vec<PartFile>, IoError> {
    let first = part_path(path, 0);
    // `path` may be the name without a number.
    let given = if !path.exists() && first.is_file() { &first } else { path };
    let part = PartFile::read(given)?;
    let files = part.header.files;
    if files == 1 {
        return Ok(vec![part]);
    }
    let Some(whole) = whole_path(given) else {
        let reason = format!(
            "it is one of {files} files of a snapshot, whose names must end in .0, .1, ... before the extension; \
             give it its name back"
        );
        return Err(wrong(given, reason));
    };
    (0..files).map(|index| read_part(&part, &whole, index)).collect()
}

/// Reads file number `index` and checks that it belongs to the same snapshot as `given`.
fn read_part(given: &PartFile, whole: &Path, index: u64) -> Result<PartFile, IoError> {
    let path = part_path(whole, index);
    let files = given.header.files;
    let part = PartFile::read(&path).map_err(|error| match error {
        IoError::NotFound { path } => wrong(
            &given.path,
            format!(
                "it is one of {files} files of a snapshot, but {} is not there; put all beside it",
                printable_path(&path)
            ),
        ),
        error => error,
    })?;
    if let Some(what) = difference(&part.header, &given.header) {
        let reason = format!(
            "it belongs to another snapshot than {}: {what}; remove what is left of an older run",
            printable_path(&given.path)
        );
        return Err(wrong(&path, reason));
    }
    Ok(part)
}

/// A difference between two headers that files of one snapshot cannot have.
fn difference(one: &Header, other: &Header) -> Option<&'static str> {
    let moment = |header: &Header| (header.time, header.redshift);
    if (one.files, &one.total) != (other.files, &other.total) {
        Some("files or particles are counted differently")
    } else if (&one.box_size, &one.masses) != (&other.box_size, &other.masses) {
        Some("boxes or masses differ")
    } else if moment(one) != moment(other) {
        Some("times differ")
    } else {
        None
    }
}

/// `name.hdf5` of `name.7.hdf5`.
fn whole_path(part: &Path) -> Option<PathBuf> {
    let stem = Path::new(part.file_stem()?);
    let number = stem.extension()?.to_str()?;
    if !number.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let mut name = stem.file_stem()?.to_os_string();
    name.push(".");
    name.push(part.extension().unwrap_or("hdf5".as_ref()));
    Some(part.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_its_whole() {
        for (part, whole) in [
            ("a/snap.12.hdf5", Some("a/snap.hdf5")),
            ("snap_1.0.0.h5", Some("snap_1.0.h5")),
            ("snap.hdf5", None),
            ("snap.x1.hdf5", None),
            (".3.hdf5", None),
        ] {
            assert_eq!(whole_path(Path::new(part)), whole.map(PathBuf::from), "{part}");
        }
        assert_eq!(part_path("snap_1.0.h5", 7), Path::new("snap_1.0.7.h5"));
    }
}
