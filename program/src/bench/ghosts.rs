//! `meshloom bench ghosts`: what finding neighbors on other ranks costs, at a fixed number of
//! points on each rank.

use clap::Args;
use meshloom::grid::Cost;
use meshloom::points::fof::{Groups, Linking};
use meshloom::points::ghosts::Ghosts;
use meshloom::points::sort::distribute;
use meshloom::points::tree::Builder;
use meshloom::points::{Cloud, Curve, Domain};
use meshloom::{Error, Rank};
use serde_json::json;

use super::input::Settings;
use super::measure::Spread;
use super::points::PointSet;
use super::report::{Report, amount, range, time};
use super::session::Session;
use crate::phases::processor_nanoseconds;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    points: PointSet,
    /// Reach of ghosts in mean separations of as many uniform points in the box, an open one too
    #[arg(long, value_name = "B", default_value_t = 1.0, value_parser = super::fof::parameter)]
    reach: f64,
    /// Linking length of groups, in the same unit
    #[arg(long, value_name = "B", default_value_t = 0.2, value_parser = super::fof::parameter)]
    linking_parameter: f64,
    #[command(flatten)]
    pub settings: Settings,
}

const COLUMNS: [&str; 9] = [
    "points a rank",
    "what",
    "ghosts a rank",
    "most",
    "messages a rank",
    "bytes a rank",
    "on the host",
    "together",
    "least .. greatest",
];

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let Arguments { points, reach, linking_parameter, settings } = arguments;
    let mut session = Session::new("ghosts", settings, rank, 2 * points.size.len(), &COLUMNS);
    session.report.note(points.name());
    session.report.note("messages are those with points or boxes; host: processor time of a rank's thread".into());
    session.report.field("kind", format!("{:?}", points.kind).to_lowercase().into());
    session.report.field("box", points.side.into());
    for &size in &points.size {
        let cloud = points.cloud(&mut session.rank.recorder, size, session.rank.comm.rank())?;
        let [total] = session.sum([size])?;
        let filled = Domain::new(&[f64::from(points.extent()); 3])?;
        let length = |parameter| Linking::Separations(parameter).length(&filled, total);
        within(&mut session, &cloud, *reach, length(*reach)?)?;
        groups(&mut session, &cloud, *linking_parameter, length(*linking_parameter)?)?;
    }
    Ok(session.finish())
}

/// Ghosts of all points within a radius. Collective.
fn within(session: &mut Session, cloud: &Cloud, parameter: f64, radius: f32) -> Result<(), Error> {
    let rank = &mut *session.rank;
    let sorted = distribute(rank, cloud, Curve::Hilbert)?;
    let tree = Builder::new(&rank.gpu).build(&mut rank.recorder, &sorted.cloud, &sorted.frame)?;
    let (once, spread, host) = repeated(session, |rank| {
        let before = rank.exchange.cost();
        let ghosts = Ghosts::within(rank, &tree, radius)?;
        ghosts.refresh(rank, sorted.cloud.positions(), 3)?;
        let mut cost = rank.exchange.cost().since(before);
        cost += ghosts.cost();
        Ok((ghosts.len(), cost))
    })?;
    report(session, ["within", "reach"], (cloud.len(), parameter), once, (&spread, host))
}

/// Groups of the points of all ranks, with the sort that begins a search. Collective.
fn groups(session: &mut Session, cloud: &Cloud, parameter: f64, length: f32) -> Result<(), Error> {
    let (once, spread, host) = repeated(session, |rank| {
        let groups = Groups::find(rank, cloud, Linking::Length(length.into()))?;
        Ok((groups.ghosts(), groups.cost()))
    })?;
    report(session, ["groups", "linking_parameter"], (cloud.len(), parameter), once, (&spread, host))
}

/// Returns what `work` gives once, its times, and the seconds that it keeps this rank's processor
/// busy.
fn repeated<T>(
    session: &mut Session,
    work: impl Fn(&mut Rank) -> Result<T, Error>,
) -> Result<(T, Spread, Option<f64>), Error> {
    let Session { rank, clock, .. } = session;
    work(rank)?;
    let before = processor_nanoseconds();
    let once = work(rank)?;
    let host = before.zip(processor_nanoseconds()).map(|(before, after)| 1e-9 * (after - before) as f64);
    let spread = clock.together(*rank, |rank: &mut Rank| work(rank).map(drop))?;
    Ok((once, spread, host))
}

/// Adds a row and a result. Collective.
fn report(
    session: &mut Session,
    [what, parameter]: [&str; 2],
    (size, value): (u64, f64),
    (ghosts, cost): (u64, Cost),
    (spread, host): (&Spread, Option<f64>),
) -> Result<(), Error> {
    let ranks = session.rank.comm.size() as f64;
    let nanoseconds = host.map_or(0, |seconds| (1e9 * seconds) as u64);
    let own = [ghosts, cost.messages, cost.sent_bytes, nanoseconds];
    let all = session.sum(own)?;
    let mut most = own;
    for value in &mut most {
        *value = session.clock.most(*value)?;
    }
    let mean = all.map(|sum| sum as f64 / ranks);
    let mut result = json!({
        "what": what, "size": size, "seconds": spread, "most": { "ghosts": most[0], "messages": most[1] },
        "ghosts": all[0], "messages": all[1], "bytes": { "between_ranks": all[2], "most": most[2] },
    });
    result[parameter] = value.into();
    let mut row = vec![size.to_string(), format!("{what} {value}"), format!("{:.0}", mean[0]), most[0].to_string()];
    row.extend([format!("{:.1}", mean[1]), amount(mean[2] as u64)]);
    row.push(host.map_or(String::new(), |_| {
        result["host_seconds"] = json!({ "mean": 1e-9 * mean[3], "most": 1e-9 * most[3] as f64 });
        time(1e-9 * mean[3])
    }));
    row.extend([time(spread.median), range(spread)]);
    session.report.row(row);
    session.report.result(result);
    Ok(())
}
