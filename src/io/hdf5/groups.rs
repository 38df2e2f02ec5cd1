//! Catalogues of groups as they are passed for writing and returned from reading.

use std::path::Path;

use crate::io::IoError;

/// A catalogue of groups, one row per group; all slices but `offset` and `members` are as long as `label`.
///
/// Lengths in comoving Mpc/h, masses in 1e10 Msun/h, velocities in peculiar km/s.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    /// An identifier of the group, such as the smallest id in it.
    pub label: &'a [u64],
    /// Number of particles.
    pub count: &'a [u64],
    /// Mass.
    pub mass: &'a [f32],
    /// Centre of mass, in the box.
    pub center: &'a [[f32; 3]],
    /// Mean velocity, weighted by mass.
    pub velocity: Option<&'a [[f32; 3]]>,
    /// Root of the mean squared distance from the centre.
    pub inertia_radius: &'a [f32],
    /// Root of the mean squared velocity against the group's, over all axes.
    pub velocity_dispersion: Option<&'a [f32]>,
    /// Largest distance of a particle from the centre.
    pub max_radius: &'a [f32],
    /// Row offsets into `members`, as in CSR: one more than groups, the first 0, with differences `count`.
    pub offset: &'a [u64],
    /// Ids of particles, group after group.
    pub members: Option<&'a [u64]>,
}

impl Groups<'_> {
    /// Checks that the lengths and offsets agree; `path` is for the error.
    pub(super) fn check(&self, path: &Path) -> Result<(), IoError> {
        let wrong = |name: &str, reason: String| {
            Err(IoError::Column { path: path.to_path_buf(), name: name.to_string(), reason })
        };
        let n = self.label.len();
        let lengths = [
            ("count", Some(self.count.len())),
            ("mass", Some(self.mass.len())),
            ("center", Some(self.center.len())),
            ("velocity", self.velocity.map(<[_]>::len)),
            ("inertia_radius", Some(self.inertia_radius.len())),
            ("velocity_dispersion", self.velocity_dispersion.map(<[_]>::len)),
            ("max_radius", Some(self.max_radius.len())),
        ];
        for (name, len) in lengths {
            if let Some(len) = len.filter(|&len| len != n) {
                return wrong(name, format!("has {len} rows, but there are {n} labels"));
            }
        }
        if self.offset.len() != n + 1 || self.offset[0] != 0 {
            return wrong("offset", format!("must have {} numbers, of which the first is 0", n + 1));
        }
        for (group, (ends, &count)) in self.offset.windows(2).zip(self.count).enumerate() {
            if ends[0].checked_add(count) != Some(ends[1]) {
                let [start, end] = [ends[0], ends[1]];
                return wrong(
                    "offset",
                    format!("goes from {start} to {end} at group {group}, which has {count} members"),
                );
            }
        }
        match self.members {
            Some(members) if members.len() as u64 != self.offset[n] => {
                wrong("members", format!("has {} ids, but the groups have {} members", members.len(), self.offset[n]))
            }
            _ => Ok(()),
        }
    }
}

/// A catalogue that was read. Fields as in [`Groups`].
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCatalog {
    /// Side of the box.
    pub box_size: f64,
    /// Scale factor a.
    pub scale_factor: f64,
    /// An identifier of the group.
    pub label: Vec<u64>,
    /// Number of particles.
    pub count: Vec<u64>,
    /// Mass.
    pub mass: Vec<f32>,
    /// Centre of mass.
    pub center: Vec<[f32; 3]>,
    /// Mean velocity, if it was written.
    pub velocity: Option<Vec<[f32; 3]>>,
    /// Root of the mean squared distance from the centre.
    pub inertia_radius: Vec<f32>,
    /// Root of the mean squared velocity against the group's, if it was written.
    pub velocity_dispersion: Option<Vec<f32>>,
    /// Largest distance of a particle from the centre.
    pub max_radius: Vec<f32>,
    /// Row offsets into `members`, as in CSR: one more than groups.
    pub offset: Vec<u64>,
    /// Ids of particles, if they were written.
    pub members: Option<Vec<u64>>,
}
