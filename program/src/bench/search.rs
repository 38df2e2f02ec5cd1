//! Benchmarks of searches of points: a tree, and a search in it.

use std::time::Instant;

use meshloom::gpu::Recorder;
use meshloom::points::tree::{Builder, Tree};
use meshloom::points::{Cloud, Frame};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use super::input::Settings;
use super::measure::Spread;
use super::points::PointSet;
use super::reference::{self, kd::Reference};
use super::report::{self, Report, amount, range, ratio, time};
use super::session::Session;

/// The last columns of a table of searches.
const COLUMNS: [&str; 9] = [
    "build",
    "search",
    "together",
    "least .. greatest",
    "per point",
    "memory per point",
    "on the host: build",
    "search",
    "ratio",
];

/// Measurements of a search; one more with a reference.
const MEASUREMENTS: usize = 3;

/// Seconds and memory of a tree and a search in it.
pub struct Measured {
    /// Seconds of both for the first time, with the compilation of their kernels.
    pub first: f64,
    pub build: Spread,
    pub search: Spread,
    /// The tree and then the search, submitted together.
    pub both: Spread,
    /// Device bytes: the maximum while building, including the tree and the pool's rounding; and
    /// the memory of the search besides that and its results. `None` if several ranks share a
    /// device's counters.
    pub memory: Option<[u64; 2]>,
}

/// The reference on rank 0: its times for `what`, and whether it found the same.
pub struct Theirs {
    pub build: Spread,
    pub search: Spread,
    pub what: String,
    pub same: bool,
}

/// One rank's benchmark of searches among points.
pub struct SearchBench<'a> {
    pub session: Session<'a>,
    pub points: &'a PointSet,
}

impl<'a> SearchBench<'a> {
    /// Creates a benchmark called `subject` with `searches` searches for each number of points,
    /// whose table begins with `columns`.
    pub fn new(
        subject: &str,
        settings: &'a Settings,
        rank: &'a mut Rank,
        points: &'a PointSet,
        searches: usize,
        columns: &[&'static str],
    ) -> Self {
        let per = MEASUREMENTS + usize::from(settings.reference);
        let columns: Vec<&str> = columns.iter().copied().chain(COLUMNS).collect();
        let mut session = Session::new(subject, settings, rank, points.size.len() * searches * per, &columns);
        session.report.note(points.name());
        session.report.field("kind", format!("{:?}", points.kind).to_lowercase().into());
        session.report.field("box", points.side.into());
        SearchBench { session, points }
    }

    /// `size` points on each rank and, with `--reference` on rank 0, the reference over its points.
    pub fn cloud(&mut self, size: u64) -> Result<(Cloud, Option<Reference>), Error> {
        let Session { rank, settings, .. } = &mut self.session;
        let cloud = self.points.cloud(&mut rank.recorder, size, rank.comm.rank())?;
        let mut reference = None;
        if settings.reference && rank.comm.rank() == 0 {
            let positions = rank.recorder.download(cloud.positions(), 0, cloud.positions().len())?;
            reference = Reference::new(&positions, self.points.side);
        }
        Ok((cloud, reference))
    }

    /// Measures on all ranks the tree of `cloud` and `search` in it, and returns the first result,
    /// too: arrays with the lengths in `results`.
    pub fn measure<T>(
        &mut self,
        cloud: &Cloud,
        results: &[u64],
        search: impl Fn(&mut Recorder, &Tree) -> Result<T, Error>,
    ) -> Result<(Measured, T), Error> {
        let Session { rank, clock, .. } = &mut self.session;
        let (gpu, recorder, builder) = (&rank.gpu, &mut rank.recorder, Builder::new(&rank.gpu));
        let frame = Frame::over(cloud.domain(), cloud.core());
        let build = |recorder: &mut Recorder| builder.build(recorder, cloud, &frame);
        recorder.wait()?;
        gpu.trim();
        let (before, start) = (gpu.allocated(), Instant::now());
        let tree = build(recorder)?;
        recorder.wait()?;
        let built = gpu.allocated();
        // The pool gets buffers for the results: what is allocated after that is what the search
        // needs besides.
        let room =
            results.iter().map(|&words| gpu.array::<u32>("bench::room", words)).collect::<Result<Vec<_>, _>>()?;
        let with_results = gpu.allocated();
        drop(room);
        let found = search(recorder, &tree)?;
        recorder.wait()?;
        let (searched, first) = (gpu.allocated(), start.elapsed().as_secs_f64());
        let memory = [built.saturating_sub(before), searched.saturating_sub(with_results)];
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

    /// Measures the reference's tree and `search` in it, which writes to `found`; none without a
    /// reference.
    pub fn against<T>(
        &self,
        reference: Option<&mut Reference>,
        found: &mut T,
        search: impl Fn(&Reference, &mut T),
    ) -> Result<Option<[Spread; 2]>, Error> {
        if !self.session.settings.reference {
            return Ok(None);
        }
        let mut work = reference.map(|reference| {
            move |part: usize| match part {
                0 => reference.build(),
                _ => search(reference, found),
            }
        });
        self.session.clock.alone::<2>(work.as_mut().map(|work| work as &mut dyn FnMut(usize)))
    }

    /// Returns the reference's times for `what`, and whether the results of all ranks are equal.
    /// Collective.
    pub fn compared(&self, took: Option<[Spread; 2]>, what: String, differs: bool) -> Result<Option<Theirs>, Error> {
        let same = self.session.sum([u64::from(differs)])? == [0];
        Ok(took.map(|[build, search]| Theirs { build, search, what, same }))
    }

    /// Adds a row, which begins with `cells`, and an element of the results, which also has the
    /// fields of `result`. `points` is the number on all ranks.
    pub fn row(
        &mut self,
        mut cells: Vec<String>,
        mut result: Value,
        points: u64,
        ours: &Measured,
        theirs: Option<Theirs>,
    ) {
        let per_point = ours.both.median * 1e9 / points as f64;
        result["points"] = points.into();
        result["first"] = ours.first.into();
        result["seconds"] = json!(ours.both);
        result["build"] = json!({ "seconds": ours.build });
        let searched = ours.search.median * 1e9 / points as f64;
        result["search"] = json!({ "seconds": ours.search, "nanoseconds_a_point": searched });
        result["nanoseconds_a_point"] = per_point.into();
        cells.extend([time(ours.build.median), time(ours.search.median), time(ours.both.median), range(&ours.both)]);
        cells.push(format!("{per_point:.0} ns"));
        cells.push(ours.memory.map_or(String::new(), |[build, search]| {
            result["build"]["memory"] = build.into();
            result["search"]["memory"] = search.into();
            amount((build + search) / points.max(1))
        }));
        if let Some(theirs) = theirs {
            let both = theirs.build.then(&theirs.search);
            result["reference"] = report::reference(&ours.both, reference::kd::NAME, &both);
            result["reference"]["build"] = json!(theirs.build);
            result["reference"]["search"] = json!(theirs.search);
            result["reference"]["threads"] = reference::threads().into();
            self.session.report.compared(&mut result["reference"], theirs.what, theirs.same);
            cells.extend([time(theirs.build.median), time(theirs.search.median), ratio(&ours.both, &both)]);
        }
        self.session.report.row(cells);
        self.session.report.result(result);
    }

    /// Returns the whole report.
    pub fn finish(self) -> Report {
        self.session.finish()
    }
}
