//! The choice of the path of device data, by copies through shared pages.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::peers::Peer;
use super::segments::{Descriptor, Slot};
use super::shared::Ring;
use crate::comm::Communicator;
use crate::exchange::error::ExchangeError;
use crate::gpu::{Array, DeviceError, ExchangePath, Gpu, Recorder, StagedCopy, StagingDirection};
use crate::hash::fnv1a;
use crate::host;

/// Words that the self-test moves.
const TEST_WORDS: u64 = 1 << 14;

/// The part of a rank in the choice of the path, as all ranks learn it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Announcement {
    host: u64,
    /// A message with [`pattern`] of its token.
    test: Descriptor,
    process: u32,
    /// 1 if the rank has pages.
    is_able: u16,
    /// 1 if the options of its device force the ring.
    is_forced: u16,
}

/// Returns the values of the self-test, which differ from segment to segment.
fn pattern(token: u64) -> Vec<u32> {
    (0..TEST_WORDS).map(|i| fnv1a(token, &i.to_le_bytes()) as u32).collect()
}

/// Copies between the device of a rank and shared pages, before the ranks rely on them.
struct SelfTest {
    gpu: Gpu,
    recorder: Recorder,
    array: Array<u32>,
    slot: Slot,
}

fn text(error: DeviceError) -> String {
    error.to_string()
}

impl SelfTest {
    /// Copies a pattern from the device into a slot of `ring`.
    ///
    /// # Errors
    /// The reason, if the rank cannot have a ring.
    fn begin(ring: &Ring) -> Result<SelfTest, String> {
        let gpu = ring.gpu.clone();
        if !gpu.capabilities().host_import {
            return Err("the device cannot import pages".into());
        }
        let mut recorder = Recorder::new(&gpu).map_err(text)?;
        let array = gpu.array::<u32>("meshloom::ring test", TEST_WORDS).map_err(text)?;
        let slot = ring.take(array.raw().bytes() as usize)?;
        recorder.upload(&array, 0, &pattern(slot.describe(0, 0).token)).map_err(text)?;
        recorder.submit().map_err(text)?;
        let mut test = SelfTest { gpu, recorder, array, slot };
        let (host, at_bytes) = test.slot.place_on_device();
        let copy = StagedCopy { start: 0, len: TEST_WORDS, host, at_bytes };
        test.recorder.stage(StagingDirection::ToHost, test.array.raw(), &[copy]).map_err(text)?;
        test.recorder.wait().map_err(text)?;
        Ok(test)
    }

    fn descriptor(&self) -> Descriptor {
        self.slot.describe(0, self.array.raw().bytes())
    }

    /// Copies the pattern of another rank to the device and compares it.
    fn read(&mut self, peer: &Peer, descriptor: &Descriptor) -> Result<(), String> {
        let message = peer.find(&self.gpu, descriptor, self.array.raw().bytes())?;
        self.recorder.clear(&self.array);
        self.recorder.submit().map_err(text)?;
        let (host, at_bytes) = message.place_on_device();
        let copy = StagedCopy { start: 0, len: TEST_WORDS, host, at_bytes };
        self.recorder.stage(StagingDirection::ToDevice, self.array.raw(), &[copy]).map_err(text)?;
        let received = self.recorder.download(&self.array, 0, TEST_WORDS).map_err(text)?;
        if received == pattern(descriptor.token) { Ok(()) } else { Err("the self-test received wrong values".into()) }
    }
}

/// Chooses the path of device data among the ranks of `comm`, and attaches a ring to it where the
/// ranks of a host can share pages. Collective.
///
/// # Errors
/// - [`DeviceError::SharedPages`], on all ranks, if a rank forces the ring and its host cannot
///   use it.
/// - [`ExchangeError::Comm`] if another rank fails.
pub(crate) fn establish(comm: &Communicator, gpu: &Gpu) -> Result<(), ExchangeError> {
    comm.attach(None);
    if comm.size() == 1 {
        return Ok(());
    }
    let is_forced = gpu.forced_exchange() == Some(ExchangePath::Ring);
    let mut ring = Ring::new(gpu);
    let mut own = SelfTest::begin(&ring);
    let announcement = Announcement {
        host: host::id(),
        test: own.as_ref().map_or(Descriptor::zeroed(), SelfTest::descriptor),
        process: std::process::id(),
        is_able: own.is_ok().into(),
        is_forced: is_forced.into(),
    };
    let all = comm.all_gather(&[announcement])?;
    if all.iter().all(|rank| rank.is_able == 0 && rank.is_forced == 0) {
        return Ok(());
    }
    let shares = |(rank, other): (usize, &Announcement)| {
        (rank != comm.rank() && other.host == announcement.host && other.is_able == 1).then(|| Peer::new(other.process))
    };
    ring.peers = all.iter().enumerate().map(shares).collect();
    let mut tests = ring.peers.iter().zip(&all).filter_map(|(peer, other)| Some((peer.as_ref()?, &other.test)));
    let outcome = match &mut own {
        Ok(own) => tests.try_for_each(|(peer, test)| own.read(peer, test)),
        Err(why) => Err(why.clone()),
    };
    let passed = comm.all_gather(&[u64::from(outcome.is_ok())])?;
    let host_passed = |host: u64| all.iter().zip(&passed).all(|(rank, &passed)| rank.host != host || passed == 1);
    if let Err(why) = &outcome {
        tracing::debug!(rank = comm.rank(), why, "no ring of shared pages");
    }
    if let Some(rank) = all.iter().position(|rank| rank.is_forced == 1 && !host_passed(rank.host)) {
        let why = outcome.err().unwrap_or_else(|| "a rank of the host cannot use pages of all others".into());
        return Err(DeviceError::SharedPages { rank, why }.into());
    }
    if host_passed(announcement.host) {
        // The slot of the test goes back to the ring.
        drop(own);
        comm.attach(Some(Arc::new(ring)));
    }
    Ok(())
}

/// Returns the path that ranks which share `gpu` would take, found by copies through shared pages.
/// Submits and blocks.
///
/// # Errors
/// [`DeviceError::SharedPages`] if the options of the device force the ring and it fails.
pub fn tested_path(gpu: &Gpu) -> Result<ExchangePath, DeviceError> {
    if gpu.host_visible() {
        return Ok(ExchangePath::Mapped);
    }
    let test = SelfTest::begin(&Ring::new(gpu)).and_then(|mut test| {
        let descriptor = test.descriptor();
        test.read(&Peer::new(std::process::id()), &descriptor)
    });
    match test {
        Ok(()) => Ok(ExchangePath::Ring),
        Err(why) if gpu.forced_exchange() == Some(ExchangePath::Ring) => Err(DeviceError::SharedPages { rank: 0, why }),
        Err(_) => Ok(ExchangePath::Staging),
    }
}
