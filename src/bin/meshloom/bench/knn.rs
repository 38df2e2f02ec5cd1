//! `meshloom bench knn`: the nearest neighbours of all points, on one device.

use std::num::NonZero;

use clap::Args;
use meshloom::device::Recorder;
use meshloom::neighbors::{Ask, Nearest, Queries};
use meshloom::particles::Cloud;
use meshloom::{Error, Rank};
use serde_json::json;

use super::kd::Reference;
use super::measure::Clock;
use super::points::Points;
use super::report::Report;
use super::search::{self, Theirs};
use super::{Found, Settings};
use crate::common::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    points: Points,
    /// Neighbours of each point, itself among them; several with commas between
    #[arg(short, long, value_name = "K", value_delimiter = ',', default_value = "8",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    k: Vec<u32>,
    #[command(flatten)]
    settings: Settings,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.settings.run(|rank| measure(rank, arguments))
}

fn measure(rank: &Rank, arguments: &Arguments) -> Result<Found, Error> {
    let Arguments { points, k: lengths, settings } = arguments;
    let per = search::MEASUREMENTS + usize::from(settings.reference);
    let clock = Clock::new(settings, rank, points.size.len() * lengths.len() * per);
    let mut recorder = Recorder::new(&rank.gpu)?;
    let columns: Vec<&str> = ["points", "k"].into_iter().chain(search::COLUMNS).collect();
    let mut report = Report::new("knn", settings, rank, &columns);
    report.note(points.name());
    report.field("kind", format!("{:?}", points.kind).to_lowercase().into());
    report.field("box", points.side.into());
    for &size in &points.size {
        let cloud = points.cloud(&mut recorder, size, rank.comm.rank())?;
        let mut reference = None;
        if settings.reference && rank.comm.rank() == 0 {
            let positions = recorder.download(cloud.positions(), 0, cloud.positions().len())?;
            reference = Some(Reference::new(&positions, points.side));
        }
        for &k in lengths {
            one(rank, settings, &clock, &mut recorder, &mut report, &cloud, k, reference.as_mut())?;
        }
    }
    report.field("seconds", json!({ "total": clock.finish() }));
    Ok(Ok(report))
}

/// One number of points and of neighbours.
#[allow(clippy::too_many_arguments)]
fn one(
    rank: &Rank,
    settings: &Settings,
    clock: &Clock,
    recorder: &mut Recorder,
    report: &mut Report,
    cloud: &Cloud,
    k: u32,
    reference: Option<&mut Reference>,
) -> Result<(), Error> {
    let nearest = Nearest::new(&rank.gpu);
    let results = [cloud.len() * u64::from(k); 2];
    let (ours, lists) = search::measure(clock, rank, recorder, cloud, &results, |recorder, tree| {
        Ok(nearest.lists(recorder, tree, Queries::Own, &Ask::nearest(k))?)
    })?;
    let [all] = clock.sum([cloud.len()])?;
    let mut result = json!({ "size": cloud.len(), "k": k });
    let mut theirs = None;
    if settings.reference {
        let (mut rows, mut differ) = (Vec::new(), 0);
        let mut work = reference.map(|reference| {
            let length = NonZero::new(k as usize).unwrap_or(NonZero::<usize>::MIN);
            rows = vec![(u32::MAX, f32::INFINITY); reference.len() * length.get()];
            let rows = &mut rows;
            move |part: usize| match part {
                0 => reference.build(),
                _ => reference.nearest(length, rows),
            }
        });
        let spreads = clock.alone::<2>(work.as_mut().map(|work| work as &mut dyn FnMut(usize)))?;
        if !rows.is_empty() {
            let distance = recorder.download(&lists.distance, 0, lists.distance.len())?;
            let theirs: Vec<f32> = rows.iter().map(|row| row.1).collect();
            // The far side of a periodic box costs the reference digits.
            let blur = cloud.domain().side(0).map_or(0.0, |side| side * 2.0 * f32::EPSILON);
            differ = differing(&distance, &theirs, k as usize, blur);
            result["sum_of_distances"] = json!([sum(&distance), sum(&theirs)]);
            result["rows_that_differ"] = differ.into();
        }
        let same = clock.sum([differ])? == [0];
        let what = format!("the {k} nearest of {} points", cloud.len());
        theirs = spreads.map(|[build, search]| Theirs { build, search, what, same });
    }
    let cells = vec![cloud.len().to_string(), k.to_string()];
    search::report(report, cells, result, all, &ours, theirs);
    Ok(())
}

/// The sum of distances that are there.
fn sum(distances: &[f32]) -> f64 {
    distances.iter().filter(|distance| distance.is_finite()).map(|&distance| f64::from(distance)).sum()
}

/// Rows of `k` distances in which any is another: by more than rounding of squares and roots, and `blur`.
fn differing(ours: &[f32], theirs: &[f32], k: usize, blur: f32) -> u64 {
    let close = |a: f32, b: f32| a == b || (a - b).abs() <= 8.0 * f32::EPSILON * b + blur;
    let same = |(a, b): (&[f32], &[f32])| a.iter().zip(b).all(|(&a, &b)| close(a, b));
    let rows = ours.len().max(theirs.len()).div_ceil(k);
    (rows - ours.chunks(k).zip(theirs.chunks(k)).filter(|&rows| same(rows)).count()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_differ_by_more_than_rounding() {
        let far = f32::INFINITY;
        let ours = [0.0, 1.0, 0.0, 2.0, 0.0, far];
        assert_eq!(differing(&ours, &[0.0, 1.000_000_1, 0.0, 2.0, 0.0, far], 2, 0.0), 0);
        assert_eq!(differing(&ours, &[0.0, 1.001, 0.0, 2.0, 0.0, 3.0], 2, 0.0), 2);
        assert_eq!(differing(&ours, &[0.0, f32::NAN, 0.0, 2.0, 0.0, far], 2, 0.0), 1);
        assert_eq!(differing(&ours, &ours[..4], 2, 0.0), 1, "one row is missing");
        assert_eq!(differing(&ours, &[0.0, 1.001, 0.0, 2.0, 0.0, far], 2, 0.01), 0);
        assert_eq!(sum(&ours), 3.0);
    }
}
