//! Collectives that move arrays and change nothing.

use super::batch::Batch;
use super::pending::{Pending, PendingCollective, Stage};
use super::{Call, Collectives, are_short, misuse, per_field};
use crate::comm::{CommError, Op};
use crate::exchange::{ExchangeError, short_collectives};
use crate::gpu::{Array, DeviceElement, LONGEST, MemoryKind, Recorder, allowed_len};
use crate::grid::{Transfer, Transfers, split};

/// Parts of all ranks in one array: of each field, the parts in the order of ranks.
#[derive(Clone, Debug)]
pub struct DeviceParts<T: DeviceElement> {
    /// The elements.
    pub array: Array<T>,
    /// Elements of a field in the part of each rank.
    pub counts: Vec<u64>,
}

impl Collectives {
    /// Gives every rank a copy of the `array` of `root`, which others leave out; the root gets its
    /// own array back. Long ones travel in parts, so that the root sends twice their bytes on any
    /// number of ranks.
    ///
    /// # Errors
    /// [`CommError`]; [`DeviceError::Misuse`](crate::gpu::DeviceError::Misuse) where an array is
    /// missing or given too much.
    pub fn broadcast<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        root: usize,
        array: Option<&Array<T>>,
    ) -> Pending<Array<T>> {
        let (me, size) = (self.comm().rank(), self.comm().size());
        let valid = self.valid_root("the root of broadcast", root, array.is_some());
        let call = Call::new("broadcast", T::ELEMENT.wgsl(), 1, array.map_or(0, Array::len)).root(root);
        let calls = self.agree(recorder, call, array, valid)?;
        let len = calls[root].own;
        let gpu = recorder.gpu().clone();
        let whole = match array {
            Some(array) => array.clone(),
            None => gpu.array_in("collectives::incoming", len, MemoryKind::Incoming)?,
        };
        if are_short(len * T::ELEMENT.bytes(), self.comm().size()) {
            short_collectives::broadcast(recorder, self.comm(), root, &whole, 0..len)?;
            return Ok(PendingCollective::done(whole));
        }
        // To each rank a part, then all parts to all but the root.
        let part = move |rank: usize| {
            let range = split(len, size as u64, rank as u64);
            Transfer { peer: rank, start: range.start, len: range.end - range.start }
        };
        let at = |peer, Transfer { len, .. }: Transfer, start| Transfer { peer, start, len };
        let others = (0..size).filter(move |&rank| rank != root);
        let own = gpu.array_in("collectives::part", if me == root { 0 } else { part(me).len }, MemoryKind::Incoming)?;
        let first = match me == root {
            true => Transfers { send: others.clone().map(part).collect(), receive: Vec::new() },
            false => Transfers { send: Vec::new(), receive: vec![at(root, part(me), 0)] },
        };
        let source = if me == root { whole.clone() } else { gpu.array("collectives::nothing", 0)? };
        let (start, receive) =
            if me == root { (part(me).start, Vec::new()) } else { (0, (0..size).map(part).collect()) };
        let second = Transfers { send: others.map(|peer| at(peer, part(me), start)).collect(), receive };
        let pending = self.exchange.start(recorder, &first, &source, &own)?;
        let later = self.later::<T>(second);
        Ok(PendingCollective::new(Stage::moving(pending, move |recorder| {
            let (from, to) = if me == root { (&source, &own) } else { (&own, &whole) };
            let pending = later.start(recorder, from, to)?;
            Ok(Stage::moving(pending, |_| Ok(Stage::Done(whole))))
        })))
    }

    /// Gives every rank the arrays of all ranks, of one length, in the order of ranks.
    ///
    /// # Errors
    /// [`CommError`]; [`DeviceError`](crate::gpu::DeviceError) for arrays that do not fit.
    pub fn all_gather<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        own: &Array<T>,
        fields: u64,
    ) -> Pending<Array<T>> {
        let (call, valid) = gathering("all_gather", own, fields);
        let calls = self.agree(recorder, call.equal(), Some(own), valid)?;
        Ok(self.gather_on_all(recorder, own, fields, &calls)?.map(|parts| parts.array))
    }

    /// Gives every rank the arrays of all ranks, of any lengths, in the order of ranks.
    ///
    /// # Errors
    /// Same as [`all_gather`](Self::all_gather).
    pub fn all_gather_v<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        own: &Array<T>,
        fields: u64,
    ) -> Pending<DeviceParts<T>> {
        let (call, valid) = gathering("all_gather_v", own, fields);
        let calls = self.agree(recorder, call, Some(own), valid)?;
        self.gather_on_all(recorder, own, fields, &calls)
    }

    /// Gives `root` the arrays of all ranks, of one length, in the order of ranks, and the others
    /// nothing.
    ///
    /// # Errors
    /// Same as [`all_gather`](Self::all_gather).
    pub fn gather<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        root: usize,
        own: &Array<T>,
        fields: u64,
    ) -> Pending<Option<Array<T>>> {
        let (call, valid) = gathering("gather", own, fields);
        let valid = valid.and_then(|()| self.valid_rank("the root of gather", root));
        let calls = self.agree(recorder, call.equal().root(root), Some(own), valid)?;
        Ok(self.gather_on(recorder, root, own, fields, &calls)?.map(|parts| parts.map(|parts| parts.array)))
    }

    /// Gives `root` the arrays of all ranks, of any lengths, in the order of ranks, and the others
    /// nothing.
    ///
    /// # Errors
    /// Same as [`all_gather`](Self::all_gather).
    pub fn gather_v<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        root: usize,
        own: &Array<T>,
        fields: u64,
    ) -> Pending<Option<DeviceParts<T>>> {
        let (call, valid) = gathering("gather_v", own, fields);
        let valid = valid.and_then(|()| self.valid_rank("the root of gather_v", root));
        let calls = self.agree(recorder, call.root(root), Some(own), valid)?;
        self.gather_on(recorder, root, own, fields, &calls)
    }

    /// Gives each rank one of the equal parts that each field of the root's array is cut into.
    ///
    /// # Errors
    /// Same as [`broadcast`](Self::broadcast).
    pub fn scatter<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        root: usize,
        array: Option<&Array<T>>,
        fields: u64,
    ) -> Pending<Array<T>> {
        let size = self.comm().size() as u64;
        let each = array.map_or(Ok(0), |array| per_field(array.len(), fields.saturating_mul(size)));
        let valid = self.valid_root("the root of scatter", root, array.is_some());
        let (each, valid) = both(each, valid);
        let call = Call::new("scatter", T::ELEMENT.wgsl(), fields, each).root(root);
        let calls = self.agree(recorder, call, array, valid)?;
        self.scatter_parts(recorder, root, array, fields, &vec![calls[root].own; size as usize])
    }

    /// Gives each rank its part of each field of the root's array, with the elements of a field
    /// that each rank gets.
    ///
    /// # Errors
    /// Same as [`broadcast`](Self::broadcast).
    pub fn scatter_v<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        root: usize,
        array: Option<(&Array<T>, &[u64])>,
        fields: u64,
    ) -> Pending<Array<T>> {
        let valid = self.valid_root("the root of scatter_v", root, array.is_some());
        let fit = array.map_or(Ok(()), |(array, counts)| self.valid_counts(array.len(), counts, fields));
        let own = array.map_or(0, |(array, _)| array.len() / fields.max(1));
        let call = Call::new("scatter_v", T::ELEMENT.wgsl(), fields, own).root(root);
        let (array, counts) = array.map_or((None, None), |(array, counts)| (Some(array), Some(counts)));
        self.agree(recorder, call, array, valid.and(fit))?;
        let mine = self.comm().scatter(root, counts)?;
        let mut all = counts.map_or_else(|| vec![0; self.comm().size()], <[u64]>::to_vec);
        all[self.comm().rank()] = mine[0];
        self.scatter_parts(recorder, root, array, fields, &all)
    }

    /// Gives each rank its one of the equal parts that each field of every rank's array is cut
    /// into; the parts that come stand in the order of ranks. Arrays have one length.
    ///
    /// # Errors
    /// Same as [`all_gather`](Self::all_gather).
    pub fn all_to_all<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<T>,
        fields: u64,
    ) -> Pending<Array<T>> {
        let size = self.comm().size();
        let (each, valid) = both(per_field(array.len(), fields.saturating_mul(size as u64)), Ok(()));
        let call = Call::new("all_to_all", T::ELEMENT.wgsl(), fields, each).equal();
        self.agree(recorder, call, Some(array), valid)?;
        let counts = vec![each; size];
        Ok(self.exchange_parts(recorder, array, fields, [&counts, &counts])?.map(|parts| parts.array))
    }

    /// Gives each rank its part of each field of every rank's array, of `counts[rank]` elements;
    /// the parts that come stand in the order of ranks.
    ///
    /// # Errors
    /// Same as [`all_gather`](Self::all_gather).
    pub fn all_to_all_v<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<T>,
        counts: &[u64],
        fields: u64,
    ) -> Pending<DeviceParts<T>> {
        let valid = self.valid_counts(array.len(), counts, fields);
        let call = Call::new("all_to_all_v", T::ELEMENT.wgsl(), fields, array.len() / fields.max(1));
        let calls = self.agree(recorder, call, Some(array), valid)?;
        let incoming = self.comm().all_to_all(counts)?;
        // If all arrays together are not longer than one may be, no rank gets more.
        if calls.iter().fold(0u64, |sum, call| sum.saturating_add(call.own)).saturating_mul(fields) > LONGEST {
            let mut most = [incoming.iter().fold(0u64, |sum, &count| sum.saturating_add(count)).saturating_mul(fields)];
            self.comm().all_reduce(&mut most, Op::Max)?;
            allowed_len("all_to_all", most[0])?;
        }
        self.exchange_parts(recorder, array, fields, [counts, &incoming])
    }

    /// Sends an array to one rank, if `to` names one, and gives that of another, if `from` does:
    /// shifts, rings, permutations of ranks. Who sends to a rank must be who that rank receives
    /// from.
    ///
    /// # Errors
    /// Same as [`all_gather`](Self::all_gather);
    /// [`DeviceError::Misuse`](crate::gpu::DeviceError::Misuse) on all ranks where senders and
    /// receivers do not fit each other.
    pub fn send_receive<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        to: Option<(usize, &Array<T>)>,
        from: Option<usize>,
    ) -> Pending<Option<Array<T>>> {
        let array = to.map(|(_, array)| array);
        let call = Call::new("send_receive", T::ELEMENT.wgsl(), 1, array.map_or(0, Array::len));
        let peer = to.map(|(peer, _)| peer);
        let valid = peer.into_iter().chain(from).try_for_each(|peer| self.valid_rank("send_receive", peer));
        let calls = self.agree(recorder, call.between(peer, from), array, valid)?;
        fitting(&calls)?;
        let gpu = recorder.gpu();
        let len = from.map_or(0, |from| calls[from].own);
        let incoming = gpu.array_in("collectives::incoming", len, MemoryKind::Incoming)?;
        let outgoing = array.cloned().map_or_else(|| gpu.array("collectives::nothing", 0), Ok)?;
        let whole = |peer, len| Transfer { peer, start: 0, len };
        let transfers = Transfers {
            send: to.map(|(to, array)| whole(to, array.len())).into_iter().collect(),
            receive: from.map(|from| whole(from, len)).into_iter().collect(),
        };
        let pending = self.exchange.start(recorder, &transfers, &outgoing, &incoming)?;
        let result = from.map(|_| incoming);
        Ok(PendingCollective::new(Stage::moving(pending, move |_| Ok(Stage::Done(result)))))
    }

    /// Returns all parts on every rank.
    fn gather_on_all<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        own: &Array<T>,
        fields: u64,
        calls: &[Call],
    ) -> Pending<DeviceParts<T>> {
        let counts: Vec<u64> = calls.iter().map(|call| call.own).collect();
        let batch = Batch::new(fields, counts.iter().copied());
        let len = allowed_len("all_gather", batch.len())?;
        let incoming = recorder.gpu().array_in("collectives::incoming", len, MemoryKind::Incoming)?;
        let copies = self.copies.clone();
        if are_short(len * T::ELEMENT.bytes(), self.comm().size()) {
            short_collectives::all_gather(recorder, self.comm(), own, &incoming)?;
            let array = batch.unpacked(recorder, &copies, incoming)?;
            return Ok(PendingCollective::done(DeviceParts { array, counts }));
        }
        let send = (0..counts.len()).map(|peer| Transfer { peer, start: 0, len: own.len() }).collect();
        let transfers = Transfers { send, receive: batch.transfers() };
        let pending = self.exchange.start(recorder, &transfers, own, &incoming)?;
        Ok(PendingCollective::new(Stage::moving(pending, move |recorder| {
            let array = batch.unpacked(recorder, &copies, incoming)?;
            Ok(Stage::Done(DeviceParts { array, counts }))
        })))
    }

    /// Returns all parts on `root`.
    fn gather_on<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        root: usize,
        own: &Array<T>,
        fields: u64,
        calls: &[Call],
    ) -> Pending<Option<DeviceParts<T>>> {
        let counts: Vec<u64> = calls.iter().map(|call| call.own).collect();
        let (batch, at_root) = (Batch::new(fields, counts.iter().copied()), self.comm().rank() == root);
        let len = allowed_len("gather", batch.len())?;
        let (len, receive) = if at_root { (len, batch.transfers()) } else { (0, Vec::new()) };
        let incoming = recorder.gpu().array_in("collectives::incoming", len, MemoryKind::Incoming)?;
        let transfers = Transfers { send: vec![Transfer { peer: root, start: 0, len: own.len() }], receive };
        let pending = self.exchange.start(recorder, &transfers, own, &incoming)?;
        let copies = self.copies.clone();
        Ok(PendingCollective::new(Stage::moving(pending, move |recorder| {
            if !at_root {
                return Ok(Stage::Done(None));
            }
            let array = batch.unpacked(recorder, &copies, incoming)?;
            Ok(Stage::Done(Some(DeviceParts { array, counts })))
        })))
    }

    /// This rank's part of what `root` has; `counts` are right for this rank, and at the root for
    /// all.
    fn scatter_parts<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        root: usize,
        array: Option<&Array<T>>,
        fields: u64,
        counts: &[u64],
    ) -> Pending<Array<T>> {
        let (batch, me) = (Batch::new(fields, counts.iter().copied()), self.comm().rank());
        let len = fields * batch.count(me);
        let gpu = recorder.gpu().clone();
        let incoming = gpu.array_in("collectives::incoming", len, MemoryKind::Incoming)?;
        let (outgoing, send) = match array {
            Some(array) => (batch.packed(recorder, &self.copies, array)?, batch.transfers()),
            None => (gpu.array("collectives::nothing", 0)?, Vec::new()),
        };
        let transfers = Transfers { send, receive: vec![Transfer { peer: root, start: 0, len }] };
        let pending = self.exchange.start(recorder, &transfers, &outgoing, &incoming)?;
        Ok(PendingCollective::new(Stage::moving(pending, move |_| Ok(Stage::Done(incoming)))))
    }

    /// Returns the parts of a field to each rank, and from each, with these numbers of elements.
    fn exchange_parts<T: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        array: &Array<T>,
        fields: u64,
        [outgoing, incoming]: [&[u64]; 2],
    ) -> Pending<DeviceParts<T>> {
        let (before, after) =
            (Batch::new(fields, outgoing.iter().copied()), Batch::new(fields, incoming.iter().copied()));
        let message = before.packed(recorder, &self.copies, array)?;
        let came = recorder.gpu().array_in("collectives::incoming", after.len(), MemoryKind::Incoming)?;
        let transfers = Transfers { send: before.transfers(), receive: after.transfers() };
        let pending = self.exchange.start(recorder, &transfers, &message, &came)?;
        let (copies, counts) = (self.copies.clone(), incoming.to_vec());
        Ok(PendingCollective::new(Stage::moving(pending, move |recorder| {
            let array = after.unpacked(recorder, &copies, came)?;
            Ok(Stage::Done(DeviceParts { array, counts }))
        })))
    }

    pub(super) fn valid_rank(&self, what: &'static str, named: usize) -> Result<(), ExchangeError> {
        let (rank, size) = (self.comm().rank(), self.comm().size());
        if named < size { Ok(()) } else { Err(CommError::BadRank { rank, what, named, size }.into()) }
    }

    /// Checks that `root` is a rank, and that only it passes an array.
    fn valid_root(&self, what: &'static str, root: usize, given: bool) -> Result<(), ExchangeError> {
        self.valid_rank(what, root)?;
        match (self.comm().rank() == root, given) {
            (true, false) => Err(misuse(format!("rank {root} is {what} and gives no array"))),
            (false, true) => Err(misuse(format!("rank {} gives an array, rank {root} is {what}", self.comm().rank()))),
            _ => Ok(()),
        }
    }

    /// Checks that there is a count for each rank, and that fields have this length.
    pub(super) fn valid_counts(&self, len: u64, counts: &[u64], fields: u64) -> Result<(), ExchangeError> {
        let size = self.comm().size();
        let sum = counts.iter().fold(0u64, |sum, &count| sum.saturating_add(count));
        if counts.len() == size && fields > 0 && sum.saturating_mul(fields) == len {
            return Ok(());
        }
        let why = format!("{} counts with the sum {sum}, for {fields} fields of {len} elements in all", counts.len());
        Err(misuse(format!("{why}; there are {size} ranks, and counts are those of one field")))
    }
}

