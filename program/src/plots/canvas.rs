//! Lines, areas, discs and text in pixels, with smooth edges.

use meshloom::host_memory::HostMemoryError;
use meshloom::io::RgbImage;
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Mask, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform,
};
use ttf_parser::{Face, OutlineBuilder};

/// The alignment of text to its position.
#[derive(Clone, Copy)]
pub enum Align {
    Left,
    Center,
    Right,
}

/// A stroke: color, width in pixels, and whether it is dashed.
#[derive(Clone, Copy)]
pub struct Pen {
    pub color: [u8; 3],
    pub width: f32,
    pub dashed: bool,
}

impl Pen {
    pub fn solid(color: [u8; 3], width: f32) -> Self {
        Self { color, width, dashed: false }
    }
}

/// Color of text, ticks and frames.
pub const INK: [u8; 3] = [30, 30, 34];

/// The embedded font. It has Latin and Greek letters, superscript digits and most mathematical
/// symbols; other characters are boxes.
pub struct Font(Face<'static>);

impl Font {
    /// Reads the font; `None` if it is damaged.
    pub fn new() -> Option<Self> {
        Face::parse(dejavu::sans::regular(), 0).ok().map(Self)
    }

    /// Returns the width of a line of text.
    pub fn width(&self, text: &str, size: f32) -> f32 {
        text.chars().map(|c| self.advance(Glyph::of(c), size)).sum()
    }

    /// Returns the width of the longest of several lines of text.
    pub fn widest<'a>(&self, lines: impl IntoIterator<Item = &'a str>, size: f32) -> f32 {
        lines.into_iter().map(|line| self.width(line, size)).fold(0.0, f32::max)
    }

    /// Returns the size at which a line of text is at most `most` pixels wide, up to `size`.
    pub fn fitting(&self, text: &str, size: f32, most: f32) -> f32 {
        size * (most / self.width(text, size).max(1.0)).clamp(0.3, 1.0)
    }

    fn advance(&self, glyph: Glyph, size: f32) -> f32 {
        let id = self.0.glyph_index(glyph.character).unwrap_or_default();
        let units = f32::from(self.0.glyph_hor_advance(id).unwrap_or(0));
        units * glyph.scale * size / f32::from(self.0.units_per_em())
    }
}

/// A white picture to draw on. Positions are in pixels from the upper left corner, y downwards.
pub struct Canvas<'a> {
    pixels: Pixmap,
    /// The region that drawing is restricted to.
    clip: Option<Mask>,
    font: &'a Font,
}

impl<'a> Canvas<'a> {
    /// Creates a canvas; `None` if memory is short.
    pub fn new(width: u32, height: u32, font: &'a Font) -> Option<Self> {
        let mut pixels = Pixmap::new(width, height)?;
        pixels.fill(Color::WHITE);
        Some(Self { pixels, clip: None, font })
    }

    /// Restricts what is drawn from now on to a rectangle (left, top, right, bottom), or to none.
    pub fn clip(&mut self, rectangle: Option<[f32; 4]>) {
        self.clip = rectangle.and_then(|rectangle| {
            let mut mask = Mask::new(self.pixels.width(), self.pixels.height())?;
            mask.fill_path(&rectangular(rectangle)?, FillRule::Winding, true, Transform::identity());
            Some(mask)
        });
    }

    /// Lines from point to point.
    pub fn line(&mut self, points: &[(f32, f32)], pen: Pen) {
        let mut path = PathBuilder::new();
        for (i, &(x, y)) in points.iter().enumerate() {
            if i == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
        }
        if let Some(path) = path.finish() {
            self.stroke(&path, pen);
        }
    }

    /// A filled polygon, `opacity` from 0 to 1.
    pub fn area(&mut self, corners: &[(f32, f32)], color: [u8; 3], opacity: f32) {
        let mut path = PathBuilder::new();
        for (i, &(x, y)) in corners.iter().enumerate() {
            if i == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
        }
        path.close();
        if let Some(path) = path.finish() {
            self.fill_path(&path, color, opacity);
        }
    }

    /// Draws the outline of a rectangle (left, top, right, bottom).
    pub fn frame(&mut self, rectangle: [f32; 4], pen: Pen) {
        if let Some(path) = rectangular(rectangle) {
            self.stroke(&path, pen);
        }
    }

    /// A filled rectangle, `opacity` from 0 to 1.
    pub fn fill(&mut self, rectangle: [f32; 4], color: [u8; 3], opacity: f32) {
        if let Some(path) = rectangular(rectangle) {
            self.fill_path(&path, color, opacity);
        }
    }

    /// A filled circle with a white rim, which separates it from lines and other circles.
    pub fn disc(&mut self, x: f32, y: f32, radius: f32, color: [u8; 3]) {
        for (radius, color) in [(radius + 1.5, [255; 3]), (radius, color)] {
            if let Some(path) = PathBuilder::from_circle(x, y, radius) {
                self.fill_path(&path, color, 1.0);
            }
        }
    }

    /// A line of text; the middle of its capital letters is at `y`, and `size` is the font's em.
    /// Superscript digits are drawn larger than the font's own, and the symbol of the Sun as a
    /// subscript.
    pub fn text(&mut self, text: &str, (x, y): (f32, f32), size: f32, align: Align) {
        self.text_along(text, Transform::from_translate(x, y), size, align);
    }

