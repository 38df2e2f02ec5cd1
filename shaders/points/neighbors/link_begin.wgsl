// The forest that linking begins with: points of a node no longer than the reach are one tree.
//
// Layout: `box` as in search.wgsl, `parent` one word per point along the curve; `params.starts` the
// first node of each level. Units are those of the search (measure.wgsl).
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> box: array<u32>;
var<storage, read_write> parent: array<u32>;

#import neighbors::measure
#import neighbors::fits_reach

fn each(i: u32) {
    square_scale = params.square_scale;
    max_difference = params.max_difference;
    var parent = i;
    for (var level = 0u; level < params.levels; level++) {
        // A leaf is 2^5 points, a node 2^3 nodes.
        let shift = 5u + 3u * level;
        let node = params.starts[level >> 2u][level & 3u] + (i >> shift);
        if !fits_reach(params.load_scale * bitcast<f32>(load_box(8u * node + 7u))) { break; }
        parent = (i >> shift) << shift;
    }
    store_parent(i, parent);
}

#each params.sources
