//! A check that boxes tile a mesh: each cell is in exactly one.

use super::boxes::{Box3, extent, volume};
use super::error::LayoutError;

/// Checks that `boxes`, one per rank, tile a mesh of `shape`; `list` names them in errors. Empty
/// boxes may lie anywhere.
pub(super) fn check(shape: [u64; 3], boxes: &[Box3], list: &'static str) -> Result<(), LayoutError> {
    let valid = |part: &Box3| {
        let ordered = part.iter().all(|range| range.start <= range.end);
        ordered && (volume(part) == 0 || (0..3).all(|a| part[a].end <= shape[a]))
    };
    if let Some(rank) = boxes.iter().position(|part| !valid(part)) {
        return Err(LayoutError::Outside { list, rank, part: boxes[rank].clone(), shape });
    }
    let mut full: Vec<(usize, &Box3)> = boxes.iter().enumerate().filter(|(_, part)| volume(part) > 0).collect();
    full.sort_by_key(|(_, part)| part[0].start);
    for (n, &(rank, part)) in full.iter().enumerate() {
        // Sorted by their start along axis 0: boxes from the first that starts behind this one's
        // end on do not overlap it.
        let near = full[n + 1..].iter().take_while(|(_, other)| other[0].start < part[0].end);
        let overlaps = |other: &Box3| (0..3).all(|a| part[a].start < other[a].end && other[a].start < part[a].end);
        if let Some(&(other, _)) = near.into_iter().find(|(_, other)| overlaps(other)) {
            return Err(LayoutError::Overlap { list, ranks: [rank.min(other), rank.max(other)] });
        }
    }
    let parts: Vec<&Box3> = full.iter().map(|&(_, part)| part).collect();
    let missing = size(&shape).saturating_sub(covered(&parts, 0));
    match first_gap(shape, &parts) {
        Some(first) => Err(LayoutError::Uncovered { list, cells: missing, first }),
        None => Ok(()),
    }
}

/// Returns the number of cells of these extents; `u128::MAX` where it is more.
fn size(extents: &[u64]) -> u128 {
    extents.iter().fold(1, |product: u128, &n| product.saturating_mul(n.into()))
}

/// Cells, in the axes from `axis` on, of boxes that are disjoint there.
fn covered(parts: &[&Box3], axis: usize) -> u128 {
    let cells = |part: &&Box3| size(&extent(part)[axis..]);
    parts.iter().map(cells).fold(0, u128::saturating_add)
}

/// Returns the first cell in C order that is in no box: it is in the first plane that is not
/// covered, there in the first such line. Each of plane, line and cell is at 0 or at the end of a
/// box.
fn first_gap(shape: [u64; 3], parts: &[&Box3]) -> Option<[u64; 3]> {
    let (mut parts, mut at) = (parts.to_vec(), [0; 3]);
    for axis in 0..3 {
        let mut starts: Vec<u64> = parts.iter().map(|part| part[axis].end).chain([0]).collect();
        starts.sort_unstable();
        starts.dedup();
        let across = |x: u64| -> Vec<&Box3> { parts.iter().copied().filter(|part| part[axis].contains(&x)).collect() };
        let open = |x: &u64| *x < shape[axis] && covered(&across(*x), axis + 1) < size(&shape[axis + 1..]);
        at[axis] = starts.into_iter().find(open)?;
        parts = across(at[axis]);
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::super::bricks;
    use super::*;

    fn of(boxes: &[Box3]) -> Result<(), LayoutError> {
        check([4, 6, 5], boxes, "before")
    }

    #[test]
    fn tilings_pass() {
        for parts in [[1, 1, 1], [4, 1, 1], [2, 3, 2], [7, 1, 9]] {
            assert_eq!(of(&bricks([4, 6, 5], parts)), Ok(()));
        }
    }

    #[test]
    fn errors_name_who_is_wrong() {
        let boxes = bricks([4, 6, 5], [2, 3, 2]);
        let with = |rank: usize, part: Box3| {
            let mut boxes = boxes.clone();
            boxes[rank] = part;
            of(&boxes).unwrap_err()
        };
        let outside = |rank, part| LayoutError::Outside { list: "before", rank, part, shape: [4, 6, 5] };
        assert_eq!(with(3, [0..2, 2..4, 3..6]), outside(3, [0..2, 2..4, 3..6]));
        #[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
        let backwards = [2..1, 0..2, 0..2];
        assert_eq!(with(5, backwards.clone()), outside(5, backwards));
        assert_eq!(with(0, [0..2, 0..3, 0..3]), LayoutError::Overlap { list: "before", ranks: [0, 2] });
        assert_eq!(with(11, [1..4, 4..6, 3..5]), LayoutError::Overlap { list: "before", ranks: [5, 11] });
        let gap = |cells, first| LayoutError::Uncovered { list: "before", cells, first };
        assert_eq!(with(10, [0..0, 0..0, 0..0]), gap(12, [2, 4, 0]));
        assert_eq!(with(11, [3..4, 5..6, 3..4]), gap(7, [2, 4, 3]));
        assert_eq!(of(&[]), Err(gap(120, [0, 0, 0])));
        let message = with(0, [0..2, 0..3, 0..3]).to_string();
        assert!(message.contains("ranks 0 and 2"), "{message}");
    }

    #[test]
    fn shapes_beyond_any_memory_are_checked_too() {
        let n = u64::MAX;
        assert_eq!(check([n; 3], &[[0..n, 0..n, 0..n]], "before"), Ok(()));
        let error = check([n; 3], &[[0..n, 0..n, 0..n - 1]], "before").unwrap_err();
        assert!(matches!(error, LayoutError::Uncovered { first: [0, 0, last], .. } if last == n - 1), "{error}");
    }

    #[test]
    fn a_gap_is_found_even_where_an_overlap_makes_up_for_its_cells() {
        // As many cells as the mesh has, but not each of them once.
        let error = of(&[[0..4, 0..6, 0..4], [0..4, 0..6, 3..4]]).unwrap_err();
        assert_eq!(error, LayoutError::Overlap { list: "before", ranks: [0, 1] });
    }
}
