//! Plots with two logarithmic axes: curves, and points with error bars.

mod axis;
mod canvas;

use std::path::Path;

use meshloom::io::{IoError, RgbImage};

pub use axis::LogAxis;
use canvas::{Align, Canvas, Pen};

/// Pixels of the picture, and of the field between its axes (left, top, right, bottom).
const SIZE: [u32; 2] = [1200, 840];
const FIELD: [f32; 4] = [158.0, 78.0, 1160.0, 742.0];

/// The font's em in pixels, large enough for pages that show the picture at two thirds of its size.
const TEXT: f32 = 25.0;

const INK: [u8; 3] = [30, 30, 34];
const GRID: [u8; 3] = [228, 229, 233];

/// A plot with two logarithmic axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogPlot<'a> {
    /// Its title, above it.
    pub title: &'a str,
    /// The horizontal axis.
    pub x: LogAxis<'a>,
    /// The vertical axis.
    pub y: LogAxis<'a>,
    /// Drawn in this order, below the points.
    pub curves: &'a [PlotCurve<'a>],
    /// Drawn in this order.
    pub points: &'a [ErrorPoints<'a>],
}

/// A curve through points, in the order given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlotCurve<'a> {
    /// Its name in the legend; a curve without a name is not in the legend.
    pub name: &'a str,
    /// x and y. Parts outside the axes are cut off; at values without a logarithm the curve is
    /// interrupted.
    pub at: &'a [(f64, f64)],
    /// Red, green, blue.
    pub color: [u8; 3],
    /// Whether it is dashed, which tells curves apart without colors.
    pub dashed: bool,
}

/// Points with error bars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorPoints<'a> {
    /// Their name in the legend; points without a name are not in the legend.
    pub name: &'a str,
    /// x, y, and half the length of the vertical bar; a bar that reaches 0 extends to the axis.
    /// Points outside the axes, or without a logarithm, are not drawn.
    pub at: &'a [(f64, f64, f64)],
    /// Red, green, blue.
    pub color: [u8; 3],
}

/// Draws `plot`, 1200 by 840 pixels. `path`, where the picture is to be written, is for errors
/// only.
///
/// The legend is in the corner with the fewest data. The embedded font has Latin and Greek letters,
/// superscript digits and most mathematical symbols; other characters are boxes. Equal plots give
/// equal pictures.
///
/// # Errors
/// `IoErrorKind::Unsupported` unless both ranges are positive, finite and ascending.
///
/// ```
/// use meshloom_program::plot::{LogAxis, LogPlot, PlotCurve, log_plot};
/// # fn main() -> Result<(), meshloom::io::IoError> {
/// let curve: Vec<_> = (1..=100).map(|i| (f64::from(i), f64::from(i).powi(-2))).collect();
/// let plot = LogPlot {
///     title: "an inverse square",
///     x: LogAxis { label: "r", range: [1.0, 100.0] },
///     y: LogAxis { label: "force", range: [1e-4, 1.0] },
///     curves: &[PlotCurve { name: "r⁻²", at: &curve, color: [40, 90, 160], dashed: false }],
///     points: &[],
/// };
/// let path = "force.png".as_ref();
/// let bytes = log_plot(&plot, path)?.png_bytes(path)?;
/// assert!(bytes.starts_with(b"\x89PNG"));
/// # Ok(())
/// # }
/// ```
pub fn log_plot(plot: &LogPlot<'_>, path: &Path) -> Result<RgbImage, IoError> {
    let failed = |reason: String| IoError::picture(path, reason);
    for axis in [&plot.x, &plot.y] {
        if !axis.is_possible() {
            let [low, high] = axis.range;
            return Err(failed(format!("the axis `{}` cannot go from {low} to {high}", axis.label)));
        }
    }
    let [width, height] = SIZE;
    let mut canvas = Canvas::new(width, height).ok_or_else(|| failed("there is no memory for it".to_string()))?;
    plot.axes(&mut canvas);
    plot.data(&mut canvas);
    plot.legend(&mut canvas);
    Ok(canvas.picture()?)
}

