//! Pictures of projected densities.

use std::path::Path;

use png::{BitDepth, ColorType, Compression, Encoder, Filter};

use super::{IoError, IoErrorKind, Result, write_whole};
use crate::host_memory::{self, HostMemoryError};
use crate::timeline;

/// Colors from the lowest to the highest density, evenly spaced. Lightness rises throughout, so
/// that the picture also reads in gray and for color-blind eyes: night blue, indigo, plum, brick,
/// amber, cream.
const COLORS: [[u8; 3]; 8] = [
    [3, 4, 18],
    [22, 18, 64],
    [62, 29, 102],
    [118, 42, 106],
    [180, 64, 84],
    [228, 110, 62],
    [248, 178, 92],
    [255, 246, 214],
];

/// Short sides below this many pixels are enlarged.
const SHORT_SIDE: usize = 512;

/// Widest range of densities shown: 10^-4 of the brightest and less has the darkest color.
const DECADES: f32 = 4.0;

/// Writes a PNG picture of a projected density, on a logarithmic scale. Called by one rank.
///
/// `map` holds rows of `width` values, in any unit; the first row is at the top. The color scale
/// spans from the 1st to the 99.8th percentile of the positive values (at most four decades);
/// zeros, negative values and NaN get the darkest color. The picture is enlarged by a whole factor
/// so that its short side has at least 512 pixels, with smooth transitions between the cells. The
/// same map gives the same file.
///
/// # Errors
/// `IoErrorKind::Shape` unless there are `width * height` values and at least one,
/// `IoErrorKind::Unsupported` if there are too many for a picture, and those of [`write_whole`].
pub fn density_png(map: &[f32], width: usize, height: usize, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let enlarge = SHORT_SIDE.div_ceil(width.min(height).max(1));
    let picture = density_image(map, width, height, enlarge).map_err(|error| match error.kind {
        IoErrorKind::Memory => error,
        _ => IoError { path: path.to_path_buf(), ..error },
    })?;
    write_whole(path, &picture.png_bytes(path)?)
}

/// A picture: rows of red, green and blue, the first row at the top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: u32,
    height: u32,
    pixels: Vec<[u8; 3]>,
}

impl RgbImage {
    /// Creates a picture of one color.
    ///
    /// # Errors
    /// [`HostMemoryError`] if host memory is short.
    pub fn new(width: u32, height: u32, color: [u8; 3]) -> Result<Self, HostMemoryError> {
        let pixels = (width as usize).saturating_mul(height as usize);
        let pixels = host_memory::collect("a picture", std::iter::repeat_n(color, pixels))?;
        Ok(Self { width, height, pixels })
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Returns the pixels of row `y`.
    ///
    /// # Panics
    /// If `y` is out of range.
    #[must_use]
    pub fn row(&self, y: u32) -> &[[u8; 3]] {
        &self.pixels[y as usize * self.width as usize..][..self.width as usize]
    }

    /// Returns the pixels of row `y` for writing.
    ///
    /// # Panics
    /// If `y` is out of range.
    pub fn row_mut(&mut self, y: u32) -> &mut [[u8; 3]] {
        &mut self.pixels[y as usize * self.width as usize..][..self.width as usize]
    }

    /// Returns the bytes of a PNG file of the picture. `path`, where it is to be written, is for
    /// errors only.
    ///
    /// # Errors
    /// `IoErrorKind::Unsupported` if the encoder refuses, `IoErrorKind::Memory` if host
    /// memory is short.
    pub fn png_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let _activity = timeline::activity!("encode picture");
        let rgb = self.pixels.as_flattened();
        // Compressed, random pixels take some bytes more than plain ones.
        let mut bytes = host_memory::reserve("a picture", rgb.len() + rgb.len() / 64 + 4096)?;
        let mut encoder = Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::Fast);
        encoder.set_filter(Filter::Adaptive);
        let written = encoder.write_header().and_then(|mut writer| {
            writer.write_image_data(rgb)?;
            writer.finish()
        });
        written.map_err(|error| IoError::picture(path, error))?;
        Ok(bytes)
    }
}

