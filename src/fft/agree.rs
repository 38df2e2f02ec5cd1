//! Ranks that are about to do something together.

use super::error::{FftError, TuneError};
use crate::comm::Communicator;

/// Checks that all ranks are about to do the same. All ranks call it, before what would otherwise hang or mix data up.
///
/// # Errors
/// [`FftError::Mismatch`] on all ranks, naming the first that differs from rank 0.
pub fn agree(comm: &Communicator, what: &impl std::fmt::Debug) -> Result<(), TuneError> {
    let hash = crate::hash::fnv1a(crate::hash::START, format!("{what:?}").as_bytes());
    let all = comm.all_gather(&[hash])?;
    match all.iter().position(|&other| other != all[0]) {
        Some(rank) => Err(FftError::Mismatch { rank }.into()),
        None => Ok(()),
    }
}
