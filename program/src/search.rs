//! Shared by the commands about neighbors: their input files, options of distances, and reports.

use std::path::{Path, PathBuf};

use clap::Args;
use meshloom::comm::Op;
use meshloom::io::{IoError, printable_path};
use meshloom::points::{BoxUse, Domain, Particles, Search};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use crate::checked_files::{check_files, writable};
use crate::common::{Common, shares_value};
use crate::failure::Failure;
use crate::output_name::check_name;
use crate::particle_type::ParticleType;
use crate::phases::Phases;
use crate::points::{PointFile, Sides, sides};
use crate::terminal;

/// Options of every command about neighbors.
#[derive(Args)]
#[command(mut_arg("grid", |grid| grid.hide(true)))]
pub struct SearchOptions {
    /// Points: shape (N, 3) or (N, 2), f32 or f64; or a snapshot in HDF5, or the centers of a
    /// catalog of groups
    #[arg(value_name = "POINTS.npy|SNAPSHOT.hdf5")]
    points: PathBuf,
    /// Sides of the periodic box; 0 or open leaves an axis open [default: a snapshot's own, else
    /// all open]
    #[arg(long = "box", value_name = "L|LX,LY,LZ", allow_hyphen_values = true)]
    size: Option<Sides>,
    #[command(flatten)]
    particles: ParticleType,
    #[command(flatten)]
    pub common: Common,
}

impl SearchOptions {
    /// Returns the particles that are read of snapshots.
    pub fn particles(&self) -> ParticleType {
        self.particles
    }
}

/// A call of one of these commands.
pub struct SearchCommand<'a> {
    /// Its name.
    pub name: &'static str,
    pub options: &'a SearchOptions,
    /// The file of the query points, where they are not the points themselves, and its key in a
    /// report.
    pub queries: Option<(&'static str, &'a Path)>,
    /// Another file that is read.
    pub list: Option<&'a Path>,
    /// Files of values of the points.
    pub values: Vec<&'a Path>,
    /// The file to write.
    pub output: &'a Path,
    /// Extensions that say its format.
    pub extensions: &'a [&'a str],
}

/// The input files of a command, opened.
pub struct SearchInputs {
    pub points: PointFile,
    /// The query points, where they are not the points themselves.
    pub queries: Option<PointFile>,
    /// The domain of both.
    pub domain: Domain,
}

impl SearchInputs {
    /// Returns the points whose neighbors are searched for.
    pub fn query_points(&self) -> &PointFile {
        self.queries.as_ref().unwrap_or(&self.points)
    }
}

impl SearchCommand<'_> {
    /// Checks the options, opens the files, then runs `search` on every rank and prints its report.
    /// `prepare` reads other inputs on every rank, before anything long.
    ///
    /// # Errors
    /// Errors of the options, the files and the work.
    pub fn run<P>(
        &self,
        prepare: impl Fn(&SearchInputs) -> Result<P, Error> + Sync,
        search: impl Fn(&mut RankSearch, &P) -> Result<Value, Error> + Sync,
    ) -> Result<(), Failure> {
        let common = &self.options.common;
        let queries = self.queries.map(|(_, path)| path);
        let points = [self.options.points.as_path()].into_iter().chain(queries).chain(self.values.iter().copied());
        let files = check_files(points.clone().chain(self.list), [self.output])?;
        check_name(self.output, self.extensions)?;
        self.options.particles.check(points)?;
        common.refuse_grid()?;
        let report = common.launch(&files, |rank| {
            let comm = rank.comm.clone();
            let (inputs, prepared) = comm.together(|| {
                let inputs = self.open()?;
                let prepared = prepare(&inputs)?;
                writable(&comm, self.output)?;
                Ok::<_, Failure>((inputs, prepared))
            })?;
            let mut work = RankSearch::begin(self, rank, &inputs)?;
            let result = search(&mut work, &prepared)?;
            Ok(work.report(self, result)?)
        })?;
        common.print(report)
    }

    /// Opens the files.
    fn open(&self) -> Result<SearchInputs, Failure> {
        let particles = self.options.particles;
        let points = PointFile::open(&self.options.points, particles)?;
        let queries = self.queries.map(|(_, path)| PointFile::open(path, particles)).transpose()?;
        let dims = points.dims();
        if let (Some(queries), Some((_, path))) = (&queries, self.queries)
            && queries.dims() != dims
        {
            let found = vec![queries.count(), queries.dims() as u64];
            let wanted = format!("(M, {dims}), as many axes as {} has,", printable_path(&self.options.points));
            return Err(IoError::shape(path, found, wanted).into());
        }
        let size = self.options.size.as_ref();
        let domain = match &queries {
            Some(queries) => points.domain_with(queries, size)?,
            None => points.domain(size)?,
        };
        Ok(SearchInputs { points, queries, domain })
    }
}

/// One rank's work, with the points in a tree.
pub struct RankSearch<'a> {
    pub rank: &'a mut Rank,
    pub inputs: &'a SearchInputs,
    /// Searches among the points of all ranks.
    pub search: Search,
    /// This rank's query points, where they are not the points themselves.
    pub queries: Option<Particles>,
    /// Phases of the run; each command ends that of its search.
    pub phases: Phases,
}

impl<'a> RankSearch<'a> {
    fn begin(command: &SearchCommand, rank: &'a mut Rank, inputs: &'a SearchInputs) -> Result<Self, Error> {
        if let Some(queries) = inputs.queries.as_ref().filter(|_| rank.comm.rank() == 0) {
            inputs.points.differences(queries)?.iter().for_each(|words| terminal::warn(words));
        }
        let mut phases = Phases::new(command.options.common.progress(rank.comm.rank(), 4, command.name));
        let cloud = inputs.points.read(rank, &inputs.domain, BoxUse::Images)?;
        let queries = inputs.queries.as_ref().map(|file| file.read(rank, &inputs.domain, BoxUse::Images));
        let queries = queries.transpose()?.map(Particles::from);
        phases.done("read");
        let search = rank.search(&cloud.into())?;
        rank.recorder.wait()?;
        phases.done("build");
        Ok(RankSearch { rank, inputs, search, queries, phases })
    }

    /// Returns the report of the run: the fields of all these commands, and those of `result`.
    /// Collective.
    fn report(mut self, command: &SearchCommand, result: Value) -> Result<Value, Error> {
        self.phases.done("write");
        let mut cost = self.rank.exchange.cost();
        cost += self.search.cost();
        let mut sums = [cost.sent_bytes, cost.messages];
        self.rank.comm.all_reduce(&mut sums, Op::Sum)?;
        let mut report = json!({
            "command": command.name,
            "input": self.inputs.points.file.report(),
            "output": command.output.display().to_string(),
            "box": sides(&self.inputs.domain),
            "points": self.inputs.points.count(),
            "queries": self.inputs.query_points().count(),
            "device": self.rank.gpu.info().name,
            "ranks": self.rank.comm.size(), "shares": shares_value(self.rank.comm.shares()),
            "host_seconds": self.phases.host_seconds(&self.rank.comm)?,
            "seconds": self.phases.finish(),
            "bytes": { "device": null, "between_ranks": sums[0] },
            "messages": sums[1],
        });
        if let (Some(file), Some((name, _))) = (&self.inputs.queries, command.queries) {
            report[name] = file.file.report();
        }
        if let (Value::Object(report), Value::Object(result)) = (&mut report, result) {
            report.extend(result);
        }
        Ok(report)
    }
}
