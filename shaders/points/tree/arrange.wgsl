// Points in the order of a tree.
//
// Layout: `source` and `sorted` hold `params.dims` words per point, `order` the index in `source`
// of each sorted point.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> source: array<f32>;
var<storage, read> order: array<u32>;
var<storage, read_write> sorted: array<f32>;

fn each(i: u32) {
    let j = load_order(i) * params.dims;
    for (var axis = 0u; axis < params.dims; axis++) {
        store_sorted(i * params.dims + axis, load_source(j + axis));
    }
}

#each params.count
