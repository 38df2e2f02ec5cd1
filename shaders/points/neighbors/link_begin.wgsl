// The forest that linking begins with: points of a node no longer than the reach are one tree already.
//
// Layout: `box` as in search.wgsl, `parent` one word a point along the curve; `params.starts` the first node of each level. Units are
// those of the search (measure.wgsl).
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    zoom = params.zoom;
    farthest = params.farthest;
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i >= params.count { continue; }
        var parent = i;
        for (var level = 0u; level < params.levels; level++) {
            let shift = 5u + 3u * level;
            let node = params.starts[level >> 2u][level & 3u] + (i >> shift);
            let diagonal = apart(params.load_unit * bitcast<f32>(load_box(8u * node + 7u)));
            if !(square(diagonal, 0.0, 0.0) * TIGHTER <= params.reach) { break; }
            parent = (i >> shift) << shift;
        }
        store_parent(i, parent);
    }
}
