// The points that are kept, ascending.
//
// Layout: `before[i]` of the points before point `i` are kept, of which it is one if the next
// number is greater; `rows` lists them.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> before: array<u32>;
var<storage, read_write> rows: array<u32>;

fn each(i: u32) {
    let place = load_before(i);
    if load_before(i + 1u) > place { store_rows(place, i); }
}

#each params.count
