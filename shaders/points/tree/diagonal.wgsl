// The length of the diagonal of a box.

/// In units of its longest side, so that squares neither vanish nor overflow. Boxes of the largest coordinates are as long as can be.
fn diagonal_of(low: vec3<f32>, high: vec3<f32>) -> f32 {
    let most = max(abs(low), abs(high));
    if max(most.x, max(most.y, most.z)) > 9e37 { return 3.4028234e38; }
    let sides = high - low;
    let longest = max(sides.x, max(sides.y, sides.z));
    if longest <= 0.0 { return 0.0; }
    let parts = sides / longest;
    return longest * sqrt(dot(parts, parts));
}
