// Copies the own cells of fields to where they stand among ghosts, or back.
//
// Layout: `own` C order over the own cells, one field after the other; `whole` with ghosts,
// likewise. With `back` own is written.
// Workgroup: GROUP invocations, ITEMS cells each. No workgroup memory.

var<uniform> params: Params;
#if back
var<storage, read> whole: array<f32>;
var<storage, read_write> own: array<f32>;
#else
var<storage, read> own: array<f32>;
var<storage, read_write> whole: array<f32>;
#endif

fn each(cell: u32) {
    let k = cell % params.own.z;
    let rest = cell / params.own.z;
    let j = rest % params.own.y;
    let i = rest / params.own.y % params.own.x;
    let field = rest / params.own.y / params.own.x;
    let at = params.field * field + dot(params.origin, vec4<u32>(1u, i, j, k));
#if back
    store_own(cell, load_whole(at));
#else
    store_whole(at, load_own(cell));
#endif
}

#each params.own.x * params.own.y * params.own.z * params.own.w
