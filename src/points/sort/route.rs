//! Redistribution of rows between ranks by a fixed plan, forward and back, for any number of
//! arrays.

use super::SortError;
use crate::comm::Communicator;
use crate::exchange::ExchangeError;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, DeviceElement, DeviceError, MemoryKind};
use crate::points::{Cloud, U64Array, exchange_rows};
use crate::rank::Rank;

/// A plan that moves rows between ranks: which rows go to which rank, and in which order they lie
/// there. It serves any number of arrays that have the same rows, forward and back.
///
/// ```text
/// rows before -> local order, cut by rank -> Exchange::run -> parts, by source rank -> merge order -> rows after
/// ```
///
/// - Rows are any number of elements wide, of any type; they are moved as words, exactly.
/// - All ranks of the exchange call [`forward`](Self::forward) and [`back`](Self::back) together,
///   also those without rows.
/// - A move gathers rows twice in device memory and sends each row once; on one rank that needs no
///   merge order it gathers them once.
pub struct Route {
    pub(crate) order: Array<u32>,
    sends: Vec<u64>,
    receives: Vec<u64>,
    merge: Option<Array<u32>>,
    rank: usize,
    /// Which of the plans of its communicator it is.
    number: u64,
    permute: Permute,
}

fn misuse(why: String) -> ExchangeError {
    DeviceError::misuse("Route", why).into()
}

impl Route {
    /// Creates the plan of one rank of `comm`: it sends its rows in `order` (a permutation), the
    /// first `sends[0]` to rank 0 and so on, and receives `receives[r]` rows from rank `r`. Of the
    /// rows received, in rank order, row `merge[i]` becomes row `i`; without a merge order they
    /// stay in rank order. Sends no message, but all ranks make their plans in one order: exchanges
    /// of two plans are told apart by it.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the lengths do not fit together.
    pub fn new(
        comm: &Communicator,
        order: Array<u32>,
        sends: Vec<u64>,
        receives: Vec<u64>,
        merge: Option<Array<u32>>,
    ) -> Result<Self, ExchangeError> {
        let [given, taken] =
            [&sends, &receives].map(|counts| counts.iter().fold(0, |all: u64, &rows| all.saturating_add(rows)));
        if sends.len() != comm.size() || receives.len() != comm.size() {
            let why = format!("{} and {} parts for {} ranks", sends.len(), receives.len(), comm.size());
            return Err(misuse(why));
        }
        let places = merge.as_ref().map_or(taken, Array::len);
        if order.len() != given || places != taken || sends[comm.rank()] != receives[comm.rank()] {
            let why = format!("{given} rows in {} places, to {taken} rows in {places} places", order.len());
            return Err(misuse(why));
        }
        Ok(Route {
            order,
            sends,
            receives,
            merge,
            rank: comm.rank(),
            number: comm.next_plan(),
            permute: Permute::new(),
        })
    }

    /// Rows of this rank after [`forward`](Self::forward).
    fn rows_after(&self) -> u64 {
        self.receives.iter().sum()
    }

    /// Rows that this rank sends to each rank, and that it receives from each.
    pub(crate) fn counts(&self) -> [&[u64]; 2] {
        [&self.sends, &self.receives]
    }

    /// Moves the rows of `array`, of `width` elements each, to their new ranks and places. What was
    /// recorded before is submitted if rows move between ranks; what is recorded after sees the
    /// result.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] when
    /// `array` does not have the rows before, or the exchange is of other ranks.
    pub fn forward<T: DeviceElement>(
        &self,
        rank: &mut Rank,
        array: &Array<T>,
        width: u64,
    ) -> Result<Array<T>, ExchangeError> {
        let (words, source) = self.words(&rank.comm, array, width, self.order.len())?;
        let memory = if self.is_local() { MemoryKind::Device } else { MemoryKind::Outgoing };
        let outgoing = rank.gpu.array_in::<u32>("route::outgoing", source.len(), memory)?;
        self.permute.gather(&mut rank.recorder, &source, &self.order, &outgoing, words, Count::All)?;
        Ok(self.exchange(rank, outgoing, words)?.cast()?)
    }

    /// Returns `true` if rows are only gathered, on one rank.
    fn is_local(&self) -> bool {
        self.sends.len() == 1 && self.merge.is_none()
    }

    /// Gives `to`, which has this rank's points after, the attributes that the points have in
    /// `from`.
    pub(crate) fn forward_attributes(&self, rank: &mut Rank, from: &Cloud, to: &mut Cloud) -> Result<(), SortError> {
        for (name, attribute) in from.attributes() {
            let (values, width) = (attribute.values(), attribute.width());
            let words = self.forward(rank, &values.words()?, width)?;
            to.set(name, values.like(&words)?, width)?;
        }
        Ok(())
    }

