// The source of a transform: the density of the cell `at` of the whole mesh.
//
// Layout: `painted_cells` as painted, with ghosts; see painted_density.wgsl.
fn on_source(at: vec4<u32>) -> Real {
    let cell = params.painted_origin.x + dot(params.painted_origin.yzw, at.xyz);
    return Real(painted_density(load_painted_cells(cell), params.painted_by));
}
