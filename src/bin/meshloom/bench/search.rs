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
    /// Bytes that building took of the device at most, the tree among them and sizes rounded up by the pool, and what
    /// the search took besides that and its results; nothing where several ranks share the books.
    pub memory: Option<[u64; 2]>,
}

/// Measures on all ranks: the tree of `cloud`, and `search` in it, whose first result is given too: arrays of so many
/// words as `results` says.
pub fn measure<T>(
    clock: &Clock,
    rank: &Rank,
    recorder: &mut Recorder,
    cloud: &Cloud,
    results: &[u64],
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
    // Results find their buffers in the pool: what is still asked of the driver is what the search takes for itself.
    let room = results.iter().map(|&words| gpu.array::<u32>("bench::room", words)).collect::<Result<Vec<_>, _>>()?;
    let roomy = gpu.allocated();
    drop(room);
    let found = search(recorder, &tree)?;
    recorder.wait()?;
    let (searched, first) = (gpu.allocated(), start.elapsed().as_secs_f64());
    let memory = [built.saturating_sub(before), searched.saturating_sub(roomy)];
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

/// What the reference took on rank 0 for `what`, and whether it found the same.
pub struct Theirs {
    pub build: Spread,
    pub search: Spread,
    pub what: String,
    pub same: bool,
}

/// Adds a row, which begins with `cells`, and an element of the results, which has the fields of `result` too. `points`
/// are those of all ranks.
pub fn report(
    report: &mut Report,
    mut cells: Vec<String>,
    mut result: Value,
    points: u64,
    ours: &Measured,
    theirs: Option<Theirs>,
) {
    let a_point = ours.both.median * 1e9 / points as f64;
    result["points"] = points.into();
    result["first"] = ours.first.into();
    result["seconds"] = ours.both.json();
    result["build"] = json!({ "seconds": ours.build.json() });
    let searched = ours.search.median * 1e9 / points as f64;
    result["search"] = json!({ "seconds": ours.search.json(), "nanoseconds_a_point": searched });
    result["nanoseconds_a_point"] = a_point.into();
    cells.extend([time(ours.build.median), time(ours.search.median), time(ours.both.median), range(&ours.both)]);
    cells.push(format!("{a_point:.0} ns"));
    cells.push(ours.memory.map_or(String::new(), |[build, search]| {
        result["build"]["memory"] = build.into();
        result["search"]["memory"] = search.into();
        amount((build + search) / points.max(1))
    }));
    match theirs {
        Some(theirs) => {
            let both = theirs.build.then(&theirs.search);
            result["reference"] = report::reference(&ours.both, kd::NAME, &both);
            result["reference"]["build"] = theirs.build.json();
            result["reference"]["search"] = theirs.search.json();
            result["reference"]["threads"] = rayon::current_num_threads().into();
            report.compared(&mut result["reference"], theirs.what, theirs.same);
            cells.extend([time(theirs.build.median), time(theirs.search.median), ratio(&ours.both, &both)]);
        }
        None => cells.extend([const { String::new() }; 3]),
    }
    report.row(cells);
    report.result(result);
}
