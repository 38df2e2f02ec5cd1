//! `.npz` files that the ranks of a command write together.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::io::{Element, Member, NpzWriter, PartCrc, token};

/// Elements that are written at a time: their CRC is taken while they are in the cache.
const PIECE: usize = 1 << 17;

/// An archive that this rank writes to, and what it has written so far.
pub struct Archive {
    writer: NpzWriter,
    parts: Vec<PartCrc>,
}

impl Archive {
    /// Writes elements of a member from number `first` on; see [`NpzWriter::write`].
    ///
    /// # Errors
    /// Those of [`NpzWriter::write`].
    pub fn write<T: Element>(&mut self, member: usize, first: u64, elements: &[T]) -> Result<(), Error> {
        for (number, piece) in elements.chunks(PIECE).enumerate() {
            self.parts.push(self.writer.write(member, first + (number * PIECE) as u64, piece)?);
        }
        Ok(())
    }
}

/// Writes one archive from all ranks, which all call it: `write` is given this rank's. It appears when it is whole.
///
/// # Errors
/// Those of whichever rank failed; the other ranks learn of it by their next message.
pub fn write_archive(
    comm: &Communicator,
    path: &Path,
    members: &[Member],
    write: impl FnOnce(&mut Archive) -> Result<(), Error>,
) -> Result<(), Error> {
    // What rank 0 makes, all have.
    let mut shared = [0u8; 64];
    if comm.rank() == 0 {
        let token = token();
        shared[..token.len().min(64)].copy_from_slice(&token.as_bytes()[..token.len().min(64)]);
    }
    comm.broadcast(0, &mut shared)?;
    let shared = String::from_utf8_lossy(&shared);
    let token = shared.trim_end_matches('\0');

    let first = if comm.rank() == 0 { Some(NpzWriter::create(path, members, token)?) } else { None };
    comm.barrier()?;
    let writer = match first {
        Some(writer) => writer,
        None => NpzWriter::open(path, members, token)?,
    };
    let mut archive = Archive { writer, parts: Vec::new() };
    write(&mut archive)?;
    let Archive { writer, parts } = archive;
    match comm.gather_v(0, &parts)? {
        Some(parts) => {
            comm.barrier()?;
            writer.finish(parts.data())?;
        }
        None => {
            // On the disk before rank 0 gives the file its name.
            writer.finish(&[])?;
            comm.barrier()?;
        }
    }
    comm.barrier()?;
    Ok(())
}
