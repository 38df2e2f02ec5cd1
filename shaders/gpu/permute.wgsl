// Moves rows of words by an index.
//
// Layout: `source` and `destination` hold rows of `params.width` words; `index` one row number a row. `move_row`
// (gather or scatter, written by the host) says which rows belong together. Each item moves `params.run` words of one
// row, a divisor of the width; rows out of range are not moved.
// Workgroup: GROUP invocations, ITEMS items each. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let parts = params.width / params.run;
    let items = counted() * parts;
    for (var item = 0u; item < ITEMS; item++) {
        let e = (group_number(id, groups) * ITEMS + item) * GROUP + lane;
        if e < items {
            let i = e / parts;
            let other = load_index(i);
            if other < params.rows { move_row(i, other, (e % parts) * params.run); }
        }
    }
}
