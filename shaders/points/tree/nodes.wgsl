// Bounds, least indices and diagonals of one level of a tree from those of the level below.
//
// Layout: `box` holds eight words per node as in leaves.wgsl, level after level; `params.first` is
// the first node of the level, `params.below` that of the level below, which ends at
// `params.first`; `params.count` nodes are to be made.
// Workgroup: GROUP invocations, a node of FAN nodes each. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> box: array<u32>;

#import tree::diagonal

fn each_invocation(node: u32) {
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

#each_invocation params.count
