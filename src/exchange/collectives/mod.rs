//! Collectives on device arrays: what ranks hold on their devices, moved and joined through the
//! host.
//!
//! [`Collectives`] has all of them, for arrays of any length, in flight or waited for:
//!
//! | call | a rank gives | and gets |
//! |---|---|---|
//! | [`broadcast`](Collectives::broadcast) | the root an array | a copy |
//! | [`all_gather`](Collectives::all_gather), [`all_gather_v`](Collectives::all_gather_v) | its part | all parts |
//! | [`gather`](Collectives::gather), [`gather_v`](Collectives::gather_v) | its part | the root all parts, others nothing |
//! | [`scatter`](Collectives::scatter), [`scatter_v`](Collectives::scatter_v) | the root all parts | its part |
//! | [`all_to_all`](Collectives::all_to_all), [`all_to_all_v`](Collectives::all_to_all_v) | a part for each rank | the parts for it |
//! | [`send_receive`](Collectives::send_receive) | an array to one rank, or none | that of another, or none |
//! | [`all_reduce`](Collectives::all_reduce), [`reduce`](Collectives::reduce) | numbers | their reduction over ranks; of `reduce` the root only |
//! | [`reduce_scatter`](Collectives::reduce_scatter), [`reduce_scatter_v`](Collectives::reduce_scatter_v) | numbers | its part of their reduction |
//! | [`scan`](Collectives::scan), [`scan_exclusive`](Collectives::scan_exclusive) | numbers | their reduction over the ranks up to this one, or before it |
//!
//! The functions of this module do the same with short data in arrays that exist; within those of
//! [`Collectives`] short data take their way.

mod batch;
mod combine;
mod moves;
mod pending;
mod reductions;

use std::fmt;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

pub use super::short_collectives::{all_gather, all_reduce, all_reduce_wide, broadcast};
use combine::Combiner;
pub use combine::{DeviceNumber, NumberForm};
pub(crate) use combine::{PairCombiner, Pairs, ScanRange, kernels};
pub use moves::DeviceParts;
pub use pending::PendingCollective;

use super::{BlockCopies, Exchange, ExchangeError, PendingExchange, Wire, unnamed};
use crate::comm::{CommError, Communicator, Op};
use crate::gpu::{Array, DeviceElement, DeviceError, Recorder};
use crate::grid::{Cost, Transfers};

/// Bytes up to which data always travel along trees of the host.
const SHORT: u64 = 1 << 14;
/// Bytes of a message that is worth being staged by itself.
const USEFUL: u64 = 1 << 12;
/// Bytes from which on data never travel along trees, where they pass each rank up to log2 of the
/// ranks times.
const LONG: u64 = 1 << 24;

/// Returns `true` if `bytes` bytes, of which each rank would send or receive an equal part from
/// every other, travel along trees of the host. Parts of less than a page cost as much as their
/// messages: two for each other rank, but along trees two for each level.
fn are_short(bytes: u64, ranks: usize) -> bool {
    bytes <= SHORT.max((ranks as u64).saturating_mul(USEFUL).min(LONG))
}

/// Collectives on device arrays, over the ranks of an [`Exchange`].
///
/// - All ranks call them in the same order. Each begins with an agreement on the call, along trees,
///   so that calls that do not match end with
///   [`CommError::Mismatch`] on all ranks, in every build; it
///   waits for other ranks, not for data or the device.
/// - Each returns a [`PendingCollective`], to be finished at once or later; the result is a new
///   array. Data above 16 KiB, and above 4 KiB for each rank where that is more (but at most 16
///   MiB), travel in the chunks of the exchange, straight to the ranks that need them; shorter data
///   of `broadcast`, `all_gather` and `all_reduce` travel along trees of the host, before the call
///   returns.
/// - Counts are `u64` and messages are cut, without a limit of 2^31 bytes; arrays have
///   [`LONGEST`](crate::gpu::LONGEST) elements at most.
/// - Where several fields lie in an array one after the other (`fields`), each is gathered,
///   scattered and so on by itself.
/// - Submits what was recorded before, where data leave the rank.
///
/// ```
/// use meshloom::comm::Op;
/// use meshloom::exchange::{ExchangeError, collectives::Collectives};
/// use meshloom::Rank;
/// use meshloom::gpu::{Gpu, Options};
///
/// let sums = meshloom::comm::run_threads(3, |comm| {
///     let mut rank = Rank::new(comm.clone(), Gpu::open(&Options::from_env()?, 0)?)?;
///     let mut collectives = Collectives::new(rank.exchange.clone());
///     let own = rank.gpu.array::<f32>("own", 5)?;
///     rank.recorder.upload(&own, 0, &[comm.rank() as f32 + 1.0; 5])?;
///     let pending = collectives.all_reduce::<f32>(&mut rank.recorder, &own, Op::Sum)?;
///     // Here other work could be recorded.
///     let sum = pending.finish(&mut rank.recorder)?;
///     Ok::<_, ExchangeError>(rank.recorder.download(&sum, 4, 1)?[0])
/// })?;
/// assert_eq!(sums, [6.0; 3]);
/// # Ok::<(), meshloom::comm::RunError>(())
/// ```
#[derive(Clone)]
pub struct Collectives {
    exchange: Exchange,
    copies: Arc<BlockCopies>,
    combiner: Arc<Combiner>,
}

