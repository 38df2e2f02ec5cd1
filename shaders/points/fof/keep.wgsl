// Marks the points of components with at least the wanted number of members.
//
// Layout: `members` counts by root, `roots[i]` for point `i`; `keep[i]` is 1 where there are
// `params.least` at least, else 0.
// Workgroup: GROUP invocations, ITEMS points each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> roots: array<u32>;
var<storage, read> members: array<u32>;
var<storage, read_write> keep: array<u32>;

fn each(i: u32) { store_keep(i, u32(load_members(load_roots(i)) >= params.least)); }

#each params.count
