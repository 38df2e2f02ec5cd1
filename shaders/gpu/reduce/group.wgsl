// One level of a reduction, for GPUs: `output[b]` = block b of the input in one value.
//
// Layout and tree: as serial.wgsl, of which it gives the bits.
// Workgroup: 64 invocations, one block, 16 elements each. Memory: 256 bytes.

var<uniform> params: Params;
var<storage, read> input: array<Value>;
var<storage, read> count: array<u32>;
var<storage, read_write> output: array<Value>;

#import gpu::counted
#import gpu::reduce::operation

var<workgroup> tree: array<Value, 64>;

fn fold(lane: u32, half: u32) {
    if lane < half { tree[lane] = join(tree[lane], tree[lane + half]); }
}

fn each_workgroup(block: u32, lane: u32) {
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

#each_workgroup
