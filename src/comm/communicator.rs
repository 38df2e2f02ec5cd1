//! The communicator: a group of ranks, seen from one of them.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytemuck::{Pod, Zeroable};

use super::{
    BlockingOperation, Call, CommError, ExchangeWait, Group, HEADER_BYTES, Operation, Result, Subject, Threads,
    Transport, World,
};
use crate::grid::Shares;
use crate::host_memory::{self, HostMemoryError};
use crate::parallel::locked;

/// The most bytes that travel in one piece of a message, unless set otherwise: 1 GiB.
pub const DEFAULT_MAX_MESSAGE: u64 = 1 << 30;

/// MPI counts in `int`, and a piece may have a header.
const LARGEST_MESSAGE: u64 = i32::MAX as u64 - HEADER_BYTES as u64;

/// A group of ranks that exchange messages, seen from one of them.
///
/// - Cheap to clone, and may move to another thread. Two threads of one rank must not run
///   collectives of one communicator at the same time.
/// - *Collective* methods are called by every rank of the communicator in the same order; they
///   return when this rank's part is done, which says nothing of the others except after
///   [`barrier`](Communicator::barrier).
/// - Slices hold any plain data ([`Pod`]); empty ones are legal everywhere. Ranks must have the
///   same byte order.
/// - Collectives end with [`CommError::Deadlock`] if ranks wait for each other, here or in other
///   communicators of the run.
/// - After a [`CommError`] from a collective or an exchange the ranks may be [out of
///   step](Communicator::is_out_of_step): treat it as the end of the run.
///
/// ```
/// use meshloom::comm::{CommError, Op, run_threads};
///
/// let sums = run_threads(4, |comm| {
///     let mut sum = [comm.rank() as u64, 1];
///     comm.all_reduce(&mut sum, Op::Sum)?;
///
///     // To the right, from the left.
///     let (right, left) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
///     let sending = comm.send(right, 7, vec![comm.rank() as u8])?;
///     assert_eq!(comm.receive(left, 7, 1)?.wait()?, [left as u8]);
///     sending.wait()?;
///
///     Ok::<_, CommError>(sum)
/// })?;
/// assert_eq!(sums, [[6, 4]; 4]);
/// # Ok::<(), meshloom::comm::RunError>(())
/// ```
#[derive(Clone)]
pub struct Communicator {
    pub(super) core: Arc<Core>,
    /// The most bytes of a message that travel in one piece.
    pub(super) max_piece: usize,
    /// The operation that collectives are a part of.
    pub(super) subject: Subject,
    /// The share of each rank.
    pub(super) shares: Shares,
}

/// State that the clones of a communicator share.
pub(super) struct Core {
    pub transport: Box<dyn Transport>,
    /// Collectives so far.
    pub sequence: AtomicU64,
    /// Plans so far.
    pub plans: AtomicU64,
    /// Held while the pieces of one message are posted.
    pub posting: Mutex<()>,
    pub attachment: Mutex<Option<Attachment>>,
}

/// A value that a layer above keeps with a communicator. Communicators split from it inherit the
/// value.
#[derive(Clone)]
pub(crate) struct Attachment {
    pub value: Arc<dyn Any + Send + Sync>,
    /// Numbers of the ranks in the communicator that the value was attached to.
    pub ranks: Arc<[usize]>,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.size())
    }
}

impl Communicator {
    pub(super) fn new(transport: Box<dyn Transport>) -> Communicator {
        let (sequence, plans) = (AtomicU64::new(0), AtomicU64::new(0));
        let core = Core { transport, sequence, plans, posting: Mutex::new(()), attachment: Mutex::new(None) };
        let (max_piece, shares) = (DEFAULT_MAX_MESSAGE as usize, Shares::from(core.transport.size()));
        Communicator { core: Arc::new(core), max_piece, subject: Subject::zeroed(), shares }
    }

    /// Returns a communicator of one rank, without a runner.
    #[must_use]
    pub fn solo() -> Communicator {
        Communicator::new(Box::new(Threads::world(Arc::new(World::new(1)), 0)))
    }

