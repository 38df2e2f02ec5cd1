//! Messages for one rank of this process, matched with its receives in the order of posting.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{Arrived, CommError, Lane, Payload, Result, Target};
use crate::parallel::locked;

/// Interval at which a wait checks whether its message can still come, which takes two locks.
const RECHECK: Duration = Duration::from_millis(100);

/// The stream that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The communicator.
    pub context: u64,
    /// The sender, counted in that communicator.
    pub from: usize,
    /// The lane.
    pub lane: Lane,
}

/// A message that no receive was posted for.
struct Parcel {
    payload: Payload,
    /// Set when memory of the sender is used no more.
    taken: Option<Arc<AtomicBool>>,
}

/// The messages of a key that no receive was posted for, and the receives that have no message: one
/// of the two is empty.
#[derive(Default)]
struct Queue {
    arrived: VecDeque<Parcel>,
    waiting: VecDeque<(u64, Target)>,
}

#[derive(Default)]
struct State {
    queues: HashMap<Key, Queue>,
    /// Receives whose message is being copied to where they want it.
    filling: HashSet<u64>,
    matched: HashMap<u64, Arrived>,
    next_ticket: u64,
    /// Threads that sleep in [`Mailbox::wait`]: a wake is a call of the kernel.
    sleepers: usize,
}

/// The messages sent to one rank and the receives that it has posted.
#[derive(Default)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl Mailbox {
    /// Delivers a message: to the receive that waits for it, or else for one that will. Memory of
    /// others is copied to its receiver only: where that is still to come, returns what is set when
    /// it has been.
    pub fn deliver(&self, key: Key, payload: Payload) -> Option<Arc<AtomicBool>> {
        let mut state = locked(&self.state);
        let queue = state.queues.entry(key).or_default();
        let Some((ticket, target)) = queue.waiting.pop_front() else {
            let taken = matches!(payload, Payload::Span(_)).then(Arc::default);
            queue.arrived.push_back(Parcel { payload, taken: taken.clone() });
            return taken;
        };
        if queue.waiting.is_empty() {
            state.queues.remove(&key);
        }
        state.filling.insert(ticket);
        drop(state);
        let arrived = Arrived::delivered(payload, target);
        let mut state = locked(&self.state);
        if state.filling.remove(&ticket) {
            state.matched.insert(ticket, arrived);
        }
        let wakes = state.sleepers > 0;
        drop(state);
        if wakes {
            self.changed.notify_all();
        }
        None
    }

    /// Posts a receive of the next message of a key; returns its ticket.
    pub fn post(&self, key: Key, target: Target) -> u64 {
        let mut state = locked(&self.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let queue = state.queues.entry(key).or_default();
        let Some(Parcel { payload, taken }) = queue.arrived.pop_front() else {
            queue.waiting.push_back((ticket, target));
            return ticket;
        };
        if queue.arrived.is_empty() {
            state.queues.remove(&key);
        }
        drop(state);
        let arrived = Arrived::delivered(payload, target);
        if let Some(taken) = taken {
            taken.store(true, Ordering::Release);
        }
        locked(&self.state).matched.insert(ticket, arrived);
        ticket
    }

    /// Returns whether the message of a ticket is there. If not, `stop` may return why it cannot
    /// come.
    pub fn is_matched(&self, ticket: u64, stop: impl Fn() -> Option<CommError>) -> Result<bool> {
        // The lock is held for both checks: a peer that sends and then leaves must not be seen to
        // have left first.
        let state = locked(&self.state);
        if state.matched.contains_key(&ticket) {
            return Ok(true);
        }
        if state.filling.contains(&ticket) {
            return Ok(false);
        }
        stop().map_or(Ok(false), Err)
    }

    /// Waits for the message of a ticket, or until `stop` returns why it cannot come. `stop` is
    /// called at every change, after [`wake`](Mailbox::wake), and every [`RECHECK`].
    pub fn wait(&self, ticket: u64, stop: impl Fn() -> Option<CommError>) -> Result<Arrived> {
        let mut state = locked(&self.state);
        loop {
            if let Some(arrived) = state.matched.remove(&ticket) {
                return Ok(arrived);
            }
            // Called with the lock held, which `wake` takes too: no change is missed before the
            // wait begins.
            if !state.filling.contains(&ticket)
                && let Some(error) = stop()
            {
                return Err(error);
            }
            state.sleepers += 1;
            state = self.changed.wait_timeout(state, RECHECK).unwrap_or_else(PoisonError::into_inner).0;
            state.sleepers -= 1;
        }
    }

    /// Cancels a receive; a message already matched to it is dropped.
    pub fn cancel(&self, key: Key, ticket: u64) {
        let mut state = locked(&self.state);
        if state.filling.remove(&ticket) || state.matched.remove(&ticket).is_some() {
            return;
        }
        if let Some(queue) = state.queues.get_mut(&key) {
            queue.waiting.retain(|(waiting, _)| *waiting != ticket);
            if queue.waiting.is_empty() && queue.arrived.is_empty() {
                state.queues.remove(&key);
            }
        }
    }

    /// Returns the number of messages of collectives that no receive was posted for.
    pub fn untaken(&self) -> u64 {
        let state = locked(&self.state);
        let collective = state.queues.iter().filter(|(key, _)| key.lane == Lane::Collective);
        collective.map(|(_, queue)| queue.arrived.len() as u64).sum()
    }

    /// Makes every wait call its `stop` again.
    pub fn wake(&self) {
        let _state = locked(&self.state);
        self.changed.notify_all();
    }
}
