// How searches measure: squares of differences in units of the search, which are powers of two and change no digit. Coordinates are
// loaded times `load_unit`; `apart`, written elsewhere, brings a difference to the unit in which it is squared, and leaves it where the loaded
// ones are in that unit already.
//
// Every square that decides anything is made here, in this order of fused operations, so that no compiler is free to round two of them in
// different ways.

/// From the loaded unit to that of squares.
var<private> zoom: f32;
/// Differences beyond are as good as this one: far, and their squares finite.
var<private> farthest: f32;

fn square(x: f32, y: f32, z: f32) -> f32 {
    return fma(z, z, fma(y, y, x * x));
}

fn square_of(d: vec3<f32>) -> f32 {
    return square(d.x, d.y, d.z);
}

fn measured(d: vec3<f32>) -> vec3<f32> {
    return vec3<f32>(apart(d.x), apart(d.y), apart(d.z));
}
