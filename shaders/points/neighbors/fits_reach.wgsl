// Whether points lie within the reach of a search whatever rounding does; needs measure.wgsl.

/// Factor by which diagonals of boxes are taken to be longer, so that rounding never links points
/// that are not neighbors.
const SAFE: f32 = 1.000004;

/// Returns `true` if the points of a box with this diagonal are all within reach of each other.
fn fits_reach(diagonal: f32) -> bool {
    return square(scaled(diagonal), 0.0, 0.0) * SAFE <= params.reach;
}
