//! Messages waiting for one rank of this process, matched in posting order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::transport::{Arrived, Lane};
use super::{CommError, Result};

/// How often a wait asks whether it can still end. What it asks costs two locks.
const RECHECK: Duration = Duration::from_millis(100);

/// Where a message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The communicator.
    pub context: u64,
    /// The sender, counted in that communicator.
    pub from: usize,
    /// The stream.
    pub lane: Lane,
}

/// Of the two queues of a key at most one is filled.
#[derive(Default)]
struct Queue {
    arrived: VecDeque<Vec<u8>>,
    waiting: VecDeque<u64>,
}

#[derive(Default)]
struct State {
    queues: HashMap<Key, Queue>,
    matched: HashMap<u64, Vec<u8>>,
    next_ticket: u64,
}

/// All that has been sent to one rank or that it waits for.
#[derive(Default)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so a poisoned state is still a sound one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a message in.
    pub fn deliver(&self, key: Key, data: Vec<u8>) {
        let mut state = self.lock();
        let queue = state.queues.entry(key).or_default();
        match queue.waiting.pop_front() {
            Some(ticket) => {
                if queue.waiting.is_empty() {
                    state.queues.remove(&key);
                }
                state.matched.insert(ticket, data);
            }
            None => queue.arrived.push_back(data),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Asks for the next message of a key.
    pub fn post(&self, key: Key) -> u64 {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let queue = state.queues.entry(key).or_default();
        match queue.arrived.pop_front() {
            Some(data) => {
                if queue.arrived.is_empty() {
                    state.queues.remove(&key);
                }
                state.matched.insert(ticket, data);
            }
            None => queue.waiting.push_back(ticket),
        }
        ticket
    }

    /// Whether the message of a ticket is there; asks `stop` where it is not.
    pub fn is_matched(&self, ticket: u64, stop: impl Fn() -> Option<CommError>) -> Result<bool> {
        // The lock is held over both questions: a peer that sends and then leaves must not be seen to have left first.
        let state = self.lock();
        if state.matched.contains_key(&ticket) {
            return Ok(true);
        }
        stop().map_or(Ok(false), Err)
    }

    /// Waits for the message of a ticket, or until `stop` gives a reason not to. `stop` is asked at every change, after
    /// [`wake`](Mailbox::wake), and now and then.
    pub fn wait(&self, ticket: u64, stop: impl Fn() -> Option<CommError>) -> Result<Arrived> {
        let mut state = self.lock();
        loop {
            if let Some(data) = state.matched.remove(&ticket) {
                return Ok(Arrived::whole(data));
            }
            // Asked with the lock held: `wake` takes it too, so a change cannot slip in before the wait begins.
            if let Some(error) = stop() {
                return Err(error);
            }
            state = self.changed.wait_timeout(state, RECHECK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Forgets a ticket; a message already matched to it is dropped.
    pub fn cancel(&self, key: Key, ticket: u64) {
        let mut state = self.lock();
        if state.matched.remove(&ticket).is_some() {
            return;
        }
        if let Some(queue) = state.queues.get_mut(&key) {
            queue.waiting.retain(|&waiting| waiting != ticket);
            if queue.waiting.is_empty() && queue.arrived.is_empty() {
                state.queues.remove(&key);
            }
        }
    }

    /// How many messages of collectives lie here that nobody has asked for.
    pub fn untaken(&self) -> u64 {
        let state = self.lock();
        let collective = state.queues.iter().filter(|(key, _)| key.lane == Lane::Collective);
        collective.map(|(_, queue)| queue.arrived.len() as u64).sum()
    }

    /// Makes every wait ask its `stop` again.
    pub fn wake(&self) {
        let _state = self.lock();
        self.changed.notify_all();
    }
}
