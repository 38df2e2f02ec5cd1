// Whether points lie within the reach of a search whatever rounding does; needs measure.wgsl.

/// What diagonals of boxes are taken to be longer by, so that rounding never links points that are
/// no neighbors.
const SAFE: f32 = 1.000004;

/// Whether the points of a box with this diagonal are all within reach of each other.
fn fits_reach(diagonal: f32) -> bool {
    return square(scaled(diagonal), 0.0, 0.0) * SAFE <= params.reach;
}
