// The least index of a point in each tree of a flat forest, at the tree's root.
//
// Layout: `parent`, `order` (the index of each point along the curve) and `least` (complements, 0
// before) have one word per point.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> parent: array<u32>;
var<storage, read> order: array<u32>;
var<storage, read_write> least: array<atomic<u32>>;

fn each(i: u32) {
    let root = load_parent(i);
    let complement = ~load_order(i);
    // Reading first spares most atomic operations on the one word of a large tree.
    if load_least(root) < complement { _ = max_least(root, complement); }
}

#each params.count
