//! A picture: data, mean and relative uncertainty side by side.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::host_memory;
use meshloom::io::{IoError, NpyFile, RgbImage, density_image};

use super::problem::Grids;

/// Pixels of a panel's longer side at least, and between panels.
const PANEL: usize = 384;
const GAP: u32 = 12;

/// Rows and columns of a panel at most.
const MOST: u64 = 4096;

/// The cells of the middle slice of the data's grid that are drawn: all, or every so manieth where
/// they are more than pixels.
struct Raster {
    /// Rows and columns of cells.
    cells: [u64; 2],
    /// From one row or column that is drawn to the next.
    steps: [u64; 2],
    /// Index of the slice's first cell.
    start: u64,
}

impl Raster {
    fn new([first, rows, columns]: [u64; 3]) -> Self {
        let cells = [rows, columns];
        Raster { cells, steps: cells.map(|n| n.div_ceil(MOST)), start: first / 2 * rows * columns }
    }

    /// Rows and columns that are drawn.
    fn size(&self) -> [usize; 2] {
        [0, 1].map(|a| self.cells[a].div_ceil(self.steps[a]) as usize)
    }

    /// Puts what is drawn of a part of a row, which begins at cell `at` of the data, into a map.
    fn put<T: Copy>(&self, map: &mut [T], at: u64, values: &[T]) {
        let [rows, columns] = self.cells;
        let Some(at) = at.checked_sub(self.start).filter(|at| *at < rows * columns) else { return };
        let (row, column) = (at / columns, at % columns);
        if !row.is_multiple_of(self.steps[0]) {
            return;
        }
        let line = (row / self.steps[0]) as usize * self.size()[1];
        let first = column.next_multiple_of(self.steps[1]);
        let drawn = values.iter().skip((first - column) as usize).step_by(self.steps[1] as usize);
        map[line + (first / self.steps[1]) as usize..].iter_mut().zip(drawn).for_each(|(map, value)| *map = *value);
    }

    /// First cells of the rows that are drawn.
    fn rows(&self) -> impl Iterator<Item = u64> + use<> {
        let (start, [rows, columns]) = (self.start, self.cells);
        (0..rows).step_by(self.steps[0] as usize).map(move |row| start + row * columns)
    }
}

/// The middle slice of the data's grid as maps.
pub struct Maps<'a> {
    pub grids: &'a Grids,
    /// Files of the data, and of which of them count.
    pub data: &'a Path,
    pub mask: Option<&'a Path>,
    /// Whether values are positive and shown by their logarithms.
    pub lognormal: bool,
}

