//! Pictures of values on both sides of zero.

use std::path::Path;

use png::{BitDepth, ColorType, Encoder, EncodingError};

use super::image::{check_size, color};
use super::{IoError, Result};

/// Colors from the lowest to the highest value, evenly spaced: deep water, sky, white, amber,
/// brick. Both halves darken equally outwards.
const COLORS: [[u8; 3]; 7] =
    [[8, 40, 84], [35, 105, 160], [135, 190, 215], [247, 247, 245], [243, 178, 118], [200, 85, 50], [96, 20, 24]];

/// Entries of the palette; the middle one is white.
const ENTRIES: usize = 255;

/// Long sides below this many pixels are enlarged.
const LONG_SIDE: usize = 480;

/// Returns a PNG file that shows rows of `width` values, the first row at the top.
///
/// Colors go from blue at `-limit` over white at zero to red at `limit`. Values beyond have the
/// last color, NaN that of zero. The picture is enlarged by a whole factor so that its long side
/// has 480 pixels or more. Equal values give equal files.
///
/// # Errors
/// `IoErrorKind::Shape` unless there are `width * height` values, at least one;
/// `IoErrorKind::Unsupported` if there are too many for a picture.
pub(crate) fn diverging_png_bytes(
    values: &[f32],
    [width, height]: [usize; 2],
    limit: f32,
    path: &Path,
) -> Result<Vec<u8>> {
    check_size(values.len(), [width, height], path)?;
    let failed = |reason: String| IoError::picture(path, reason);
    let enlarge = LONG_SIDE.div_ceil(width.max(height));
    let side = |cells: usize| u32::try_from(cells * enlarge).map_err(|_| failed("too large".into()));
    let size = [side(width)?, side(height)?];
    encode(&enlarged(values, width, enlarge, limit), size).map_err(|error| failed(error.to_string()))
}

/// Returns the palette entry of each pixel.
fn enlarged(frame: &[f32], width: usize, enlarge: usize, limit: f32) -> Vec<u8> {
    let middle = (ENTRIES / 2) as f32;
    let entry = |value: &f32| {
        let along = if limit > 0.0 { value / limit } else { 0.0 };
        // A cast of NaN gives 0, the middle.
        (middle as i32 + (middle * along.clamp(-1.0, 1.0)).round() as i32) as u8
    };
    let mut pixels = Vec::with_capacity(frame.len() * enlarge * enlarge);
    for row in frame.chunks(width) {
        let line: Vec<u8> = row.iter().flat_map(|value| std::iter::repeat_n(entry(value), enlarge)).collect();
        (0..enlarge).for_each(|_| pixels.extend_from_slice(&line));
    }
    pixels
}

fn palette() -> Vec<u8> {
    (0..ENTRIES).flat_map(|entry| color(&COLORS, entry as f32 / (ENTRIES - 1) as f32)).collect()
}

fn encode(pixels: &[u8], [width, height]: [u32; 2]) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_palette(palette());
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::IoErrorKind;

    fn decoded(bytes: &[u8]) -> Vec<u8> {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::IDENTITY);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        pixels
    }

    #[test]
    fn values_become_entries_of_the_palette() {
        let all = [[0.0, -1.0, 1.0, 9.0], [f32::NAN, 0.5, -0.5, -9.0]];
        for (values, entries) in all.iter().zip([[127, 0, 254, 254], [127, 191, 63, 0]]) {
            let bytes = diverging_png_bytes(values, [2, 2], 1.0, Path::new("a.png")).unwrap();
            assert_eq!(bytes, diverging_png_bytes(values, [2, 2], 1.0, Path::new("a.png")).unwrap());
            let pixels = decoded(&bytes);
            assert_eq!(pixels.len(), 480 * 480);
            // The corners.
            assert_eq!([pixels[0], pixels[479], pixels[479 * 480], pixels[480 * 480 - 1]], entries);
        }
        let still = diverging_png_bytes(&[2.0; 3], [3, 1], 0.0, Path::new("a.png")).unwrap();
        assert!(decoded(&still).iter().all(|entry| *entry == 127));
    }

    #[test]
    fn values_of_the_wrong_number_are_refused() {
        for (values, size) in [(&[][..], [0, 0]), (&[1.0], [2, 1]), (&[1.0], [usize::MAX, 2])] {
            let refused = diverging_png_bytes(values, size, 1.0, Path::new("a.png"));
            assert!(matches!(refused, Err(IoError { kind: IoErrorKind::Shape, .. })));
        }
    }

    #[test]
    fn the_middle_is_white_and_both_ends_are_dark() {
        let light = |entry: usize| palette()[3 * entry..][..3].iter().map(|&c| u32::from(c)).sum::<u32>();
        assert_eq!(palette()[3 * 127..][..3], COLORS[3]);
        assert!((0..127).all(|n| light(n) <= light(n + 1)) && (127..254).all(|n| light(n) >= light(n + 1)));
    }
}
