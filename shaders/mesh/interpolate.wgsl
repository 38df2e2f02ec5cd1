// Reads fields on a mesh at a particle's position: the sum over its nodes of weight * mesh.
//
// `Field` is what a node holds: an f32, or with `vector` the three components of a vector, whose
// fields lie one after the other, params.stride elements apart. The mesh begins at element shape.w
// of its array. Particles that paint.wgsl would refuse read 0. The sum runs over x, then y, then z,
// always in the order of the nodes, so it is the same wherever the mesh is cut, and for each
// component what it would be alone.

#if vector
alias Field = vec3<f32>;
fn field(at: u32) -> Field {
    return vec3<f32>(load_mesh(at), load_mesh(at + params.stride), load_mesh(at + 2u * params.stride));
}
#else
alias Field = f32;
fn field(at: u32) -> Field { return load_mesh(at); }
#endif

fn interpolate(at: Located) -> Field {
    var sum = Field(0.0);
    if !at.sane || !all_inside(at) { return sum; }
    let x = places(at.x.first, 0u);
    let y = places(at.y.first, 1u);
    let z = places(at.z.first, 2u);
    var w_y = vec4<f32>(0.0);
    w_y[@] = weight(at.y.at, @);
    var w_z = vec4<f32>(0.0);
    w_z[@] = weight(at.z.at, @);
    for (var a = 0; a < WIDTH; a++) {
        let row_x = x[a] * params.shape.y;
        var sum_x = Field(0.0);
        for (var b = 0; b < WIDTH; b++) {
            let row_y = (row_x + y[b]) * params.shape.z + params.shape.w;
            // A row's loads before their uses.
            let f@ = field(row_y + z[@]);
            var sum_y = Field(0.0);
            sum_y = fma(Field(w_z[@]), f@, sum_y);
            sum_x = fma(Field(w_y[b]), sum_y, sum_x);
        }
        sum = fma(Field(weight(at.x.at, a)), sum_x, sum);
    }
    return sum;
}
