//! Barrier and broadcast.

use bytemuck::Pod;

use super::call::{Call, Operation};
use super::communicator::Communicator;
use super::tree::Tree;
use super::{Result, message::Sending};

impl Communicator {
    /// Returns once every rank has called it. Collective.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn barrier(&self) -> Result<()> {
        self.meet(&self.begin(Call::new(Operation::Barrier)))
    }

    /// Copies the `data` of `root` to all ranks. Collective; the length is equal on all ranks.
    ///
    /// # Errors
    /// [`BadRank`](super::CommError::BadRank), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or errors of the backend.
    pub fn broadcast<T: Pod>(&self, root: usize, data: &mut [T]) -> Result<()> {
        self.valid_rank("the root of broadcast", root)?;
        let call = self.begin(Call::new(Operation::Broadcast).root(root).of::<T>().count(data.len()));
        if let Some(native) = self.native(size_of_val(data)) {
            self.meet(&call)?;
            return native.broadcast(root, bytemuck::cast_slice_mut(data));
        }
        self.broadcast_tree(&call, root, data)
    }

    /// Broadcasts along a binomial tree.
    pub(super) fn broadcast_tree<T: Pod>(&self, call: &Call, root: usize, data: &mut [T]) -> Result<()> {
        let tree = Tree::new(self, root);
        if let Some(parent) = tree.parent() {
            let bytes = self.receive_part(call, parent, size_of_val(data))?.wait()?;
            bytemuck::cast_slice_mut(data).copy_from_slice(&bytes);
        }
        // The farthest first: below it lie the most ranks.
        let send = |(child, _, _)| self.send_part(call, child, data);
        let sendings: Vec<Sending> = tree.children().rev().map(send).collect::<Result<_>>()?;
        sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))
    }
}
