// Reduce-then-scan for GPUs, second half: every part again, with the sum of the parts before it.
//
// Layout: as group_sums.wgsl; `offsets` holds the scanned sums, unless `params.offset` is 0. One
// element more than counted is written where `output` has it: it receives the total.
// Workgroup: 256 invocations, one part, 8 consecutive elements each, which come and go coalesced
// through workgroup memory; 10.3 KiB of workgroup memory.

var<uniform> params: Params;
var<storage, read> input: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read> offsets: array<u32>;
var<storage, read_write> output: array<u32>;

#import gpu::counted
#import gpu::padded

var<workgroup> words: array<u32, 2048 + 2048 / BANKS>;
// Sums of invocations, twice: a step reads one half and writes the other.
var<workgroup> sums: array<u32, 512>;

fn hop(lane: u32, distance: u32, side: u32) {
    var sum = sums[side * 256u + lane];
    if lane >= distance { sum += sums[side * 256u + lane - distance]; }
    sums[(1u - side) * 256u + lane] = sum;
}

fn each_workgroup(part: u32, lane: u32) {
    let base = part * 2048u;
    let last = counted();
    let span = select(0u, min(last + 1u, params.span), part < params.parts);
    for (var k = 0u; k < 8u; k++) {
        let at = k * 256u + lane;
        var own = 0u;
        if part < params.parts && base + at < last { own = load_input(base + at); }
        words[padded(at)] = own;
    }
    workgroupBarrier();
    var total = 0u;
    for (var k = 0u; k < 8u; k++) { total += words[padded(lane * 8u + k)]; }
    sums[lane] = total;
    workgroupBarrier();
    hop(lane, 1u, 0u);
    workgroupBarrier();
    hop(lane, 2u, 1u);
    workgroupBarrier();
    hop(lane, 4u, 0u);
    workgroupBarrier();
    hop(lane, 8u, 1u);
    workgroupBarrier();
    hop(lane, 16u, 0u);
    workgroupBarrier();
    hop(lane, 32u, 1u);
    workgroupBarrier();
    hop(lane, 64u, 0u);
    workgroupBarrier();
    hop(lane, 128u, 1u);
    workgroupBarrier();
    var before = sums[lane] - total;
    if params.offset == 1u && part < params.parts { before += load_offsets(part); }
    for (var k = 0u; k < 8u; k++) {
        let place = padded(lane * 8u + k);
        let own = words[place];
        words[place] = before;
        before += own;
    }
    workgroupBarrier();
    for (var k = 0u; k < 8u; k++) {
        let at = k * 256u + lane;
        if base + at < span { store_output(base + at, words[padded(at)]); }
    }
}

#each_workgroup
