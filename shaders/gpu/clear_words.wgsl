// Sets words to 0.
//
// Workgroup: GROUP invocations, ITEMS words each. No workgroup memory.

var<uniform> params: Params;
var<storage, read_write> words: array<u32>;

fn each(i: u32) { store_words(i, 0u); }

#each params.count
