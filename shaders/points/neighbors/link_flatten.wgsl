// Links every point of a forest to its root, as far as `params.max_hops` steps lead; `left` counts
// the points that need more.
//
// Layout: `parent` one word per point. Workgroup: GROUP invocations, ITEMS points each. No
// workgroup memory.

var<uniform> params: Params;
var<storage, read_write> parent: array<atomic<u32>>;
var<storage, read_write> left: array<atomic<u32>>;

fn each(i: u32) {
    var at = load_parent(i);
    var up = load_parent(at);
    for (var hop = 0u; hop < params.max_hops && up != at; hop++) {
        at = up;
        up = load_parent(at);
    }
    // Another invocation may have linked it nearer to the root meanwhile.
    _ = min_parent(i, up);
    if up != at { _ = add_left(0u, 1u); }
}

#each params.count
