//! The binary tree over the numbers of items along which they are reduced; pure data.
//!
//! Node `k` of level `l` stands for the items `k 2^l .. (k + 1) 2^l`; it is its two halves
//! combined. A range of items is a few whole nodes, next to each other: where ranges meet, halves
//! do. What is left at the end of all items is combined from the right, which makes the tree of
//! [`Communicator::all_reduce`](crate::comm::Communicator::all_reduce).

use std::ops::{AddAssign, Range};

use bytemuck::Pod;

use super::mapping::Deal;
use crate::comm::{CommError, Communicator};
use crate::exchange::collectives::Pairs;
use crate::grid::split;
use crate::host_memory;

/// A whole node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub level: u32,
    pub index: u64,
}

impl Node {
    /// Creates the node of one item.
    pub fn item(index: u64) -> Self {
        Node { level: 0, index }
    }

    /// Returns its first item.
    pub fn first(self) -> u64 {
        self.index << self.level
    }

    /// Returns `true` if it is the second half of the node above, whose first half is `other`.
    fn follows(self, other: Node) -> bool {
        self.level == other.level && self.index == other.index + 1 && other.index.is_multiple_of(2)
    }
}

/// Returns the fewest whole nodes that a range of items is, from left to right: at most two of each
/// level.
pub(crate) fn nodes(items: Range<u64>) -> Vec<Node> {
    let (mut at, mut found) = (items.start, Vec::new());
    while at < items.end {
        let fits = (items.end - at).ilog2();
        let level = if at == 0 { fits } else { at.trailing_zeros().min(fits) };
        found.push(Node { level, index: at >> level });
        at += 1 << level;
    }
    found
}

/// Returns the pairs of rows to combine, level by level, so that of rows of a range of items the
/// first row of each of its [`nodes`] holds that node.
pub(super) fn levels(items: Range<u64>) -> impl Iterator<Item = Pairs> {
    let most = if items.is_empty() { 0 } else { (items.end - items.start).ilog2() + 1 };
    (0..most).filter_map(move |level| {
        let above = 2u64 << level;
        let (first, end) = (items.start.div_ceil(above), items.end / above);
        (first < end).then(|| Pairs { first: first * above - items.start, distance: 1 << level, count: end - first })
    })
}

/// Nodes from left to right, of which two halves become one as soon as they meet.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack(Vec<Node>);

impl Stack {
    /// Takes the next node; returns its place, and how often the last two places are to be combined
    /// to one then.
    pub fn push(&mut self, node: Node) -> (u64, u64) {
        let place = self.0.len() as u64;
        self.0.push(node);
        let mut merges = 0;
        while let [.., left, right] = self.0[..]
            && right.follows(left)
        {
            self.0.truncate(self.0.len() - 2);
            self.0.push(Node { level: left.level + 1, index: left.index / 2 });
            merges += 1;
        }
        (place, merges)
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the maximum number of places in use while `items` items are pushed.
    pub fn places(items: u64) -> u64 {
        2 * u64::from(64 - items.leading_zeros()) + 2
    }
}

/// Values of nodes from left to right, of which two are combined as soon as halves meet, so that
/// their number is minimal at any time.
#[derive(Debug)]
pub(crate) struct Fold<T> {
    nodes: Stack,
    values: Vec<T>,
}

impl<T> Default for Fold<T> {
    fn default() -> Self {
        Fold { nodes: Stack::default(), values: Vec::new() }
    }
}

impl<T> Fold<T> {
    /// Takes the value of the next node; `join` combines the first of two values with the second.
    pub fn push<E>(&mut self, node: Node, value: T, mut join: impl FnMut(&mut T, T) -> Result<(), E>) -> Result<(), E> {
        let (_, merges) = self.nodes.push(node);
        self.values.push(value);
        (0..merges).try_for_each(|_| self.join(&mut join))
    }

    /// Combines the last two values.
    fn join<E>(&mut self, join: &mut impl FnMut(&mut T, T) -> Result<(), E>) -> Result<(), E> {
        match (self.values.pop(), self.values.last_mut()) {
            (Some(right), Some(left)) => join(left, right),
            _ => Ok(()),
        }
    }

    /// Returns the values, of the [`nodes`] of the items that were pushed.
    pub fn into_values(self) -> Vec<T> {
        self.values
    }

