// Bounds, least numbers and diagonals of one level of a tree from those of the level below.
//
// Layout: `box` holds eight words a node as in leaves.wgsl, levels one after the other; `params.first` is the first node of the level,
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
    let to = params.first + node;
    var lows = vec3<f32>(0.0);
    var highs = vec3<f32>(0.0);
    for (var axis = 0u; axis < 3u; axis++) {
        var low = bitcast<f32>(load_box(8u * first + axis));
        var high = bitcast<f32>(load_box(8u * first + 3u + axis));
        for (var child = first + 1u; child < end; child++) {
            low = min(low, bitcast<f32>(load_box(8u * child + axis)));
            high = max(high, bitcast<f32>(load_box(8u * child + 3u + axis)));
        }
        lows[axis] = low;
        highs[axis] = high;
        store_box(8u * to + axis, bitcast<u32>(low));
        store_box(8u * to + 3u + axis, bitcast<u32>(high));
    }
    var least = load_box(8u * first + 6u);
    for (var child = first + 1u; child < end; child++) { least = min(least, load_box(8u * child + 6u)); }
    store_box(8u * to + 6u, least);
    store_box(8u * to + 7u, bitcast<u32>(diagonal_of(lows, highs)));
}
