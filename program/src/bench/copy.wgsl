// Copies an array.
//
// Elements of 8 bytes, the widest that kernels in single precision use. Workgroup: the device's
// tuned size.

var<uniform> params: Params;
var<storage, read> source: array<vec2<f32>>;
var<storage, read_write> destination: array<vec2<f32>>;

fn each(i: u32) { store_destination(i, load_source(i)); }

#each params.count
