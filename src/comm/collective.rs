//! Messages of collectives: each begins with the call of its sender, which the receiver compares
//! with its own.
//!
//! The comparison costs no message of its own. What a collective returns is made only from messages
//! of ranks that called the same.
//!
//! A collective of the backend, as of MPI, cannot tell that ranks called different ones: it hangs,
//! or mixes their data up. So the ranks first [meet](Communicator::meet), which ends only where all
//! have made the same call, and costs log2(size) short messages in a row. For short data that
//! would be most of the time: they travel along trees, in messages that carry the call themselves.
//! Long data go through MPI, which knows the network, and reads and writes the caller's memory.

use std::ops::Deref;

use bytemuck::Pod;
use tracing::span::EnteredSpan;

use super::{Call, Communicator, HEADER_BYTES, Lane, Native, Operation, Receiving, Result, Sending, Tree};
use crate::{host_memory, timeline};

/// A message of a collective being received.
pub(super) struct ReceivingPart(Receiving);

/// A collective under way, which ends when this is dropped. Dereferences to its call.
pub(super) struct Begun {
    call: Call,
    _activity: EnteredSpan,
}

impl Deref for Begun {
    type Target = Call;

    fn deref(&self) -> &Call {
        &self.call
    }
}

/// The bytes of a message of a collective. Dereferences to those after the header.
pub(super) struct Part(Vec<u8>);

impl ReceivingPart {
    pub fn wait(self) -> Result<Part> {
        self.0.wait().map(Part)
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[HEADER_BYTES..]
    }
}

/// Returns the call, then the bytes of the data.
fn with_header<T: Pod>(call: &Call, data: &[T]) -> Result<Vec<u8>> {
    let mut message = host_memory::reserve("a message", HEADER_BYTES + size_of_val(data))?;
    message.extend_from_slice(bytemuck::bytes_of(call));
    message.extend_from_slice(bytemuck::cast_slice(data));
    Ok(message)
}

impl Communicator {
    /// Begins a collective whose arguments are valid on this rank: returns its call, with its
    /// number.
    pub(super) fn begin(&self, call: Call) -> Begun {
        let call = call.within(self.subject).begun(self.next_sequence(), self.max_piece);
        tracing::trace!(rank = self.rank(), call = call.describe(), "collective");
        let _activity = timeline::activity!("collective", name = call.name(), call = call.describe());
        self.core.transport.begin(&call);
        Begun { call, _activity }
    }

    /// Sends data of a collective.
    pub(super) fn send_part<T: Pod>(&self, call: &Call, to: usize, data: &[T]) -> Result<Sending> {
        self.post_send(to, Lane::Collective, with_header(call, data)?)
    }

    /// Receives data of a collective that are only sent where there are any.
    pub(super) fn receive_some(&self, call: &Call, from: usize, bytes: usize) -> Result<Option<ReceivingPart>> {
        if bytes == 0 { Ok(None) } else { self.receive_part(call, from, bytes).map(Some) }
    }

    /// Receives data of a collective.
    pub(super) fn receive_part(&self, call: &Call, from: usize, bytes: usize) -> Result<ReceivingPart> {
        self.post_receive(from, Lane::Collective, bytes, Some(*call)).map(ReceivingPart)
    }
}

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
