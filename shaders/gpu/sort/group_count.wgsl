// Radix sort for GPUs, upsweep: how many keys of every tile have each digit.
//
// Layout: tiles are `params.tile` consecutive keys; `table` holds one word per digit (256) and tile, digit by digit.
// Workgroup: GROUP invocations, one tile; 1 KiB of workgroup memory.

var<uniform> params: Params;
var<storage, read> keys: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> table: array<u32>;

#import gpu::counted
#import gpu::sort::digit

var<workgroup> number: array<atomic<u32>, 256>;

fn each_workgroup(tile: u32, lane: u32) {
    let last = counted();
    let here = select(0u, min(params.tile, last - min(tile * params.tile, last)), tile < params.tiles);
    for (var d = lane; d < 256u; d += GROUP) { atomicStore(&number[d], 0u); }
    workgroupBarrier();
    for (var k = lane; k < here; k += GROUP) { atomicAdd(&number[digit(load_keys(tile * params.tile + k))], 1u); }
    workgroupBarrier();
    if tile < params.tiles {
        for (var d = lane; d <= params.mask; d += GROUP) {
            store_table(d * params.tiles + tile, atomicLoad(&number[d]));
        }
    }
}

#each_workgroup
