//! Opening a file that all ranks write: rank 0 creates it, and no rank goes on before all have opened it.
//!
//! A failure on one rank is an error on all ranks.

use std::fmt::{Debug, Display};
use std::path::Path;

use super::shared_token;
use crate::comm::{CommError, Communicator};
use crate::io::{IoError, printable_path};

/// Creates a file on rank 0, then opens it on the other ranks, with one token. The value `alike` must be equal
/// on all ranks.
pub(super) fn opened<W, E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    (path, alike): (&Path, impl Debug),
    create: impl FnOnce(&str) -> Result<W, IoError>,
    open: impl FnOnce(&str) -> Result<W, IoError>,
) -> Result<W, E> {
    let token = shared_token(comm)?;
    comm.agree(&printable_path(path).to_string(), &[("types and shapes", &alike)])?;
    let first = created::<W, E>(comm, || create(&token))?;
    all_open::<W, E>(comm, first, || open(&token))
}

/// Creates a file on rank 0, then opens it on the other ranks at the offsets of the arrays in it, which rank 0
/// knows, with one token.
#[cfg(feature = "hdf5")]
pub(crate) fn opened_with_offsets<W, E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    create: impl FnOnce(&str) -> Result<W, IoError>,
    offsets_of: impl FnOnce(&W) -> &[u64],
    open: impl FnOnce(&str, &[u64]) -> Result<W, IoError>,
) -> Result<W, E> {
    let token = shared_token(comm)?;
    let first = created::<W, E>(comm, || create(&token))?;
    let offsets = comm.all_gather_v(first.as_ref().map_or(&[][..], offsets_of))?;
    all_open(comm, first, || open(&token, offsets.data()))
}

/// Creates a file on rank 0; `None` on the others. The file exists when this returns on any rank.
fn created<W, E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    create: impl FnOnce() -> Result<W, IoError>,
) -> Result<Option<W>, E> {
    comm.together(|| match comm.rank() {
        0 => Ok(Some(create()?)),
        _ => Ok(None),
    })
}

/// Opens the file on the ranks that do not have it yet. Returns when all have opened it: a rank that failed
/// before would remove the file, and others would report it as missing.
fn all_open<W, E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    first: Option<W>,
    open: impl FnOnce() -> Result<W, IoError>,
) -> Result<W, E> {
    comm.together(|| match first {
        Some(writer) => Ok(writer),
        None => Ok(open()?),
    })
}
