//! The files of a snapshot.

use std::path::{Path, PathBuf};

use super::{Header, PartFile, part_path, wrong};
use crate::io::{IoError, IoErrorKind, Result, printable_path};

/// Returns the paths of all files of the snapshot that `path` belongs to, in order.
///
/// # Errors
/// Same as [`Snapshot::open`](super::Snapshot::open), except those about particles.
pub fn snapshot_paths(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    Ok(find(path.as_ref())?.into_iter().map(|file| file.path).collect())
}

/// Returns all files of the snapshot that `path` belongs to, in order, with checked headers.
pub(super) fn find(path: &Path) -> Result<Vec<PartFile>> {
    let given = existing(path);
    let part = PartFile::read(&given)?;
    let files = part.header.files;
    if files == 1 {
        return Ok(vec![part]);
    }
    let read = |path: PathBuf| {
        let other = PartFile::read(&path).map_err(|error| missing(&given, files, "snapshot", error))?;
        match difference(&other.header, &part.header) {
            Some(what) => Err(foreign(&path, &given, "snapshot", what)),
            None => Ok(other),
        }
    };
    siblings(&given, files, "snapshot")?.map(read).collect()
}

/// Returns `path`, or file number 0 if `path` is the name without a number.
pub(super) fn existing(path: &Path) -> PathBuf {
    let first = part_path(path, 0);
    if !path.exists() && first.is_file() { first } else { path.into() }
}

/// Returns the paths of all `files` files of the snapshot or catalog (`what`) that `given` belongs
/// to, one by one, since a header may state any number.
pub(super) fn siblings(given: &Path, files: u64, what: &str) -> Result<impl Iterator<Item = PathBuf>> {
    let Some(whole) = whole_path(given) else {
        let reason = format!(
            "it is one of {files} files of a {what}, whose names must end in .0, .1, ... before the extension; \
             give it its name back"
        );
        return Err(wrong(given, reason));
    };
    Ok((0..files).map(move |index| part_path(&whole, index)))
}

/// Adds the remedy to the error of a missing file that belongs together with `given`.
pub(super) fn missing(given: &Path, files: u64, what: &str, error: IoError) -> IoError {
    if error.kind != IoErrorKind::NotFound {
        return error;
    }
    let path = printable_path(&error.path);
    wrong(given, format!("it is one of {files} files of a {what}, but {path} is not there; put all beside it"))
}

/// Creates the error of a file next to `given` that belongs to another snapshot or catalog.
pub(super) fn foreign(path: &Path, given: &Path, what: &str, difference: &str) -> IoError {
    let given = printable_path(given);
    wrong(path, format!("it belongs to another {what} than {given}: {difference}; remove what is left of an older run"))
}

/// Returns a difference between two headers that files of one snapshot cannot have.
pub(super) fn difference(one: &Header, other: &Header) -> Option<&'static str> {
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

/// Returns `name.hdf5` for `name.7.hdf5`.
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
