//! Ticks with their labels around a field of data.

use super::axis::{Axis, Tick};
use super::canvas::{Align, Canvas, Font, INK, Pen};

/// The font's em in pixels, large enough for pages that show a picture at two thirds of its size.
pub const TEXT: f32 = 24.0;

/// The em of titles and of names of axes.
pub const TITLE: f32 = 27.0;

/// Pixels between the labels of two ticks at least.
const BETWEEN: f32 = 26.0;

/// Returns the ticks of a horizontal axis of `length` pixels, so few that their labels do not
/// touch.
pub fn ticks_across(axis: &Axis<'_>, length: f32, font: &Font) -> Vec<Tick> {
    for most in [8, 6, 5, 4, 3] {
        let ticks = axis.ticks(most);
        let labels: Vec<&Tick> = ticks.iter().filter(|tick| !tick.label.is_empty()).collect();
        let half = |tick: &Tick| font.width(&tick.label, TEXT) / 2.0;
        let touch = |pair: &[&Tick]| {
            let between = (pair[1].position - pair[0].position) as f32 * length;
            half(pair[0]) + half(pair[1]) + BETWEEN > between
        };
        if !labels.windows(2).any(touch) {
            return ticks;
        }
    }
    axis.ticks(2)
}

/// Returns the ticks of a vertical axis of `length` pixels.
pub fn ticks_up(axis: &Axis<'_>, length: f32) -> Vec<Tick> {
    axis.ticks(((length / 62.0) as usize).clamp(2, 10))
}

/// Returns the width of the labels of ticks.
pub fn label_width(ticks: &[Tick], font: &Font) -> f32 {
    font.widest(ticks.iter().map(|tick| tick.label.as_str()), TEXT)
}

/// The side of a field on which ticks and their labels stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Below a horizontal axis.
    Bottom,
    /// To the left of a vertical axis.
    Left,
    /// To the right of a vertical axis.
    Right,
}

/// Draws ticks outside a field (left, top, right, bottom), with their labels; positions of vertical
/// axes count from `start` to `end`, two of its edges.
pub fn outer_ticks(canvas: &mut Canvas<'_>, ticks: &[Tick], field: [f32; 4], side: Side, [start, end]: [f32; 2]) {
    let [left, _, right, bottom] = field;
    for tick in ticks {
        let at = start + tick.position as f32 * (end - start);
        let (length, width) = if tick.long { (9.0, 2.0) } else { (5.0, 1.5) };
        let pen = Pen::solid(INK, width);
        match side {
            Side::Bottom => {
                canvas.line(&[(at, bottom), (at, bottom + length)], pen);
                canvas.text(&tick.label, (at, bottom + 28.0), TEXT, Align::Center);
            }
            Side::Left => {
                canvas.line(&[(left, at), (left - length, at)], pen);
                canvas.text(&tick.label, (left - 16.0, at), TEXT, Align::Right);
            }
            Side::Right => {
                canvas.line(&[(right, at), (right + length, at)], pen);
                canvas.text(&tick.label, (right + 16.0, at), TEXT, Align::Left);
            }
        }
    }
}
