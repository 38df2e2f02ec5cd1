//! Plots of curves, bands and points with error bars.

use std::path::Path;

use meshloom::io::{IoError, RgbImage};

use super::axis::{Axis, Tick};
use super::canvas::{Align, Canvas, Font, INK, Pen};
use super::frame::{TEXT, TITLE, label_width, ticks_across, ticks_up};

/// Pixels of the picture, and of the edges of its field (top, right, bottom).
const SIZE: [u32; 2] = [1200, 840];
const EDGES: [f32; 3] = [78.0, 1160.0, 742.0];

const GRID: [u8; 3] = [228, 229, 233];

/// A plot of curves, bands and points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinePlot<'a> {
    /// The title, above the plot.
    pub title: &'a str,
    /// The horizontal axis.
    pub x: Axis<'a>,
    /// The vertical axis.
    pub y: Axis<'a>,
    /// Bands, drawn in this order, below everything else.
    pub bands: &'a [Band<'a>],
    /// Curves, drawn in this order, below the points.
    pub curves: &'a [Curve<'a>],
    /// Points, drawn in this order.
    pub points: &'a [Points<'a>],
}

/// A curve through points, in the order given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curve<'a> {
    /// Its name in the legend; a curve without a name is not in the legend.
    pub name: &'a str,
    /// x and y. Parts outside the axes are cut off; at values without a place on the scale the
    /// curve is interrupted.
    pub at: &'a [(f64, f64)],
    /// Red, green, blue.
    pub color: [u8; 3],
    /// Whether it is dashed, which tells curves apart without colors.
    pub dashed: bool,
}

/// The area between two curves, as of an uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band<'a> {
    /// Its name in the legend; a band without a name is not in the legend.
    pub name: &'a str,
    /// x, the lower and the upper y, interrupted like a [`Curve`].
    pub at: &'a [(f64, f64, f64)],
    /// Red, green, blue; other bands and the grid shine through.
    pub color: [u8; 3],
}

/// Points with error bars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Points<'a> {
    /// Their name in the legend; points without a name are not in the legend.
    pub name: &'a str,
    /// x, y, and half the length of the vertical bar, 0 for none; a bar that reaches below a
    /// logarithmic scale extends to the axis. Points outside the axes are not drawn.
    pub at: &'a [(f64, f64, f64)],
    /// Red, green, blue.
    pub color: [u8; 3],
}

/// The field between the axes in pixels (left, top, right, bottom), and the ticks of both axes.
struct Layout {
    field: [f32; 4],
    ticks: [Vec<Tick>; 2],
}

