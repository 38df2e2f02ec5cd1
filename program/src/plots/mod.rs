//! The pictures that commands write: [maps](MapFigure) and [curves](LinePlot), with axes, units,
//! color bars and legends, and [animations](animation) of maps.
//!
//! Text is set in an embedded font. Equal arguments give the same bytes on any machine.

mod animation;
mod axis;
mod blocks;
mod canvas;
mod colors;
mod frame;
mod lines;
mod map;

pub use animation::animation;
pub use axis::{Axis, Scale};
pub use blocks::{Blocks, Means};
pub use colors::ColorScale;
pub use lines::{Band, Curve, LinePlot, Points};
pub use map::{MapFigure, Panel, Rows};
