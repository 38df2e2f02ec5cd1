//! Waits of a rank in collectives and exchanges, from which ranks that wait for each other are
//! found.
//!
//! - Each thread that blocks writes down whom it waits for, and in which operation. A thread that
//!   computes, waits for its device or polls without blocking has no entry.
//! - Of several threads of a rank the one that has made or used a communicator last is taken for
//!   the one that will use it next.
//! - Waits for messages with the caller's own tags have no entry: another thread of a rank may send
//!   them at any time.
//!
//! A message that does not wait costs the comparison of a number; a wait costs one lock when it
//! begins, one when it ends, and one each time it looks for ranks that wait for each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytemuck::{Pod, Zeroable};

use super::{Call, EXCHANGE_TAGS, Lane, RESERVED_TAGS};
use crate::parallel::locked;

/// Returns a number that no other thread of this process has, and none had.
fn this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// The thread that has made or used a communicator last.
#[derive(Clone, Default)]
pub(super) struct LastUser(Arc<AtomicU64>);

impl LastUser {
    /// Notes a use by this thread.
    pub fn set(&self) {
        let thread = this_thread();
        if self.0.load(Ordering::Relaxed) != thread {
            self.0.store(thread, Ordering::Relaxed);
        }
    }
}

/// One rank's wait for another one, as ranks tell each other. Ranks count in the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Wait {
    /// Number of the wait on its rank, from 1; 0 if the rank does not block.
    pub number: u64,
    /// Number of times that the rank has looked for its message in this wait.
    pub checks: u64,
    pub context: u64,
    pub rank: u32,
    pub peer: u32,
    /// Tag of the lane of the awaited message; of a credit, that of the message it is for.
    pub tag: u32,
    /// 1 if the rank waits until the peer has taken a message, 0 if it waits for one.
    pub sends: u32,
    /// The collective or exchange.
    pub call: Call,
}

impl Wait {
    /// Returns the wait of rank `rank` for a message of an operation from or to rank `peer`.
    pub fn new(rank: usize, peer: usize, message: Side) -> Wait {
        let Side { context, tag, sends } = message;
        Wait { context, rank: rank as u32, peer: peer as u32, tag, sends: u32::from(sends), ..Wait::zeroed() }
    }

    /// Returns `true` if the rank blocks.
    pub fn is_blocking(&self) -> bool {
        self.number > 0
    }

    fn side(&self) -> Side {
        Side { context: self.context, tag: self.tag, sends: self.sends == 1 }
    }

    /// Returns `true` if both are one wait, whenever they were recorded.
    pub fn is_same(&self, other: &Wait) -> bool {
        (self.rank, self.number, self.side()) == (other.rank, other.number, other.side())
    }

    /// Returns `true` if both ranks are in one collective or exchange.
    pub fn is_in_same_operation(&self, other: &Wait) -> bool {
        (self.context, self.tag, self.call) == (other.context, other.tag, other.call)
    }
}

/// One half of an operation in a communicator: what a rank sends in it, or what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub context: u64,
    pub tag: u32,
    pub sends: bool,
}

impl Side {
    /// Returns the half of a message of `lane` that this rank `sends` or receives. A credit is
    /// received in the half that sends.
    pub fn of_message(context: u64, lane: Lane, sends: bool) -> Side {
        match lane.tag() {
            tag if lane.is_reserved() && tag >= RESERVED_TAGS.start + EXCHANGE_TAGS => {
                Side { context, tag: tag - EXCHANGE_TAGS, sends: !sends }
            }
            tag => Side { context, tag, sends },
        }
    }
}

/// An operation in which a thread blocks: the first message of each half that has not moved yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockingOperation {
    pub context: u64,
    pub tag: u32,
    pub call: Call,
    /// The rank of the whole run to which the first message to be sent goes.
    pub sends_to: Option<usize>,
    /// The rank of the whole run from which the first message to be received comes.
    pub receives_from: Option<usize>,
}

impl BlockingOperation {
    /// Returns the wait for one message of a collective.
    pub fn collective(context: u64, call: Call, peer: usize, sends: bool) -> BlockingOperation {
        let (sends_to, receives_from) = if sends { (Some(peer), None) } else { (None, Some(peer)) };
        BlockingOperation { context, tag: Lane::Collective.tag(), call, sends_to, receives_from }
    }