    /// Returns the indices of this rank's rows after among the `total` of all ranks, of which this
    /// rank's before begin at `first`.
    pub(crate) fn forward_ids(&self, rank: &mut Rank, first: u64, total: u64) -> Result<U64Array, ExchangeError> {
        let ids = U64Array::sum(&mut rank.recorder, first, &self.order, total)?;
        ids.map(|words| self.exchange(rank, words.clone(), 1))
    }

    /// Exchanges rows that are in local order, and merges those received.
    fn exchange(&self, rank: &mut Rank, outgoing: Array<u32>, words: u64) -> Result<Array<u32>, ExchangeError> {
        if self.is_local() {
            return Ok(outgoing);
        }
        let what = format!("Route::forward of plan {}", self.number);
        let incoming = exchange_rows(rank, &what, &outgoing, words, [&self.sends, &self.receives])?;
        let Some(merge) = &self.merge else { return Ok(incoming) };
        let target = rank.gpu.array::<u32>("route::rows", incoming.len())?;
        self.permute.gather(&mut rank.recorder, &incoming, merge, &target, words, Count::All)?;
        Ok(target)
    }

    /// Returns the inverse of [`forward`](Self::forward): moves rows back to the ranks and places
    /// they had before.
    ///
    /// # Errors
    /// Same as [`forward`](Self::forward), with the rows after.
    pub fn back<T: DeviceElement>(
        &self,
        rank: &mut Rank,
        array: &Array<T>,
        width: u64,
    ) -> Result<Array<T>, ExchangeError> {
        let sent = self.back_as_sent(rank, array, width)?;
        let target = rank.gpu.array::<T>("route::rows", sent.len())?;
        self.permute.scatter(&mut rank.recorder, &sent, &self.order, &target, width, Count::All)?;
        Ok(target)
    }

    /// Same as [`back`](Self::back), but the rows stay in the order in which this rank sends its
    /// own.
    pub(crate) fn back_as_sent<T: DeviceElement>(
        &self,
        rank: &mut Rank,
        array: &Array<T>,
        width: u64,
    ) -> Result<Array<T>, ExchangeError> {
        let (words, source) = self.words(&rank.comm, array, width, self.rows_after())?;
        if self.is_local() {
            return Ok(array.clone());
        }
        let outgoing = rank.gpu.array_in::<u32>("route::outgoing", source.len(), MemoryKind::Outgoing)?;
        match &self.merge {
            Some(merge) => self.permute.scatter(&mut rank.recorder, &source, merge, &outgoing, words, Count::All)?,
            None => rank.recorder.copy(&source, 0, &outgoing, 0, source.len())?,
        }
        let what = format!("Route::back of plan {}", self.number);
        Ok(exchange_rows(rank, &what, &outgoing, words, [&self.receives, &self.sends])?.cast()?)
    }

    /// Words per row, and the array as words.
    fn words<T: DeviceElement>(
        &self,
        comm: &Communicator,
        array: &Array<T>,
        width: u64,
        rows: u64,
    ) -> Result<(u64, Array<u32>), ExchangeError> {
        let (rank, size) = (comm.rank(), comm.size());
        if (rank, size) != (self.rank, self.sends.len()) {
            let why = format!("rank {rank} of {size} in the exchange, {} of {}", self.rank, self.sends.len());
            return Err(misuse(why));
        }
        if Some(array.len()) != rows.checked_mul(width) {
            return Err(misuse(format!("{} elements, not {rows} rows of {width}", array.len())));
        }
        Ok((width * T::ELEMENT.bytes() / 4, array.cast()?))
    }
}

/// Moves rows along `route`; without one they stay.
pub(crate) fn forward_by<T: DeviceElement>(
    route: Option<&Route>,
    rank: &mut Rank,
    array: &Array<T>,
    width: u64,
) -> Result<Array<T>, ExchangeError> {
    route.map_or_else(|| Ok(array.clone()), |route| route.forward(rank, array, width))
}

/// Moves rows [back](Route::back) along `route`; without one they stay.
pub(crate) fn back_by<T: DeviceElement>(
    route: Option<&Route>,
    rank: &mut Rank,
    array: &Array<T>,
    width: u64,
) -> Result<Array<T>, ExchangeError> {
    route.map_or_else(|| Ok(array.clone()), |route| route.back(rank, array, width))
}
