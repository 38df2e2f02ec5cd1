// Adds contributions that came back from ghosts to the points that they are copies of.
//
// Layout: `points` are rows of `values` (`width` words each), each once; those of point `i` stand in `incoming` at the rows
// `places[offsets[i]]..places[offsets[i + 1]]`, in the order of the ranks they came from.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i < params.count {
            let row = load_points(i) * params.width;
            for (var column = 0u; column < params.width; column++) {
                var sum = 0.0;
                for (var j = load_offsets(i); j < load_offsets(i + 1u); j++) {
                    sum += load_incoming(load_places(j) * params.width + column);
                }
                store_values(row + column, load_values(row + column) + sum);
            }
        }
    }
}
