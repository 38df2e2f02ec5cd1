//! Measurements as a table for people and as JSON.

use std::fmt::Write as _;

use meshloom::Rank;
use meshloom::gpu::KernelTime;
use serde_json::{Value, json};

use super::input::Settings;
use super::measure::{Spread, WARM_UP, warm_seconds};
use crate::failure::Failure;

/// A reference implementation of the same work.
pub struct Reference {
    pub name: &'static str,
    pub seconds: Spread,
    /// Threads of the processor that share the work, if it is done there.
    pub threads: Option<usize>,
    /// Compared results, each with whether it is the same.
    pub what: String,
    pub same: bool,
}

/// The whole report of a subject.
pub struct Report {
    head: Vec<String>,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    object: Value,
    results: Vec<Value>,
    wrong: Vec<String>,
    /// Lines below the table.
    foot: Vec<String>,
}

impl Report {
    /// An empty report on `subject`, whose table has these columns.
    pub fn new(subject: &str, settings: &Settings, rank: &Rank, columns: &[&'static str]) -> Self {
        let (device, ranks, warm) = (&rank.gpu.info().name, rank.comm.size(), warm_seconds(rank));
        let mut head = vec![format!(
            "{device}, {ranks} rank{}; median of {} runs after {WARM_UP}{}",
            if ranks == 1 { "" } else { "s" },
            settings.runs,
            if warm > 0.0 { format!(" and {warm} s of work") } else { String::new() }
        )];
        if cfg!(debug_assertions) {
            head.push("built with debug assertions: these are not the times of a release build".into());
        }
        let mut object = Self::head(rank, settings);
        object["subject"] = subject.into();
        Report {
            head,
            columns: columns.to_vec(),
            rows: Vec::new(),
            object,
            results: Vec::new(),
            wrong: Vec::new(),
            foot: Vec::new(),
        }
    }

    /// Returns what all reports say: the program, the device, and how often was measured.
    pub fn head(rank: &Rank, settings: &Settings) -> Value {
        let info = rank.gpu.info();
        json!({
            "command": "bench", "version": env!("CARGO_PKG_VERSION"), "device": info.name, "driver": info.driver,
            "driver_info": info.driver_info, "backend": info.backend.to_str(), "ranks": rank.comm.size(),
            "sharing": rank.sharing, "build": if cfg!(debug_assertions) { "debug" } else { "release" },
            "runs": settings.runs, "warm_up": WARM_UP, "warm_seconds": warm_seconds(rank),
        })
    }

    /// A line above the table.
    pub fn note(&mut self, line: String) {
        self.head.push(line);
    }

    /// A field of the object.
    pub fn field(&mut self, name: &str, value: Value) {
        self.object[name] = value;
    }

    /// Adds a row of the table and its element of the results, with the reference if there is one.
    pub fn add(&mut self, mut cells: Vec<String>, mut result: Value, ours: &Spread, reference: Option<Reference>) {
        if let Some(reference) = reference {
            result["reference"] = self.beside(&mut cells, ours, reference);
        }
        self.row(cells);
        self.result(result);
    }

    /// Adds the time and the ratio of a reference to `cells` and returns its object.
    pub fn beside(&mut self, cells: &mut Vec<String>, ours: &Spread, reference: Reference) -> Value {
        let Reference { name, seconds, threads, what, same } = reference;
        let mut object = self::reference(ours, name, &seconds);
        if let Some(threads) = threads {
            object["threads"] = threads.into();
        }
        self.compared(&mut object, what, same);
        cells.extend([time(seconds.median), ratio(ours, &seconds)]);
        object
    }

    /// A row of the table; cells that lack at its end are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// An element of the object's `results`.
    pub fn result(&mut self, result: Value) {
        self.results.push(result);
    }

    /// Adds the times of the kernels of a measurement with this median, in the order of
    /// measurements.
    pub fn kernels(&mut self, median: f64, kernels: &[KernelTime]) {
        if kernels.is_empty() {
            return;
        }
        let all: f64 = kernels.iter().map(|kernel| kernel.seconds).sum();
        self.foot.push(format!("kernels of one run of {}: {}", time(median), time(all)));
        for KernelTime { kernel, dispatches, seconds } in kernels {
            self.foot.push(format!("{:>10} in {dispatches:>4} of {kernel}", time(*seconds)));
        }
        let each = |time: &KernelTime| json!({ "kernel": time.kernel, "dispatches": time.dispatches, "seconds": time.seconds });
        let measurement =
            json!({ "median": median, "seconds": all, "kernels": kernels.iter().map(each).collect::<Vec<_>>() });
        let measurements = &mut self.object["kernels"];
        if measurements.is_null() {
            *measurements = json!([]);
        }
        measurements.as_array_mut().into_iter().for_each(|all| all.push(measurement.clone()));
    }

    /// Adds to the object of [`reference()`] whether the result of `what` is that of the reference.
    pub fn compared(&mut self, reference: &mut Value, what: impl Into<String>, same: bool) {
        reference["same"] = same.into();
        if !same {
            self.wrong.push(what.into());
        }
    }

    /// Checks that all results were those of the reference: times of wrong results mean nothing.
    ///
    /// # Errors
    /// [`Failure::Failed`], which names them.
    pub fn verdict(&self) -> Result<(), Failure> {
        match self.wrong.join("; ") {
            none if none.is_empty() => Ok(()),
            all => Err(Failure::Failed(format!(
                "WRONG RESULTS, not those of the reference: {all}; the times mean nothing"
            ))),
        }
    }

    pub fn json(self) -> Value {
        let mut object = self.object;
        object["results"] = self.results.into();
        object
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.head {
            let _ = writeln!(text, "{line}");
        }
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row.get(column).map_or(0, |cell| cell.chars().count()));
            cells.chain([self.columns[column].len()]).max().unwrap_or(0)
        };
        // Columns without content are left out.
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|&c| self.rows.iter().any(|r| r.get(c).is_some_and(|cell| !cell.is_empty())))
            .collect();
        let widths: Vec<usize> = shown.iter().map(|&column| width(column)).collect();
        let mut line = |cell: &dyn Fn(usize) -> String| {
            let cells = shown.iter().zip(&widths).map(|(&column, &width)| match column {
                0 => format!("{:<width$}", cell(column)),
                _ => format!("{:>width$}", cell(column)),
            });
            let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        };
        line(&|column| self.columns[column].to_string());
        for row in &self.rows {
            line(&|column| row.get(column).cloned().unwrap_or_default());
        }
        for line in &self.foot {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// Returns the object of a reference beside our time.
pub fn reference(ours: &Spread, name: &str, theirs: &Spread) -> Value {
    json!({ "name": name, "seconds": theirs, "ratio": ours.median / theirs.median })
}

/// Returns a time with its unit.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// `least..greatest`
pub fn range(spread: &Spread) -> String {
    format!("{} .. {}", time(spread.min), time(spread.max))
}

/// Bytes per second, with a unit.
pub fn rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        r if r >= 1e11 => format!("{:.0} GB/s", r / 1e9),
        r if r >= 1e8 => format!("{:.2} GB/s", r / 1e9),
        r => format!("{:.2} MB/s", r / 1e6),
    }
}

