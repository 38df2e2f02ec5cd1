//! What the commands about neighbours share: the files they read, the words for distances, and their reports.

use std::path::{Path, PathBuf};

use clap::Args;
use meshloom::comm::Op;
use meshloom::io::{IoError, printable_path};
use meshloom::points::neighbors::DistributedSearch;
use meshloom::points::{Cloud, Domain};
use meshloom::{Context, Error, Launch};
use serde_json::{Value, json};

use crate::common::{Common, Failure, refuse_dash, writable};
use crate::phases::Phases;
use crate::points::{PointFile, Sides, sides};

/// The points, the box they lie in, and the options of every command.
#[derive(Args)]
pub struct Inputs {
    /// Points: shape (N, 3) or (N, 2), f32 or f64; or a snapshot in HDF5
    #[arg(value_name = "POINTS.npy|SNAPSHOT.hdf5")]
    points: PathBuf,
    /// Sides of the periodic box; 0 or open leaves an axis open [default: a snapshot's own, else all open]
    #[arg(long = "box", value_name = "L|LX,LY,LZ", allow_hyphen_values = true)]
    size: Option<Sides>,
    #[command(flatten)]
    pub common: Common,
}

/// A distance from 0 on that f32 holds, for the search it is given to.
pub fn distance(text: &str) -> Result<f32, String> {
    match text.trim().parse::<f64>() {
        Ok(length) if length >= 0.0 && (length as f32).is_finite() => Ok(length as f32 + 0.0),
        _ => Err("it must be a number from 0 to 3.4e38, in the units of the points".into()),
    }
}

/// A [`distance`], or `inf`: any.
pub fn limit(text: &str) -> Result<f32, String> {
    match text.trim().parse::<f64>() {
        Ok(f64::INFINITY) => Ok(f32::INFINITY),
        _ => distance(text),
    }
}

/// What one of these commands is to do.
pub struct Job<'a> {
    /// Its name.
    pub command: &'static str,
    /// The points and the box.
    pub inputs: &'a Inputs,
    /// The file of the places whose neighbours are asked for, if they are others, and what a report calls it.
    pub queries: Option<(&'static str, &'a Path)>,
    /// The file to write.
    pub output: &'a Path,
}

/// The files of a job, looked at.
pub struct Files {
    /// The points.
    pub points: PointFile,
    /// The places, if they are others.
    pub queries: Option<PointFile>,
    /// Where both lie.
    pub domain: Domain,
}

impl Files {
    /// Those whose neighbours are asked for.
    pub fn asked(&self) -> &PointFile {
        self.queries.as_ref().unwrap_or(&self.points)
    }
}

impl Job<'_> {
    /// Checks the words, and the files as far as the words depend on them, then runs `search` on every rank and prints
    /// the report of what it returns. `prepare` reads what else there is; every rank calls it, before anything long.
    ///
    /// # Errors
    /// Those of the words, the files and the work.
    pub fn run<P>(
        &self,
        prepare: impl Fn() -> Result<P, Error> + Sync,
        search: impl Fn(&mut Work, &P) -> Result<Value, Error> + Sync,
    ) -> Result<(), Failure> {
        let common = &self.inputs.common;
        let queries = self.queries.map(|(_, path)| path);
        refuse_dash([self.inputs.points.as_path()].into_iter().chain(queries), self.output)?;
        common.refuse_grid()?;
        // What --box means depends on the files; ranks of several processes leave other errors to the launch, which
        // prints one.
        match prepare().and_then(|_| Ok(self.open()?)) {
            Ok(files) => drop(files?),
            Err(_) if Launch::detect(common.ranks.into()) == Launch::Mpi => {}
            Err(error) => return Err(error.into()),
        }
        let report = common.launch_together(|rank| {
            // Rank 0 looks first: what is wrong for all is said by one, however late the others come to it.
            let first = rank.comm.rank() == 0;
            if first {
                writable(self.output)?;
            } else {
                rank.comm.barrier()?;
            }
            let (prepared, files) = (prepare()?, self.open()?);
            if first {
                rank.comm.barrier()?;
            }
            let files = match files {
                Ok(files) => files,
                Err(failure) => return Ok(Err(failure)),
            };
            let mut work = Work::begin(self, rank, &files)?;
            let result = search(&mut work, &prepared)?;
            work.report(self, result).map(Ok)
        })?;
        common.print(report)
    }

    /// Opens the files; the inner error is one of the words.
    fn open(&self) -> Result<Result<Files, Failure>, IoError> {
        let points = PointFile::open(&self.inputs.points)?;
        let queries = self.queries.map(|(_, path)| PointFile::open(path)).transpose()?;
        let dims = points.dims();
        if let (Some(queries), Some((_, path))) = (&queries, self.queries)
            && queries.dims() != dims
        {
            let found = vec![queries.count(), queries.dims() as u64];
            let wanted = format!("(M, {dims}), as many axes as {} has,", printable_path(&self.inputs.points));
            return Err(IoError::Shape { path: path.into(), found, wanted });
        }
        let domain = points.domain(self.inputs.size.as_ref());
        Ok(domain.map(|domain| Files { points, queries, domain }))
    }
}

