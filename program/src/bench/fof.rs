//! `meshloom bench fof`: friends-of-friends groups of all points, on one device.

use clap::Args;
use meshloom::points::fof::{Linking, Selection};
use meshloom::points::neighbors::Components;
use meshloom::points::{Cloud, Domain};
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
    /// Linking length in mean separations of as many uniform points in the box, an open one too;
    /// several with commas between
    #[arg(long, value_name = "B", value_delimiter = ',', default_value = "0.2", value_parser = parameter)]
    linking_parameter: Vec<f64>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Returns a linking parameter.
pub fn parameter(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(parameter) if parameter > 0.0 && parameter.is_finite() => Ok(parameter),
        _ => Err(format!("`{text}` is no linking parameter; it must be above 0")),
    }
}

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let Arguments { points, linking_parameter: parameters, settings } = arguments;
    let mut bench = SearchBench::new("fof", settings, rank, points, parameters.len(), &["points", "b", "groups"]);
    let least = Selection::default().min_members;
    bench.session.report.note(format!("groups are those of {least} points and more"));
    bench.session.report.field("min_members", least.into());
    for &size in &points.size {
        let (cloud, mut reference) = bench.cloud(size)?;
        for &parameter in parameters {
            one(&mut bench, &cloud, parameter, reference.as_mut())?;
        }
    }
    Ok(bench.finish())
}

/// Measures and reports one number of points and one linking parameter. Collective.
fn one(
    bench: &mut SearchBench,
    cloud: &Cloud,
    parameter: f64,
    mut reference: Option<&mut Reference>,
) -> Result<(), Error> {
    // The mean separation is that in the box that uniform points fill, periodic or not.
    let filled = Domain::new(&[f64::from(bench.points.extent()); 3])?;
    let length = Linking::Separations(parameter).length(&filled, cloud.len())?;
    let components = Components::new(&bench.session.rank.gpu);
    let (ours, labels) =
        bench.measure(cloud, &[cloud.len()], |recorder, tree| Ok(components.labels(recorder, tree, length)?))?;
    let labels = bench.session.rank.recorder.download(&labels, 0, labels.len())?;
    let [groups, all] = bench.session.sum([groups(&labels, Selection::default().min_members), cloud.len()])?;
    let result = json!({ "size": cloud.len(), "linking_parameter": parameter, "length": length, "groups": groups });
    let mut found = Vec::new();
    let took =
        bench.against(reference.as_deref_mut(), &mut found, |reference, found| *found = reference.groups(length))?;
    let differs = reference.is_some_and(|reference| !same(&labels, &found, reference, length));
    let theirs =
        bench.compared(took, format!("the groups of {} points linked up to {length}", cloud.len()), differs)?;
    bench.row(vec![cloud.len().to_string(), parameter.to_string(), groups.to_string()], result, all, &ours, theirs);
    Ok(())
}

/// Returns the number of groups with at least `least` members.
fn groups(labels: &[u32], least: u64) -> u64 {
    let mut counts = vec![0u64; labels.len()];
    for &label in labels {
        // Labels out of range are found by the comparison with the reference.
        if let Some(count) = counts.get_mut(label as usize) {
            *count += 1;
        }
    }
    counts.iter().filter(|&&count| count >= least).count() as u64
}

/// Returns `true` if labels are those of the reference, except for links that depend on rounding:
/// the groups must be unions of those with a slightly smaller linking length and lie within those
/// with a slightly larger one.
fn same(ours: &[u32], theirs: &[u32], reference: &Reference, length: f32) -> bool {
    let close = || {
        // Rounding of squares on both sides, and of periodic images.
        let slack = 4.0 * f32::EPSILON * (length + reference.side());
        let [fine, coarse] = [length - slack, length + slack].map(|length| reference.groups(length.max(0.0)));
        let least = within(ours, ours) && ours.iter().zip(0..).all(|(&label, point)| label <= point);
        least && within(&fine, ours) && within(ours, &coarse)
    };
    ours.len() == theirs.len() && (ours == theirs || close())
}

/// Returns `true` if each group of `fine` lies in one of `coarse`: a point and the point that its
/// label names have one label there.
fn within(fine: &[u32], coarse: &[u32]) -> bool {
    let mut each = fine.iter().zip(coarse);
    each.all(|(&fine, label)| coarse.get(fine as usize) == Some(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_above_0() {
        assert_eq!(parameter("0.2"), Ok(0.2));
        for wrong in ["0", "-1", "inf", "nan", "b", ""] {
            assert!(parameter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    #[cfg(feature = "reference")]
    fn groups_differ_by_more_than_rounding() {
        assert_eq!([1, 2, 3, 4].map(|least| groups(&[0, 0, 2, 0, 4, 4], least)), [3, 2, 1, 0]);
        assert!(within(&[0, 1, 1, 3], &[0, 1, 1, 1]) && !within(&[0, 1, 1, 1], &[0, 1, 1, 3]));
        // Along x at 0, 1 and, as near as can be, beyond 2.
        let reference =
            Reference::new(&[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 2.0 + 2.0 * f32::EPSILON, 0.0, 0.0], None).unwrap();
        let same = |ours: &[u32], length: f32| same(ours, &reference.groups(length), &reference, length);
        assert!(same(&[0, 0, 0], 1.0) && same(&[0, 0, 2], 1.0) && same(&[0, 1, 2], 1.0));
        assert!(same(&[0, 0, 0], 1.1) && !same(&[0, 0, 2], 1.1) && !same(&[0, 1, 2], 1.1));
        assert!(!same(&[0, 0, 0], 0.9) && !same(&[0, 0], 1.0), "a link too many, a point too few");
        assert!(!same(&[1, 1, 2], 1.0) && !same(&[0, 0, 7], 1.0) && !same(&[0, 0, 1], 1.0), "not the least numbers");
    }
}
