// Reduce-then-scan for GPUs, first half: the sum of every part of the input.
//
// Layout: parts are 2048 consecutive elements; `sums` receives one word per part.
// Workgroup: 256 invocations, one part, 8 elements each, coalesced; 1 KiB of workgroup memory.

var<uniform> params: Params;
var<storage, read> input: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> sums: array<u32>;

#import gpu::counted

var<workgroup> tree: array<u32, 256>;

fn fold(lane: u32, half: u32) {
    if lane < half { tree[lane] += tree[lane + half]; }
}

fn each_workgroup(part: u32, lane: u32) {
    let last = counted();
    var sum = 0u;
    for (var k = 0u; k < 8u; k++) {
        let i = part * 2048u + k * 256u + lane;
        if part < params.parts && i < last { sum += load_input(i); }
    }
    tree[lane] = sum;
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
    if lane == 0u && part < params.parts { store_sums(part, tree[0] + tree[1]); }
}

#each_workgroup
