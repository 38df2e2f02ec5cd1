// The length of the diagonal of a box.

/// Computed in units of the longest side, so that squares neither vanish nor overflow. Where
/// coordinates are so large that a side could overflow, it is the largest f32.
fn diagonal_of(low: vec3<f32>, high: vec3<f32>) -> f32 {
    let most = max(abs(low), abs(high));
    if max(most.x, max(most.y, most.z)) > 9e37 { return 3.4028234e38; }
    let sides = high - low;
    let longest = max(sides.x, max(sides.y, sides.z));
    if longest <= 0.0 { return 0.0; }
    let parts = sides / longest;
    return longest * sqrt(dot(parts, parts));
}