/// One rank's work, with the points in place.
pub struct Work<'a> {
    /// This rank.
    pub rank: &'a Context,
    /// The files that were read.
    pub files: &'a Files,
    pub context: Context,
    /// The points of all ranks.
    pub neighborhood: DistributedSearch,
    /// This rank's places, if they are others.
    pub queries: Option<Cloud>,
    /// What has been done of the run; a search ends its own.
    pub phases: Phases,
}

impl<'a> Work<'a> {
    fn begin(job: &Job, rank: &'a Context, files: &'a Files) -> Result<Self, Error> {
        let mut phases = Phases::new(job.inputs.common.progress(rank.comm.rank(), 4, job.command));
        let mut context = Context::new(rank.comm.clone(), rank.gpu.clone())?;
        let cloud = files.points.read(&mut context.recorder, &rank.comm, &files.domain)?;
        let queries = match &files.queries {
            Some(file) => Some(file.read(&mut context.recorder, &rank.comm, &files.domain)?),
            None => None,
        };
        phases.done("read");
        let neighborhood = DistributedSearch::new(&mut context, &cloud)?;
        drop(cloud);
        context.recorder.wait()?;
        phases.done("build");
        Ok(Work { rank, files, context, neighborhood, queries, phases })
    }

    /// The report of the run: what all these commands say, and `result`. All ranks call it.
    fn report(mut self, job: &Job, result: Value) -> Result<Value, Error> {
        self.phases.done("write");
        let mut cost = self.context.exchange.cost();
        cost += self.neighborhood.cost();
        let mut sums = [cost.sent, cost.messages];
        self.rank.comm.all_reduce(&mut sums, Op::Sum)?;
        let mut report = json!({
            "command": job.command,
            "input": self.files.points.report(),
            "output": job.output.display().to_string(),
            "box": sides(&self.files.domain),
            "points": self.files.points.count(),
            "queries": self.files.asked().count(),
            "device": self.rank.gpu.info().name,
            "ranks": self.rank.comm.size(),
            "seconds": self.phases.finish(),
            "bytes": { "between_ranks": sums[0] },
            "messages": sums[1],
        });
        if let (Some(file), Some((name, _))) = (&self.files.queries, job.queries) {
            report[name] = file.report();
        }
        if let (Value::Object(report), Value::Object(result)) = (&mut report, result) {
            report.extend(result);
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_numbers_from_zero_on() {
        assert_eq!(
            ["0", "-0", "0.25", " 1e3", "1e-60"].map(|text| distance(text).map(f32::to_bits)),
            [
                Ok(0.0f32.to_bits()),
                Ok(0.0f32.to_bits()),
                Ok(0.25f32.to_bits()),
                Ok(1000.0f32.to_bits()),
                Ok(0.0f32.to_bits()),
            ]
        );
        for wrong in ["-1", "nan", "inf", "1e39", "", "one", "-1e-60"] {
            assert!(distance(wrong).is_err(), "{wrong}");
        }
        assert_eq!((limit("inf"), limit("2").ok()), (Ok(f32::INFINITY), Some(2.0)));
        assert!(limit("-inf").is_err() && limit("nan").is_err() && limit("1e39").is_err());
    }
}
