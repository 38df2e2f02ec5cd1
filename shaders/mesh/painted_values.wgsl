// The own cells of a mesh of 64-bit integers as f32, plus params.shift; NaN where a value was NaN
// or infinite.
//
// Layout: `mesh` as paint_values.wgsl leaves it, with ghosts; `out` the own cells alone, C order,
// from params.start on; `most` as there.
// Workgroup: GROUP invocations, ITEMS cells each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> mesh: array<u32>;
var<storage, read> most: array<u32>;
var<storage, read_write> out: array<f32>;

#import gpu::fixed

fn each(cell: u32) {
    let k = cell % params.own.z;
    let j = cell / params.own.z % params.own.y;
    let i = cell / params.own.z / params.own.y;
    let at = 2u * dot(params.origin, vec4<u32>(1u, i, j, k));
    let greatest = load_most(0u);
    let found = value_of(vec2<u32>(load_mesh(at), load_mesh(at + 1u)), i32(params.bits) - top_of(greatest));
    store_out(params.start + cell, select(found + params.shift, bitcast<f32>(greatest | 0x7fc00000u), greatest >= 0x7f800000u));
}

#each params.own.x * params.own.y * params.own.z
