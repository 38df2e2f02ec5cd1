// Sorts the rows of neighbour lists by index, in place.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]` of `index` and `distance`.
// A short row is sorted by insertion in SHORT private words of either kind, a longer one as a heap where it lies; indices of a
// row differ, so both give the same.
// Workgroup: GROUP invocations, a row each. No workgroup memory.

const SHORT: u32 = 64u;

var<private> indices: array<u32, SHORT>;
var<private> distances: array<f32, SHORT>;

fn sort_short(first: u32, n: u32) {
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

/// Lets entry `s`, `d` sink from the root `start` of a heap of `n` entries.
fn sink(first: u32, start: u32, n: u32, s: u32, d: f32) {
    var at = start;
    loop {
        var child = 2u * at + 1u;
        if child >= n { break; }
        if child + 1u < n && load_index(first + child + 1u) > load_index(first + child) { child++; }
        if load_index(first + child) <= s { break; }
        store_index(first + at, load_index(first + child));
        store_distance(first + at, load_distance(first + child));
        at = child;
    }
    store_index(first + at, s);
    store_distance(first + at, d);
}

fn sort_long(first: u32, n: u32) {
    for (var i = n / 2u; i > 0u; i--) {
        sink(first, i - 1u, n, load_index(first + i - 1u), load_distance(first + i - 1u));
    }
    for (var end = n - 1u; end > 0u; end--) {
        let s = load_index(first + end);
        let d = load_distance(first + end);
        store_index(first + end, load_index(first));
        store_distance(first + end, load_distance(first));
        sink(first, 0u, end, s, d);
    }
}

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_number(id, count) * GROUP + lane;
    if row >= params.count { return; }
    let first = load_offset(row);
    let n = load_offset(row + 1u) - first;
    if n > SHORT { sort_long(first, n); } else { sort_short(first, n); }
}
