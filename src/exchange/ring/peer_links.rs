//! The choice of pairs of ranks that exchange through memory of their devices.

use bytemuck::{Pod, Zeroable};

use super::segments::{Descriptor, PeerAccess, Storage};
use super::self_test::SelfTest;
use super::shared::Ring;
use crate::comm::Communicator;
use crate::exchange::error::ExchangeError;
use crate::gpu::DeviceError;
use crate::parallel::locked;

/// A rank before ranks test the memory of their devices.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub host: u64,
    /// Whether it has a ring of pages and its options allow peer copies.
    pub takes_part: bool,
    /// Whether its options force them.
    pub is_forced: bool,
}

/// The device memory of a rank, as all ranks learn it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Announcement {
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
/// Costs, if two ranks of a host take part: 56 bytes a rank gathered by all, one byte for each pair
/// of ranks, and a copy of 64 KiB from each peer.
///
/// # Errors
/// - [`DeviceError::PeerMemory`], on all ranks, if a rank is forced to use it and can do so with no
///   other rank of its host.
/// - [`ExchangeError::Comm`] if another rank fails.
pub(super) fn choose(comm: &Communicator, ring: &mut Ring, all: &[Candidate]) -> Result<(), ExchangeError> {
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
    let announced = comm.all_gather(&[Announcement {
        test: own.as_ref().map_or(Descriptor::zeroed(), SelfTest::descriptor),
        service: ring.access.as_ref().map_or(0, |access| access.files.service()),
        is_able: own.is_ok().into(),
    }])?;

    let mut failure = own.as_ref().err().cloned();
    let mut verdicts = vec![0_u8; all.len()];
    for &rank in &neighbors {
        let Announcement { test, service, is_able } = announced[rank];
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
