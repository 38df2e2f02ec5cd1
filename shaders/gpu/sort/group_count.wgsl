// Radix sort for GPUs, upsweep: how many keys of every tile have each digit.
//
// Layout: tiles are GROUP * EACH consecutive keys; `table` holds one word per digit (256) and tile, digit by digit.
// Workgroup: GROUP invocations, one tile, EACH keys each, which $ counts; 1 KiB of workgroup memory.

var<uniform> params: Params;
var<storage, read> keys: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> table: array<u32>;

#import gpu::counted
#import gpu::sort::digit

var<workgroup> number: array<atomic<u32>, 256>;

fn each_workgroup(tile: u32, lane: u32) {
    let last = counted();
    let first = min(tile, params.tiles) * GROUP * EACH;
    let here = select(0u, min(GROUP * EACH, last - min(first, last)), tile < params.tiles);
    for (var d = lane; d < 256u; d += GROUP) { atomicStore(&number[d], 0u); }
    workgroupBarrier();
    if here > 0u {
        // All loads are under way before the first is waited for.
        let key$ = load_keys(first + min($u * GROUP + lane, here - 1u));
        if $u * GROUP + lane < here { atomicAdd(&number[digit(key$)], 1u); }
    }
    workgroupBarrier();
    if tile < params.tiles && last > 0u {
        for (var d = lane; d <= params.mask; d += GROUP) {
            store_table(d * params.tiles + tile, atomicLoad(&number[d]));
        }
    }
}

#each_workgroup
