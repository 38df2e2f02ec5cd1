//! The backend of ranks that are threads of one process: a mailbox per rank; vectors move without a
//! copy, and from memory of one rank to memory of another one copy is made.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::call::Call;
use super::gone::Gone;
use super::lane::Lane;
use super::mailbox::{Key, Mailbox};
use super::mismatch::{Did, Differing, Mismatch};
use super::sync::{Backoff, locked};
use super::transport::{Arrived, Group, Payload, Pending, Sent, Target, Transport};
use super::{CommError, Result};

/// Time for a rank that has dropped a communicator, or has found a mismatch in it, to report why.
const GRACE: Duration = Duration::from_secs(2);

/// The state of a rank's body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Left,
    Failed,
}

struct Status {
    /// The first failure, with its rank.
    first: Option<(usize, String)>,
    ranks: Vec<State>,
}

/// State shared by the ranks of one run. Lock order: first a mailbox, then any one of the others.
pub(super) struct World {
    mailboxes: Vec<Mailbox>,
    status: Mutex<Status>,
    /// The communicators that some rank has, by their numbers.
    contexts: Mutex<HashMap<u64, Arc<CommState>>>,
    next_context: AtomicU64,
}

impl World {
    pub fn new(ranks: usize) -> World {
        World {
            mailboxes: (0..ranks).map(|_| Mailbox::default()).collect(),
            status: Mutex::new(Status { first: None, ranks: vec![State::Running; ranks] }),
            contexts: Mutex::default(),
            next_context: AtomicU64::new(1),
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        locked(&self.status)
    }

    fn wake_all(&self) {
        self.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Notes that a rank failed and ends all waits.
    pub fn fail(&self, rank: usize, message: &str) {
        let mut status = self.status();
        status.ranks[rank] = State::Failed;
        status.first.get_or_insert_with(|| (rank, message.to_owned()));
        drop(status);
        self.wake_all();
    }

    /// Notes that a rank has returned from its body and ends the waits for it.
    pub fn leave(&self, rank: usize) {
        self.status().ranks[rank] = State::Left;
        self.wake_all();
    }

    /// Returns the first failure so far.
    pub fn first_failure(&self) -> Option<(usize, String)> {
        self.status().first.clone()
    }

    /// Returns the number of messages of collectives that no rank has received.
    pub fn untaken(&self) -> u64 {
        self.mailboxes.iter().map(Mailbox::untaken).sum()
    }

    /// Returns whether and how a rank is gone whose last call in a communicator is `last_call`.
    fn gone(&self, rank: usize, last_call: LastCall, grace: &Grace) -> Option<Gone> {
        match last_call {
            _ if self.status().ranks[rank] == State::Left => Some(Gone::Left),
            LastCall::Dropped => grace.is_over().then_some(Gone::Dropped),
            _ => None,
        }
    }

    /// Returns the state of the communicator of this number, made by the first of its ranks that
    /// calls this.
    fn join(&self, id: u64, members: impl Fn() -> Vec<usize>) -> Arc<CommState> {
        let make = || {
            let members = members();
            let last_calls = members.iter().map(|_| Mutex::new(LastCall::None)).collect();
            Arc::new(CommState {
                id,
                members,
                last_calls,
                out_of_step: AtomicBool::new(false),
                of_exchanges: Mutex::default(),
            })
        };
        locked(&self.contexts).entry(id).or_insert_with(make).clone()
    }
}

/// Time since a wait has learned that the other rank has ended its part.
#[derive(Default)]
struct Grace(Cell<Option<Instant>>);

impl Grace {
    /// Returns `true` if that rank has had the time to report a failure: a failing rank drops its
    /// communicators just before.
    fn is_over(&self) -> bool {
        let since = self.0.get().unwrap_or_else(Instant::now);
        self.0.set(Some(since));
        since.elapsed() > GRACE
    }
}

/// The last collective that a rank has called in a communicator.
#[derive(Clone, Copy)]
enum LastCall {
    /// No message yet.
    None,
    /// This one, which may be over.
    Called(Call),
    /// One in which it has found this.
    Failed(Mismatch),
    /// The rank has dropped the communicator.
    Dropped,
}

/// State shared by the ranks of one communicator.
struct CommState {
    id: u64,
    /// Its ranks, counted in the whole run.
    members: Vec<usize>,
    last_calls: Vec<Mutex<LastCall>>,
    /// Whether a rank has found a mismatch.
    out_of_step: AtomicBool,
    /// The first mismatch of exchanges.
    of_exchanges: Mutex<Option<Mismatch>>,
}

impl CommState {
    /// Notes what a rank has found, for those that wait for it.
    fn fail(&self, found: &Mismatch) {
        self.out_of_step.store(true, Ordering::Relaxed);
        if found.is_of_exchanges() {
            locked(&self.of_exchanges).get_or_insert(*found);
        } else {
            *locked(&self.last_calls[found.rank]) = LastCall::Failed(*found);
        }
    }

    /// Returns the error of a wait for a message of this lane, if ranks had other exchanges and
    /// enough time to report it.
    fn other_exchange(&self, lane: Lane, grace: &Grace) -> Option<CommError> {
        let found = locked(&self.of_exchanges).filter(|_| lane.is_reserved())?;
        grace.is_over().then(|| found.error())
    }
}

/// One rank's end of a communicator among threads.
pub(super) struct Threads {
    world: Arc<World>,
    context: Arc<CommState>,
    rank: usize,
}

impl Threads {
    /// Returns the communicator of all ranks.
    pub fn world(world: Arc<World>, rank: usize) -> Threads {
        let context = world.join(0, || (0..world.mailboxes.len()).collect());
        Threads { world, context, rank }
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.context.members.len()
    }

    fn rank_in_run(&self, rank: usize) -> usize {
        self.context.members[rank]
    }

    fn begin(&self, call: &Call) {
        *locked(&self.context.last_calls[self.rank]) = LastCall::Called(*call);
    }

    fn announce(&self, found: &Mismatch) {
        self.context.fail(found);
    }

    fn is_out_of_step(&self) -> bool {
        self.context.out_of_step.load(Ordering::Relaxed)
    }

    fn send(&self, to: usize, lane: Lane, data: Payload) -> Result<Box<dyn Pending>> {
        // A rank that only sends has to learn of a failure, too.
        if let Some((rank, message)) = self.world.first_failure() {
            return Err(CommError::PeerFailed { rank, message });
        }
        #[cfg(test)]
        super::traffic::count(match &data {
            Payload::Bytes(data) => data.len(),
            Payload::Span(span) => span.sent().len(),
        });
        let key = Key { context: self.context.id, from: self.rank, lane };
        let Some(taken) = self.world.mailboxes[self.context.members[to]].deliver(key, data) else {
            return Ok(Box::new(Sent));
        };
        let (world, context) = (self.world.clone(), self.context.clone());
        Ok(Box::new(ThreadSend { world, context, lane, to, taken, grace: Grace::default() }))
    }

    fn receive(&self, from: usize, lane: Lane, target: Target) -> Result<Box<dyn Pending>> {
        let key = Key { context: self.context.id, from, lane };
        let me = self.context.members[self.rank];
        let ticket = self.world.mailboxes[me].post(key, target);
        let (world, context) = (self.world.clone(), self.context.clone());
        Ok(Box::new(ThreadReceive { world, context, rank: self.rank, key, ticket, grace: Grace::default() }))
    }

    fn new_context(&self) -> u64 {
        self.world.next_context.fetch_add(1, Ordering::Relaxed)
    }

    fn split(&self, mine: Option<Group>) -> Result<Option<Box<dyn Transport>>> {
        let Some(group) = mine else { return Ok(None) };
        let members = || group.members.iter().map(|&member| self.context.members[member]).collect();
        let context = self.world.join(group.context, members);
        Ok(Some(Box::new(Threads { world: self.world.clone(), context, rank: group.rank })))
    }

    fn abort(&self, message: &str) -> ! {
        self.world.fail(self.context.members[self.rank], message);
        panic!("aborted: {message}")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        *locked(&self.context.last_calls[self.rank]) = LastCall::Dropped;
        let mut contexts = locked(&self.world.contexts);
        if self.context.last_calls.iter().all(|last_call| matches!(*locked(last_call), LastCall::Dropped)) {
            contexts.remove(&self.context.id);
        }
    }
}

/// A send from memory that the receiver has not copied yet.
struct ThreadSend {
    world: Arc<World>,
    context: Arc<CommState>,
    lane: Lane,
    to: usize,
    taken: Arc<AtomicBool>,
    grace: Grace,
}

impl Pending for ThreadSend {
    fn is_done(&mut self) -> Result<bool> {
        let to = self.context.members[self.to];
        let last_call = *locked(&self.context.last_calls[self.to]);
        let (failure, gone) = (self.world.first_failure(), self.world.gone(to, last_call, &self.grace));
        // Asked last: a receiver that takes it and then leaves has taken it.
        if self.taken.load(Ordering::Acquire) {
            return Ok(true);
        }
        match (failure, gone) {
            (Some((rank, message)), _) => Err(CommError::PeerFailed { rank, message }),
            (None, Some(gone)) => Err(gone.in_wait_to_send(to)),
            (None, None) => self.context.other_exchange(self.lane, &self.grace).map_or(Ok(false), Err),
        }
    }

    fn wait(mut self: Box<Self>) -> Result<Arrived> {
        let mut backoff = Backoff::default();
        while !self.is_done()? {
            backoff.pause();
        }
        Ok(Arrived::whole(Vec::new()))
    }
}

struct ThreadReceive {
    world: Arc<World>,
    context: Arc<CommState>,
    rank: usize,
    key: Key,
    ticket: u64,
    grace: Grace,
}

impl ThreadReceive {
    fn mailbox(&self) -> &Mailbox {
        &self.world.mailboxes[self.context.members[self.rank]]
    }

    /// Returns what keeps the sender, whose last call is `theirs`, from sending to this rank, which
    /// is in the collective `mine`.
    fn mismatch(&self, mine: Call, gone: Option<Gone>, theirs: LastCall) -> Option<Mismatch> {
        let did = match (gone, theirs) {
            (Some(gone), _) => Did::Gone(gone),
            (None, LastCall::Called(theirs)) if mine.is_contradicted_by(&theirs) => Did::Called(theirs),
            (None, LastCall::Failed(found)) => {
                return found.as_seen_by(self.rank, &mine).filter(|_| self.grace.is_over());
            }
            _ => return None,
        };
        Some(Mismatch::of_collectives(self.rank, mine, self.key.from, did))
    }

    /// Why the message, which is not in the mailbox, cannot come any more. Sends put it there at
    /// once, so the sender's present state decides.
    fn stop(&self) -> Option<CommError> {
        if let Some((rank, message)) = self.world.first_failure() {
            return Some(CommError::PeerFailed { rank, message });
        }
        let from = self.context.members[self.key.from];
        let last_call = *locked(&self.context.last_calls[self.key.from]);
        let gone = self.world.gone(from, last_call, &self.grace);
        let mine = match *locked(&self.context.last_calls[self.rank]) {
            LastCall::Called(call) | LastCall::Failed(Mismatch { differing: Differing::Collectives(call, _), .. })
                if self.key.lane == Lane::Collective =>
            {
                call
            }
            _ => {
                let other = || self.context.other_exchange(self.key.lane, &self.grace);
                return gone.map(|gone| gone.in_wait_for_message(from)).or_else(other);
            }
        };
        let found = self.mismatch(mine, gone, last_call)?;
        self.context.fail(&found);
        Some(found.error())
    }
}

impl Pending for ThreadReceive {
    fn is_done(&mut self) -> Result<bool> {
        self.mailbox().is_matched(self.ticket, || self.stop())
    }

    fn wait(self: Box<Self>) -> Result<Arrived> {
        let stop = || match self.stop() {
            None if self.key.from == self.rank => Some(CommError::not_sent_to_self(self.context.members[self.rank])),
            reason => reason,
        };
        self.mailbox().wait(self.ticket, stop)
    }
}

impl Drop for ThreadReceive {
    fn drop(&mut self) {
        self.mailbox().cancel(self.key, self.ticket);
    }
}
