// Points in the order of a tree.
//
// Layout: `source` and `sorted` hold DIMS words a point, `order` the number in `source` of each sorted one.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i < params.count {
            let j = load_order(i) * params.dims;
            for (var axis = 0u; axis < params.dims; axis++) {
                store_sorted(i * params.dims + axis, load_source(j + axis));
            }
        }
    }
}
