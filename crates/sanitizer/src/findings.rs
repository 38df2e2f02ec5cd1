//! Findings of what is being run, and the marks of values that differ between devices.

use super::interpreter::Interpreter;
use super::report::{Finding, Problem};
use super::value::{ORDER, Taint, Value};

/// Findings of a dispatch that are kept.
const MOST: usize = 16;

impl Interpreter<'_> {
    /// A problem of what is being run.
    fn finding(&self, problem: Problem, detail: impl FnOnce() -> String) -> Finding {
        let (number, line) = self.program.line(self.at);
        Finding { problem, line: (number, line.into()), detail: detail() }
    }

    /// Notes a problem of what is being run, once for each line.
    pub(super) fn find(&mut self, problem: Problem, detail: impl FnOnce() -> String) {
        let number = self.program.line(self.at).0;
        let findings = &self.report.findings;
        let known = findings.iter().any(|found| found.problem == problem && found.line.0 == number);
        if !known && findings.len() < MOST {
            let finding = self.finding(problem, detail);
            self.report.findings.push(finding);
        }
    }

    /// Returns the mark of values that what is being run makes different between devices.
    pub(super) fn origin(&mut self, problem: Problem, detail: impl FnOnce() -> String) -> Taint {
        let number = self.program.line(self.at).0;
        let known = self.origins.iter().position(|found| found.problem == problem && found.line.0 == number);
        let place = known.unwrap_or_else(|| {
            let finding = self.finding(problem, detail);
            self.origins.push(finding);
            self.origins.len() - 1
        });
        (place + 1) as Taint
    }

    /// Reports that other invocations, the host or the control flow depend on a value.
    pub(super) fn depend(&mut self, value: &Value, mask: &[u32]) {
        let taint = mask.iter().map(|&lane| value.taint_of_any(lane)).find(|&taint| taint != 0 && taint != ORDER);
        let Some(taint) = taint else { return };
        let origin = &self.origins[usize::from(taint) - 1];
        let known =
            self.report.findings.iter().any(|found| found.problem == origin.problem && found.line == origin.line);
        if !known && self.report.findings.len() < MOST {
            let (number, line) = self.program.line(self.at);
            let detail = format!("{} (line {number}, `{line}`, depends on it)", origin.detail);
            self.report.findings.push(Finding { detail, ..origin.clone() });
        }
    }
}