impl Maps<'_> {
    fn raster(&self) -> Raster {
        Raster::new(self.grids.cells)
    }

    /// Returns the slice of a field of which ranks have lines: each cell of one of them, so that
    /// sums are exact.
    fn slice(&self, comm: &Communicator, lines: &[(u64, Vec<f32>)]) -> Result<Vec<f32>, Error> {
        let raster = self.raster();
        let mut map: Vec<f64> = host_memory::zeros("a picture", raster.size().iter().product())?;
        for (at, line) in lines {
            let line: Vec<f64> = line.iter().map(|value| f64::from(*value)).collect();
            raster.put(&mut map, *at, &line);
        }
        comm.all_reduce(&mut map, Op::Sum)?;
        Ok(map.into_iter().map(|value| value as f32).collect())
    }

    /// Returns the slice of a file of the shape of the data. Numbers beyond f32 are infinite.
    fn read(&self, path: &Path) -> Result<Vec<f32>, IoError> {
        let (raster, file) = (self.raster(), NpyFile::open(path)?.accept_integers());
        let mut map = host_memory::zeros("a picture", raster.size().iter().product())?;
        for row in raster.rows() {
            raster.put(&mut map, row, &file.read_f64(row..row + raster.cells[1])?);
        }
        Ok(map.into_iter().map(|value| value as f32).collect())
    }

    /// Returns the slice of the data. What is masked is NaN: it may be any number, and has no part
    /// in the scale of colors.
    fn data(&self) -> Result<Vec<f32>, IoError> {
        let mut data = self.read(self.data)?;
        if let Some(mask) = self.mask {
            let counts = self.read(mask)?;
            data.iter_mut().zip(counts).filter(|(_, counts)| *counts != 1.0).for_each(|(value, _)| *value = f32::NAN);
        }
        Ok(data)
    }

    /// A panel; `positive` values are shown by their logarithms, others as they are.
    fn panel(&self, map: &[f32], positive: bool) -> Result<RgbImage, IoError> {
        let [rows, width] = self.raster().size();
        // A line is drawn as rows that are alike.
        let height = if rows == 1 { width.div_ceil(8) } else { rows };
        let finite = map.iter().copied().filter(|value| value.is_finite());
        let (low, high) = finite.fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let linear = |value: f32| 10f32.powf(3.0 * (value - low) / (high - low).max(f32::MIN_POSITIVE));
        let shown: Vec<f32> = if positive { map.to_vec() } else { map.iter().map(|&value| linear(value)).collect() };
        let whole: Vec<f32> =
            (0..height).flat_map(|row| &shown[row.min(rows - 1) * width..][..width]).copied().collect();
        density_image(&whole, width, height, PANEL.div_ceil(width.max(height)))
    }

    /// Returns the picture as a file's bytes, on the first rank of each group. Collective over a
    /// group.
    ///
    /// # Errors
    /// Errors of the data's files, and of pictures that are too large.
    pub fn draw(
        &self,
        comm: &Communicator,
        mean: &[(u64, Vec<f32>)],
        std: Option<&Vec<(u64, Vec<f32>)>>,
        path: &Path,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mean = self.slice(comm, mean)?;
        let std = std.map(|std| self.slice(comm, std)).transpose()?;
        if comm.rank() != 0 {
            return Ok(None);
        }
        let data = self.data()?;
        let mut panels = vec![self.panel(&data, self.lognormal)?, self.panel(&mean, self.lognormal)?];
        if let Some(std) = std {
            let relative: Vec<f32> =
                std.iter().zip(&mean).map(|(std, mean)| if self.lognormal { std / mean } else { *std }).collect();
            panels.push(self.panel(&relative, false)?);
        }
        let width = panels.iter().map(RgbImage::width).sum::<u32>() + GAP * (panels.len() as u32 - 1);
        let height = panels[0].height();
        let mut whole = RgbImage::new(width, height, [255; 3])?;
        for y in 0..height {
            let mut left = 0;
            for panel in &panels {
                whole.row_mut(y)[left..][..panel.width() as usize].copy_from_slice(panel.row(y));
                left += (panel.width() + GAP) as usize;
            }
        }
        Ok(Some(whole.png_bytes(path)?))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use meshloom::io::{NpyElement, NpyWriter, token};

    use super::*;

    fn file<T: NpyElement>(what: &str, values: &[T]) -> PathBuf {
        let token = token();
        let path = std::env::temp_dir().join(format!("meshloom-picture-{what}-{token}.npy"));
        let file = NpyWriter::create(&path, &[values.len() as u64], &token).unwrap();
        file.write(0, values).unwrap();
        file.finish().unwrap();
        path
    }

    #[test]
    fn masked_numbers_may_be_beyond_f32_and_a_line_may_be_long() {
        let cells = 100_000;
        let mut values: Vec<f64> = (0..cells).map(f64::from).collect();
        values[50] = 1e300;
        let mut counts = vec![1i64; cells as usize];
        counts[50] = 0;
        let (data, mask) = (file("data", &values), file("mask", &counts));
        let shape = [1, 1, cells as u64];
        let grids = Grids { shape: vec![cells as u64], cells: shape, padded: shape, distances: [1.0; 3] };
        let maps = Maps { grids: &grids, data: &data, mask: Some(&mask), lognormal: false };
        let drawn = maps.data();
        let mean = vec![(0, vec![1.0f32; cells as usize])];
        let bytes = maps.draw(&Communicator::solo(), &mean, None, Path::new("picture.png"));
        [data, mask].iter().for_each(|path| std::fs::remove_file(path).unwrap());
        let drawn = drawn.unwrap();
        assert!(drawn.len() == 4000 && drawn[2].is_nan() && drawn[1] == 25.0 && drawn[3999] == 99_975.0);
        // Width and height are in the file's head.
        let bytes = bytes.unwrap().unwrap();
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([number(16), number(20)], [2 * 4000 + GAP, 500]);
    }

    #[test]
    fn a_long_line_is_drawn_with_as_many_columns_as_a_picture_has() {
        let raster = Raster::new([1, 1, 100_000]);
        assert_eq!((raster.size(), raster.steps), ([1, 4000], [1, 25]));
        let values: Vec<f64> = (0..100_000).map(f64::from).collect();
        let mut map = vec![0.0; 4000];
        // In parts that begin anywhere, as ranks have them.
        for part in [0..33_333, 33_333..33_340, 33_340..100_000] {
            raster.put(&mut map, part.start as u64, &values[part]);
        }
        assert!(map.iter().enumerate().all(|(column, value)| *value == 25.0 * column as f64));
    }

    #[test]
    fn the_middle_slice_is_drawn_and_all_of_it_where_that_fits() {
        let raster = Raster::new([3, 2, 4]);
        assert_eq!((raster.size(), raster.rows().collect::<Vec<_>>()), ([2, 4], vec![8, 12]));
        let mut map = [0; 8];
        for row in 0..6u64 {
            raster.put(&mut map, 4 * row, &[0, 1, 2, 3].map(|column| 10 * row + column));
        }
        assert_eq!(map, [20, 21, 22, 23, 30, 31, 32, 33]);
        let tall = Raster::new([1, 10_000, 2]);
        assert_eq!((tall.size(), tall.rows().nth(1)), ([3334, 2], Some(6)));
    }
}
