// Bounds of the leaves of a tree, and the least number of a point in each.
//
// Layout: `sorted` holds DIMS words a point, `order` its number; `box` eight words a node: the bits of low x, y, z and high x, y, z
// (0 behind the last axis), the least number, the length of the diagonal.
// Workgroup: GROUP invocations, a leaf of LEAF points each. No workgroup memory.

const LEAF: u32 = 32u;

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let leaf = group_number(id, count) * GROUP + lane;
    let first = leaf * LEAF;
    if first >= params.count { return; }
    let end = min(first + LEAF, params.count);
    var lows = vec3<f32>(0.0);
    var highs = vec3<f32>(0.0);
    for (var axis = 0u; axis < 3u; axis++) {
        var low = 0.0;
        var high = 0.0;
        if axis < params.dims {
            low = load_sorted(first * params.dims + axis);
            high = low;
            for (var i = first + 1u; i < end; i++) {
                let x = load_sorted(i * params.dims + axis);
                low = min(low, x);
                high = max(high, x);
            }
        }
        lows[axis] = low;
        highs[axis] = high;
        store_box(8u * leaf + axis, bitcast<u32>(low));
        store_box(8u * leaf + 3u + axis, bitcast<u32>(high));
    }
    var least = load_order(first);
    for (var i = first + 1u; i < end; i++) { least = min(least, load_order(i)); }
    store_box(8u * leaf + 6u, least);
    store_box(8u * leaf + 7u, bitcast<u32>(diagonal_of(lows, highs)));
}
