//! One rank's benchmark of any subject: its rank, clock and report.

use meshloom::{Error, Rank};
use serde_json::json;

use super::input::Settings;
use super::measure::Clock;
use super::report::Report;
use crate::checked_files::Files;
use crate::failure::{Ended, Failure};
use crate::terminal;

/// Measures on all ranks and prints what rank 0 reports, right or wrong.
///
/// # Errors
/// Errors of the options and the work, and [`Report::verdict`].
pub fn run(settings: &Settings, body: impl Fn(&mut Rank) -> Result<Report, Ended> + Sync) -> Result<(), Failure> {
    let Some(report) = settings.common.launch(&Files::default(), body)? else { return Ok(()) };
    let verdict = report.verdict();
    let printed = match settings.common.json {
        true => terminal::print_object(&report.json()),
        false => terminal::print(&report.text()),
    };
    verdict.and(printed)
}

/// One rank's benchmark of a subject.
pub struct Session<'a> {
    pub rank: &'a mut Rank,
    pub settings: &'a Settings,
    pub clock: Clock,
    pub report: Report,
}

impl<'a> Session<'a> {
    /// Creates a benchmark of `subject` with `measurements` measurements, whose table has these
    /// columns.
    pub fn new(
        subject: &str,
        settings: &'a Settings,
        rank: &'a mut Rank,
        measurements: usize,
        columns: &[&'static str],
    ) -> Self {
        let clock = Clock::new(settings, rank, measurements);
        let mut report = Report::new(subject, settings, rank, columns);
        if settings.kernels && !rank.gpu.capabilities().timestamps {
            report.note("this device has no timestamps: kernels are not measured".into());
        }
        Session { rank, settings, clock, report }
    }

    /// Returns the sums over all ranks.
    pub fn sum<const N: usize>(&self, own: [u64; N]) -> Result<[u64; N], Error> {
        self.clock.sum(own)
    }

    /// Returns the whole report.
    pub fn finish(mut self) -> Report {
        self.report.field("seconds", json!({ "total": self.clock.finish() }));
        for (median, kernels) in self.clock.kernels() {
            self.report.kernels(median, &kernels);
        }
        self.report
    }
}
