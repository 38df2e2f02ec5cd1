//! `meshloom sort`: the permutation that puts points in Morton order.

use std::path::PathBuf;

use clap::Args;
use meshloom::comm::Op;
use meshloom::gpu::Recorder;
use meshloom::io::NpyWriter;
use meshloom::io::collective::write_npy;
use meshloom::points::Curve;
use meshloom::points::sort::{Sorted, distribute};
use meshloom::{Context, Error, Launch};

use crate::common::{Common, Failure, refuse_dash, writable};
use crate::phases::Phases;
use crate::points::{PointFile, Sides, sides};

#[derive(Args)]
pub struct Arguments {
    /// Points: shape (N, 3) or (N, 2), f32 or f64; or a snapshot in HDF5
    #[arg(value_name = "POINTS.npy|SNAPSHOT.hdf5")]
    points: PathBuf,
    /// The permutation to write: int64, element i is the row of the point that comes i-th
    #[arg(short, long, value_name = "ORDER.npy")]
    output: PathBuf,
    /// Sides of the periodic box; 0 or open leaves an axis open [default: a snapshot's own, else all open]
    #[arg(long = "box", value_name = "L|LX,LY,LZ", allow_hyphen_values = true)]
    size: Option<Sides>,
    #[command(flatten)]
    common: Common,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    refuse_dash([arguments.points.as_path()], &arguments.output)?;
    arguments.common.refuse_grid()?;
    // What --box means depends on the file; ranks of several processes leave other errors to the launch, which prints
    // one.
    match PointFile::open(&arguments.points) {
        Ok(file) => drop(file.domain(arguments.size.as_ref())?),
        Err(_) if Launch::detect(arguments.common.ranks.into()) == Launch::Mpi => {}
        Err(error) => return Err(Failure::Failed(error.to_string())),
    }
    let report = arguments.common.launch_together(|rank| sort(rank, arguments))?;
    arguments.common.print(report)
}

/// One rank's work.
fn sort(rank: &Context, arguments: &Arguments) -> Result<Result<serde_json::Value, Failure>, Error> {
    let comm = &rank.comm;
    let mut phases = Phases::new(arguments.common.progress(comm.rank(), 3, "sort"));
    if comm.rank() == 0 {
        writable(&arguments.output)?;
    }
    let file = PointFile::open(&arguments.points)?;
    let domain = match file.domain(arguments.size.as_ref()) {
        Ok(domain) => domain,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut context = Context::new(comm.clone(), rank.gpu.clone())?;
    let cloud = file.read(&mut context.recorder, comm, &domain)?;
    phases.done("read");
    let sorted = distribute(&mut context, &cloud, Curve::Morton)?;
    context.recorder.wait()?;
    phases.done("sort");
    write_npy(comm, &arguments.output, &[file.count()], |to| save(&mut context.recorder, &sorted, to))?;
    phases.done("write");
    let cost = context.exchange.cost();
    let mut sums = [sorted.traffic, cost.sent, cost.messages];
    comm.all_reduce(&mut sums, Op::Sum)?;
    Ok(Ok(serde_json::json!({
        "command": "sort",
        "input": file.report(),
        "output": { "path": arguments.output.display().to_string(), "shape": [file.count()], "dtype": "int64" },
        "box": sides(&domain),
        "points": file.count(),
        "curve": "morton",
        "device": rank.gpu.info().name,
        "ranks": comm.size(),
        "seconds": phases.finish(),
        "bytes": { "device": sums[0], "between_ranks": sums[1] },
        "messages": sums[2],
    })))
}

/// Writes this rank's part of the permutation.
fn save(recorder: &mut Recorder, sorted: &Sorted, to: &NpyWriter<i64>) -> Result<(), Error> {
    let index = sorted.index(recorder)?;
    let index: Vec<i64> = index.into_iter().map(|row| row as i64).collect();
    Ok(to.write(sorted.part.start, &index)?)
}
