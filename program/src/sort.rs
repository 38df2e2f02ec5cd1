//! `meshloom sort`: the permutation that puts points in Morton order.

use std::path::PathBuf;

use clap::Args;
use meshloom::comm::Op;
use meshloom::gpu::Recorder;
use meshloom::io::NpyWriter;
use meshloom::io::collective::write_npy;
use meshloom::points::sort::{Sorted, distribute};
use meshloom::points::{BoxUse, Curve};
use meshloom::{Error, Rank};

use crate::checked_files::{check_files, writable};
use crate::common::{Common, shares_value};
use crate::failure::{Ended, Failure};
use crate::output_name::check_name;
use crate::particle_type::ParticleType;
use crate::phases::Phases;
use crate::points::{PointFile, Sides, sides};

#[derive(Args)]
#[command(mut_arg("grid", |grid| grid.hide(true)))]
pub struct Arguments {
    /// Points: shape (N, 3) or (N, 2), f32 or f64; or a snapshot in HDF5, or the centers of a
    /// catalog of groups
    #[arg(value_name = "POINTS.npy|SNAPSHOT.hdf5")]
    points: PathBuf,
    /// The permutation to write: int64, element i is the row of the i-th point in order
    #[arg(short, long, value_name = "ORDER.npy")]
    output: PathBuf,
    /// Sides of the periodic box; 0 or open leaves an axis open [default: a snapshot's own, else
    /// all open]
    #[arg(long = "box", value_name = "L|LX,LY,LZ", allow_hyphen_values = true)]
    size: Option<Sides>,
    #[command(flatten)]
    particles: ParticleType,
    #[command(flatten)]
    common: Common,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let files = check_files([arguments.points.as_path()], [arguments.output.as_path()])?;
    check_name(&arguments.output, &["npy"])?;
    arguments.particles.check([arguments.points.as_path()])?;
    arguments.common.refuse_grid()?;
    let report = arguments.common.launch(&files, |rank| sort(rank, arguments))?;
    arguments.common.print(report)
}

/// One rank's work.
fn sort(rank: &mut Rank, arguments: &Arguments) -> Result<serde_json::Value, Ended> {
    let comm = &rank.comm.clone();
    let mut phases = Phases::new(arguments.common.progress(comm.rank(), 3, "sort"));
    let (file, domain) = comm.together(|| {
        let file = PointFile::open(&arguments.points, arguments.particles)?;
        let domain = file.domain(arguments.size.as_ref())?;
        writable(comm, &arguments.output)?;
        Ok::<_, Failure>((file, domain))
    })?;
    let cloud = file.read(rank, &domain, BoxUse::Images)?;
    phases.done("read");
    let sorted = distribute(rank, &cloud, Curve::Morton)?;
    rank.recorder.wait()?;
    phases.done("sort");
    write_npy(comm, &arguments.output, &[file.count()], |to| save(&mut rank.recorder, &sorted, to))?;
    phases.done("write");
    let cost = rank.exchange.cost();
    let mut sums = [sorted.traffic, cost.sent_bytes, cost.messages];
    comm.all_reduce(&mut sums, Op::Sum)?;
    Ok(serde_json::json!({
        "command": "sort",
        "input": file.file.report(),
        "output": { "path": arguments.output.display().to_string(), "shape": [file.count()], "dtype": "int64" },
        "box": sides(&domain),
        "points": file.count(),
        "curve": "morton",
        "device": rank.gpu.info().name,
        "ranks": comm.size(), "shares": shares_value(comm.shares()),
        "host_seconds": phases.host_seconds(comm)?,
        "seconds": phases.finish(),
        "bytes": { "device": sums[0], "between_ranks": sums[1] },
        "messages": sums[2],
    }))
}

/// Writes this rank's part of the permutation.
fn save(recorder: &mut Recorder, sorted: &Sorted, to: &NpyWriter<i64>) -> Result<(), Error> {
    let index = sorted.index(recorder)?;
    Ok(to.write(sorted.part.start, bytemuck::cast_slice::<u64, i64>(&index))?)
}
