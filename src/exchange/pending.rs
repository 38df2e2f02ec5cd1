//! An exchange in flight.

use std::collections::VecDeque;

use tracing::span::EnteredSpan;

use super::channel::{Channel, ChunkedArray};
use super::error::ExchangeError;
use super::receiver::Receiver;
use super::sender::Sender;
use super::wire::Decoding;
use crate::comm::{Backoff, Blocked, ExchangeWait};
use crate::gpu::{Gpu, Profile, Recorder};
use crate::timeline;

/// An exchange in flight; see [`Exchange::start`](super::Exchange::start).
///
/// - Messages move only inside the calls of this type: between pieces of other work, call
///   [`progress`](Self::progress).
/// - Its two arrays are its own until it [is done](Self::is_done): work with them is refused. What
///   is recorded from then on sees the data; where values travel in another form
///   ([`Wire`](super::Wire)), their decoding is recorded when it becomes done.
/// - Dropping it before gives its arrays and buffers back, waiting for the device if need be, and
///   as soon as no message uses them. What it should have received is lost, and the other ranks
///   wait for what it should have sent: do it on all ranks, or when the run ends anyway.
///
/// ```
/// use std::collections::VecDeque;
/// use meshloom::gpu::{Gpu, MemoryKind, Options, Recorder};
/// use meshloom::exchange::{Exchange, ExchangeError, PendingExchange};
/// use meshloom::grid::{Transfer, Transfers};
///
/// let received = meshloom::comm::run_threads(2, |comm| {
///     let gpu = Gpu::open(&Options::from_env()?, comm.rank())?;
///     let (mut recorder, mut exchange) = (Recorder::new(&gpu)?, Exchange::new(comm.clone()));
///     let part = Transfer { peer: 1 - comm.rank(), start: 0, len: 5 };
///     let transfers = Transfers { send: vec![part], receive: vec![part] };
///     let (mut in_flight, mut arrays) = (VecDeque::new(), Vec::new());
///     for piece in 0..3 {
///         let outgoing = gpu.array_in::<u32>("outgoing", 5, MemoryKind::Outgoing)?;
///         let incoming = gpu.array_in::<u32>("incoming", 5, MemoryKind::Incoming)?;
///         // Here kernels would work, while the pieces before travel.
///         recorder.upload(&outgoing, 0, &[10 * piece + comm.rank() as u32; 5])?;
///         in_flight.push_back(exchange.start(&mut recorder, &transfers, &outgoing, &incoming)?);
///         arrays.push(incoming);
///     }
///     let mut received = Vec::new();
///     for incoming in &arrays {
///         PendingExchange::finish_first(&mut in_flight, &mut recorder)?;
///         received.push(recorder.download(incoming, 4, 1)?[0]);
///     }
///     Ok::<_, ExchangeError>(received)
/// })?;
/// assert_eq!(received, [[1, 11, 21], [0, 10, 20]]);
/// # Ok::<(), meshloom::comm::RunError>(())
/// ```
#[must_use = "an exchange that is dropped does not take place"]
pub struct PendingExchange {
    channel: Channel,
    sender: Sender,
    receiver: Receiver,
    /// Work that is recorded when all messages have arrived.
    decoding: Option<Decoding>,
}

impl PendingExchange {
    pub(super) fn new(
        recorder: &mut Recorder,
        channel: &Channel,
        outgoing: ChunkedArray,
        incoming: ChunkedArray,
        decoding: Option<Decoding>,
    ) -> Result<Self, ExchangeError> {
        let mut pending = PendingExchange {
            channel: channel.clone(),
            sender: Sender::new(recorder, channel.clone(), outgoing)?,
            receiver: Receiver::new(recorder, channel.clone(), incoming)?,
            decoding,
        };
        // Copies to staging buffers must be ahead of what the caller records next.
        pending.progress(recorder)?;
        Ok(pending)
    }