impl LogPlot<'_> {
    /// Returns the position of a value in pixels.
    fn pixel(&self, x: f64, y: f64) -> (f32, f32) {
        let [left, top, right, bottom] = FIELD;
        let (x, y) = (self.x.position(x) as f32, self.y.position(y) as f32);
        (left + x * (right - left), bottom + y * (top - bottom))
    }

    fn axes(&self, canvas: &mut Canvas) {
        let [left, top, right, bottom] = FIELD;
        let (across, up) = (self.x.ticks(), self.y.ticks());
        // The grid comes first: ticks and the frame are drawn over it.
        for tick in across.iter().filter(|tick| tick.long) {
            let x = left + tick.position as f32 * (right - left);
            canvas.line(&[(x, top), (x, bottom)], Pen::solid(GRID, 1.5));
        }
        for tick in up.iter().filter(|tick| tick.long) {
            let y = bottom + tick.position as f32 * (top - bottom);
            canvas.line(&[(left, y), (right, y)], Pen::solid(GRID, 1.5));
        }
        for tick in &across {
            let x = left + tick.position as f32 * (right - left);
            let (length, width) = if tick.long { (13.0, 2.0) } else { (7.0, 1.5) };
            for (from, to) in [(bottom, bottom - length), (top, top + length)] {
                canvas.line(&[(x, from), (x, to)], Pen::solid(INK, width));
            }
            canvas.text(&tick.label, (x, bottom + 30.0), TEXT, Align::Center);
        }
        for tick in &up {
            let y = bottom + tick.position as f32 * (top - bottom);
            let (length, width) = if tick.long { (13.0, 2.0) } else { (7.0, 1.5) };
            for (from, to) in [(left, left + length), (right, right - length)] {
                canvas.line(&[(from, y), (to, y)], Pen::solid(INK, width));
            }
            canvas.text(&tick.label, (left - 14.0, y), TEXT, Align::Right);
        }
        canvas.frame(FIELD, Pen::solid(INK, 2.0));
        let (x, y) = ((left + right) / 2.0, (top + bottom) / 2.0);
        canvas.text(self.title, (x, top / 2.0), TEXT * 1.12, Align::Center);
        canvas.text(self.x.label, (x, bottom + 70.0), TEXT * 1.12, Align::Center);
        canvas.text_upwards(self.y.label, (32.0, y), TEXT * 1.12, Align::Center);
    }

    fn data(&self, canvas: &mut Canvas) {
        canvas.clip(Some(FIELD));
        for curve in self.curves {
            let pixels: Vec<_> = curve.at.iter().map(|&(x, y)| self.pixel(x, y)).collect();
            for piece in pixels.split(|(x, y)| !(x.is_finite() && y.is_finite())) {
                canvas.line(piece, curve.pen());
            }
        }
        let [_, _, _, bottom] = FIELD;
        for points in self.points {
            let inside = points.at.iter().filter(|(x, y, _)| {
                [self.x.position(*x), self.y.position(*y)].iter().all(|position| (0.0..=1.0).contains(position))
            });
            for &(at, y, error) in inside {
                let ((x, middle), (_, high)) = (self.pixel(at, y), self.pixel(at, y + error));
                let (_, low) = self.pixel(at, y - error);
                // Without a logarithm, down to the axis.
                let low = if low.is_finite() { low } else { bottom + 20.0 };
                if error > 0.0 && high.is_finite() {
                    let pen = Pen::solid(points.color, 2.5);
                    canvas.line(&[(x, low), (x, high)], pen);
                    for end in [low, high] {
                        canvas.line(&[(x - 6.0, end), (x + 6.0, end)], pen);
                    }
                }
                canvas.disc(x, middle, 6.5, points.color);
            }
        }
        canvas.clip(None);
    }

    fn legend(&self, canvas: &mut Canvas) {
        const LINE: f32 = 40.0;
        const SAMPLE: f32 = 52.0;
        let points = self.points.iter().filter(|points| !points.name.is_empty());
        let curves = self.curves.iter().filter(|curve| !curve.name.is_empty());
        let names: Vec<&str> = points.clone().map(|p| p.name).chain(curves.clone().map(|c| c.name)).collect();
        if names.is_empty() {
            return;
        }
        let widest = names.iter().map(|name| canvas.width(name, TEXT)).fold(0.0, f32::max);
        let [left, top, right, bottom] =
            self.emptiest_corner([SAMPLE + widest + 46.0, LINE * names.len() as f32 + 16.0]);
        canvas.fill([left, top, right, bottom], [255; 3], 0.88);
        canvas.frame([left, top, right, bottom], Pen::solid([205, 206, 212], 1.5));
        let mut y = top + 8.0 + LINE / 2.0;
        let sample = [left + 16.0, left + 16.0 + SAMPLE];
        for points in points {
            let x = (sample[0] + sample[1]) / 2.0;
            canvas.line(&[(x, y - 14.0), (x, y + 14.0)], Pen::solid(points.color, 2.5));
            canvas.disc(x, y, 6.5, points.color);
            canvas.text(points.name, (sample[1] + 14.0, y), TEXT, Align::Left);
            y += LINE;
        }
        for curve in curves {
            canvas.line(&[(sample[0], y), (sample[1], y)], curve.pen());
            canvas.text(curve.name, (sample[1] + 14.0, y), TEXT, Align::Left);
            y += LINE;
        }
    }

    /// A rectangle of this size in the corner where it hides the fewest data points.
    fn emptiest_corner(&self, [width, height]: [f32; 2]) -> [f32; 4] {
        const GAP: f32 = 26.0;
        let [left, top, right, bottom] = FIELD;
        let curves = self.curves.iter().flat_map(|curve| curve.at.iter().copied());
        let points = self.points.iter().flat_map(|points| points.at.iter().map(|&(x, y, _)| (x, y)));
        let data: Vec<_> = curves.chain(points).map(|(x, y)| self.pixel(x, y)).collect();
        let columns = [[right - GAP - width, right - GAP], [left + GAP, left + GAP + width]];
        let rows = [[top + GAP, top + GAP + height], [bottom - GAP - height, bottom - GAP]];
        let corners = columns.iter().flat_map(|x| rows.iter().map(|y| [x[0], y[0], x[1], y[1]]));
        let hidden = |corner: &[f32; 4]| {
            let [left, top, right, bottom] = *corner;
            data.iter().filter(|(x, y)| (left..=right).contains(x) && (top..=bottom).contains(y)).count()
        };
        // There are four; the first of the best is taken.
        corners.min_by_key(hidden).unwrap_or(FIELD)
    }
}

