// The row of each entry of neighbour lists, found by halving.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]`.
// Workgroup: GROUP invocations, ITEMS entries each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> offset: array<u32>;
var<storage, read_write> row: array<u32>;

fn each(entry: u32) {
    // The last row that does not begin behind the entry.
    var low = 0u;
    var high = params.rows;
    while high - low > 1u {
        let middle = (low + high) / 2u;
        if load_offset(middle) <= entry { low = middle; } else { high = middle; }
    }
    store_row(entry, low);
}

#each params.entries
