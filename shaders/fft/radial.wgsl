// Multiplies the modes of a half spectrum by amplitudes[m0^2 + m1^2 + m2^2].
//
// Layout: `spectrum` C order over `local` modes, the first of which is `first`; `shape` is the mesh.
// Workgroup: GROUP invocations, ITEMS modes each. No workgroup memory.

fn square(index: u32, n: u32) -> u32 {
    let m = min(index, n - index);
    return m * m;
}

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let modes = params.local.x * params.local.y * params.local.z;
    for (var item = 0u; item < ITEMS; item++) {
        let mode = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if mode < modes {
            let k = params.first.z + mode % params.local.z;
            let j = params.first.y + mode / params.local.z % params.local.y;
            let i = params.first.x + mode / params.local.z / params.local.y;
            let m = square(i, params.shape.x) + square(j, params.shape.y) + square(k, params.shape.z);
            store_spectrum(mode, load_spectrum(mode) * load_amplitudes(m));
        }
    }
}
