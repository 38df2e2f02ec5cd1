//! Ranks as threads of one process: a mailbox per rank, vectors moved without a copy.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mailbox::{Key, Mailbox};
use super::transport::{Lane, Pending, Sent, Transport};
use super::{CommError, Result};

/// What became of a rank.
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

/// What the ranks of one run share. Lock order: a mailbox, then `status`.
pub(super) struct World {
    mailboxes: Vec<Mailbox>,
    status: Mutex<Status>,
    /// Numbers of communicators, by parent, its split and the group.
    contexts: Mutex<HashMap<(u64, u64, usize), u64>>,
}

impl World {
    pub fn new(ranks: usize) -> World {
        World {
            mailboxes: (0..ranks).map(|_| Mailbox::default()).collect(),
            status: Mutex::new(Status { first: None, ranks: vec![State::Running; ranks] }),
            contexts: Mutex::default(),
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        self.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Notes that a rank failed and ends all waits; says whether this rank is the first to fail.
    pub fn fail(&self, rank: usize, message: &str) -> bool {
        let mut status = self.status();
        status.ranks[rank] = State::Failed;
        let first = status.first.get_or_insert_with(|| (rank, message.to_owned())).0 == rank;
        drop(status);
        self.wake_all();
        first
    }

    /// Notes that a rank is done and ends the waits for it.
    pub fn leave(&self, rank: usize) {
        self.status().ranks[rank] = State::Left;
        self.wake_all();
    }

    /// The first failure so far.
    pub fn first_failure(&self) -> Option<(usize, String)> {
        self.status().first.clone()
    }

    /// Why a wait for a message of `from` makes no sense any more.
    fn stop(&self, from: usize, lane: Lane) -> Option<CommError> {
        let status = self.status();
        let failed = || status.first.clone().map(|(rank, message)| CommError::PeerFailed { rank, message });
        match status.ranks[from] {
            State::Running if lane == Lane::Check => None,
            State::Running | State::Failed => failed(),
            State::Left => failed().or_else(|| {
                let message = "it returned from its body while a message of it was waited for".to_owned();
                Some(CommError::PeerFailed { rank: from, message })
            }),
        }
    }
}

/// One rank's end of a communicator among threads.
pub(super) struct Threads {
    world: Arc<World>,
    context: u64,
    /// Numbers in the world of the ranks of this communicator.
    members: Arc<[usize]>,
    rank: usize,
    splits: AtomicU64,
}

impl Threads {
    /// The communicator of all ranks.
    pub fn world(world: Arc<World>, rank: usize) -> Threads {
        let members = (0..world.mailboxes.len()).collect();
        Threads { world, context: 0, members, rank, splits: AtomicU64::new(0) }
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn send(&self, to: usize, lane: Lane, data: Vec<u8>) -> Result<Box<dyn Pending>> {
        // A rank that only sends must notice a failure too.
        if lane != Lane::Check
            && let Some((rank, message)) = self.world.first_failure()
        {
            return Err(CommError::PeerFailed { rank, message });
        }
        let key = Key { context: self.context, from: self.rank, lane };
        self.world.mailboxes[self.members[to]].deliver(key, data);
        Ok(Box::new(Sent))
    }

    fn receive(&self, from: usize, lane: Lane, _bytes: usize) -> Result<Box<dyn Pending>> {
        let key = Key { context: self.context, from, lane };
        let me = self.members[self.rank];
        let ticket = self.world.mailboxes[me].post(key);
        Ok(Box::new(ThreadReceive { world: self.world.clone(), me, from: self.members[from], key, ticket }))
    }

    fn split(&self, groups: &[Vec<usize>], mine: Option<usize>) -> Result<Option<Box<dyn Transport>>> {
        let split = self.splits.fetch_add(1, Ordering::Relaxed);
        let Some(group) = mine else { return Ok(None) };
        let context = {
            let mut contexts = self.world.contexts.lock().unwrap_or_else(PoisonError::into_inner);
            let next = contexts.len() as u64 + 1;
            *contexts.entry((self.context, split, group)).or_insert(next)
        };
        let Some(rank) = groups[group].iter().position(|&member| member == self.rank) else { return Ok(None) };
        let members = groups[group].iter().map(|&member| self.members[member]).collect();
        Ok(Some(Box::new(Threads { world: self.world.clone(), context, members, rank, splits: AtomicU64::new(0) })))
    }

    fn has_left(&self, rank: usize) -> bool {
        self.world.status().ranks[self.members[rank]] == State::Left
    }

    fn abort(&self, message: &str) -> ! {
        self.world.fail(self.members[self.rank], message);
        panic!("aborted: {message}")
    }
}

struct ThreadReceive {
    world: Arc<World>,
    me: usize,
    from: usize,
    key: Key,
    ticket: u64,
}

impl Pending for ThreadReceive {
    fn is_done(&mut self) -> Result<bool> {
        self.world.mailboxes[self.me].is_matched(self.ticket, || self.world.stop(self.from, self.key.lane))
    }

    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        let stop = || match self.world.stop(self.from, self.key.lane) {
            None if self.from == self.me => Some(CommError::not_sent_to_self(self.me)),
            reason => reason,
        };
        self.world.mailboxes[self.me].wait(self.ticket, stop)
    }
}

impl Drop for ThreadReceive {
    fn drop(&mut self) {
        self.world.mailboxes[self.me].cancel(self.key, self.ticket);
    }
}
