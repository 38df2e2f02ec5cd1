//! Locks and polling waits of the backends.

use std::thread;
use std::time::{Duration, Instant};

/// The pauses of a wait that polls: they grow from spinning to sleeping, as ranks may share a core
/// with what they wait for. They grow with time and not with polls, since on a busy core each pause
/// may take milliseconds.
#[derive(Default)]
pub(crate) struct Backoff {
    polls: u32,
    since: Option<Instant>,
}

impl Backoff {
    /// Returns `true` if the wait has lasted for long enough to do other things in it.
    pub fn is_long(&self) -> bool {
        self.since.is_some()
    }

    /// Pauses a wait for a device that computes on the cores of this host, which short pauses would
    /// take from it.
    pub fn pause_for_cores(&mut self) {
        match self.since {
            Some(since) if since.elapsed() >= Duration::from_millis(2) => nap(Duration::from_micros(200)),
            _ => self.pause(),
        }
    }

    /// Pauses after a poll that found nothing.
    pub fn pause(&mut self) {
        self.polls = self.polls.saturating_add(1);
        if self.polls < 64 {
            return std::hint::spin_loop();
        }
        match self.since.get_or_insert_with(Instant::now).elapsed().as_millis() {
            0..2 => thread::yield_now(),
            2..500 => nap(Duration::from_micros(20)),
            _ => nap(Duration::from_micros(200)),
        }
    }
}

/// Sleeps for a short time. Linux adds 50 us to every sleep of a thread that does not ask for less.
fn nap(time: Duration) {
    #[cfg(target_os = "linux")]
    {
        thread_local! {
            // SAFETY: the call takes a number and changes this thread's timers only.
            static EXACT: () = unsafe { let _ = libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong); };
        }
        EXACT.with(|()| ());
    }
    thread::sleep(time);
}
