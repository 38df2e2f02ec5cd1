// The inverse of a permutation.
//
// Layout: `inverse[order[i]]` = i.
// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> order: array<u32>;
var<storage, read_write> inverse: array<u32>;

fn each(i: u32) { store_inverse(load_order(i), i); }

#each params.count
