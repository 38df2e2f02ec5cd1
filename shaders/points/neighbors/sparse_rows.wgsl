// The sphere about each query that reaches to the end of its list.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]`; `first[i]` receives the number of its
// entries if that is less than a sphere of the radius has at the density asked for, 0 if even
// `params.least` are, and all ones otherwise.
// Workgroup: GROUP invocations, ITEMS rows each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> offset: array<u32>;
var<storage, read_write> first: array<u32>;

#import neighbors::sphere

fn each(row: u32) {
    let count = load_offset(row + 1u) - load_offset(row);
    var found = 0xffffffffu;
    if f32(max(count, params.least)) < wanted(params.radius) { found = select(count, 0u, count < params.least); }
    store_first(row, found);
}

#each params.rows
