//! The centers of the groups of a catalog, as points.

use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use hdf5_metno::{Dataset, H5Type};

use super::attributes::{counts, single};
use super::part_file::{Header, Opened, broken, group_name, header, points, probe, read_rows, wrong};
use super::point_files::PointFiles;
use super::{background, parts, queries};
use crate::io::{Dtype, IoError};

/// Centers of groups: `Group/GroupPos` of a catalog in the layout of Gadget-4
/// ([`write_groups`](super::write_groups)), or `center` of a file of arrays
/// ([`Hdf5Contents::Arrays`](super::Hdf5Contents::Arrays)).
///
/// - Any one of `name.0.hdf5`, `name.1.hdf5`, ... opens all files of a catalog, and so does
///   `name.hdf5` if only these exist. Files without groups may lack the dataset. Groups are counted
///   over all files.
/// - Every rank opens the files by itself; numbers are in their units.
#[derive(Clone, Debug)]
pub struct Centers {
    files: PointFiles,
    dataset: &'static str,
}

impl Deref for Centers {
    type Target = PointFiles;

    fn deref(&self) -> &PointFiles {
        &self.files
    }
}

/// The dataset of the centers in Gadget-4's layout.
const GROUP_POS: &str = "Group/GroupPos";

/// The datasets that may have the centers.
const DATASETS: [&str; 2] = [GROUP_POS, "center"];

/// One file of a catalog.
struct Part {
    path: PathBuf,
    header: Option<Header>,
    /// Files of the catalog.
    files: u64,
    /// Groups in all files, if the header says it.
    total: Option<u64>,
    /// The dataset with its rows, axes and type, if there is one.
    centers: Option<(&'static str, u64, usize, Dtype)>,
}

impl Part {
    /// Reads the header and finds the dataset; `None` if the file is not a catalog.
    fn read(path: &Path, file: &Opened) -> Result<Option<Part>, IoError> {
        let has = |name: &str| queries::has_link(&file.hdf5, name).map_err(|e| broken(path, &e));
        for particle_type in 0..6 {
            // A snapshot may have groups besides its particles.
            if has(&group_name(particle_type))? {
                return Ok(None);
            }
        }
        let mut centers = None;
        for name in DATASETS {
            let Some(dataset) = find(file, name)? else { continue };
            let (count, dims, dtype) = points(path, &dataset, name)?;
            file.check(&dataset, name)?;
            centers = Some((name, count, dims, dtype));
            break;
        }
        let (mut files, mut total, mut header_of) = (1, None, None);
        if has("Header")? {
            let count = |name: &str| {
                let found = file.hdf5.group("Header").and_then(|header| counts(&header, name).and_then(single));
                found.map_err(|error| wrong(path, format!("Header/{name} {error}; write it again")))
            };
            (files, total) = (count("NumFiles")?.unwrap_or(1).max(1), count("Ngroups_Total")?);
            if centers.is_none() && total.is_none() {
                return Ok(None);
            }
            let rows = centers.map_or(0, |(_, rows, ..)| rows);
            if let Some(said) = count("Ngroups_ThisFile")?.filter(|&said| said != rows) {
                let reason = format!("Header/Ngroups_ThisFile counts {said} groups, but there are {rows} centers");
                return Err(wrong(path, format!("{reason}; write it again")));
            }
            header_of = Some(header(&file.hdf5).map_err(|why| wrong(path, why))?);
        } else if centers.is_none() {
            return Ok(None);
        }
        Ok(Some(Part { path: path.into(), header: header_of, files, total, centers }))
    }

