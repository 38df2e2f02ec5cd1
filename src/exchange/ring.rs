//! The ring: pages of host memory that the ranks of a host share, and that their devices copy to
//! and from.
//!
//! Each rank has segments of pages, cut into slots of one chunk each. To send a chunk, the device
//! copies it to a slot, and the receiver gets a [`Descriptor`] of each message in the slot. The
//! receiver's device copies from there, and the receiver returns a credit. The slot is free again
//! when all credits have come.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::error::ExchangeError;
use crate::comm::Communicator;
use crate::gpu::{Array, DeviceError, ExchangePath, Gpu, HostPages, Recorder, StagedCopy, StagingDirection};
use crate::hash::fnv1a;
use crate::host;

/// Bytes before the slots of a segment: its words. A multiple of the pages of all systems.
const HEADER_BYTES: usize = 1 << 16;
/// Word of a segment that identifies it.
const TOKEN: usize = 0;
/// Word of a segment with the bytes of a slot.
const SLOT_BYTES: usize = 1;
/// First of the words that count how often each slot was returned.
const GENERATIONS: usize = 2;

/// Bytes of the smallest slot, enough for a chunk of the default size.
const LEAST_SLOT_BYTES: usize = 2 << 20;
/// Slots of a segment.
const SLOTS: usize = 8;

/// Words that the self-test moves.
const TEST_WORDS: u64 = 1 << 14;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a message in the pages of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Descriptor {
    /// Identity of the segment.
    token: u64,
    /// Returns of the slot before the message.
    generation: u64,
    /// First byte in the slot.
    at: u64,
    bytes: u64,
    /// File descriptor of the segment in its process.
    file: u32,
    slot: u32,
}

/// Pages of one rank, imported into its device.
struct Segment {
    pages: Arc<HostPages>,
    buffer: wgpu::Buffer,
    slot_bytes: usize,
    /// Numbers of slots that are not in use.
    free: Mutex<Vec<usize>>,
}

impl Segment {
    fn new(gpu: &Gpu, slot_bytes: usize) -> Result<Arc<Segment>, String> {
        let failed = |error: std::io::Error| format!("no shared pages: {error}");
        let pages = Arc::new(HostPages::create(HEADER_BYTES + SLOTS * slot_bytes).map_err(failed)?);
        let buffer = gpu.import(&pages)?;
        pages.word(TOKEN).store(RandomState::new().build_hasher().finish(), Ordering::Relaxed);
        pages.word(SLOT_BYTES).store(slot_bytes as u64, Ordering::Release);
        Ok(Arc::new(Segment { pages, buffer, slot_bytes, free: Mutex::new((0..SLOTS).collect()) }))
    }
}

/// A slot of this rank, for one chunk. It is free again when the value is dropped.
pub(super) struct Slot {
    segment: Arc<Segment>,
    number: usize,
    /// Whether a receiver may still read the slot though nothing waits for its credit.
    abandoned: AtomicBool,
}

impl Slot {
    fn start(&self) -> usize {
        HEADER_BYTES + self.number * self.segment.slot_bytes
    }

    /// Returns the buffer that the slot lies in, and its first byte there.
    pub fn place_on_device(&self) -> (&wgpu::Buffer, u64) {
        (&self.segment.buffer, self.start() as u64)
    }

    /// Returns the address of the slot.
    pub fn place(&self) -> NonNull<u8> {
        self.segment.pages.at(self.start())
    }

    pub fn bytes(&self) -> usize {
        self.segment.slot_bytes
    }

    /// Describes a message of `bytes` bytes from byte `at` of the slot on.
    pub fn describe(&self, at: u64, bytes: u64) -> Descriptor {
        let word = |index| self.segment.pages.word(index).load(Ordering::Acquire);
        Descriptor {
            token: word(TOKEN),
            generation: word(GENERATIONS + self.number),
            at,
            bytes,
            file: self.segment.pages.descriptor(),
            slot: self.number as u32,
        }
    }

