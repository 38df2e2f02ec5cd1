//! `meshloom pairs`: numbers of pairs by distance.

use std::path::{Path, PathBuf};

use clap::Args;
use meshloom::Error;
use meshloom::io::{Column, IoError, read_numbers, write_csv};
use meshloom::points::neighbors::{Bins, NeighborError, PairWeights};
use meshloom::points::{Histogram, Predicate, WeightedHistogram};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output_name::TABLE;
use crate::point_values::{PointValues, warn_of_unused_masses};
use crate::points::PointFile;
use crate::search::{RankSearch, SearchCommand, SearchInputs, SearchOptions};
use crate::terminal;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    search: SearchOptions,
    /// File with the edges of the bins of distances: numbers from 0 on, ascending, one per line
    #[arg(long, value_name = "EDGES.txt")]
    bins: PathBuf,
    /// The table to write: r_low <= r < r_high and the number of ordered pairs in each bin. With
    /// --masses each bin also has the sum of the products m_i m_j
    #[arg(short, long, value_name = "OUT.csv")]
    output: PathBuf,
    /// Count pairs of one of these and one of the points: shape (M, 3) or (M, 2) [default: of
    /// different points]
    #[arg(long, value_name = "Q.npy")]
    cross: Option<PathBuf>,
    /// Masses or other weights of points, finite and not negative: shape (N), or a snapshot that
    /// has masses [default: 1 each]
    #[arg(long, visible_alias = "weights", value_name = "M.npy")]
    masses: Option<PathBuf>,
    /// Masses or other weights of the points of --cross, like --masses
    #[arg(long, visible_alias = "cross-weights", value_name = "M.npy", requires = "cross")]
    cross_masses: Option<PathBuf>,
}

/// Most edges of a file.
const MAX_EDGES: usize = 4097;

/// Bins, and their edges in the digits of the file: bins round them to f32.
struct Edges {
    given: Vec<f64>,
    bins: Bins,
}

