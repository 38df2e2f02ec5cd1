// Radix sort for GPUs: counts all digits of all keys, which are read once.
//
// Layout: `table` as in sweep.wgsl; its histogram was 0.
// Workgroup: 256 invocations, `params.chunk` keys; 4 KiB of workgroup memory.

var<uniform> params: Params;
var<storage, read> keys: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> table: array<atomic<u32>>;

#import gpu::counted
#import gpu::sort::ordered
#import gpu::sort::histogram

fn each_workgroup(number: u32, lane: u32) {
    let last = counted();
    let begin = min(number * params.chunk, last);
    let end = begin + min(params.chunk, last - begin);
    clear_histogram(lane);
    workgroupBarrier();
    for (var i = begin + lane; i < end; i += GROUP) { tally(ordered(load_keys(i)) & params.mask); }
    workgroupBarrier();
    add_histogram(lane);
}

#each_workgroup
