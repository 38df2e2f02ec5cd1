//! From one distribution of a mesh to another: the plan of moving an array between arbitrary boxes.
//!
//! Every rank owns one box of the mesh before and one after; both sets of boxes tile it. The cells
//! that go from one rank to another are the intersection of two boxes, a [`Block`] of the array of
//! either rank. Cells that a rank keeps are copied from its one array to the other without a
//! message.

use super::{Block, Box3, LayoutError, Transfer, Transfers, extent, split, tiling, volume};
use crate::hash::{START, fnv1a};

/// Returns the boxes of a process grid that cuts all three axes, in the order of ranks: rank `r`
/// has the position `[r / (p1 p2), r / p2 % p1, r % p2]`.
///
/// Slabs and pencils along any axes are bricks whose other axes have one part.
///
/// ```
/// use meshloom::grid::bricks;
/// let boxes = bricks([4, 5, 6], [2, 1, 3]);
/// assert_eq!(boxes.len(), 6);
/// assert_eq!(boxes[4], [2..4, 0..5, 2..4]);
/// ```
#[must_use]
pub fn bricks(shape: [u64; 3], parts: [usize; 3]) -> Vec<Box3> {
    let [p0, p1, p2] = parts;
    (0..p0 * p1 * p2)
        .map(|r| {
            let at = [r / (p1 * p2), r / p2 % p1, r % p2];
            [0, 1, 2].map(|a| split(shape[a], parts[a] as u64, at[a] as u64))
        })
        .collect()
}

/// The copy between a block of a rank's array and the packed array of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxCopy {
    /// The rank at the other end.
    pub peer: usize,
    /// The block in this rank's array.
    pub block: Block,
    /// The first element in the packed array, where the block is contiguous in C order.
    pub start: u64,
}

/// The cells that a rank has before and after, as a block of either array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// In the array before.
    pub from: Block,
    /// In the array after.
    pub to: Block,
}

/// Plan of the redistribution from one box per rank to another.
///
/// - Every rank owns one box before and one after, possibly empty; its arrays hold them in C order.
/// - Over all ranks it is a permutation of the mesh's cells. So its reverse,
///   [`Redistribution::reversed`], is its inverse and adjoint.
///
/// ```
/// use meshloom::grid::{Redistribution, bricks};
/// let shape = [4, 4, 4];
/// let (slabs, columns) = (bricks(shape, [2, 1, 1]), bricks(shape, [1, 2, 1]));
/// let there = Redistribution::new(shape, &slabs, &columns, 0)?;
/// assert_eq!((there.pack.len(), there.unpack.len()), (1, 1)); // sends a quarter of the mesh and receives a quarter
/// assert_eq!(there.transfers(1).send[0].len, 16);
/// assert_eq!(there.reversed(), Redistribution::new(shape, &columns, &slabs, 0)?);
/// # Ok::<(), meshloom::grid::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redistribution {
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// This rank's box before.
    pub from: Box3,
    /// This rank's box after.
    pub to: Box3,
    /// Whether *every* rank keeps its box: no messages, and the arrays before and after are the
    /// same.
    pub is_identity: bool,
    /// Alike on all ranks: numbers of their boxes before and after.
    pub(crate) alike: [u64; 2],
    /// The cells that this rank keeps, if there are any.
    pub kept: Option<Kept>,
    /// The cells that it sends, by peer: blocks of the array before, and their place in the
    /// outgoing array.
    pub pack: Vec<BoxCopy>,
    /// The cells that it receives, by peer: blocks of the array after, and their place in the
    /// incoming array.
    pub unpack: Vec<BoxCopy>,
}

