//! The order in which samples are added: a tree over their numbers, whichever group has them.
//!
//! ```text
//! level 2          0 1 2 3 4              nodes over five items: a node is the sum of its two halves, or, where
//! level 1     0 1     2 3     4           there is no second half, the first one
//! level 0    0   1   2   3   4
//! ```

use std::ops::Range;

/// A node over the items from `first` on, `2^level` of them or as many as there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub level: u32,
    pub first: usize,
}

impl Node {
    /// The node over all of `count` items.
    pub fn root(count: usize) -> Self {
        Node { level: count.next_power_of_two().ilog2(), first: 0 }
    }

    /// Its items, of `count`.
    fn items(self, count: usize) -> Range<usize> {
        self.first..(self.first + (1 << self.level)).min(count)
    }

    /// Its halves, the second only if there are items for it.
    fn halves(self, count: usize) -> (Node, Option<Node>) {
        let level = self.level - 1;
        let second = Node { level, first: self.first + (1 << level) };
        (Node { level, first: self.first }, (second.first < count).then_some(second))
    }

    /// The greatest nodes below this one that have items of `block` only, in order.
    pub fn cover(self, block: &Range<usize>, count: usize) -> Vec<Node> {
        let items = self.items(count);
        if items.is_empty() || items.end <= block.start || block.end <= items.start {
            return Vec::new();
        }
        if block.start <= items.start && items.end <= block.end {
            return vec![self];
        }
        let (first, second) = self.halves(count);
        let mut nodes = first.cover(block, count);
        nodes.extend(second.map(|second| second.cover(block, count)).unwrap_or_default());
        nodes
    }

    /// The sum over the node, of `count` items: `known` gives what is known of a node (of one item at least), `add` adds the second to the first.
    pub fn sum<C, T, E>(
        self,
        count: usize,
        context: &mut C,
        known: &mut dyn FnMut(&mut C, Node) -> Result<Option<T>, E>,
        add: &mut dyn FnMut(&mut C, &mut T, T) -> Result<(), E>,
    ) -> Result<Option<T>, E> {
        if let Some(value) = known(context, self)? {
            return Ok(Some(value));
        }
        if self.level == 0 {
            return Ok(None);
        }
        let (first, second) = self.halves(count);
        let mut sum = first.sum(count, context, known, add)?;
        if let Some(second) = second
            && let Some(value) = second.sum(count, context, known, add)?
        {
            match &mut sum {
                Some(sum) => add(context, sum, value)?,
                None => sum = Some(value),
            }
        }
        Ok(sum)
    }
}

/// The sum of numbers in the order of the tree.
pub(super) fn tree_sum(values: &[f64]) -> f64 {
    let mut known = |(): &mut (), node: Node| Ok::<_, ()>((node.level == 0).then(|| values[node.first]));
    let mut add = |(): &mut (), sum: &mut f64, value| {
        *sum += value;
        Ok(())
    };
    if values.is_empty() {
        return 0.0;
    }
    Node::root(values.len()).sum(values.len(), &mut (), &mut known, &mut add).ok().flatten().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum as text, by which its order can be seen.
    fn text(count: usize, blocks: &[Range<usize>]) -> String {
        let nodes: Vec<Node> = blocks.iter().flat_map(|block| Node::root(count).cover(block, count)).collect();
        let mut leaf = |(): &mut (), node: Node| Ok::<_, ()>((node.level == 0).then(|| node.first.to_string()));
        let mut add = |(): &mut (), sum: &mut String, value: String| {
            *sum = format!("({sum}+{value})");
            Ok(())
        };
        let values: Vec<String> =
            nodes.iter().map(|node| node.sum(count, &mut (), &mut leaf, &mut add).unwrap().unwrap()).collect();
        let mut known =
            |(): &mut (), node: Node| Ok(nodes.iter().position(|other| *other == node).map(|at| values[at].clone()));
        Node::root(count).sum(count, &mut (), &mut known, &mut add).unwrap().unwrap()
    }

    #[test]
    fn the_order_does_not_depend_on_blocks() {
        assert_eq!(text(5, std::slice::from_ref(&(0..5))), "(((0+1)+(2+3))+4)");
        for count in 1..=17 {
            let whole = text(count, std::slice::from_ref(&(0..count)));
            for one in 0..=count {
                for two in one..=count {
                    assert_eq!(text(count, &[0..one, one..two, two..count]), whole, "{count}: {one}, {two}");
                }
            }
        }
    }

    #[test]
    fn few_nodes_cover_a_block() {
        for count in 1..=40_usize {
            for first in 0..count {
                for end in first..=count {
                    let nodes = Node::root(count).cover(&(first..end), count);
                    let items: Vec<usize> = nodes.iter().flat_map(|node| node.items(count)).collect();
                    assert_eq!(items, (first..end).collect::<Vec<_>>());
                    assert!(nodes.len() <= 2 * count.next_power_of_two().ilog2() as usize + 1);
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