impl fmt::Debug for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collectives").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}

impl Collectives {
    /// Collectives whose data travel by `exchange`: over its ranks, in its chunks, but always
    /// exactly, as all ranks get the same bits. Exchanges that are in flight together are started
    /// by one `Exchange` or its clones.
    #[must_use]
    pub fn new(exchange: Exchange) -> Self {
        let exchange = exchange.with_wire(Wire::Exact);
        Collectives { exchange, copies: Arc::default(), combiner: Arc::default() }
    }

    /// Returns the ranks.
    #[must_use]
    pub fn comm(&self) -> &Communicator {
        self.exchange.comm()
    }

    /// Returns what the exchanges of all collectives so far have cost this rank; what travelled
    /// along trees does not count.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.exchange.cost()
    }

    /// Returns the exchange that follows when the first is done, as all ranks take their tags now;
    /// its cost counts already.
    fn later<T: DeviceElement>(&mut self, transfers: Transfers) -> LaterExchange {
        self.exchange.count(&transfers, T::ELEMENT.bytes());
        LaterExchange { tag: self.exchange.next_tag(), transfers, exchange: self.exchange.clone() }
    }

    /// Returns the calls of all ranks if they agree and their arguments are valid: `array` is on
    /// the device of `recorder`, is not in use, and has whole fields. `valid` holds further
    /// conditions.
    fn agree<T: DeviceElement>(
        &self,
        recorder: &Recorder,
        call: Call,
        array: Option<&Array<T>>,
        valid: Result<(), ExchangeError>,
    ) -> Result<Vec<Call>, ExchangeError> {
        let sound = || {
            valid?;
            recorder.gpu().check()?;
            if let Some(array) = array {
                array.raw().on(recorder.gpu(), "Collectives")?;
                array.raw().at_rest("Collectives")?;
            }
            Ok(recorder.gpu().supports(T::ELEMENT, "Collectives")?)
        };
        agree(self.comm(), call, sound())
    }
}

/// An exchange that follows another.
struct LaterExchange {
    tag: u32,
    transfers: Transfers,
    exchange: Exchange,
}

impl LaterExchange {
    fn start<T: DeviceElement>(
        mut self,
        recorder: &mut Recorder,
        outgoing: &Array<T>,
        incoming: &Array<T>,
    ) -> Result<PendingExchange, ExchangeError> {
        self.exchange.start_as((self.tag, unnamed::<T>()), recorder, &self.transfers, outgoing, incoming)
    }
}

/// Elements of each of `fields` fields of `len` elements in all.
fn per_field(len: u64, fields: u64) -> Result<u64, ExchangeError> {
    let count = len.checked_div(fields).filter(|count| count * fields == len);
    count.ok_or_else(|| misuse(format!("{len} elements are no {fields} fields")))
}

fn misuse(why: String) -> ExchangeError {
    DeviceError::misuse("Collectives", why).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{LONGEST, allowed_len};

    #[test]
    fn messages_of_less_than_a_page_are_not_sent_one_by_one() {
        for (ranks, most) in
            [(1, 16 << 10), (4, 16 << 10), (5, 20 << 10), (32, 128 << 10), (4096, 16 << 20), (10_000, 16 << 20)]
        {
            assert!(are_short(0, ranks) && are_short(most, ranks) && !are_short(most + 1, ranks), "{ranks}");
        }
    }

    #[test]
    fn fields_are_whole_and_arrays_as_long_as_any_may_be() {
        assert_eq!(allowed_len("x", LONGEST).unwrap(), LONGEST);
        assert!(matches!(allowed_len("x", LONGEST + 1), Err(DeviceError::TooLong { len, .. }) if len == LONGEST + 1));
        assert_eq!(per_field(6 << 32, 3).unwrap(), 2 << 32);
        assert!(per_field(7, 3).is_err() && per_field(7, 0).is_err() && per_field(7, u64::MAX).is_err());
    }
}

