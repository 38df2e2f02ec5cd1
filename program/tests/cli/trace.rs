//! `--trace`: the timeline of all ranks in one file.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::cli::{Call, Ranks, Scratch, files, has_mpi, signal};
use serde_json::Value;

/// An event that takes time, in microseconds.
struct Span {
    name: String,
    begin: f64,
    end: f64,
    arguments: Value,
}

/// The events of a file by process and thread, and the names of the threads.
struct Timeline {
    spans: BTreeMap<(u64, u64), Vec<Span>>,
    names: BTreeMap<(u64, u64), String>,
    dropped: BTreeMap<u64, u64>,
}

impl Timeline {
    /// Reads a file whose events must all be well formed.
    fn read(path: &Path) -> Self {
        let events: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let mut timeline = Timeline { spans: BTreeMap::new(), names: BTreeMap::new(), dropped: BTreeMap::new() };
        for event in events.as_array().unwrap() {
            let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key}: {event}")).to_owned();
            let number = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key}: {event}"));
            let thread = ["pid", "tid"].map(|key| event[key].as_u64().unwrap_or_else(|| panic!("{key}: {event}")));
            let (thread, name, begin) = ((thread[0], thread[1]), text("name"), number("ts"));
            assert!(begin >= 0.0, "{event}");
            match text("ph").as_str() {
                "X" => {
                    assert!(number("dur") >= 0.0, "{event}");
                    let (end, arguments) = (begin + number("dur"), event["args"].clone());
                    timeline.spans.entry(thread).or_default().push(Span { name, begin, end, arguments });
                }
                "M" if name == "thread_name" => {
                    let name = event["args"]["name"].as_str().unwrap().to_owned();
                    assert!(timeline.names.insert(thread, name).is_none(), "{event}");
                }
                "M" => assert!(event["args"]["name"].as_str().unwrap().starts_with(&format!("rank {}: ", thread.0))),
                "i" if name == "meshloom" => {}
                "i" => {
                    let dropped = event["args"]["dropped"].as_u64().unwrap();
                    assert_eq!(name, format!("{dropped} events were dropped"));
                    timeline.dropped.insert(thread.0, dropped);
                }
                _ => panic!("{event}"),
            }
        }
        for (thread, spans) in &mut timeline.spans {
            assert!(timeline.names.contains_key(thread), "{thread:?} has no name");
            spans.sort_by(|a, b| a.begin.total_cmp(&b.begin).then(b.end.total_cmp(&a.end)));
            // Sums of decimals are rounded.
            let (mut open, slack): (Vec<f64>, f64) = (Vec::new(), 2e-3);
            for Span { name, begin, end, .. } in spans {
                while open.last().is_some_and(|last| *last <= *begin + slack) {
                    open.pop();
                }
                assert!(open.last().is_none_or(|last| *end <= last + slack), "{name} crosses another: {thread:?}");
                open.push(*end);
            }
        }
        timeline
    }

    fn ranks(&self) -> BTreeSet<u64> {
        self.spans.keys().map(|(rank, _)| *rank).collect()
    }

    /// Returns the events of a rank on the threads whose names begin so.
    fn of(&self, rank: u64, thread: &str) -> impl Iterator<Item = &Span> {
        let is_meant = move |at: &(u64, u64)| at.0 == rank && self.names[at].starts_with(thread);
        self.spans.iter().filter(move |(at, _)| is_meant(at)).flat_map(|(_, spans)| spans)
    }

    /// Returns the part of a rank's time for which it is known what the rank does.
    fn known_part(&self, rank: u64) -> f64 {
        let whole = self.of(rank, "host").find(|span| span.name == "rank").unwrap();
        let (mut known, mut last) = (0.0, whole.begin);
        for Span { begin, end, .. } in self.of(rank, "host").filter(|span| span.name != "rank") {
            known += (end - begin.max(last)).max(0.0);
            last = last.max(*end);
        }
        known / (whole.end - whole.begin)
    }
}

#[test]
fn a_run_on_any_ranks_is_accounted_for() {
    let scratch = Scratch::new();
    let mut all = vec![Ranks::Threads(1), Ranks::Threads(2), Ranks::Threads(3)];
    if has_mpi() {
        all.push(Ranks::Mpi(2));
    }
    for (number, ranks) in all.into_iter().enumerate() {
        // An older file is replaced.
        let path = scratch.file("timeline.json", "x".repeat(1 << 20));
        let words = ["--particles", "16", "--trace", &path, "--linking-parameter", "0.2"];
        let (Ranks::Threads(count) | Ranks::Mpi(count)) = ranks;
        // A busy machine may suspend a rank between two spans: the best of three runs counts.
        let is_enough = |part: &f64| *part >= 0.95;
        let mut known = vec![0.0_f64; count as usize];
        let mut run = 0;
        let timeline = loop {
            Call::simulate(&scratch.join(&format!("run{number}_{run}")), &words).on(ranks).succeeds();
            let timeline = Timeline::read(Path::new(&path));
            for (rank, known) in (0..).zip(&mut known) {
                *known = known.max(timeline.known_part(rank));
            }
            run += 1;
            if run == 3 || known.iter().all(is_enough) {
                break timeline;
            }
        };
        assert!(known.iter().all(|part| is_enough(part) && *part <= 1.0 + 1e-6), "{known:?} on {ranks:?}");
        assert!(timeline.ranks().into_iter().eq(0..u64::from(count)), "{ranks:?}");
        for rank in timeline.ranks() {
            let has = |thread: &str, name: &str| timeline.of(rank, thread).any(|span| span.name == name);
            for name in ["open device", "submit", "upload", "download", "wait for device", "force", "all_reduce"] {
                assert!(has("host", name), "{name} on {ranks:?}");
            }
            assert!(has("phases", "steps") && timeline.dropped.is_empty());
            // Software renderers and GPUs have timestamps; without, nothing is known of the device.
            let on_device: Vec<_> = timeline.of(rank, "device").collect();
            assert!(on_device.is_empty() || has("device", "mesh::kick_drift"), "{ranks:?}");
            if count == 1 {
                continue;
            }
            assert!(has("messages", "sent") && has("messages", "received"), "{ranks:?}");
            let waits = timeline.of(rank, "host").filter(|span| span.name == "wait for rank");
            let peers: BTreeSet<u64> = waits.map(|span| span.arguments["peer"].as_u64().unwrap()).collect();
            assert!(peers.iter().all(|&peer| peer < u64::from(count) && peer != rank), "{peers:?}");
        }
        if count > 1 {
            assert!(timeline.of(0, "host").any(|span| span.name == "write file"));
        }
    }
}

