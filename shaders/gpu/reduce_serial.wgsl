// One level of a reduction, for software renderers: `output[b]` = block b of the input in one value.
//
// Layout: a block is 1024 elements. The tree within it: element k * 64 + lane is joined to those of the same lane with
// smaller k, and the 64 lanes are halved, lane with lane + 32, + 16, ... + 1. `identity` and `join` are written by the
// host for the operation and the type.
// Workgroup: GROUP invocations, one block each. No workgroup memory, no barriers.

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = group_number(id, groups) * GROUP + lane;
    if block < params.blocks {
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
}
