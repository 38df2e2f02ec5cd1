//! Reductions and scans.
//!
//! Elements are combined along a fixed tree over the rank order (0 with 1, 2 with 3, then pairs of pairs), never in the
//! order in which they arrive: for a given number of ranks the result is the same to the last bit.

use bytemuck::Pod;

use super::Result;
use super::call::{Call, Operation};
use super::communicator::{Communicator, from_bytes};

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The sum. Integers wrap around.
    Sum,
    /// The least. A NaN of any rank makes the result NaN.
    Min,
    /// The greatest. A NaN of any rank makes the result NaN.
    Max,
}

mod sealed {
    pub trait Number {
        const KIND: u8;
    }
}

/// Numbers that reductions combine: `u32 i32 u64 i64 u128 i128 f32 f64`.
pub trait Reducible: Pod + sealed::Number {
    /// The value that changes nothing.
    fn identity(op: Op) -> Self;
    /// `self` and `other` combined; `self` comes from the lower ranks.
    fn combine(self, other: Self, op: Op) -> Self;
}

/// Names of the types, by their number in a call.
pub(super) const KINDS: [&str; 8] = ["u32", "i32", "u64", "i64", "u128", "i128", "f32", "f64"];

macro_rules! integers {
    ($($number:ty: $kind:expr),*) => {$(
        impl sealed::Number for $number {
            const KIND: u8 = $kind;
        }
        impl Reducible for $number {
            fn identity(op: Op) -> Self {
                match op {
                    Op::Sum => 0,
                    Op::Min => Self::MAX,
                    Op::Max => Self::MIN,
                }
            }
            fn combine(self, other: Self, op: Op) -> Self {
                match op {
                    Op::Sum => self.wrapping_add(other),
                    Op::Min => self.min(other),
                    Op::Max => self.max(other),
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ty: $kind:expr),*) => {$(
        impl sealed::Number for $number {
            const KIND: u8 = $kind;
        }
        impl Reducible for $number {
            fn identity(op: Op) -> Self {
                match op {
                    Op::Sum => -0.0, // unlike 0.0 it keeps the sign of a zero
                    Op::Min => Self::INFINITY,
                    Op::Max => Self::NEG_INFINITY,
                }
            }
            fn combine(self, other: Self, op: Op) -> Self {
                match op {
                    Op::Sum => self + other,
                    // `f32::min` would drop a NaN, and with it the news of a failed rank.
                    Op::Min => if self.is_nan() || self <= other { self } else { other },
                    Op::Max => if self.is_nan() || self >= other { self } else { other },
                }
            }
        }
    )*};
}

integers!(u32: 0, i32: 1, u64: 2, i64: 3, u128: 4, i128: 5);
floats!(f32: 6, f64: 7);

fn combine<T: Reducible>(lower: &mut [T], upper: &[T], op: Op) {
    for (lower, upper) in lower.iter_mut().zip(upper) {
        *lower = lower.combine(*upper, op);
    }
}

impl Communicator {
    /// Replaces each element by its reduction over all ranks. Collective; the length is the same on all ranks.
    ///
    /// Moves the whole slice about 2 log2(size) times on the busiest rank: meant for short slices; for long ones use
    /// [`reduce_scatter`](Communicator::reduce_scatter), whose result is the same to the last bit.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn all_reduce<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let call = self.begin(Call::new(Operation::AllReduce).reducing(op, T::KIND).of::<T>().count(data.len()));
        let (rank, size) = (self.rank(), self.size());
        let mut distance = 1;
        while distance < size {
            if rank & distance != 0 {
                self.give(&call, rank - distance, data)?.wait()?;
                break;
            }
            if rank + distance < size {
                let bytes = self.take(&call, rank + distance, size_of_val(data))?.wait()?;
                combine(data, &from_bytes(data.len(), &bytes), op);
            }
            distance *= 2;
        }
        self.broadcast_tree(&call, 0, data)
    }

    /// Cuts `data` into one equal block a rank and gives this rank its block, reduced over all ranks. Collective; the
    /// length is the same on all ranks and a multiple of their number.
    ///
    /// # Errors
    /// [`Length`](super::CommError::Length), [`Mismatch`](super::CommError::Mismatch),
    /// [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn reduce_scatter<T: Reducible>(&self, data: &[T], op: Op) -> Result<Vec<T>> {
        let block =
            self.valid_blocks("the length of the slice of reduce_scatter (a multiple of the ranks)", data.len())?;
        let call = self.begin(Call::new(Operation::ReduceScatter).reducing(op, T::KIND).of::<T>().count(data.len()));
        let blocks = self.exchange(&call, &vec![block; self.size()], data, &vec![block; self.size()])?;
        let mut blocks: Vec<Vec<T>> = blocks.iter().map(|bytes| from_bytes(block, bytes)).collect();
        // The tree of `all_reduce`, all in one place.
        let mut distance = 1;
        while distance < blocks.len() {
            for lower in (0..blocks.len() - distance).step_by(2 * distance) {
                let (head, tail) = blocks.split_at_mut(lower + distance);
                combine(&mut head[lower], &tail[0], op);
            }
            distance *= 2;
        }
        Ok(blocks.swap_remove(0))
    }

    /// Replaces each element by its reduction over the ranks up to and including this one. Collective; the length is the
    /// same on all ranks. Sums of floats combine in another order than [`all_reduce`](Communicator::all_reduce).
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn scan<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let call = self.begin(Call::new(Operation::Scan).reducing(op, T::KIND).of::<T>().count(data.len()));
        self.scan_tree(&call, data, op).map(drop)
    }

    /// Replaces each element by its reduction over the ranks before this one; on rank 0 by what changes nothing: zero,
    /// or the greatest or least number of the type (an infinity for floats). Collective; the length is the same on all
    /// ranks.
    ///
    /// # Errors
    /// [`Mismatch`](super::CommError::Mismatch), [`PeerFailed`](super::CommError::PeerFailed), or those of the backend.
    pub fn scan_exclusive<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let call = self.begin(Call::new(Operation::ScanExclusive).reducing(op, T::KIND).of::<T>().count(data.len()));
        let before = self.scan_tree(&call, data, op)?;
        match before {
            Some(before) => data.copy_from_slice(&before),
            None => data.fill(T::identity(op)),
        }
        Ok(())
    }

    /// Scans by doubling the distance; gives the reduction over the ranks before this one, if there are any.
    fn scan_tree<T: Reducible>(&self, call: &Call, data: &mut [T], op: Op) -> Result<Option<Vec<T>>> {
        let (rank, size) = (self.rank(), self.size());
        let mut before: Option<Vec<T>> = None;
        let mut distance = 1;
        while distance < size {
            let sending = match rank + distance {
                to if to < size => Some(self.give(call, to, data)?),
                _ => None,
            };
            if rank >= distance {
                let bytes = self.take(call, rank - distance, size_of_val(data))?.wait()?;
                let mut lower: Vec<T> = from_bytes(data.len(), &bytes);
                let mut all = lower.clone();
                combine(&mut all, data, op);
                data.copy_from_slice(&all);
                if let Some(before) = before {
                    combine(&mut lower, &before, op);
                }
                before = Some(lower);
            }
            if let Some(sending) = sending {
                sending.wait()?;
            }
            distance *= 2;
        }
        Ok(before)
    }
}
