// Reads fields on a mesh at a particle's position: the sum over its nodes of weight * mesh.
//
// `Field` is what a node holds: an f32, or with `vector` the three components of a vector in a cell
// of 16 bytes. The mesh begins at element shape.w of its array. Particles that paint.wgsl would
// refuse read 0. The sum runs over x, then y, then z, always in the order of the nodes. So it has
// the same bits wherever the mesh is cut, with and without `pairs`, and for each component as if it
// were read alone.

#if vector
alias Field = vec3<f32>;
fn field(at: u32) -> Field { return load_mesh(at).xyz; }
#else
alias Field = f32;
fn field(at: u32) -> Field { return load_mesh(at); }
#endif

#if pairs
/// Two nodes, and the elements of each in a row.
struct Pair {
    first: Field,
    second: Field,
}

/// Elements within a row, of this lane's own nodes and of its partner's: those that it reads.
struct Columns {
    own: u32,
    other: u32,
}

fn columns_of(first: u32, second: u32) -> Columns {
    return Columns(select(first, second, is_second), partner(select(second, first, is_second)));
}

/// Reads both nodes of this lane's particle, in the row that begins at element `own`: this lane and
/// its partner read the nodes of the first of them together, then those of the second.
fn load_pair(own: u32, other: u32, columns: Columns) -> Pair {
    let mine = own + columns.own;
    let theirs = other + columns.other;
    let one = field(select(mine, theirs, is_second));
    let two = field(select(theirs, mine, is_second));
    let kept = select(one, two, is_second);
    let given = subgroupShuffleXor(select(two, one, is_second), 1u);
    return Pair(select(kept, given, is_second), select(given, kept, is_second));
}
#endif

fn interpolate(at: Located) -> Field {
    var sum = Field(0.0);
    let is_read = at.sane && all_inside(at);
#if !pairs
    if !is_read { return sum; }
#endif
    let x = places(at.x.first, 0u);
    let y = places(at.y.first, 1u);
    let z = places(at.z.first, 2u);
    var w_y = vec4<f32>(0.0);
    w_y[@] = weight(at.y.at, @);
    var w_z = vec4<f32>(0.0);
    w_z[@] = weight(at.z.at, @);
#if pairs
    let columns = columns_of(select(0u, z[0], is_read), select(0u, z[1], is_read));
#endif
    for (var a = 0; a < WIDTH; a++) {
        let row_x = x[a] * params.shape.y;
        var sum_x = Field(0.0);
        for (var b = 0; b < WIDTH; b++) {
            // A row's loads before their uses.
#if pairs
            let row_y = select(0u, (row_x + y[b]) * params.shape.z, is_read) + params.shape.w;
            let other = partner(row_y);
            let pair = load_pair(row_y, other, columns);
            let f0 = pair.first;
            let f1 = pair.second;
#if tsc
            let f2 = field(row_y + select(0u, z[2], is_read));
#endif
#else
            let row_y = (row_x + y[b]) * params.shape.z + params.shape.w;
            let f@ = field(row_y + z[@]);
#endif
            var sum_y = Field(0.0);
            sum_y = fma(Field(w_z[@]), f@, sum_y);
            sum_x = fma(Field(w_y[b]), sum_y, sum_x);
        }
        sum = fma(Field(weight(at.x.at, a)), sum_x, sum);
    }
#if pairs
    if !is_read { sum = Field(0.0); }
#endif
    return sum;
}
