//! Array files that all ranks write together: where [`comm`](crate::comm) and [`io`](crate::io) meet.
//!
//! Each rank writes its own range, and a file appears under its final name when it is whole. All ranks call these
//! functions, with the same path and shapes; an error on any rank is returned there, and the other ranks learn of it by
//! their next message.
//!
//! ```
//! use meshloom::{Error, comm::run_threads, io::{NpyFile, collective::write_npy, token}};
//!
//! let path = std::env::temp_dir().join(format!("meshloom-doc-{}.npy", token()));
//! run_threads(3, |comm| {
//!     let rank = comm.rank() as u64;
//!     write_npy(&comm, &path, &[3, 2], |to| Ok::<_, Error>(to.write(2 * rank, &[rank as f32; 2])?))
//! })?;
//! assert_eq!(NpyFile::open(&path)?.read_f32(0..6)?, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use crate::comm::{CommError, Communicator};
use crate::io::{IoError, Member, NpyElement, NpyWriter, NpzWriter, PartCrc, Sealed, token};

/// Elements of an archive that are written at a time: their CRC is taken while they are in the cache.
const PIECE: usize = 1 << 17;

/// A [`token`] for the name of a temporary file, the same on all ranks, which all call it: what rank 0 makes, all have.
///
/// # Errors
/// Those of a broadcast.
pub fn shared_token(comm: &Communicator) -> Result<String, CommError> {
    let mut bytes = [0u8; 64];
    if comm.rank() == 0 {
        let token = token();
        bytes[..token.len().min(64)].copy_from_slice(&token.as_bytes()[..token.len().min(64)]);
    }
    comm.broadcast(0, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string())
}

/// A file that rank 0 creates before the other ranks open it, each with the shared token.
fn opened<W, E: From<IoError> + From<CommError>>(
    comm: &Communicator,
    create: impl FnOnce(&str) -> Result<W, IoError>,
    open: impl FnOnce(&str) -> Result<W, IoError>,
) -> Result<W, E> {
    let token = shared_token(comm)?;
    let first = if comm.rank() == 0 { Some(create(&token)?) } else { None };
    comm.barrier()?;
    let writer = match first {
        Some(writer) => writer,
        None => open(&token)?,
    };
    // All have it open before any may fail: rank 0 would remove it, and others would say that it is missing.
    comm.barrier()?;
    Ok(writer)
}

/// Writes one `.npy` file of `shape` from all ranks: `write` is given this rank's writer. When it returns, on any rank,
/// the file is there.
///
/// # Errors
/// Those of `write`, [`IoError`], and those of the ranks.
pub fn write_npy<T: NpyElement, E: From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    shape: &[u64],
    write: impl FnOnce(&NpyWriter<T>) -> Result<(), E>,
) -> Result<(), E> {
    seal_npy(comm, path, shape, write)?.publish()?;
    comm.barrier()?;
    Ok(())
}

/// [`write_npy`] but for the name: every rank's part is on the disk, and rank 0 gives the name when it publishes.
///
/// # Errors
/// As [`write_npy`].
pub fn seal_npy<T: NpyElement, E: From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    shape: &[u64],
    write: impl FnOnce(&NpyWriter<T>) -> Result<(), E>,
) -> Result<Sealed, E> {
    let create = |token: &str| NpyWriter::create(path, shape, token);
    let writer = opened::<_, E>(comm, create, |token| NpyWriter::open(path, shape, token))?;
    write(&writer)?;
    let sealed = writer.seal()?;
    comm.barrier()?;
    Ok(sealed)
}

/// An `.npz` archive that this rank writes to, and what it has written so far.
pub struct Archive {
    writer: NpzWriter,
    parts: Vec<PartCrc>,
}

impl Archive {
    /// Writes elements of a member from number `first` on; see [`NpzWriter::write`].
    ///
    /// # Errors
    /// Those of [`NpzWriter::write`].
    pub fn write<T: NpyElement>(&mut self, member: usize, first: u64, elements: &[T]) -> Result<(), IoError> {
        for (number, piece) in elements.chunks(PIECE).enumerate() {
            self.parts.push(self.writer.write(member, first + (number * PIECE) as u64, piece)?);
        }
        Ok(())
    }
}

/// Writes one `.npz` archive of `members` from all ranks: `write` is given this rank's. When it returns, on any rank, the
/// file is there.
///
/// # Errors
/// As [`write_npy`].
pub fn write_npz<E: From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    members: &[Member],
    write: impl FnOnce(&mut Archive) -> Result<(), E>,
) -> Result<(), E> {
    seal_npz(comm, path, members, write)?.publish()?;
    comm.barrier()?;
    Ok(())
}

/// [`write_npz`] but for the name: every rank's part is on the disk, and rank 0 gives the name when it publishes.
///
/// # Errors
/// As [`write_npy`].
pub fn seal_npz<E: From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    members: &[Member],
    write: impl FnOnce(&mut Archive) -> Result<(), E>,
) -> Result<Sealed, E> {
    let create = |token: &str| NpzWriter::create(path, members, token);
    let writer = opened::<_, E>(comm, create, |token| NpzWriter::open(path, members, token))?;
    let mut archive = Archive { writer, parts: Vec::new() };
    write(&mut archive)?;
    let Archive { writer, parts } = archive;
    let parts = comm.gather_v(0, &parts)?;
    let sealed = writer.seal(parts.as_ref().map_or(&[], |parts| parts.data()))?;
    comm.barrier()?;
    Ok(sealed)
}
