// What kernels over spheres have in common: how many points a sphere has at the density asked for.

fn wanted(radius: f32) -> f32 {
    let scaled = radius * params.scale;
    let square = scaled * scaled;
    return params.points * select(square * scaled, square, params.dims == 2u);
}
