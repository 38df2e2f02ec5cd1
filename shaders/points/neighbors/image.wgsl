// Differences to the nearest periodic image, as distances are computed from them. Along a periodic
// axis the nearest image counts: a difference above half the side becomes (query - side) - source,
// one below its negative query - (source - side). Either shift is exact where it is taken.

/// Sides as coordinates are loaded, far beyond any difference along open axes, and half of them:
/// private, since inner loops use them and reading parameters again is slow.
var<private> side: vec3<f32>;
var<private> half_side: vec3<f32>;
/// 0, which no compiler knows.
var<private> nothing: u32;

/// Takes over the sides.
fn begin_images(sides: vec4<f32>, zero: u32) {
    side = sides.xyz;
    half_side = 0.5 * sides.xyz;
    nothing = zero;
}

/// Returns the number itself, hiding from compilers that it is a sum.
fn held(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ nothing); }

fn held3(x: vec3<f32>) -> vec3<f32> { return bitcast<vec3<f32>>(bitcast<vec3<u32>>(x) ^ vec3<u32>(nothing)); }

/// Returns the difference of a query and the nearest image of a source along an axis.
fn nearest_image(q: f32, s: f32, axis: u32) -> f32 {
    let d = q - s;
    let l = side[axis];
    let h = half_side[axis];
    return select(select(d, q - held(s - l), d < -h), held(q - l) - s, d > h);
}
