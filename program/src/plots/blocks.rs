//! Means over blocks of cells, so that a map of any size becomes a picture of a screen's size.

use meshloom::host_memory::{self, HostMemoryError};

/// The blocks of a grid of cells: as many as there are cells, or at most a number along each axis.
/// Blocks of an axis differ by one cell at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Rows and columns of cells.
    cells: [u64; 2],
    /// Rows and columns of blocks.
    blocks: [u64; 2],
}

impl Blocks {
    /// Creates the blocks of rows and columns of `cells`, at most `most` of them along an axis.
    #[must_use]
    pub fn new(cells: [u64; 2], most: u64) -> Self {
        let width = cells[0].max(cells[1]).div_ceil(most.max(1)).max(1);
        Self { cells, blocks: cells.map(|n| n.div_ceil(width)) }
    }

    /// Returns the number of rows and columns of blocks.
    #[must_use]
    pub fn size(&self) -> [usize; 2] {
        self.blocks.map(|n| n as usize)
    }

    /// Returns the largest number of cells of a block.
    #[must_use]
    pub fn largest(&self) -> u64 {
        (0..2).map(|a| self.cells[a].div_ceil(self.blocks[a].max(1))).product()
    }

    /// Returns the place of the block of a cell among all blocks, row by row.
    ///
    /// # Panics
    /// If the grid is empty.
    #[must_use]
    pub fn block_of(&self, row: u64, column: u64) -> usize {
        let at = |a: usize, cell: u64| ((cell + 1) * self.blocks[a] - 1) / self.cells[a];
        (at(0, row) * self.blocks[1] + at(1, column)) as usize
    }

    /// Returns the mean of the finite `values` of each block; NaN for a block without any.
    ///
    /// # Errors
    /// [`HostMemoryError`] if host memory is short.
    pub fn means(&self, values: &[f32]) -> Result<Vec<f32>, HostMemoryError> {
        if self.cells == self.blocks {
            return host_memory::collect("a picture", values.iter().copied());
        }
        let mut means = Means::new(*self)?;
        for (row, line) in (0..).zip(values.chunks(self.cells[1].max(1) as usize)) {
            means.add(row, 0, line.iter().map(|&value| f64::from(value)));
        }
        means.finish()
    }
}

/// Sums of finite values by blocks.
#[derive(Debug)]
pub struct Means {
    blocks: Blocks,
    sums: Vec<f64>,
    counts: Vec<f64>,
}

impl Means {
    /// Creates sums of no values.
    ///
    /// # Errors
    /// [`HostMemoryError`] if host memory is short.
    pub fn new(blocks: Blocks) -> Result<Self, HostMemoryError> {
        let len = blocks.size().iter().product();
        Ok(Self { blocks, sums: host_memory::zeros("a picture", len)?, counts: host_memory::zeros("a picture", len)? })
    }

    /// Adds values of a row from a column on.
    pub fn add(&mut self, row: u64, column: u64, values: impl IntoIterator<Item = f64>) {
        for (column, value) in (column..).zip(values).filter(|(_, value)| value.is_finite()) {
            let block = self.blocks.block_of(row, column);
            self.sums[block] += value;
            self.counts[block] += 1.0;
        }
    }

    /// Replaces sums and counts by what `exchange` makes of them: those of all ranks.
    ///
    /// # Errors
    /// Errors of `exchange`.
    pub fn exchange<E>(&mut self, mut exchange: impl FnMut(&mut [f64]) -> Result<(), E>) -> Result<(), E> {
        exchange(&mut self.sums)?;
        exchange(&mut self.counts)
    }

    /// Multiplies all values by a factor.
    pub fn scale(&mut self, factor: f64) {
        self.sums.iter_mut().for_each(|sum| *sum *= factor);
    }

    /// Returns the mean of each block; NaN for a block without values. Means beyond f32 are
    /// infinite.
    ///
    /// # Errors
    /// [`HostMemoryError`] if host memory is short.
    pub fn finish(self) -> Result<Vec<f32>, HostMemoryError> {
        let means = self.sums.iter().zip(&self.counts);
        let means = means.map(|(sum, count)| if *count > 0.0 { (sum / count) as f32 } else { f32::NAN });
        host_memory::collect("a picture", means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_cells_and_differ_by_one() {
        for (cells, most) in [([1, 1], 1), ([4096, 4096], 1000), ([3, 10_000], 500), ([7, 5], 3), ([1001, 1000], 1000)]
        {
            let blocks = Blocks::new(cells, most);
            let [rows, columns] = blocks.size();
            assert!(
                rows.max(columns) as u64 <= most && 2 * rows.max(columns) as u64 >= most.min(cells[0].max(cells[1]))
            );
            let mut counts = vec![0; columns];
            (0..cells[1]).for_each(|column| counts[blocks.block_of(0, column)] += 1);
            let (least, largest) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 0 && largest - least <= 1, "{counts:?}");
            assert_eq!(blocks.block_of(cells[0] - 1, cells[1] - 1), rows * columns - 1);
        }
    }

    #[test]
    fn means_are_of_finite_values() {
        let nan = f32::NAN;
        let values = [1.0, 2.0, 5.0, nan, 3.0, 6.0, nan, nan, 7.0, f32::INFINITY, 0.0, 4.0];
        assert_eq!(Blocks::new([3, 4], 2).means(&values).unwrap()[..2], [1.5, 5.0]);
        assert!(Blocks::new([1, 2], 1).means(&[nan, nan]).unwrap()[0].is_nan());
        let same = Blocks::new([3, 4], 4).means(&values).unwrap();
        assert!(same.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()));
        // Values whose sum is beyond f32.
        assert_eq!(Blocks::new([1, 2], 1).means(&[f32::MAX, f32::MAX]).unwrap(), [f32::MAX]);
    }
}