/// Returns the picture that [`density_png`] writes, with each cell `enlarge` pixels wide and high.
///
/// # Errors
/// `IoErrorKind::Shape` and `IoErrorKind::Unsupported` as in [`density_png`], without a path.
fn density_image(map: &[f32], width: usize, height: usize, enlarge: usize) -> Result<RgbImage> {
    check_size(map.len(), [width, height], Path::new("picture"))?;
    // PNG sizes are u32, and the pixels must fit the memory's address space.
    let pixels = |cells: usize| cells.checked_mul(enlarge.max(1)).and_then(|n| u32::try_from(n).ok());
    let (Some(wide), Some(high)) = (pixels(width), pixels(height)) else {
        return Err(IoError::picture(Path::new("picture"), "too large"));
    };
    let bright = brightness(map)?;
    let enlarge = enlarge.max(1);
    let columns = host_memory::collect("a picture", (0..wide as usize).map(|x| between(x, enlarge, width)))?;
    let mut picture = RgbImage::new(wide, high, [0; 3])?;
    for y in 0..high {
        let (top, bottom, down) = between(y as usize, enlarge, height);
        let [above, below] = [top, bottom].map(|row| &bright[row * width..][..width]);
        for (pixel, &(left, right, across)) in picture.row_mut(y).iter_mut().zip(&columns) {
            let [above, below] = [above, below].map(|cells| cells[left] + (cells[right] - cells[left]) * across);
            *pixel = color(&COLORS, above + (below - above) * down);
        }
    }
    Ok(picture)
}

/// Returns the two cells whose centers enclose the middle of a pixel, and its relative position
/// between them. At the border both cells are the same.
fn between(pixel: usize, enlarge: usize, cells: usize) -> (usize, usize, f32) {
    let position = (pixel as f32 + 0.5) / enlarge as f32 - 0.5;
    let first = position.floor();
    let weight = position - first;
    let last = cells - 1;
    let low = first.max(0.0) as usize;
    let high = (first + 1.0).max(0.0) as usize;
    (low.min(last), high.min(last), weight)
}

/// Returns the positions of values on the color scale, 0 to 1.
fn brightness(map: &[f32]) -> Result<Vec<f32>, HostMemoryError> {
    let mut logs: Vec<f32> = host_memory::reserve("a picture", map.len())?;
    logs.extend(map.iter().filter(|x| **x > 0.0 && x.is_finite()).map(|x| x.log10()));
    let (mut low, mut high) = (0.0, 0.0);
    if !logs.is_empty() {
        low = percentile(&mut logs, 0.01);
        high = percentile(&mut logs, 0.998);
        low = low.max(high - DECADES);
    }
    let span = high - low;
    let place = |x: &f32| {
        if *x == f32::INFINITY {
            1.0
        } else if x.is_nan() || *x <= 0.0 {
            0.0
        } else if span < 1e-6 {
            // A constant map has the middle of the scale.
            0.5
        } else {
            ((x.log10() - low) / span).clamp(0.0, 1.0)
        }
    };
    host_memory::collect("a picture", map.iter().map(place))
}

/// Returns the value below which a fraction of the values lies. Reorders the values, which must not
/// be empty.
fn percentile(values: &mut [f32], fraction: f64) -> f32 {
    let at = ((values.len() - 1) as f64 * fraction).round() as usize;
    *values.select_nth_unstable_by(at, f32::total_cmp).1
}

/// Returns the color at a position from 0 to 1 along evenly spaced `colors`.
pub(super) fn color(colors: &[[u8; 3]], position: f32) -> [u8; 3] {
    let steps = colors.len() - 1;
    let along = position.clamp(0.0, 1.0) * steps as f32;
    let first = (along as usize).min(steps - 1);
    [0, 1, 2].map(|i| {
        let (low, high) = (f32::from(colors[first][i]), f32::from(colors[first + 1][i]));
        (low + (high - low) * (along - first as f32)).round() as u8
    })
}