    /// Returns the value that all items are combined to; `None` without items.
    pub fn root<E>(mut self, mut join: impl FnMut(&mut T, T) -> Result<(), E>) -> Result<Option<T>, E> {
        while self.values.len() > 1 {
            self.join(&mut join)?;
        }
        Ok(self.values.pop())
    }
}

/// Returns the sum of numbers, one for each item, along the tree; 0 of none.
pub(crate) fn tree_sum(values: &[f64]) -> f64 {
    let add = |sum: &mut f64, value: f64| {
        *sum += value;
        Ok::<_, std::convert::Infallible>(())
    };
    let mut fold = Fold::default();
    let summed = (0..).zip(values).try_for_each(|(item, &value)| fold.push(Node::item(item), value, add));
    let Ok(sum) = summed.and_then(|()| fold.root(add));
    sum.unwrap_or(0.0)
}

/// Returns the sum of arrays of `len` numbers over the items of `deal`, from the sums `own` of the
/// [`nodes`] of this rank's block. Collective; the result is the same on all ranks.
///
/// Each of `p` ranks sends its sums in `p` parts, adds what it receives of its part, and sends that
/// to all.
pub(crate) fn sum_over_ranks<T: Pod + AddAssign>(
    comm: &Communicator,
    deal: Deal,
    len: usize,
    own: &[&[T]],
) -> Result<Vec<T>, CommError> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let ranks = comm.size();
    let part = |rank: usize| {
        let range = split(len as u64, ranks as u64, rank as u64);
        range.start as usize..range.end as usize
    };
    let counts: Vec<u64> = (0..ranks).map(|rank| (part(rank).len() * own.len()) as u64).collect();
    let mut parts = host_memory::reserve("sums of items", len * own.len())?;
    (0..ranks).for_each(|rank| own.iter().for_each(|own| parts.extend_from_slice(&own[part(rank)])));
    let (received, _) = comm.all_to_all_v(&parts, &counts)?.into_raw();
    let width = part(comm.rank()).len();
    let add = |sum: &mut Vec<T>, one: Vec<T>| {
        sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
        Ok::<_, CommError>(())
    };
    let mut sums = Fold::default();
    let all = (0..ranks).flat_map(|rank| nodes(deal.block(rank)));
    for (at, node) in all.enumerate() {
        sums.push(node, received[at * width..(at + 1) * width].to_vec(), add)?;
    }
    let sum = sums.root(add)?.unwrap_or_default();
    Ok(comm.all_gather_v(&sum)?.into_raw().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tree as a recursion, which writes down what it combines.
    fn tree(items: Range<u64>) -> String {
        match items.end - items.start {
            1 => items.start.to_string(),
            n => {
                let half = items.start + n.next_power_of_two() / 2;
                format!("({} {})", tree(items.start..half), tree(half..items.end))
            }
        }
    }

    /// Same by rows in chunks of ranks, whose nodes meet.
    fn in_chunks(items: u64, ranks: u64, chunk: u64) -> String {
        let join = |left: &mut String, right: String| {
            *left = format!("({left} {right})");
            Ok::<_, ()>(())
        };
        let mut all = Fold::default();
        for rank in 0..ranks {
            let mut own = Fold::default();
            let (begin, end) = (items * rank / ranks, items * (rank + 1) / ranks);
            for start in (begin..end).step_by(chunk as usize) {
                let range = start..end.min(start + chunk);
                let mut rows: Vec<String> = range.clone().map(|item| item.to_string()).collect();
                for Pairs { first, distance, count } in levels(range.clone()) {
                    for pair in 0..count {
                        let at = (first + 2 * pair * distance) as usize;
                        rows[at] = format!("({} {})", rows[at], rows[at + distance as usize]);
                    }
                }
                for node in nodes(range) {
                    own.push(node, rows[(node.first() - start) as usize].clone(), join).unwrap();
                    assert!(own.nodes.len() < Stack::places(items));
                }
            }
            assert_eq!(own.nodes.0, nodes(begin..end));
            nodes(begin..end)
                .into_iter()
                .zip(own.into_values())
                .for_each(|(node, value)| all.push(node, value, join).unwrap());
        }
        all.root(join).unwrap().unwrap()
    }

    #[test]
    fn rows_in_chunks_of_ranks_make_one_tree() {
        for items in [1, 2, 3, 7, 8, 13, 64, 100, 127] {
            let wanted = tree(0..items);
            for ranks in [1, 2, 3, 5, 8] {
                for chunk in [1, 2, 3, 7, 16, items, items + 1] {
                    assert_eq!(in_chunks(items, ranks, chunk), wanted, "{items} items, {ranks} ranks, {chunk}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_added_along_the_tree() {
        let values = [1e16, 1.0, -1e16, 1.0, 3.0];
        assert_eq!(tree_sum(&values), ((1e16 + 1.0) + (-1e16 + 1.0)) + 3.0);
        assert_eq!(tree_sum(&[]), 0.0);
    }
}
