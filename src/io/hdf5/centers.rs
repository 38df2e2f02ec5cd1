//! The centers of the groups of a catalog, as points.

use std::path::{Path, PathBuf};

use super::attributes::{counts, single};
use super::part_file::points;
use super::{Header, Opened, PointFiles, Points, group_name, parts, wrong};
use crate::io::Result;

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
    centers: Option<Points>,
}

impl Part {
    /// Reads the header and finds the dataset; `None` if the file is not a catalog.
    fn read(path: &Path, file: &Opened) -> Result<Option<Part>> {
        for particle_type in 0..6 {
            // A snapshot may have groups besides its particles.
            if file.has(&group_name(particle_type))? {
                return Ok(None);
            }
        }
        let mut centers = None;
        for name in DATASETS {
            let Some(dataset) = file.dataset(name)? else { continue };
            centers = Some(points(path, &dataset, name)?);
            file.check(&dataset, name)?;
            break;
        }
        let (mut files, mut total, mut header_of) = (1, None, None);
        if let Some(at) = file.group("Header")? {
            let count = |name: &str| {
                let found = counts(&at, name).and_then(single);
                found.map_err(|error| wrong(path, format!("Header/{name} {error}; write it again")))
            };
            (files, total) = (count("NumFiles")?.unwrap_or(1).max(1), count("Ngroups_Total")?);
            if centers.is_none() && total.is_none() {
                return Ok(None);
            }
            let rows = centers.as_ref().map_or(0, |centers| centers.count);
            if let Some(said) = count("Ngroups_ThisFile")?.filter(|&said| said != rows) {
                let reason = format!("Header/Ngroups_ThisFile counts {said} groups, but there are {rows} centers");
                return Err(wrong(path, format!("{reason}; write it again")));
            }
            header_of = Some(file.header()?);
        } else if centers.is_none() {
            return Ok(None);
        }
        Ok(Some(Part { path: path.into(), header: header_of, files, total, centers }))
    }

    /// Reads another file of this catalog, which must have the same header.
    fn sibling(&self, path: &Path) -> Result<Part> {
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

/// Opens the centers of the groups of a catalog as points: `Group/GroupPos` in the layout of
/// Gadget-4 ([`write_groups`](super::write_groups)), or `center` of a file of arrays
/// ([`Hdf5Contents::Arrays`](super::Hdf5Contents::Arrays)). `None` if the file is not a catalog or
/// cannot be opened, since opening it as a snapshot gives a better error.
///
/// - Any one of `name.0.hdf5`, `name.1.hdf5`, ... opens all files of a catalog, and so does
///   `name.hdf5` if only these exist. Files without groups may lack the dataset. Groups are counted
///   over all files.
/// - Every rank opens the files by itself; numbers are in their units.
///
/// # Errors
/// `IoErrorKind::Shape` and `IoErrorKind::ElementType` for centers that are not `(G, 3)` or
/// `(G, 2)`, f32 or f64; `IoErrorKind::Unsupported` for a missing filter; `IoErrorKind::Format`
/// for broken files, and if one of several is missing or belongs to another catalog.
pub fn open_centers(path: impl AsRef<Path>) -> Result<Option<PointFiles>> {
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
    let centers = all.into_iter().map(|part| (part.path, part.centers));
    let centers = PointFiles::new(path, header.unwrap_or_default(), GROUP_POS, centers)?;
    let found = centers.count();
    if let Some(total) = total.filter(|&total| total != found) {
        let reason = format!("Header/Ngroups_Total counts {total} groups, but its {files} files have {found}");
        return Err(wrong(path, format!("{reason}; write them again")));
    }
    Ok(Some(centers))
}