/// Bytes in decimal units, as rates are.
pub fn amount(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.2} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.2} kB", b / 1e3),
        b => format!("{b} B"),
    }
}

/// Our time divided by that of the reference.
pub fn ratio(ours: &Spread, theirs: &Spread) -> String {
    format!("{:.2}", ours.median / theirs.median)
}

/// Our speed in hundredths of the reference's.
pub fn of_reference(ours: &Spread, theirs: &Spread) -> String {
    format!("{:.0} %", 100.0 * theirs.median / ours.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_the_reference_is_a_failure() {
        let (head, columns, rows, results, wrong) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut report = Report { head, columns, rows, object: json!({}), results, wrong, foot: Vec::new() };
        let mut result = json!({ "reference": {} });
        report.compared(&mut result["reference"], "the first", true);
        assert_eq!(result["reference"]["same"], true);
        assert!(report.verdict().is_ok());
        for what in ["the second", "the third"] {
            report.compared(&mut result["reference"], what, false);
            assert_eq!(result["reference"]["same"], false);
        }
        report.compared(&mut result["reference"], "the fourth", true);
        match report.verdict() {
            Err(Failure::Failed(why)) => assert!(why.contains("reference: the second; the third; the times"), "{why}"),
            _ => panic!("two results differ"),
        }
    }

    #[test]
    fn quantities_have_units() {
        assert_eq!([2.0, 0.1234, 0.01234, 1.5e-6].map(time), ["2.00 s", "123 ms", "12.3 ms", "1.50 us"]);
        assert_eq!([3e12, 8.2e9, 4e6].map(rate), ["3000 GB/s", "8.20 GB/s", "4.00 MB/s"]);
        assert_eq!([12, 4096, 3_000_000, 5_000_000_000].map(amount), ["12 B", "4.10 kB", "3.00 MB", "5.00 GB"]);
    }
}
