// One level of a reduction, for software renderers: `output[b]` = block b of the input in one
// value.
//
// Layout: a block is 1024 elements. The tree within it: element k * 64 + lane is joined to those of
// the same lane with smaller k, and the 64 lanes are halved, lane with lane + 32, + 16, ... + 1.
// Workgroup: GROUP invocations, one block each. No workgroup memory, no barriers.

var<uniform> params: Params;
var<storage, read> input: array<Value>;
var<storage, read> count: array<u32>;
var<storage, read_write> output: array<Value>;

#import gpu::counted
#import gpu::reduce::operation

fn each_invocation(block: u32) {
    let last = counted();
    var tree: array<Value, 64>;
    for (var j = 0u; j < 64u; j++) { tree[j] = identity(); }
    let begin = min(block * 1024u, last);
    let here = min(1024u, last - begin);
    for (var k = 0u; k < here; k++) { tree[k & 63u] = join(tree[k & 63u], load_input(begin + k)); }
    for (var half = 32u; half > 0u; half >>= 1u) {
        for (var j = 0u; j < half; j++) { tree[j] = join(tree[j], tree[j + half]); }
    }
    store_output(block, tree[0]);
}

#each_invocation params.blocks
