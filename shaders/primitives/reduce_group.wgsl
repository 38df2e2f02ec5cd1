// One level of a reduction, for GPUs: `output[b]` = block b of the input in one value.
//
// Layout and tree: as reduce_serial.wgsl, of which it gives the bits.
// Workgroup: 256 invocations, one block, 4 elements each; 1 KiB of workgroup memory.

var<workgroup> tree: array<Value, 256>;

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
    for (var k = 0u; k < 4u; k++) {
        let i = block * 1024u + k * 256u + lane;
        if block < params.blocks && i < last { value = join(value, load_input(i)); }
    }
    tree[lane] = value;
    workgroupBarrier();
    fold(lane, 128u);
    workgroupBarrier();
    fold(lane, 64u);
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