#[test]
fn events_beyond_the_limit_are_counted() {
    let scratch = Scratch::new();
    let path = scratch.word("timeline.json");
    let whole = Call::new(&["bench", "exchange", "--size", "8", "--runs", "1", "--trace", &path]).on(Ranks::Threads(2));
    whole.succeeds();
    let count = |timeline: &Timeline, rank| timeline.spans.range((rank, 0)..(rank + 1, 0)).map(|(_, s)| s.len()).sum();
    let complete = Timeline::read(Path::new(&path));
    let outcome = whole.words(&["--trace-events", "40"]).run();
    assert!(outcome.status.success(), "{outcome:#?}");
    let timeline = Timeline::read(Path::new(&path));
    for rank in [0, 1] {
        let (all, kept): (usize, usize) = (count(&complete, rank), count(&timeline, rank));
        // Numbers of waits differ from run to run.
        assert!((40..all).contains(&kept) && timeline.dropped[&rank] > 0, "{kept} of {all}");
    }
    let warning = outcome.stderr.lines().find(|line| line.contains("events were dropped")).unwrap();
    assert!(warning.contains("--trace-events"), "{warning}");
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_before_the_run() {
    let scratch = Scratch::new();
    let missing = scratch.word("none/timeline.json");
    let input = scratch.file("points.json", "[]");
    let out = scratch.join("run");
    let mut all = vec![Ranks::Threads(1), Ranks::Threads(2)];
    if has_mpi() {
        all.push(Ranks::Mpi(2));
    }
    for ranks in all {
        let simulate = |path: &str| Call::simulate(&out, &["--trace", path]).on(ranks);
        scratch.all_fail([
            (simulate(&missing), 1, "timeline.json: cannot be created"),
            (simulate(scratch.path().to_str().unwrap()), 1, "not a regular file"),
            (simulate("-"), 2, "-: "),
            (simulate("timeline.png"), 2, "timeline.json"),
            (Call::new(&["knn", &input, "-k", "1", "-o", "a.npz", "--trace", &input]).on(ranks), 2, "the same file"),
        ]);
        assert!(!out.exists());
    }
    scratch.all_fail([(Call::simulate(&out, &["--trace-events", "9"]), 2, "--trace")]);
}

#[test]
fn runs_that_end_early_leave_what_they_recorded() {
    let scratch = Scratch::new();
    let path = scratch.word("timeline.json");
    let mut all = vec![Ranks::Threads(2)];
    if has_mpi() {
        all.push(Ranks::Mpi(2));
    }
    for ranks in all {
        // The work fails after its beginning, on all ranks.
        let points = scratch.file("points.npy", b"not an array");
        let call = Call::new(&["fof", &points, "--linking-length", "1", "-o", &scratch.word("groups.npz")]);
        let outcome = call.words(&["--trace", &path]).on(ranks).run();
        assert_eq!(outcome.status.code(), Some(1), "{outcome:#?}");
        let timeline = Timeline::read(Path::new(&path));
        assert!(timeline.ranks().into_iter().eq([0, 1]), "{ranks:?}");
        assert!(timeline.of(0, "host").any(|span| span.name == "open device"));
        fs::remove_file(&path).unwrap();

        let out = scratch.join("run");
        let mut run = Call::long_simulation(&out).words(&["--trace", &path]).on(ranks).start();
        // Long enough for the first events to be in the file.
        run.until("events in the file", |_| fs::metadata(&path).is_ok_and(|file| file.len() > 100_000));
        signal(run.pid(), "INT");
        let outcome = run.wait(std::time::Duration::from_secs(60));
        assert!(!outcome.status.success(), "{outcome:#?}");
        let timeline = Timeline::read(Path::new(&path));
        assert!(timeline.ranks().into_iter().eq([0, 1]), "{ranks:?}");
        if let Ranks::Threads(_) = ranks {
            for rank in [0, 1] {
                let whole = timeline.of(rank, "host").find(|span| span.name == "rank").unwrap();
                assert_eq!(whole.arguments["is_unfinished"], true);
            }
        }
        fs::remove_file(&path).unwrap();
        for left in files(&out) {
            fs::remove_file(left).unwrap();
        }
    }
}