    /// Reads another file of this catalog, which must have the same header.
    fn sibling(&self, path: &Path) -> Result<Part, IoError> {
        let file = Opened::new(path).map_err(|error| parts::missing(&self.path, self.files, WHAT, error))?;
        let foreign = |what: &str| parts::foreign(path, &self.path, WHAT, what);
        let part = Part::read(path, &file)?.ok_or_else(|| foreign("it has no groups"))?;
        if (part.files, part.total) != (self.files, self.total) {
            return Err(foreign("files or groups are counted differently"));
        }
        match part.header.as_ref().zip(self.header.as_ref()).and_then(|(one, other)| parts::difference(one, other)) {
            Some(what) => Err(foreign(what)),
            None => Ok(part),
        }
    }
}

/// Names the files in errors.
const WHAT: &str = "catalog";

impl Centers {
    /// Opens a catalog; `None` if the file is not a catalog or cannot be opened, since opening it
    /// as a snapshot gives a better error.
    ///
    /// # Errors
    /// `IoErrorKind::Shape` and `IoErrorKind::ElementType` for centers that are not `(G, 3)` or
    /// `(G, 2)`, f32 or f64; `IoErrorKind::Unsupported` for a missing filter; `IoErrorKind::Format`
    /// for broken files, and if one of several is missing or belongs to another catalog.
    pub fn open(path: impl AsRef<Path>) -> Result<Option<Self>, IoError> {
        let path = path.as_ref();
        let given = parts::existing(path);
        let Ok(file) = Opened::new(&given) else { return Ok(None) };
        let Some(first) = Part::read(&given, &file)? else { return Ok(None) };
        drop(file);
        let (total, header, files) = (first.total, first.header.clone(), first.files);
        let all: Vec<Part> = match files {
            1 => vec![first],
            _ => parts::siblings(&given, files, WHAT)?.map(|path| first.sibling(&path)).collect::<Result<_, _>>()?,
        };
        let (mut centers, mut dtype): (Option<(&'static str, usize)>, _) = (None, Dtype::F32);
        let (mut parts, mut end) = (Vec::new(), 0u64);
        for part in all {
            let start = end;
            if let Some((name, count, dims, found)) = part.centers {
                end = end.checked_add(count).ok_or_else(|| wrong(path, "it has more groups than can be"))?;
                let wanted = *centers.get_or_insert((name, dims));
                if wanted != (name, dims) {
                    let (path, found) = (part.path.join(name), vec![count, dims as u64]);
                    let wanted = format!("(G, {}) of {}, as in the files before it,", wanted.1, wanted.0);
                    return Err(IoError::shape(path, found, wanted));
                }
                if found == Dtype::F64 {
                    dtype = Dtype::F64;
                }
            }
            parts.push((part.path, start..end));
        }
        if let Some(total) = total.filter(|&total| total != end) {
            let reason = format!("Header/Ngroups_Total counts {total} groups, but its {files} files have {end}");
            return Err(wrong(path, format!("{reason}; write them again")));
        }
        let (dataset, dims) = centers.unwrap_or((GROUP_POS, 3));
        let header = header.unwrap_or_default();
        header.check_box(path, dims)?;
        let files = PointFiles { path: path.into(), parts, header, dims, dtype };
        Ok(Some(Centers { files, dataset }))
    }

    /// Returns the name of the dataset that is read.
    #[must_use]
    pub fn dataset(&self) -> &'static str {
        self.dataset
    }

    /// Returns the centimeters of a comoving length of 1, if the file states them.
    ///
    /// # Errors
    /// Same as [`background`](PointFiles::background).
    pub fn length_unit(&self) -> Result<Option<f64>, IoError> {
        let with_groups = self.parts.iter().find(|(_, rows)| !rows.is_empty());
        let file = Opened::new(with_groups.map_or(self.first(), |(path, _)| path))?;
        let dataset = find(&file, self.dataset)?;
        background::length_unit(&file, dataset.as_ref())
    }

    /// Reads centers, row after row; f64 in the file are rounded. NaN and infinities are passed on.
    ///
    /// # Errors
    /// `IoErrorKind::Misuse`; `IoErrorKind::Format` if the file was changed since it was opened or
    /// cannot be read.
    pub fn positions_f32(&self, rows: Range<u64>) -> Result<Vec<f32>, IoError> {
        self.read(rows)
    }

    /// Reads centers, row after row. NaN and infinities are passed on.
    ///
    /// # Errors
    /// Same as [`positions_f32`](Self::positions_f32).
    pub fn positions_f64(&self, rows: Range<u64>) -> Result<Vec<f64>, IoError> {
        self.read(rows)
    }

    fn read<T: H5Type>(&self, rows: Range<u64>) -> Result<Vec<T>, IoError> {
        self.check_range(&rows)?;
        let mut values = self.allocate(&rows, self.dims)?;
        for (path, part) in &self.parts {
            let (start, end) = (rows.start.max(part.start), rows.end.min(part.end));
            if start >= end {
                continue;
            }
            let file = Opened::new(path)?;
            let changed = || wrong(path, format!("{} has changed; write it again", self.dataset));
            let dataset = find(&file, self.dataset)?.ok_or_else(changed)?;
            let (count, dims, _) = points(path, &dataset, self.dataset)?;
            if (count, dims) != (part.end - part.start, self.dims) {
                return Err(changed());
            }
            let here = (start - part.start) as usize..(end - part.start) as usize;
            probe::<T>(path, here.len() * dims)?;
            let read = read_rows::<T>(&dataset, here, dims).map_err(|e| file.unread(&dataset, self.dataset, &e))?;
            values.extend(read);
            file.still_whole()?;
        }
        Ok(values)
    }
}

/// Returns the dataset of this full name.
fn find(file: &Opened, whole: &str) -> Result<Option<Dataset>, IoError> {
    let (group, name) = whole.split_once('/').unwrap_or(("", whole));
    file.dataset(group, name)
}
