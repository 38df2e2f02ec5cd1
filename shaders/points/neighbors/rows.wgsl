// Sorts the rows of neighbour lists by index, in place, where none has more than SHORT entries.
//
// Layout: row `i` is entries `offset[i]..offset[i + 1]` of `index` and `distance`. Sorted by insertion, in SHORT private words of
// either kind.
// Workgroup: GROUP invocations, a row each. No workgroup memory.

const SHORT: u32 = 64u;

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

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_number(id, count) * GROUP + lane;
    if row >= params.count { return; }
    let first = load_offset(row);
    let n = load_offset(row + 1u) - first;
    sort_row(first, n);
}
