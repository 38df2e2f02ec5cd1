//! The communicator: who takes part.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytemuck::Pod;

use super::call::{Call, Operation};
use super::envelope::HEAD;
use super::solo::Solo;
use super::transport::{Group, Transport};
use super::{CommError, Result};

/// Bytes above which a message is cut, unless set otherwise: 1 GiB.
pub const DEFAULT_MAX_MESSAGE: u64 = 1 << 30;

/// The largest tag: what every MPI library carries, less one that collectives use.
pub const MAX_TAG: u32 = 32_766;

/// MPI counts in `int`, and a piece may have a head.
const LARGEST_MESSAGE: u64 = i32::MAX as u64 - HEAD as u64;

/// A group of ranks that exchange messages, seen from one of them.
///
/// - Cheap to clone, and may move to another thread. Two threads of one rank must not run collectives of one
///   communicator at the same time.
/// - *Collective* methods are called by every rank of the communicator in the same order; they return when this rank's
///   part is done, which says nothing of the others except after [`barrier`](Communicator::barrier).
/// - Slices hold any plain data ([`Pod`]); empty ones are legal everywhere. Ranks must have the same byte order.
/// - After a [`CommError`] from a collective the ranks may be out of step: treat it as the end of the run.
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
/// # Ok::<(), meshloom::comm::RunError<CommError>>(())
/// ```
#[derive(Clone)]
pub struct Communicator {
    pub(super) core: Arc<Core>,
    /// Bytes a piece of a message has at most.
    pub(super) cut: usize,
}

/// What the clones of a communicator share.
pub(super) struct Core {
    pub transport: Box<dyn Transport>,
    /// Collectives so far.
    pub sequence: AtomicU64,
    /// Held while the pieces of one message are posted.
    pub posting: Mutex<()>,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.size())
    }
}

impl Communicator {
    pub(super) fn new(transport: Box<dyn Transport>) -> Communicator {
        let core = Core { transport, sequence: AtomicU64::new(0), posting: Mutex::new(()) };
        Communicator { core: Arc::new(core), cut: DEFAULT_MAX_MESSAGE as usize }
    }

    /// A communicator of one rank, without a runner.
    pub fn solo() -> Communicator {
        Communicator::new(Box::new(Solo::default()))
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.core.transport.rank()
    }

    /// The number of ranks, at least 1.
    pub fn size(&self) -> usize {
        self.core.transport.size()
    }

    /// Bytes above which a message is cut inside.
    pub fn max_message(&self) -> u64 {
        self.cut as u64
    }

    /// The same communicator with another largest message. Must be the same on all ranks; 0 counts as 1, and MPI's
    /// counts cap it a little below 2^31. Communicators split from this one inherit it. Not collective.
    pub fn with_max_message(&self, bytes: u64) -> Communicator {
        Communicator { core: self.core.clone(), cut: bytes.clamp(1, LARGEST_MESSAGE) as usize }
    }

    /// Makes a communicator of the ranks that give the same colour, ordered by `key`, then by rank here. Collective;
    /// a rank that gives `None` gets `None`.
    ///
    /// # Errors
    /// [`CommError::Mismatch`], [`CommError::PeerFailed`], or those of the backend.
    pub fn split(&self, color: Option<u32>, key: u64) -> Result<Option<Communicator>> {
        let call = self.begin(Call::new(Operation::Split));
        let context = self.core.transport.new_context();
        let mine = [u64::from(color.is_some()), u64::from(color.unwrap_or(0)), key, context];
        let wishes = self.all_gather_blocks(&call, &mine)?;
        let wishes: Vec<&[u64]> = wishes.chunks_exact(mine.len()).collect();
        let group = color.map(|color| self.group(u64::from(color), &wishes));
        let transport = self.core.transport.split(group)?;
        Ok(transport.map(|transport| Communicator { cut: self.cut, ..Communicator::new(transport) }))
    }

    /// This rank's part of a split, by what each rank wishes: whether it has a colour, the colour, the key and a number for
    /// the communicator, of which that of the first member counts.
    fn group(&self, color: u64, wishes: &[&[u64]]) -> Group {
        let mut colors: Vec<u64> = wishes.iter().filter(|wish| wish[0] == 1).map(|wish| wish[1]).collect();
        colors.sort_unstable();
        colors.dedup();
        let number = colors.partition_point(|&other| other < color);
        let mut members: Vec<usize> = (0..self.size()).filter(|&rank| wishes[rank][..2] == [1, color]).collect();
        members.sort_by_key(|&rank| wishes[rank][2]); // stable: equal keys stay in rank order
        let rank = members.iter().position(|&rank| rank == self.rank()).unwrap_or(0);
        Group { number, context: wishes[members[0]][3], members, rank }
    }

    /// Ends all ranks of the run with this message: on threads every wait ends with [`CommError::PeerFailed`] and this
    /// rank unwinds; on MPI the message is printed and the processes end with exit code 1. Not collective.
    pub fn abort(&self, message: &str) -> ! {
        self.core.transport.abort(message)
    }

    /// Notes a collective and gives its number.
    pub(super) fn next_sequence(&self) -> u64 {
        self.core.sequence.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn valid_rank(&self, what: &'static str, named: usize) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        if named < size { Ok(()) } else { Err(CommError::BadRank { rank, what, named, size }) }
    }

    pub(super) fn valid_length(&self, what: &str, expected: u64, got: u64) -> Result<()> {
        let error = || CommError::Length { rank: self.rank(), what: what.to_owned(), expected, got };
        if expected == got { Ok(()) } else { Err(error()) }
    }

    /// The length of each of `size` equal blocks.
    pub(super) fn valid_blocks(&self, what: &str, length: usize) -> Result<usize> {
        let block = length / self.size();
        self.valid_length(what, (block * self.size()) as u64, length as u64).map(|()| block)
    }

    /// Bytes of `count` elements.
    pub(super) fn bytes<T>(&self, count: u64) -> Result<usize> {
        let bytes = u128::from(count) * size_of::<T>() as u128;
        let memory = || CommError::Memory { rank: self.rank(), bytes: bytes.try_into().unwrap_or(u64::MAX) };
        isize::try_from(bytes).map(isize::cast_unsigned).map_err(|_| memory())
    }
}

/// The bytes of elements.
pub(super) fn to_bytes<T: Pod>(data: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(data).to_vec()
}

/// Elements from their bytes, which need not be aligned.
pub(super) fn from_bytes<T: Pod>(count: usize, bytes: &[u8]) -> Vec<T> {
    let mut data = vec![T::zeroed(); count];
    bytemuck::cast_slice_mut(&mut data).copy_from_slice(bytes);
    data
}
