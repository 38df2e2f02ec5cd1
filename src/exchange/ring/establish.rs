//! The choice of the path of device data, by copies through shared memory.

use std::sync::Arc;
use std::thread;

use bytemuck::{Pod, Zeroable};

use super::segments::{Descriptor, PeerAccess, Slot, Storage};
use super::shared::{Peer, Pull, Ring, pull};
use crate::comm::Communicator;
use crate::exchange::ExchangeError;
use crate::gpu::{
    Array, DeviceError, ExchangePath, Gpu, HAS_PEER_MEMORY, MemoryKind, Recorder, StagedCopy, StagingDirection,
};
use crate::hash::fnv1a;
use crate::host;
use crate::parallel::locked;

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
    choose_pairs(comm, &mut ring, &all.iter().map(candidate).collect::<Vec<_>>())?;
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

/// A rank before ranks test the memory of their devices.
#[derive(Clone, Copy)]
struct Candidate {
    host: u64,
    /// Whether it has a ring of pages and its options allow peer copies.
    takes_part: bool,
    /// Whether its options force them.
    is_forced: bool,
}

/// The device memory of a rank, as all ranks learn it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DeviceAnnouncement {
    /// A message with the pattern of the self-test.
    test: Descriptor,
    /// Number of the service of file descriptors.
    service: u64,
    /// 1 if the rank has device memory to share.
    is_able: u64,
}

/// Returns `true` if two ranks of a host take part.
fn has_pair(all: &[Candidate]) -> bool {
    let mut hosts: Vec<u64> = all.iter().filter(|rank| rank.takes_part).map(|rank| rank.host).collect();
    hosts.sort_unstable();
    hosts.windows(2).any(|pair| pair[0] == pair[1])
}

/// Tests the device memory of each pair of ranks of a host in both directions, and chooses it for
/// the pairs that passed. `all` has the ranks of `comm`. Collective; blocks.
///
/// Costs, if two ranks of a host take part: all ranks gather 56 bytes from each rank and one byte
/// for each pair of ranks, and each rank copies 64 KiB from each peer.
///
/// # Errors
/// - [`DeviceError::PeerMemory`], on all ranks, if a rank is forced to use it and can do so with no
///   other rank of its host.
/// - [`ExchangeError::Comm`] if another rank fails.
fn choose_pairs(comm: &Communicator, ring: &mut Ring, all: &[Candidate]) -> Result<(), ExchangeError> {
    let (me, is_forced) = (comm.rank(), all.iter().any(|rank| rank.is_forced));
    if !has_pair(all) && !is_forced {
        return Ok(());
    }
    let neighbors: Vec<usize> = (0..all.len()).filter(|&rank| rank != me && all[rank].host == all[me].host).collect();
    let is_tested = all[me].takes_part && neighbors.iter().any(|&rank| all[rank].takes_part);
    let mut own = match is_tested {
        true => PeerAccess::open(&ring.gpu).and_then(|access| {
            ring.access = Some(access);
            SelfTest::begin(ring, Storage::Device)
        }),
        false => Err("no two ranks of the host may use it".into()),
    };
    let announced = comm.all_gather(&[DeviceAnnouncement {
        test: own.as_ref().map_or(Descriptor::zeroed(), SelfTest::descriptor),
        service: ring.access.as_ref().map_or(0, |access| access.files.service()),
        is_able: own.is_ok().into(),
    }])?;

    let mut failure = own.as_ref().err().cloned();
    let mut verdicts = vec![0_u8; all.len()];
    for &rank in &neighbors {
        let DeviceAnnouncement { test, service, is_able } = announced[rank];
        if let (Some(peer), Ok(own), 1) = (&mut ring.peers[rank], &mut own, is_able) {
            peer.service = service;
            match own.read(ring, rank, &test) {
                Ok(()) => verdicts[rank] = 1,
                Err(why) => failure = Some(why),
            }
        }
    }
    let theirs = comm.all_to_all(&verdicts)?;
    for &rank in &neighbors {
        if let (Some(peer), 1, 1) = (&mut ring.peers[rank], verdicts[rank], theirs[rank]) {
            peer.storage = Storage::Device;
        }
    }
    drop(own);
    if let Some(why) = failure.as_ref().filter(|_| is_tested) {
        tracing::debug!(rank = me, why, "no copies from device memory of some ranks");
    }
    let mut storages = neighbors.iter().filter_map(|&rank| ring.peers[rank].as_ref()).map(|peer| peer.storage);
    let has_peers = storages.any(|storage| storage == Storage::Device);
    if !has_peers {
        locked(&ring.segments).retain(|segment| segment.storage() == Storage::Pages);
        ring.access = None;
    }
    if !is_forced {
        return Ok(());
    }
    let missing = (all[me].is_forced && !has_peers && !neighbors.is_empty())
        .then(|| failure.unwrap_or_else(|| "no other rank of the host can use it".into()));
    match comm.first_failed(missing.as_deref())? {
        Some((rank, why)) => Err(DeviceError::PeerMemory { rank, why }.into()),
        None => Ok(()),
    }
}

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
struct SelfTest {
    recorder: Recorder,
    array: Array<u32>,
    slot: Slot,
}

impl SelfTest {
    /// Copies a pattern from the device into a slot of `ring`. Blocks.
    ///
    /// # Errors
    /// The reason, if the rank cannot have such slots.
    fn begin(ring: &Ring, storage: Storage) -> Result<SelfTest, String> {
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
    fn descriptor(&self) -> Descriptor {
        self.slot.describe(0, self.array.raw().bytes())
    }

    /// Copies the pattern of `rank` to the device and compares it. Blocks.
    ///
    /// # Errors
    /// The reason, if a copy fails or brings other values.
    fn read(&mut self, ring: &Ring, rank: usize, descriptor: &Descriptor) -> Result<(), String> {
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