impl LinePlot<'_> {
    /// Draws the plot, 1200 by 840 pixels. `path`, where the picture is to be written, is for
    /// errors only. The legend is in the corner with the fewest data. Equal plots give equal
    /// pictures.
    ///
    /// # Errors
    /// - `IoErrorKind::Unsupported` if a range of an axis is not finite and ascending, or not
    ///   positive on a logarithmic scale.
    /// - `IoErrorKind::Memory` if host memory is short.
    ///
    /// ```
    /// use meshloom_program::plots::{Axis, Curve, LinePlot};
    /// # fn main() -> Result<(), meshloom::io::IoError> {
    /// let curve: Vec<_> = (1..=100).map(|i| (f64::from(i), f64::from(i).powi(-2))).collect();
    /// let plot = LinePlot {
    ///     title: "An inverse square",
    ///     x: Axis::logarithmic("r [m]", [1.0, 100.0]),
    ///     y: Axis::logarithmic("force [N]", [1e-4, 1.0]),
    ///     bands: &[],
    ///     curves: &[Curve { name: "r⁻²", at: &curve, color: [40, 90, 160], dashed: false }],
    ///     points: &[],
    /// };
    /// let path = "force.png".as_ref();
    /// let bytes = plot.draw(path)?.png_bytes(path)?;
    /// assert!(bytes.starts_with(b"\x89PNG"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn draw(&self, path: &Path) -> Result<RgbImage, IoError> {
        let failed = |reason: String| IoError::picture(path, reason);
        self.x.check(path)?;
        self.y.check(path)?;
        let font = Font::new().ok_or_else(|| failed("its font is damaged".into()))?;
        let layout = self.layout(&font);
        let [width, height] = SIZE;
        let mut canvas =
            Canvas::new(width, height, &font).ok_or_else(|| failed("there is no memory for it".to_string()))?;
        self.axes(&mut canvas, &layout, &font);
        self.data(&mut canvas, layout.field);
        self.legend(&mut canvas, layout.field, &font);
        Ok(canvas.picture()?)
    }

    fn layout(&self, font: &Font) -> Layout {
        let [top, right, bottom] = EDGES;
        let up = ticks_up(&self.y, bottom - top);
        let left = (TITLE + 42.0 + label_width(&up, font)).max(120.0).ceil();
        Layout { field: [left, top, right, bottom], ticks: [ticks_across(&self.x, right - left, font), up] }
    }

    /// Returns the position of a value in pixels.
    fn pixel(&self, [left, top, right, bottom]: [f32; 4], x: f64, y: f64) -> (f32, f32) {
        let (x, y) = (self.x.position(x) as f32, self.y.position(y) as f32);
        (left + x * (right - left), bottom + y * (top - bottom))
    }

    fn axes(&self, canvas: &mut Canvas<'_>, layout: &Layout, font: &Font) {
        let ([left, top, right, bottom], [across, up]) = (layout.field, &layout.ticks);
        // The grid comes first: ticks and the frame are drawn over it.
        for tick in across.iter().filter(|tick| tick.long) {
            let x = left + tick.position as f32 * (right - left);
            canvas.line(&[(x, top), (x, bottom)], Pen::solid(GRID, 1.5));
        }
        for tick in up.iter().filter(|tick| tick.long) {
            let y = bottom + tick.position as f32 * (top - bottom);
            canvas.line(&[(left, y), (right, y)], Pen::solid(GRID, 1.5));
        }
        for tick in across {
            let x = left + tick.position as f32 * (right - left);
            let (length, width) = if tick.long { (13.0, 2.0) } else { (7.0, 1.5) };
            for (from, to) in [(bottom, bottom - length), (top, top + length)] {
                canvas.line(&[(x, from), (x, to)], Pen::solid(INK, width));
            }
            canvas.text(&tick.label, (x, bottom + 30.0), TEXT, Align::Center);
        }
        for tick in up {
            let y = bottom + tick.position as f32 * (top - bottom);
            let (length, width) = if tick.long { (13.0, 2.0) } else { (7.0, 1.5) };
            for (from, to) in [(left, left + length), (right, right - length)] {
                canvas.line(&[(from, y), (to, y)], Pen::solid(INK, width));
            }
            canvas.text(&tick.label, (left - 14.0, y), TEXT, Align::Right);
        }
        canvas.frame(layout.field, Pen::solid(INK, 2.0));
        let (x, y) = ((left + right) / 2.0, (top + bottom) / 2.0);
        let size = |text: &str, most: f32| font.fitting(text, TITLE, most);
        canvas.text(self.title, (x, top / 2.0), size(self.title, right - left), Align::Center);
        canvas.text(self.x.label, (x, bottom + 70.0), size(self.x.label, right - left), Align::Center);
        canvas.text_upwards(self.y.label, (32.0, y), size(self.y.label, bottom - top), Align::Center);
    }

    fn data(&self, canvas: &mut Canvas<'_>, field: [f32; 4]) {
        canvas.clip(Some(field));
        let is_finite = |(x, y): &(f32, f32)| x.is_finite() && y.is_finite();
        for band in self.bands {
            let ends = band.at.iter().map(|&(x, low, high)| [low, high].map(|y| self.pixel(field, x, y)));
            let ends: Vec<[(f32, f32); 2]> = ends.collect();
            for piece in ends.split(|ends| !ends.iter().all(is_finite)).filter(|piece| !piece.is_empty()) {
                let lower = piece.iter().map(|ends| ends[0]);
                let corners: Vec<_> = lower.chain(piece.iter().rev().map(|ends| ends[1])).collect();
                canvas.area(&corners, band.color, Band::OPACITY);
            }
        }
        for curve in self.curves {
            let pixels: Vec<_> = curve.at.iter().map(|&(x, y)| self.pixel(field, x, y)).collect();
            for piece in pixels.split(|pixel| !is_finite(pixel)) {
                canvas.line(piece, curve.pen());
            }
        }
        let [_, _, _, bottom] = field;
        for points in self.points {
            let inside = points.at.iter().filter(|(x, y, _)| {
                [self.x.position(*x), self.y.position(*y)].iter().all(|position| (0.0..=1.0).contains(position))
            });
            for &(at, y, error) in inside {
                let ((x, middle), (_, high)) = (self.pixel(field, at, y), self.pixel(field, at, y + error));
                let (_, low) = self.pixel(field, at, y - error);
                // Without a logarithm, down to the axis.
                let low = if low.is_finite() { low } else { bottom + 20.0 };
                if error > 0.0 && high.is_finite() {
                    let pen = Pen::solid(points.color, 2.5);
                    canvas.line(&[(x, low), (x, high)], pen);
                    for end in [low, high] {
                        canvas.line(&[(x - 6.0, end), (x + 6.0, end)], pen);
                    }
                }
                canvas.disc(x, middle, points.radius(), points.color);
            }
        }
        canvas.clip(None);
    }

    fn legend(&self, canvas: &mut Canvas<'_>, field: [f32; 4], font: &Font) {
        const LINE: f32 = 40.0;
        const SAMPLE: f32 = 52.0;
        let points = self.points.iter().filter(|points| !points.name.is_empty());
        let curves = self.curves.iter().filter(|curve| !curve.name.is_empty());
        let bands = self.bands.iter().filter(|band| !band.name.is_empty());
        let names = points.clone().map(|p| p.name).chain(curves.clone().map(|c| c.name));
        let names: Vec<&str> = names.chain(bands.clone().map(|band| band.name)).collect();
        if names.is_empty() {
            return;
        }
        let widest = font.widest(names.iter().copied(), TEXT);
        let size = [SAMPLE + widest + 46.0, LINE * names.len() as f32 + 16.0];
        let [left, top, right, bottom] = self.emptiest_corner(field, size);
        canvas.fill([left, top, right, bottom], [255; 3], 0.88);
        canvas.frame([left, top, right, bottom], Pen::solid([205, 206, 212], 1.5));
        let mut y = top + 8.0 + LINE / 2.0;
        let sample = [left + 16.0, left + 16.0 + SAMPLE];
        for points in points {
            let x = (sample[0] + sample[1]) / 2.0;
            if points.at.iter().any(|(_, _, error)| *error > 0.0) {
                canvas.line(&[(x, y - 14.0), (x, y + 14.0)], Pen::solid(points.color, 2.5));
            }
            canvas.disc(x, y, points.radius(), points.color);
            canvas.text(points.name, (sample[1] + 14.0, y), TEXT, Align::Left);
            y += LINE;
        }
        for curve in curves {
            canvas.line(&[(sample[0], y), (sample[1], y)], curve.pen());
            canvas.text(curve.name, (sample[1] + 14.0, y), TEXT, Align::Left);
            y += LINE;
        }
        for band in bands {
            canvas.fill([sample[0], y - 11.0, sample[1], y + 11.0], band.color, Band::OPACITY);
            canvas.text(band.name, (sample[1] + 14.0, y), TEXT, Align::Left);
            y += LINE;
        }
    }

    /// A rectangle of this size in the corner where it hides the fewest data points.
    fn emptiest_corner(&self, field: [f32; 4], [width, height]: [f32; 2]) -> [f32; 4] {
        const GAP: f32 = 26.0;
        let [left, top, right, bottom] = field;
        let bands = self.bands.iter().flat_map(|band| band.at.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]));
        let curves = self.curves.iter().flat_map(|curve| curve.at.iter().copied());
        let points = self.points.iter().flat_map(|points| points.at.iter().map(|&(x, y, _)| (x, y)));
        let data: Vec<_> = bands.chain(curves).chain(points).map(|(x, y)| self.pixel(field, x, y)).collect();
        let columns = [[right - GAP - width, right - GAP], [left + GAP, left + GAP + width]];
        let rows = [[top + GAP, top + GAP + height], [bottom - GAP - height, bottom - GAP]];
        let corners = columns.iter().flat_map(|x| rows.iter().map(|y| [x[0], y[0], x[1], y[1]]));
        let hidden = |corner: &[f32; 4]| {
            let [left, top, right, bottom] = *corner;
            data.iter().filter(|(x, y)| (left..=right).contains(x) && (top..=bottom).contains(y)).count()
        };
        // There are four; the first of the best is taken.
        corners.min_by_key(hidden).unwrap_or(field)
    }
}

