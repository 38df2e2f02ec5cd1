//! Collectives of the backend itself, for long data.
//!
//! A collective of MPI cannot tell that ranks called different ones: it hangs, or mixes their data
//! up. So the ranks first [meet](Communicator::meet), which ends only where all have made the same
//! call, and costs log2(size) short messages in a row. Where data are short that would be most of
//! the time: they travel in messages that carry the call themselves, along trees. Where they are
//! long, MPI knows the network better, and reads and writes the caller's memory.

use super::Result;
use super::call::Call;
use super::communicator::Communicator;
use super::transport::Native;

/// Bytes at a rank from which on data are long.
pub(super) const LONG: usize = 1 << 16;

impl Communicator {
    /// Returns the collectives of the backend, if it has any and they suit blocks of `block` bytes,
    /// which are the same on all ranks.
    pub(super) fn native(&self, block: usize) -> Option<&dyn Native> {
        let long = block >= LONG && block <= self.max_piece && self.size() > 1;
        self.core.transport.native().filter(|_| long)
    }

    /// Returns once all ranks have begun the same call.
    pub(super) fn meet(&self, call: &Call) -> Result<()> {
        // A dissemination barrier: after the round of distance d each rank knows that the 2d - 1
        // ranks before it have come, and that each of them has called what the one before it did.
        let (rank, size) = (self.rank(), self.size());
        let mut distance = 1;
        while distance < size {
            let sending = self.send_part::<u8>(call, (rank + distance) % size, &[])?;
            self.receive_part(call, (rank + size - distance) % size, 0)?.wait()?;
            sending.wait()?;
            distance *= 2;
        }
        Ok(())
    }
}
