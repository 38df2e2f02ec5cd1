//! Where the numbers of each rank stand in a saved vector, and how ranks that are cut otherwise find theirs.
//!
//! A row of the file has the numbers of the ranks of a group one rank after the other, as each has staged them: each writes one piece. The boxes that they had
//! are in the file, too. A rank of another group reads what ranks had whose boxes meet its own.

use std::ops::Range;

use super::error::InferenceError;
use super::groups::SampleGroups;
use super::vector_space::{Share, VectorSpace};
use crate::grid::{Box3, extent, volume};
use crate::host_memory;

/// Numbers of a box in the file.
const BOX: usize = 6;

/// The shares of each rank of a group.
pub(super) struct RowLayout {
    ranks: Vec<Vec<Share>>,
}

/// Numbers of shares: those that are f32, or those that are f64.
fn len(shares: &[Share], is_double: bool) -> u64 {
    shares.iter().filter(|share| share.is_double == is_double).map(Share::len).sum()
}

impl RowLayout {
    /// Of the ranks of a group that hold vectors like `x`, the same for all groups. All ranks of all groups call it.
    pub fn of<S: VectorSpace>(space: &S, groups: &SampleGroups, x: &S::Vector) -> Result<Self, InferenceError> {
        let own = space.shares(x)?;
        let boxes: Vec<u64> =
            own.iter().flat_map(|share| &share.own).flat_map(|range| [range.start, range.end]).collect();
        let all = groups.all().all_gather(&boxes)?;
        let group = groups.all().size() / groups.count() * boxes.len();
        Ok(RowLayout { ranks: all[..group].chunks(boxes.len().max(1)).map(|boxes| with_boxes(&own, boxes)).collect() })
    }

    /// The boxes that the file keeps: of each rank, of each part of a vector.
    pub fn boxes(&self) -> Vec<i64> {
        let ranges = self.ranks.iter().flatten().flat_map(|share| &share.own);
        ranges.flat_map(|range| [range.start as i64, range.end as i64]).collect()
    }

    /// The shape of these.
    pub fn boxes_shape(&self) -> [u64; 3] {
        [self.ranks.len() as u64, self.ranks.first().map_or(0, Vec::len) as u64, BOX as u64]
    }

    /// The layout of the ranks that wrote these boxes of vectors like this one's; none if they cannot be.
    pub fn of_boxes(&self, boxes: &[i64]) -> Option<Self> {
        let own = self.ranks.first()?;
        let boxes = boxes.iter().map(|&edge| u64::try_from(edge).ok()).collect::<Option<Vec<u64>>>()?;
        if own.is_empty() || boxes.is_empty() || boxes.len() % (BOX * own.len()) > 0 {
            return None;
        }
        let ranks: Vec<_> = boxes.chunks(BOX * own.len()).map(|boxes| with_boxes(own, boxes)).collect();
        let fits = |share: &Share| {
            share.own.iter().zip(share.shape).all(|(range, n)| range.start <= range.end && range.end <= n)
        };
        let is_whole = |part: usize| {
            let found: u64 = ranks.iter().map(|shares: &Vec<Share>| volume(&shares[part].own)).sum();
            let times = if own[part].is_replicated { ranks.len() as u64 } else { 1 };
            found == times * own[part].shape.iter().product::<u64>()
        };
        (ranks.iter().flatten().all(fits) && (0..own.len()).all(is_whole)).then_some(RowLayout { ranks })
    }

    /// Numbers of a row: f32 and f64.
    pub fn len(&self) -> [u64; 2] {
        [false, true].map(|is_double| self.ranks.iter().map(|shares| len(shares, is_double)).sum())
    }

    /// Where a rank's numbers begin in a row.
    pub fn first(&self, rank: usize) -> [u64; 2] {
        [false, true].map(|is_double| self.ranks[..rank].iter().map(|shares| len(shares, is_double)).sum())
    }

    /// The shares of a rank.
    pub fn shares(&self, rank: usize) -> &[Share] {
        &self.ranks[rank]
    }

    /// The numbers of a share of part `part`, from those that ranks of this layout have written; `read` gives numbers of the row.
    pub fn gather<T: Copy + Default>(
        &self,
        part: usize,
        own: &Share,
        read: &mut dyn FnMut(Range<u64>) -> Result<Vec<T>, InferenceError>,
    ) -> Result<Vec<T>, InferenceError> {
        let mut found = host_memory::fill("a saved state", T::default(), own.len() as usize)?;
        let mut first = 0;
        for shares in &self.ranks {
            let theirs = &shares[part];
            let common =
                [0, 1, 2].map(|a| theirs.own[a].start.max(own.own[a].start)..theirs.own[a].end.min(own.own[a].end));
            if common.iter().all(|range| !range.is_empty()) && own.fields > 0 {
                let start = first + len(&shares[..part], own.is_double);
                let values = read(start..start + theirs.len())?;
                copy((&theirs.own, &values), (&own.own, &mut found), &common, own.fields);
                if own.is_replicated {
                    break;
                }
            }
            first += len(shares, own.is_double);
        }
        Ok(found)
    }
}

/// The same shares with other boxes.
fn with_boxes(shares: &[Share], boxes: &[u64]) -> Vec<Share> {
    let of = |edges: &[u64]| -> Box3 { [0, 1, 2].map(|a| edges[2 * a]..edges[2 * a + 1]) };
    shares.iter().zip(boxes.chunks(BOX)).map(|(share, edges)| Share { own: of(edges), ..share.clone() }).collect()
}

/// Copies the cells of `common` line by line, of each field.
fn copy<T: Copy>((from, values): (&Box3, &[T]), (to, found): (&Box3, &mut [T]), common: &Box3, fields: u64) {
    let at = |cells: &Box3, field: u64, i: u64, j: u64| {
        let [e0, e1, e2] = extent(cells);
        let [i, j, k] = [i - cells[0].start, j - cells[1].start, common[2].start - cells[2].start];
        ((((field * e0 + i) * e1) + j) * e2 + k) as usize
    };
    let count = (common[2].end - common[2].start) as usize;
    for field in 0..fields {
        for i in common[0].clone() {
            for j in common[1].clone() {
                let line = &values[at(from, field, i, j)..][..count];
                found[at(to, field, i, j)..][..count].copy_from_slice(line);
            }
        }
    }
}
