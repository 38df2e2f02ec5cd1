// A callback over finished lists, for lists that no registers hold.
//
// Layout: `index` and `distance` hold `k` entries a row, from the query that is number `base` along the curve on; `number` the
// numbers of the queries along the curve. Missing entries (NONE) come last.
// Workgroup: GROUP invocations, a row each. No workgroup memory.

const NONE: u32 = 0xffffffffu;

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_number(id, count) * GROUP + lane;
    if row >= params.rows { return; }
    let query = load_number(params.base + row);
    let first = row * params.k;
    var found = 0u;
    while found < params.k {
        if load_index(first + found) == NONE { break; }
        found++;
    }
    var reach = 0.0;
    if found > 0u { reach = load_distance(first + found - 1u); }
    var state = begin(query, reach);
    for (var i = 0u; i < found; i++) {
        state = each(state, Neighbor(load_index(first + i), load_distance(first + i)));
    }
    end(query, state);
}
