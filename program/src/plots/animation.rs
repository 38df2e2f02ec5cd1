//! Animated PNG files.

use std::path::Path;

use meshloom::io::{IoError, RgbImage};
use png::{BitDepth, BlendOp, ColorType, Compression, DisposeOp, Encoder, EncodingError, Filter, Writer};

/// Returns the bytes of a PNG file that shows `count` pictures of one size one after the other,
/// each for `milliseconds`, forever. Each picture is made when its turn comes, and only the
/// rectangle that differs from the picture before is stored.
///
/// # Errors
/// - `IoErrorKind::Shape` if a picture has another size than the first.
/// - `IoErrorKind::Unsupported` if there are none, or the encoder refuses.
/// - Errors of `picture`.
pub fn animation(
    count: u32,
    milliseconds: u16,
    path: &Path,
    mut picture: impl FnMut(u32) -> Result<RgbImage, IoError>,
) -> Result<Vec<u8>, IoError> {
    if count == 0 {
        return Err(IoError::picture(path, "there are none to show"));
    }
    let failed = |error: EncodingError| IoError::picture(path, error);
    let mut shown = picture(0)?;
    let mut bytes = Vec::new();
    let mut writer = header(&mut bytes, &shown, count, milliseconds).map_err(failed)?;
    let all = Rectangle { left: 0, top: 0, width: shown.width(), height: shown.height() };
    writer.write_image_data(&all.pixels(&shown)).map_err(failed)?;
    for number in 1..count {
        let next = picture(number)?;
        let size = [&shown, &next].map(|picture| [picture.height(), picture.width()].map(u64::from));
        if size[0] != size[1] {
            return Err(IoError::shape(path, size[1], format!("{} x {}", size[0][0], size[0][1])));
        }
        Rectangle::of_changes(&shown, &next).write(&mut writer, &next).map_err(failed)?;
        shown = next;
    }
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

fn header<'a>(
    bytes: &'a mut Vec<u8>,
    first: &RgbImage,
    count: u32,
    milliseconds: u16,
) -> Result<Writer<&'a mut Vec<u8>>, EncodingError> {
    let mut encoder = Encoder::new(bytes, first.width(), first.height());
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Balanced);
    encoder.set_filter(Filter::Adaptive);
    if count > 1 {
        // Repeats forever.
        encoder.set_animated(count, 0)?;
        encoder.set_frame_delay(milliseconds, 1000)?;
        encoder.set_blend_op(BlendOp::Source)?;
        encoder.set_dispose_op(DisposeOp::None)?;
    }
    encoder.write_header()
}

/// A part of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rectangle {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
}

impl Rectangle {
    /// Returns the smallest rectangle that holds all pixels in which two pictures of one size
    /// differ; one pixel if there are none.
    fn of_changes(before: &RgbImage, after: &RgbImage) -> Self {
        let changed = |y: &u32| before.row(*y) != after.row(*y);
        let Some(top) = (0..before.height()).find(changed) else {
            return Self { left: 0, top: 0, width: 1, height: 1 };
        };
        let bottom = (top..before.height()).rfind(changed).unwrap_or(top);
        let (mut left, mut right) = (before.width(), 0);
        for y in top..=bottom {
            let differ = |x: &u32| before.row(y)[*x as usize] != after.row(y)[*x as usize];
            left = (0..left).find(differ).unwrap_or(left);
            right = (right..before.width()).rfind(differ).unwrap_or(right);
        }
        Self { left, top, width: right - left + 1, height: bottom - top + 1 }
    }

    /// Returns the part of a picture as rows of red, green and blue.
    fn pixels(&self, picture: &RgbImage) -> Vec<u8> {
        let (left, width) = (self.left as usize, self.width as usize);
        let rows = (self.top..self.top + self.height).flat_map(|y| &picture.row(y)[left..left + width]);
        rows.flatten().copied().collect()
    }

    fn write(&self, writer: &mut Writer<&mut Vec<u8>>, picture: &RgbImage) -> Result<(), EncodingError> {
        // The size and the place before are those of the last frame: all must fit at any time.
        writer.reset_frame_position()?;
        writer.set_frame_dimension(self.width, self.height)?;
        writer.set_frame_position(self.left, self.top)?;
        writer.write_image_data(&self.pixels(picture))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: u32, height: u32, dots: &[(u32, u32)]) -> RgbImage {
        let mut picture = RgbImage::new(width, height, [250; 3]).unwrap();
        dots.iter().for_each(|&(x, y)| picture.row_mut(y)[x as usize] = [9, 8, 7]);
        picture
    }

    #[test]
    fn frames_store_what_has_changed() {
        let all = [
            picture(40, 30, &[(3, 4)]),
            picture(40, 30, &[(3, 4), (39, 29), (10, 20)]),
            picture(40, 30, &[(3, 4), (39, 29), (10, 20)]),
            picture(40, 30, &[]),
        ];
        let file = |_: &Path| animation(4, 50, Path::new("a.png"), |number| Ok(all[number as usize].clone())).unwrap();
        let bytes = file(Path::new("a.png"));
        assert_eq!(bytes, file(Path::new("b.png")));
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        assert_eq!(reader.info().animation_control.unwrap().num_frames, 4);
        let mut shown = RgbImage::new(40, 30, [0; 3]).unwrap();
        for wanted in &all {
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut pixels).unwrap();
            let frame = *reader.info().frame_control().unwrap();
            for (row, line) in (0..frame.height).zip(pixels.as_chunks::<3>().0.chunks(frame.width as usize)) {
                shown.row_mut(frame.y_offset + row)[frame.x_offset as usize..][..line.len()].copy_from_slice(line);
            }
            assert_eq!(shown, *wanted);
        }
        let changes = Rectangle::of_changes(&all[0], &all[1]);
        assert_eq!(changes, Rectangle { left: 10, top: 20, width: 30, height: 10 });
    }

    #[test]
    fn no_pictures_and_those_of_several_sizes_are_refused() {
        let sizes = |number: u32| Ok(picture(4 + number, 4, &[]));
        assert!(animation(0, 50, Path::new("a.png"), sizes).is_err());
        assert!(animation(2, 50, Path::new("a.png"), sizes).unwrap_err().to_string().contains("a.png"));
        assert!(animation(1, 50, Path::new("a.png"), sizes).unwrap().starts_with(b"\x89PNG"));
    }
}
