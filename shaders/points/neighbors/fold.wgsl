// Runs a callback over finished lists of nearest neighbours, for lists that are too long for registers.
//
// Layout: `index` and `distance` hold `params.k` entries per row, from query `params.base` along the curve on; `number` the index of each
// query along the curve. Missing entries (NONE) come last. Then the arrays of the callback.
// Workgroup: GROUP invocations, one row each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> index: array<u32>;
var<storage, read> distance: array<f32>;
var<storage, read> number: array<u32>;

#import neighbors::neighbor
#import neighbors::callback

const NONE: u32 = 0xffffffffu;

fn each_invocation(row: u32) {
    let query = load_number(params.base + row);
    let first = row * params.k;
    var found = 0u;
    while found < params.k {
        if load_index(first + found) == NONE { break; }
        found++;
    }
    var reach = 0.0;
    if found > 0u { reach = load_distance(first + found - 1u); }
    var state = begin(query, reach);
    for (var i = 0u; i < found; i++) {
        state = each(state, Neighbor(load_index(first + i), load_distance(first + i)));
    }
    end(query, state);
}

#each_invocation params.rows
