//! The cost of work, counted before or after it is done.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// The cost of a piece of work for one rank.
///
/// `a + b` is the cost of `a`, then `b`: counts add up, and the memory is the larger one.
///
/// ```
/// use meshloom::grid::Cost;
///
/// let pass = Cost { device_bytes: 100, dispatches: 1, memory_bytes: 8, ..Cost::default() };
/// let exchange = Cost { sent_bytes: 30, messages: 2, memory_bytes: 60, ..Cost::default() };
/// let both = pass + exchange;
/// assert_eq!((both.device_bytes, both.messages, both.memory_bytes), (100, 2, 60));
/// assert_eq!(both.times(3).sent_bytes, 90);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that kernels read and write in device memory.
    pub device_bytes: u64,
    /// Bytes sent to other ranks.
    pub sent_bytes: u64,
    /// Bytes received from other ranks.
    pub received_bytes: u64,
    /// Messages sent to other ranks.
    pub messages: u64,
    /// Dispatches of kernels.
    pub dispatches: u64,
    /// Largest device memory in use at one time, in bytes.
    pub memory_bytes: u64,
}

impl Cost {
    /// Returns the cost of kernels without messages.
    #[must_use]
    pub fn kernels(dispatches: u64, device_bytes: u64) -> Self {
        Cost { dispatches, device_bytes, ..Cost::default() }
    }

    /// Returns the cost of doing the work `count` times, one after the other.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Cost { memory_bytes: self.memory_bytes * u64::from(count > 0), ..self.each(self, |number, _| count * number) }
    }

    /// Returns what was added since a counter was `before`; memory is 0.
    #[must_use]
    pub fn since(self, before: Cost) -> Self {
        Cost { memory_bytes: 0, ..self.each(before, |now, before| now - before) }
    }

    /// Returns `f` of each count of this cost and of `other`, and the larger memory.
    fn each(self, other: Cost, f: impl Fn(u64, u64) -> u64) -> Self {
        Cost {
            device_bytes: f(self.device_bytes, other.device_bytes),
            sent_bytes: f(self.sent_bytes, other.sent_bytes),
            received_bytes: f(self.received_bytes, other.received_bytes),
            messages: f(self.messages, other.messages),
            dispatches: f(self.dispatches, other.dispatches),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
        }
    }
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        self.each(other, |a, b| a + b)
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), Add::add)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { device_bytes, sent_bytes, messages, dispatches, .. } = self;
        write!(f, "{dispatches} dispatches, {device_bytes} bytes; {messages} messages, {sent_bytes} bytes")
    }
}
