//! Fits on devices: the same bits for every number of groups and ranks of a group.

use super::field_models::{Found, Run, fit};
use meshloom::comm::run_threads;
use meshloom::inference::Curvature;

/// Returns what the ranks of a group have found, as one; of all groups the same.
fn whole(groups: usize, space: usize, run: Run<'_>) -> Found {
    let options = meshloom_sanitizer::options().unwrap();
    let ranks = run_threads(groups * space, |comm| fit(&comm, &options, groups, run));
    let ranks = ranks.unwrap_or_else(|error| panic!("{groups} x {space}: {error}"));
    let join = |group: &[Found]| {
        let mut found = group[0].clone();
        for other in &group[1..] {
            assert_eq!((&other.energies, &other.scale), (&found.energies, &found.scale), "ranks of a group");
            found.cells.extend(&other.cells);
        }
        found.cells.sort_unstable();
        found
    };
    let found: Vec<Found> = ranks.chunks(space).map(join).collect();
    assert!(found.iter().all(|other| *other == found[0]), "{groups} groups of {space} differ");
    found[0].clone()
}

#[test]
fn fits_have_the_same_bits_for_every_number_of_groups_and_ranks() {
    let one = whole(1, 1, Run::default());
    assert_eq!((one.cells.len(), one.energies.len()), (240, 2));
    let energies: Vec<f64> = one.energies.iter().map(|&bits| f64::from_bits(bits)).collect();
    assert!(energies.iter().all(|energy| energy.is_finite() && *energy > 0.0), "{energies:?}");
    assert!(one.cells.iter().all(|(_, [_, mean, std])| f32::from_bits(*mean) > 0.0 && f32::from_bits(*std) > 0.0));
    for (groups, space) in [(1, 2), (2, 1), (3, 1), (4, 2), (8, 1), (8, 2)] {
        assert_eq!(whole(groups, space, Run::default()), one, "{groups} groups of {space} ranks");
    }
}

#[test]
fn fits_with_the_metric_at_the_position_have_the_same_bits() {
    let run = Run { curvature: Curvature::AtPosition, ..Run::default() };
    let one = whole(1, 1, run);
    assert_ne!(one.energies, whole(1, 1, Run::default()).energies);
    for (groups, space) in [(1, 2), (3, 1), (4, 2), (8, 1)] {
        assert_eq!(whole(groups, space, run), one, "{groups} groups of {space} ranks");
    }
}

#[test]
fn a_state_is_resumed_by_any_ranks_to_the_same_bits() {
    let one = whole(1, 1, Run::default());
    for (first, second) in
        [([1, 1, 1], [1, 3, 1]), ([2, 3, 1], [1, 1, 1]), ([1, 4, 2], [2, 2, 1]), ([1, 2, 1], [1, 4, 2])]
    {
        let path = std::env::temp_dir().join(format!("meshloom-any-ranks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let run = |[groups, space, across]: [usize; 3], iterations| {
            whole(groups, space, Run { across, iterations, state: Some(&path), ..Run::default() })
        };
        assert_eq!(run(first, 1).energies[..], one.energies[..1]);
        // The second finds the first iteration, and makes the other.
        assert_eq!(run(second, 2), one, "{first:?}, {second:?}");
        std::fs::remove_dir_all(&path).unwrap();
    }
}
