// Copies the words from params.source on to the words from params.destination on.
//
// Workgroup: GROUP invocations, ITEMS words each. No workgroup memory.

var<uniform> params: Params;
var<storage, read> source: array<u32>;
var<storage, read_write> destination: array<u32>;

fn each(i: u32) { store_destination(params.destination + i, load_source(params.source + i)); }

#each params.count
