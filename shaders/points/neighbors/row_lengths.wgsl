// The lengths of rows.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]`.
// Workgroup: GROUP invocations, ITEMS rows each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> offset: array<u32>;
var<storage, read_write> lengths: array<u32>;

fn each(row: u32) { store_lengths(row, load_offset(row + 1u) - load_offset(row)); }

#each params.count
