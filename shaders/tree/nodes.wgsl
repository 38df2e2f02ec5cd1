// Bounds of one level of a tree from those of the level below.
//
// Layout: `box` holds six words a node (low, high), levels one after the other; `params.first` is the first node of the level,
// `params.below` that of the level below, which ends at `params.first`; `params.count` nodes are to be made.
// Workgroup: GROUP invocations, a node of FAN nodes each. No workgroup memory.

const FAN: u32 = 8u;

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let node = group_number(id, count) * GROUP + lane;
    if node >= params.count { return; }
    let first = params.below + node * FAN;
    let end = min(first + FAN, params.first);
    for (var axis = 0u; axis < 3u; axis++) {
        var low = load_box(6u * first + axis);
        var high = load_box(6u * first + 3u + axis);
        for (var child = first + 1u; child < end; child++) {
            low = min(low, load_box(6u * child + axis));
            high = max(high, load_box(6u * child + 3u + axis));
        }
        store_box(6u * (params.first + node) + axis, low);
        store_box(6u * (params.first + node) + 3u + axis, high);
    }
}
