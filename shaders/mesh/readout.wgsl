// Reads a mesh of f32 at the particles' positions: out[n] = sum over nodes of weight * mesh.
//
// Layout: particles as in particle.wgsl; the mesh begins at element shape.w of its array. Particles that paint.wgsl would refuse read 0. The sum runs over x, then y,
// then z, always in the order of the nodes, so it is the same wherever the mesh is cut.
// Workgroup: GROUP invocations, ITEMS particles each. No workgroup memory.

var<uniform> params: Params;
#if in_cells
var<storage, read> cell: array<u32>;
#endif
var<storage, read> d0: array<f32>;
var<storage, read> d1: array<f32>;
var<storage, read> d2: array<f32>;
var<storage, read> mesh: array<f32>;
var<storage, read_write> out: array<f32>;

#import mesh::particle

fn readout(particle: u32) -> f32 {
    let at = locate(particle);
    var sum = 0.0;
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
        var sum_x = 0.0;
        for (var b = 0; b < WIDTH; b++) {
            let row_y = (row_x + y[b]) * params.shape.z + params.shape.w;
            // A row's loads before their uses.
            let f@ = load_mesh(row_y + z[@]);
            var sum_y = 0.0;
            sum_y += w_z[@] * f@;
            sum_x += w_y[b] * sum_y;
        }
        sum += weight(at.x.at, a) * sum_x;
    }
    return sum;
}

fn each(particle: u32) { store_out(particle, readout(particle)); }

#each params.first.w
