// Exact sum of counts, and a check of what a later sum in 32 bits would lose.
//
// Layout: `total` holds two words, low first, cleared before. The high word takes a carry when the low one wraps.
// Workgroup: GROUP invocations, ITEMS counts each; one atomic addition an invocation. No workgroup memory.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    var low = 0u;
    var high = 0u;
    for (var item = 0u; item < ITEMS; item++) {
        let i = (group_number(id, count) * ITEMS + item) * GROUP + lane;
        if i < params.count {
            let before = low;
            low += load_counts(i);
            high += u32(low < before);
        }
    }
    if low > 0u || high > 0u {
        let before = add_total(0u, low);
        add_total(1u, high + u32(before + low < before));
    }
}
