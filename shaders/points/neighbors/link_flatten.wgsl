// Brings every point of a forest to its root, as far as `params.hops` reach; `left` counts those that it does not bring there.
//
// Layout: `parent` one word a point. Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i >= params.count { continue; }
        var at = load_parent(i);
        var up = load_parent(at);
        for (var hop = 0u; hop < params.hops && up != at; hop++) {
            at = up;
            up = load_parent(at);
        }
        // Another invocation may have brought it nearer meanwhile.
        _ = min_parent(i, up);
        if up != at { _ = add_left(0u, 1u); }
    }
}