    /// Does what can be done without waiting; true if something moved.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails, or has started another exchange;
    /// drop the pending exchange then.
    pub fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        if self.awaits_device() {
            recorder.poll()?;
        }
        let moved = self.sender.progress(recorder)? | self.receiver.progress(recorder)?;
        if self.receiver.done()
            && let Some(decoding) = self.decoding.take()
        {
            decoding.record(recorder)?;
        }
        Ok(moved)
    }

    fn awaits_device(&self) -> bool {
        self.sender.awaits_device() || self.receiver.awaits_device()
    }

    /// Returns the wait for other ranks.
    fn wait(&self) -> ExchangeWait {
        let Channel { comm, tag, subject, .. } = &self.channel;
        comm.exchange_wait(*tag, *subject, self.sender.peer(), self.receiver.peer())
    }

    /// Enters a span for a wait for the device or, if that has nothing to do, for another rank.
    fn waiting(&self) -> EnteredSpan {
        match self.receiver.peer().or(self.sender.peer()) {
            Some(peer) if !self.sender.awaits_device() => timeline::activity!("wait for rank", peer),
            _ => timeline::activity!("wait for device"),
        }
    }

    /// Returns `true` if all is moved.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.sender.done() && self.receiver.done() && self.decoding.is_none()
    }

    /// Waits until all is moved: work recorded afterwards sees the data. What was recorded before
    /// is submitted if this waits, so that the device works meanwhile; work with arrays that are on
    /// their way stays recorded.
    ///
    /// Other exchanges in flight do not move meanwhile. Where several are in flight, all ranks
    /// finish them in the same order, or use [`finish_first`](Self::finish_first); otherwise they
    /// may wait for each other, which is an error.
    ///
    /// # Errors
    /// - [`CommError::Deadlock`](crate::comm::CommError::Deadlock) if ranks wait for each other here
    ///   and in other calls.
    /// - As [`progress`](Self::progress).
    pub fn finish(self, recorder: &mut Recorder) -> Result<(), ExchangeError> {
        Self::finish_first(&mut VecDeque::from([self]), recorder).map(drop)
    }

    /// Waits until the first of `in_flight` is done and takes it out; all of them move meanwhile.
    /// False if there are none. Submits as [`finish`](Self::finish).
    ///
    /// # Errors
    /// Same as [`finish`](Self::finish).
    pub fn finish_first(
        in_flight: &mut VecDeque<PendingExchange>,
        recorder: &mut Recorder,
    ) -> Result<bool, ExchangeError> {
        let _activity = timeline::activity!("exchange");
        let mut pauses = Pauses::default();
        while let Some(first) = in_flight.front()
            && !first.is_done()
        {
            let mut moved = false;
            for pending in in_flight.iter_mut() {
                moved |= pending.progress(recorder)?;
            }
            if moved {
                pauses = Pauses::default();
            } else {
                recorder.submit_meanwhile()?;
                pauses.pause(recorder.gpu(), &*in_flight);
            }
        }
        drop(pauses);
        Ok(in_flight.pop_front().is_some())
    }
}

/// The pauses of a wait in which exchanges move but nothing has moved.
#[derive(Default)]
pub(super) struct Pauses {
    backoff: Backoff,
    activity: Option<EnteredSpan>,
    waits: Vec<ExchangeWait>,
    blocked: Option<Blocked>,
}

impl Pauses {
    /// Pauses a wait for the first of `in_flight`. If it is a long one, and for other ranks, they
    /// can see that this rank waits for them.
    pub fn pause<'a>(&mut self, gpu: &Gpu, in_flight: impl IntoIterator<Item = &'a PendingExchange> + Copy) {
        let awaits_device = in_flight.into_iter().any(PendingExchange::awaits_device);
        if let Some(first) = in_flight.into_iter().next() {
            self.activity.get_or_insert_with(|| first.waiting());
        }
        if self.backoff.is_long() {
            // An exchange that awaits the device may do the next step without another rank.
            let waits = match awaits_device {
                true => Vec::new(),
                false => in_flight.into_iter().map(PendingExchange::wait).collect(),
            };
            if waits != self.waits {
                self.blocked = ExchangeWait::begin(&waits);
                self.waits = waits;
            }
        }
        if awaits_device && gpu.capabilities().profile == Profile::Software {
            self.backoff.pause_for_cores();
        } else {
            self.backoff.pause();
        }
    }
}