/// Checks that a map of `values` values has these sides.
pub(super) fn check_size(values: usize, [width, height]: [usize; 2], path: &Path) -> Result<()> {
    if values > 0 && width.checked_mul(height) == Some(values) {
        return Ok(());
    }
    let wanted = format!("one of the {values} values (at least 1)");
    Err(IoError::shape(path, [height as u64, width as u64], wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::scratch::Scratch;

    #[test]
    fn colors_grow_lighter_all_along() {
        let light = |c: [u8; 3]| 0.2126 * f32::from(c[0]) + 0.7152 * f32::from(c[1]) + 0.0722 * f32::from(c[2]);
        assert_eq!(color(&COLORS, 0.0), COLORS[0]);
        assert_eq!(color(&COLORS, 1.0), COLORS[7]);
        let at = |i: u8| light(color(&COLORS, f32::from(i) / 100.0));
        assert!((0..100).all(|i| at(i) < at(i + 1) + 0.3));
        assert!(COLORS.windows(2).all(|pair| light(pair[0]) + 8.0 < light(pair[1])));
    }

    #[test]
    fn zeros_negatives_and_non_numbers_are_dark_or_bright_not_errors() {
        let map = [0.0, -1.0, f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 1.0, 10.0, 100.0];
        let picture = density_image(&map, 4, 2, 1).unwrap();
        for x in 0..4 {
            assert_eq!(picture.row(0)[x], COLORS[0]);
        }
        assert_eq!(picture.row(1)[0], COLORS[7]);
        assert_eq!(picture.row(1)[3], COLORS[7]);
        for map in [[0.0; 4], [f32::NAN; 4], [3.0; 4], [1e-40; 4]] {
            density_image(&map, 2, 2, 3).unwrap();
        }
    }

    #[test]
    fn maps_of_the_wrong_size_are_refused() {
        for (map, width, height) in [(&[][..], 0, 0), (&[1.0][..], 2, 1), (&[1.0][..], usize::MAX, 2)] {
            assert!(matches!(density_image(map, width, height, 1), Err(IoError { kind: IoErrorKind::Shape, .. })));
        }
        assert!(
            matches!(density_image(&[1.0], 1, 1, usize::MAX), Err(IoError { kind: IoErrorKind::Unsupported, ref message, .. }) if message.contains("picture"))
        );
    }

    #[test]
    fn small_maps_are_enlarged_by_a_whole_factor_and_files_are_the_same() {
        let scratch = Scratch::new();
        let map: Vec<f32> = (0..200 * 150).map(|i| 1.0 + ((i * 7919) % 1013) as f32).collect();
        let (one, two) = (scratch.path().join("1.png"), scratch.path().join("2.png"));
        density_png(&map, 200, 150, &one).unwrap();
        density_png(&map, 200, 150, &two).unwrap();
        let bytes = std::fs::read(&one).unwrap();
        assert_eq!(bytes, std::fs::read(&two).unwrap());
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (800, 600));
        assert_eq!(pixels, density_image(&map, 200, 150, 4).unwrap().pixels.as_flattened());
        assert_eq!(scratch.names(), ["1.png", "2.png"]);
    }

    #[test]
    fn enlarging_keeps_cells_in_place() {
        // With an odd factor, a pixel lies in the middle of each cell.
        let map = [1.0, 10.0, 100.0, 1000.0, 3.0, 30.0];
        let (small, large) = (density_image(&map, 3, 2, 1).unwrap(), density_image(&map, 3, 2, 5).unwrap());
        for y in 0..2 {
            let middle: Vec<_> = large.row(5 * y + 2).iter().skip(2).step_by(5).copied().collect();
            assert_eq!(middle, small.row(y));
        }
    }
}
