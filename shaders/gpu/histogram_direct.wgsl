// Counts values into any number of bins.
//
// Layout: `bins[v]` is raised by the number of values v; values from `params.bins` on are not counted.
// Workgroup: GROUP invocations, ITEMS values each, one atomic addition a value. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let last = counted();
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, groups) * ITEMS + item) * GROUP + lane;
        if i < last {
            let value = load_values(i);
            if value < params.bins { add_bins(value, 1u); }
        }
    }
}
