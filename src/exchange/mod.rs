//! Staged exchange: device data of one rank to device data of another, through the host.
//!
//! [`Exchange::start`] begins to move the parts that [`Transfers`] describe out of one array into
//! another, and gives a [`PendingExchange`], whose calls carry it on; [`Exchange::run`] begins and
//! finishes one:
//!
//! ```text
//! outgoing array -> (staging) -> message | message -> (staging) -> incoming array
//! outgoing array -> shared pages -> incoming array
//! outgoing array -> slot of the sender's device -> slot of the receiver's device -> incoming array
//! ```
//!
//! Parts are cut into messages of up to [`Exchange::chunk_bytes`], and those of one peer after
//! another are put into chunks of as much, which the device copies at once: where there are many
//! peers, each has little. A fixed number of chunks is in flight in either direction, so that
//! copying, sending, receiving and uploading overlap. Peers are served in the order of [`peers`].
//! What a rank sends itself is copied on the device.
//!
//! Messages are sent straight from staging buffers that are mapped, and received straight into
//! such; the device copies several at a time, between them and the arrays. The buffers are the
//! recorder's, which keeps them for the next exchange; one exchange has at most
//! [`depth`](Exchange::depth) each way, also where a rank only receives
//! ([`Exchange::staging_bytes`]). Where device memory is host memory anyway
//! ([`MemoryKind::Outgoing`](crate::gpu::MemoryKind), software renderers, integrated GPUs), there
//! are none: messages are sent from and received into the arrays themselves, which are mapped for
//! as long. Between ranks that are threads each byte of a message that is not short is copied once
//! then, if the receiver has asked for it before it is sent.
//!
//! Ranks of one host share a *ring* of host pages where their devices can import them (Vulkan on
//! Linux, tested when the [`Rank`](crate::Rank) is created). The device of the sender copies a
//! chunk to a slot of its pages, the message is a descriptor of 40 bytes, the device of the
//! receiver copies from the slot, and a credit frees the slot. The host copies nothing. Messages
//! to other hosts are sent from the same slots and received into them.
//!
//! With the feature `gpu-direct`, slots for ranks of one host lie in device memory where the driver
//! of NVIDIA or AMD copies between the two devices. The receiver's driver copies from the sender's
//! slot to one of the receiver, and the device from there to the array: three copies in device
//! memory, none in host memory.
//!
//! [`Exchange::path`] names the path of the data, and
//! [`Options::exchange`](crate::gpu::Options::exchange) forces one.
//!
//! | who | submits | waits |
//! |---|---|---|
//! | [`Exchange::start`] | what was recorded before, and the copy of the rank's own part | never |
//! | [`PendingExchange::progress`] | copies to and from staging buffers, nothing that was recorded | never |
//! | [`PendingExchange::finish`], [`PendingExchange::finish_first`], [`Exchange::run`] | as `progress`, and what was recorded, if they wait | until the data has been handed to the device |
//!
//! Work that is recorded after an exchange has finished sees its data. All ranks of the
//! communicator take part. Between ranks data can be rounded: [`Wire`].
//!
//! The first message to each peer begins with what the exchange is, 64 bytes: the operation with
//! what ranks must have alike for it, the elements, the chunks, the form of values. A rank that
//! receives one of another exchange fails with
//! [`CommError::Mismatch`](crate::comm::CommError::Mismatch), which names both, and nothing of its
//! data is used. Up to 16 KiB a message is copied behind these bytes; a longer one follows them.

mod block_copy;
mod channel;
pub mod collectives;
mod error;
mod exact_sum;
pub mod ghost_cells;
mod grid_comms;
mod pending;
mod receiver;
pub mod reshape;
mod ring;
mod sender;
mod several_sums;
mod short_collectives;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) use block_copy::{BlockCopies, FieldBlocks};
use channel::{Channel, ChunkedArray};
pub use error::ExchangeError;
pub(crate) use exact_sum::{Division, ELEMENT, FIXED, SumOrder, bits_for, of_values, sum_value};
pub use exact_sum::{ExactSum, Terms};
pub use grid_comms::GridComms;
pub use pending::PendingExchange;
pub use reshape::Reshape;
use ring::SharedRing;
pub(crate) use ring::establish;
pub use ring::{RefusedPath, TestedPath, tested_path};
pub use several_sums::{SeveralSums, Summed, SummedTerms};
pub use wire::Wire;
use wire::{Codec, Coded};

