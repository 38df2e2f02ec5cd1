// What kernels over spheres have in common: how many points a sphere has at the density asked for.

fn wanted(radius: f32) -> f32 {
    let square = radius * radius;
    return params.points * select(square * radius, square, params.dims == 2u);
}
