//! Maps: values on a plane as colors, with axes and a color bar.

use std::path::Path;

use meshloom::host_memory;
use meshloom::io::{IoError, RgbImage};

use super::axis::{Axis, Tick};
use super::canvas::{Align, Canvas, Font, INK, Pen};
use super::colors::ColorScale;
use super::frame::{Side, TEXT, TITLE, label_width, outer_ticks, ticks_across, ticks_up};

/// Pixels of a panel's longer side, if there are one, two or more panels: maps of fewer cells are
/// enlarged by a whole factor to about as many.
const SIDE: [usize; 3] = [800, 600, 480];

/// Pixels of a panel's side at least.
const LEAST_SIDE: usize = 120;

/// Width of a color bar, and pixels from a panel to its bar.
const BAR: f32 = 28.0;
const TO_BAR: f32 = 22.0;

/// Pixels around everything, and between a panel with its bar and the next.
const MARGIN: f32 = 18.0;
const BETWEEN: f32 = 30.0;

/// Pixels below a panel.
const BELOW: f32 = 92.0;

/// Maps side by side below a title.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MapFigure<'a> {
    /// The title, above all panels.
    pub title: &'a str,
    /// The panels, from left to right.
    pub panels: &'a [Panel<'a>],
}

/// The order of the rows of a map, and the direction of its vertical axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The first row is at the bottom, where the axis begins.
    Up,
    /// The first row is at the top, and the axis begins at the bottom.
    Down,
    /// The first row is at the top, where the axis begins.
    DownWithAxis,
}

/// A map with its axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Panel<'a> {
    /// The title of the panel; may be empty.
    pub title: &'a str,
    /// Rows of values.
    pub values: &'a [f32],
    /// The number of rows and columns.
    pub size: [usize; 2],
    /// The axes; their ranges go from the first edge of the first cell to the last edge of the
    /// last.
    pub x: Axis<'a>,
    /// The vertical axis.
    pub y: Axis<'a>,
    /// The place of the first row.
    pub rows: Rows,
    /// The colors of values.
    pub colors: &'a ColorScale,
    /// The label of the color bar, with the unit; `None`: the next panel has the same scale, and
    /// the bar.
    pub color_label: Option<&'a str>,
    /// Whether colors go over into each other from cell to cell.
    pub smooth: bool,
}

impl MapFigure<'_> {
    /// Returns the most cells along an axis that a figure of a number of panels has pixels for;
    /// larger maps are to be [reduced](super::Blocks).
    #[must_use]
    pub fn most_cells(panels: usize) -> u64 {
        5 * SIDE[panels.clamp(1, SIDE.len()) - 1] as u64 / 4
    }

    /// Draws the figure. `path`, where the picture is to be written, is for errors only. Equal
    /// figures give equal pictures.
    ///
    /// # Errors
    /// - `IoErrorKind::Shape` unless each panel has the values of its size, at least one.
    /// - `IoErrorKind::Unsupported` if a range of an axis is not finite and ascending, or the
    ///   picture is too large.
    /// - `IoErrorKind::Memory` if host memory is short.
    ///
    /// ```
    /// use meshloom_program::plots::{Axis, ColorScale, MapFigure, Panel, Rows};
    /// # fn main() -> Result<(), meshloom::io::IoError> {
    /// let values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
    /// let colors = ColorScale::logarithmic(&[&values])?;
    /// let panel = Panel {
    ///     title: "",
    ///     values: &values,
    ///     size: [2, 3],
    ///     x: Axis::linear("x [m]", [0.0, 3.0]),
    ///     y: Axis::linear("y [m]", [0.0, 2.0]),
    ///     rows: Rows::Up,
    ///     colors: &colors,
    ///     color_label: Some("density [kg/m³]"),
    ///     smooth: false,
    /// };
    /// let path = "density.png".as_ref();
    /// let picture = MapFigure { title: "Six cells", panels: &[panel] }.draw(path)?;
    /// assert!(picture.png_bytes(path)?.starts_with(b"\x89PNG"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn draw(&self, path: &Path) -> Result<RgbImage, IoError> {
        let failed = |reason: String| IoError::picture(path, reason);
        for panel in self.panels {
            let [rows, columns] = panel.size;
            if panel.values.is_empty() || rows.checked_mul(columns) != Some(panel.values.len()) {
                let wanted = format!("one of the {} values (at least 1)", panel.values.len());
                return Err(IoError::shape(path, panel.size.map(|n| n as u64), wanted));
            }
            if rows.max(columns) > 1 << 14 {
                return Err(failed("too large".into()));
            }
            panel.x.check(path)?;
            panel.y.check(path)?;
        }
        let font = Font::new().ok_or_else(|| failed("its font is damaged".into()))?;
        let layout = Layout::new(self, &font);
        let [width, height] = layout.size.map(|side| side.ceil() as u32);
        let mut canvas =
            Canvas::new(width, height, &font).ok_or_else(|| failed("there is no memory for it".to_string()))?;
        let size = font.fitting(self.title, TITLE, layout.size[0] - 2.0 * MARGIN);
        canvas.text(self.title, (layout.middle, MARGIN + TITLE / 2.0), size, Align::Center);
        for (panel, place) in self.panels.iter().zip(&layout.panels) {
            panel.draw(&mut canvas, place, &font)?;
        }
        Ok(canvas.picture()?)
    }
}

