//! The backend of ranks that are threads of one process: a mailbox per rank; vectors move without a
//! copy, and from memory of one rank to memory of another one copy is made.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::mailbox::{Key, Mailbox};
use super::transport::Sent;
use super::waits::LastUser;
use super::world::{CommState, CycleSearch, Grace, LastCall};
use super::{
    Arrived, Backoff, Blocked, BlockingOperation, Call, CommError, Did, Differing, Gone, Group, Lane, Mismatch,
    Payload, Pending, Result, Side, Target, Transport, Waits, World,
};
use crate::parallel::locked;

/// One rank's end of a communicator among threads.
pub(super) struct Threads {
    world: Arc<World>,
    context: Arc<CommState>,
    rank: usize,
    last_user: LastUser,
}

impl Threads {
    /// Returns the communicator of all ranks.
    pub fn world(world: Arc<World>, rank: usize) -> Threads {
        let context = world.join(0, || (0..world.mailboxes.len()).collect());
        Threads::new(world, context, rank)
    }

    fn new(world: Arc<World>, context: Arc<CommState>, rank: usize) -> Threads {
        let last_user = world.waits[context.members[rank]].join(context.id);
        Threads { world, context, rank, last_user }
    }

    /// Returns this rank, counted in the whole run.
    fn me(&self) -> usize {
        self.context.members[self.rank]
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
        self.context.out_of_step.load(Ordering::Relaxed) || self.world.deadlock().is_some()
    }

    fn send(&self, to: usize, lane: Lane, data: Payload) -> Result<Box<dyn Pending>> {
        // A rank that only sends has to learn of a failure, too.
        self.world.failure().map_or(Ok(()), Err)?;
        #[cfg(test)]
        super::traffic::count(match &data {
            Payload::Bytes(data) => data.len(),
            Payload::Span(span) => span.sent().len(),
        });
        self.last_user.set();
        let key = Key { context: self.context.id, from: self.rank, lane };
        let Some(taken) = self.world.mailboxes[self.context.members[to]].deliver(key, data) else {
            return Ok(Box::new(Sent));
        };
        let (world, context) = (self.world.clone(), self.context.clone());
        let (rank, grace, cycles) = (self.rank, Grace::default(), CycleSearch::default());
        Ok(Box::new(ThreadSend { world, context, rank, lane, to, taken, grace, cycles }))
    }

    fn receive(&self, from: usize, lane: Lane, target: Target) -> Result<Box<dyn Pending>> {
        let key = Key { context: self.context.id, from, lane };
        self.last_user.set();
        let ticket = self.world.mailboxes[self.me()].post(key, target);
        let (world, context) = (self.world.clone(), self.context.clone());
        let (rank, grace, cycles) = (self.rank, Grace::default(), CycleSearch::default());
        Ok(Box::new(ThreadReceive { world, context, rank, key, ticket, grace, cycles }))
    }

    fn context(&self) -> u64 {
        self.context.id
    }

    fn waits(&self) -> &Arc<Waits> {
        &self.world.waits[self.me()]
    }

    fn new_context(&self) -> u64 {
        self.world.next_context.fetch_add(1, Ordering::Relaxed)
    }

    fn split(&self, mine: Option<Group>) -> Result<Option<Box<dyn Transport>>> {
        let Some(group) = mine else { return Ok(None) };
        let members = || group.members.iter().map(|&member| self.context.members[member]).collect();
        let context = self.world.join(group.context, members);
        Ok(Some(Box::new(Threads::new(self.world.clone(), context, group.rank))))
    }

    fn abort(&self, message: &str) -> ! {
        self.world.fail(self.me(), message);
        panic!("aborted: {message}")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.world.waits[self.me()].leave(self.context.id);
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
    rank: usize,
    lane: Lane,
    to: usize,
    taken: Arc<AtomicBool>,
    grace: Grace,
    cycles: CycleSearch,
}

impl ThreadSend {
    /// Returns why the receiver will not take the message.
    fn stop(&self, gone: Option<Gone>) -> Option<CommError> {
        let [me, to] = [self.rank, self.to].map(|rank| self.context.members[rank]);
        let gone = || gone.map(|gone| gone.in_wait_to_send(to));
        let other = || self.context.other_exchange(self.lane, &self.grace);
        let message = Side::of_message(self.context.id, self.lane, true);
        self.world.deadlock().or_else(gone).or_else(other).or_else(|| self.cycles.look(&self.world, me, to, message))
    }
}

impl Pending for ThreadSend {
    fn is_done(&mut self) -> Result<bool> {
        let to = self.context.members[self.to];
        let last_call = *locked(&self.context.last_calls[self.to]);
        let (failure, gone) = (self.world.failure(), self.world.gone(to, last_call, &self.grace));
        // Asked last: a receiver that takes it and then leaves has taken it.
        if self.taken.load(Ordering::Acquire) {
            return Ok(true);
        }
        failure.or_else(|| self.stop(gone)).map_or(Ok(false), Err)
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
    cycles: CycleSearch,
}

impl ThreadReceive {
    /// Returns this rank, counted in the whole run.
    fn me(&self) -> usize {
        self.context.members[self.rank]
    }

    fn mailbox(&self) -> &Mailbox {
        &self.world.mailboxes[self.me()]
    }

    /// Returns the collective that this rank is in, if the message belongs to one.
    fn call(&self) -> Option<Call> {
        match *locked(&self.context.last_calls[self.rank]) {
            LastCall::Called(call) | LastCall::Failed(Mismatch { differing: Differing::Collectives(call, _), .. })
                if self.key.lane == Lane::Collective =>
            {
                Some(call)
            }
            _ => None,
        }
    }

    /// Notes that this thread blocks for the message, if it belongs to a collective.
    fn block(&self) -> Option<Blocked> {
        let from = self.context.members[self.key.from];
        let operation = BlockingOperation::collective(self.key.context, self.call()?, from, false);
        Some(self.world.waits[self.me()].begin(vec![operation]))
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
        if let Some(error) = self.world.failure().or_else(|| self.world.deadlock()) {
            return Some(error);
        }
        let from = self.context.members[self.key.from];
        let last_call = *locked(&self.context.last_calls[self.key.from]);
        let gone = self.world.gone(from, last_call, &self.grace);
        let error = match self.call() {
            Some(mine) => self.mismatch(mine, gone, last_call).map(|found| {
                self.context.fail(&found);
                found.error()
            }),
            None => {
                let other = || self.context.other_exchange(self.key.lane, &self.grace);
                gone.map(|gone| gone.in_wait_for_message(from)).or_else(other)
            }
        };
        let message = Side::of_message(self.key.context, self.key.lane, false);
        error.or_else(|| self.cycles.look(&self.world, self.me(), from, message))
    }
}

impl Pending for ThreadReceive {
    fn is_done(&mut self) -> Result<bool> {
        self.mailbox().is_matched(self.ticket, || self.stop())
    }

    fn wait(self: Box<Self>) -> Result<Arrived> {
        let blocked = OnceCell::new();
        let stop = || {
            blocked.get_or_init(|| self.block());
            match self.stop() {
                None if self.key.from == self.rank => Some(CommError::not_sent_to_self(self.me())),
                reason => reason,
            }
        };
        self.mailbox().wait(self.ticket, stop)
    }
}

impl Drop for ThreadReceive {
    fn drop(&mut self) {
        self.mailbox().cancel(self.key, self.ticket);
    }
}
