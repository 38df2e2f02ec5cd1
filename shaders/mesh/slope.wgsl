// The derivatives of the windows in window.wgsl, per cell. That of cloud in cell jumps where a
// particle lies on a node; it is the one for positions above it.

/// The derivative of weight() by the position.
#if !tsc
#if !pcs
fn slope(at: f32, n: i32) -> f32 { return select(1.0, -1.0, n == 0); }
#endif
#endif
#if tsc
fn slope(at: f32, n: i32) -> f32 {
    let side = select(1.0, -1.0, n == 0);
    return select(side * (0.5 + side * at), -2.0 * at, n == 1);
}
#endif
#if pcs
fn slope(at: f32, n: i32) -> f32 {
    let rising = n == 1 || n == 3;
    let x = select(1.0 - at, at, rising);
    let found = select(0.5 * x * x, x * fma(1.5, x, -2.0), n == 1 || n == 2);
    return select(-found, found, rising);
}
#endif

/// The nodes of a particle, and along z, where they follow each other in memory, their weights and
/// derivatives.
struct Stencil {
    x: vec4<u32>,
    y: vec4<u32>,
    z: vec4<u32>,
    w_z: vec4<f32>,
    s_z: vec4<f32>,
}

fn stencil_of(at: Located) -> Stencil {
    var nodes = Stencil(places(at.x.first, 0u), places(at.y.first, 1u), places(at.z.first, 2u), vec4<f32>(0.0), vec4<f32>(0.0));
    nodes.w_z[@] = weight(at.z.at, @);
    nodes.s_z[@] = slope(at.z.at, @);
    return nodes;
}