impl Redistribution {
    /// Creates the plan of `rank`, from its box in `from` to its box in `to`: boxes of a mesh of
    /// `shape` in rank order. All ranks pass the same lists.
    ///
    /// # Errors
    /// [`LayoutError::Ranks`] when the lists differ in length or have no entry for `rank`;
    /// [`LayoutError::Outside`], [`LayoutError::Overlap`] or [`LayoutError::Uncovered`] when one
    /// does not tile the mesh.
    pub fn new(shape: [u64; 3], from: &[Box3], to: &[Box3], rank: usize) -> Result<Self, LayoutError> {
        let lengths = LayoutError::Ranks { from: from.len(), to: to.len(), rank };
        let (true, Some(mine), Some(target)) = (from.len() == to.len(), from.get(rank), to.get(rank)) else {
            return Err(lengths);
        };
        tiling::check(shape, from, "before")?;
        tiling::check(shape, to, "after")?;
        let copies = |own: &Box3, others: &[Box3]| {
            let mut start = 0;
            let blocks = others.iter().enumerate().filter(|(peer, _)| *peer != rank);
            let blocks = blocks.filter_map(|(peer, other)| Some((peer, block(own, &intersection(own, other)?))));
            let copies = blocks.map(|(peer, block)| {
                start += block.len();
                BoxCopy { peer, block, start: start - block.len() }
            });
            copies.collect::<Vec<_>>()
        };
        let kept = intersection(mine, target).map(|b| Kept { from: block(mine, &b), to: block(target, &b) });
        let same = |(a, b): (&Box3, &Box3)| a == b || (volume(a) == 0 && volume(b) == 0);
        Ok(Redistribution {
            rank,
            ranks: from.len(),
            from: mine.clone(),
            to: target.clone(),
            is_identity: from.iter().zip(to).all(same),
            alike: [number_of(from), number_of(to)],
            kept,
            pack: copies(mine, to),
            unpack: copies(target, from),
        })
    }

    /// Returns the plan from the boxes after to those before: the inverse and adjoint.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let kept = self.kept.map(|Kept { from, to }| Kept { from: to, to: from });
        let ((from, to), [before, after]) = ((self.to.clone(), self.from.clone()), self.alike);
        let (pack, unpack) = (self.unpack.clone(), self.pack.clone());
        Redistribution { from, to, kept, pack, unpack, alike: [after, before], ..*self }
    }

    /// Returns the messages between the packed arrays, each with its block of `fields` meshes, one
    /// after the other.
    #[must_use]
    pub fn transfers(&self, fields: u64) -> Transfers {
        let part =
            |copy: &BoxCopy| Transfer { peer: copy.peer, start: copy.start * fields, len: copy.block.len() * fields };
        Transfers { send: self.pack.iter().map(part).collect(), receive: self.unpack.iter().map(part).collect() }
    }
}

/// Returns a number of the boxes of all ranks.
fn number_of(boxes: &[Box3]) -> u64 {
    boxes.iter().flatten().fold(START, |hash, range| fnv1a(hash, bytemuck::cast_slice(&[range.start, range.end])))
}

/// Returns the cells that two boxes share, if there are any.
fn intersection(a: &Box3, b: &Box3) -> Option<Box3> {
    let shared = [0, 1, 2].map(|axis| a[axis].start.max(b[axis].start)..a[axis].end.min(b[axis].end));
    shared.iter().all(|range| !range.is_empty()).then_some(shared)
}

