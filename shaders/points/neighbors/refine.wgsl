// Distances from squares, in place, where those below `params.least` come from a search in a finer unit: there the same entries stand in
// the same places, in their order.
//
// Layout: `distance` holds `count` squares, `fine_index` and `fine_distance` the other lists; missing entries (NONE) become infinity.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i >= params.count { continue; }
        let d = load_distance(i);
        if load_index(i) == 0xffffffffu {
            store_distance(i, params.infinity);
        } else if d < params.least {
            store_index(i, load_fine_index(i));
            store_distance(i, load_fine_distance(i));
        } else {
            store_distance(i, params.unit * sqrt(d));
        }
    }
}
