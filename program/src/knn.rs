//! `meshloom knn`: the nearest neighbors of points.

use std::path::PathBuf;

use clap::Args;
use meshloom::Error;
use meshloom::io::Member;
use meshloom::io::collective::write_npz;
use meshloom::points::neighbors::MAX_K;
use meshloom::points::{Lists, Predicate};
use serde_json::{Value, json};

use crate::checked::limit;
use crate::failure::Failure;
use crate::search::{RankSearch, SearchCommand, SearchOptions};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    search: SearchOptions,
    /// Neighbors of each point, up to 1024
    #[arg(short, long, value_name = "K", value_parser = number, allow_hyphen_values = true)]
    k: u32,
    /// The neighbors to write: index int64 (M, K) and distance f32 (M, K), nearest first; -1 and
    /// inf where there are fewer
    #[arg(short, long, value_name = "OUT.npz")]
    output: PathBuf,
    /// Query points, whose neighbors are searched for: shape (M, 3) or (M, 2) [default: the points
    /// themselves]
    #[arg(long, value_name = "Q.npy")]
    queries: Option<PathBuf>,
    /// A point is not its own neighbor
    #[arg(long, conflicts_with = "queries")]
    exclude_self: bool,
    /// Only neighbors up to this distance, inclusive
    #[arg(long, value_name = "R", value_parser = limit, allow_hyphen_values = true)]
    max_distance: Option<f32>,
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<u64>() {
        Ok(k) if k <= u64::from(MAX_K) => Ok(k as u32),
        Ok(_) => Err(format!("at most {MAX_K} can be asked for; `meshloom neighbors` gives all within a radius")),
        Err(_) => Err(format!("it must be a whole number from 0 to {MAX_K}")),
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let command = SearchCommand {
        name: "knn",
        options: &arguments.search,
        queries: arguments.queries.as_deref().map(|path| ("queries_file", path)),
        list: None,
        values: Vec::new(),
        output: &arguments.output,
        extensions: &["npz"],
    };
    command.run(|_| Ok(()), |work, ()| search(work, arguments))
}

/// One rank's work.
fn search(work: &mut RankSearch, arguments: &Arguments) -> Result<Value, Error> {
    let RankSearch { rank, inputs, search, queries, .. } = work;
    let all = Predicate::nearest(arguments.k).within(arguments.max_distance.unwrap_or(f32::INFINITY));
    let query = if arguments.exclude_self { all.exclude_self() } else { all };
    let found = rank.query(search, queries.as_ref().into(), query, Lists)?.download(rank)?;
    let (comm, query_points) = (&rank.comm, inputs.query_points());
    let (k, first) = (u64::from(arguments.k), query_points.rows(comm).start);
    let shape = [query_points.count(), k];
    work.phases.done("search");
    let members = [Member::new::<i64>("index", &shape), Member::new::<f32>("distance", &shape)];
    write_npz(comm, &arguments.output, &members, |to| {
        // The index of a missing neighbor is u64::MAX, whose bits are those of -1.
        to.write(0, first * k, bytemuck::cast_slice::<u64, i64>(&found.index))?;
        Ok::<_, Error>(to.write(1, first * k, &found.distance)?)
    })?;
    Ok(json!({
        "k": k,
        "exclude_self": arguments.exclude_self,
        "max_distance": arguments.max_distance.filter(|limit| limit.is_finite()),
    }))
}
