//! `meshloom bench --all`: every subject in one process, with sizes that suit the device.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, FromArgMatches, Subcommand, ValueEnum};
use meshloom::Rank;
use meshloom::comm::Op;
use meshloom::gpu::{Profile, Recorder};
use meshloom::io::write_whole;
use serde_json::{Value, json};

use super::input::Settings;
use super::report::Report;
use super::subject::{Peer, Subject};
use crate::failure::{Ended, Failure};
use crate::terminal;

#[derive(Args)]
pub struct Suite {
    /// Measure every subject, one after the other, with sizes that suit the device
    #[arg(long)]
    pub all: bool,
    /// Large sizes are for GPUs [default: large on a GPU, small on a software renderer]
    #[arg(long, value_enum, value_name = "SIZES", requires = "all")]
    sizes: Option<Sizes>,
    /// Begin no subject after this time
    #[arg(long, value_name = "SECONDS", requires = "all", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    within: Option<u64>,
    /// Write the JSON object to this file, too, after each subject
    #[arg(long, value_name = "FILE", requires = "all")]
    save: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Amount of work to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sizes {
    /// Work that a software renderer does in seconds
    Small,
    /// Work that fills a GPU, as far as its memory goes
    Large,
}

/// A subject with its options, the last of which is that of its sizes, and the sizes.
struct Case {
    words: &'static str,
    small: &'static str,
    /// Each with the bytes of device memory that measuring it takes, rounded up.
    large: &'static [(&'static str, u64)],
}

/// Subjects that others are compared with come first: time may run out.
const CASES: [Case; 17] = [
    Case {
        words: "fft --size",
        small: "32,30x36x25",
        large: &[("256", 1 << 30), ("512", 5 << 30), ("1024", 36 << 30)],
    },
    Case {
        words: "sort --size",
        small: "20000",
        large: &[("1000000", 1 << 26), ("10000000", 1 << 29), ("100000000", 5 << 30)],
    },
    Case {
        words: "knn -k 8,16,30 --size",
        small: "3000",
        large: &[("1000000", 1 << 30), ("10000000", 6 << 30), ("30000000", 18 << 30)],
    },
    Case {
        words: "fof --box 1 --linking-parameter 0.2,0.7 --size",
        small: "3000",
        large: &[("1000000", 1 << 30), ("10000000", 4 << 30)],
    },
    Case { words: "pm --window cic,tsc --size", small: "16", large: &[("256", 4 << 30), ("512", 28 << 30)] },
    Case {
        words: "pairs --size",
        small: "3000",
        large: &[("100000", 1 << 28), ("1000000", 1 << 30), ("10000000", 3 << 30)],
    },
    Case { words: "gradient --size", small: "8", large: &[("128", 4 << 30), ("256", 24 << 30)] },
    Case { words: "exchange --size", small: "32", large: &[("512", 3 << 30)] },
    Case { words: "collectives --bytes", small: "8,1024", large: &[("8,65536,16777216", 1 << 28)] },
    Case {
        words: "commands --bytes",
        small: "65536",
        large: &[("65536", 1 << 20), ("1048576", 1 << 22), ("67108864", 1 << 28), ("1073741824", 3 << 30)],
    },
    Case {
        words: "memory --stride 65536,16777216 --size",
        small: "65536",
        large: &[("268435456", 1 << 29), ("8589934592", 9 << 30)],
    },
    Case { words: "staging --bytes", small: "4096", large: &[("2097152,33554432", 1 << 30)] },
    Case { words: "halo --width 2 --size", small: "32", large: &[("512", 2 << 30)] },
    Case { words: "ghosts --box 1 --size", small: "1000", large: &[("1000000", 1 << 30)] },
    Case { words: "shallow-water --size", small: "96x48", large: &[("3600x1800", 1 << 29), ("14400x7200", 6 << 30)] },
    Case { words: "infer --size", small: "12", large: &[("256", 1 << 28), ("1024", 2 << 30)] },
    // Chunks are submitted one by one: smaller ones measure the processor.
    Case {
        words: "map --chunk 65536,1048576 --size",
        small: "3000",
        large: &[("1000000", 1 << 28), ("100000000", 1 << 31)],
    },
];

