// The first sphere about each query that is not denser than asked for, among those that end at an
// entry of its list.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]` of `distance`, ascending; `first[i]` is
// lowered to the number of entries before the first one that is farther than the sphere that these
// fill, or to 0 if the first `params.least` do not fill theirs.
// Workgroup: GROUP invocations, ITEMS entries each; an atomic operation for each entry in a sphere
// that is not filled. No workgroup memory.

var<uniform> params: Params;
var<storage, read> offset: array<u32>;
var<storage, read> distance: array<f32>;
var<storage, read_write> first: array<atomic<u32>>;

#import neighbors::sphere

fn each(entry: u32) {
    // The last row that does not begin behind the entry.
    var row = 0u;
    var beyond = params.rows;
    while beyond - row > 1u {
        let middle = (row + beyond) / 2u;
        if load_offset(middle) <= entry { row = middle; } else { beyond = middle; }
    }
    let before = entry - load_offset(row);
    let points = wanted(load_distance(entry));
    if before + 1u == params.least && f32(params.least) < points { min_first(row, 0u); }
    if before >= params.least && f32(before) < points { min_first(row, before); }
}

#each params.entries