    /// Keeps the slot out of use: its messages were given up, but a receiver may still copy them.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.segment.pages.word(GENERATIONS + self.number).fetch_add(1, Ordering::AcqRel);
        if !*self.abandoned.get_mut() {
            locked(&self.segment.free).push(self.number);
        }
    }
}

/// A segment of another rank.
#[derive(Clone)]
struct PeerSegment {
    token: u64,
    slot_bytes: usize,
    pages: Arc<HostPages>,
    buffer: wgpu::Buffer,
}

/// Another rank of this host.
struct Peer {
    process: u32,
    /// Segments that a descriptor has named.
    segments: Mutex<Vec<PeerSegment>>,
}

/// A message in the pages of another rank.
pub(super) struct PeerMessage {
    segment: PeerSegment,
    slot: usize,
    generation: u64,
    at_bytes: u64,
}

impl PeerMessage {
    /// Returns the buffer that the message lies in, and its first byte there.
    pub fn place_on_device(&self) -> (&wgpu::Buffer, u64) {
        (&self.segment.buffer, self.at_bytes)
    }

    /// Checks that the sender has not used the slot for something else.
    pub fn check(&self) -> Result<(), String> {
        let current = self.segment.pages.word(GENERATIONS + self.slot).load(Ordering::Acquire);
        if current == self.generation {
            return Ok(());
        }
        Err(format!("slot {} is stale: expected generation {}, got {current}", self.slot, self.generation))
    }
}

impl Peer {
    fn new(process: u32) -> Peer {
        Peer { process, segments: Mutex::default() }
    }

    /// Returns the segment of a descriptor, which it opens and imports the first time.
    fn segment(&self, gpu: &Gpu, descriptor: &Descriptor) -> Result<PeerSegment, String> {
        let mut segments = locked(&self.segments);
        if let Some(known) = segments.iter().find(|segment| segment.token == descriptor.token) {
            return Ok(known.clone());
        }
        let failed = |error| format!("cannot open pages of process {}: {error}", self.process);
        let pages = Arc::new(HostPages::open(self.process, descriptor.file).map_err(failed)?);
        if pages.bytes() < HEADER_BYTES {
            return Err(format!("expected at least {HEADER_BYTES} bytes of pages, got {}", pages.bytes()));
        }
        let word = |index| pages.word(index).load(Ordering::Acquire);
        let (token, slot_bytes) = (word(TOKEN), word(SLOT_BYTES) as usize);
        if token != descriptor.token || slot_bytes == 0 {
            return Err(format!("pages are stale: expected token {:016x}, got {token:016x}", descriptor.token));
        }
        let buffer = gpu.import(&pages)?;
        let segment = PeerSegment { token, slot_bytes, pages, buffer };
        segments.push(segment.clone());
        Ok(segment)
    }

    /// Finds a message of `bytes` bytes.
    fn find(&self, gpu: &Gpu, descriptor: &Descriptor, bytes: u64) -> Result<PeerMessage, String> {
        if descriptor.bytes != bytes {
            return Err(format!("expected a message of {bytes} bytes, got {}", descriptor.bytes));
        }
        let segment = self.segment(gpu, descriptor)?;
        let (slot, slot_bytes) = (descriptor.slot as usize, segment.slot_bytes as u64);
        let slots = (segment.pages.bytes() - HEADER_BYTES) / segment.slot_bytes;
        let fits = descriptor.at.checked_add(bytes).is_some_and(|end| end <= slot_bytes);
        if slot >= slots.min(HEADER_BYTES / 8 - GENERATIONS) || !fits {
            return Err(format!("{bytes} bytes from {} of slot {slot} lie outside the pages", descriptor.at));
        }
        let at_bytes = HEADER_BYTES as u64 + slot as u64 * slot_bytes + descriptor.at;
        let message = PeerMessage { segment, slot, generation: descriptor.generation, at_bytes };
        message.check().map(|()| message)
    }
}

/// The pages of one rank, and of the ranks with which it shares a host.
pub(super) struct Ring {
    gpu: Gpu,
    segments: Mutex<Vec<Arc<Segment>>>,
    /// By rank; `None` for this rank and for ranks of other hosts.
    peers: Vec<Option<Peer>>,
}

