//! Checks that all ranks begin a fit at the same position.

use crate::comm::{CommError, Communicator};

/// Refuses numbers that differ between ranks by more than `tolerance` of rank 0, which covers the
/// rounding of different devices. Collective.
///
/// # Errors
/// [`CommError::Differ`] on all ranks, with the first rank that differs.
pub(super) fn of_numbers(comm: &Communicator, argument: &str, own: f64, tolerance: f64) -> Result<(), CommError> {
    let all = comm.all_gather(&[own, tolerance])?;
    let (first, tolerance) = (all[0], all[1]);
    let numbers = all.chunks(2).map(|one| one[0]);
    let is_alike = |number: f64| number == first || (number - first).abs() <= tolerance;
    match numbers.enumerate().find(|(_, number)| !is_alike(*number)) {
        None => Ok(()),
        Some((rank, number)) => Err(CommError::Differ {
            call: FIT.into(),
            argument: argument.into(),
            rank,
            value: format!("{number:?}"),
            reference: format!("{first:?}"),
        }),
    }
}

/// The operation that ranks agree on.
pub(super) const FIT: &str = "fit";
