//! Messages of collectives: the call stands at the head of each and is compared where it arrives.
//!
//! No message is sent for the comparison, and none is believed without it: whatever a collective gives was made from
//! messages of ranks that called the same.

use std::ops::Deref;

use bytemuck::Pod;

use super::Result;
use super::call::Call;
use super::communicator::Communicator;
use super::message::{Receiving, Sending};
use super::transport::Lane;

/// Bytes at the head of a message of a collective.
pub(super) const HEAD: usize = size_of::<Call>();

/// A message of a collective being received.
pub(super) struct Taking(Receiving);

/// What has come, without its head.
pub(super) struct Taken(Vec<u8>);

impl Taking {
    pub fn wait(self) -> Result<Taken> {
        self.0.wait().map(Taken)
    }
}

impl Taken {
    /// What a rank gives itself.
    pub fn own<T: Pod>(data: &[T]) -> Taken {
        Taken(seal(&bytemuck::Zeroable::zeroed(), data))
    }
}

impl Deref for Taken {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[HEAD..]
    }
}

/// The call, then the bytes of the data.
fn seal<T: Pod>(call: &Call, data: &[T]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEAD + size_of_val(data));
    message.extend_from_slice(bytemuck::bytes_of(call));
    message.extend_from_slice(bytemuck::cast_slice(data));
    message
}

impl Communicator {
    /// Begins a collective whose arguments are valid on this rank: gives its call, with its number.
    pub(super) fn begin(&self, call: Call) -> Call {
        let call = call.begun(self.next_sequence(), self.cut);
        self.core.transport.begin(&call);
        call
    }

    /// Sends data of a collective.
    pub(super) fn give<T: Pod>(&self, call: &Call, to: usize, data: &[T]) -> Result<Sending> {
        self.post_send(to, Lane::Collective, seal(call, data))
    }

    /// Receives data of a collective.
    pub(super) fn take(&self, call: &Call, from: usize, bytes: usize) -> Result<Taking> {
        self.post_receive(from, Lane::Collective, bytes, Some(*call)).map(Taking)
    }
}
