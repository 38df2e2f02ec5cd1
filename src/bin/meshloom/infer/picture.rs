//! A picture: data, mean and relative uncertainty side by side.

use std::path::Path;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder, Rgb, RgbImage, imageops};
use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::io::{IoError, NpyFile, density_image};

use super::problem::Grids;

/// Pixels of a panel's longer side at least, and between panels.
const PANEL: usize = 384;
const GAP: u32 = 12;

/// The middle slice of the data's grid as maps.
pub struct Maps<'a> {
    pub grids: &'a Grids,
    /// Whether values are positive and shown by their logarithms.
    pub lognormal: bool,
}

impl Maps<'_> {
    /// Rows and columns. A line is drawn as rows that are alike.
    fn size(&self) -> [usize; 2] {
        let [_, rows, columns] = self.grids.cells.map(|n| n as usize);
        if rows == 1 { [columns.div_ceil(8), columns] } else { [rows, columns] }
    }

    /// The slice of a field of which ranks have lines: each cell of one of them, so that sums are exact.
    fn slice(&self, comm: &Communicator, lines: &[(u64, Vec<f32>)]) -> Result<Vec<f32>, Error> {
        let [first, rows, columns] = self.grids.cells;
        let start = first / 2 * rows * columns;
        let mut map = vec![0.0f64; (rows * columns) as usize];
        for (at, line) in lines.iter().filter(|(at, _)| (start..start + rows * columns).contains(at)) {
            let at = (at - start) as usize;
            map[at..at + line.len()].iter_mut().zip(line).for_each(|(map, value)| *map = f64::from(*value));
        }
        comm.all_reduce(&mut map, Op::Sum)?;
        Ok(map.into_iter().map(|value| value as f32).collect())
    }

    /// A panel; `positive` values are shown by their logarithms, others as they are.
    fn panel(&self, map: &[f32], positive: bool) -> Result<RgbImage, IoError> {
        let [height, width] = self.size();
        let finite = map.iter().copied().filter(|value| value.is_finite());
        let (low, high) = finite.fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let linear = |value: f32| 10f32.powf(3.0 * (value - low) / (high - low).max(f32::MIN_POSITIVE));
        let shown: Vec<f32> = if positive { map.to_vec() } else { map.iter().map(|&value| linear(value)).collect() };
        let whole: Vec<f32> = (0..height)
            .flat_map(|row| {
                let row = if self.grids.cells[1] == 1 { 0 } else { row };
                shown[row * width..][..width].to_vec()
            })
            .collect();
        density_image(&whole, width, height, PANEL.div_ceil(width.max(height)))
    }

    /// The picture as a file's bytes. All ranks of a group call it.
    ///
    /// # Errors
    /// Those of the data's file, and of pictures that are too large.
    pub fn draw(
        &self,
        comm: &Communicator,
        data: &Path,
        mean: &[(u64, Vec<f32>)],
        std: Option<&Vec<(u64, Vec<f32>)>>,
        path: &Path,
    ) -> Result<Vec<u8>, Error> {
        let mean = self.slice(comm, mean)?;
        let std = std.map(|std| self.slice(comm, std)).transpose()?;
        let [first, rows, columns] = self.grids.cells;
        let start = first / 2 * rows * columns;
        let data = NpyFile::open(data)?.accept_integers().read_f32(start..start + rows * columns)?;
        let mut panels = vec![self.panel(&data, self.lognormal)?, self.panel(&mean, self.lognormal)?];
        if let Some(std) = std {
            let relative: Vec<f32> =
                std.iter().zip(&mean).map(|(std, mean)| if self.lognormal { std / mean } else { *std }).collect();
            panels.push(self.panel(&relative, false)?);
        }
        let width = panels.iter().map(RgbImage::width).sum::<u32>() + GAP * (panels.len() as u32 - 1);
        let mut whole = RgbImage::from_pixel(width, panels[0].height(), Rgb([255; 3]));
        let mut left = 0;
        for panel in &panels {
            imageops::replace(&mut whole, panel, left, 0);
            left += i64::from(panel.width() + GAP);
        }
        let mut bytes = Vec::new();
        PngEncoder::new(&mut bytes)
            .write_image(whole.as_raw(), whole.width(), whole.height(), ExtendedColorType::Rgb8)
            .map_err(|error| IoError::Picture { path: path.to_path_buf(), reason: error.to_string() })?;
        Ok(bytes)
    }
}