    fn peer(&self, sends: bool) -> Option<usize> {
        if sends { self.sends_to } else { self.receives_from }
    }

    fn is_of(&self, side: Side) -> bool {
        (self.context, self.tag) == (side.context, side.tag)
    }
}

/// The wait of a thread.
struct ThreadWait {
    number: u64,
    checks: u64,
    /// Operations that move meanwhile; the wait ends with the first of them.
    operations: Vec<BlockingOperation>,
}

#[derive(Default)]
struct State {
    /// Waits so far.
    begun: u64,
    /// By communicator.
    last_users: HashMap<u64, LastUser>,
    /// By thread.
    blocked: HashMap<u64, ThreadWait>,
}

/// Waits of one rank.
pub(super) struct Waits {
    /// The rank, counted in the whole run.
    rank: usize,
    state: Mutex<State>,
}

impl Waits {
    pub fn new(rank: usize) -> Waits {
        Waits { rank, state: Mutex::default() }
    }

    /// Adds a communicator that this thread has made; returns the record of its last user.
    pub fn join(&self, context: u64) -> LastUser {
        let last_user = locked(&self.state).last_users.entry(context).or_default().clone();
        last_user.set();
        last_user
    }

    /// Removes a communicator, in which this rank sends nothing more.
    pub fn leave(&self, context: u64) {
        locked(&self.state).last_users.remove(&context);
    }

    /// Notes that this thread blocks in `operations`, until the result is dropped.
    pub fn begin(self: &Arc<Self>, operations: Vec<BlockingOperation>) -> Blocked {
        let thread = this_thread();
        let mut state = locked(&self.state);
        state.begun += 1;
        let number = state.begun;
        state.blocked.insert(thread, ThreadWait { number, checks: 0, operations });
        Blocked { waits: self.clone(), thread, number }
    }

    /// Notes that this thread has looked for a message and not found it. Returns the wait for it,
    /// which is not a blocking one if the thread blocks for something else or not at all.
    pub fn check(&self, message: Side, peer: usize) -> Wait {
        let wait = Wait::new(self.rank, peer, message);
        let mut state = locked(&self.state);
        let Some(blocked) = state.blocked.get_mut(&this_thread()) else { return wait };
        blocked.checks += 1;
        let found = blocked.operations.iter().find(|operation| operation.is_of(message));
        match found.filter(|operation| operation.peer(message.sends) == Some(peer)) {
            Some(operation) => Wait { number: blocked.number, checks: blocked.checks, call: operation.call, ..wait },
            None => wait,
        }
    }

    /// Returns the wait of this rank that keeps it from what `wait`, a wait for it, is for. In an
    /// exchange in which it blocks, too, its messages are sent and received in order, each half for
    /// itself: the first message of the half that `wait` is for keeps the others. Any other
    /// operation must end before this rank does what `wait` is for.
    pub fn keeping(&self, wait: &Wait) -> Option<Wait> {
        let state = locked(&self.state);
        let thread = state.last_users.get(&wait.context)?.0.load(Ordering::Relaxed);
        let ThreadWait { number, checks, operations } = state.blocked.get(&thread)?;
        let exchange = operations.iter().find(|operation| operation.is_of(wait.side()) && is_exchange(operation.tag));
        let (operation, sends) = match exchange {
            Some(operation) => (operation, wait.sends == 0),
            None => operations.first().map(|first| (first, first.receives_from.is_none()))?,
        };
        let side = Side { context: operation.context, tag: operation.tag, sends };
        let kept = Wait::new(self.rank, operation.peer(sends)?, side);
        Some(Wait { number: *number, checks: *checks, call: operation.call, ..kept })
    }
}

fn is_exchange(tag: u32) -> bool {
    RESERVED_TAGS.contains(&tag)
}

/// A thread blocks; it no longer does when this is dropped.
pub(crate) struct Blocked {
    waits: Arc<Waits>,
    thread: u64,
    number: u64,
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let mut state = locked(&self.waits.state);
        if state.blocked.get(&self.thread).is_some_and(|wait| wait.number == self.number) {
            state.blocked.remove(&self.thread);
        }
    }
}

