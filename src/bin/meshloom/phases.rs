//! Times of the phases of a command.

use std::collections::BTreeMap;
use std::time::Instant;

use indicatif::ProgressBar;

/// Seconds of each phase on one rank, by name, and a progress bar that advances with every new one.
pub struct Phases {
    bar: ProgressBar,
    start: Instant,
    last: Instant,
    seconds: BTreeMap<&'static str, f64>,
}

impl Phases {
    /// Begins the first phase. `bar` has one step per phase.
    pub fn new(bar: ProgressBar) -> Self {
        let now = Instant::now();
        // Drawn at once: the first phase may be the longest.
        bar.tick();
        Phases { bar, start: now, last: now, seconds: BTreeMap::new() }
    }

    /// Adds the time since the last call to `phase`.
    pub fn done(&mut self, phase: &'static str) {
        let now = Instant::now();
        *self.seconds.entry(phase).or_insert_with(|| {
            self.bar.inc(1);
            0.0
        }) += (now - self.last).as_secs_f64();
        self.last = now;
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
        // Every moment belongs to one phase. Four conversions and two sums round, each by half an epsilon.
        let parts = seconds["paint"] + seconds["transform"];
        assert!((parts - seconds["total"]).abs() <= 3.0 * f64::EPSILON * parts, "{seconds:?}");
    }
}
