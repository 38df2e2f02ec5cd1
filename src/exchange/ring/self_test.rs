//! Copies of a pattern through slots, before ranks rely on them.

use std::thread;

use super::peers::{Pull, pull};
use super::segments::{Descriptor, Slot, Storage};
use super::shared::Ring;
use crate::gpu::{Array, DeviceError, MemoryKind, Recorder, StagedCopy, StagingDirection};
use crate::hash::fnv1a;

/// Words that the self-test moves.
const TEST_WORDS: u64 = 1 << 14;

/// Returns the values of the self-test, which differ from segment to segment.
fn pattern(token: u64) -> Vec<u32> {
    (0..TEST_WORDS).map(|i| fnv1a(token, &i.to_le_bytes()) as u32).collect()
}

fn text(error: DeviceError) -> String {
    error.to_string()
}

/// Copies between the device of a rank and slots of one kind of memory.
pub(super) struct SelfTest {
    recorder: Recorder,
    array: Array<u32>,
    slot: Slot,
}

impl SelfTest {
    /// Copies a pattern from the device into a slot of `ring`. Blocks.
    ///
    /// # Errors
    /// The reason, if the rank cannot have such slots.
    pub fn begin(ring: &Ring, storage: Storage) -> Result<SelfTest, String> {
        let gpu = &ring.gpu;
        if !gpu.capabilities().host_import {
            return Err("the device cannot import pages".into());
        }
        let mut recorder = Recorder::new(gpu).map_err(text)?;
        let array = gpu.array_in::<u32>("meshloom::ring test", TEST_WORDS, MemoryKind::Outgoing).map_err(text)?;
        let slot = ring.take(storage, array.raw().bytes() as usize)?;
        recorder.upload(&array, 0, &pattern(slot.describe(0, 0).token)).map_err(text)?;
        recorder.submit().map_err(text)?;
        let mut test = SelfTest { recorder, array, slot };
        let (host, at_bytes) = test.slot.place_on_device();
        let copy = StagedCopy { start: 0, len: TEST_WORDS, host, at_bytes };
        let copied = test.recorder.copy_imported(StagingDirection::ToHost, test.array.raw(), &[copy]).map_err(text)?;
        copied.wait(&test.recorder).map_err(text)?;
        Ok(test)
    }

    /// Describes the pattern to other ranks.
    pub fn descriptor(&self) -> Descriptor {
        self.slot.describe(0, self.array.raw().bytes())
    }

    /// Copies the pattern of `rank` to the device and compares it. Blocks.
    ///
    /// # Errors
    /// The reason, if a copy fails or brings other values.
    pub fn read(&mut self, ring: &Ring, rank: usize, descriptor: &Descriptor) -> Result<(), String> {
        let bytes = self.array.raw().bytes();
        let peer = ring.peers[rank].as_ref().ok_or("the rank is on another host")?;
        let message = peer.find(&ring.gpu, ring.access.as_ref(), descriptor, bytes)?;
        self.recorder.clear(&self.array);
        self.recorder.submit().map_err(text)?;
        let landing;
        let (host, at_bytes) = match (message.place_on_device(), &ring.access) {
            (Some(place), _) => place,
            (None, Some(access)) => {
                landing = ring.take(Storage::Device, bytes as usize)?;
                let copies = pull(access, &[Pull { message: &message, slot: &landing, at: 0 }])?;
                while !copies.is_done()? {
                    thread::yield_now();
                }
                landing.place_on_device()
            }
            (None, None) => return Err("the device has no driver library".into()),
        };
        let copy = StagedCopy { start: 0, len: TEST_WORDS, host, at_bytes };
        let copied =
            self.recorder.copy_imported(StagingDirection::ToDevice, self.array.raw(), &[copy]).map_err(text)?;
        copied.wait(&self.recorder).map_err(text)?;
        let received = self.recorder.download(&self.array, 0, TEST_WORDS).map_err(text)?;
        if received == pattern(descriptor.token) { Ok(()) } else { Err("the self-test received wrong values".into()) }
    }
}
