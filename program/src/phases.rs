//! Times of the phases of a command.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use indicatif::ProgressBar;
use meshloom::Error;
use meshloom::comm::{Communicator, Op};

use crate::trace;

/// Nanoseconds of a processor that this thread has had so far, where the system tells (Linux). A
/// thread that waits for the device or for another rank has none meanwhile, so that of a rank's
/// thread they are the work of its host.
pub fn processor_nanoseconds() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Seconds of each phase on one rank, by name, and a progress bar that advances with every new one.
pub struct Phases {
    bar: ProgressBar,
    start: Instant,
    last: Instant,
    seconds: BTreeMap<&'static str, f64>,
    /// Time of the thread's processor at the beginning of the first phase.
    processor: Option<u64>,
}

impl Phases {
    /// Begins the first phase. `bar` has one step per phase.
    pub fn new(bar: ProgressBar) -> Self {
        let now = Instant::now();
        // Drawn at once: the first phase may be the longest.
        bar.tick();
        Phases { bar, start: now, last: now, seconds: BTreeMap::new(), processor: processor_nanoseconds() }
    }

    /// Adds the time since the last call to `phase`.
    pub fn done(&mut self, phase: &'static str) {
        let now = Instant::now();
        *self.seconds.entry(phase).or_insert_with(|| {
            self.bar.inc(1);
            0.0
        }) += (now - self.last).as_secs_f64();
        trace::phase(phase, self.last, now);
        self.last = now;
    }

    /// Seconds of work of the host since the first phase began, of the rank that has most; `None`
    /// where the system does not tell. Collective, on the threads that began.
    pub fn host_seconds(&self, comm: &Communicator) -> Result<Option<f64>, Error> {
        let own = self.processor.zip(processor_nanoseconds()).map(|(before, now)| now - before);
        let mut most = [own.unwrap_or(u64::MAX)];
        comm.all_reduce(&mut most, Op::Max)?;
        Ok((most[0] != u64::MAX).then_some(1e-9 * most[0] as f64))
    }

    /// Removes the bar and returns the seconds of each phase, and of all as `total`.
    pub fn finish(mut self) -> BTreeMap<&'static str, f64> {
        self.bar.finish_and_clear();
        self.seconds.insert("total", (self.last - self.start).as_secs_f64());
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_and_move_the_bar_once() {
        let bar = ProgressBar::hidden();
        let mut phases = Phases::new(bar.clone());
        for phase in ["paint", "transform", "paint"] {
            phases.done(phase);
        }
        assert_eq!(bar.position(), 2);
        let seconds = phases.finish();
        assert_eq!(seconds.keys().copied().collect::<Vec<_>>(), ["paint", "total", "transform"]);
        // Every moment belongs to one phase. Four conversions and two sums round, each by half an
        // epsilon.
        let parts = seconds["paint"] + seconds["transform"];
        assert!((parts - seconds["total"]).abs() <= 3.0 * f64::EPSILON * parts, "{seconds:?}");
    }
}