use crate::comm::{Communicator, EXCHANGE_TAGS, RESERVED_TAGS, Subject};
use crate::gpu::{
    Array, DeviceElement, DeviceError, Element, ExchangePath, Gpu, KernelSource, RawArray, Recorder, staging_size,
};
use crate::grid::{Chunking, Cost, Transfer, Transfers, chunks, peers};

/// Returns the kernels of the room in all forms that any device compiles; those for double
/// precision are left out.
pub(crate) fn kernels() -> Vec<KernelSource> {
    use block_copy::{CopyAction, kernel};
    let copies = block_copy::COPIED.map(|element| (element, CopyAction::Replace));
    let sums = ghost_cells::ADDED.map(|element| (element, CopyAction::Add));
    let others =
        [(Element::U32, CopyAction::AddWide), (Element::Vec4, CopyAction::Pack), (Element::Vec4, CopyAction::Unpack)];
    let all = copies.into_iter().chain(sums).chain(others).filter(|(element, _)| !element.is_double());
    all.map(|(element, action)| kernel(element, action))
        .chain(wire::kernels())
        .chain(exact_sum::kernels())
        .chain(several_sums::kernels())
        .chain(collectives::kernels())
        .collect()
}

/// Transport of device data: the communicator, the size and number of chunks, and the encoding of
/// values between ranks.
///
/// A clone is another handle to the same sequence of exchanges, with the cost so far.
#[must_use = "an exchange does nothing until it is started"]
#[derive(Clone)]
pub struct Exchange {
    comm: Communicator,
    chunking: Chunking,
    cost: Cost,
    /// Exchanges started; the same on all ranks.
    started: Arc<AtomicU32>,
    codec: Option<Arc<Codec>>,
    /// See [`carried_bytes`](Self::carried_bytes).
    carried_bytes: Arc<AtomicU64>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exchange { comm, chunking: Chunking { bytes, depth }, cost, .. } = self;
        let mut text = f.debug_struct("Exchange");
        text.field("comm", comm).field("chunk_bytes", bytes).field("depth", depth).field("cost", cost);
        text.field("wire", &self.wire()).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Most bytes of a chunk, unless [`with_chunks`](Self::with_chunks) says otherwise.
    pub const CHUNK_BYTES: u64 = Chunking::USUAL.bytes;

    /// Exchanges over `comm` in chunks of 2 MiB, eight in flight each way, with [`Wire::Exact`].
    ///
    /// Exchanges that are in flight together over one communicator must be started by one
    /// `Exchange` or its clones.
    pub fn new(comm: Communicator) -> Self {
        let (cost, started, carried_bytes) = Default::default();
        Exchange { comm, chunking: Chunking::USUAL, cost, started, codec: None, carried_bytes }
    }

    /// Sets the chunks: `chunk_bytes` per chunk (rounded to whole elements, at least one) and
    /// `depth` of them in flight each way. Arrays that are mapped take no buffers, and send all at
    /// once. Must be equal on all ranks.
    pub fn with_chunks(mut self, chunk_bytes: u64, depth: usize) -> Self {
        self.chunking = Chunking { bytes: chunk_bytes.max(1), depth: depth.max(1) };
        self
    }

    /// Sets the encoding of values between ranks. Must be equal on all ranks.
    pub fn with_wire(mut self, wire: Wire) -> Self {
        self.codec = match wire {
            Wire::Exact => None,
            Wire::Block16 => Some(Arc::default()),
        };
        self
    }

    /// Returns the ranks it runs over.
    #[must_use]
    pub fn comm(&self) -> &Communicator {
        &self.comm
    }