/// `part` as a block of the array that holds `own`.
fn block(own: &Box3, part: &Box3) -> Block {
    let [_, j, k] = extent(own);
    let strides = [j * k, k, 1];
    let offset = (0..3).map(|a| (part[a].start - own[a].start) * strides[a]).sum();
    Block { offset, extent: extent(part), strides }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(block: &Block) -> Vec<usize> {
        let ([n0, n1, n2], [s0, s1, s2]) = (block.extent, block.strides);
        let at = |i: u64, j: u64, k: u64| (block.offset + i * s0 + j * s1 + k * s2) as usize;
        (0..n0).flat_map(|i| (0..n1).flat_map(move |j| (0..n2).map(move |k| at(i, j, k)))).collect()
    }

    fn cells(shape: [u64; 3], part: &Box3) -> Vec<u64> {
        let [a, b, c] = part.clone();
        let row = move |i: u64, j: u64| c.clone().map(move |k| (i * shape[1] + j) * shape[2] + k);
        a.flat_map(|i| b.clone().flat_map(|j| row(i, j)).collect::<Vec<_>>()).collect()
    }

    /// Moves arrays of cell numbers between all ranks on the host.
    fn redistribute(shape: [u64; 3], from: &[Box3], to: &[Box3]) {
        let plans: Vec<_> = (0..from.len()).map(|r| Redistribution::new(shape, from, to, r).unwrap()).collect();
        let outgoing: Vec<Vec<u64>> = plans
            .iter()
            .map(|plan| {
                let array = cells(shape, &plan.from);
                plan.pack.iter().flat_map(|copy| elements(&copy.block)).map(|at| array[at]).collect()
            })
            .collect();
        for (me, plan) in plans.iter().enumerate() {
            let (before, mut after) = (cells(shape, &plan.from), vec![u64::MAX; volume(&plan.to) as usize]);
            let mut put = |at: usize, cell: u64| {
                assert_eq!(after[at], u64::MAX, "element {at} of rank {me} comes twice");
                after[at] = cell;
            };
            if let Some(Kept { from, to }) = plan.kept {
                elements(&to).into_iter().zip(elements(&from)).for_each(|(to, from)| put(to, before[from]));
            }
            let transfers = plan.transfers(1);
            for (copy, part) in plan.unpack.iter().zip(&transfers.receive) {
                let sent = plans[part.peer].transfers(1).send.into_iter().find(|sent| sent.peer == me).unwrap();
                assert_eq!((copy.peer, copy.start, sent.len), (part.peer, part.start, part.len));
                let message = &outgoing[part.peer][sent.start as usize..][..sent.len as usize];
                elements(&copy.block).into_iter().zip(message).for_each(|(at, &cell)| put(at, cell));
            }
            assert_eq!(after, cells(shape, &plan.to), "rank {me}");
            assert!(transfers.send.iter().chain(&transfers.receive).all(|part| part.len > 0 && part.peer != me));
            assert_eq!(plan.reversed(), Redistribution::new(shape, to, from, me).unwrap());
            let moves = |(a, b): (&Box3, &Box3)| volume(a).max(volume(b)) > 0 && a != b;
            assert_eq!(plan.is_identity, !from.iter().zip(to).any(moves));
        }
    }

    #[test]
    fn every_cell_arrives_where_it_belongs() {
        for shape in [[11, 11, 22], [9, 10, 11], [3, 5, 7], [1, 1, 1]] {
            for grids in
                [[[6, 1, 1], [1, 6, 1]], [[1, 2, 3], [3, 1, 2]], [[2, 3, 1], [2, 3, 1]], [[12, 1, 1], [2, 3, 2]]]
            {
                let [from, to] = grids.map(|parts| bricks(shape, parts));
                redistribute(shape, &from, &to);
                redistribute(shape, &to, &from);
                let mut turned = to.clone();
                turned.rotate_left(5);
                redistribute(shape, &from, &turned);
            }
        }
    }

    #[test]
    fn boxes_need_not_form_a_grid() {
        let shape = [4, 4, 4];
        let from = [[0..4, 0..4, 0..1], [0..1, 0..4, 1..4], [1..4, 0..2, 1..4], [1..4, 2..4, 1..4], [7..7, 0..4, 0..4]];
        let all = [[0..0, 0..0, 0..0], [0..4, 0..4, 0..4], [4..4, 0..4, 0..4], [0..4, 2..2, 0..4], [0..0, 0..0, 0..0]];
        redistribute(shape, &from, &all);
        redistribute(shape, &all, &from);
    }

    #[test]
    fn ranks_that_keep_nothing_but_emptiness_make_an_identity() {
        let (from, to) = ([[0..2, 0..2, 0..2], [2..2, 0..2, 0..2]], [[0..2, 0..2, 0..2], [0..0, 0..0, 0..0]]);
        assert!(Redistribution::new([2; 3], &from, &to, 1).unwrap().is_identity);
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        let boxes = bricks([4; 3], [2, 1, 1]);
        for (from, to, rank) in [(&boxes[..], &boxes[..1], 0), (&boxes[..], &boxes[..], 2), (&[], &[], 0)] {
            let error = Redistribution::new([4; 3], from, to, rank).unwrap_err();
            assert_eq!(error, LayoutError::Ranks { from: from.len(), to: to.len(), rank });
        }
        let error = Redistribution::new([4, 4, 5], &bricks([4, 4, 5], [1, 2, 1]), &boxes, 0).unwrap_err();
        assert_eq!(error, LayoutError::Uncovered { list: "after", cells: 16, first: [0, 0, 4] });
    }
}
