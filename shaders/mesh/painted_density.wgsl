// The density of a painted cell, a 64-bit integer of two words: cell * by.x + by.y.
fn painted_density(cell: vec2<u32>, by: vec2<f32>) -> f32 {
    return fma(fma(f32(cell.y), 4294967296.0, f32(cell.x)), by.x, by.y);
}