    /// Bytes per chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.chunking.bytes
    }

    /// Returns the form of values between ranks.
    #[must_use]
    pub fn wire(&self) -> Wire {
        if self.codec.is_some() { Wire::Block16 } else { Wire::Exact }
    }

    /// Chunks in flight each way, of arrays that are not mapped.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.chunking.depth
    }

    /// Returns the bytes of staging buffers that each exchange in flight may hold on `gpu`; 0 of
    /// one rank, and on all paths but [`ExchangePath::Staging`]. The recorder keeps them for the
    /// next; they are part of [`Gpu::allocated`].
    #[must_use]
    pub fn staging_bytes(&self, gpu: &Gpu) -> u64 {
        if self.path(gpu) == Some(ExchangePath::Staging) {
            2 * self.depth() as u64 * staging_size(self.chunk_bytes())
        } else {
            0
        }
    }

    /// Returns the path to other ranks for arrays of [`MemoryKind`](crate::gpu::MemoryKind)
    /// `Outgoing` and `Incoming` on `gpu`; `None` for one rank. [`ExchangePath::Peer`] means that
    /// this rank copies from the device of at least one other; the rest share pages or are on
    /// other hosts.
    #[must_use]
    pub fn path(&self, gpu: &Gpu) -> Option<ExchangePath> {
        let path = match SharedRing::of(&self.comm, gpu) {
            Some(ring) if ring.has_peer_memory() => ExchangePath::Peer,
            Some(_) => ExchangePath::Ring,
            None if gpu.capabilities().host_visible => ExchangePath::Mapped,
            None => ExchangePath::Staging,
        };
        (self.comm.size() > 1).then_some(path)
    }

    /// Returns the bytes of messages that this rank has sent from host memory, or received into
    /// it, so far. A message that devices copy through shared pages or from each other counts 0.
    #[must_use]
    pub fn carried_bytes(&self) -> u64 {
        self.carried_bytes.load(Ordering::Relaxed)
    }

    /// Returns what all exchanges so far have cost this rank.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Moves the parts of `transfers` from `outgoing` to `incoming`, two different arrays:
    /// [`start`](Self::start) and [`finish`](PendingExchange::finish).
    ///
    /// # Errors
    /// Same as [`start`](Self::start) and [`finish`](PendingExchange::finish).
    pub fn run<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        transfers: &Transfers,
        outgoing: &Array<T>,
        incoming: &Array<T>,
    ) -> Result<(), ExchangeError> {
        self.start(recorder, transfers, outgoing, incoming)?.finish(recorder)
    }

    /// Begins to move the parts of `transfers` from `outgoing` to `incoming`, two different arrays.
    /// Does not wait.
    ///
    /// - Submits what was recorded before, together with the copy of the rank's own part; where
    ///   nothing travels between ranks the copy is only recorded.
    /// - The two arrays belong to the pending exchange until it is done: work that is recorded with
    ///   them is refused when it is submitted ([`DeviceError::Misuse`]), on every device, and their
    ///   memory is kept even if all other handles are dropped. With a [`Wire`] that is not exact,
    ///   coded copies of them are the exchange's own; what is written to `incoming` meanwhile is
    ///   lost.
    /// - Any number of exchanges can be in flight. All ranks start them in the same order; of what
    ///   it is for this one only says that its elements are `T`.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] when a part
    /// does not lie in its array, the two are one array, or one is of another device or in flight
    /// already; [`CommError::Mismatch`](crate::comm::CommError::Mismatch) when another rank has
    /// started another exchange.
    pub fn start<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        transfers: &Transfers,
        outgoing: &Array<T>,
        incoming: &Array<T>,
    ) -> Result<PendingExchange, ExchangeError> {
        self.start_for(unnamed::<T>(), recorder, transfers, outgoing, incoming)
    }

    /// [`start`](Self::start) for what `subject` says, with all that ranks must have alike for it.
    pub(crate) fn start_for<T: DeviceElement>(
        &mut self,
        subject: Subject,
        recorder: &mut Recorder,
        transfers: &Transfers,
        outgoing: &Array<T>,
        incoming: &Array<T>,
    ) -> Result<PendingExchange, ExchangeError> {
        let tag = self.next_tag();
        self.start_as((tag, subject), recorder, transfers, outgoing, incoming)
    }

    /// Returns the tag of the next exchange: all ranks take them in the same order. Messages of one
    /// tag arrive in the order they were sent, so each exchange in flight has a tag of its own:
    /// [`EXCHANGE_TAGS`] exchanges can be in flight at once.
    fn next_tag(&self) -> u32 {
        RESERVED_TAGS.start + self.started.fetch_add(1, Ordering::Relaxed) % EXCHANGE_TAGS
    }

    /// [`start_for`](Self::start_for) with a tag that was taken before: of exchanges that begin
    /// when others are done, which may be in another order on each rank.
    fn start_as<T: DeviceElement>(
        &mut self,
        (tag, subject): (u32, Subject),
        recorder: &mut Recorder,
        transfers: &Transfers,
        outgoing: &Array<T>,
        incoming: &Array<T>,
    ) -> Result<PendingExchange, ExchangeError> {
        outgoing.raw().on(recorder.gpu(), "Exchange (outgoing)")?;
        incoming.raw().on(recorder.gpu(), "Exchange (incoming)")?;
        incoming.raw().written("Exchange (incoming)")?;
        let why = || "the outgoing and the incoming array are the same; give two arrays".into();
        DeviceError::ensure(!outgoing.raw().shares(incoming.raw()), "Exchange", why)?;
        let me = self.comm.rank();
        let own_send = self.own_part(&transfers.send, outgoing.len())?;
        let own_receive = self.own_part(&transfers.receive, incoming.len())?;
        match (own_send, own_receive) {
            (Some(from), Some(to)) if from.len == to.len => {
                recorder.copy(outgoing, from.start, incoming, to.start, from.len)?;
            }
            (None, None) => {}
            _ => return Err(misuse("a rank sends itself another number of elements than it receives".into())),
        }
        let subject = subject.with(&[T::ELEMENT as u64, self.chunk_bytes(), u64::from(self.codec.is_some())]);
        let ring = SharedRing::of(&self.comm, recorder.gpu());
        let (comm, chunking, carried_bytes) = (self.comm.clone(), self.chunking, self.carried_bytes.clone());
        let channel = Channel { comm, tag, subject, chunking, ring, carried_bytes };
        match self.codec.clone().filter(|_| Codec::takes(T::ELEMENT)) {
            Some(codec) => {
                let (outgoing, incoming) = (outgoing.cast::<u32>()?, incoming.cast::<u32>()?);
                let words = T::ELEMENT.bytes() / 4;
                let Coded { transfers, outgoing, incoming, decoding } =
                    codec.encode(recorder, transfers, me, words, [&outgoing, &incoming])?;
                self.begin(recorder, &channel, &transfers, outgoing.raw(), incoming.raw(), Some(decoding))
            }
            None => self.begin(recorder, &channel, transfers, outgoing.raw(), incoming.raw(), None),
        }
    }

    /// Begins to move the parts for other ranks.
    fn begin(
        &mut self,
        recorder: &mut Recorder,
        channel: &Channel,
        transfers: &Transfers,
        outgoing: &RawArray,
        incoming: &RawArray,
        decoding: Option<wire::Decoding>,
    ) -> Result<PendingExchange, ExchangeError> {
        let element = outgoing.element_bytes();
        let per = self.chunking.elements(element);
        let (to, from) = peers(self.comm.size(), self.comm.rank());
        let outgoing = ChunkedArray { chunks: chunks(&transfers.send, &to, per), array: outgoing.clone() };
        let incoming = ChunkedArray { chunks: chunks(&transfers.receive, &from, per), array: incoming.clone() };
        if !outgoing.chunks.is_empty() || !incoming.chunks.is_empty() {
            recorder.submit()?;
        }
        self.count(transfers, element);
        PendingExchange::new(recorder, channel, outgoing, incoming, decoding)
    }

    /// Adds the cost of an exchange of elements of `element` bytes.
    fn count(&mut self, transfers: &Transfers, element: u64) {
        let chunk = self.chunking.elements(element) * element;
        self.cost += transfers.cost(self.comm.rank(), element, chunk);
    }

    /// Returns the part that a rank sends to or receives from itself, if it is not empty, of parts
    /// of an array of `len` elements.
    fn own_part(&self, parts: &[Transfer], len: u64) -> Result<Option<Transfer>, ExchangeError> {
        let outside = |part: &&Transfer| part.start.checked_add(part.len).is_none_or(|end| end > len);
        if let Some(part) = parts.iter().find(outside) {
            return Err(misuse(format!("{} elements from {} of an array of {len}", part.len, part.start)));
        }
        if let Some(part) = parts.iter().find(|part| part.peer >= self.comm.size()) {
            return Err(misuse(format!("a part names rank {} of {}", part.peer, self.comm.size())));
        }
        Ok(parts.iter().find(|part| part.peer == self.comm.rank() && part.len > 0).copied())
    }
}

/// Returns an exchange that its caller says nothing of.
fn unnamed<T: DeviceElement>() -> Subject {
    Subject::new(&format!("exchange of {}", T::ELEMENT.wgsl()))
}

fn misuse(why: String) -> ExchangeError {
    DeviceError::misuse("Exchange", why).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::CommError;

    #[test]
    fn no_message_of_a_caller_has_the_tag_of_an_exchange() {
        let comm = Communicator::solo();
        let exchange = Exchange::new(comm.clone());
        let mut tags: Vec<u32> = (0..5000).map(|_| exchange.next_tag()).collect();
        for &tag in &tags {
            assert!(matches!(comm.send(0, tag, vec![]), Err(CommError::BadTag { .. })), "{tag}");
        }
        tags[..EXCHANGE_TAGS as usize].sort_unstable();
        assert!(
            tags[..EXCHANGE_TAGS as usize].is_sorted_by(|a, b| a < b),
            "a tag came twice among exchanges in flight"
        );
        assert!(tags.iter().all(|tag| RESERVED_TAGS.contains(&(tag + EXCHANGE_TAGS))), "tags of credits");
    }
}
