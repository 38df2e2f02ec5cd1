//! The binary tree over the numbers of items along which they are reduced; pure data.
//!
//! Node `k` of level `l` stands for the items `k 2^l .. (k + 1) 2^l`; it is its two halves combined. A range of items is a few whole nodes, next to
//! each other: where ranges meet, halves do. What is left at the end of all items is combined from the right, which makes the tree of
//! [`Communicator::all_reduce`](crate::comm::Communicator::all_reduce).

use std::ops::Range;

use crate::exchange::collectives::Pairs;

/// A whole node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub level: u32,
    pub index: u64,
}

impl Node {
    /// Its first item.
    pub fn first(self) -> u64 {
        self.index << self.level
    }

    /// Whether it is the second half of the node above, whose first half is `other`.
    fn follows(self, other: Node) -> bool {
        self.level == other.level && self.index == other.index + 1 && other.index.is_multiple_of(2)
    }
}

/// The fewest whole nodes that a range of items is, from left to right: at most two of each level.
pub(super) fn nodes(items: Range<u64>) -> Vec<Node> {
    let (mut at, mut found) = (items.start, Vec::new());
    while at < items.end {
        let fits = (items.end - at).ilog2();
        let level = if at == 0 { fits } else { at.trailing_zeros().min(fits) };
        found.push(Node { level, index: at >> level });
        at += 1 << level;
    }
    found
}

/// The pairs of rows to combine, level by level, so that of rows of a range of items the first row of each of its [`nodes`] holds that node.
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
    /// Takes the next node; returns its place, and how often the last two places are to be combined to one then.
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

    /// Places that are in use at most while so many items are pushed.
    pub fn places(items: u64) -> u64 {
        2 * u64::from(64 - items.leading_zeros()) + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree as a recursion, which writes down what it combines.
    fn tree(items: Range<u64>) -> String {
        match items.end - items.start {
            1 => items.start.to_string(),
            n => {
                let half = items.start + n.next_power_of_two() / 2;
                format!("({} {})", tree(items.start..half), tree(half..items.end))
            }
        }
    }

    /// The same by rows in chunks of ranks, whose nodes meet.
    fn in_chunks(items: u64, ranks: u64, chunk: u64) -> String {
        let (mut all, mut values): (Stack, Vec<String>) = (Stack::default(), Vec::new());
        let join = |values: &mut Vec<String>| {
            let right = values.pop().unwrap();
            let left = values.pop().unwrap();
            values.push(format!("({left} {right})"));
        };
        for rank in 0..ranks {
            let (mut own, mut held): (Stack, Vec<String>) = (Stack::default(), Vec::new());
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
                    held.push(rows[(node.first() - start) as usize].clone());
                    (0..own.push(node).1).for_each(|_| join(&mut held));
                    assert!(held.len() as u64 == own.len() && own.len() < Stack::places(items));
                }
            }
            assert_eq!(own.0, nodes(begin..end));
            for (node, value) in own.0.iter().zip(held) {
                values.push(value);
                (0..all.push(*node).1).for_each(|_| join(&mut values));
            }
        }
        while values.len() > 1 {
            join(&mut values);
        }
        values.pop().unwrap()
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
}
