//! Writing of the rows of snapshots, light cones and catalogs of groups.

use std::path::Path;

use super::datasets::{Data, Dataset, datasets};
use super::{Groups, GroupsPlace, Hdf5Contents, Hdf5Writer, SnapshotInfo};
use crate::host_memory;
use crate::io::{NpyElement, Result, token};

/// The particle type of all particles.
const TYPE: usize = 1;

/// Rows that are converted and written at a time.
const PIECE: usize = 1 << 16;

/// Particles of a snapshot, equally many of each.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotRows<'a> {
    /// Positions in comoving Mpc/h.
    pub positions: &'a [[f32; 3]],
    /// Gadget's velocities, peculiar km/s over the square root of a
    /// ([`SnapshotInfo::gadget_velocity`]).
    pub velocities: &'a [[f32; 3]],
    /// Identifiers.
    pub ids: &'a [u64],
}

impl SnapshotRows<'_> {
    /// Writes the particles to the rows of the file from `first` on.
    ///
    /// # Errors
    /// `IoErrorKind::Misuse` if their numbers differ, `IoErrorKind::Misuse` beyond the file's end,
    /// `IoErrorKind::Write`.
    pub fn write(&self, to: &Hdf5Writer, first: u64) -> Result<()> {
        to.check_rows(&[self.positions.len(), self.velocities.len(), self.ids.len()])?;
        to.write_rows(0, first, self.positions.as_flattened())?;
        to.write_rows(1, first, self.velocities.as_flattened())?;
        to.write_rows(2, first, self.ids)
    }
}

/// Particles of a light cone, equally many of each.
#[derive(Clone, Copy, Debug)]
pub struct ConeRows<'a> {
    /// Comoving positions relative to the observer, not wrapped, in Mpc/h.
    pub positions: &'a [[f32; 3]],
    /// Peculiar velocities in km/s.
    pub velocities: &'a [[f32; 3]],
    /// Scale factors at which the particles cross the cone.
    pub scale_factors: &'a [f32],
    /// Lagrangian indices. A particle may appear in several replicas of the box.
    pub ids: &'a [u64],
    /// Replicas that contain the particles' sites, in numbers of sides from the box.
    pub images: &'a [[i32; 3]],
}

impl ConeRows<'_> {
    /// Writes the particles to the rows of the file from `first` on.
    ///
    /// # Errors
    /// Same as [`SnapshotRows::write`].
    ///
    /// ```
    /// use meshloom::io::{hdf5::{ConeInfo, ConeRows, Hdf5Contents, Hdf5Writer, Snapshot, SnapshotInfo}, token};
    /// # fn main() -> Result<(), meshloom::io::IoError> {
    /// let path = std::env::temp_dir().join(format!("meshloom-doc-{}.hdf5", token()));
    /// let snapshot = SnapshotInfo { count: 8, box_size: 10.0, scale_factor: 1.0, omega_m: 0.3, omega_b: 0.05, h: 0.7, omega_r: 0.0, dark_energy: [-1.0, 0.0] };
    /// let cone = ConeInfo { snapshot, count: 1, observer: [5.0; 3], distance: 20.0, direction: [0.0, 0.0, 1.0], opening: 180.0 };
    /// let writer = Hdf5Writer::create(&path, &Hdf5Contents::LightCone(&cone), &token())?;
    /// let rows = ConeRows { positions: &[[-9.0, 0.0, 12.0]], velocities: &[[300.0; 3]], scale_factors: &[0.995], ids: &[7], images: &[[-1, 0, 1]] };
    /// rows.write(&writer, 0)?;
    /// writer.seal()?.publish()?;
    ///
    /// let cone = Snapshot::open(&path)?;
    /// assert_eq!((cone.count(), cone.box_size(), cone.velocity_unit()?.map(|unit| unit.factor)), (1, None, Some(1.0)));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&self, to: &Hdf5Writer, first: u64) -> Result<()> {
        let ConeRows { positions, velocities, scale_factors, ids, images } = self;
        to.check_rows(&[positions.len(), velocities.len(), scale_factors.len(), ids.len(), images.len()])?;
        to.write_rows(0, first, positions.as_flattened())?;
        to.write_rows(1, first, velocities.as_flattened())?;
        to.write_rows(2, first, scale_factors)?;
        to.write_rows(3, first, ids)?;
        to.write_rows(4, first, images.as_flattened())
    }
}

