//! A check that boxes tile a mesh: each cell is in exactly one.

use super::{Box3, LayoutError, extent, volume};

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
    if let Some(ranks) = overlap(&mut full, 0, 0) {
        return Err(LayoutError::Overlap { list, ranks });
    }
    let parts: Vec<&Box3> = full.iter().map(|&(_, part)| part).collect();
    let (all, own) = (size(&shape), covered(&parts, 0));
    // Boxes that do not overlap tile the mesh if they have as many cells, which saturate.
    if own == all && all < u128::MAX {
        return Ok(());
    }
    match first_gap(shape, &parts) {
        Some(first) => Err(LayoutError::Uncovered { list, cells: all.saturating_sub(own), first }),
        None => Ok(()),
    }
}

/// Returns two ranks whose boxes overlap, if any do.
///
/// Sorts the boxes along `axis`, cuts them where no box crosses, and goes on with each group along
/// the next axis. Only boxes of a group that no axis cuts are compared in pairs; `uncut` is the
/// number of axes that have not cut these boxes. Bricks take O(P log P) time.
fn overlap(boxes: &mut [(usize, &Box3)], axis: usize, uncut: usize) -> Option<[usize; 2]> {
    if uncut == 3 {
        let overlaps =
            |a: &Box3, b: &Box3| (0..3).all(|axis| a[axis].start < b[axis].end && b[axis].start < a[axis].end);
        let pairs = boxes.iter().enumerate().flat_map(|(n, one)| boxes[n + 1..].iter().map(move |other| (one, other)));
        let mut found = pairs.filter(|(one, other)| overlaps(one.1, other.1));
        return found.next().map(|(one, other)| [one.0.min(other.0), one.0.max(other.0)]);
    }
    boxes.sort_unstable_by_key(|(rank, part)| (part[axis].start, *rank));
    let (mut rest, next) = (boxes, (axis + 1) % 3);
    let mut is_cut = false;
    while let Some((_, first)) = rest.first() {
        let (mut end, mut length) = (first[axis].end, 1);
        while let Some((_, part)) = rest.get(length).filter(|(_, part)| part[axis].start < end) {
            (end, length) = (end.max(part[axis].end), length + 1);
        }
        is_cut |= length < rest.len();
        let (group, others) = rest.split_at_mut(length);
        if group.len() > 1
            && let Some(ranks) = overlap(group, next, if is_cut { 1 } else { uncut + 1 })
        {
            return Some(ranks);
        }
        rest = others;
    }
    None
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

    /// Overlaps and gaps of boxes that were moved, against a count of each cell.
    #[test]
    fn moved_boxes_are_judged_as_by_counting() {
        let mut found = [0; 3];
        for case in 0..4000u64 {
            let word = |n: u64| crate::hash::fnv1a(case, &n.to_le_bytes()) >> 20;
            let parts = [[2, 3, 2], [1, 6, 1], [1, 1, 5], [4, 2, 1]][(word(0) % 4) as usize];
            let mut boxes = bricks([4, 6, 5], parts);
            for n in 0..word(1) % 3 {
                let (rank, axis) = ((word(2 + n) % boxes.len() as u64) as usize, (word(5 + n) % 3) as usize);
                let ends = [word(8 + n), word(11 + n)].map(|end| end % ([4, 6, 5][axis] + 1));
                boxes[rank][axis] = ends[0].min(ends[1])..ends[0].max(ends[1]);
            }
            let holders =
                |cell: [u64; 3]| boxes.iter().filter(|part| (0..3).all(|a| part[a].contains(&cell[a]))).count();
            let cells = (0..4).flat_map(|i| (0..6).flat_map(move |j| (0..5).map(move |k| [i, j, k])));
            let counts: Vec<usize> = cells.map(holders).collect();
            let is_overlap = counts.iter().any(|&count| count > 1);
            let missing = counts.iter().filter(|&&count| count == 0).count();
            match of(&boxes) {
                Err(LayoutError::Overlap { ranks: [a, b], .. }) => {
                    let meet = |axis: usize| {
                        let (one, other) = (&boxes[a][axis], &boxes[b][axis]);
                        one.start.max(other.start) < one.end.min(other.end)
                    };
                    assert!(is_overlap && a < b && (0..3).all(meet));
                    found[0] += 1;
                }
                Err(LayoutError::Uncovered { cells, .. }) => {
                    assert!(!is_overlap && cells == missing as u128, "{boxes:?}");
                    found[1] += 1;
                }
                other => {
                    assert!(other.is_ok() && !is_overlap && missing == 0, "{boxes:?}");
                    found[2] += 1;
                }
            }
        }
        assert!(found.iter().all(|&count| count > 300), "{found:?}");
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
