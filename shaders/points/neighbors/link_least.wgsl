// The least number of a point in each tree of a flat forest, at the tree's root.
//
// Layout: `parent`, `order` (the number of each point along the curve) and `least` (its complement, beforehand 0), a word a point.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i >= params.count { continue; }
        let root = load_parent(i);
        let complement = ~load_order(i);
        // A large tree has one word that all want: most have nothing to say.
        if load_least(root) < complement { _ = max_least(root, complement); }
    }
}
