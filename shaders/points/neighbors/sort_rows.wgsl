// Sorts the rows of neighbor lists by index, in place, where none has more than SHORT entries:
// each entry counts those of its row that come before it.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]` of `index` and `distance`; no index is in a
// row twice.
// Workgroup: GROUP invocations and ROWS rows, which lie next to each other and are loaded before
// any is stored: 8 bytes of workgroup memory for each of their entries.

var<uniform> params: Params;
var<storage, read> offset: array<u32>;
var<storage, read_write> index: array<u32>;
var<storage, read_write> distance: array<f32>;

var<workgroup> indices: array<u32, ROWS * SHORT>;
var<workgroup> distances: array<f32, ROWS * SHORT>;

/// Stores entry `i`, where its row is among the rows from `row` to `end_row`, the first of which
/// begins at `begin`.
fn place(i: u32, begin: u32, row: u32, end_row: u32) {
    var first = begin;
    var end = load_offset(row + 1u);
    for (var next = row + 1u; next < end_row && end <= i; next++) {
        first = end;
        end = load_offset(next + 1u);
    }
    let own = indices[i - begin];
    var before = 0u;
    for (var j = first; j < end; j++) { before += u32(indices[j - begin] < own); }
    store_index(first + before, own);
    store_distance(first + before, distances[i - begin]);
}

fn each_workgroup(number: u32, lane: u32) {
    let row = min(number * ROWS, params.count);
    let end_row = min(row + ROWS, params.count);
    let begin = load_offset(row);
    let end = load_offset(end_row);
    for (var i = begin + lane; i < end; i += GROUP) {
        indices[i - begin] = load_index(i);
        distances[i - begin] = load_distance(i);
    }
    workgroupBarrier();
    for (var i = begin + lane; i < end; i += GROUP) { place(i, begin, row, end_row); }
}

#each_workgroup
