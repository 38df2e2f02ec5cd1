//! The slots of a chunk that is sent.

use std::sync::Arc;

use super::channel::{Channel, staged_copies};
use super::ring::{Slot, Storage};
use crate::gpu::{DeviceError, StagedCopy};
use crate::grid::{Chunk, Message, Transfer};

/// The slots of a chunk: one in pages if any of its messages needs pages, and one in device memory
/// if any needs that. In either, messages have the same places.
pub(super) struct ChunkSlots {
    pages: Option<Arc<Slot>>,
    device: Option<Arc<Slot>>,
}

/// Returns the copy between an array and a message in a slot of its chunk.
pub(super) fn staged_copy<'a>(message: &Message, element_bytes: u64, slot: &'a Slot) -> StagedCopy<'a> {
    let (host, first) = slot.place_on_device();
    let Transfer { start, len, .. } = message.part;
    StagedCopy { start, len, host, at_bytes: first + message.at * element_bytes }
}

/// Returns the kind of slot that a message is sent from.
fn storage_of(channel: &Channel, message: &Message) -> Storage {
    channel.storage(message.part.peer).unwrap_or(Storage::Pages)
}

impl ChunkSlots {
    /// Takes the slots of a chunk.
    pub fn take(channel: &Channel, chunk: &Chunk, element_bytes: u64) -> Result<ChunkSlots, DeviceError> {
        let take = |storage| {
            let is_needed = chunk.messages.iter().any(|message| storage_of(channel, message) == storage);
            let slot = || channel.take_slot(storage, chunk.len() * element_bytes).map(Arc::new);
            is_needed.then(slot).transpose()
        };
        Ok(ChunkSlots { pages: take(Storage::Pages)?, device: take(Storage::Device)? })
    }

    /// Returns the copies of a chunk to its slots.
    pub fn copies<'a>(
        &'a self,
        channel: &Channel,
        chunk: &'a Chunk,
        element_bytes: u64,
    ) -> Result<Vec<StagedCopy<'a>>, DeviceError> {
        if let (Some(slot), None) | (None, Some(slot)) = (&self.pages, &self.device) {
            return Ok(staged_copies(chunk, element_bytes, slot.place_on_device()).collect());
        }
        let copy = |message: &'a Message| Ok(staged_copy(message, element_bytes, self.of(channel, message)?));
        chunk.messages.iter().map(copy).collect()
    }

    /// Returns the slot of a message.
    pub fn of(&self, channel: &Channel, message: &Message) -> Result<&Arc<Slot>, DeviceError> {
        let slot = match storage_of(channel, message) {
            Storage::Pages => self.pages.as_ref(),
            Storage::Device => self.device.as_ref(),
        };
        slot.ok_or_else(|| channel.refused(message.part.peer, "its chunk has no slot of this kind".into()))
    }

    /// Keeps the slots out of use: the device may still write to them.
    pub fn abandon(&self) {
        self.pages.iter().chain(&self.device).for_each(|slot| slot.abandon());
    }
}
