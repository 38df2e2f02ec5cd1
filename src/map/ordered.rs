//! Rows of items reduced on the device along the tree over their numbers.
//!
//! Cost on a GPU: of n rows of one number a chunk, n - 1 combinations in log2(n) / 11 dispatches
//! that read 4 bytes a number; then at most 2 log2(n) copies of rows and as many dispatches, one of
//! each where chunks begin and end at multiples of their size. Between ranks: at most 2 log2 rows
//! of a rank, each cut over all ranks.

use std::ops::Range;

use super::error::MapError;
use super::mapping::{Deal, RowReduction};
use super::tree::{Node, Stack, levels, nodes};
use crate::comm::Op;
use crate::exchange::collectives::{Collectives, PairCombiner, Pairs};
use crate::gpu::{Array, Gpu, KernelSource, Recorder};
use crate::grid::split;

/// Returns the kernels with a caller's function.
pub(super) fn samples() -> [KernelSource; 2] {
    PairCombiner::of_function("fn combine(a: f32, b: f32) -> f32 { return a * b; }").sources().map(Clone::clone)
}

/// Reduces rows of numbers.
pub(super) struct OrderedReduction {
    combiner: PairCombiner,
    neutral: f32,
    width: u64,
    /// A row for each node on the stack.
    rows: Array<f32>,
    stack: Stack,
}

impl OrderedReduction {
    /// Creates a reduction of rows of `width` numbers, for at most `items` items of this rank.
    pub fn new(gpu: &Gpu, reduction: &RowReduction, width: u64, items: u64) -> Result<Self, MapError> {
        let combiner = match reduction {
            RowReduction::Sum => PairCombiner::of_floats(Op::Sum),
            RowReduction::Min => PairCombiner::of_floats(Op::Min),
            RowReduction::Max => PairCombiner::of_floats(Op::Max),
            RowReduction::Custom { function, .. } => PairCombiner::of_function(function),
        };
        let rows = gpu.array("map::nodes", width * Stack::places(items))?;
        Ok(OrderedReduction { combiner, neutral: reduction.neutral(), width, rows, stack: Stack::default() })
    }

    /// Records the reduction of the rows of a chunk, which stand at the beginning of `rows` and are
    /// overwritten. Chunks come in order.
    pub fn take(&mut self, recorder: &mut Recorder, rows: &Array<f32>, items: Range<u64>) -> Result<(), MapError> {
        if !self.combiner.record_levels(recorder, rows, self.width, items.clone())? {
            for pairs in levels(items.clone()) {
                self.combiner.record(recorder, rows, self.width, pairs)?;
            }
        }
        nodes(items.clone())
            .into_iter()
            .try_for_each(|node| self.push(recorder, node, rows, node.first() - items.start))
    }

    /// Takes the next node, which is row `row` of `from`.
    fn push(&mut self, recorder: &mut Recorder, node: Node, from: &Array<f32>, row: u64) -> Result<(), MapError> {
        let (place, merges) = self.stack.push(node);
        recorder.copy(from, row * self.width, &self.rows, place * self.width, self.width)?;
        for merge in 0..merges {
            self.join(recorder, place - merge)?;
        }
        Ok(())
    }

    /// Combines the node at a place with the one before it, which takes the result.
    fn join(&self, recorder: &mut Recorder, place: u64) -> Result<(), MapError> {
        let pairs = Pairs { first: place - 1, distance: 1, count: 1 };
        Ok(self.combiner.record(recorder, &self.rows, self.width, pairs)?)
    }

    /// Returns the reduced row of all items of all ranks. Collective; waits for other ranks.
    pub fn finish(
        mut self,
        recorder: &mut Recorder,
        collectives: &mut Collectives,
        deal: Deal,
    ) -> Result<Array<f32>, MapError> {
        let (gpu, width, ranks) = (recorder.gpu().clone(), self.width, deal.shares.ranks());
        let row = gpu.array("map::row", width)?;
        if deal.items == 0 {
            recorder.upload(&row, 0, &vec![self.neutral; width as usize])?;
            return Ok(row);
        }
        if ranks == 1 {
            self.root(recorder, &row)?;
            return Ok(row);
        }
        // Each rank joins the nodes of all ranks, for its part of a row.
        let held: Vec<Vec<Node>> = (0..ranks).map(|rank| nodes(deal.block(rank))).collect();
        let most = held.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let counts: Vec<u64> = (0..ranks as u64)
            .map(|rank| {
                let part = split(width, ranks as u64, rank);
                part.end - part.start
            })
            .collect();
        let own = counts[collectives.comm().rank()];
        let given = gpu.array("map::given", most * width)?;
        recorder.copy(&self.rows, 0, &given, 0, most.min(self.stack.len()) * width)?;
        let parts = collectives.all_to_all_v(recorder, &given, &counts, most)?.finish(recorder)?;
        let reduced = gpu.array("map::part", own)?;
        if own > 0 {
            self.stack = Stack::default();
            self.width = own;
            self.rows = gpu.array("map::nodes", own * Stack::places(deal.items))?;
            for (rank, nodes) in held.iter().enumerate() {
                for (number, &node) in nodes.iter().enumerate() {
                    self.push(recorder, node, &parts.array, (number * ranks + rank) as u64)?;
                }
            }
            self.root(recorder, &reduced)?;
        }
        Ok(collectives.all_gather_v(recorder, &reduced, 1)?.finish(recorder)?.array)
    }

    /// Records the combination of what is left, from the right.
    fn root(&self, recorder: &mut Recorder, row: &Array<f32>) -> Result<(), MapError> {
        for place in (1..self.stack.len()).rev() {
            self.join(recorder, place)?;
        }
        Ok(recorder.copy(&self.rows, 0, row, 0, self.width)?)
    }
}
