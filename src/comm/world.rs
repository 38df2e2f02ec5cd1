//! State that ranks among threads share: mailboxes, failures, communicators and waits.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::cycle::{Chain, Cycle, Step, Suspicion, deadlock};
use super::mailbox::Mailbox;
use super::{Call, CommError, Gone, Lane, Mismatch, Side, Wait, Waits};
use crate::parallel::locked;

/// Time for a rank that has dropped a communicator, or has found a mismatch in it, to report why.
const GRACE: Duration = Duration::from_secs(2);

/// Interval at which a wait looks for ranks that wait for each other.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of times that each of these ranks looks for its message before they are an error.
const LOOKS: u64 = 10;

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
    pub mailboxes: Vec<Mailbox>,
    status: Mutex<Status>,
    /// The communicators that some rank has, by their numbers.
    pub contexts: Mutex<HashMap<u64, Arc<CommState>>>,
    pub next_context: AtomicU64,
    pub waits: Vec<Arc<Waits>>,
    /// The first cycle of ranks that wait for each other, as its error.
    deadlock: OnceLock<CommError>,
}

impl World {
    pub fn new(ranks: usize) -> World {
        World {
            mailboxes: (0..ranks).map(|_| Mailbox::default()).collect(),
            status: Mutex::new(Status { first: None, ranks: vec![State::Running; ranks] }),
            contexts: Mutex::default(),
            next_context: AtomicU64::new(1),
            waits: (0..ranks).map(|rank| Arc::new(Waits::new(rank))).collect(),
            deadlock: OnceLock::new(),
        }
    }

    /// Notes that a rank failed and ends all waits.
    pub fn fail(&self, rank: usize, message: &str) {
        let mut status = locked(&self.status);
        status.ranks[rank] = State::Failed;
        status.first.get_or_insert_with(|| (rank, message.to_owned()));
        drop(status);
        self.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Notes that a rank has returned from its body. Waits for it end at their next check: if each
    /// rank woke all others, P ranks would take P^2 wakes at the end of a run.
    pub fn leave(&self, rank: usize) {
        locked(&self.status).ranks[rank] = State::Left;
    }

    /// Returns the first failure so far.
    pub fn first_failure(&self) -> Option<(usize, String)> {
        locked(&self.status).first.clone()
    }

    /// Returns the error of all other ranks once one has failed.
    pub fn failure(&self) -> Option<CommError> {
        self.first_failure().map(|(rank, message)| CommError::PeerFailed { rank, message })
    }

    /// Returns the number of messages of collectives that no rank has received.
    pub fn untaken(&self) -> u64 {
        self.mailboxes.iter().map(Mailbox::untaken).sum()
    }

    /// Returns whether and how a rank is gone whose last call in a communicator is `last_call`.
    pub fn gone(&self, rank: usize, last_call: LastCall, grace: &Grace) -> Option<Gone> {
        match last_call {
            _ if locked(&self.status).ranks[rank] == State::Left => Some(Gone::Left),
            LastCall::Dropped => grace.is_over().then_some(Gone::Dropped),
            _ => None,
        }
    }

    /// Returns the error of ranks that wait for each other, if a rank has found such ranks.
    pub fn deadlock(&self) -> Option<CommError> {
        self.deadlock.get().cloned()
    }

    /// Follows the chain of waits that begins with `own`: to its cycle, if it leads to one that
    /// this rank is to find.
    fn cycle(&self, own: Wait) -> Option<Cycle> {
        let (mut chain, mut wait) = (Chain::new(own), own);
        loop {
            match chain.step(self.waits[wait.peer as usize].keeping(&wait)) {
                Step::Ends => return None,
                Step::Continues(next) => wait = next,
                Step::Closes(cycle) => return Some(cycle),
            }
        }
    }

    /// Returns the state of the communicator of this number, made by the first of its ranks that
    /// calls this.
    pub fn join(&self, id: u64, members: impl Fn() -> Vec<usize>) -> Arc<CommState> {
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
pub(super) struct Grace(Cell<Option<Instant>>);

impl Grace {
    /// Returns `true` if that rank has had the time to report a failure: a failing rank drops its
    /// communicators just before.
    pub fn is_over(&self) -> bool {
        let since = self.0.get().unwrap_or_else(Instant::now);
        self.0.set(Some(since));
        since.elapsed() > GRACE
    }
}

/// The search of a wait for ranks that wait for each other.
#[derive(Default)]
pub(super) struct CycleSearch {
    /// The last search; at first, the begin of the wait.
    last: Cell<Option<Instant>>,
    suspicion: RefCell<Suspicion>,
}

impl CycleSearch {
    /// Returns the error of a wait of rank `rank` for a message from or to rank `peer`, counted in
    /// the whole run, if ranks wait for each other. Ends all other waits of the run, too, as they
    /// look at the latest after [`LOOK_INTERVAL`].
    pub fn look(&self, world: &World, rank: usize, peer: usize, message: Side) -> Option<CommError> {
        let now = Instant::now();
        let last = self.last.get().unwrap_or_else(|| {
            self.last.set(Some(now));
            now
        });
        if now - last < LOOK_INTERVAL {
            return None;
        }
        self.last.set(Some(now));
        let own = world.waits[rank].check(message, peer);
        let cycle = if own.is_blocking() { world.cycle(own) } else { None };
        let (named, others) = self.suspicion.borrow_mut().add(cycle, LOOKS)?.named();
        Some(world.deadlock.get_or_init(|| deadlock(&named, others)).clone())
    }
}

/// The last collective that a rank has called in a communicator.
#[derive(Clone, Copy)]
pub(super) enum LastCall {
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
pub(super) struct CommState {
    pub id: u64,
    /// Its ranks, counted in the whole run.
    pub members: Vec<usize>,
    pub last_calls: Vec<Mutex<LastCall>>,
    /// Whether a rank has found a mismatch.
    pub out_of_step: AtomicBool,
    /// The first mismatch of exchanges.
    of_exchanges: Mutex<Option<Mismatch>>,
}

impl CommState {
    /// Notes what a rank has found, for those that wait for it.
    pub fn fail(&self, found: &Mismatch) {
        self.out_of_step.store(true, Ordering::Relaxed);
        if found.is_of_exchanges() {
            locked(&self.of_exchanges).get_or_insert(*found);
        } else {
            *locked(&self.last_calls[found.rank]) = LastCall::Failed(*found);
        }
    }

    /// Returns the error of a wait for a message of this lane, if ranks had other exchanges and
    /// enough time to report it.
    pub fn other_exchange(&self, lane: Lane, grace: &Grace) -> Option<CommError> {
        let found = locked(&self.of_exchanges).filter(|_| lane.is_reserved())?;
        grace.is_over().then(|| found.error())
    }
}
