// Turns the own cells of a fixed-point mesh into a density: out = (high * 2^32 + low) * scale + shift.
//
// Layout: `mesh` as painted, with ghosts; `out` the own cells alone, C order.
// Workgroup: GROUP invocations, ITEMS cells each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let cells = params.own.x * params.own.y * params.own.z;
    for (var item = 0u; item < ITEMS; item++) {
        let cell = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if cell < cells {
            let k = cell % params.own.z;
            let j = cell / params.own.z % params.own.y;
            let i = cell / params.own.z / params.own.y;
            let at = dot(params.origin, vec4<u32>(1u, i, j, k));
            let sum = f32(load_mesh(2u * at + 1u)) * 4294967296.0 + f32(load_mesh(2u * at));
            store_out(cell, sum * params.scale + params.shift);
        }
    }
}
