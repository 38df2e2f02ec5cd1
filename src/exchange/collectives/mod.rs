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

mod agreement;
mod batch;
mod combine;
mod moves;
mod pending;
mod reductions;
mod scan_range;

use std::fmt;
use std::sync::Arc;

pub use super::short_collectives::{all_gather, all_reduce, all_reduce_wide, broadcast};
use agreement::{Call, agree};
use combine::Combiner;
pub use combine::{DeviceNumber, NumberForm};
pub(crate) use combine::{PairCombiner, Pairs, kernels};
pub use moves::DeviceParts;
pub use pending::PendingCollective;
pub(crate) use scan_range::ScanRange;

use super::block_copy::BlockCopies;
use crate::comm::Communicator;
use crate::exchange::{Exchange, ExchangeError, PendingExchange, Wire, unnamed};
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
///   [`CommError::Mismatch`](crate::comm::CommError::Mismatch) on all ranks, in every build; it
///   waits for other ranks, not for data or the device.
/// - Each returns a [`PendingCollective`], to be finished at once or later; the result is a new
///   array. Data above 16 KiB, and above 4 KiB for each rank where that is more (but at most 16
///   MiB), travel in the chunks of the exchange, straight to the ranks that need them; shorter data
///   of `broadcast`, `all_gather` and `all_reduce` travel along trees of the host, before the call
///   returns.
/// - Counts are `u64` and messages are cut, without a limit of 2^31 bytes; arrays have
///   [`LONGEST`] elements at most.
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
