// Distances from scaled squares, in place.
//
// Layout: `index` and `distance` hold `params.count` entries; missing ones (NONE) become infinity.
// Workgroup: GROUP invocations, ITEMS entries each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> index: array<u32>;
var<storage, read_write> distance: array<f32>;

const NONE: u32 = 0xffffffffu;

fn each(i: u32) {
    let d = load_distance(i);
    store_distance(i, select(params.infinity, params.unit * sqrt(d), load_index(i) != NONE));
}

#each params.count
