//! Messages of collectives: each begins with the call of its sender, which the receiver compares
//! with its own.
//!
//! The comparison costs no message of its own. What a collective returns is made only from messages
//! of ranks that called the same.

use std::ops::Deref;

use bytemuck::Pod;
use tracing::span::EnteredSpan;

use super::Result;
use super::call::{Call, HEADER_BYTES};
use super::communicator::Communicator;
use super::lane::Lane;
use super::message::{Receiving, Sending};
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