/// Writes a catalog in Gadget-4's layout, with additional datasets. Called by one rank; the file
/// appears when it is complete. `info` is the header of the snapshot in which the groups were
/// found.
///
/// # Errors
/// `IoErrorKind::Misuse` for slices whose lengths or offsets disagree, `IoErrorKind::FileType`,
/// `IoErrorKind::Write`. Nothing is left behind after an error.
///
/// ```
/// use meshloom::io::hdf5::{Groups, SnapshotInfo, read_groups, write_groups};
/// # fn main() -> Result<(), meshloom::io::IoError> {
/// let path = std::env::temp_dir().join(format!("meshloom-doc-{}.hdf5", meshloom::io::token()));
/// let info = SnapshotInfo { count: 512, box_size: 10.0, scale_factor: 0.5, omega_m: 0.3, omega_b: 0.05, h: 0.7, omega_r: 0.0, dark_energy: [-1.0, 0.0] };
/// let groups = Groups {
///     label: &[17],
///     count: &[3],
///     mass: &[3.0 * info.particle_mass() as f32],
///     center: &[[1.0, 2.0, 3.0]],
///     velocity: None,
///     inertia_radius: &[0.1],
///     velocity_dispersion: None,
///     max_radius: &[0.2],
///     scale_factor: None,
///     spheres: &[],
///     offset: &[0, 3],
///     members: Some(&[17, 18, 40]),
/// };
/// write_groups(&path, &info, &groups)?;
/// assert_eq!(read_groups(&path)?.members, Some(vec![17, 18, 40]));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn write_groups(path: impl AsRef<Path>, info: &SnapshotInfo, groups: &Groups) -> Result<()> {
    groups.check(path.as_ref())?;
    let place = GroupsPlace::whole(groups);
    let writer = Hdf5Writer::create(path, &Hdf5Contents::Groups { info, groups, place }, &token())?;
    groups.write(&writer, info, &place)?;
    writer.seal()?.publish()
}

impl Groups<'_> {
    /// Writes a rank's part, at `place`. Members may belong to groups of other ranks: `offset`
    /// counts the members of all ranks.
    ///
    /// # Errors
    /// `IoErrorKind::Misuse` for slices whose lengths or offsets disagree, `IoErrorKind::Misuse`
    /// beyond the rows of all ranks, `IoErrorKind::Write`.
    pub fn write(&self, to: &Hdf5Writer, info: &SnapshotInfo, place: &GroupsPlace) -> Result<()> {
        self.check_rows(to.path())?;
        for (number, Dataset { first, data, .. }) in datasets(info, self, place).into_iter().enumerate() {
            match data {
                Data::F32(values) => to.write_rows(number, first, values)?,
                Data::U64(values) => to.write_rows(number, first, values)?,
                Data::F32ByType(values) => write_by_type(to, number, first, values)?,
                Data::U64ByType(values) => write_by_type(to, number, first, values)?,
                Data::Constant(value) => {
                    to.write_rows(number, first, &host_memory::fill("groups", value, self.label.len())?)?;
                }
            }
        }
        Ok(())
    }
}

fn write_by_type<T: NpyElement>(to: &Hdf5Writer, dataset: usize, first: u64, values: &[T]) -> Result<()> {
    for (piece, values) in values.chunks(PIECE).enumerate() {
        let mut rows = vec![[T::zeroed(); 6]; values.len()];
        rows.iter_mut().zip(values).for_each(|(row, &value)| row[TYPE] = value);
        to.write_rows(dataset, first + (piece * PIECE) as u64, rows.as_flattened())?;
    }
    Ok(())
}
