// How many points each component has.
//
// Layout: point `i` is in the component with the root `roots[i]`; `members`, one word per point, is
// cleared before, and that of a root counts. Sums do not depend on the order of additions.
// Workgroup: GROUP invocations, ITEMS points each; an atomic operation per point. No workgroup
// memory.

var<uniform> params: Params;
var<storage, read> roots: array<u32>;
var<storage, read_write> members: array<atomic<u32>>;

fn each(i: u32) { add_members(load_roots(i), 1u); }

#each params.count
