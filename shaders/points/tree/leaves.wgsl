// Bounds of the leaves of a tree, the least index of a point in each, and their diagonals.
//
// Layout: `sorted` holds `params.dims` words per point, `order` the index of each in the input; `box` eight words per node: the bits of
// low x, y, z and high x, y, z (0 behind the last axis), the least index, the bits of the length of the diagonal.
// Workgroup: GROUP invocations, a leaf of LEAF points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> sorted: array<f32>;
var<storage, read> order: array<u32>;
var<storage, read_write> box: array<u32>;

#import tree::diagonal

fn each_invocation(leaf: u32) {
    let first = leaf * LEAF;
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

#each_invocation (params.count + LEAF - 1u) / LEAF
