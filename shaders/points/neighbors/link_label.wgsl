// Labels in the order of the input from least numbers at roots.
//
// Layout: `parent`, `order`, `least` as in link_least.wgsl; `label` a word a point, by number.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i < params.count { store_label(load_order(i), ~load_least(load_parent(i))); }
    }
}
