// Distances from scaled squares, in place.
//
// Layout: `distance` holds `count` squares; those beyond all reach become infinity.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i < params.count {
            let d = load_distance(i);
            store_distance(i, select(params.infinity, params.unit * sqrt(d), load_index(i) != 0xffffffffu));
        }
    }
}