impl Case {
    /// Returns the subject with the sizes that fit into `memory` bytes, if any does. An unknown
    /// amount of memory is taken to be sufficient.
    ///
    /// # Errors
    /// [`Failure::Words`] for arguments that are not a call of `bench`.
    fn subject(&self, sizes: Sizes, memory: Option<u64>) -> Result<Option<Subject>, Failure> {
        let fits = |&&(_, bytes): &&(&str, u64)| memory.is_none_or(|memory| bytes <= memory);
        let size = match sizes {
            Sizes::Small => self.small.to_string(),
            Sizes::Large => self.large.iter().filter(fits).map(|&(size, _)| size).collect::<Vec<_>>().join(","),
        };
        if size.is_empty() {
            return Ok(None);
        }
        let words = format!("bench {} {size}", self.words);
        let parser = Subject::augment_subcommands(clap::Command::new("bench"));
        let found = parser.try_get_matches_from(words.split(' ')).and_then(|words| Subject::from_arg_matches(&words));
        found.map(Some).map_err(|error| Failure::Words(error.to_string()))
    }

    fn name(&self) -> &'static str {
        self.words.split(' ').next().unwrap_or_default()
    }
}

/// Outcome of a subject.
enum Outcome {
    Measured(Report),
    /// Why it was not measured.
    LeftOut(String),
    /// Why measuring it failed.
    Failed(String),
}

/// Measures on all ranks and prints what rank 0 reports, right or wrong.
///
/// # Errors
/// Errors of the options, of the saved file, and one that names the subjects that failed or had
/// wrong results.
pub fn run(arguments: &Suite) -> Result<(), Failure> {
    super::reference::check(arguments.settings.reference)?;
    if let Some(path) = &arguments.save {
        crate::checked_files::check_files([], [path.as_path()])?;
        crate::output_name::check_name(path, &["json"])?;
        crate::checked_files::writable(&meshloom::comm::Communicator::solo(), path)?;
    }
    let measured =
        arguments.settings.common.launch(&crate::checked_files::Files::default(), |rank| measure(rank, arguments))?;
    let Some(Record { object, wrong, printed, .. }) = measured else { return Ok(()) };
    let printed = if arguments.settings.common.json { terminal::print_object(&object) } else { printed };
    save(arguments, &object)?;
    printed?;
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Failed(wrong.join("; "))) }
}

/// Writes the object where it is wanted.
fn save(arguments: &Suite, object: &Value) -> Result<(), Failure> {
    let Some(path) = &arguments.save else { return Ok(()) };
    Ok(write_whole(path, format!("{object:#}\n").as_bytes())?)
}

/// Measurements so far. Rank 0 prints and saves them after each subject, so that an interrupted run
/// keeps its results.
struct Record {
    begun: Instant,
    object: Value,
    wrong: Vec<String>,
    /// The first failure to print.
    printed: Result<(), Failure>,
}

impl Record {
    fn new(rank: &Rank, arguments: &Suite, sizes: Sizes) -> Self {
        let mut object = Report::head(rank, &arguments.settings);
        object["subject"] = "all".into();
        object["sizes"] = format!("{sizes:?}").to_lowercase().into();
        object["complete"] = false.into();
        object["results"] = json!([]);
        Record { begun: Instant::now(), object, wrong: Vec::new(), printed: Ok(()) }
    }

    /// Adds what became of a subject; `first` is that of rank 0.
    fn add(&mut self, arguments: &Suite, name: &str, outcome: Outcome, first: bool) {
        let (text, result) = match outcome {
            Outcome::LeftOut(why) => (format!("left out: {why}\n"), json!({ "subject": name, "left_out": why })),
            Outcome::Failed(why) => {
                self.wrong.push(format!("{name}: {why}"));
                (format!("FAILED: {why}\n"), json!({ "subject": name, "failed": why }))
            }
            Outcome::Measured(report) => {
                if let Err(failure) = report.verdict() {
                    self.wrong.push(format!("{name}: {}", failure.message()));
                }
                (report.text(), report.json())
            }
        };
        let results = self.object["results"].as_array_mut();
        let before = results.as_ref().is_some_and(|results| !results.is_empty());
        results.into_iter().for_each(|results| results.push(result.clone()));
        self.object["seconds"] = json!({ "total": self.begun.elapsed().as_secs_f64() });
        if !first {
            return;
        }
        if !arguments.settings.common.json && self.printed.is_ok() {
            self.printed = terminal::print(&format!("{}{name}\n{text}", if before { "\n" } else { "" }));
        }
        // At the end it is written once more, and that failure told.
        let _ = save(arguments, &self.object);
    }
}

