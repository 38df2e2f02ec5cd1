//! `meshloom bench pairs`: how many pairs of points have which distance, on one device.

use clap::Args;
use meshloom::points::neighbors::{Bins, PairFilter, Queries, RadiusSearch, join_u64};
use meshloom::{Error, Rank};
use serde_json::json;

use super::input::Settings;
use super::points::PointSet;
use super::report::Report;
use super::search::SearchBench;
use crate::failure::{Ended, Failure};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    points: PointSet,
    /// Largest distance [default: 2 mean separations of as many uniform points, about 33 neighbors]
    #[arg(long, value_name = "R", value_parser = radius)]
    radius: Option<f32>,
    /// Number of bins from 0 to there, of equal width
    #[arg(long = "bin-count", value_name = "B", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    bins: u32,
    #[command(flatten)]
    pub settings: Settings,
}

fn radius(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(radius) if radius > 0.0 && radius.is_finite() => Ok(radius),
        _ => Err(format!("`{text}` is no radius; it must be above 0")),
    }
}

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Ended> {
    let Arguments { points, radius, bins, settings } = arguments;
    let widest = points.side.map_or(f32::INFINITY, |side| 0.5 * side);
    if let Some(radius) = radius.filter(|&radius| radius > widest) {
        return Err(Failure::Usage(format!(
            "--radius {radius} is more than half of the --box, {widest}: pairs are compared up to there"
        ))
        .into());
    }
    let mut bench = SearchBench::new("pairs", settings, rank, points, 1, &["points", "radius", "pairs"]);
    bench.session.report.field("bins", (*bins).into());
    for &size in &points.size {
        let usual = (2.0 * points.extent() / (size as f32).cbrt()).min(widest);
        one(&mut bench, size, radius.unwrap_or(usual), *bins)?;
    }
    Ok(bench.finish())
}

/// Measures and reports one number of points. Collective.
fn one(bench: &mut SearchBench, size: u64, radius: f32, bins: u32) -> Result<(), Error> {
    let (searches, width) = (RadiusSearch::new(&bench.session.rank.gpu), f64::from(radius) / f64::from(bins));
    let bins = Bins::new(&(0..=bins).map(|edge| f64::from(edge) * width).collect::<Vec<_>>())?;
    let (cloud, mut reference) = bench.cloud(size)?;
    let words = 2 * bins.len() as u64;
    let (ours, counts) = bench.measure(&cloud, &[words], |recorder, tree| {
        let counts = recorder.gpu().array::<u32>("bench::bins", words)?;
        recorder.clear(&counts);
        searches.pairs(recorder, tree, Queries::Own, &bins, PairFilter::ExcludeSelf, &counts)?;
        Ok(counts)
    })?;
    let counts = join_u64(&bench.session.rank.recorder.download(&counts, 0, words)?);
    let [pairs, all] = bench.session.sum([counts.iter().sum(), size])?;
    let result = json!({
        "size": size, "radius": radius, "pairs": pairs, "pairs_per_second": pairs as f64 / ours.both.median,
    });
    let mut found = Vec::new();
    let took =
        bench.against(reference.as_mut(), &mut found, |reference, found| *found = reference.pairs(bins.edges()))?;
    let differs = reference.is_some() && !close(&counts, &found);
    let theirs = bench.compared(took, format!("the pairs of {size} points within {radius}"), differs)?;
    let cells = vec![size.to_string(), format!("{radius:.4}"), format!("{:.2} M", pairs as f64 / 1e6)];
    bench.row(cells, result, all, &ours, theirs);
    Ok(())
}

/// Returns `true` if two histograms are equal except for pairs that rounding moves across an edge.
fn close(ours: &[u64], theirs: &[u64]) -> bool {
    let near = |(&a, &b): (&u64, &u64)| a.abs_diff(b) <= 2 + a.max(b) / 50_000;
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_differ_by_more_than_rounding() {
        assert!(close(&[0, 10, 1_000_000], &[0, 12, 1_000_010]));
        assert!(!close(&[0, 10], &[0, 13]) && !close(&[1_000_000], &[1_000_100]) && !close(&[1], &[1, 0]));
    }
}