    /// Returns this rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.core.transport.rank()
    }

    /// Returns the number of ranks, at least 1.
    #[must_use]
    pub fn size(&self) -> usize {
        self.core.transport.size()
    }

    /// Returns the number that rank `rank` has in the whole run.
    pub(crate) fn rank_in_run(&self, rank: usize) -> usize {
        self.core.transport.rank_in_run(rank)
    }

    /// Returns the most bytes of a message that travel in one piece; longer messages travel in
    /// several.
    #[must_use]
    pub fn max_message(&self) -> u64 {
        self.max_piece as u64
    }

    /// Returns the communicator with another [`max_message`](Communicator::max_message), equal on
    /// all ranks; 0 counts as 1, and the `int` counts of MPI limit it to slightly less than 2^31.
    /// Communicators split from it inherit the value. Not collective.
    #[must_use]
    pub fn with_max_message(&self, bytes: u64) -> Communicator {
        Communicator { max_piece: bytes.clamp(1, LARGEST_MESSAGE) as usize, ..self.clone() }
    }

    /// Returns the share of each rank in meshes, points and items; equal ones unless set.
    #[must_use]
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// Returns the communicator with other [`shares`](Self::shares), which must be the same on all
    /// ranks. Communicators split from it inherit the shares of their members. Not collective;
    /// [`Rank::set_shares`](crate::Rank::set_shares) is, and compares them.
    ///
    /// # Errors
    /// [`CommError::Shares`] if there is not one share for each rank.
    pub fn with_shares(&self, shares: Shares) -> Result<Communicator> {
        if shares.ranks() != self.size() {
            return Err(CommError::Shares { shares: shares.ranks(), ranks: self.size() });
        }
        Ok(Communicator { shares, ..self.clone() })
    }

    /// Returns the communicator for the collectives of one operation, which all ranks must call on
    /// the same subject: they compare it in the messages that travel anyway. Not collective.
    #[must_use]
    pub(crate) fn within(&self, subject: Subject) -> Communicator {
        Communicator { subject, ..self.clone() }
    }

    /// Returns `true` if this rank knows that ranks have called different collectives or exchanges
    /// here, or wait for each other: it has got the error, or was told. Messages of these are not
    /// told apart from those of later ones, which may fail. Where ranks are to go on after the
    /// error they make another communicator. Not collective.
    #[must_use]
    pub fn is_out_of_step(&self) -> bool {
        self.core.transport.is_out_of_step()
    }

    /// Ends all ranks of the run with this message: on threads every wait ends with
    /// [`CommError::PeerFailed`] and this rank unwinds; on MPI the message is printed and the
    /// processes end with exit code 1. Not collective.
    pub fn abort(&self, message: &str) -> ! {
        self.core.transport.abort(message)
    }

    /// Keeps `value` with the communicator and its clones, in place of an earlier value.
    pub(crate) fn attach(&self, value: Option<Arc<dyn Any + Send + Sync>>) {
        let ranks = || (0..self.size()).collect();
        *locked(&self.core.attachment) = value.map(|value| Attachment { value, ranks: ranks() });
    }

    /// Returns the value that was attached to this communicator, or inherited.
    pub(crate) fn attachment(&self) -> Option<Attachment> {
        locked(&self.core.attachment).clone()
    }

    /// Counts a collective and returns its number.
    pub(super) fn next_sequence(&self) -> u64 {
        self.core.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of a plan that all ranks make together, by which its exchanges are told
    /// from those of others. Sends no message.
    pub(crate) fn next_plan(&self) -> u64 {
        self.core.plans.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the wait of this rank in an exchange with this tag; ranks are of the whole run.
    pub(crate) fn exchange_wait(
        &self,
        tag: u32,
        subject: Subject,
        sends_to: Option<usize>,
        receives_from: Option<usize>,
    ) -> ExchangeWait {
        let waits = self.core.transport.waits().clone();
        let (context, call) = (self.core.transport.context(), Call::of_exchange(subject));
        ExchangeWait { waits, operation: BlockingOperation { context, tag, call, sends_to, receives_from } }
    }

    pub(super) fn valid_rank(&self, what: &'static str, named: usize) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        if named < size { Ok(()) } else { Err(CommError::BadRank { rank, what, named, size }) }
    }

    pub(super) fn valid_length(&self, what: &str, expected: u64, got: u64) -> Result<()> {
        let error = || CommError::Length { rank: self.rank(), what: what.to_owned(), expected, got };
        if expected == got { Ok(()) } else { Err(error()) }
    }

    /// Returns the length of each of `size` equal blocks.
    pub(super) fn valid_blocks(&self, what: &str, length: usize) -> Result<usize> {
        let block = length / self.size();
        self.valid_length(what, (block * self.size()) as u64, length as u64).map(|()| block)
    }

    /// Returns the bytes of `count` elements.
    pub(super) fn bytes<T>(&self, count: u64) -> Result<usize> {
        let bytes = u128::from(count) * size_of::<T>() as u128;
        let fits = isize::try_from(bytes).map(isize::cast_unsigned);
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        Ok(fits.map_err(|_| HostMemoryError { what: "a message", bytes })?)
    }
}

/// Returns the bytes of elements.
pub(super) fn to_bytes<T: Pod>(data: &[T]) -> Result<Vec<u8>> {
    Ok(host_memory::copy("a message", bytemuck::cast_slice(data))?)
}

/// Elements from their bytes, which need not be aligned.
pub(super) fn from_bytes<T: Pod>(count: usize, bytes: &[u8]) -> Result<Vec<T>> {
    let mut data = received(count)?;
    bytemuck::cast_slice_mut(&mut data).copy_from_slice(bytes);
    Ok(data)
}

/// Room for `count` elements that ranks send, all of them zeros.
pub(super) fn received<T: Pod>(count: usize) -> Result<Vec<T>> {
    Ok(host_memory::zeros("data from other ranks", count)?)
}

impl Communicator {
    /// Creates a communicator of the ranks that pass the same color, ordered by `key`, then by rank
    /// here. Collective; a rank that passes `None` gets `None`.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or
    /// errors of the backend.
    pub fn split(&self, color: Option<u32>, key: u64) -> Result<Option<Communicator>> {
        let call = self.begin(Call::new(Operation::Split));
        let context = self.core.transport.new_context();
        let mine = [u64::from(color.is_some()), u64::from(color.unwrap_or(0)), key, context];
        let mut requests = vec![0; mine.len() * self.size()];
        self.all_gather_blocks(&call, &mine, &mut requests)?;
        let requests: Vec<&[u64]> = requests.chunks_exact(mine.len()).collect();
        let group = color.map(|color| self.group(u64::from(color), &requests));
        let members = group.as_ref().map(|group| group.members.clone());
        let transport = self.core.transport.split(group)?;
        Ok(transport.map(|transport| {
            let split = Communicator::new(transport);
            let shares = members.as_ref().map_or(split.shares, |members| self.shares.among(members));
            let split = Communicator { max_piece: self.max_piece, shares, ..split };
            if let Some((inherited, members)) = self.attachment().zip(members) {
                let ranks = members.iter().map(|&rank| inherited.ranks[rank]).collect();
                *locked(&split.core.attachment) = Some(Attachment { ranks, ..inherited });
            }
            split
        }))
    }

    /// Returns this rank's part of a split. Each rank's request is: whether it has a color, the
    /// color, the key, and a number for a communicator; the new one gets the number of its first
    /// member.
    fn group(&self, color: u64, requests: &[&[u64]]) -> Group {
        let mut colors: Vec<u64> =
            requests.iter().filter(|request| request[0] == 1).map(|request| request[1]).collect();
        colors.sort_unstable();
        colors.dedup();
        let number = colors.partition_point(|&other| other < color);
        let mut members: Vec<usize> = (0..self.size()).filter(|&rank| requests[rank][..2] == [1, color]).collect();
        members.sort_by_key(|&rank| requests[rank][2]); // stable: equal keys stay in rank order
        let rank = members.iter().position(|&rank| rank == self.rank()).unwrap_or(0);
        Group { number, context: requests[members[0]][3], members, rank }
    }
}
