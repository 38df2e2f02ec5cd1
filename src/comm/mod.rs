//! Ranks and the messages between them.
//!
//! A program is written once, from the view of one rank, against a [`Communicator`]. The runner
//! chooses the transport:
//!
//! | runner | ranks | a failing rank |
//! |---|---|---|
//! | [`run_solo`] | one, on the calling thread | is returned as [`RunError`] |
//! | [`run_threads`] | threads of this process | ends every wait of the others; the first failure is returned |
//! | `run_mpi` (feature `mpi`) | MPI processes | is printed once, and all processes end with exit code 1 |
//!
//! Rules that hold on every backend:
//!
//! - **Same code, same result.** Every collective is written once over point-to-point messages,
//!   along trees for short data; long data without arithmetic use MPI's own collectives, after all
//!   ranks have met in the call. Threads and MPI combine numbers in the same order. A sum of floats
//!   depends on the number of ranks, never on the backend or timing.
//! - **Counts are `u64`.** A message travels in pieces of at most [`Communicator::max_message`]
//!   bytes (1 GiB by default), so that the `int` counts of MPI do not limit it.
//! - **Collectives are called by all ranks, in the same order.** Otherwise a rank that notices gets
//!   [`CommError::Mismatch`], within seconds, in every build: each message of a collective names
//!   the call of its sender, a rank that waits long queries the collective of the other one, and a
//!   rank that finds a mismatch informs all. No collective returns a wrong result; ranks that only
//!   had to send may get the error later, at the latest when all are done ([`CommError::Untaken`]).
//! - **No hang after a failure.** A rank that returns an error, panics, aborts or leaves ends the
//!   waits of the others. Waits for slow ranks have no time limit.
//! - **No hang of ranks that wait for each other** in different collectives or exchanges of device
//!   data, of any communicators of the run: they get [`CommError::Deadlock`] within seconds. Not
//!   found are ranks that wait for a caller's own messages, which another thread of a rank may send
//!   at any time, and ranks that wait in communicators of several calls of `from_mpi`.
//! - **No devices.** Messages are bytes, and collectives take slices of plain data.

mod agree;
mod all_to_all;
mod call;
mod collective;
mod communicator;
mod cycle;
mod error;
mod gather;
mod launched;
mod mailbox;
mod memory;
mod message;
mod mismatch;
#[cfg(feature = "mpi")]
mod mpi;
mod op;
mod reduce;
mod run;
#[cfg(feature = "mpi")]
mod run_mpi;
mod sync;
mod threads;
#[cfg(test)]
mod traffic;
mod transport;
mod tree;
mod waits;
mod world;

pub use call::MAX_TAG;
pub(crate) use call::{EXCHANGE_TAGS, RESERVED_TAGS, Subject};
pub use communicator::{Communicator, DEFAULT_MAX_MESSAGE};
pub use error::{BlockedRank, CommError, Failure, Result, RunError};
pub use gather::GatheredParts;
#[cfg(not(feature = "mpi"))]
pub(crate) use launched::Launched;
pub use launched::{mpi_launched, mpi_ranks};
pub(crate) use memory::{Memory, Span};
pub use message::{Receiving, Sending};
pub use op::{Op, Reducible};
pub use run::{is_ending, run_solo, run_threads};
#[cfg(feature = "mpi")]
pub use run_mpi::{run_mpi, run_mpi_with_code};
pub(crate) use sync::Backoff;
#[cfg(all(test, target_os = "linux"))]
pub(crate) use traffic::sent;
pub(crate) use waits::{Blocked, ExchangeWait};

use call::{Call, HEADER_BYTES, Lane, Operation, SUBJECT_BYTES};
use communicator::{from_bytes, received, to_bytes};
use gather::SHORT_BLOCK;
use mismatch::{Did, Differing, Gone, Mismatch};
use threads::Threads;
use transport::{Arrived, Group, Native, Payload, Pending, Target, Transport};
use tree::Tree;
use waits::{BlockingOperation, Side, Wait, Waits};
use world::World;
