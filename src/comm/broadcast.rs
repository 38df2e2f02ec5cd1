//! Barrier and broadcast.

use bytemuck::Pod;

use super::call::{Call, Operation};
use super::communicator::Communicator;
use super::{Result, message::Sending};

impl Communicator {
    /// Returns once every rank has called it. Collective.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn barrier(&self) -> Result<()> {
        let call = self.begin(Call::new(Operation::Barrier));
        // A dissemination barrier: after the round of distance d each rank knows that the 2d - 1 ranks before it have come.
        let (rank, size) = (self.rank(), self.size());
        let mut distance = 1;
        while distance < size {
            let sending = self.send_part::<u8>(&call, (rank + distance) % size, &[])?;
            self.receive_part(&call, (rank + size - distance) % size, 0)?.wait()?;
            sending.wait()?;
            distance *= 2;
        }
        Ok(())
    }

    /// Copies the `data` of `root` to all ranks. Collective; the length is the same on all ranks.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn broadcast<T: Pod>(&self, root: usize, data: &mut [T]) -> Result<()> {
        self.valid_rank("the root of broadcast", root)?;
        let call = self.begin(Call::new(Operation::Broadcast).root(root).of::<T>().count(data.len()));
        self.broadcast_tree(&call, root, data)
    }

    /// Broadcasts along a binomial tree: rank `v`, counted from the root, has the parent `v` with its lowest set bit cleared.
    pub(super) fn broadcast_tree<T: Pod>(&self, call: &Call, root: usize, data: &mut [T]) -> Result<()> {
        let size = self.size();
        let me = (self.rank() + size - root) % size;
        let absolute = |relative: usize| (relative + root) % size;
        let lowest = if me == 0 { size.next_power_of_two() } else { 1 << me.trailing_zeros() };
        if me != 0 {
            let bytes = self.receive_part(call, absolute(me - lowest), size_of_val(data))?.wait()?;
            bytemuck::cast_slice_mut(data).copy_from_slice(&bytes);
        }
        let mut sendings: Vec<Sending> = Vec::new();
        let mut distance = lowest / 2;
        while distance > 0 {
            if me + distance < size {
                sendings.push(self.send_part(call, absolute(me + distance), data)?);
            }
            distance /= 2;
        }
        sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))
    }
}