/// The place of a panel in the picture.
struct Place {
    /// The map (left, top, right, bottom).
    field: [f32; 4],
    /// Pixels of a cell along y and x.
    enlarge: [usize; 2],
    ticks: [Vec<Tick>; 2],
    /// The ticks of the color bar, if it has one.
    bar: Option<Vec<Tick>>,
    /// Width of the labels of the vertical axis, and of the color bar.
    labels: [f32; 2],
}

/// The places of all panels, the size of the picture, and the middle of its maps.
struct Layout {
    panels: Vec<Place>,
    size: [f32; 2],
    middle: f32,
}

impl Layout {
    fn new(figure: &MapFigure<'_>, font: &Font) -> Self {
        let title = if figure.title.is_empty() { 0.0 } else { TITLE + 20.0 };
        let titles = if figure.panels.iter().any(|panel| !panel.title.is_empty()) { TEXT + 16.0 } else { 0.0 };
        let top: f32 = MARGIN + title + titles;
        let (mut left, mut bottom) = (MARGIN, top);
        let mut panels: Vec<Place> = Vec::new();
        for panel in figure.panels {
            let target = SIDE[figure.panels.len().clamp(1, SIDE.len()) - 1];
            let longest = panel.size[0].max(panel.size[1]);
            let whole = ((target + longest / 2) / longest).max(1);
            let enlarge = panel.size.map(|cells| whole.max(LEAST_SIDE.div_ceil(cells)));
            let [high, wide] = [0, 1].map(|a| (panel.size[a] * enlarge[a]) as f32);
            let ticks = [ticks_up(&panel.y, high), ticks_across(&panel.x, wide, font)];
            let bar = panel.color_label.map(|label| ticks_up(&panel.colors.axis(label), high));
            let labels = [label_width(&ticks[0], font), bar.as_ref().map_or(0.0, |bar| label_width(bar, font))];
            left = (left + TITLE + 30.0 + labels[0]).ceil();
            let field = [left, top, left + wide, top + high];
            left = field[2] + if bar.is_some() { TO_BAR + BAR + labels[1] + TITLE + 32.0 } else { 0.0 } + BETWEEN;
            bottom = f32::max(bottom, field[3]);
            panels.push(Place { field, enlarge, ticks, bar, labels });
        }
        let ends = panels.first().map_or(0.0, |first| first.field[0]) + panels.last().map_or(0.0, |last| last.field[2]);
        Layout { panels, size: [left - BETWEEN + MARGIN, bottom + BELOW], middle: ends / 2.0 }
    }
}