/// In place of what an operation does not have.
const NONE: u32 = u32::MAX;

/// A call: all that ranks must agree on, and what the rank gives.
///
/// Data travel as messages between two ranks, of lengths that both must know. So ranks first
/// exchange what they called, 80 bytes each along trees: what must agree does, or all of them
/// return an error and nothing moves; what each gives is known to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Call {
    /// Name of the collective.
    operation: [u8; 20],
    /// Name of the type of the elements.
    ty: [u8; 12],
    op: u32,
    root: u32,
    /// Ranks that this one sends to and receives from.
    peers: [u32; 2],
    fields: u64,
    /// Elements of a field where ranks must agree on them, or a hash of several numbers.
    agreed: u64,
    /// Elements of a field that this rank gives.
    own: u64,
    /// Whether what it gives does not fit.
    fault: u64,
}

/// Returns the bytes of `name`, as many as fit, and zeros.
fn padded<const N: usize>(name: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(name.bytes()).for_each(|(byte, of_name)| *byte = of_name);
    bytes
}

impl Call {
    /// Returns a call of the collective `operation` for `fields` fields of elements of the type
    /// `ty`, with `own` elements per field on this rank.
    fn new(operation: &str, ty: &str, fields: u64, own: u64) -> Call {
        let (operation, ty) = (padded(operation), padded(ty));
        Call { operation, ty, op: NONE, root: NONE, peers: [NONE; 2], fields, own, ..Call::zeroed() }
    }

    /// Adds the number of elements, on which ranks must agree.
    fn equal(self) -> Call {
        Call { agreed: self.own, ..self }
    }

    /// Adds another number on which ranks must agree.
    fn agreeing(self, agreed: u64) -> Call {
        Call { agreed, ..self }
    }

    fn root(self, root: usize) -> Call {
        Call { root: root as u32, ..self }
    }

    fn reducing(self, op: Op) -> Call {
        Call { op: op as u32, ..self }
    }

    fn between(self, to: Option<usize>, from: Option<usize>) -> Call {
        Call { peers: [to, from].map(|peer| peer.map_or(NONE, |rank| rank as u32)), ..self }
    }

    /// Returns the rank that this one sends to, and that which it receives from.
    fn named_peers(&self) -> [Option<usize>; 2] {
        self.peers.map(|peer| (peer != NONE).then_some(peer as usize))
    }

    fn differs(&self, other: &Call) -> bool {
        let shape = |call: &Call| (call.operation, call.ty, call.op, call.root, call.fields, call.agreed);
        shape(self) != shape(other)
    }

    /// Such as `all_reduce of 5 f32 on the device, Sum`.
    fn describe(&self) -> String {
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        let mut text = format!("{} of {} {} on the device", name(&self.operation), self.own, name(&self.ty));
        if self.fields != 1 {
            text += &format!(", {} fields", self.fields);
        }
        if let Some(op) = [Op::Sum, Op::Min, Op::Max].into_iter().find(|op| *op as u32 == self.op) {
            text += &format!(", {op:?}");
        }
        if self.root != NONE {
            text += &format!(", root {}", self.root);
        }
        text
    }
}

/// Returns the calls of all ranks where they agree; `valid` says whether what this rank gives fits
/// its call.
///
/// # Errors
/// On all ranks: that of `valid` where there is one, elsewhere [`CommError::Mismatch`].
fn agree(comm: &Communicator, own: Call, valid: Result<(), ExchangeError>) -> Result<Vec<Call>, ExchangeError> {
    let own = Call { fault: u64::from(valid.is_err()), ..own };
    let all = comm.all_gather(&[own])?;
    valid?;
    let Some(other) = all.iter().position(|other| other.fault != 0 || other.differs(&own)) else { return Ok(all) };
    let other_called = match all[other].fault {
        0 => format!("called {}", all[other].describe()),
        _ => format!("could not call {}, as its own error says", all[other].describe()),
    };
    Err(CommError::Mismatch { rank: comm.rank(), called: own.describe(), other, other_called }.into())
}
