// Turns the own cells of a fixed-point mesh into a density: out = (high * 2^32 + low) * scale +
// shift.
//
// Layout: `mesh` as painted, with ghosts; `out` the own cells alone, C order.
// Workgroup: GROUP invocations, ITEMS cells each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> mesh: array<u32>;
var<storage, read_write> out: array<f32>;

fn each(cell: u32) {
    let k = cell % params.own.z;
    let j = cell / params.own.z % params.own.y;
    let i = cell / params.own.z / params.own.y;
    let at = dot(params.origin, vec4<u32>(1u, i, j, k));
    let sum = fma(f32(load_mesh(2u * at + 1u)), 4294967296.0, f32(load_mesh(2u * at)));
    store_out(cell, fma(sum, params.scale, params.shift));
}

#each params.own.x * params.own.y * params.own.z
