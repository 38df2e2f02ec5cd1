//! Whether the processes of one job have the same files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use meshloom::comm::{CommError, Communicator};
use meshloom::io::collective::{same_contents, same_directory};
use meshloom::io::is_hdf5;

use crate::coordinates;
use crate::failure::Failure;

/// The files that a call names, in the same order in all processes.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub inputs: Vec<PathBuf>,
    pub outputs: Vec<PathBuf>,
}

impl Files {
    /// The failure of all ranks where some read other contents under the name of an input, or do not see the directory of an output. All ranks
    /// call it before anything is read or made.
    ///
    /// # Errors
    /// [`CommError`].
    pub fn check(&self, comm: &Communicator) -> Result<Result<(), Failure>, CommError> {
        if comm.size() == 1 {
            return Ok(Ok(()));
        }
        let inputs: Vec<PathBuf> = self.inputs.iter().flat_map(|input| parts(input)).collect();
        if let Err(other) = same_contents(comm, &inputs)? {
            return Ok(Err(other.into()));
        }
        let directories: BTreeSet<&Path> = self.outputs.iter().filter_map(|output| output.parent()).collect();
        for directory in directories {
            if let Err(apart) = same_directory(comm, directory)? {
                return Ok(Err(apart.into()));
            }
        }
        Ok(Ok(()))
    }
}

/// All files of an input: those of a snapshot may be several. What cannot be opened is left to whoever reads it.
fn parts(input: &Path) -> Vec<PathBuf> {
    let parts = if is_hdf5(input) { coordinates::files(input).ok() } else { None };
    parts.unwrap_or_else(|| vec![input.into()])
}
