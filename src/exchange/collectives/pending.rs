//! A collective in flight.

use std::fmt;

use crate::exchange::pending::Pauses;
use crate::exchange::{ExchangeError, PendingExchange};
use crate::gpu::{DeviceError, Recorder};

/// A collective that has begun.
pub(super) type Pending<O> = Result<PendingCollective<O>, ExchangeError>;

/// Work that follows an exchange.
type Then<O> = Box<dyn FnOnce(&mut Recorder) -> Result<Stage<O>, ExchangeError>>;

/// Stage of a collective.
pub(super) enum Stage<O> {
    /// Data are on their way; what follows them.
    Moving(Box<PendingExchange>, Then<O>),
    /// All is done.
    Done(O),
}

impl<O> Stage<O> {
    pub fn moving(
        pending: PendingExchange,
        then: impl FnOnce(&mut Recorder) -> Result<Stage<O>, ExchangeError> + 'static,
    ) -> Self {
        Stage::Moving(Box::new(pending), Box::new(then))
    }
}

/// A collective of device arrays in flight, which gives its result when it [is
/// finished](Self::finish).
///
/// - What it sends is its own until then: work that is recorded with those arrays is refused when
///   it is submitted.
/// - Data move only inside the calls of this type: between pieces of other work, call
///   [`progress`](Self::progress).
/// - Several may be in flight. All ranks start them in the same order and finish them in the same
///   order, or move all of them by `progress` until they are done.
/// - Dropping it gives its arrays back; other ranks wait for what it should have sent: do it on all
///   ranks, or when the run ends anyway.
#[must_use = "a collective that is dropped does not take place"]
pub struct PendingCollective<O> {
    /// `None` after an error.
    stage: Option<Stage<O>>,
}

impl<O> fmt::Debug for PendingCollective<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCollective").field("done", &self.is_done()).finish()
    }
}

impl<O> PendingCollective<O> {
    pub(super) fn new(stage: Stage<O>) -> Self {
        PendingCollective { stage: Some(stage) }
    }

    pub(super) fn done(result: O) -> Self {
        Self::new(Stage::Done(result))
    }

    /// Does what can be done without waiting; true if something moved.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; drop it then.
    pub fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let mut moved = false;
        loop {
            match self.stage.take() {
                Some(Stage::Moving(mut pending, then)) => {
                    moved |= pending.progress(recorder)?;
                    if !pending.is_done() {
                        self.stage = Some(Stage::Moving(pending, then));
                        return Ok(moved);
                    }
                    self.stage = Some(then(recorder)?);
                    moved = true;
                }
                Some(done) => {
                    self.stage = Some(done);
                    return Ok(moved);
                }
                None => return Err(failed()),
            }
        }
    }

    /// Returns `true` if all is moved, so that [`finish`](Self::finish) returns at once.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Some(Stage::Done(_)))
    }

    /// Waits until all is moved and returns the result, which work sees that is recorded
    /// afterwards. Submits what was recorded before if it waits, so that the device works
    /// meanwhile.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails.
    pub fn finish(mut self, recorder: &mut Recorder) -> Result<O, ExchangeError> {
        let mut pauses = Pauses::default();
        while !self.is_done() {
            if self.progress(recorder)? {
                pauses = Pauses::default();
            } else {
                recorder.submit_meanwhile()?;
                if let Some(Stage::Moving(pending, _)) = &self.stage {
                    pauses.pause(recorder.gpu(), [&**pending]);
                }
            }
        }
        drop(pauses);
        match self.stage {
            Some(Stage::Done(result)) => Ok(result),
            _ => Err(failed()),
        }
    }

    /// Changes the result.
    pub(super) fn map<P: 'static>(self, change: impl FnOnce(O) -> P + 'static) -> PendingCollective<P>
    where
        O: 'static,
    {
        PendingCollective { stage: self.stage.map(|stage| changed(stage, change)) }
    }
}

fn changed<O: 'static, P: 'static>(stage: Stage<O>, change: impl FnOnce(O) -> P + 'static) -> Stage<P> {
    match stage {
        Stage::Done(result) => Stage::Done(change(result)),
        Stage::Moving(pending, then) => {
            Stage::Moving(pending, Box::new(move |recorder| Ok(changed(then(recorder)?, change))))
        }
    }
}

fn failed() -> ExchangeError {
    DeviceError::misuse("PendingCollective", "it has failed before; drop it").into()
}
