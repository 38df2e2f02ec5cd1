// One level of a reduction, for GPUs: `output[b]` = block b of the input in one value.
//
// Layout and tree: as reduce_serial.wgsl, of which it gives the bits.
// Workgroup: 64 invocations, one block, 16 elements each; 256 bytes of workgroup memory.

var<workgroup> tree: array<Value, 64>;

fn fold(lane: u32, half: u32) {
    if lane < half { tree[lane] = join(tree[lane], tree[lane + half]); }
}

@compute @workgroup_size(GROUP) fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = group_number(id, groups);
    let last = counted();
    var value = identity();
    for (var k = 0u; k < 16u; k++) {
        let i = block * 1024u + k * 64u + lane;
        if block < params.blocks && i < last { value = join(value, load_input(i)); }
    }
    tree[lane] = value;
    workgroupBarrier();
    fold(lane, 32u);
    workgroupBarrier();
    fold(lane, 16u);
    workgroupBarrier();
    fold(lane, 8u);
    workgroupBarrier();
    fold(lane, 4u);
    workgroupBarrier();
    fold(lane, 2u);
    workgroupBarrier();
    fold(lane, 1u);
    workgroupBarrier();
    if lane == 0u && block < params.blocks { store_output(block, tree[0]); }
}
