//! Locks and polling waits of the backends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The lock of a mutex, also where a thread has panicked while it held it: what is guarded here stays valid.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pauses of a wait that polls: they grow from spinning to sleeping, as ranks may share a core with what they wait for.
#[derive(Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Pauses after a poll that found nothing.
    pub fn pause(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            0..64 => std::hint::spin_loop(),
            64..2048 => thread::yield_now(),
            2048..8192 => thread::sleep(Duration::from_micros(20)),
            _ => thread::sleep(Duration::from_micros(200)),
        }
    }
}
