// Bounds of the leaves of a tree, as leaves.wgsl computes them, for software renderers: an
// invocation takes a whole leaf, without workgroup memory and barriers.
//
// Layout: as leaves.wgsl.
// Workgroup: GROUP invocations, one leaf each. No workgroup memory.

var<uniform> params: Params;
#if gathers
var<storage, read> source: array<f32>;
var<storage, read_write> sorted: array<f32>;
#else
var<storage, read> sorted: array<f32>;
#endif
var<storage, read> order: array<u32>;
var<storage, read_write> box: array<u32>;

#import tree::diagonal

/// Returns coordinates of a point: the last one twice where there are two.
fn point(at: u32, index: u32) -> vec3<f32> {
    let last = params.dims - 1u;
#if gathers
    let first = index * params.dims;
    return vec3<f32>(load_source(first), load_source(first + 1u), load_source(first + last));
#else
    let first = at * params.dims;
    return vec3<f32>(load_sorted(first), load_sorted(first + 1u), load_sorted(first + last));
#endif
}

fn each_invocation(leaf: u32) {
    let first = leaf * LEAF;
    let end = min(first + LEAF, params.count);
    var least = load_order(first);
    var low = point(first, least);
    var high = low;
    for (var at = first; at < end; at++) {
        let index = load_order(at);
        let x = point(at, index);
#if gathers
        // In this order the last coordinate of a plane is written twice, with the same value.
        store_sorted(at * params.dims, x.x);
        store_sorted(at * params.dims + params.dims - 1u, x.z);
        store_sorted(at * params.dims + 1u, x.y);
#endif
        least = min(least, index);
        low = min(low, x);
        high = max(high, x);
    }
    if params.dims < 3u {
        low.z = 0.0;
        high.z = 0.0;
    }
    let to = 8u * leaf;
    for (var axis = 0u; axis < 3u; axis++) {
        store_box(to + axis, bitcast<u32>(low[axis]));
        store_box(to + 3u + axis, bitcast<u32>(high[axis]));
    }
    store_box(to + 6u, least);
    store_box(to + 7u, bitcast<u32>(diagonal_of(low, high)));
}

#each_invocation (params.count + LEAF - 1u) / LEAF
