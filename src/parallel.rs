//! Work of the host on several threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

/// Threads at most: ranks of one host share its cores.
const THREADS: usize = 8;

/// Locks a mutex, also one that a thread which panicked has left. Such a thread leaves no state
/// half changed: what runs under locks does not panic.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex if no thread holds it, even if a thread panicked while it held it.
pub fn try_locked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Returns `f` of each number below `len`, in order. Threads share the numbers, at least `least`
/// each.
pub fn map(len: usize, least: usize, f: impl Fn(usize) -> f64 + Sync) -> Vec<f64> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(THREADS).min(len / least.max(1)).max(1);
    let part = len.div_ceil(threads).max(1);
    let mut values = vec![0.0; len];
    thread::scope(|scope| {
        let mut parts = values.chunks_mut(part).enumerate();
        let own = parts.next();
        let f = &f;
        let fill = move |(which, values): (usize, &mut [f64])| {
            values.iter_mut().enumerate().for_each(|(i, value)| *value = f(which * part + i));
        };
        parts.for_each(|part| drop(scope.spawn(move || fill(part))));
        own.into_iter().for_each(fill);
    });
    values
}

/// Calls `f` with each number below `len`. A thread takes the next number when it is done with one,
/// so that long calls hold up no others.
pub fn each(len: usize, f: impl Fn(usize) + Sync) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS).min(len);
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= len {
                return;
            }
            f(number);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::{each, map};
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn each_number_is_taken_once() {
        for len in [0, 1, 2, 63] {
            let taken = AtomicU64::new(0);
            each(len, |number| {
                assert_eq!(taken.fetch_or(1 << number, Ordering::Relaxed) >> number & 1, 0, "{number} of {len}");
            });
            assert_eq!(taken.into_inner(), (1 << len) - 1);
        }
    }

    #[test]
    fn values_are_in_order() {
        for (len, least) in [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 999), (5, 0)] {
            let wanted: Vec<f64> = (0..len).map(|i| i as f64).collect();
            assert_eq!(map(len, least, |i| i as f64), wanted);
        }
    }
}