impl Curve<'_> {
    fn pen(&self) -> Pen {
        Pen { color: self.color, width: 4.0, dashed: self.dashed }
    }
}

impl Band<'_> {
    const OPACITY: f32 = 0.3;
}

impl Points<'_> {
    fn radius(&self) -> f32 {
        if self.at.len() > 100 { 3.0 } else { 6.5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: [u8; 3] = [200, 0, 0];
    const BLUE: [u8; 3] = [0, 0, 200];

    fn plot<'a>(curves: &'a [Curve<'a>], points: &'a [Points<'a>]) -> LinePlot<'a> {
        let axis = Axis::logarithmic("x", [1.0, 100.0]);
        LinePlot { title: "t", x: axis, y: axis, bands: &[], curves, points }
    }

    fn draw(plot: &LinePlot<'_>) -> RgbImage {
        let picture = plot.draw(Path::new("p.png")).unwrap();
        assert_eq!(picture, plot.draw(Path::new("p.png")).unwrap());
        picture
    }

    fn field(plot: &LinePlot<'_>) -> [u32; 4] {
        plot.layout(&Font::new().unwrap()).field.map(|edge| edge as u32)
    }

    #[test]
    fn data_lie_where_the_axes_say() {
        let at = [(0.1, 10.0), (1e4, 10.0)];
        let curves = [Curve { name: "", at: &at, color: BLUE, dashed: false }];
        let points = [Points { name: "", at: &[(10.0, 10.0, 20.0), (10.0, 1e3, 1.0)], color: RED }];
        let plot = plot(&curves, &points);
        let (picture, [left, top, right, bottom]) = (draw(&plot), field(&plot));
        let (x, y) = ((left + right) / 2, (top + bottom) / 2);
        // The point in the middle; its bar, to 30 above and all the way down.
        assert_eq!(picture.row(y)[x as usize], RED);
        assert_eq!(picture.row(bottom - 5)[x as usize], RED);
        let high = bottom - (30f32.log10() / 2.0 * (bottom - top) as f32) as u32;
        assert_eq!(picture.row(high + 5)[x as usize], RED);
        assert_ne!(picture.row(high - 5)[x as usize], RED);
        // The curve crosses the field and is cut off at its sides.
        assert_eq!(picture.row(y)[left as usize + 30], BLUE);
        for outside in [left - 5, right + 5] {
            assert_eq!(picture.row(y)[outside as usize], [255; 3]);
        }
    }

    #[test]
    fn bands_lie_between_their_ends_and_stop_at_gaps() {
        let at = [(0.0, -1.0, 1.0), (1.0, -1.0, 1.0), (2.0, f64::NAN, 1.0), (3.0, 0.0, 1.0), (4.0, 0.0, 1.0)];
        let bands = [Band { name: "", at: &at, color: BLUE }];
        let [x, y] = [Axis::linear("x", [0.0, 4.0]), Axis::linear("y", [-2.0, 2.0])];
        let plot = LinePlot { title: "", x, y, bands: &bands, curves: &[], points: &[] };
        let (picture, [left, top, right, bottom]) = (draw(&plot), field(&plot));
        let is_filled = |x: f64, y: f64| {
            let column = left + (x / 4.0 * f64::from(right - left)) as u32;
            let row = bottom - ((y + 2.0) / 4.0 * f64::from(bottom - top)) as u32;
            let [red, _, blue] = picture.row(row)[column as usize];
            red < 200 && blue > 200
        };
        let places = [(0.4, 0.9), (0.4, -0.9), (3.4, 0.9), (3.4, -0.3), (2.4, 0.4), (0.4, 1.2), (1.4, 0.4)];
        assert_eq!(places.map(|(x, y)| is_filled(x, y)), [true, true, true, false, false, false, false]);
    }

    #[test]
    fn names_make_a_legend_in_the_emptiest_corner() {
        let at = [(70.0, 60.0), (40.0, 70.0), (2.0, 60.0), (1.5, 1.5)];
        let bare = [Curve { name: "", at: &at, color: BLUE, dashed: false }];
        let named = [Curve { name: "a name", ..bare[0] }];
        let (without, with) = (plot(&bare, &[]), plot(&named, &[]));
        let [left, top, right, bottom] = field(&with);
        let (before, after) = (draw(&without), draw(&with));
        let differ = |[left, top, right, bottom]: [u32; 4]| {
            let part = |picture: &RgbImage, y: u32| picture.row(y)[left as usize..right as usize].to_vec();
            (top..bottom).any(|y| part(&before, y) != part(&after, y))
        };
        let (x, y) = ((left + right) / 2, (top + bottom) / 2);
        let corners = [[left, top, x, y], [x, top, right, y], [left, y, x, bottom], [x, y, right, bottom]];
        assert_eq!(corners.map(differ), [false, false, false, true]);
    }

    #[test]
    fn what_has_no_place_on_the_scale_is_left_out() {
        let at = [(1.0, 0.0), (f64::NAN, 2.0), (2.0, f64::INFINITY), (-1.0, 3.0), (5.0, 1e-300)];
        let bad: Vec<_> = at.iter().map(|&(x, y)| (x, y, f64::NAN)).collect();
        let curves = [Curve { name: "", at: &at, color: BLUE, dashed: true }];
        let points = [Points { name: "", at: &bad, color: RED }];
        let bands = [Band { name: "", at: &bad, color: RED }];
        assert_eq!(draw(&LinePlot { bands: &bands, ..plot(&curves, &points) }), draw(&plot(&[], &[])));
    }

    #[test]
    fn impossible_axes_are_refused() {
        let good = plot(&[], &[]);
        let bad = LinePlot { y: Axis::logarithmic("y", [0.0, 1.0]), ..good };
        let error = bad.draw(Path::new("p.png")).unwrap_err();
        assert!(error.message.contains("the axis `y`"), "{error}");
    }
}
