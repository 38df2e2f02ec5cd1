//! The directory that a run writes its files to: of one command, and of one run at a time.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::io::{OutputDir, printable_path};

use crate::described;
use crate::failure::Failure;

/// The description of a run, which is written last: with it the files beside it are whole.
pub const DESCRIPTION: &str = "run.json";

/// Commands that write to a directory.
const COMMANDS: [&str; 4] = ["simulate", "reconstruct", "infer", "shallow-water"];

/// Makes the directory, and keeps other runs out of it until rank 0 drops what it gets. All ranks call it, before they look for what an earlier run has left.
///
/// # Errors
/// Those of [`OutputDir::create`] and [`OutputDir::lock`].
pub fn take(comm: &Communicator, out: &Path) -> Result<Option<OutputDir>, Error> {
    let taken = if comm.rank() == 0 { Some(OutputDir::create(out)?.lock()?) } else { None };
    comm.barrier()?;
    Ok(taken)
}

/// Checks that the run in `out`, if there is one, is of this command: files of two have the same names, and one's would stand beside the other's description.
///
/// # Errors
/// [`Failure::Failed`].
pub fn check_command(out: &Path, command: &str) -> Result<(), Failure> {
    let path = out.join(DESCRIPTION);
    // What cannot be read is no description of ours.
    let said = described::read(&path).ok().flatten().unwrap_or_default();
    match COMMANDS.into_iter().find(|other| *other != command && said["command"] == *other) {
        Some(other) => Err(Failure::Failed(format!(
            "{}: is of `meshloom {other}`, whose files those of {command} would stand among; give another --out",
            printable_path(&path)
        ))),
        None => Ok(()),
    }
}
