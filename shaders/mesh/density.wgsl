// Turns the own cells of a fixed-point mesh into a density.
//
// Layout: `mesh` as painted, with ghosts; `out` the own cells alone, C order.
// Workgroup: GROUP invocations, ITEMS cells each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> mesh: array<vec2<u32>>;
var<storage, read_write> out: array<f32>;

#import mesh::painted_density

fn each(cell: u32) {
    let k = cell % params.own.z;
    let j = cell / params.own.z % params.own.y;
    let i = cell / params.own.z / params.own.y;
    let at = dot(params.origin, vec4<u32>(1u, i, j, k));
    store_out(cell, painted_density(load_mesh(at), params.by));
}

#each params.own.x * params.own.y * params.own.z
