//! Fits by groups of MPI processes: the bits of one rank.

use super::field_models::{Found, Run, fit};
use super::{Case, Inner, Outcome};
use meshloom::comm::Communicator;
use meshloom::inference::InferenceError;

pub const CASE: Case = Case {
    name: "inference::fits",
    ranks: &[2, 4],
    inner: Inner::Device(|comm| Ok(rank(comm)?)),
    outcome: Outcome::Passes,
};

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
