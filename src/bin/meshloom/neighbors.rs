//! `meshloom neighbors`: all neighbours of points within a radius.

use std::path::PathBuf;

use clap::Args;
use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::io::Member;
use meshloom::io::collective::write_npz;
use meshloom::points::neighbors::{PairFilter, RadiusQuery, RowOrder};
use serde_json::json;

use crate::common::Failure;
use crate::search::{Inputs, Job, Work, distance};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    inputs: Inputs,
    /// Largest distance, inclusive
    #[arg(long, value_name = "R", value_parser = distance, allow_hyphen_values = true)]
    radius: f32,
    /// The neighbours to write: those of row i are index[offset[i]:offset[i + 1]] and distance likewise
    #[arg(short, long, value_name = "OUT.npz")]
    output: PathBuf,
    /// Places whose neighbours are asked for: shape (M, 3) or (M, 2) [default: the points themselves]
    #[arg(long, value_name = "Q.npy")]
    queries: Option<PathBuf>,
    /// A point is not its own neighbour
    #[arg(long, conflicts_with = "queries")]
    exclude_self: bool,
    /// Write their number alone: count int64 (M)
    #[arg(long)]
    count_only: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let job = Job {
        command: "neighbors",
        inputs: &arguments.inputs,
        queries: arguments.queries.as_deref().map(|path| ("queries_file", path)),
        output: &arguments.output,
    };
    let which = if arguments.exclude_self { PairFilter::Others } else { PairFilter::All };
    let within = RadiusQuery { radius: arguments.radius, which, rows: RowOrder::Input };
    job.run(
        || Ok(()),
        |work, ()| {
            let total =
                if arguments.count_only { counts(work, arguments, &within) } else { lists(work, arguments, &within) };
            Ok(json!({
                "radius": arguments.radius,
                "exclude_self": arguments.exclude_self,
                "count_only": arguments.count_only,
                "neighbors": total?,
            }))
        },
    )
}

/// Where the lists of this rank begin among those of all ranks, and the length of all.
fn place(comm: &Communicator, length: u64) -> Result<(u64, u64), Error> {
    let (mut before, mut all) = ([length], [length]);
    comm.scan_exclusive(&mut before, Op::Sum)?;
    comm.all_reduce(&mut all, Op::Sum)?;
    Ok((before[0], all[0]))
}

/// One rank's work: numbers of neighbours. Gives that of all of all ranks.
fn counts(work: &mut Work, arguments: &Arguments, within: &RadiusQuery) -> Result<u64, Error> {
    let Work { rank, files, context, neighborhood, queries, .. } = work;
    let counts = neighborhood.counts(context, queries.as_ref(), within)?;
    let (comm, asked) = (&rank.comm, files.asked());
    let first = asked.rows(comm).start;
    let (_, all) = place(comm, counts.iter().sum())?;
    work.phases.done("search");
    let members = [Member::new::<i64>("count", &[asked.count()])];
    write_npz(comm, &arguments.output, &members, |to| {
        Ok::<_, Error>(to.write(0, first, bytemuck::cast_slice::<u64, i64>(&counts))?)
    })?;
    Ok(all)
}

/// One rank's work: lists of neighbours. Gives the length of all of all ranks.
fn lists(work: &mut Work, arguments: &Arguments, within: &RadiusQuery) -> Result<u64, Error> {
    let Work { rank, files, context, neighborhood, queries, .. } = work;
    let found = neighborhood.within(context, queries.as_ref(), within)?;
    let (comm, asked) = (&rank.comm, files.asked());
    let (first, rows) = (asked.rows(comm).start, asked.count());
    let (begin, all) = place(comm, found.index.len() as u64)?;
    // A row begins where the lists of this rank do and the rows before it end; the last rank also says where all end.
    let last = comm.rank() + 1 == comm.size();
    let own = found.offset.len() - usize::from(!last);
    let offset: Vec<i64> = found.offset[..own].iter().map(|offset| (begin + offset) as i64).collect();
    work.phases.done("search");
    let members = [
        Member::new::<i64>("offset", &[rows + 1]),
        Member::new::<i64>("index", &[all]),
        Member::new::<f32>("distance", &[all]),
    ];
    write_npz(comm, &arguments.output, &members, |to| {
        to.write(0, first, &offset)?;
        to.write(1, begin, bytemuck::cast_slice::<u64, i64>(&found.index))?;
        Ok::<_, Error>(to.write(2, begin, &found.distance)?)
    })?;
    Ok(all)
}