/// The ring of a communicator, with the ranks numbered as there.
#[derive(Clone)]
pub(super) struct SharedRing {
    ring: Arc<Ring>,
    ranks: Arc<[usize]>,
}

impl SharedRing {
    /// Returns the ring for exchanges over `comm` on `gpu`, if its ranks have one.
    pub fn of(comm: &Communicator, gpu: &Gpu) -> Option<SharedRing> {
        let attachment = comm.attachment()?;
        let ring = attachment.value.downcast::<Ring>().ok()?;
        (ring.gpu.number() == gpu.number()).then_some(SharedRing { ring, ranks: attachment.ranks })
    }

    fn peer(&self, rank: usize) -> Option<&Peer> {
        self.ring.peers[self.ranks[rank]].as_ref()
    }

    /// Returns `true` if this rank shares pages with `rank`.
    pub fn reaches(&self, rank: usize) -> bool {
        self.peer(rank).is_some()
    }

    /// Takes a free slot of at least `bytes` bytes, or adds a segment.
    ///
    /// # Errors
    /// [`DeviceError::SharedPages`] if the system or the driver refuses a segment.
    pub fn take(&self, comm: &Communicator, bytes: u64) -> Result<Slot, DeviceError> {
        self.ring.take(bytes as usize).map_err(|why| DeviceError::SharedPages { rank: comm.rank(), why })
    }

    /// Finds the message of `bytes` bytes that `rank` has described.
    ///
    /// # Errors
    /// [`DeviceError::SharedPages`] if its pages cannot be used.
    pub fn find(&self, rank: usize, descriptor: &Descriptor, bytes: u64) -> Result<PeerMessage, DeviceError> {
        let found = match self.peer(rank) {
            Some(peer) => peer.find(&self.ring.gpu, descriptor, bytes),
            None => Err("the rank is on another host".into()),
        };
        found.map_err(|why| DeviceError::SharedPages { rank, why })
    }
}

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

impl Ring {
    fn new(gpu: &Gpu) -> Ring {
        Ring { gpu: gpu.clone(), segments: Mutex::default(), peers: Vec::new() }
    }

    fn take(&self, bytes: usize) -> Result<Slot, String> {
        let mut segments = locked(&self.segments);
        let free = segments.iter().filter(|segment| segment.slot_bytes >= bytes && !locked(&segment.free).is_empty());
        let segment = match free.min_by_key(|segment| segment.slot_bytes) {
            Some(segment) => segment.clone(),
            None => {
                let slot_bytes = bytes.max(LEAST_SLOT_BYTES).next_multiple_of(HEADER_BYTES);
                let segment = Segment::new(&self.gpu, slot_bytes)?;
                segments.push(segment.clone());
                segment
            }
        };
        let number = locked(&segment.free).pop().ok_or("no slot is free")?;
        Ok(Slot { segment, number, abandoned: AtomicBool::new(false) })
    }
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

#[cfg(test)]
mod tests {
    use super::super::Exchange;
    use super::*;
    use crate::comm::run_threads;
    use crate::gpu::Options;
    use crate::grid::{Transfer, Transfers};

    /// Returns a ring of the default device, if the device can import pages.
    fn ring() -> Option<Ring> {
        let options = Options { exchange: Some(ExchangePath::Ring), ..Options::from_env().unwrap() };
        let gpu = Gpu::open(&options, 0).unwrap();
        gpu.capabilities().host_import.then(|| Ring::new(&gpu))
    }

    #[test]
    fn slots_are_used_again_and_segments_are_added() {
        let Some(ring) = ring() else { return };
        let taken: Vec<Slot> = (0..=SLOTS).map(|_| ring.take(1).unwrap()).collect();
        assert_eq!(locked(&ring.segments).len(), 2);
        let large = ring.take(3 << 20).unwrap();
        assert!(large.bytes() >= 3 << 20);
        drop((taken, large));
        let taken: Vec<Slot> = (0..2 * SLOTS).map(|_| ring.take(100).unwrap()).collect();
        assert_eq!(locked(&ring.segments).len(), 3);
        // Slots that a receiver may still read are lost.
        taken.iter().for_each(Slot::abandon);
        drop(taken);
        let _taken: Vec<Slot> = (0..=SLOTS).map(|_| ring.take(100).unwrap()).collect();
        assert_eq!(locked(&ring.segments).len(), 4);
    }

