// How far each query has found neighbors: the distance of its last one, but no more than a limit.
//
// Layout: row `numbers[i]` of `distance`, `params.k` entries, is the list of query `i` along the
// curve, nearest first; `reach` is along the curve.
// Workgroup: GROUP invocations, ITEMS queries each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> numbers: array<u32>;
var<storage, read> distance: array<f32>;
var<storage, read_write> reach: array<f32>;

fn each(i: u32) {
    store_reach(i, min(load_distance(load_numbers(i) * params.k + params.k - 1u), params.within));
}

#each params.queries
