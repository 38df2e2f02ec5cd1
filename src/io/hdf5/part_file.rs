//! One file of a snapshot: its header and its particles.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5_metno::{Dataset, File as Hdf5File, Group, H5Type};

use super::attributes::{counts, magnitudes, number, single};
use super::queries;
use crate::host_memory;
use crate::io::{Dtype, Input, IoError, IoErrorKind, PARTICLE_TYPES, Result, printable};

/// The header of a file, about itself and the whole snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Header {
    pub files: u64,
    /// Particles of each type in this file, if the header has them.
    pub here: Option<Vec<u64>>,
    /// Particles of each type in all files, if the header has them.
    pub total: Option<Vec<u64>>,
    /// One side, or one per axis; 0 means open space.
    pub box_size: Option<Vec<f64>>,
    pub masses: Vec<f64>,
    pub time: Option<f64>,
    pub redshift: Option<f64>,
}

/// A file whose header has been checked.
#[derive(Clone, Debug)]
pub(super) struct PartFile {
    pub path: PathBuf,
    pub header: Header,
    /// The particle types that have coordinates, in order.
    pub types: Vec<usize>,
}

/// The full name, the shape and the element type of a dataset of points.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Points {
    pub dataset: String,
    pub count: u64,
    pub dims: usize,
    pub dtype: Dtype,
}

/// A file that is open for reading.
pub(super) struct Opened {
    pub hdf5: Hdf5File,
    input: Input,
}

impl Opened {
    /// Opens a file.
    pub fn new(path: &Path) -> Result<Self> {
        // Opened first without the library, whose errors about missing or unreadable files say
        // little, and which blocks at pipes.
        let input = Input::open(path)?;
        let hdf5 = Hdf5File::open(path).map_err(|e| broken(path, &e))?;
        Ok(Self { hdf5, input })
    }

    pub fn path(&self) -> &Path {
        self.input.path()
    }

    /// Checks that the file has not been cut off since it was opened: the library reads zeros
    /// beyond a file's end.
    pub fn still_whole(&self) -> Result<()> {
        self.input.expect(self.input.len())
    }

    /// Returns `true` if there are links all along this path.
    pub fn has(&self, path: &str) -> Result<bool> {
        queries::has_link(&self.hdf5, path).map_err(|e| broken(self.path(), &e))
    }

    /// Returns a group; `None` if it is missing.
    pub fn group(&self, path: &str) -> Result<Option<Group>> {
        let found = self.has(path)?.then(|| self.hdf5.group(path)).transpose();
        found.map_err(|e| broken(self.path(), &e))
    }

    /// Returns the dataset of this full name; `None` if it is missing.
    pub fn dataset(&self, path: &str) -> Result<Option<Dataset>> {
        let found = self.has(path)?.then(|| self.hdf5.dataset(path)).transpose();
        found.map_err(|e| broken(self.path(), &e))
    }

    /// Returns the number of an attribute of a group; `None` if either is missing.
    pub fn number(&self, group: &str, name: &str) -> Result<Option<f64>> {
        let Some(at) = self.group(group)? else { return Ok(None) };
        number(&at, group, name).map_err(|why| wrong(self.path(), why))
    }

    /// Returns the number of an attribute of a group if it is above 0.
    pub fn positive(&self, group: &str, name: &str) -> Result<Option<f64>> {
        Ok(self.number(group, name)?.filter(|number| *number > 0.0))
    }