    /// Ranks 0 and 1 share pages; rank 2 is as on another host. Chunks hold messages of both kinds.
    #[test]
    fn messages_to_other_hosts_use_the_slots_of_their_rank() {
        if ring().is_none() {
            return;
        }
        let len = 5000;
        let outcome = run_threads(3, |comm| {
            let (mut ring, me) = (ring().expect("a ring"), comm.rank());
            let shares = |rank: usize| rank != me && rank < 2 && me < 2;
            ring.peers = (0..3).map(|rank| shares(rank).then(|| Peer::new(std::process::id()))).collect();
            let gpu = ring.gpu.clone();
            comm.attach(Some(Arc::new(ring)));
            let mut recorder = Recorder::new(&gpu)?;
            let value = |from: usize, to: usize, i: u64| ((from * 3 + to) as u32) << 16 | i as u32;
            for (chunk_bytes, depth) in [(4096, 2), (1 << 16, 1)] {
                let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk_bytes, depth);
                let [outgoing, incoming] = [gpu.array::<u32>("out", 3 * len)?, gpu.array::<u32>("in", 3 * len)?];
                let of_peer = |f: &dyn Fn(usize, u64) -> u32| -> Vec<u32> {
                    (0..3).flat_map(|peer| (0..len).map(move |i| (peer, i))).map(|(peer, i)| f(peer, i)).collect()
                };
                recorder.upload(&outgoing, 0, &of_peer(&|peer, i| value(me, peer, i)))?;
                let parts: Vec<_> = (0..3).map(|peer| Transfer { peer, start: peer as u64 * len, len }).collect();
                let transfers = Transfers { send: parts.clone(), receive: parts };
                exchange.run(&mut recorder, &transfers, &outgoing, &incoming)?;
                let received = recorder.download(&incoming, 0, 3 * len)?;
                assert!(received == of_peer(&|peer, i| value(peer, me, i)));
                let remote = (0..3).filter(|&rank| rank != me && !shares(rank)).count() as u64;
                assert_eq!(exchange.carried_bytes(), 2 * remote * len * 4);
            }
            Ok::<_, ExchangeError>(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn stale_and_foreign_pages_are_refused() {
        let Some(ring) = ring() else { return };
        let peer = Peer::new(std::process::id());
        let find = |descriptor: &Descriptor, bytes| peer.find(&ring.gpu, descriptor, bytes);
        let refused = |descriptor: Descriptor, bytes| find(&descriptor, bytes).err().expect("pages are refused");
        let slot = ring.take(64).unwrap();
        let descriptor = slot.describe(8, 16);
        let message = find(&descriptor, 16).unwrap();
        assert_eq!(message.place_on_device().1, slot.place_on_device().1 + 8);

        assert!(refused(descriptor, 20).contains("expected a message of 20 bytes, got 16"));
        assert!(refused(Descriptor { slot: 900, ..descriptor }, 16).contains("outside the pages"));
        assert!(refused(Descriptor { at: u64::MAX, ..descriptor }, 16).contains("outside the pages"));
        assert!(refused(Descriptor { token: 1, ..descriptor }, 16).contains("pages are stale"));
        // No file, and a file that is not sealed.
        assert!(refused(Descriptor { token: 1, file: 1 << 20, ..descriptor }, 16).contains("cannot open pages"));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let file = std::os::fd::AsRawFd::as_raw_fd(&file) as u32;
        assert!(refused(Descriptor { token: 1, file, ..descriptor }, 16).contains("cannot open pages"));

        assert_eq!(message.check(), Ok(()));
        drop(slot);
        assert!(message.check().is_err_and(|why| why.contains("is stale")));
        assert!(refused(descriptor, 16).contains("is stale"));
    }
}