impl Panel<'_> {
    fn draw(&self, canvas: &mut Canvas<'_>, place: &Place, font: &Font) -> Result<(), IoError> {
        let [left, top, right, bottom] = place.field;
        let (middle, center) = ((left + right) / 2.0, (top + bottom) / 2.0);
        self.cells(canvas, place)?;
        canvas.frame(place.field, Pen::solid(INK, 2.0));
        let upwards = if self.rows == Rows::DownWithAxis { [top, bottom] } else { [bottom, top] };
        outer_ticks(canvas, &place.ticks[0], place.field, Side::Left, upwards);
        outer_ticks(canvas, &place.ticks[1], place.field, Side::Bottom, [left, right]);
        let fitting = |text: &str, size: f32, most: f32| font.fitting(text, size, most);
        canvas.text(self.title, (middle, top - 24.0), fitting(self.title, TITLE, right - left + 60.0), Align::Center);
        let size = fitting(self.x.label, TITLE, right - left + 60.0);
        canvas.text(self.x.label, (middle, bottom + 66.0), size, Align::Center);
        let size = fitting(self.y.label, TITLE, bottom - top + 60.0);
        let x = left - 30.0 - place.labels[0] - TITLE / 2.0 + 4.0;
        canvas.text_upwards(self.y.label, (x, center), size, Align::Center);
        if let (Some(ticks), Some(label)) = (&place.bar, self.color_label) {
            let bar = [right + TO_BAR, top, right + TO_BAR + BAR, bottom];
            self.bar(canvas, bar);
            outer_ticks(canvas, ticks, bar, Side::Right, [bottom, top]);
            let x = bar[2] + 28.0 + place.labels[1] + TITLE / 2.0;
            canvas.text_upwards(label, (x, center), fitting(label, TITLE, bottom - top + 60.0), Align::Center);
        }
        Ok(())
    }

    /// Draws the cells.
    fn cells(&self, canvas: &mut Canvas<'_>, place: &Place) -> Result<(), IoError> {
        let ([rows, columns], [down, across]) = (self.size, place.enlarge);
        let bright = self.values.iter().map(|&value| self.colors.position(value));
        let bright: Vec<f32> = host_memory::collect("a picture", bright)?;
        let pixels = host_memory::collect("a picture", (0..columns * across).map(|x| Pixel::new(x, across, columns)))?;
        let [left, top, ..] = place.field.map(|edge| edge.round() as u32);
        for y in 0..rows * down {
            let vertical = Pixel::new(y, down, rows);
            let line = |row: usize| {
                let row = if self.rows == Rows::Up { rows - 1 - row } else { row };
                &bright[row * columns..][..columns]
            };
            let (nearest, [above, below]) = (line(vertical.nearest), vertical.between.map(line));
            let color = |pixel: &Pixel| {
                let [before, after] = pixel.between;
                let [upper, lower] =
                    [above, below].map(|cells| cells[before] + (cells[after] - cells[before]) * pixel.weight);
                let between = upper + (lower - upper) * vertical.weight;
                // A cell without a value does not spread over its neighbors.
                let position = if self.smooth && !between.is_nan() { between } else { nearest[pixel.nearest] };
                self.colors.color(position)
            };
            let colors: Vec<[u8; 3]> = pixels.iter().map(color).collect();
            canvas.row(left, top + y as u32, &colors);
        }
        Ok(())
    }

    /// Draws the color bar, with an arrow at an end that values are beyond.
    fn bar(&self, canvas: &mut Canvas<'_>, [left, top, right, bottom]: [f32; 4]) {
        let height = (bottom - top) as u32;
        for y in 0..height {
            let position = 1.0 - (y as f32 + 0.5) / height as f32;
            canvas.row(left as u32, top as u32 + y, &[self.colors.color(position); BAR as usize]);
        }
        canvas.frame([left, top, right, bottom], Pen::solid(INK, 2.0));
        let middle = (left + right) / 2.0;
        let ends = [(bottom, bottom + 18.0, 0.0), (top, top - 18.0, 1.0)];
        for ((edge, tip, position), _) in ends.into_iter().zip(self.colors.beyond()).filter(|(_, beyond)| *beyond) {
            let arrow = [(left, edge), (right, edge), (middle, tip)];
            canvas.area(&arrow, self.colors.color(position), 1.0);
            canvas.line(&[arrow[0], arrow[2], arrow[1]], Pen::solid(INK, 2.0));
        }
    }
}

/// The cells around the middle of a pixel along an axis.
struct Pixel {
    nearest: usize,
    /// The cells whose centers enclose it; at the border both are the same.
    between: [usize; 2],
    /// The relative position between them.
    weight: f32,
}

