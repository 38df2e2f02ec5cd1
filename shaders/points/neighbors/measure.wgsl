// Squares of distances in the units of a search, which are powers of two and change no digit.
// Coordinates are multiplied by `load_scale` as they are loaded; `scaled` brings a difference to
// the unit in which it is squared.
//
// Every square that decides anything is computed here, in this order of fused operations, so that
// no two compilers round it in different ways.

/// From coordinates to what is loaded.
var<private> load_scale: f32;
/// From loaded differences to those that are squared.
var<private> square_scale: f32;
/// Larger differences are cut to this one: it is beyond any reach, and its square is finite.
var<private> max_difference: f32;

/// A difference in the unit in which it is squared: that of loaded coordinates, unless coordinates
/// cover too wide a range.
fn scaled(d: f32) -> f32 {
#if wide
    return clamp(d, -max_difference, max_difference) * square_scale;
#else
    return d;
#endif
}

fn scaled3(d: vec3<f32>) -> vec3<f32> {
    return vec3<f32>(scaled(d.x), scaled(d.y), scaled(d.z));
}

fn square(x: f32, y: f32, z: f32) -> f32 {
    return fma(z, z, fma(y, y, x * x));
}

fn square_of(d: vec3<f32>) -> f32 {
    return square(d.x, d.y, d.z);
}
