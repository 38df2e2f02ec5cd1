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
    for (var a = 0; a < WIDTH; a++) {
        let row_x = place(at.x.first + a, 0u) * params.shape.y;
        var sum_x = 0.0;
        for (var b = 0; b < WIDTH; b++) {
            let row_y = (row_x + place(at.y.first + b, 1u)) * params.shape.z;
            var sum_y = 0.0;
            for (var c = 0; c < WIDTH; c++) {
                sum_y += weight(at.z.at, c) * load_mesh(params.shape.w + row_y + place(at.z.first + c, 2u));
            }
            sum_x += weight(at.y.at, b) * sum_y;
        }
        sum += weight(at.x.at, a) * sum_x;
    }
    return sum;
}

fn each(particle: u32) { store_out(particle, readout(particle)); }

#each params.first.w
