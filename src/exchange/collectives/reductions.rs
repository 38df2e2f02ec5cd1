//! Collectives that combine numbers of all ranks.
//!
//! ```text
//! each rank's numbers -> a part for each rank -> combined there, in the order of ranks -> to all, to the root, or kept
//! ```
//!
//! Of n numbers a rank sends and receives n, once there and once back, on any number of ranks; it
//! needs memory for n more. Where parts are uneven a rank receives its own from every rank, and
//! holds as much.

use super::batch::Batch;
use super::combine::{Blocks, DeviceNumber, Order, ScanRange};
use super::moves::both;
use super::pending::{Pending, PendingCollective, Stage};
use super::{Call, Collectives, are_short, misuse, per_field};
use crate::comm::Op;
use crate::exchange::{ExchangeError, PendingExchange};
use crate::gpu::{Array, DeviceElement, MemoryKind, Recorder, allowed_len};
use crate::grid::{Transfer, Transfers, split};
use crate::hash::{START, fnv1a};
use crate::host_memory;

/// Parts of all ranks' numbers that have come to this rank, or are on their way.
struct Gathered<N: DeviceNumber> {
    pending: PendingExchange,
    /// A block from each rank.
    array: Array<N::Element>,
    blocks: Blocks,
}

impl Collectives {
    /// Returns the reduction of all ranks' numbers, on every rank. The arrays have one length.
    ///
    /// Floats are combined along a fixed tree over the ranks, that of
    /// [`Communicator::all_reduce`](crate::comm::Communicator::all_reduce): the bits depend on the
    /// number of ranks, and on nothing else.
    ///
    /// # Errors
    /// [`CommError`](crate::comm::CommError); [`DeviceError`](crate::gpu::DeviceError) for arrays
    /// that do not fit.
    pub fn all_reduce<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        op: Op,
    ) -> Pending<Array<N::Element>> {
        let call = self.agree_on::<N>(recorder, "all_reduce", array, op, None)?;
        if are_short(array.len() * N::Element::ELEMENT.bytes(), self.comm().size()) {
            return self.all_reduce_short::<N>(recorder, array, op);
        }
        let (me, parts) = (self.comm().rank(), self.even_parts::<N>(call.own));
        let Gathered { pending, array: own, blocks } = self.gather_parts::<N>(recorder, array, &parts, Order::Up)?;
        let len = parts.count(me);
        let send = (0..blocks.count as usize).map(|peer| Transfer { peer, start: 0, len }).collect();
        let later = self.later::<N::Element>(Transfers { send, receive: parts.transfers() });
        let combiner = self.combiner.clone();
        Ok(PendingCollective::new(Stage::moving(pending, move |recorder| {
            combiner.reduce::<N>(recorder, &own, blocks, op)?;
            let whole = recorder.gpu().array_in("collectives::reduced", parts.len(), MemoryKind::Incoming)?;
            let pending = later.start(recorder, &own, &whole)?;
            Ok(Stage::moving(pending, |_| Ok(Stage::Done(whole))))
        })))
    }

    /// Returns the reduction of all ranks' numbers, as [`all_reduce`](Self::all_reduce) gives it,
    /// on `root`; the others get nothing.
    ///
    /// # Errors
    /// Same as [`all_reduce`](Self::all_reduce).
    pub fn reduce<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        root: usize,
        array: &Array<N::Element>,
        op: Op,
    ) -> Pending<Option<Array<N::Element>>> {
        let call = self.agree_on::<N>(recorder, "reduce", array, op, Some(root))?;
        let (me, parts) = (self.comm().rank(), self.even_parts::<N>(call.own));
        let Gathered { pending, array: own, blocks } = self.gather_parts::<N>(recorder, array, &parts, Order::Up)?;
        let (len, receive) = if me == root { (parts.len(), parts.transfers()) } else { (0, Vec::new()) };
        let send = vec![Transfer { peer: root, start: 0, len: parts.count(me) }];
        let later = self.later::<N::Element>(Transfers { send, receive });
        let combiner = self.combiner.clone();
        Ok(PendingCollective::new(Stage::moving(pending, move |recorder| {
            combiner.reduce::<N>(recorder, &own, blocks, op)?;
            let whole = recorder.gpu().array_in("collectives::reduced", len, MemoryKind::Incoming)?;
            let pending = later.start(recorder, &own, &whole)?;
            Ok(Stage::moving(pending, move |_| Ok(Stage::Done((me == root).then_some(whole)))))
        })))
    }

    /// Returns this rank's one of the equal parts that each field of the reduction of all ranks'
    /// numbers is cut into. Arrays have one length.
    ///
    /// # Errors
    /// Same as [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        op: Op,
        fields: u64,
    ) -> Pending<Array<N::Element>> {
        let size = self.comm().size();
        let (each, valid) = both(per_field(array.len(), fields.saturating_mul(N::WORDS * size as u64)), Ok(()));
        let call = Call::new("reduce_scatter", N::NAME, fields, each).equal().reducing(op);
        self.agree(recorder, call, Some(array), valid)?;
        self.reduce_parts::<N>(recorder, array, op, Batch::new(fields, vec![each * N::WORDS; size]))
    }

    /// Returns this rank's part, of `counts[rank]` numbers, of each field of the reduction of all
    /// ranks' numbers. The counts are the same on all ranks.
    ///
    /// # Errors
    /// Same as [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter_v<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        counts: &[u64],
        op: Op,
        fields: u64,
    ) -> Pending<Array<N::Element>> {
        let words: Vec<u64> = counts.iter().map(|count| count.saturating_mul(N::WORDS)).collect();
        // The longest part comes from every rank. All know it, so that what is too long for one is
        // refused by all.
        let longest = words.iter().copied().max().unwrap_or(0).saturating_mul(fields);
        let blocks = allowed_len("reduce_scatter", longest.saturating_mul(self.comm().size() as u64));
        let valid = self.valid_counts(array.len(), &words, fields).and(blocks.map(drop).map_err(Into::into));
        let call = Call::new("reduce_scatter_v", N::NAME, fields, array.len() / fields.max(1) / N::WORDS);
        let call = call.agreeing(fnv1a(START, bytemuck::cast_slice(counts))).reducing(op);
        self.agree(recorder, call, Some(array), valid)?;
        self.reduce_parts::<N>(recorder, array, op, Batch::new(fields, words))
    }

    /// Returns the reduction of the numbers of the ranks up to and including this one, one after
    /// the other. The arrays have one length.
    ///
    /// # Errors
    /// Same as [`all_reduce`](Self::all_reduce).
    pub fn scan<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        op: Op,
    ) -> Pending<Array<N::Element>> {
        self.scan_range::<N>(recorder, array, ScanRange::UpTo, op)
    }

    /// Returns the reduction of the numbers of the ranks before this one, one after the other;
    /// nothing on the first rank. The arrays have one length.
    ///
    /// # Errors
    /// Same as [`all_reduce`](Self::all_reduce).
    pub fn scan_exclusive<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        op: Op,
    ) -> Pending<Option<Array<N::Element>>> {
        let first = self.comm().rank() == 0;
        let pending = self.scan_range::<N>(recorder, array, ScanRange::Before, op)?;
        Ok(pending.map(move |before| (!first).then_some(before)))
    }

    /// Returns the reduction of the numbers of the ranks in the range of this one, from its far end
    /// on; an array without elements where there are none.
    pub(crate) fn scan_range<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        range: ScanRange,
        op: Op,
    ) -> Pending<Array<N::Element>> {
        let call = self.agree_on::<N>(recorder, range.operation(), array, op, None)?;
        let (me, parts) = (self.comm().rank(), self.even_parts::<N>(call.own));
        let (order, size) = (range.order(), self.comm().size());
        let Gathered { pending, array: own, blocks } = self.gather_parts::<N>(recorder, array, &parts, order)?;
        // A rank's result is the block at its place, or the one before.
        let skipped = usize::from(!range.has_own());
        let sources = (0..size).filter(|&peer| order.place(peer, size) >= skipped);
        let block = parts.transfer(me).len;
        let from = |peer: usize| (order.place(peer, size) - skipped) as u64 * block;
        let send = sources.map(|peer| Transfer { peer, start: from(peer), len: block }).collect();
        let some = order.place(me, size) >= skipped;
        let (len, receive) = if some { (parts.len(), parts.transfers()) } else { (0, Vec::new()) };
        let later = self.later::<N::Element>(Transfers { send, receive });
        let combiner = self.combiner.clone();
        Ok(PendingCollective::new(Stage::moving(pending, move |recorder| {
            combiner.scan::<N>(recorder, &own, blocks, op)?;
            let whole = recorder.gpu().array_in("collectives::scanned", len, MemoryKind::Incoming)?;
            let pending = later.start(recorder, &own, &whole)?;
            Ok(Stage::moving(pending, |_| Ok(Stage::Done(whole))))
        })))
    }

    /// Short numbers along the trees of the host.
    fn all_reduce_short<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        op: Op,
    ) -> Pending<Array<N::Element>> {
        let reduced = recorder.gpu().array("collectives::reduced", array.len())?;
        let mut numbers: Vec<N> = host_memory::zeros("sums over ranks", (array.len() / N::WORDS) as usize)?;
        recorder.download_into(array, 0, bytemuck::cast_slice_mut(&mut numbers))?;
        self.comm().all_reduce(&mut numbers, op)?;
        recorder.upload(&reduced, 0, bytemuck::cast_slice(&numbers))?;
        Ok(PendingCollective::done(reduced))
    }

    /// Reduces parts and keeps this rank's.
    fn reduce_parts<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        op: Op,
        parts: Batch,
    ) -> Pending<Array<N::Element>> {
        let message = parts.packed(recorder, &self.copies, array)?;
        let Gathered { pending, array: own, blocks } = self.gather_parts::<N>(recorder, &message, &parts, Order::Up)?;
        let (combiner, len) = (self.combiner.clone(), parts.transfer(self.comm().rank()).len);
        Ok(PendingCollective::new(Stage::moving(pending, move |recorder| {
            combiner.reduce::<N>(recorder, &own, blocks, op)?;
            let reduced = recorder.gpu().array("collectives::reduced", len)?;
            recorder.copy(&own, 0, &reduced, 0, len)?;
            Ok(Stage::Done(reduced))
        })))
    }

    /// Begins to bring this rank's part of the numbers of each rank, which lie as in messages.
    fn gather_parts<N: DeviceNumber>(
        &mut self,
        recorder: &mut Recorder,
        message: &Array<N::Element>,
        parts: &Batch,
        order: Order,
    ) -> Result<Gathered<N>, ExchangeError> {
        let (me, count) = (self.comm().rank(), self.comm().size() as u64);
        let block = parts.transfer(me).len;
        let array = recorder.gpu().array_in("collectives::blocks", block * count, MemoryKind::Incoming)?;
        let place = |peer: usize| order.place(peer, count as usize) as u64;
        let receive = (0..count as usize).map(|peer| Transfer { peer, start: place(peer) * block, len: block });
        let transfers = Transfers { send: parts.transfers(), receive: receive.collect() };
        let pending = self.exchange.start(recorder, &transfers, message, &array)?;
        Ok(Gathered { pending, array, blocks: Blocks { block: block / N::WORDS, count } })
    }

    /// Returns parts of `numbers` numbers whose lengths differ by at most one.
    fn even_parts<N: DeviceNumber>(&self, numbers: u64) -> Batch {
        let size = self.comm().size() as u64;
        let count = |rank| {
            let range = split(numbers, size, rank);
            (range.end - range.start) * N::WORDS
        };
        Batch::new(1, (0..size).map(count))
    }

    /// Returns this rank's call, where all agree on it.
    fn agree_on<N: DeviceNumber>(
        &self,
        recorder: &Recorder,
        operation: &str,
        array: &Array<N::Element>,
        op: Op,
        root: Option<usize>,
    ) -> Result<Call, ExchangeError> {
        let valid = match array.len().is_multiple_of(N::WORDS) {
            true => root.map_or(Ok(()), |root| self.valid_rank("the root of reduce", root)),
            false => Err(misuse(format!("{} words are no whole number of {}", array.len(), N::NAME))),
        };
        let call = Call::new(operation, N::NAME, 1, array.len() / N::WORDS).equal().reducing(op);
        let call = root.map_or(call, |root| call.root(root));
        self.agree(recorder, call, Some(array), valid)?;
        Ok(call)
    }
}
