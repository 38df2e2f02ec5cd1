//! The choice of the path of device data, by copies through shared memory.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::peer_links::{self, Candidate};
use super::peers::Peer;
use super::segments::{Descriptor, PeerAccess, Storage};
use super::self_test::SelfTest;
use super::shared::Ring;
use crate::comm::Communicator;
use crate::exchange::error::ExchangeError;
use crate::gpu::{DeviceError, ExchangePath, Gpu, HAS_PEER_MEMORY};
use crate::host;

/// The part of a rank in the choice of the path, as all ranks learn it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Announcement {
    host: u64,
    /// A message with the pattern of the self-test.
    test: Descriptor,
    process: u32,
    /// 1 if the rank has pages.
    is_able: u8,
    /// 1 if the options of its device force the ring.
    needs_ring: u8,
    /// 1 if they force device memory of peers.
    needs_peers: u8,
    /// 1 if they allow it.
    allows_peers: u8,
}

/// Chooses the path of device data among the ranks of `comm`, and attaches a ring to it where the
/// ranks of a host can share memory. Collective; blocks.
///
/// # Errors
/// - [`DeviceError::SharedPages`] or [`DeviceError::PeerMemory`], on all ranks, if a rank forces a
///   path and its host cannot use it.
/// - [`ExchangeError::Comm`] if another rank fails.
pub(crate) fn establish(comm: &Communicator, gpu: &Gpu) -> Result<(), ExchangeError> {
    comm.attach(None);
    if comm.size() == 1 {
        return Ok(());
    }
    let mut ring = Ring::new(gpu);
    let (mut own, forced) = (SelfTest::begin(&ring, Storage::Pages), gpu.forced_exchange());
    let announcement = Announcement {
        host: host::id(),
        test: own.as_ref().map_or(Descriptor::zeroed(), SelfTest::descriptor),
        process: std::process::id(),
        is_able: own.is_ok().into(),
        needs_ring: forced.is_some_and(ExchangePath::lends).into(),
        needs_peers: (forced == Some(ExchangePath::Peer)).into(),
        allows_peers: (HAS_PEER_MEMORY && matches!(forced, None | Some(ExchangePath::Peer))).into(),
    };
    let all = comm.all_gather(&[announcement])?;
    if all.iter().all(|rank| rank.is_able == 0 && rank.needs_ring == 0) {
        return Ok(());
    }
    let shares = |(rank, other): (usize, &Announcement)| {
        (rank != comm.rank() && other.host == announcement.host && other.is_able == 1).then(|| Peer::new(other.process))
    };
    ring.peers = all.iter().enumerate().map(shares).collect();
    let mut tests = all.iter().enumerate().filter(|(rank, _)| ring.peers[*rank].is_some());
    let outcome = match &mut own {
        Ok(own) => tests.try_for_each(|(rank, other)| own.read(&ring, rank, &other.test)),
        Err(why) => Err(why.clone()),
    };
    let passed = comm.all_gather(&[u64::from(outcome.is_ok())])?;
    let host_passed = |host: u64| all.iter().zip(&passed).all(|(rank, &passed)| rank.host != host || passed == 1);
    if let Err(why) = &outcome {
        tracing::debug!(rank = comm.rank(), why, "no ring of shared pages");
    }
    if let Some(rank) = all.iter().position(|rank| rank.needs_ring == 1 && !host_passed(rank.host)) {
        let why = outcome.err().unwrap_or_else(|| "a rank of the host cannot use pages of all others".into());
        return Err(DeviceError::SharedPages { rank, why }.into());
    }
    // The slot of the test goes back to the ring.
    drop(own);
    let candidate = |rank: &Announcement| Candidate {
        host: rank.host,
        takes_part: rank.allows_peers == 1 && host_passed(rank.host),
        is_forced: rank.needs_peers == 1,
    };
    peer_links::choose(comm, &mut ring, &all.iter().map(candidate).collect::<Vec<_>>())?;
    if host_passed(announcement.host) {
        comm.attach(Some(Arc::new(ring)));
    }
    Ok(())
}

/// The path that ranks which share a device would take, and those that are faster but impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestedPath {
    /// The path.
    pub path: ExchangePath,
    /// Faster paths that were tried.
    pub refused: Vec<RefusedPath>,
}

/// A path that is impossible on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedPath {
    /// The path.
    pub path: ExchangePath,
    /// The reason.
    pub why: String,
}

/// Returns the path that ranks which share `gpu` would take, found by copies through shared memory.
/// Submits and blocks.
///
/// # Errors
/// [`DeviceError::SharedPages`] or [`DeviceError::PeerMemory`] if the options of the device force a
/// path and it fails.
pub fn tested_path(gpu: &Gpu) -> Result<TestedPath, DeviceError> {
    if gpu.capabilities().host_visible {
        return Ok(TestedPath { path: ExchangePath::Mapped, refused: Vec::new() });
    }
    let (mut ring, forced, mut refused) = (Ring::new(gpu), gpu.forced_exchange(), Vec::new());
    if let Err(why) = test_alone(&mut ring, Storage::Pages) {
        if forced.is_some_and(ExchangePath::lends) {
            return Err(DeviceError::SharedPages { rank: 0, why });
        }
        refused.push(RefusedPath { path: ExchangePath::Ring, why });
        return Ok(TestedPath { path: ExchangePath::Staging, refused });
    }
    if forced == Some(ExchangePath::Ring) {
        return Ok(TestedPath { path: ExchangePath::Ring, refused });
    }
    let tested = PeerAccess::open(gpu).and_then(|access| {
        ring.access = Some(access);
        test_alone(&mut ring, Storage::Device)
    });
    let path = match tested {
        Ok(()) => ExchangePath::Peer,
        Err(why) if forced == Some(ExchangePath::Peer) => return Err(DeviceError::PeerMemory { rank: 0, why }),
        Err(why) => {
            refused.push(RefusedPath { path: ExchangePath::Peer, why });
            ExchangePath::Ring
        }
    };
    Ok(TestedPath { path, refused })
}

/// Copies a pattern through memory of `ring` as if it were that of another rank.
fn test_alone(ring: &mut Ring, storage: Storage) -> Result<(), String> {
    let mut test = SelfTest::begin(ring, storage)?;
    let service = ring.access.as_ref().map_or(0, |access| access.files.service());
    let mut peer = Peer::new(std::process::id());
    peer.service = service;
    ring.peers = vec![Some(peer)];
    let descriptor = test.descriptor();
    test.read(ring, 0, &descriptor)
}