    /// Checks that the numbers of a dataset, given with its full name, can be in the file, and that
    /// this library can read them.
    pub fn check(&self, dataset: &Dataset, name: &str) -> Result<()> {
        let found = queries::check_storage(dataset, self.input.len()).map_err(|e| broken(self.path(), &e))?;
        found.map_err(|words| wrong(self.path(), format!("{name} {words}")))?;
        let rows = dataset.space().map_err(|e| broken(self.path(), &e))?.shape();
        // A writer without the filter may have skipped it, which only reading shows.
        match queries::missing_filter(dataset).map_err(|e| broken(self.path(), &e))? {
            Some(_) if rows.first().is_some_and(|&rows| rows > 0) => {
                let width = rows.get(1).copied().unwrap_or(1);
                read_rows::<f64>(dataset, 0..1, width).map(drop).map_err(|e| self.unread(dataset, name, &e))
            }
            _ => Ok(()),
        }
    }

    /// Creates the error of a dataset, given with its full name, that the library could not read.
    pub fn unread(&self, dataset: &Dataset, name: &str, error: &hdf5_metno::Error) -> IoError {
        match queries::missing_filter(dataset) {
            Ok(Some((number, filter))) => {
                let message = format!(
                    "compressed by filter {number}{}, which this HDF5 library does not have; put its plugin into a \
                     directory and name that in HDF5_PLUGIN_PATH (the Python package hdf5plugin has many, and says \
                     where: hdf5plugin.PLUGIN_PATH), or compress the file with gzip instead (h5repack -f GZIP=4)",
                    filter_name(number, &filter)
                );
                IoError::new(IoErrorKind::Unsupported, self.path().join(name), message)
            }
            _ => broken(self.path(), error),
        }
    }
}

/// Datasets of particles with two names: in files of Gadget and SWIFT, and in those of OWLS and
/// EAGLE.
const OTHER_NAMES: [(&str, &str); 2] = [("Masses", "Mass"), ("Velocities", "Velocity")];

impl Opened {
    /// Returns a dataset of particles and its full name in the file, by the name in Gadget's and
    /// SWIFT's files, else by the name in OWLS's and EAGLE's; `None` if it is missing.
    pub fn of_particles(&self, path: &str) -> Result<Option<(String, Dataset)>> {
        let other = |(usual, other)| path.strip_suffix(usual).map(|group| format!("{group}{other}"));
        for name in [path.to_string()].into_iter().chain(OTHER_NAMES.into_iter().filter_map(other)) {
            if let Some(dataset) = self.dataset(&name)? {
                return Ok(Some((name, dataset)));
            }
        }
        Ok(None)
    }

    /// Returns the first of `attributes` that a dataset has, with its number. Errors call the
    /// dataset `name`.
    pub fn first_of(
        &self,
        name: &str,
        dataset: &Dataset,
        attributes: &[&'static str],
    ) -> Result<Option<(&'static str, f64)>> {
        for attribute in attributes {
            let found = number(dataset, name, attribute).map_err(|why| wrong(self.path(), why));
            if let Some(number) = found? {
                return Ok(Some((attribute, number)));
            }
        }
        Ok(None)
    }
}

/// Attributes of a dataset with the power of the scale factor that makes its numbers physical, in
/// Gadget-4, SWIFT and EAGLE.
pub(super) const A_POWER: [&str; 3] = ["a_scaling", "a-scale exponent", "aexp-scale-exponent"];
/// Attributes of a dataset with the power of h that makes its numbers physical.
pub(super) const H_POWER: [&str; 3] = ["h_scaling", "h-scale exponent", "h-scale-exponent"];
/// Attributes of a dataset with its unit in CGS, without these powers.
pub(super) const TO_CGS: [&str; 3] =
    ["to_cgs", "Conversion factor to CGS (not including cosmological corrections)", "CGSConversionFactor"];

/// Returns the name of the group of particles of a type.
pub(super) fn group_name(particle_type: usize) -> String {
    format!("PartType{particle_type}")
}

/// Returns the full name of the coordinates of a type.
pub(super) fn coordinates_name(particle_type: usize) -> String {
    format!("PartType{particle_type}/Coordinates")
}

impl PartFile {
    /// Reads the header and the particle types in the file.
    pub fn read(path: &Path) -> Result<Self> {
        let file = Opened::new(path)?;
        let header = file.header()?;
        let mut types = Vec::new();
        for particle_type in 0..PARTICLE_TYPES {
            if file.has(&coordinates_name(particle_type))? {
                types.push(particle_type);
            }
        }
        Ok(Self { path: path.to_path_buf(), header, types })
    }