/// Returns the call of a gather, and whether its array has whole fields.
fn gathering<T: DeviceElement>(operation: &str, own: &Array<T>, fields: u64) -> (Call, Result<(), ExchangeError>) {
    let (each, valid) = both(per_field(own.len(), fields), Ok(()));
    (Call::new(operation, T::ELEMENT.wgsl(), fields, each), valid)
}

/// A number, 0 where it is none, and what is wrong, if anything is.
pub(super) fn both(
    number: Result<u64, ExchangeError>,
    valid: Result<(), ExchangeError>,
) -> (u64, Result<(), ExchangeError>) {
    match number {
        Ok(number) => (number, valid),
        Err(error) => (0, valid.and(Err(error))),
    }
}

/// Checks that each rank receives from the one that sends to it.
fn fitting(calls: &[Call]) -> Result<(), ExchangeError> {
    for (rank, call) in calls.iter().enumerate() {
        let [to, from] = call.named_peers();
        let names = |peer: usize, direction: usize| calls[peer].named_peers()[direction] == Some(rank);
        if let Some(to) = to.filter(|&to| !names(to, 1)) {
            return Err(misuse(format!("rank {rank} sends to rank {to}, which does not receive from it")));
        }
        if let Some(from) = from.filter(|&from| !names(from, 0)) {
            return Err(misuse(format!("rank {rank} receives from rank {from}, which does not send to it")));
        }
    }
    Ok(())
}
