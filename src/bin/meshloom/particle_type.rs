//! `--particle-type`: which particles of snapshots are read.

use std::path::Path;

use clap::Args;
#[cfg(feature = "hdf5")]
use meshloom::io::IoError;
#[cfg(feature = "hdf5")]
use meshloom::io::hdf5::Snapshot;
use meshloom::io::{PARTICLE_TYPES, is_hdf5};

use crate::failure::Failure;

/// The type of the particles that are read of all snapshots of a call.
#[derive(Args, Clone, Copy, Default)]
pub struct ParticleType {
    /// Take the particles of PartTypeN of a snapshot, 0 to 15 (Gadget: 0 gas, 1 dark matter, 4 stars, 5 black holes; SWIFT: 6
    /// neutrinos) [default: 1, else the only type that is there]
    #[arg(long = "particle-type", value_name = "N", value_parser = clap::value_parser!(u8).range(..=PARTICLE_TYPES as i64 - 1))]
    number: Option<u8>,
}

impl ParticleType {
    /// Refuses the option in a call without a snapshot.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn check<'a>(self, inputs: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
        if self.number.is_none() || inputs.into_iter().any(is_hdf5) {
            return Ok(());
        }
        let why =
            "--particle-type chooses among the particles of a snapshot in HDF5, and no input is one; leave it out";
        Err(Failure::Usage(why.into()))
    }

    /// Whether a type was asked for.
    #[cfg(feature = "hdf5")]
    pub fn is_given(self) -> bool {
        self.number.is_some()
    }

    /// Opens a snapshot.
    ///
    /// # Errors
    /// Those of the file.
    #[cfg(feature = "hdf5")]
    pub fn open(self, path: &Path) -> Result<Snapshot, IoError> {
        match self.number {
            Some(number) => Snapshot::open_type(path, number.into()),
            None => Snapshot::open(path),
        }
    }
}
