// The source of a transform: the density of the cell `at` of a mesh that one rank has.
//
// Layout: `density` a value for each cell, C order.
fn on_source(at: vec4<u32>) -> Real {
    return Real(load_density(dot(params.density_strides.xyz, at.xyz)));
}
