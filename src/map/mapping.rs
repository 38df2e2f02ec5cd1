//! Items, chunks and outputs of a map.

use super::chunk::ChunkSize;
use super::error::MapError;

/// Reduction of rows of numbers, one of each item, to one row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowReduction {
    /// Their sum; 0 of no items.
    Sum,
    /// The least of each number; infinity of no items. A NaN stays.
    Min,
    /// The greatest of each number; minus infinity of no items. A NaN stays.
    Max,
    /// A function of two numbers, of lower and of higher items, in WGSL.
    Custom {
        /// A text with `fn combine(a: f32, b: f32) -> f32`, which must be associative only if the
        /// result should not depend on the tree.
        function: String,
        /// Result without items.
        neutral: f32,
    },
}

impl RowReduction {
    /// Returns what comes of no items.
    #[must_use]
    pub fn neutral(&self) -> f32 {
        match self {
            RowReduction::Sum => 0.0,
            RowReduction::Min => f32::INFINITY,
            RowReduction::Max => f32::NEG_INFINITY,
            RowReduction::Custom { neutral, .. } => *neutral,
        }
    }
}

/// Use of the rows that a function writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// Each rank keeps those of its items, in their order.
    Sharded,
    /// Every rank gets those of all items, in their order.
    Gathered,
    /// Every rank gets one row.
    Reduced(RowReduction),
}

/// An output of the function: `width` values of `f32` for each item.
#[derive(Clone, Debug, PartialEq)]
pub struct MapOutput {
    /// Its name.
    pub name: String,
    /// Numbers of an item.
    pub width: u64,
    /// Use of the rows.
    pub placement: Placement,
}

/// Number of items, chunks and outputs of a map.
///
/// ```
/// use meshloom::map::{ChunkSize, Mapping, Placement, RowReduction};
/// let mapping = Mapping::new(1000)
///     .chunk(ChunkSize::Items(64))
///     .output("energy", 1, Placement::Gathered)
///     .output("histogram", 30, Placement::Reduced(RowReduction::Sum));
/// assert_eq!(mapping.outputs().len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    pub(super) items: u64,
    pub(super) chunk: ChunkSize,
    outputs: Vec<MapOutput>,
}

impl Mapping {
    /// Creates a map of `items` items, in chunks of 64, without outputs.
    #[must_use]
    pub fn new(items: u64) -> Self {
        Mapping { items, chunk: ChunkSize::Items(64), outputs: Vec::new() }
    }

    /// Sets the chunks.
    #[must_use]
    pub fn chunk(self, chunk: ChunkSize) -> Self {
        Mapping { chunk, ..self }
    }

    /// Adds an output of `width` numbers for each item.
    #[must_use]
    pub fn output(mut self, name: &str, width: u64, placement: Placement) -> Self {
        self.outputs.push(MapOutput { name: name.into(), width, placement });
        self
    }

    /// Returns the results, in the order in which they were named.
    #[must_use]
    pub fn outputs(&self) -> &[MapOutput] {
        &self.outputs
    }

    /// Checks the map.
    pub(super) fn check(&self) -> Result<(), MapError> {
        let wrong = |why: String| Err(MapError::Invalid(why));
        if self.chunk == ChunkSize::Items(0) {
            return wrong("chunks of 0 items; give at least one".into());
        }
        for (number, output) in self.outputs.iter().enumerate() {
            let MapOutput { name, width, .. } = output;
            if *width == 0 {
                return wrong(format!("the output `{name}` has no numbers; give it a width of one at least"));
            }
            if self.outputs[..number].iter().any(|other| other.name == *name) {
                return wrong(format!("two outputs are called `{name}`; give each its own name"));
            }
        }
        Ok(())
    }
}