impl Pixel {
    fn new(pixel: usize, enlarge: usize, cells: usize) -> Self {
        let position = (pixel as f32 + 0.5) / enlarge as f32 - 0.5;
        let first = position.floor();
        let cell = |position: f32| (position.max(0.0) as usize).min(cells - 1);
        Self { nearest: pixel / enlarge, between: [cell(first), cell(first + 1.0)], weight: position - first }
    }
}

#[cfg(test)]
mod tests {
    use super::super::colors::MISSING;
    use super::*;

    fn panel<'a>(values: &'a [f32], size: [usize; 2], colors: &'a ColorScale) -> Panel<'a> {
        let x = Axis::linear("x [m]", [0.0, size[1] as f64]);
        let y = Axis::linear("y [m]", [0.0, size[0] as f64]);
        Panel {
            title: "",
            values,
            size,
            x,
            y,
            rows: Rows::DownWithAxis,
            colors,
            color_label: Some("z [m]"),
            smooth: false,
        }
    }

    fn draw(panels: &[Panel<'_>]) -> (RgbImage, Vec<[u32; 4]>) {
        let (figure, path) = (MapFigure { title: "a title", panels }, Path::new("p.png"));
        let places = Layout::new(&figure, &Font::new().unwrap()).panels;
        let picture = figure.draw(path).unwrap();
        (picture, places.iter().map(|place| place.field.map(|edge| edge.round() as u32)).collect())
    }

    /// Returns the color in the middle of a cell of 2 x 3.
    fn cell(picture: &RgbImage, [left, top, right, bottom]: [u32; 4], row: u32, column: u32) -> [u8; 3] {
        let x = left + (2 * column + 1) * (right - left) / 6;
        picture.row(top + (2 * row + 1) * (bottom - top) / 4)[x as usize]
    }

    #[test]
    fn cells_lie_where_the_axes_say() {
        let values = [0.0, 1.0, 2.0, 3.0, f32::NAN, 5.0];
        let colors = ColorScale::linear(&[&values]).unwrap();
        let color = |value: f32| colors.color(colors.position(value));
        let one = panel(&values, [2, 3], &colors);
        let smooth = Panel { smooth: true, ..one };
        let upward = Panel { rows: Rows::Up, ..one };
        for (panel, rows) in [(one, [0, 1]), (smooth, [0, 1]), (upward, [1, 0])] {
            let (picture, fields) = draw(&[panel]);
            assert_eq!(picture, draw(&[panel]).0);
            for (row, shown) in (0..2).zip(rows) {
                for column in 0..3 {
                    let value = values[3 * row + column];
                    assert_eq!(cell(&picture, fields[0], shown, column as u32), color(value), "{row}, {column}");
                }
            }
        }
        assert_eq!(color(f32::NAN), MISSING);
    }

    /// Returns `true` if there is ink in a rectangle (left, top, right, bottom).
    fn has_ink(picture: &RgbImage, [left, top, right, bottom]: [u32; 4]) -> bool {
        (top..bottom).any(|y| picture.row(y)[left as usize..right as usize].iter().any(|color| color[0] < 90))
    }

    #[test]
    fn everything_has_its_label() {
        let values = [1.0; 6];
        let colors = ColorScale::linear(&[&values]).unwrap();
        let one = panel(&values, [2, 3], &colors);
        let (picture, fields) =
            draw(&[Panel { title: "one", color_label: None, ..one }, Panel { title: "two", ..one }]);
        let (width, height) = (picture.width(), picture.height());
        let [[left, top, right, bottom], [next, .., end, _]] = fields[..] else { panic!("{fields:?}") };
        // The title, those of both panels, the axes with their numbers, and the bar of both.
        let middle = (left + end) / 2;
        assert!(has_ink(&picture, [middle - 40, 4, middle + 40, top - 45]));
        for [left, right] in [[left, right], [next, end]] {
            let middle = (left + right) / 2;
            assert!(has_ink(&picture, [middle - 30, top - 38, middle + 30, top - 4]));
            assert!(has_ink(&picture, [left, bottom + 12, right, bottom + 44]));
            assert!(has_ink(&picture, [middle - 40, bottom + 50, middle + 40, bottom + 84]));
            assert!(has_ink(&picture, [left - 35, top, left - 12, bottom]));
        }
        assert!(has_ink(&picture, [4, top, 42, bottom]));
        assert!(!has_ink(&picture, [right + 3, top + 2, right + 12, bottom - 2]), "the first has no bar");
        assert!(
            has_ink(&picture, [end + 52, top, end + 110, bottom])
                && has_ink(&picture, [width - 45, top, width - 4, bottom])
        );
        // Nothing touches the border.
        for y in 0..height {
            assert!(picture.row(y)[0] == [255; 3] && picture.row(y)[width as usize - 1] == [255; 3]);
        }
        for y in [0, height - 1] {
            assert!(picture.row(y).iter().all(|color| *color == [255; 3]));
        }
    }

    #[test]
    fn an_arrow_shows_that_values_are_beyond_the_colors() {
        let values = [0.5, 2.0, 2.0, 2.0, -3.0, f32::NAN];
        let colors = ColorScale::symmetric(1.0, [&values[..]]);
        let (picture, fields) = draw(&[panel(&values, [2, 3], &colors)]);
        let [_, top, right, bottom] = fields[0];
        let x = (right as f32 + TO_BAR + BAR / 2.0) as usize;
        assert_eq!([picture.row(top - 6)[x], picture.row(bottom + 6)[x]], [colors.color(1.0), colors.color(0.0)]);
        let within = [0.5; 6];
        let colors = ColorScale::symmetric(1.0, [&within[..]]);
        let (picture, _) = draw(&[panel(&within, [2, 3], &colors)]);
        assert_eq!([picture.row(top - 6)[x], picture.row(bottom + 6)[x]], [[255; 3]; 2]);
    }

    #[test]
    fn extreme_maps_are_drawn() {
        let maps = [[0.0; 6], [f32::NAN; 6], [-1.0; 6], [1e-45; 6], [f32::MAX; 6], [f32::INFINITY; 6]];
        for values in &maps {
            let all = [
                ColorScale::logarithmic(&[values]).unwrap(),
                ColorScale::linear(&[values]).unwrap(),
                ColorScale::symmetric(f32::NAN, [&values[..]]),
            ];
            for colors in &all {
                for (size, count) in [([2, 3], 6), ([1, 1], 1), ([6, 1], 6)] {
                    draw(&[panel(&values[..count], size, colors)]);
                }
            }
        }
        // A mixture on a logarithmic scale: what is not positive has the first color.
        let values = [-5.0, 0.0, 1.0, 10.0, f32::NAN, 100.0];
        let colors = ColorScale::logarithmic(&[&values]).unwrap();
        let (picture, fields) = draw(&[panel(&values, [2, 3], &colors)]);
        assert_eq!([0, 1].map(|column| cell(&picture, fields[0], 0, column)), [colors.color(0.0); 2]);
        assert_eq!(cell(&picture, fields[0], 1, 1), MISSING);
        assert_eq!(cell(&picture, fields[0], 1, 2), colors.color(1.0));
    }

    #[test]
    fn pictures_have_the_size_of_a_screen() {
        for (cells, panels) in [(64, 1), (1000, 1), (4096, 1), (700, 2), (64, 3), (4096, 3)] {
            let most = MapFigure::most_cells(panels);
            let size = super::super::Blocks::new([cells; 2], most).size();
            let values = vec![1.0; size[0] * size[1]];
            let colors = ColorScale::linear(&[&values]).unwrap();
            let (picture, fields) = draw(&vec![panel(&values, size, &colors); panels]);
            assert!(picture.width() < 2800 && picture.height() < 1300, "{cells}");
            assert!(fields.iter().all(|field| (320..=1000).contains(&(field[2] - field[0]))), "{cells}: {fields:?}");
        }
    }

    #[test]
    fn maps_of_another_size_and_axes_without_length_are_refused() {
        let values = [1.0; 6];
        let colors = ColorScale::linear(&[&values]).unwrap();
        let (good, path) = (panel(&values, [2, 3], &colors), Path::new("p.png"));
        let error = |panel: Panel<'_>| MapFigure { title: "", panels: &[panel] }.draw(path).unwrap_err().to_string();
        for size in [[2, 2], [0, 0], [usize::MAX, 2]] {
            assert!(error(Panel { size, ..good }).contains("6 values"));
        }
        assert!(error(Panel { x: Axis::linear("x", [1.0, 1.0]), ..good }).contains("the axis `x`"));
    }
}
