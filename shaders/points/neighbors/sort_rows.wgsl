// Sorts the rows of neighbour lists by index, in place, where none has more than SHORT entries.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]` of `index` and `distance`. Sorted by insertion in private memory: SHORT words of
// each.
// Workgroup: GROUP invocations, one row each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> offset: array<u32>;
var<storage, read_write> index: array<u32>;
var<storage, read_write> distance: array<f32>;

var<private> indices: array<u32, SHORT>;
var<private> distances: array<f32, SHORT>;

fn sort_row(first: u32, n: u32) {
    for (var i = 0u; i < n; i++) {
        let s = load_index(first + i);
        let d = load_distance(first + i);
        var j = i;
        while j > 0u {
            if indices[j - 1u] <= s { break; }
            indices[j] = indices[j - 1u];
            distances[j] = distances[j - 1u];
            j--;
        }
        indices[j] = s;
        distances[j] = d;
    }
    for (var i = 0u; i < n; i++) {
        store_index(first + i, indices[i]);
        store_distance(first + i, distances[i]);
    }
}

fn each_invocation(row: u32) {
    let first = load_offset(row);
    sort_row(first, load_offset(row + 1u) - first);
}

#each_invocation params.count
