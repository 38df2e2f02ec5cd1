//! Fits by groups of MPI processes: the bits of one rank.

#[path = "shared/field_models.rs"]
mod field_models;
#[path = "shared/world.rs"]
mod world;

use std::process::ExitCode;
use std::time::Duration;

use field_models::{Found, Run, fit};
use meshloom::comm::Communicator;
use meshloom::inference::InferenceError;

/// Two groups of all ranks, beside a fit of each rank alone.
fn rank(comm: &Communicator) -> Result<(), InferenceError> {
    let options = meshloom_sanitizer::options()?;
    let together = fit(comm, &options, 2, Run::default())?;
    let alone = fit(&Communicator::solo(), &options, 1, Run::default())?;
    let cells = alone.cells.iter().filter(|(cell, _)| together.cells.iter().any(|(own, _)| own == cell));
    let part = Found { cells: cells.copied().collect(), ..alone.clone() };
    assert_eq!(together, part);
    comm.barrier()?;
    Ok(())
}

fn main() -> ExitCode {
    world::run(["inference_mpi", "fits"], &[2, 4], Duration::from_secs(240), rank)
}