/// Measures one subject after the other. Collective; ranks continue or end together.
fn measure(rank: &mut Rank, arguments: &Suite) -> Result<Record, Ended> {
    let settings = &arguments.settings;
    let sizes = arguments.sizes.unwrap_or(match rank.gpu.common().profile {
        Profile::Gpu => Sizes::Large,
        Profile::Software => Sizes::Small,
    });
    // A device that is shared has its memory for all; half is left for what the pool keeps. Of
    // several devices the one with the least decides.
    let own = rank.memory_share().map(|share| share / 2);
    let mut least = [own.unwrap_or(u64::MAX)];
    rank.comm.all_reduce(&mut least, Op::Min)?;
    let memory = (least[0] < u64::MAX).then_some(least[0]);
    let mut record = Record::new(rank, arguments, sizes);
    for case in &CASES {
        let mut passed = [record.begun.elapsed().as_secs_f64()];
        rank.comm.all_reduce(&mut passed, Op::Max)?;
        let subject = case.subject(sizes, memory)?;
        let outcome = match subject {
            _ if arguments.within.is_some_and(|limit| passed[0] > limit as f64) => {
                Outcome::LeftOut(format!("{:.0} s had passed", passed[0]))
            }
            None => Outcome::LeftOut("the device has too little memory".into()),
            Some(Subject::Exchange(_) | Subject::Collectives(_) | Subject::Ghosts(_)) if rank.comm.size() == 1 => {
                Outcome::LeftOut("it needs two ranks at least".into())
            }
            Some(subject) => match rank.gpu.check() {
                Err(lost) if rank.comm.size() == 1 => Outcome::LeftOut(lost.to_string()),
                _ => measure_one(rank, subject, settings)?,
            },
        };
        record.add(arguments, case.name(), outcome, rank.comm.rank() == 0);
    }
    record.object["complete"] = true.into();
    Ok(record)
}

/// Measures one subject, with `settings` for its own. An error or a panic ends it alone where there
/// is one rank; several could no longer know which of their calls belong together.
fn measure_one(rank: &mut Rank, mut subject: Subject, settings: &Settings) -> Result<Outcome, Ended> {
    *subject.settings_mut() = settings.clone();
    subject.settings_mut().reference &= subject.peer() != Peer::None;
    let outcome = match catch_unwind(AssertUnwindSafe(|| subject.measure(rank))) {
        Ok(Ok(report)) => Outcome::Measured(report),
        Ok(Err(Ended::Together(failure))) => Outcome::Failed(failure.to_string()),
        Ok(Err(Ended::Alone(error))) if rank.comm.size() == 1 => Outcome::Failed(error.to_string()),
        Ok(Err(error)) => return Err(error),
        Err(panic) if rank.comm.size() == 1 => Outcome::Failed(format!("it panicked: {}", words(&*panic))),
        Err(panic) => resume_unwind(panic),
    };
    // The next subject finds the recorder and the memory as this one did, unless the device is
    // lost.
    let renewed = match outcome {
        Outcome::Failed(_) => Recorder::new(&rank.gpu).map(|recorder| rank.recorder = recorder),
        _ => Ok(()),
    };
    match renewed.and_then(|()| rank.recorder.wait()) {
        Err(_) if matches!(outcome, Outcome::Failed(_)) => {}
        waited => waited?,
    }
    rank.gpu.trim();
    Ok(outcome)
}

/// Returns what a panic says.
fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_are_calls_of_bench() {
        for case in &CASES {
            for sizes in [Sizes::Small, Sizes::Large] {
                let subject = case.subject(sizes, None);
                assert!(subject.is_ok_and(|subject| subject.is_some()), "{} {sizes:?}", case.words);
            }
            assert!(case.subject(Sizes::Large, Some(1)).is_ok_and(|subject| subject.is_none()), "{}", case.words);
        }
    }
}
