// Adds 1 to every element: work that takes no time, and that no driver may leave out.
//
// Workgroup: the device's tuned size.

var<uniform> params: Params;
var<storage, read_write> x: array<u32>;

fn each(i: u32) { store_x(i, load_x(i) + 1u); }

#each params.count
