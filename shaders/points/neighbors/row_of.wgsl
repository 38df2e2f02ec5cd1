// The row of each entry of neighbour lists.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]`; found by halving.
// Workgroup: GROUP invocations, ITEMS entries each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let entry = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if entry < params.entries {
            // The last row that does not begin behind the entry.
            var low = 0u;
            var high = params.rows;
            while high - low > 1u {
                let middle = (low + high) / 2u;
                if load_offset(middle) <= entry { low = middle; } else { high = middle; }
            }
            store_row(entry, low);
        }
    }
}
