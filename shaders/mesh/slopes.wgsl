// The gradient, by a particle's position, of what it reads: the sum over its nodes of the
// derivative of their weights * value(node).
//
// `value(node, by)` is defined where this is imported: what element `node` of the meshes counts for
// the particle whose cotangent is `by`. Derivatives are those in slope.wgsl. Particles that
// paint.wgsl would refuse have none. The sum runs over x, then y, then z, as in interpolate.wgsl.

#import mesh::slope

fn slopes(at: Located, by: vec3<f32>) -> vec3<f32> {
    var sum = vec3<f32>(0.0);
    if !at.sane || !all_inside(at) { return sum; }
    let nodes = stencil_of(at);
    for (var a = 0; a < WIDTH; a++) {
        let row_x = nodes.x[a] * params.shape.y;
        var plane = vec3<f32>(0.0);
        for (var b = 0; b < WIDTH; b++) {
            let row_y = (row_x + nodes.y[b]) * params.shape.z;
            // A row's loads before their uses.
            let f@ = value(row_y + nodes.z[@], by);
            var along = 0.0;
            along = fma(nodes.w_z[@], f@, along);
            var rise = 0.0;
            rise = fma(nodes.s_z[@], f@, rise);
            let w_y = weight(at.y.at, b);
            plane = fma(vec3<f32>(w_y, slope(at.y.at, b), w_y), vec3<f32>(along, along, rise), plane);
        }
        let w_x = weight(at.x.at, a);
        sum = fma(vec3<f32>(slope(at.x.at, a), w_x, w_x), plane, sum);
    }
    return sum * params.per_cell.xyz;
}