    /// Same as [`text`](Self::text), read from below upwards.
    pub fn text_upwards(&mut self, text: &str, (x, y): (f32, f32), size: f32, align: Align) {
        self.text_along(text, Transform::from_rotate(-90.0).post_translate(x, y), size, align);
    }

    /// Colors a row of pixels from (`left`, `y`) to the right; those beyond the canvas are lost.
    pub fn row(&mut self, left: u32, y: u32, colors: &[[u8; 3]]) {
        let width = self.pixels.width();
        if y >= self.pixels.height() || left >= width {
            return;
        }
        let first = 4 * (y as usize * width as usize + left as usize);
        let line = &mut self.pixels.data_mut()[first..][..4 * (width - left) as usize];
        for (pixel, [red, green, blue]) in line.chunks_exact_mut(4).zip(colors) {
            pixel.copy_from_slice(&[*red, *green, *blue, 255]);
        }
    }

    /// Rows of red, green and blue from the top.
    pub fn picture(&self) -> Result<RgbImage, HostMemoryError> {
        let mut picture = RgbImage::new(self.pixels.width(), self.pixels.height(), [0; 3])?;
        for (y, row) in (0..).zip(self.pixels.data().chunks_exact(4 * self.pixels.width() as usize)) {
            // The background is opaque, so premultiplied colors are colors.
            let colors = row.chunks_exact(4).map(|pixel| [pixel[0], pixel[1], pixel[2]]);
            picture.row_mut(y).iter_mut().zip(colors).for_each(|(pixel, color)| *pixel = color);
        }
        Ok(picture)
    }

    fn text_along(&mut self, text: &str, place: Transform, size: f32, align: Align) {
        let face = &self.font.0;
        let em = f32::from(face.units_per_em());
        let capital = face.glyph_index('H').and_then(|glyph| face.glyph_bounding_box(glyph));
        let middle = capital.map_or(0.0, |bounds| f32::from(bounds.y_max)) / em * size / 2.0;
        let mut x = match align {
            Align::Left => 0.0,
            Align::Center => -0.5 * self.font.width(text, size),
            Align::Right => -self.font.width(text, size),
        };
        for glyph in text.chars().map(Glyph::of) {
            let id = face.glyph_index(glyph.character).unwrap_or_default();
            let scale = glyph.scale * size / em;
            let mut outline = Outline(PathBuilder::new());
            // Spaces have no outline.
            if face.outline_glyph(id, &mut outline).is_some()
                && let Some(path) = outline.0.finish()
            {
                // The font's y axis points upwards.
                let to_line = Transform::from_row(scale, 0.0, 0.0, -scale, x, middle - glyph.rise * size);
                if let Some(path) = path.transform(to_line.post_concat(place)) {
                    self.fill_path(&path, INK, 1.0);
                }
            }
            x += self.font.advance(glyph, size);
        }
    }

    fn stroke(&mut self, path: &Path, pen: Pen) {
        let dash = if pen.dashed { StrokeDash::new(vec![4.5 * pen.width, 3.0 * pen.width], 0.0) } else { None };
        // Round caps would close the gaps between dashes.
        let line_cap = if pen.dashed { LineCap::Butt } else { LineCap::Round };
        let stroke = Stroke { width: pen.width, line_cap, line_join: LineJoin::Round, dash, ..Stroke::default() };
        self.pixels.stroke_path(path, &paint(pen.color, 1.0), &stroke, Transform::identity(), self.clip.as_ref());
    }

    fn fill_path(&mut self, path: &Path, color: [u8; 3], opacity: f32) {
        let paint = paint(color, opacity);
        self.pixels.fill_path(path, &paint, FillRule::Winding, Transform::identity(), self.clip.as_ref());
    }
}

fn paint([red, green, blue]: [u8; 3], opacity: f32) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, (opacity * 255.0).round() as u8);
    paint
}

fn rectangular([left, top, right, bottom]: [f32; 4]) -> Option<Path> {
    Rect::from_ltrb(left, top, right, bottom).map(PathBuilder::from_rect)
}

/// Drawing of a character: the character whose glyph is used, its scale, and its height above the
/// line in ems.
#[derive(Clone, Copy)]
struct Glyph {
    character: char,
    scale: f32,
    rise: f32,
}

impl Glyph {
    fn of(character: char) -> Self {
        let superscript = |character| Self { character, scale: 0.72, rise: 0.36 };
        match character {
            '\u{2070}' => superscript('0'),
            '\u{b9}' => superscript('1'),
            '\u{b2}' => superscript('2'),
            '\u{b3}' => superscript('3'),
            '\u{2074}'..='\u{2079}' => {
                superscript(char::from_digit(character as u32 - 0x2070, 10).unwrap_or(character))
            }
            '\u{207b}' => superscript('\u{2212}'),
            '\u{2609}' => Self { character, scale: 0.66, rise: -0.16 },
            _ => Self { character, scale: 1.0, rise: 0.0 },
        }
    }
}

/// Builds a path from the outline of a glyph.
struct Outline(PathBuilder);

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}