impl Edges {
    fn read(path: &Path) -> Result<Self, Error> {
        let numbers = read_numbers(path)?;
        let given = numbers.values;
        let bins = match Bins::new(&given) {
            Ok(bins) => bins,
            Err(NeighborError::Edges { index, value }) => {
                let (few, many) = (given.len() < 2, given.len() > MAX_EDGES && index + 1 >= MAX_EDGES);
                let reason = match value {
                    _ if few => format!("{} given, two at least are needed", edges(given.len())),
                    _ if many => format!("the edge is one too many, there can be {MAX_EDGES}"),
                    value if !(0.0..=f64::from(f32::MAX)).contains(&value) => {
                        format!("the edge {value} must be a number from 0 to 3.4e38")
                    }
                    value => format!("the edge {value} must be larger than the one before, also as an f32"),
                };
                let line = match numbers.lines.get(if many { MAX_EDGES } else { index }) {
                    Some(line) if !few => *line,
                    // Too few edges: the end of the file.
                    _ => numbers.line_count.max(1),
                };
                return Err(IoError::line(path, line, reason).into());
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Edges { given, bins })
    }
}

fn edges(count: usize) -> String {
    if count == 1 { "one edge is".into() } else { format!("{count} edges are") }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.bins.as_os_str() == "-" {
        return Err(Failure::Usage("-: edges cannot be read from standard input; save them to a file".into()));
    }
    let command = SearchCommand {
        name: "pairs",
        options: &arguments.search,
        queries: arguments.cross.as_deref().map(|path| ("cross_file", path)),
        list: Some(&arguments.bins),
        values: [&arguments.masses, &arguments.cross_masses].into_iter().flatten().map(PathBuf::as_path).collect(),
        output: &arguments.output,
        extensions: &TABLE,
    };
    // Files of masses are opened before the work, so that their errors come before it.
    let prepare = |inputs: &SearchInputs| Ok((Edges::read(&arguments.bins)?, masses(inputs, arguments)?));
    command.run(prepare, |work, (edges, masses)| count(work, arguments, edges, masses))
}

type Masses = [Option<PointValues>; 2];

/// Opens the files of masses of the points and of those of `--cross`.
fn masses(inputs: &SearchInputs, arguments: &Arguments) -> Result<Masses, Error> {
    let particles = arguments.search.particles();
    let open = |points: Option<&PointFile>, masses: &Option<PathBuf>| {
        let both = points.zip(masses.as_deref());
        both.map(|(points, masses)| PointValues::open(masses, particles, "mass", &[points.count()])).transpose()
    };
    Ok([open(Some(&inputs.points), &arguments.masses)?, open(inputs.queries.as_ref(), &arguments.cross_masses)?])
}

/// Reads the masses of this rank's points, and of its points of `--cross`. Collective. Rank 0 warns
/// of particles whose masses differ and are not used.
fn read_masses(work: &RankSearch, arguments: &Arguments, masses: &Masses) -> Result<[Option<Vec<f32>>; 2], Error> {
    let (comm, inputs, particles) = (&work.rank.comm, work.inputs, arguments.search.particles());
    let files = [Some(&inputs.points), inputs.queries.as_ref()];
    let mut found = [None, None];
    for (((file, masses), option), found) in
        files.into_iter().zip(masses).zip(["--masses", "--cross-masses"]).zip(&mut found)
    {
        let Some(file) = file else { continue };
        let rows = file.rows(comm);
        match masses {
            Some(masses) => *found = Some(masses.read(comm, rows)?),
            None => warn_of_unused_masses(comm, &*file.file, particles, rows, option)?,
        }
    }
    Ok(found)
}

/// One rank's work; rank 0 writes the file.
fn count(work: &mut RankSearch, arguments: &Arguments, edges: &Edges, masses: &Masses) -> Result<Value, Error> {
    if work.rank.comm.rank() == 0
        && let Some(doubt) = edges.bins.doubt(&work.inputs.domain)
    {
        terminal::warn(&doubt);
    }
    let [of_points, of_queries] = read_masses(work, arguments, masses)?;
    let RankSearch { rank, search, queries, .. } = work;
    let (queries, mut sums) = (queries.as_ref(), None);
    let all = Predicate::within(f32::INFINITY);
    let all = if queries.is_none() { all.exclude_self() } else { all };
    let targets = queries.into();
    let counts = if of_points.is_some() || of_queries.is_some() {
        let weights = PairWeights { points: of_points.as_deref(), queries: of_queries.as_deref() };
        let output = WeightedHistogram { bins: &edges.bins, weights };
        let found = rank.query(search, targets, all, output)?;
        sums = Some(found.sums);
        found.counts
    } else {
        rank.query(search, targets, all, Histogram(&edges.bins))?
    };
    let comm = &rank.comm;
    work.phases.done("search");
    if comm.rank() == 0 {
        let (low, high) = (&edges.given[..counts.len()], &edges.given[1..]);
        let mut columns =
            vec![("r_low", Column::F64(low)), ("r_high", Column::F64(high)), ("count", Column::U64(&counts))];
        columns.extend(sums.as_ref().map(|sums| ("weighted", Column::F64(sums))));
        write_csv(&arguments.output, &columns)?;
    }
    let name = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    Ok(json!({
        "bins_file": arguments.bins.display().to_string(),
        "bins": counts.len(),
        "pairs": counts.iter().sum::<u64>(),
        "masses": name(&arguments.masses),
        "cross_masses": name(&arguments.cross_masses),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_edge_is_named_by_its_line() {
        let path = std::env::temp_dir().join(format!("meshloom-edges-{}.txt", meshloom::io::token()));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let edges = Edges::read(&path);
            std::fs::remove_file(&path).unwrap();
            edges.map(|edges| edges.given).map_err(|error| error.to_string())
        };
        assert_eq!(read("0\n0.1\n 2e0\n"), Ok(vec![0.0, 0.1, 2.0]));
        let many = |n: u32| (0..n).map(|i| format!("{i}\n")).collect::<String>();
        assert!(read(&many(4097)).is_ok());
        for (text, words) in [
            ("", ["line 1:", "0 edges are given, two"]),
            ("# nothing\n\n", ["line 2:", "0 edges are given, two"]),
            ("1\n", ["line 1:", "one edge is given, two"]),
            ("0\n\n2\n1\n", ["line 4:", "edge 1 must be larger"]),
            ("0\n1\n1.00000000001\n", ["line 3:", "must be larger"]),
            ("-1\n1\n", ["line 1:", "edge -1 must be a number from 0"]),
            ("0\nnan\n", ["line 2:", "edge NaN must be a number"]),
            ("0\ninf\n", ["line 2:", "edge inf must be a number"]),
            ("0\none\n", ["line 2:", "`one` is not a number"]),
            (&many(4098), ["line 4098:", "one too many"]),
        ] {
            let error = read(text).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
