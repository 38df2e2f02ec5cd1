//! `meshloom neighbors`: all neighbors of points within a radius.

use std::path::PathBuf;

use clap::Args;
use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::io::Member;
use meshloom::io::collective::write_npz;
use meshloom::points::neighbors::Within;
use meshloom::points::{Counts, Lists, Predicate};
use serde_json::json;

use crate::checked::distance;
use crate::failure::Failure;
use crate::search::{RankSearch, SearchCommand, SearchOptions};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    search: SearchOptions,
    /// Largest distance, inclusive
    #[arg(long, value_name = "R", value_parser = distance, allow_hyphen_values = true)]
    radius: f32,
    /// The neighbors to write: those of row i are index[offset[i]:offset[i + 1]] and distance
    /// likewise
    #[arg(short, long, value_name = "OUT.npz")]
    output: PathBuf,
    /// Query points, whose neighbors are searched for: shape (M, 3) or (M, 2) [default: the points
    /// themselves]
    #[arg(long, value_name = "Q.npy")]
    queries: Option<PathBuf>,
    /// A point is not its own neighbor
    #[arg(long, conflicts_with = "queries")]
    exclude_self: bool,
    /// Write only their number: count int64 (M)
    #[arg(long)]
    count_only: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let command = SearchCommand {
        name: "neighbors",
        options: &arguments.search,
        queries: arguments.queries.as_deref().map(|path| ("queries_file", path)),
        list: None,
        values: Vec::new(),
        output: &arguments.output,
        extensions: &["npz"],
    };
    let all = Predicate::within(arguments.radius);
    let within = if arguments.exclude_self { all.exclude_self() } else { all };
    command.run(
        |_| Ok(()),
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

/// Returns the offset of this rank's lists among those of all ranks, and the length of all.
fn place(comm: &Communicator, length: u64) -> Result<(u64, u64), Error> {
    let (mut before, mut all) = ([length], [length]);
    comm.scan_exclusive(&mut before, Op::Sum)?;
    comm.all_reduce(&mut all, Op::Sum)?;
    Ok((before[0], all[0]))
}

/// One rank's work with `--count-only`; returns the number of neighbors on all ranks.
fn counts(work: &mut RankSearch, arguments: &Arguments, within: &Within) -> Result<u64, Error> {
    let RankSearch { rank, inputs, search, queries, .. } = work;
    let counts = rank.query(search, queries.as_ref().into(), *within, Counts)?;
    let counts = rank.recorder.download(&counts, 0, counts.len())?;
    let counts: Vec<u64> = counts.into_iter().map(u64::from).collect();
    let (comm, query_points) = (&rank.comm, inputs.query_points());
    let first = query_points.rows(comm).start;
    let (_, all) = place(comm, counts.iter().sum())?;
    work.phases.done("search");
    let members = [Member::new::<i64>("count", &[query_points.count()])];
    write_npz(comm, &arguments.output, &members, |to| {
        Ok::<_, Error>(to.write(0, first, bytemuck::cast_slice::<u64, i64>(&counts))?)
    })?;
    Ok(all)
}

/// One rank's work: lists of neighbors; returns their number on all ranks.
fn lists(work: &mut RankSearch, arguments: &Arguments, within: &Within) -> Result<u64, Error> {
    let RankSearch { rank, inputs, search, queries, .. } = work;
    let mut found = rank.query(search, queries.as_ref().into(), *within, Lists)?.download(rank)?;
    let (comm, query_points) = (&rank.comm, inputs.query_points());
    let (first, rows) = (query_points.rows(comm).start, query_points.count());
    let (begin, all) = place(comm, found.index.len() as u64)?;
    // Offsets of this rank's rows among all; the last rank also writes the end.
    let last = comm.rank() + 1 == comm.size();
    let own = found.offsets.len() - usize::from(!last);
    found.offsets.iter_mut().for_each(|offset| *offset += begin);
    work.phases.done("search");
    let members = [
        Member::new::<i64>("offset", &[rows + 1]),
        Member::new::<i64>("index", &[all]),
        Member::new::<f32>("distance", &[all]),
    ];
    write_npz(comm, &arguments.output, &members, |to| {
        to.write(0, first, bytemuck::cast_slice::<u64, i64>(&found.offsets[..own]))?;
        to.write(1, begin, bytemuck::cast_slice::<u64, i64>(&found.index))?;
        Ok::<_, Error>(to.write(2, begin, &found.distance)?)
    })?;
    Ok(all)
}