impl PlotCurve<'_> {
    fn pen(&self) -> Pen {
        Pen { color: self.color, width: 4.0, dashed: self.dashed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: [u8; 3] = [200, 0, 0];
    const BLUE: [u8; 3] = [0, 0, 200];

    fn plot<'a>(curves: &'a [PlotCurve<'a>], points: &'a [ErrorPoints<'a>]) -> LogPlot<'a> {
        let axis = LogAxis { label: "x", range: [1.0, 100.0] };
        LogPlot { title: "t", x: axis, y: axis, curves, points }
    }

    fn draw(plot: &LogPlot<'_>) -> RgbImage {
        let picture = log_plot(plot, Path::new("p.png")).unwrap();
        assert_eq!(picture, log_plot(plot, Path::new("p.png")).unwrap());
        picture
    }

    #[test]
    fn data_lie_where_the_axes_say() {
        let at = [(0.1, 10.0), (1e4, 10.0)];
        let curves = [PlotCurve { name: "", at: &at, color: BLUE, dashed: false }];
        let points = [ErrorPoints { name: "", at: &[(10.0, 10.0, 20.0), (10.0, 1e3, 1.0)], color: RED }];
        let picture = draw(&plot(&curves, &points));
        let [left, top, right, bottom] = FIELD.map(|edge| edge as u32);
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
    fn what_has_no_logarithm_is_left_out() {
        let at = [(1.0, 0.0), (f64::NAN, 2.0), (2.0, f64::INFINITY), (-1.0, 3.0), (5.0, 1e-300)];
        let bad: Vec<_> = at.iter().map(|&(x, y)| (x, y, f64::NAN)).collect();
        let curves = [PlotCurve { name: "", at: &at, color: BLUE, dashed: true }];
        let points = [ErrorPoints { name: "", at: &bad, color: RED }];
        assert_eq!(draw(&plot(&curves, &points)), draw(&plot(&[], &[])));
    }

    #[test]
    fn impossible_axes_are_refused() {
        let good = plot(&[], &[]);
        let bad = LogPlot { y: LogAxis { label: "y", range: [0.0, 1.0] }, ..good };
        let error = log_plot(&bad, Path::new("p.png")).unwrap_err();
        assert!(error.message.contains("the axis `y`"), "{error}");
    }
}
