// Radix sort for GPUs, upsweep: how many keys of every tile have each digit.
//
// Layout: tiles are GROUP * EACH consecutive keys (group_tile.wgsl); `table` holds one word per
// digit and tile, digit by digit, and `words` how many words those are.
// Workgroup: GROUP invocations, one tile, EACH keys each, which $ counts; 1 KiB of workgroup
// memory.

var<uniform> params: Params;
var<storage, read> keys: array<u32>;
var<storage, read> count: array<u32>;
var<storage, read_write> table: array<u32>;
var<storage, read_write> words: array<u32>;

#import gpu::counted
#import gpu::sort::digit
#import gpu::sort::group_tile

var<workgroup> number: array<atomic<u32>, 256>;

fn each_workgroup(tile: u32, lane: u32) {
    let last = counted();
    let tiles = tiles_of(last);
    if tile == 0u && lane == 0u { store_words(0u, tiles * (params.mask + 1u)); }
    if tile >= tiles { return; }
    let first = tile * TILE;
    let here = min(TILE, last - first);
    for (var d = lane; d < 256u; d += GROUP) { atomicStore(&number[d], 0u); }
    workgroupBarrier();
    // All loads are under way before the first is waited for.
    let key$ = load_keys(first + min($u * GROUP + lane, here - 1u));
    if $u * GROUP + lane < here { atomicAdd(&number[digit(key$)], 1u); }
    workgroupBarrier();
    for (var d = lane; d <= params.mask; d += GROUP) { store_table(d * tiles + tile, atomicLoad(&number[d])); }
}

#each_workgroup
