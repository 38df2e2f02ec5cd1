//! One rank's benchmark of any subject: its context, clock and report.

use meshloom::grid::Cost;
use meshloom::{Context, Error};
use serde_json::json;

use super::measure::Clock;
use super::report::Report;
use super::{Found, Settings};

/// One rank's benchmark of a subject.
pub struct Session<'a> {
    pub context: &'a mut Context,
    pub settings: &'a Settings,
    pub clock: Clock,
    pub report: Report,
}

impl<'a> Session<'a> {
    /// A benchmark of `subject` with so many `measurements`, whose table has these columns.
    pub fn new(
        subject: &str,
        settings: &'a Settings,
        context: &'a mut Context,
        measurements: usize,
        columns: &[&'static str],
    ) -> Self {
        let clock = Clock::new(settings, context, measurements);
        let report = Report::new(subject, settings, context, columns);
        Session { context, settings, clock, report }
    }

    /// The sum over all ranks.
    pub fn sum<const N: usize>(&self, own: [u64; N]) -> Result<[u64; N], Error> {
        self.clock.sum(own)
    }

    /// The whole report.
    pub fn finish(mut self) -> Found {
        self.report.field("seconds", json!({ "total": self.clock.finish() }));
        Ok(self.report)
    }
}

/// What exchanges cost between two readings of their counters.
pub fn cost_between(before: Cost, after: Cost) -> Cost {
    Cost {
        sent: after.sent - before.sent,
        received: after.received - before.received,
        messages: after.messages - before.messages,
    }
}