    /// Checks the coordinates of a type; `None` for a file without such particles. Other types are
    /// not examined. If the coordinates are trusted, the header may count other particles.
    pub fn coordinates(&self, particle_type: usize, is_trusted: bool) -> Result<Option<Points>> {
        let (file, name) = (Opened::new(&self.path)?, coordinates_name(particle_type));
        let Some(dataset) = file.dataset(&name)? else { return Ok(None) };
        let found = points(&self.path, &dataset, &name)?;
        if !is_trusted {
            let counted = ("NumPart_ThisFile", self.header.here.as_deref());
            check_count(&self.path, counted, particle_type, found.count)?;
        }
        if let Some(power) = file.first_of(&name, &dataset, &A_POWER)? {
            self.header.check_comoving(&self.path, &name, power)?;
        }
        file.check(&dataset, &name)?;
        Ok(Some(found))
    }
}

/// Reads rows of `width` numbers each of a dataset, which may have one axis if `width` is 1.
pub(super) fn read_rows<T: H5Type>(dataset: &Dataset, rows: Range<usize>, width: usize) -> hdf5_metno::Result<Vec<T>> {
    if dataset.ndim() == 1 && width == 1 {
        return Ok(dataset.read_slice_1d::<T, _>(rows)?.into_raw_vec_and_offset().0);
    }
    Ok(dataset.read_slice_2d::<T, _>((rows, 0..width))?.into_raw_vec_and_offset().0)
}

/// Checks that [`read_rows`] has memory for `count` numbers of the file at `path`.
///
/// # Errors
/// `IoErrorKind::Memory`.
pub(super) fn probe<T>(path: &Path, count: usize) -> Result<()> {
    host_memory::probe("rows", count.saturating_mul(size_of::<T>())).map_err(|error| IoError::memory(path, error.bytes))
}

/// Creates the error of a file that is not as expected.
pub(super) fn wrong(path: &Path, reason: impl Display) -> IoError {
    IoError::new(IoErrorKind::Format, path, format!("not an HDF5 file that can be read: {reason}"))
}

/// Creates the error of a file that the library cannot read.
pub(super) fn broken(path: &Path, error: &hdf5_metno::Error) -> IoError {
    match queries::lock_remedy(error) {
        "" => wrong(path, format!("{error}; if it was cut off or changed, copy or write it again")),
        remedy => wrong(path, format!("{error}{remedy}")),
    }
}

impl Header {
    /// Returns the sides of the box; 0 is an open axis. `None` if the header has none.
    pub fn sides(&self) -> Option<[f64; 3]> {
        match self.box_size.as_deref()? {
            [side] => Some([*side; 3]),
            [x, y] => Some([*x, *y, 0.0]),
            [x, y, z, ..] => Some([*x, *y, *z]),
            [] => None,
        }
    }

    /// Returns the scale factor: from the redshift, else the time; `None` if neither gives one
    /// above 0.
    pub fn scale_factor(&self) -> Option<f64> {
        self.redshift.map(|z| 1.0 / (1.0 + z)).or(self.time).filter(|a| *a > 0.0)
    }

