// Where each entry of neighbor lists goes when their rows get another order.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]` and becomes row `rows[i]`, whose entries
// begin at `start[rows[i]]`.
// Workgroup: GROUP invocations, ITEMS entries each; a halving per bit of the number of rows. No
// workgroup memory.

var<uniform> params: Params;
var<storage, read> offset: array<u32>;
var<storage, read> rows: array<u32>;
var<storage, read> start: array<u32>;
var<storage, read_write> places: array<u32>;

fn each(entry: u32) {
    // The last row that does not begin behind the entry.
    var row = 0u;
    var end = params.rows;
    while end - row > 1u {
        let middle = (row + end) / 2u;
        if load_offset(middle) <= entry { row = middle; } else { end = middle; }
    }
    store_places(entry, load_start(load_rows(row)) + entry - load_offset(row));
}

#each params.entries