/// A wait in an exchange.
#[derive(Clone)]
pub(crate) struct ExchangeWait {
    pub(super) waits: Arc<Waits>,
    pub(super) operation: BlockingOperation,
}

impl PartialEq for ExchangeWait {
    fn eq(&self, other: &ExchangeWait) -> bool {
        Arc::ptr_eq(&self.waits, &other.waits) && self.operation == other.operation
    }
}

impl ExchangeWait {
    /// Notes that this thread blocks in exchanges, all of which move meanwhile, until the first is
    /// done. Those of another run than the first are left out.
    pub fn begin(all: &[ExchangeWait]) -> Option<Blocked> {
        let waits = &all.first()?.waits;
        let here = all.iter().filter(|wait| Arc::ptr_eq(&wait.waits, waits));
        Some(waits.begin(here.map(|wait| wait.operation).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::Operation;
    use super::super::call::Subject;
    use super::*;

    const TAG: u32 = RESERVED_TAGS.start + 5;

    fn exchange(tag: u32, sends_to: Option<usize>, receives_from: Option<usize>) -> BlockingOperation {
        let call = Call::of_exchange(Subject::new("an exchange"));
        BlockingOperation { context: 3, tag, call, sends_to, receives_from }
    }

    fn blocked(operations: &[BlockingOperation]) -> (Arc<Waits>, Blocked) {
        let waits = Arc::new(Waits::new(0));
        waits.join(3);
        let blocked = waits.begin(operations.to_vec());
        (waits, blocked)
    }

    /// Returns whom rank 0 waits for before it does what rank 9 waits for.
    fn keeper(waits: &Waits, tag: u32, sends: bool) -> Option<u32> {
        let side = Side::of_message(3, Lane::User(tag), sends);
        waits.keeping(&Wait::new(9, 0, side)).map(|wait| wait.peer)
    }

    #[test]
    fn each_half_of_an_exchange_is_kept_by_its_own_first_message() {
        let (waits, _blocked) = blocked(&[exchange(TAG, Some(1), Some(2)), exchange(TAG + 1, None, Some(4))]);
        // Rank 9 waits to receive, or until a message is taken, or for the credit of one.
        assert_eq!(keeper(&waits, TAG, false), Some(1));
        assert_eq!(keeper(&waits, TAG, true), Some(2));
        assert_eq!(keeper(&waits, TAG + EXCHANGE_TAGS, false), Some(2));
        // The second exchange has sent all of its messages.
        assert_eq!(keeper(&waits, TAG + 1, false), None);
        assert_eq!(keeper(&waits, TAG + 1, true), Some(4));
        // Another exchange has to wait until the first is done.
        assert_eq!(keeper(&waits, TAG + 2, true), Some(2));
    }

    #[test]
    fn only_the_last_user_of_a_communicator_counts_while_it_blocks() {
        let call = Call::new(Operation::Barrier).begun(0, 8);
        let (waits, blocked) = blocked(&[BlockingOperation::collective(4, call, 6, false)]);
        assert_eq!(keeper(&waits, TAG, false), Some(6));
        let wait = waits.check(Side { context: 4, tag: Lane::Collective.tag(), sends: false }, 6);
        assert_eq!((wait.number, wait.checks), (1, 1));
        let other = waits.check(Side { context: 4, tag: Lane::Collective.tag(), sends: false }, 5);
        assert!(!other.is_blocking(), "it does not block for that one");
        let user = waits.join(3);
        std::thread::spawn(move || user.set()).join().unwrap();
        assert_eq!(keeper(&waits, TAG, false), None, "another thread will use it next");
        waits.join(3);
        assert_eq!(keeper(&waits, TAG, false), Some(6));
        // A wait that follows without a pause stays when the one before ends.
        let next = waits.begin(vec![exchange(TAG, Some(8), None)]);
        drop(blocked);
        assert_eq!(keeper(&waits, TAG, false), Some(8));
        drop(next);
        assert_eq!(keeper(&waits, TAG, false), None);
        waits.leave(3);
        assert_eq!(keeper(&waits, TAG, false), None);
    }
}