    /// Checks that the coordinates are comoving, like the box, given the power of the scale factor
    /// in one of their attributes.
    fn check_comoving(&self, path: &Path, name: &str, (attribute, power): (&str, f64)) -> Result<()> {
        match self.scale_factor() {
            // With a = 1 both are equal.
            Some(a) if power != 1.0 && (a - 1.0).abs() > SAME => Err(wrong(
                path,
                format!(
                    "{name}: {attribute} is {power} at scale factor {a}, but Header/BoxSize and all lengths here are comoving \
                     ({attribute} 1); write comoving coordinates"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Checks that there is one side, or one for each of `dims` axes.
    pub fn check_box(&self, path: &Path, dims: usize) -> Result<()> {
        match self.box_size.as_ref().map(Vec::len) {
            Some(have) if ![1, 3, dims].contains(&have) => Err(wrong(
                path,
                format!("Header/BoxSize has {have} numbers; it must be one side, or one an axis ({dims})"),
            )),
            _ => Ok(()),
        }
    }
}

/// Largest relative difference of two numbers for one fact: some codes write few digits.
const SAME: f64 = 1e-3;

/// Returns an error if two attributes of the same meaning, given with their names, differ.
pub(super) fn contradiction(one: (&str, Option<f64>), other: (&str, Option<f64>)) -> Result<(), String> {
    let ((name, Some(value)), (other_name, Some(other))) = (one, other) else { return Ok(()) };
    if (value - other).abs() <= SAME * value.abs().max(other.abs()) {
        return Ok(());
    }
    Err(format!("{name} says {value} and {other_name} says {other}; correct the wrong one"))
}

/// Checks that the redshift, the scale factor and, in cosmological runs of Gadget, the time agree.
fn check_moment(file: &Opened, header: &Group, redshift: Option<f64>, time: Option<f64>) -> Result<(), String> {
    let of_redshift = ("1 / (1 + Header/Redshift)", redshift.map(|z| 1.0 / (1.0 + z)));
    let mut is_named = false;
    for name in ["Scale-factor", "ExpansionFactor"] {
        let found = number(header, "Header", name)?.filter(|a| *a > 0.0);
        is_named |= found.is_some();
        contradiction((&format!("Header/{name}"), found), of_redshift)?;
    }
    // The time is the scale factor in Gadget's cosmological runs, and a time in all other runs.
    let comoving = match file.group("Parameters") {
        Ok(Some(parameters)) => number(&parameters, "Parameters", "ComovingIntegrationOn")?,
        _ => number(header, "Header", "ComovingIntegrationOn")?,
    };
    let is_cosmological = match comoving {
        Some(comoving) => comoving != 0.0,
        None => {
            redshift.is_some_and(|z| z != 0.0) && number(header, "Header", "Omega0")?.is_some_and(|omega| omega > 0.0)
        }
    };
    if is_cosmological && !is_named {
        contradiction(("Header/Time", time.filter(|a| *a > 0.0)), of_redshift)?;
    }
    Ok(())
}

/// Checks that a cubic box in Gadget-4's parameters equals that of the header.
fn check_parameters(file: &Opened, box_size: Option<&[f64]>) -> Result<(), String> {
    let Ok(Some(parameters)) = file.group("Parameters") else { return Ok(()) };
    let found = magnitudes(&parameters, "BoxSize").map_err(|e| format!("Parameters/BoxSize {e}; write it again"))?;
    let one = |sides: Option<&[f64]>| match sides {
        Some(sides) if sides.iter().all(|side| *side == sides[0]) => sides.first().copied(),
        _ => None,
    };
    // Light cones are in open space; their parameters have the box of the run.
    let of_header = one(box_size).filter(|side| *side > 0.0);
    contradiction(("Header/BoxSize", of_header), ("Parameters/BoxSize", one(found.as_deref())))
}

impl Opened {
    /// Reads the header, which the file must have.
    pub fn header(&self) -> Result<Header> {
        let wrong = |why: String| wrong(self.path(), why);
        let none = "it has no group Header, which snapshots of Gadget-4, SWIFT and their kin have";
        let at = self.group("Header")?.ok_or_else(|| wrong(none.into()))?;
        let named =
            |name: &'static str| move |e: hdf5_metno::Error| wrong(format!("Header/{name} {e}; write it again"));
        let counts = |name| counts(&at, name).map_err(named(name));
        let magnitudes = |name| magnitudes(&at, name).map_err(named(name));
        let one = |name| number(&at, "Header", name).map_err(wrong);
        let files = single(counts("NumFilesPerSnapshot")?).map_err(named("NumFilesPerSnapshot"))?.unwrap_or(1);
        if files == 0 {
            return Err(wrong("Header/NumFilesPerSnapshot is 0; it must be a whole number from 1 on".into()));
        }
        let redshift = one("Redshift")?;
        if let Some(value) = redshift.filter(|&value| value <= -1.0) {
            return Err(wrong(format!("Header/Redshift is {value}; it must be above -1")));
        }
        let (total, high) = (counts("NumPart_Total")?, counts("NumPart_Total_HighWord")?.unwrap_or_default());
        let total = total.map(|total| {
            // Totals of 64 bits are complete; the high word is ignored.
            let wide = total.iter().any(|&n| n > u64::from(u32::MAX));
            let high = |i: usize| if wide { 0 } else { high.get(i).copied().unwrap_or(0) & 0xffff_ffff };
            total.iter().enumerate().map(|(i, &low)| low + (high(i) << 32)).collect()
        });
        let (time, box_size) = (one("Time")?, magnitudes("BoxSize")?);
        check_moment(self, &at, redshift, time).map_err(wrong)?;
        check_parameters(self, box_size.as_deref()).map_err(wrong)?;
        Ok(Header {
            files,
            here: counts("NumPart_ThisFile")?,
            total,
            box_size,
            masses: magnitudes("MassTable")?.unwrap_or_default(),
            time,
            redshift,
        })
    }
}

/// Describes a dataset of points, given with its full name.
pub(super) fn points(path: &Path, dataset: &Dataset, name: &str) -> Result<Points> {
    let shape = dataset.space().map_err(|e| broken(path, &e))?.shape();
    let [count, dims @ (2 | 3)] = shape[..] else {
        let found: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        return Err(IoError::shape(path.join(name), found, "(N, 3) or (N, 2)"));
    };
    let found = match queries::element_type(dataset).map_err(|e| broken(path, &e))? {
        Ok(dtype @ (Dtype::F32 | Dtype::F64)) => {
            return Ok(Points { dataset: name.into(), count: count as u64, dims, dtype });
        }
        Ok(dtype) => dtype.to_string(),
        Err(other) => other,
    };
    Err(IoError::element_type(path.join(name), found, "float32 or float64"))
}

/// Checks that an attribute of the header with its counts by type, if it is there, has as many
/// particles of a type as there are coordinates.
pub(super) fn check_count(
    path: &Path,
    (attribute, counts): (&str, Option<&[u64]>),
    kind: usize,
    found: u64,
) -> Result<()> {
    let counted = counts.and_then(|counts| counts.get(kind));
    let Some(counted) = counted.filter(|&&counted| counted != found) else { return Ok(()) };
    let message = format!(
        "Header/{attribute} counts {counted} particles of type {kind}, but PartType{kind}/Coordinates has {found}; \
         this happens if a part of a larger snapshot is saved with the header of the whole: correct the header, or \
         read the particles that are there by trusting the coordinates"
    );
    Err(IoError::new(IoErrorKind::ParticleCount, path, message))
}

/// Returns the name of a filter of HDF5 in brackets: that of the file, else that of the HDF Group's
/// register.
fn filter_name(number: i64, name: &str) -> String {
    let known = match number {
        1 => "gzip",
        4 => "szip",
        307 => "bzip2",
        32000 => "lzf",
        32001 => "blosc",
        32004 => "lz4",
        32008 => "bitshuffle",
        32013 => "zfp",
        32015 => "zstd",
        32026 => "blosc2",
        _ => "",
    };
    let name = if name.is_empty() { known } else { name };
    if name.is_empty() { String::new() } else { format!(" ({})", printable(name)) }
}
