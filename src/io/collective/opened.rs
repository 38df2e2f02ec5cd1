//! Opening a file that all ranks write: rank 0 makes it, and no rank goes on before all have it open.

use std::fmt::Debug;
use std::path::Path;

use super::shared_token;
use crate::comm::{CommError, Communicator};
use crate::hash::{START, fnv1a};
use crate::io::IoError;

/// Fails on all ranks where some write other types or shapes.
pub(super) fn agree<E: From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    alike: impl Debug,
) -> Result<(), E> {
    match comm.first_to_differ(fnv1a(START, format!("{alike:?}").as_bytes()))? {
        Some(rank) => Err(IoError::Disagree { path: path.to_path_buf(), rank }.into()),
        None => Ok(()),
    }
}

/// Creates a file of what all ranks must have `alike` on rank 0, then opens it on the other ranks, with one token.
pub(super) fn opened<W, E: From<IoError> + From<CommError>>(
    comm: &Communicator,
    (path, alike): (&Path, impl Debug),
    create: impl FnOnce(&str) -> Result<W, IoError>,
    open: impl FnOnce(&str) -> Result<W, IoError>,
) -> Result<W, E> {
    let token = shared_token(comm)?;
    let first = if comm.rank() == 0 { Some(create(&token)?) } else { None };
    // Also the message to the other ranks that the file exists.
    agree::<E>(comm, path, alike)?;
    let writer = match first {
        Some(writer) => writer,
        None => open(&token)?,
    };
    // No rank may fail before all have opened it: rank 0 would remove the file, and others would report it as missing.
    comm.barrier()?;
    Ok(writer)
}

/// Creates a file on rank 0, which knows then where in it the arrays are, and opens it on the other ranks at these offsets, with one token.
#[cfg(feature = "hdf5")]
pub(crate) fn opened_with_offsets<W, E: From<IoError> + From<CommError>>(
    comm: &Communicator,
    create: impl FnOnce(&str) -> Result<W, IoError>,
    offsets_of: impl FnOnce(&W) -> &[u64],
    open: impl FnOnce(&str, &[u64]) -> Result<W, IoError>,
) -> Result<W, E> {
    let token = shared_token(comm)?;
    let first = if comm.rank() == 0 { Some(create(&token)?) } else { None };
    // Also the message to the other ranks that the file exists.
    let offsets = comm.all_gather_v(first.as_ref().map_or(&[][..], offsets_of))?;
    let writer = match first {
        Some(writer) => writer,
        None => open(&token, offsets.data())?,
    };
    // No rank may fail before all have opened it: rank 0 would remove the file, and others would report it as missing.
    comm.barrier()?;
    Ok(writer)
}
