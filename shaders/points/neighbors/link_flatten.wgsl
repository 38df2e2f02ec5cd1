// Links every point of a forest to its root, as far as `params.max_hops` steps from its parent
// lead; `left` counts the points that need more.
//
// Layout: `parent` one word per point. Workgroup: GROUP invocations, ITEMS points each. No
// workgroup memory.

var<uniform> params: Params;
var<storage, read_write> parent: array<atomic<u32>>;
var<storage, read_write> left: array<atomic<u32>>;

fn each(i: u32) {
    let parent = load_parent(i);
    var at = i;
    var up = parent;
    for (var hop = 0u; hop <= params.max_hops && up != at; hop++) {
        at = up;
        up = load_parent(at);
    }
    // A loop, which a software renderer does not execute where nothing changes.
    var links = up != parent;
    while links {
        // Another invocation may have linked it nearer to the root meanwhile.
        _ = min_parent(i, up);
        links = false;
    }
    if up != at { _ = add_left(0u, 1u); }
}

#each params.count
