// Distances from squares, in place, where squares below `params.least` are replaced by the results
// of a search in a finer unit, which has the same entries in the same places.
//
// Layout: `index` and `distance` hold `params.count` entries of squares, `fine_index` and
// `fine_distance` the finer ones; missing entries (NONE) become infinity.
// Workgroup: GROUP invocations, ITEMS entries each. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> index: array<u32>;
var<storage, read_write> distance: array<f32>;
var<storage, read> fine_index: array<u32>;
var<storage, read> fine_distance: array<f32>;

const NONE: u32 = 0xffffffffu;

fn each(i: u32) {
    let d = load_distance(i);
    if load_index(i) == NONE {
        store_distance(i, params.infinity);
    } else if d < params.least {
        store_index(i, load_fine_index(i));
        store_distance(i, load_fine_distance(i));
    } else {
        store_distance(i, params.unit * sqrt(d));
    }
}

#each params.count
