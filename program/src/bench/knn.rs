//! `meshloom bench knn`: the nearest neighbors of all points, on one device.

use std::num::NonZero;

use clap::Args;
use meshloom::points::Cloud;
use meshloom::points::neighbors::{NearestSearch, Predicate, Queries};
use meshloom::{Error, Rank};
use serde_json::json;

use super::input::Settings;
use super::points::PointSet;
use super::reference::kd::Reference;
use super::report::Report;
use super::search::SearchBench;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    points: PointSet,
    /// Neighbors of each point, itself among them; several with commas between
    #[arg(short, long, value_name = "K", value_delimiter = ',', default_value = "8",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    k: Vec<u32>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let Arguments { points, k: lengths, settings } = arguments;
    let mut bench = SearchBench::new("knn", settings, rank, points, lengths.len(), &["points", "k"]);
    for &size in &points.size {
        let (cloud, mut reference) = bench.cloud(size)?;
        for &k in lengths {
            one(&mut bench, &cloud, k, reference.as_mut())?;
        }
    }
    Ok(bench.finish())
}

/// Measures and reports one number of points and of neighbors. Collective.
fn one(bench: &mut SearchBench, cloud: &Cloud, k: u32, reference: Option<&mut Reference>) -> Result<(), Error> {
    let nearest = NearestSearch::new(&bench.session.rank.gpu);
    let results = [cloud.len() * u64::from(k); 2];
    let (ours, lists) = bench.measure(cloud, &results, |recorder, tree| {
        Ok(nearest.lists(recorder, tree, Queries::Own, &Predicate::nearest(k))?)
    })?;
    let [all] = bench.session.sum([cloud.len()])?;
    let mut result = json!({ "size": cloud.len(), "k": k });
    let length = NonZero::new(k as usize).unwrap_or(NonZero::<usize>::MIN);
    let queries = reference.as_ref().map_or(0, |reference| reference.len());
    let mut rows = vec![(u32::MAX, f32::INFINITY); queries * length.get()];
    let took = bench.against(reference, &mut rows, |reference, rows| reference.nearest(length, rows))?;
    let mut differ = 0;
    if !rows.is_empty() {
        let distance = bench.session.rank.recorder.download(&lists.distance, 0, lists.distance.len())?;
        let theirs: Vec<f32> = rows.iter().map(|row| row.1).collect();
        // The reference rounds periodic images to the digits of the far side.
        let blur = cloud.domain().side(0).map_or(0.0, |side| side * 2.0 * f32::EPSILON);
        differ = differing(&distance, &theirs, k as usize, blur);
        result["sum_of_distances"] = json!([sum(&distance), sum(&theirs)]);
        result["rows_that_differ"] = differ.into();
    }
    let theirs = bench.compared(took, format!("the {k} nearest of {} points", cloud.len()), differ > 0)?;
    bench.row(vec![cloud.len().to_string(), k.to_string()], result, all, &ours, theirs);
    Ok(())
}

/// Returns the sum of the distances of neighbors that exist.
fn sum(distances: &[f32]) -> f64 {
    distances.iter().filter(|distance| distance.is_finite()).map(|&distance| f64::from(distance)).sum()
}

/// Returns the number of rows of `k` distances in which any differs by more than rounding of
/// squares and roots, and `blur`.
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
