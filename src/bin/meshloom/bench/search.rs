//! What all searches of points have in common: a tree, a search in it, and how both are measured and reported.

use std::time::Instant;

use meshloom::device::{DeviceError, Recorder};
use meshloom::particles::{Cloud, Frame};
use meshloom::tree::{Builder, Tree};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use super::kd;
use super::measure::{Clock, Spread};
use super::report::{self, Report, amount, range, ratio, time};

/// The last columns of a table of searches.
pub const COLUMNS: [&str; 9] = [
    "build",
    "search",
    "together",
    "least .. greatest",
    "a point",
    "memory a point",
    "on the host: build",
    "search",
    "ratio",
];

/// Measurements of a search; one more with a reference.
pub const MEASUREMENTS: usize = 3;

/// Seconds and memory of a tree and a search in it.
pub struct Measured {
    /// Both for the first time, kernels compiled.
    pub first: f64,
    pub build: Spread,
    pub search: Spread,
    /// The tree and then the search, handed to the device together.
    pub both: Spread,
    /// Bytes that building has taken of the device at most, with the tree and the pool's rounding, and what the search took
    /// more; nothing where several ranks share the books.
    pub memory: Option<[u64; 2]>,
}

/// Measures on all ranks: the tree of `cloud`, and `search` in it, whose last result is given too.
pub fn measure<T>(
    clock: &Clock,
    rank: &Rank,
    recorder: &mut Recorder,
    cloud: &Cloud,
    search: impl Fn(&mut Recorder, &Tree) -> Result<T, Error>,
) -> Result<(Measured, T), Error> {
    let (gpu, builder) = (&rank.gpu, Builder::new(&rank.gpu));
    let frame = Frame::new(cloud.domain(), cloud.bounds());
    let build = |recorder: &mut Recorder| -> Result<Tree, DeviceError> { builder.build(recorder, cloud, &frame) };
    recorder.wait()?;
    gpu.trim();
    let (before, start) = (gpu.allocated(), Instant::now());
    let tree = build(recorder)?;
    recorder.wait()?;
    let built = gpu.allocated();
    let found = search(recorder, &tree)?;
    recorder.wait()?;
    let (searched, first) = (gpu.allocated(), start.elapsed().as_secs_f64());
    let memory = [built.saturating_sub(before), searched.saturating_sub(built)];
    let measured = Measured {
        first,
        build: clock.together(recorder, |recorder| Ok(build(recorder).map(drop)?))?,
        search: clock.together(recorder, |recorder| search(recorder, &tree).map(drop))?,
        both: clock.together(recorder, |recorder| {
            let tree = build(recorder)?;
            search(recorder, &tree).map(drop)
        })?,
        memory: (rank.comm.size() == 1).then_some(memory),
    };
    Ok((measured, found))
}

/// What the reference took on rank 0, and whether it found the same.
pub struct Theirs {
    pub build: Spread,
    pub search: Spread,
    pub same: bool,
}

/// Adds a row, which begins with `cells`, and an element of the results, which has the fields of `result` too. `results` are
/// the bytes of what the search gives, which do not count as its memory; `points` are those of all ranks.
pub fn report(
    report: &mut Report,
    mut cells: Vec<String>,
    mut result: Value,
    [points, results]: [u64; 2],
    ours: &Measured,
    theirs: Option<&Theirs>,
) {
    let a_point = ours.both.median * 1e9 / points as f64;
    result["points"] = points.into();
    result["first"] = ours.first.into();
    result["seconds"] = ours.both.json();
    result["build"] = json!({ "seconds": ours.build.json() });
    result["search"] =
        json!({ "seconds": ours.search.json(), "nanoseconds_a_point": ours.search.median * 1e9 / points as f64 });
    result["nanoseconds_a_point"] = a_point.into();
    cells.extend([time(ours.build.median), time(ours.search.median), time(ours.both.median), range(&ours.both)]);
    cells.push(format!("{a_point:.0} ns"));
    cells.push(ours.memory.map_or(String::new(), |[build, search]| {
        let beside = search.saturating_sub(results);
        result["build"]["memory"] = build.into();
        result["search"]["memory"] = json!({ "with_results": search, "results": results, "beside": beside });
        amount((build + beside) / points.max(1))
    }));
    match theirs {
        Some(theirs) => {
            let both = theirs.build.then(&theirs.search);
            result["reference"] = report::reference(&ours.both, kd::NAME, &both);
            result["reference"]["build"] = theirs.build.json();
            result["reference"]["search"] = theirs.search.json();
            result["reference"]["threads"] = rayon::current_num_threads().into();
            result["reference"]["same"] = theirs.same.into();
            cells.extend([time(theirs.build.median), time(theirs.search.median), ratio(&ours.both, &both)]);
        }
        None => cells.extend([const { String::new() }; 3]),
    }
    report.row(cells);
    report.result(result);
}
