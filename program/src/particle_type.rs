//! `--particle-type`, `--trust-coordinates`: which particles of snapshots are read.

use std::path::Path;

use clap::Args;
#[cfg(feature = "hdf5")]
use meshloom::io::hdf5::{Snapshot, SnapshotOptions};
#[cfg(feature = "hdf5")]
use meshloom::io::{IoError, IoErrorKind};
use meshloom::io::{PARTICLE_TYPES, is_hdf5};

use crate::failure::Failure;

/// The particles that are read of all snapshots of a call.
#[derive(Args, Clone, Copy, Default)]
pub struct ParticleType {
    /// Take the particles of PartTypeN of a snapshot, 0 to 15 (Gadget: 0 gas, 1 dark matter, 4
    /// stars, 5 black holes; SWIFT: 6 neutrinos) [default: 1, else the only type that is there]
    #[arg(long = "particle-type", value_name = "N", value_parser = clap::value_parser!(u8).range(..=PARTICLE_TYPES as i64 - 1))]
    number: Option<u8>,
    /// Read as many particles of a snapshot as it has coordinates and ignore the counts of its
    /// Header, for a part of a larger snapshot that was saved with the header of the whole
    #[arg(long)]
    trust_coordinates: bool,
}

impl ParticleType {
    /// Refuses the option in a call without a snapshot.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn check<'a>(self, inputs: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
        let option = match (self.number, self.trust_coordinates) {
            (None, false) => return Ok(()),
            (Some(_), _) => "--particle-type chooses among the particles of",
            (None, true) => "--trust-coordinates counts the particles of",
        };
        if inputs.into_iter().any(is_hdf5) {
            return Ok(());
        }
        Err(Failure::Usage(format!("{option} a snapshot in HDF5, and no input is one; leave it out")))
    }

    /// Returns `true` if a type was asked for.
    #[cfg(feature = "hdf5")]
    pub fn is_given(self) -> bool {
        self.number.is_some()
    }

    /// Opens a snapshot.
    ///
    /// # Errors
    /// Errors of the file.
    #[cfg(feature = "hdf5")]
    pub fn open(self, path: &Path) -> Result<Snapshot, IoError> {
        let options =
            SnapshotOptions { particle_type: self.number.map(usize::from), trust_coordinates: self.trust_coordinates };
        Snapshot::open_with(path, options).map_err(|mut error| {
            if error.kind == IoErrorKind::ParticleCount {
                error.message.push_str(" (--trust-coordinates)");
            }
            error
        })
    }
}
